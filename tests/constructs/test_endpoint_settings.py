"""An endpoint's settings one by one: cache, volume, timeouts, capture, tags, interfaces of CDK."""

from __future__ import annotations

import pytest
from aws_cdk import assertions
from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sagemaker as sagemaker

from mme_constructs import DataCapture, InferenceComponentEndpoint, ModelArtifactStore, MultiModelContainer, MultiModelEndpoint
from mme_constructs.errors import CacheError, EndpointSettingsError


def _endpoint(stack, **props):
    container = props.pop("container", None) or MultiModelContainer.from_framework("xgboost", version="1.7-1")
    return MultiModelEndpoint(stack, "Endpoint", store=ModelArtifactStore(stack, "Store"), container=container, **props)


def _variant(synthesized):
    (variant,) = synthesized.only("AWS::SageMaker::EndpointConfig")["Properties"]["ProductionVariants"]
    return variant


def test_a_disabled_cache_is_told_to_the_model(synthesize_stack):
    synthesized = synthesize_stack(lambda stack: _endpoint(stack, cache_enabled=False))
    container = synthesized.only("AWS::SageMaker::Model")["Properties"]["PrimaryContainer"]
    assert container["MultiModelConfig"] == {"ModelCacheSetting": "Disabled"}


def test_warm_up_refuses_a_disabled_cache(stack):
    endpoint = _endpoint(stack, cache_enabled=False)
    with pytest.raises(CacheError, match="warm-up needs an endpoint that keeps models loaded"):
        endpoint.require_cache("warm-up")
    there = MultiModelEndpoint.from_endpoint_attributes(stack, "There", endpoint_name="elsewhere")
    there.require_cache("warm-up")


def test_volume_and_timeouts_reach_the_variant(synthesize_stack):
    variant = _variant(
        synthesize_stack(
            lambda stack: _endpoint(stack, volume_size_gb=512, container_startup_timeout_seconds=60, model_download_timeout_seconds=3600)
        )
    )
    assert variant["VolumeSizeInGB"] == 512
    assert variant["ContainerStartupHealthCheckTimeoutInSeconds"] == 60
    assert variant["ModelDataDownloadTimeoutInSeconds"] == 3600


def test_data_capture_is_granted_its_prefix_and_warned_about(synthesize_stack):
    found = []

    def build(stack):
        capture = DataCapture(bucket=s3.Bucket(stack, "Records"), sampling_percent=5, answers=False, encryption_key=kms.Key(stack, "Key"))
        _endpoint(stack, data_capture=capture)
        found.append(stack)

    synthesized = synthesize_stack(build)
    config = synthesized.only("AWS::SageMaker::EndpointConfig")["Properties"]["DataCaptureConfig"]
    assert config["InitialSamplingPercentage"] == 5
    assert config["CaptureOptions"] == [{"CaptureMode": "Input"}]
    assert config["DestinationS3Uri"]["Fn::Join"][1][-1] == "/captured/"
    assert "Fn::GetAtt" in config["KmsKeyId"]
    assert "/captured/*" in str(synthesized.only("AWS::IAM::Policy"))
    assertions.Annotations.from_stack(found[0]).has_warning("/Test/Endpoint", assertions.Match.string_like_regexp("data capture"))


def test_tags_reach_model_config_and_endpoint(synthesize_stack):
    synthesized = synthesize_stack(lambda stack: _endpoint(stack, tags={"team": "ranking"}))
    for resource_type in ("Model", "EndpointConfig", "Endpoint"):
        tags = synthesized.only(f"AWS::SageMaker::{resource_type}")["Properties"]["Tags"]
        assert tags == [{"Key": "team", "Value": "ranking"}]


def test_an_undocumented_gpu_type_is_warned_about_where_it_is_allowed(stack):
    triton = MultiModelContainer.from_framework("triton", version="24.09")
    _endpoint(stack, container=triton, instance_type="ml.g6.xlarge", allow_undocumented_gpu=True)
    assertions.Annotations.from_stack(stack).has_warning("/Test/Endpoint", assertions.Match.string_like_regexp("may be refused"))


@pytest.mark.parametrize(
    ("props", "text"),
    [
        ({"volume_size_gb": 0}, "got '0 GB'; allowed: 1 to 512 GB"),
        ({"volume_size_gb": 513}, "got '513 GB'"),
        ({"instance_type": "ml.c5d.xlarge", "volume_size_gb": 50}, "get no EBS volume: got '50 GB on ml.c5d.xlarge'"),
        ({"container_startup_timeout_seconds": 59}, "container_startup_timeout_seconds is out of range: got 59; allowed: 60 to 3,600"),
        ({"model_download_timeout_seconds": 3601}, "model_download_timeout_seconds is out of range: got 3601"),
        ({"accelerator_type": "ml.eia2.medium"}, "Elastic Inference never served multi-model endpoints, and AWS has ended it"),
        ({"tags": {"aws:team": "x"}}, "The tag is not allowed: got 'aws:team=x'"),
        ({"tags": {"team": "x" * 257}}, "values of up to 256"),
        ({"tags": {f"t{number}": "" for number in range(51)}}, "Too many tags: got 51"),
    ],
)
def test_rejects_settings_that_sagemaker_refuses_or_ignores(stack, props, text):
    with pytest.raises(EndpointSettingsError) as caught:
        _endpoint(stack, **props)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("props", "text"),
    [
        ({"sampling_percent": 101}, "got 101; allowed: 0 to 100"),
        ({"requests": False, "answers": False}, "Nothing is captured"),
        ({"prefix": "captured"}, "folders that end in '/'"),
    ],
)
def test_rejects_captures_that_cannot_work(stack, props, text):
    with pytest.raises(EndpointSettingsError) as caught:
        DataCapture(bucket=s3.Bucket(stack, "Records"), **props)
    assert text in str(caught.value)


@pytest.mark.parametrize("kind", ["owned", "imported", "dedicated"])
def test_cdks_own_constructs_take_it_as_an_endpoint(synthesize_stack, kind):
    def build(stack):
        endpoint: sagemaker.IEndpoint
        if kind == "owned":
            endpoint = _endpoint(stack)
        elif kind == "imported":
            endpoint = MultiModelEndpoint.from_endpoint_attributes(stack, "There", endpoint_name="elsewhere")
        else:
            endpoint = InferenceComponentEndpoint(stack, "Dedicated", store=ModelArtifactStore(stack, "Store"))
        assert endpoint.endpoint_ref.endpoint_arn == endpoint.endpoint_arn
        api = apigateway.RestApi(stack, "Api", cloud_watch_role=False)
        api.root.add_method("POST", apigateway.SagemakerIntegration(endpoint))

    synthesized = synthesize_stack(build)
    uri = str(synthesized.only("AWS::ApiGateway::Method")["Properties"]["Integration"]["Uri"])
    assert "runtime.sagemaker:path/endpoints/" in uri
    policies = [item["Properties"] for name, item in synthesized.resources("AWS::IAM::Policy").items() if "Execution" not in name]
    (calling,) = policies
    (statement,) = calling["PolicyDocument"]["Statement"]
    assert statement["Action"] == "sagemaker:InvokeEndpoint"
    assert "endpoint/" in str(statement["Resource"])


def test_what_is_known_of_an_endpoint_is_told_to_other_constructs(stack):
    owned = _endpoint(stack, instance_type="ml.c5.xlarge", min_instances=3)
    assert (owned.instance_type, owned.min_instances, owned.max_instances, owned.variants) == ("ml.c5.xlarge", 3, 6, ("AllTraffic",))
    there = MultiModelEndpoint.from_endpoint_attributes(stack, "There", endpoint_name="elsewhere", variants=["A", "B"], variant_name="B")
    assert (there.instance_type, there.min_instances, there.variants, there.variant_name) == (None, None, ("A", "B"), "B")
    assert there.cache_enabled
