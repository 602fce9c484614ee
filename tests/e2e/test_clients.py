"""Unmodified clients against the local cloud: they get nothing but the environment variables of `mme credentials --operator`.

boto3, the AWS CLI, sagemaker-core (the base of SDK v3) and the SageMaker Python SDK v2 each make a multi-model endpoint with real
artifacts, invoke, describe, list and delete, and get AWS's errors as their own.
"""

import json
import os
import subprocess
import sys

import boto3
import pytest

from mme_cli.cloud import running_cloud
from mme_cli.platform import LocalPlatform
from tests.e2e.foreign import environment, run_client
from tests.e2e.support import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

IMAGE = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1"
BUCKET = "clients-artifacts"
TARGET = "acme/model.tar.gz"
TRUST = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}],
}
READ = {
    "Version": "2012-10-17",
    "Statement": [
        {"Effect": "Allow", "Action": "s3:GetObject", "Resource": f"arn:aws:s3:::{BUCKET}/models/*"},
        {"Effect": "Allow", "Action": "s3:ListBucket", "Resource": f"arn:aws:s3:::{BUCKET}"},
    ],
}


class Stage:
    """A cloud with a bucket, an execution role and one model in the bucket; and what its clients are given."""

    def __init__(self, state, model, artifact):
        self.artifact = artifact
        self.row, self.expected = model.rows[0], model.expected[0]
        self.variables = state.client_variables
        self.sagemaker, s3, iam = (LocalPlatform(state).client(name) for name in ("sagemaker", "s3", "iam"))
        s3.create_bucket(Bucket=BUCKET)
        s3.upload_file(str(artifact), BUCKET, f"models/{TARGET}")
        self.role = iam.create_role(RoleName="execution", AssumeRolePolicyDocument=json.dumps(TRUST))["Role"]["Arn"]
        iam.put_role_policy(RoleName="execution", PolicyName="read", PolicyDocument=json.dumps(READ))
        s3.close()
        iam.close()

    @property
    def given(self):
        return {
            "image": IMAGE,
            "role": self.role,
            "bucket": BUCKET,
            "prefix": f"s3://{BUCKET}/models/",
            "target": TARGET,
            "artifact": str(self.artifact),
            "row": self.row,
        }

    def holds(self, text):
        assert [float(text)] == pytest.approx(self.expected, abs=1e-3)


@pytest.fixture(scope="module")
def stage(demo_models):
    folder, models = demo_models
    model = next(model for model in models if len(model.expected[0]) == 1)
    with running_cloud() as state:
        stage = Stage(state, model, folder / model.artifact)
        yield stage
        stage.sagemaker.close()


@pytest.fixture(autouse=True)
def nothing_stays(stage):
    yield
    left = (stage.sagemaker.list_endpoints(), stage.sagemaker.list_endpoint_configs(), stage.sagemaker.list_models())
    assert [document[kind] for document, kind in zip(left, ("Endpoints", "EndpointConfigs", "Models"), strict=True)] == [[], [], []]


class TestBoto3:
    @pytest.fixture
    def session(self, stage, monkeypatch):
        """A user's program in that environment."""
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            monkeypatch.delenv(name)
        for name, value in stage.variables.items():
            monkeypatch.setenv(name, value)
        return boto3.Session()

    def test_the_whole_life_of_an_endpoint(self, stage, session):
        sagemaker, runtime = session.client("sagemaker"), session.client("sagemaker-runtime")
        container = {"Image": IMAGE, "Mode": "MultiModel", "ModelDataUrl": f"s3://{BUCKET}/models/"}
        sagemaker.create_model(ModelName="boto", ExecutionRoleArn=stage.role, PrimaryContainer=container)
        variant = {"VariantName": "AllTraffic", "ModelName": "boto", "InstanceType": "ml.m5.xlarge", "InitialInstanceCount": 1}
        sagemaker.create_endpoint_config(EndpointConfigName="boto", ProductionVariants=[variant])
        sagemaker.create_endpoint(EndpointName="boto", EndpointConfigName="boto", Tags=[{"Key": "team", "Value": "ml"}])
        sagemaker.get_waiter("endpoint_in_service").wait(EndpointName="boto", WaiterConfig={"Delay": 1, "MaxAttempts": 120})

        invocation = {"EndpointName": "boto", "TargetModel": TARGET, "ContentType": "text/csv", "Accept": "text/csv"}
        answer = runtime.invoke_endpoint(**invocation, Body=stage.row)
        stage.holds(answer["Body"].read().decode())
        assert answer["InvokedProductionVariant"] == "AllTraffic"

        described = sagemaker.describe_endpoint(EndpointName="boto")
        assert described["EndpointStatus"] == "InService"
        assert sagemaker.describe_model(ModelName="boto")["PrimaryContainer"]["Mode"] == "MultiModel"
        pages = sagemaker.get_paginator("list_endpoints").paginate(PaginationConfig={"PageSize": 1})
        assert [entry["EndpointName"] for page in pages for entry in page["Endpoints"]] == ["boto"]
        assert sagemaker.list_tags(ResourceArn=described["EndpointArn"])["Tags"] == [{"Key": "team", "Value": "ml"}]

        with pytest.raises(runtime.exceptions.ModelError) as refused:
            runtime.invoke_endpoint(**invocation, Body="no,numbers")
        assert refused.value.response["OriginalStatusCode"] >= 400
        with pytest.raises(runtime.exceptions.ValidationError, match=r"none.tar.gz"):
            runtime.invoke_endpoint(**{**invocation, "TargetModel": "none.tar.gz"}, Body=stage.row)
        with pytest.raises(sagemaker.exceptions.ClientError, match=r"Cannot create already existing"):
            sagemaker.create_endpoint_config(EndpointConfigName="boto", ProductionVariants=[variant])

        sagemaker.delete_endpoint(EndpointName="boto")
        sagemaker.get_waiter("endpoint_deleted").wait(EndpointName="boto", WaiterConfig={"Delay": 1, "MaxAttempts": 120})
        sagemaker.delete_endpoint_config(EndpointConfigName="boto")
        sagemaker.delete_model(ModelName="boto")
        with pytest.raises(sagemaker.exceptions.ClientError, match="Could not find"):
            sagemaker.describe_endpoint(EndpointName="boto")
        for client in (sagemaker, runtime):
            client.close()


class TestAwsCli:
    @pytest.fixture
    def aws(self, stage, tmp_path):
        """Runs ``aws``: ``(status, answer or error text)``."""
        folder = environment("aws-cli")

        def run(*arguments):
            variables = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)} | stage.variables
            done = subprocess.run(
                [folder / "bin" / "python", folder / "bin" / "aws", "--output", "json", *arguments],
                env=variables,
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            return done.returncode, json.loads(done.stdout) if done.stdout.startswith(("{", "[", '"')) else done.stdout + done.stderr

        return run

    def test_the_whole_life_of_an_endpoint(self, stage, aws, tmp_path):
        def done(*arguments):
            status, answer = aws(*arguments)
            assert status == 0, answer
            return answer

        done("s3", "cp", str(stage.artifact), f"s3://{BUCKET}/models/cli/model.tar.gz", "--no-progress")
        assert "cli/model.tar.gz" in done("s3", "ls", "--recursive", f"s3://{BUCKET}/models/")
        container = json.dumps({"Image": IMAGE, "Mode": "MultiModel", "ModelDataUrl": f"s3://{BUCKET}/models/"})
        done("sagemaker", "create-model", "--model-name", "cli", "--execution-role-arn", stage.role, "--primary-container", container)
        variants = "VariantName=AllTraffic,ModelName=cli,InstanceType=ml.m5.xlarge,InitialInstanceCount=1"
        done("sagemaker", "create-endpoint-config", "--endpoint-config-name", "cli", "--production-variants", variants)
        created = done("sagemaker", "create-endpoint", "--endpoint-name", "cli", "--endpoint-config-name", "cli")
        assert created["EndpointArn"].endswith(":endpoint/cli")
        status = ("sagemaker", "describe-endpoint", "--endpoint-name", "cli", "--query", "EndpointStatus")
        wait_until(lambda: done(*status) == "InService", what="the endpoint")
        done("sagemaker", "wait", "endpoint-in-service", "--endpoint-name", "cli")

        body, answer = tmp_path / "row.csv", tmp_path / "answer.csv"
        invoke = ("sagemaker-runtime", "invoke-endpoint", "--endpoint-name", "cli", "--content-type", "text/csv", "--accept", "text/csv")
        body.write_text(stage.row)
        told = done(*invoke, "--target-model", "cli/model.tar.gz", "--body", f"fileb://{body}", str(answer))
        assert told["InvokedProductionVariant"] == "AllTraffic"
        stage.holds(answer.read_text())

        assert done("sagemaker", "list-endpoints", "--query", "Endpoints[].EndpointName") == ["cli"]
        assert done("sagemaker", "list-models", "--name-contains", "cli", "--query", "Models[].ModelName") == ["cli"]
        body.write_text("no,numbers")
        for target, error in (("cli/model.tar.gz", "ModelError"), ("none.tar.gz", "ValidationError")):
            exit_status, text = aws(*invoke, "--target-model", target, "--body", f"fileb://{body}", str(answer))
            assert exit_status != 0
            assert f"({error}) when calling the InvokeEndpoint operation" in text

        done("sagemaker", "delete-endpoint", "--endpoint-name", "cli")
        wait_until(lambda: aws(*status)[0] != 0, what="the deletion")
        done("sagemaker", "wait", "endpoint-deleted", "--endpoint-name", "cli")
        done("sagemaker", "delete-endpoint-config", "--endpoint-config-name", "cli")
        done("sagemaker", "delete-model", "--model-name", "cli")
        exit_status, text = aws(*status)
        assert exit_status != 0
        assert "(ValidationException) when calling the DescribeEndpoint operation: Could not find" in text


class TestSageMakerCore:
    def test_the_whole_life_of_an_endpoint(self, stage):
        said = run_client(sys.executable, "with_sagemaker_core.py", stage.variables, stage.given)
        prediction, variant = said.pop("prediction")
        stage.holds(prediction)
        assert variant == "AllTraffic"
        assert said == {
            "status": "InService",
            "listed": ["core"],
            "models": ["core"],
            "mode": "MultiModel",
            "updated": ["InService", 2],
            "missing artifact": ["ValidationError", "ValidationError", 400],
            "bad body": ["ModelError", "ModelError", 424],
            "config that is there": ["ClientError", "ValidationException", 400],
            "deleted": ["ClientError", "ValidationException", 400],
        }


class TestSageMakerSdkV2:
    def test_a_multi_data_model_is_created_filled_listed_and_asked(self, stage):
        python = environment("sagemaker-sdk-v2") / "bin" / "python"
        said = run_client(python, "with_sdk_v2.py", stage.variables, stage.given)
        for prediction in said.pop("predictions"):
            ((value,),) = prediction
            stage.holds(value)
        before = said.pop("before")
        assert TARGET in before
        assert said == {
            "status": "InService",
            "updated": 2,
            "uploaded": f"s3://{BUCKET}/models/sdk2/uploaded.tar.gz",
            "copied": f"s3://{BUCKET}/models/sdk2/copied.tar.gz",
            "after": sorted([*before, "sdk2/copied.tar.gz", "sdk2/uploaded.tar.gz"]),
            "missing artifact": ["ValidationError", "ValidationError", 400],
            "bad body": ["ModelError", "ModelError", 424],
            "deleted": ["ClientError", "ValidationException", 400],
        }
