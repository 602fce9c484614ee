"""One endpoint with a real model server: artifacts come through IAM, errors are the runtime's, templates deploy and update it."""

from __future__ import annotations

import io
import json
import tarfile
from contextlib import closing

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from mme_local import LocalCloud

IMAGE = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1"
BUCKET = "artifacts-of-the-tests"


def artifact():
    """A model that adds its two features up, more or less, packed as SageMaker's XGBoost image wants it."""
    import numpy
    import xgboost

    features = numpy.array([[a, b] for a in range(8) for b in range(8)], dtype=float)
    trained = xgboost.train({"max_depth": 3}, xgboost.DMatrix(features, features.sum(axis=1)), 10)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        content = bytes(trained.save_raw("ubj"))
        member = tarfile.TarInfo("xgboost-model")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return packed.getvalue(), float(trained.predict(xgboost.DMatrix([[3.0, 4.0]]))[0])


def template(count=1, tag="a"):
    role = {
        "Type": "AWS::IAM::Role",
        "Properties": {
            "AssumeRolePolicyDocument": {
                "Version": "2012-10-17",
                "Statement": [{"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}],
            },
            "Policies": [
                {
                    "PolicyName": "read",
                    "PolicyDocument": {
                        "Version": "2012-10-17",
                        "Statement": [
                            {"Effect": "Allow", "Action": "s3:GetObject", "Resource": f"arn:aws:s3:::{BUCKET}/models/*"},
                            {"Effect": "Deny", "Action": "s3:GetObject", "Resource": f"arn:aws:s3:::{BUCKET}/models/denied/*"},
                            {"Effect": "Allow", "Action": "s3:ListBucket", "Resource": f"arn:aws:s3:::{BUCKET}"},
                        ],
                    },
                }
            ],
        },
    }
    container = {"Image": IMAGE, "Mode": "MultiModel", "ModelDataUrl": f"s3://{BUCKET}/models/", "Environment": {"TAG": tag}}
    variant = {
        "VariantName": "AllTraffic",
        "ModelName": {"Fn::GetAtt": ["Model", "ModelName"]},
        "InstanceType": "ml.m5.xlarge",
        "InitialInstanceCount": str(count),
        "InitialVariantWeight": 1,
    }
    target = {
        "ServiceNamespace": "sagemaker",
        "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
        "ResourceId": {"Fn::Sub": "endpoint/${Endpoint.EndpointName}/variant/AllTraffic"},
        "MinCapacity": 1,
        "MaxCapacity": "2",
        "RoleARN": {"Fn::Sub": "arn:aws:iam::${AWS::AccountId}:role/scaling"},
    }
    tracking = {
        "TargetValue": 70,
        "PredefinedMetricSpecification": {"PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"},
        "ScaleInCooldown": 600,
        "ScaleOutCooldown": 300,
    }
    policy = {
        "PolicyName": "invocations",
        "PolicyType": "TargetTrackingScaling",
        "ScalingTargetId": {"Ref": "Target"},
        "TargetTrackingScalingPolicyConfiguration": tracking,
    }
    return json.dumps(
        {
            "Resources": {
                "Role": role,
                "Model": {
                    "Type": "AWS::SageMaker::Model",
                    "Properties": {"ExecutionRoleArn": {"Fn::GetAtt": ["Role", "Arn"]}, "PrimaryContainer": container},
                },
                "Config": {"Type": "AWS::SageMaker::EndpointConfig", "Properties": {"ProductionVariants": [variant]}},
                "Endpoint": {
                    "Type": "AWS::SageMaker::Endpoint",
                    "Properties": {
                        "EndpointName": "shared",
                        "EndpointConfigName": {"Fn::GetAtt": ["Config", "EndpointConfigName"]},
                        "RetainAllVariantProperties": True,
                    },
                },
                "Target": {"Type": "AWS::ApplicationAutoScaling::ScalableTarget", "Properties": target},
                "Policy": {"Type": "AWS::ApplicationAutoScaling::ScalingPolicy", "Properties": policy},
            },
            "Outputs": {
                name: {"Value": value}
                for name, value in {
                    "EndpointRef": {"Ref": "Endpoint"},
                    "ModelRef": {"Ref": "Model"},
                    "TargetRef": {"Ref": "Target"},
                    "PolicyRef": {"Ref": "Policy"},
                    "PolicyArn": {"Fn::GetAtt": ["Policy", "Arn"]},
                }.items()
            },
        }
    )


class Deployed:
    """A stack with an endpoint, and its artifacts."""

    def __init__(self, cloud: LocalCloud) -> None:
        self.cloud = cloud
        self.s3, self.cloudformation, self.sagemaker = (cloud.client(name) for name in ("s3", "cloudformation", "sagemaker"))
        self.scaling = cloud.client("application-autoscaling")
        self.runtime = cloud.client("sagemaker-runtime", config=Config(retries={"mode": "standard"}))
        self.packed, self.prediction = artifact()
        self.s3.create_bucket(Bucket=BUCKET)
        for key in ("models/acme/a.tar.gz", "models/globex/b.tar.gz", "models/denied/c.tar.gz"):
            self.s3.put_object(Bucket=BUCKET, Key=key, Body=self.packed)
        self.s3.put_object(Bucket=BUCKET, Key="models/broken.tar.gz", Body=b"no archive")
        self.cloudformation.create_stack(StackName="stack", TemplateBody=template(), Capabilities=["CAPABILITY_IAM"])
        self.settle("stack_create_complete")

    def settle(self, waiter: str, name: str = "stack") -> None:
        self.cloudformation.get_waiter(waiter).wait(StackName=name, WaiterConfig={"Delay": 0.1, "MaxAttempts": 600})

    def outputs(self) -> dict[str, str]:
        stack = self.cloudformation.describe_stacks(StackName="stack")["Stacks"][0]
        return {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}

    def invoke(self, target: str | None = "acme/a.tar.gz", body: bytes = b"3,4", runtime=None, **more):
        given = {"Accept": "text/csv"} if target is None else {"Accept": "text/csv", "TargetModel": target}
        runtime = runtime or self.runtime
        return runtime.invoke_endpoint(EndpointName="shared", Body=body, ContentType="text/csv", **given, **more)

    def close(self) -> None:
        for client in (self.s3, self.cloudformation, self.sagemaker, self.scaling, self.runtime):
            client.close()


@pytest.fixture(scope="module")
def deployed(module_cloud):
    with closing(Deployed(module_cloud)) as stack:
        yield stack


def failure(call):
    with pytest.raises(ClientError) as caught:
        call()
    response = caught.value.response
    return response["ResponseMetadata"]["HTTPStatusCode"], response["Error"]["Code"], response


class TestInvoking:
    def test_a_model_answers_with_its_prediction(self, deployed):
        answer = deployed.invoke(CustomAttributes="trace=1")
        assert float(answer["Body"].read()) == pytest.approx(deployed.prediction, abs=1e-5)
        assert (answer["InvokedProductionVariant"], answer["CustomAttributes"]) == ("AllTraffic", "trace=1")

    def test_the_debug_headers_tell_instance_and_cold_load(self, deployed):
        headers = [deployed.invoke("globex/b.tar.gz")["ResponseMetadata"]["HTTPHeaders"] for _ in range(2)]
        assert [header["x-amzn-mme-local-cold"] for header in headers] == ["true", "false"]
        assert headers[0]["x-amzn-mme-local-instance"] == headers[1]["x-amzn-mme-local-instance"]

    def test_the_status_shows_the_models_held(self, deployed):
        deployed.invoke()
        (endpoint,) = deployed.cloud.status()["endpoints"]
        assert (endpoint["name"], endpoint["status"]) == ("shared", "InService")
        assert "acme/a.tar.gz" in [model["target_model"] for model in endpoint["instances"][0]["models"]]

    @pytest.mark.parametrize("target", [None, "a" * 1025, "tab\tinside"])
    def test_a_target_model_that_is_missing_or_malformed_is_a_validation_error(self, deployed, target):
        assert failure(lambda: deployed.invoke(target))[:2] == (400, "ValidationError")

    def test_a_target_model_that_is_not_there_is_a_validation_error(self, deployed):
        status, code, response = failure(lambda: deployed.invoke("acme/none.tar.gz"))
        assert (status, code) == (400, "ValidationError")
        assert "acme/none.tar.gz" in response["Error"]["Message"]

    def test_an_artifact_that_the_execution_role_may_not_read_is_a_validation_error(self, deployed):
        status, code, response = failure(lambda: deployed.invoke("denied/c.tar.gz"))
        assert (status, code) == (400, "ValidationError")
        assert "denied/c.tar.gz" in response["Error"]["Message"]

    def test_a_body_that_the_model_refuses_is_a_model_error_with_the_containers_words(self, deployed):
        status, code, response = failure(lambda: deployed.invoke(body=b"no,numbers"))
        assert (status, code) == (424, "ModelError")
        assert response["OriginalStatusCode"] >= 400
        assert response["OriginalMessage"]
        assert response["LogStreamArn"].startswith("arn:aws:logs:us-east-1:000000000000:log-group:/aws/sagemaker/Endpoints/shared")

    def test_the_largest_body_is_taken_and_one_byte_more_is_not(self, deployed):
        limit = 6_291_456
        body = b"3," + b" " * (limit - 3) + b"4"
        assert float(deployed.invoke(body=body)["Body"].read()) == pytest.approx(deployed.prediction, abs=1e-5)
        assert failure(lambda: deployed.invoke(body=body + b" "))[0] == 413

    def test_an_endpoint_that_does_not_exist_is_a_validation_error(self, deployed):
        call = deployed.runtime.invoke_endpoint
        assert failure(lambda: call(EndpointName="none", Body=b"1", TargetModel="a"))[:2] == (400, "ValidationError")

    def test_members_for_other_kinds_of_endpoints_are_refused(self, deployed):
        for given in ({"InferenceComponentName": "x"}, {"TargetContainerHostname": "x"}, {"TargetVariant": "Other"}):
            assert failure(lambda given=given: deployed.invoke(**given))[:2] == (400, "ValidationError")


class TestControlPlane:
    def test_answers_about_endpoints_have_the_shapes_of_the_service(self, deployed, module_bench):
        described = module_bench.document("DescribeEndpoint", EndpointName="shared")
        assert described["ProductionVariants"][0]["CurrentInstanceCount"] == 1
        assert described["ProductionVariants"][0]["DeployedImages"][0]["SpecifiedImage"] == IMAGE
        (listed,) = module_bench.document("ListEndpoints", StatusEquals="InService")["Endpoints"]
        assert listed["EndpointArn"] == described["EndpointArn"]
        assert module_bench.document("ListEndpoints", StatusEquals="Failed") == {"Endpoints": []}
        tags = {tag["Key"] for tag in module_bench.document("ListTags", ResourceArn=described["EndpointArn"])["Tags"]}
        assert "aws:cloudformation:stack-name" in tags

    def test_the_fleet_grows_and_shrinks(self, deployed, module_bench):
        for count in (2, 1):
            change = {"VariantName": "AllTraffic", "DesiredInstanceCount": count}
            module_bench.document("UpdateEndpointWeightsAndCapacities", EndpointName="shared", DesiredWeightsAndCapacities=[change])
            assert deployed.sagemaker.describe_endpoint(EndpointName="shared")["EndpointStatus"] == "Updating"
            deployed.sagemaker.get_waiter("endpoint_in_service").wait(
                EndpointName="shared", WaiterConfig={"Delay": 0.1, "MaxAttempts": 300}
            )
            (variant,) = deployed.sagemaker.describe_endpoint(EndpointName="shared")["ProductionVariants"]
            assert (variant["CurrentInstanceCount"], variant["DesiredInstanceCount"]) == (count, count)
            assert len(deployed.cloud.status()["endpoints"][0]["instances"]) == count
            assert deployed.invoke()["Body"].read()


class TestStack:
    def test_references_are_those_of_the_documentation(self, deployed):
        outputs = deployed.outputs()
        assert outputs["EndpointRef"] == "arn:aws:sagemaker:us-east-1:000000000000:endpoint/shared"
        assert outputs["ModelRef"].startswith("arn:aws:sagemaker:us-east-1:000000000000:model/stack-model-")
        assert outputs["TargetRef"] == "endpoint/shared/variant/AllTraffic|sagemaker:variant:DesiredInstanceCount|sagemaker"
        assert outputs["PolicyRef"] == outputs["PolicyArn"]
        assert ":policyName/invocations" in outputs["PolicyArn"]

    def test_scaling_is_registered(self, deployed, module_bench):
        (target,) = deployed.scaling.describe_scalable_targets(ServiceNamespace="sagemaker")["ScalableTargets"]
        assert (target["ResourceId"], target["MinCapacity"], target["MaxCapacity"]) == ("endpoint/shared/variant/AllTraffic", 1, 2)
        (policy,) = deployed.scaling.describe_scaling_policies(ServiceNamespace="sagemaker")["ScalingPolicies"]
        assert policy["TargetTrackingScalingPolicyConfiguration"]["TargetValue"] == 70.0
        alarms = module_bench.client("cloudwatch").describe_alarms(AlarmNamePrefix="TargetTracking-")["MetricAlarms"]
        assert {alarm["AlarmName"] for alarm in policy["Alarms"]} == {alarm["AlarmName"] for alarm in alarms}
        assert sorted(alarm["Threshold"] for alarm in alarms) == [63.0, 70.0]

    def test_a_changed_model_replaces_the_fleet_in_place(self, deployed):
        before = deployed.sagemaker.describe_endpoint(EndpointName="shared")
        first = deployed.cloud.status()["endpoints"][0]["instances"][0]["pid"]
        deployed.cloudformation.update_stack(StackName="stack", TemplateBody=template(tag="b"), Capabilities=["CAPABILITY_IAM"])
        deployed.settle("stack_update_complete")
        after = deployed.sagemaker.describe_endpoint(EndpointName="shared")
        assert after["EndpointArn"] == before["EndpointArn"]
        assert after["EndpointConfigName"] != before["EndpointConfigName"]
        assert deployed.cloud.status()["endpoints"][0]["instances"][0]["pid"] != first
        assert len(deployed.sagemaker.list_models()["Models"]) == 1, "the replaced model is gone"
        assert len(deployed.sagemaker.list_endpoint_configs()["EndpointConfigs"]) == 1
        assert deployed.invoke()["Body"].read()

    def test_the_gateway_answers_while_an_endpoint_starts(self, deployed):
        deployed.cloudformation.update_stack(StackName="stack", TemplateBody=template(tag="c"), Capabilities=["CAPABILITY_IAM"])
        answered = 0
        while deployed.cloudformation.describe_stacks(StackName="stack")["Stacks"][0]["StackStatus"] == "UPDATE_IN_PROGRESS":
            deployed.sagemaker.list_models()
            answered += 1
        deployed.settle("stack_update_complete")
        assert answered > 5

    def test_an_endpoint_whose_fleet_fails_rolls_the_stack_back_with_the_reason(self, deployed):
        body = json.loads(template())
        single = {"Image": IMAGE, "ModelDataUrl": f"s3://{BUCKET}/models/one.tar.gz"}
        body["Resources"]["Model"]["Properties"]["PrimaryContainer"] = single
        (variant,) = body["Resources"]["Config"]["Properties"]["ProductionVariants"]
        del variant["InstanceType"], variant["InitialInstanceCount"]
        variant["ServerlessConfig"] = {"MemorySizeInMB": 2048, "MaxConcurrency": 5}
        body["Resources"]["Endpoint"]["Properties"]["EndpointName"] = "failing"
        deployed.cloudformation.create_stack(StackName="failing", TemplateBody=json.dumps(body), Capabilities=["CAPABILITY_IAM"])
        with pytest.raises(Exception, match="ROLLBACK_COMPLETE"):
            deployed.settle("stack_create_complete", "failing")
        events = deployed.cloudformation.describe_stack_events(StackName="failing")["StackEvents"]
        reasons = [event.get("ResourceStatusReason", "") for event in events if event["ResourceStatus"] == "CREATE_FAILED"]
        assert any("Endpoint failing failed: " in reason and "a variant with ServerlessConfig" in reason for reason in reasons), reasons
        assert [item["EndpointName"] for item in deployed.sagemaker.list_endpoints()["Endpoints"]] == ["shared"]

    def test_zz_deleting_ends_the_endpoint_and_everything_of_it(self, deployed, module_bench):
        deployed.cloudformation.delete_stack(StackName="stack")
        deployed.settle("stack_delete_complete")
        assert deployed.cloud.status()["endpoints"] == []
        for operation, member in (("list_models", "Models"), ("list_endpoint_configs", "EndpointConfigs"), ("list_endpoints", "Endpoints")):
            assert getattr(deployed.sagemaker, operation)()[member] == []
        assert deployed.scaling.describe_scalable_targets(ServiceNamespace="sagemaker")["ScalableTargets"] == []
        assert module_bench.client("cloudwatch").describe_alarms(AlarmNamePrefix="TargetTracking-")["MetricAlarms"] == []
