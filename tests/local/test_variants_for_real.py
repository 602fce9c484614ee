"""Two variants with processes of their own behind one endpoint, from a template that uses all that an endpoint can be given."""

from __future__ import annotations

import json
from contextlib import suppress

import psutil
import pytest
from botocore.exceptions import ClientError

TRITON = "007439368137.dkr.ecr.us-east-2.amazonaws.com/sagemaker-tritonserver:24.09-py3"
TRUST = {"Statement": [{"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}]}


def resource(kind, **properties):
    return {"Type": kind, "Properties": properties}


def template(cache="Enabled", wait=0):
    def model(*further):
        container = {
            "Image": TRITON,
            "Mode": "MultiModel",
            "ModelDataUrl": "s3://artifacts/models/",
            "MultiModelConfig": {"ModelCacheSetting": cache},
        }
        return resource(
            "AWS::SageMaker::Model",
            ExecutionRoleArn={"Fn::GetAtt": ["Role", "Arn"]},
            Containers=[container, *further],
            EnableNetworkIsolation=True,
            VpcConfig={"SecurityGroupIds": ["sg-1"], "Subnets": ["subnet-1", "subnet-2"]},
        )

    def variant(name, model_name, weight):
        return {
            "VariantName": name,
            "ModelName": {"Fn::GetAtt": [model_name, "ModelName"]},
            "InstanceType": "ml.g5.xlarge",
            "InitialInstanceCount": 1,
            "InitialVariantWeight": weight,
            "ContainerStartupHealthCheckTimeoutInSeconds": 600,
            "ModelDataDownloadTimeoutInSeconds": 600,
        }

    capture = {
        "EnableCapture": True,
        "InitialSamplingPercentage": 10,
        "DestinationS3Uri": "s3://artifacts/capture/",
        "CaptureOptions": [{"CaptureMode": "Input"}],
    }
    routing = {"Type": "CANARY", "CanarySize": {"Type": "CAPACITY_PERCENT", "Value": 50}, "WaitIntervalInSeconds": wait}
    return {
        "Resources": {
            "Errors": resource(
                "AWS::CloudWatch::Alarm",
                AlarmName="errors",
                Namespace="AWS/SageMaker",
                MetricName="Invocation5XXErrors",
                Dimensions=[{"Name": "EndpointName", "Value": "both"}, {"Name": "VariantName", "Value": "A"}],
                Period=60,
                Statistic="Sum",
                ComparisonOperator="GreaterThanThreshold",
                Threshold=5,
                EvaluationPeriods=1,
            ),
            "Role": resource("AWS::IAM::Role", AssumeRolePolicyDocument={"Version": "2012-10-17", **TRUST}),
            "Model": model(),
            "Pipeline": model({"Image": "x/after:1", "ModelDataUrl": "s3://artifacts/after.tar.gz"}),
            "Config": resource(
                "AWS::SageMaker::EndpointConfig",
                ProductionVariants=[variant("A", "Model", 1), variant("B", "Pipeline", 0)],
                DataCaptureConfig=capture,
            ),
            "Endpoint": resource(
                "AWS::SageMaker::Endpoint",
                EndpointName="both",
                EndpointConfigName={"Fn::GetAtt": ["Config", "EndpointConfigName"]},
                RetainAllVariantProperties=True,
                DeploymentConfig={
                    "BlueGreenUpdatePolicy": {"TrafficRoutingConfiguration": routing, "TerminationWaitInSeconds": 0},
                    "AutoRollbackConfiguration": {"Alarms": [{"AlarmName": "errors"}]},
                },
                Tags=[{"Key": "pool", "Value": "gpu"}],
            ),
        }
    }


def settled(cloudformation, waiter):
    cloudformation.get_waiter(waiter).wait(StackName="s", WaiterConfig={"Delay": 0.1, "MaxAttempts": 300})


def error(call):
    with pytest.raises(ClientError) as caught:
        call()
    return caught.value.response


def test_two_variants_deploy_refuse_honestly_change_and_go(bench):
    cloudformation, runtime, s3 = (bench.client(name) for name in ("cloudformation", "sagemaker-runtime", "s3"))
    s3.create_bucket(Bucket="artifacts")
    cloudformation.create_stack(StackName="s", TemplateBody=json.dumps(template()), Capabilities=["CAPABILITY_IAM"])
    settled(cloudformation, "stack_create_complete")

    def variants():
        return {item["VariantName"]: item for item in bench.document("DescribeEndpoint", EndpointName="both")["ProductionVariants"]}

    assert {name: item["CurrentWeight"] for name, item in variants().items()} == {"A": 1.0, "B": 0.0}
    assert [image["SpecifiedImage"] for image in variants()["B"]["DeployedImages"]] == [TRITON, "x/after:1"]
    (status,) = bench.cloud.status()["endpoints"]
    assert {instance["id"] for instance in status["instances"]} == {"A-1", "B-1"}
    assert (
        bench.document(
            "DescribeEndpointConfig", EndpointConfigName=bench.document("DescribeEndpoint", EndpointName="both")["EndpointConfigName"]
        )["DataCaptureConfig"]["InitialSamplingPercentage"]
        == 10
    )

    def invoke(**given):
        return error(lambda: runtime.invoke_endpoint(EndpointName="both", Body=b"1", TargetModel="acme/a.tar.gz", **given))

    assert "Failed to download model data" in invoke()["Error"]["Message"]
    assert "Variant none not found" in invoke(TargetVariant="none")["Error"]["Message"]

    change = [{"VariantName": "B", "DesiredInstanceCount": 2, "DesiredWeight": 3.0}]
    bench.document("UpdateEndpointWeightsAndCapacities", EndpointName="both", DesiredWeightsAndCapacities=change)
    bench.client("sagemaker").get_waiter("endpoint_in_service").wait(EndpointName="both", WaiterConfig={"Delay": 0.1, "MaxAttempts": 300})
    assert (variants()["A"]["CurrentInstanceCount"], variants()["B"]["CurrentInstanceCount"]) == (1, 2)

    cloudformation.update_stack(StackName="s", TemplateBody=json.dumps(template(cache="Disabled", wait=1)), Capabilities=["CAPABILITY_IAM"])
    settled(cloudformation, "stack_update_complete")
    assert (variants()["A"]["CurrentInstanceCount"], variants()["B"]["CurrentInstanceCount"]) == (1, 2), "retained"
    assert variants()["B"]["CurrentWeight"] == 3.0
    pids = [instance["pid"] for instance in bench.cloud.status()["endpoints"][0]["instances"]]
    assert len(pids) == 3
    cloudformation.delete_stack(StackName="s")
    settled(cloudformation, "stack_delete_complete")
    assert bench.cloud.status()["endpoints"] == []
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            assert psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
