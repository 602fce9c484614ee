"""Inference components and single models with real model servers: authorized, answered, streamed, to zero and back."""

from __future__ import annotations

from contextlib import closing

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from tests.local.conftest import Workbench, allow
from tests.local.test_endpoint_for_real import IMAGE, artifact

ARN = "arn:aws:sagemaker:us-east-1:000000000000"
NEEDS = {"MinMemoryRequiredInMb": 512, "NumberOfCpuCoresRequired": 1}
TAG = [{"Key": "tenant", "Value": "acme"}]


@pytest.fixture(scope="module")
def bench(module_cloud):
    with closing(Workbench(module_cloud)) as workbench:
        yield workbench


@pytest.fixture(scope="module")
def role(bench):
    bench.client("s3").create_bucket(Bucket="artifacts")
    return bench.service_role("sagemaker.amazonaws.com", allow("s3:GetObject", "arn:aws:s3:::artifacts/*"))


@pytest.fixture(scope="module")
def expected(bench, role):
    packed, prediction = artifact()
    bench.client("s3").put_object(Bucket="artifacts", Key="models/a.tar.gz", Body=packed)
    container = {"Image": IMAGE, "ModelDataUrl": "s3://artifacts/models/a.tar.gz"}
    bench.document("CreateModel", ModelName="single", ExecutionRoleArn=role, PrimaryContainer=container)
    return prediction


def settled(bench, operation, status, **name):
    bench.wait_for(lambda: bench.document(operation, **name)[status] not in ("Creating", "Updating"), seconds=60)
    return bench.document(operation, **name)


@pytest.fixture(scope="module")
def dedicated(bench, role, expected):
    variant = {"VariantName": "AllTraffic", "InstanceType": "ml.m5.xlarge", "InitialInstanceCount": 1}
    bench.document("CreateEndpointConfig", EndpointConfigName="hosting", ExecutionRoleArn=role, ProductionVariants=[variant])
    bench.document("CreateEndpoint", EndpointName="dedicated", EndpointConfigName="hosting")
    settled(bench, "DescribeEndpoint", "EndpointStatus", EndpointName="dedicated")
    bench.document(
        "CreateInferenceComponent",
        InferenceComponentName="acme",
        EndpointName="dedicated",
        Specification={"ModelName": "single", "ComputeResourceRequirements": NEEDS},
        RuntimeConfig={"CopyCount": 1},
        Tags=TAG,
    )
    described = settled(bench, "DescribeInferenceComponent", "InferenceComponentStatus", InferenceComponentName="acme")
    assert (described["InferenceComponentStatus"], described["RuntimeConfig"]["CurrentCopyCount"]) == ("InService", 1)
    return expected


def runtime(bench, credentials=None):
    return bench.cloud.client("sagemaker-runtime", credentials, config=Config(retries={"total_max_attempts": 1, "mode": "standard"}))


def invoke(bench, credentials=None, name="dedicated", body=b"3.0,4.0", **given):
    with closing(runtime(bench, credentials)) as client:
        return client.invoke_endpoint(EndpointName=name, Body=body, ContentType="text/csv", Accept="text/csv", **given)


def refusal(bench, credentials=None, **given):
    with pytest.raises(ClientError) as caught:
        invoke(bench, credentials, **given)
    return caught.value.response["Error"]


def test_a_component_answers_with_its_model(bench, dedicated):
    answer = invoke(bench, InferenceComponentName="acme", CustomAttributes="trace=1", InferenceId="i-1")
    assert float(answer["Body"].read()) == pytest.approx(dedicated, rel=1e-3)
    assert (answer["InvokedProductionVariant"], answer["CustomAttributes"]) == ("AllTraffic", "trace=1")


def test_an_answer_is_streamed_as_events_that_boto3_reads(bench, dedicated):
    with closing(runtime(bench)) as client:
        answer = client.invoke_endpoint_with_response_stream(
            EndpointName="dedicated", Body=b"3.0,4.0", ContentType="text/csv", Accept="text/csv", InferenceComponentName="acme"
        )
        parts = [event["PayloadPart"]["Bytes"] for event in answer["Body"]]
    assert float(b"".join(parts)) == pytest.approx(dedicated, rel=1e-3)
    assert answer["InvokedProductionVariant"] == "AllTraffic"


def test_invoking_one_is_authorized_on_the_component_and_its_tags(bench, dedicated):
    by_tag = {"StringEquals": {"aws:ResourceTag/tenant": "acme"}}
    tenant = bench.user(allow("sagemaker:InvokeEndpoint", f"{ARN}:inference-component/*", **by_tag))
    assert invoke(bench, tenant, InferenceComponentName="acme")["Body"].read()
    for given in ({"InferenceComponentName": "none"}, {}):
        assert refusal(bench, tenant, **given)["Code"] == "AccessDeniedException", "the endpoint itself is not the tenant's"
    stranger = bench.user(allow("sagemaker:InvokeEndpoint", f"{ARN}:endpoint/*"))
    assert refusal(bench, stranger, InferenceComponentName="acme")["Code"] == "AccessDeniedException"
    with closing(runtime(bench, stranger)) as client, pytest.raises(ClientError, match="AccessDenied"):
        client.invoke_endpoint_with_response_stream(EndpointName="dedicated", Body=b"1", InferenceComponentName="acme")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "Inference Component Name header is required"),
        ({"TargetModel": "a.tar.gz"}, "Inference Component Name header is required"),
        ({"InferenceComponentName": "none"}, "Inference Component none not found for endpoint dedicated"),
        ({"InferenceComponentName": "acme", "TargetModel": "a.tar.gz"}, "TargetModel is not allowed"),
        ({"InferenceComponentName": "acme", "TargetVariant": "Other"}, "not on variant Other"),
        ({"InferenceComponentName": "acme", "InferenceId": "i" * 65}, "'inferenceId' failed to satisfy constraint"),
        ({"InferenceComponentName": "acme", "CustomAttributes": "a" * 1025}, "'customAttributes' failed to satisfy constraint"),
    ],
)
def test_what_does_not_fit_the_endpoint_is_refused(bench, dedicated, given, text):
    error = refusal(bench, **given)
    assert (error["Code"], text in error["Message"]) == ("ValidationError", True), error


def test_without_copies_it_says_that_it_has_no_capacity_and_comes_back(bench, dedicated):
    def scale(copies):
        wanted = {"CopyCount": copies}
        bench.document("UpdateInferenceComponentRuntimeConfig", InferenceComponentName="acme", DesiredRuntimeConfig=wanted)
        described = settled(bench, "DescribeInferenceComponent", "InferenceComponentStatus", InferenceComponentName="acme")
        assert described["RuntimeConfig"] == {"DesiredCopyCount": copies, "CurrentCopyCount": copies}

    scale(0)
    error = refusal(bench, InferenceComponentName="acme")
    assert (error["Code"], "Inference Component has no capacity" in error["Message"]) == ("ValidationError", True)
    scale(1)
    assert float(invoke(bench, InferenceComponentName="acme")["Body"].read()) == pytest.approx(dedicated, rel=1e-3)


def test_a_single_model_is_served_without_a_target(bench, expected):
    variant = {"VariantName": "AllTraffic", "ModelName": "single", "InstanceType": "ml.m5.xlarge", "InitialInstanceCount": 1}
    bench.document("CreateEndpointConfig", EndpointConfigName="single", ProductionVariants=[variant])
    bench.document("CreateEndpoint", EndpointName="single", EndpointConfigName="single")
    assert settled(bench, "DescribeEndpoint", "EndpointStatus", EndpointName="single")["EndpointStatus"] == "InService"
    assert float(invoke(bench, name="single")["Body"].read()) == pytest.approx(expected, rel=1e-3)
    for given, text in (
        ({"TargetModel": "a.tar.gz"}, "is not a multi-model endpoint and does not support target model header a.tar.gz"),
        ({"InferenceComponentName": "acme"}, "Inference Component Name header is not allowed"),
    ):
        assert text in refusal(bench, name="single", **given)["Message"]
    with closing(runtime(bench)) as client:
        answer = client.invoke_endpoint_with_response_stream(
            EndpointName="single", Body=b"3.0,4.0", ContentType="text/csv", Accept="text/csv"
        )
        assert float(b"".join(event["PayloadPart"]["Bytes"] for event in answer["Body"])) == pytest.approx(expected, rel=1e-3)
