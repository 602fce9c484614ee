"""Requests checked against botocore's models."""

from __future__ import annotations

import asyncio

import pytest

from mme_local.autoscaling.responses import OPERATIONS as AUTOSCALING
from mme_local.sagemaker.responses import OPERATIONS as SAGEMAKER
from mme_local.sagemaker.runtime import OPERATIONS as RUNTIME
from mme_local.wire import AwsError, ServiceModel, StreamReply, error_reply, send_stream, service_model


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


class Caller:
    """An ASGI connection whose request has been read, and the answer in parts that it gets."""

    def __init__(self, parts, *, failure=None):
        self.sent, self.closed, self.given = [], 0, asyncio.Semaphore(parts)
        self.first, self.gone, self.failure = asyncio.Event(), asyncio.Event(), failure

    async def receive(self):
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message):
        self.sent.append(message)
        if message.get("body"):
            self.first.set()

    async def parts(self):
        for number in range(3):
            await self.given.acquire()
            if self.failure is not None:
                raise self.failure
            yield b"%d" % number

    async def close(self):
        self.closed += 1

    def serve(self):
        return send_stream(self.receive, self.send, StreamReply(200, {"Content-Type": "text/plain"}, self.parts(), self.close))

    @property
    def body(self):
        return b"".join(message.get("body", b"") for message in self.sent)


def test_a_stream_is_sent_to_its_end_and_closed_once():
    async def scenario():
        caller = Caller(3)
        await caller.serve()
        assert (caller.body, caller.sent[-1], caller.closed) == (b"012", {"type": "http.response.body", "body": b""}, 1)

    asyncio.run(scenario())


def test_a_stream_ends_when_the_caller_goes_and_is_not_read_any_further():
    async def scenario():
        caller = Caller(1)
        async with asyncio.timeout(10):
            serving = asyncio.create_task(caller.serve())
            await caller.first.wait()
            caller.gone.set()
            await serving
        assert (caller.body, caller.closed) == (b"0", 1)

    asyncio.run(scenario())


@pytest.mark.parametrize("begun", [True, False])
def test_a_stream_that_is_cancelled_is_closed_also_before_it_has_begun(begun):
    async def scenario():
        caller = Caller(int(begun))
        serving = asyncio.create_task(caller.serve())
        if begun:
            await caller.first.wait()
        else:
            await asyncio.sleep(0)
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
        assert (caller.body, caller.closed) == (b"0" if begun else b"", 1)

    asyncio.run(scenario())


def test_a_stream_whose_source_fails_is_closed_and_the_failure_told():
    async def scenario():
        caller = Caller(1, failure=OSError("broken"))
        with pytest.raises(OSError, match="broken"):
            await caller.serve()
        assert caller.closed == 1

    asyncio.run(scenario())
