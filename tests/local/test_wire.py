"""Requests checked against botocore's models."""

from __future__ import annotations

import pytest

from mme_local.autoscaling.responses import OPERATIONS as AUTOSCALING
from mme_local.sagemaker.responses import OPERATIONS as SAGEMAKER
from mme_local.sagemaker.runtime import OPERATIONS as RUNTIME
from mme_local.wire import AwsError, ServiceModel, error_reply, service_model


@pytest.fixture(scope="module")
def sagemaker() -> ServiceModel:
    return service_model("sagemaker", SAGEMAKER)


@pytest.fixture(scope="module")
def autoscaling() -> ServiceModel:
    return service_model("application-autoscaling", AUTOSCALING)


def variant(**values):
    given = {"VariantName": "v", "ModelName": "m", "InstanceType": "ml.m5.xlarge", "InitialInstanceCount": 1, **values}
    return {"EndpointConfigName": "c", "ProductionVariants": [given]}


def test_unknown_members_are_dropped(sagemaker):
    assert sagemaker.validated("DeleteModel", {"ModelName": "m", "Other": 1}) == {"ModelName": "m"}


def test_null_counts_as_absent(sagemaker):
    with pytest.raises(AwsError, match="Value null at 'modelName' failed to satisfy constraint: Member must not be null"):
        sagemaker.validated("DeleteModel", {"ModelName": None})


@pytest.mark.parametrize(
    ("operation", "request_", "text"),
    [
        ("DeleteModel", {"ModelName": ""}, "greater than or equal to|regular expression"),
        ("ListModels", {"MaxResults": 101}, "Value '101' at 'maxResults' failed to satisfy constraint: Member must have value less than"),
        ("ListModels", {"SortBy": "Size"}, r"Member must satisfy enum value set: \[Name, CreationTime\]"),
        ("CreateEndpointConfig", {"EndpointConfigName": "c", "ProductionVariants": []}, "'productionVariants' failed to satisfy"),
        ("CreateEndpointConfig", variant(InitialInstanceCount=0), "'productionVariants.1.member.initialInstanceCount'"),
        ("AddTags", {"ResourceArn": "x", "Tags": []}, "'resourceArn' failed to satisfy"),
    ],
)
def test_constraints_name_the_member_and_the_value(sagemaker, operation, request_, text):
    with pytest.raises(AwsError, match=text) as caught:
        sagemaker.validated(operation, request_)
    assert caught.value.code == "ValidationException"


def test_several_problems_are_told_together(sagemaker):
    with pytest.raises(AwsError, match=r"^2 validation errors detected: "):
        sagemaker.validated("ListModels", {"MaxResults": 0, "SortOrder": "Up"})


@pytest.mark.parametrize("request_", [[], None, "text", {"MaxResults": "10"}, {"MaxResults": True}, {"NameContains": 1}])
def test_a_wrong_type_is_a_serialization_error(sagemaker, request_):
    with pytest.raises(AwsError) as caught:
        sagemaker.validated("ListModels", request_)
    assert caught.value.code == "SerializationException"


def test_templates_may_write_numbers_and_booleans_as_text(sagemaker, autoscaling):
    request = sagemaker.validated("CreateEndpointConfig", variant(InitialInstanceCount="2", InitialVariantWeight="0.5"), from_template=True)
    (given,) = request["ProductionVariants"]
    assert (given["InitialInstanceCount"], given["InitialVariantWeight"]) == (2, 0.5)
    model = {"ModelName": "m", "PrimaryContainer": {"Environment": {"A": 1, "B": True}}, "EnableNetworkIsolation": "true"}
    request = sagemaker.validated("CreateModel", model, from_template=True)
    assert request["PrimaryContainer"]["Environment"] == {"A": "1", "B": "true"}
    assert request["EnableNetworkIsolation"] is True
    with pytest.raises(AwsError, match="is not a integer"):
        sagemaker.validated("CreateEndpointConfig", variant(InitialInstanceCount="two"), from_template=True)


def test_every_pattern_of_the_models_compiles(sagemaker, autoscaling):
    from mme_local import wire

    for model in (sagemaker, autoscaling, service_model("sagemaker-runtime", RUNTIME)):
        for shape in model._shapes.values():
            if "pattern" in shape:
                wire._compiled(shape["pattern"])


@pytest.mark.parametrize(("key", "allowed"), [("team", True), ("aws:x y/z=+-@_.", True), ("Größe", True), ("a*b", False)])
def test_tag_keys_are_those_of_the_service(sagemaker, key, allowed):
    request = {"ResourceArn": "arn:aws:sagemaker:us-east-1:000000000000:model/m", "Tags": [{"Key": key, "Value": ""}]}
    if allowed:
        sagemaker.validated("AddTags", request)
    else:
        with pytest.raises(AwsError, match="regular expression"):
            sagemaker.validated("AddTags", request)


def test_error_answers_carry_the_members_of_their_shape():
    status, headers, body = error_reply(AwsError("ModelError", "text", 424, OriginalStatusCode=500))
    assert status == 424
    assert headers["x-amzn-ErrorType"] == "ModelError"
    assert b'"OriginalStatusCode": 500' in body


def test_members_in_headers_are_those_of_the_model():
    model = service_model("sagemaker-runtime", RUNTIME)
    members = model.header_members("InvokeEndpoint")
    assert members["x-amzn-sagemaker-target-model"] == "TargetModel"
    assert members["content-type"] == "ContentType"
    assert "x-amzn-sagemaker-target-model" not in model.header_members("InvokeEndpointWithResponseStream")
