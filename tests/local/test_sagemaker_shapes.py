"""Every operation of the control plane that is served answers in the shape of botocore's model, in every state that a resource has."""

from __future__ import annotations

import json

import pytest

from mme_local.sagemaker.responses import OPERATIONS
from tests.local.conftest import Workbench, allow
from tests.local.test_endpoint_for_real import IMAGE, artifact

ARN = "arn:aws:sagemaker:us-east-1:000000000000"
CAPTURE = {
    "EnableCapture": True,
    "InitialSamplingPercentage": 5,
    "DestinationS3Uri": "s3://artifacts/capture/",
    "CaptureOptions": [{"CaptureMode": "Input"}],
}
ROLLING = {"RollingUpdatePolicy": {"MaximumBatchSize": {"Type": "INSTANCE_COUNT", "Value": 1}, "WaitIntervalInSeconds": 0}}
COPIES = {"RollingUpdatePolicy": {"MaximumBatchSize": {"Type": "COPY_COUNT", "Value": 1}, "WaitIntervalInSeconds": 0}}


class Caller:
    """Calls operations through the check of `Workbench.document` and remembers which."""

    def __init__(self, bench: Workbench) -> None:
        self._bench, self.called = bench, set()

    def __call__(self, operation, **given):
        self.called.add(operation)
        return self._bench.document(operation, **given)

    def settled(self, operation, member, **name):
        self._bench.wait_for(lambda: self(operation, **name)[member] not in ("Creating", "Updating", "RollingBack"), seconds=60)
        return self(operation, **name)


@pytest.fixture
def role(bench):
    bench.client("s3").create_bucket(Bucket="artifacts")
    bench.client("s3").put_object(Bucket="artifacts", Key="a.tar.gz", Body=artifact()[0])
    return bench.service_role("sagemaker.amazonaws.com", allow("s3:GetObject", "arn:aws:s3:::artifacts/*"))


def test_every_operation_answers_in_its_shape(bench, role):
    call = Caller(bench)
    tags = [{"Key": "team", "Value": "a"}]
    call("CreateModel", ModelName="m", ExecutionRoleArn=role, PrimaryContainer={"Image": IMAGE, "ModelDataUrl": "s3://artifacts/a.tar.gz"})
    call("DescribeModel", ModelName="m")
    call("ListModels")
    variant = {
        "VariantName": "AllTraffic",
        "InstanceType": "ml.m5.xlarge",
        "InitialInstanceCount": 1,
        "ManagedInstanceScaling": {"Status": "ENABLED", "MinInstanceCount": 1, "MaxInstanceCount": 2},
        "RoutingConfig": {"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"},
    }
    for name in ("first", "second"):
        given = {"ExecutionRoleArn": role, "ProductionVariants": [variant], "DataCaptureConfig": CAPTURE, "Tags": tags}
        call("CreateEndpointConfig", EndpointConfigName=name, **given)
    call("DescribeEndpointConfig", EndpointConfigName="first")
    call("ListEndpointConfigs", NameContains="first")

    call("CreateEndpoint", EndpointName="e", EndpointConfigName="first", Tags=tags)
    assert call("DescribeEndpoint", EndpointName="e")["EndpointStatus"] in ("Creating", "InService")
    assert call.settled("DescribeEndpoint", "EndpointStatus", EndpointName="e")["EndpointStatus"] == "InService"
    call("UpdateEndpoint", EndpointName="e", EndpointConfigName="second", DeploymentConfig=ROLLING)
    assert call("DescribeEndpoint", EndpointName="e")["EndpointStatus"] in ("Updating", "InService")
    described = call.settled("DescribeEndpoint", "EndpointStatus", EndpointName="e")
    assert (described["EndpointConfigName"], described["LastDeploymentConfig"]) == ("second", ROLLING)
    assert described["DataCaptureConfig"]["CaptureStatus"] == "Started"
    change = [{"VariantName": "AllTraffic", "DesiredInstanceCount": 2}]
    call("UpdateEndpointWeightsAndCapacities", EndpointName="e", DesiredWeightsAndCapacities=change)
    call.settled("DescribeEndpoint", "EndpointStatus", EndpointName="e")
    assert call("ListEndpoints", StatusEquals="InService")["Endpoints"][0]["EndpointName"] == "e"
    assert call("ListEndpoints", StatusEquals="Failed")["Endpoints"] == []

    needs = {"MinMemoryRequiredInMb": 512, "NumberOfCpuCoresRequired": 1}
    specification = {"ModelName": "m", "ComputeResourceRequirements": needs}
    given = {"EndpointName": "e", "Specification": specification, "RuntimeConfig": {"CopyCount": 1}}
    call("CreateInferenceComponent", InferenceComponentName="c", **given, Tags=tags)
    assert call("DescribeInferenceComponent", InferenceComponentName="c")["InferenceComponentStatus"] in ("Creating", "InService")
    large = {**given, "Specification": {**specification, "ComputeResourceRequirements": {**needs, "MinMemoryRequiredInMb": 99999}}}
    call("CreateInferenceComponent", InferenceComponentName="large", **large)
    failed = call.settled("DescribeInferenceComponent", "InferenceComponentStatus", InferenceComponentName="large")
    assert failed["InferenceComponentStatus"] == "Failed"
    assert "not enough hardware resources" in failed["FailureReason"]
    made = call.settled("DescribeInferenceComponent", "InferenceComponentStatus", InferenceComponentName="c")
    assert (made["InferenceComponentStatus"], made["RuntimeConfig"]["CurrentCopyCount"]) == ("InService", 1)
    call("UpdateInferenceComponent", InferenceComponentName="c", RuntimeConfig={"CopyCount": 1}, DeploymentConfig=COPIES)
    call.settled("DescribeInferenceComponent", "InferenceComponentStatus", InferenceComponentName="c")
    call("UpdateInferenceComponentRuntimeConfig", InferenceComponentName="c", DesiredRuntimeConfig={"CopyCount": 0})
    call.settled("DescribeInferenceComponent", "InferenceComponentStatus", InferenceComponentName="c")
    assert len(call("ListInferenceComponents", StatusEquals="Failed")["InferenceComponents"]) == 1

    for kind, name in (("model", "m"), ("endpoint-config", "first"), ("endpoint", "e"), ("inference-component", "c")):
        arn = f"{ARN}:{kind}/{name}"
        call("AddTags", ResourceArn=arn, Tags=[{"Key": "a", "Value": "b"}])
        call("DeleteTags", ResourceArn=arn, TagKeys=["team"])
        assert call("ListTags", ResourceArn=arn)["Tags"] == [{"Key": "a", "Value": "b"}]

    for name in ("c", "large"):
        call("DeleteInferenceComponent", InferenceComponentName=name)
    bench.wait_for(lambda: not call("ListInferenceComponents")["InferenceComponents"])
    call("DeleteEndpoint", EndpointName="e")
    bench.wait_for(lambda: not call("ListEndpoints")["Endpoints"])
    call("DeleteEndpointConfig", EndpointConfigName="first")
    call("DeleteModel", ModelName="m")
    assert call.called == set(OPERATIONS)


def test_boto3_raises_the_modelled_exceptions(bench, role):
    sagemaker = bench.client("sagemaker")
    variant = {"VariantName": "AllTraffic", "InstanceType": "ml.m5.xlarge", "InitialInstanceCount": 21}
    sagemaker.create_endpoint_config(EndpointConfigName="many", ExecutionRoleArn=role, ProductionVariants=[variant])
    with pytest.raises(sagemaker.exceptions.ResourceLimitExceeded, match="current utilization of 0 Instances and a request delta of 21"):
        sagemaker.create_endpoint(EndpointName="e", EndpointConfigName="many")
    runtime = bench.client("sagemaker-runtime")
    with pytest.raises(runtime.exceptions.ValidationError, match="Endpoint none of account 000000000000 not found"):
        runtime.invoke_endpoint(EndpointName="none", Body=b"", TargetModel="a.tar.gz")


@pytest.mark.parametrize(
    ("operation", "values", "text"),
    [
        (
            "CreateEndpoint",
            {"EndpointName": "e", "EndpointConfigName": "c", "DeploymentConfig": {"BlueGreenUpdatePolicy": {}}},
            "must not be null",
        ),
        (
            "UpdateEndpointWeightsAndCapacities",
            {"EndpointName": "e", "DesiredWeightsAndCapacities": [{"VariantName": "v", "DesiredInstanceCount": -1}]},
            "greater than or equal to 0",
        ),
        ("ListEndpoints", {"StatusEquals": "IN_SERVICE"}, "enum value set"),
        ("ListInferenceComponents", {"MaxResults": 101}, "less than or equal to 100"),
        ("UpdateInferenceComponentRuntimeConfig", {"InferenceComponentName": "c", "DesiredRuntimeConfig": {}}, "must not be null"),
        ("AddTags", {"ResourceArn": f"{ARN}:model/m", "Tags": [{"Key": "a", "Value": "v" * 257}]}, "length less than or equal to 256"),
    ],
)
def test_nested_values_are_checked_as_the_service_does(bench, operation, values, text):
    headers = {"X-Amz-Target": f"SageMaker.{operation}", "Content-Type": "application/x-amz-json-1.1"}
    url = bench.cloud.endpoint_url + "/"
    answer = bench.call("POST", url, bench.cloud.admin, body=json.dumps(values).encode(), headers=headers, service="sagemaker")
    assert (answer.status_code, answer.json()["__type"]) == (400, "ValidationException"), answer.text
    assert text in answer.json()["message"]
