"""Rules of the runtime that need an answer of the container's making: its size, and streams that break off."""

from __future__ import annotations

import asyncio

import pytest
from botocore.eventstream import EventStreamBuffer

from mme_facts.limits import INVOKE_BODY_BYTES
from mme_fleet import replies
from mme_local.dataplane import InvokeReply
from mme_local.dataplane.driver import _invoke_reply
from mme_local.dataplane.instance import Answer
from mme_local.dataplane.interface import InvokeStream, StreamFailed, UnknownFleet
from mme_local.emulator import Request
from mme_local.fault_documents import FailInvoke, ThrottleInvoke
from mme_local.faults import Faults
from mme_local.sagemaker import runtime
from mme_local.sagemaker.runtime import Runtime
from mme_local.wire import AwsError, send_stream
from tests.local.sagemaker_double import IMAGE, ROLE, Double, config, model, run


@pytest.fixture
def double(monkeypatch):
    monkeypatch.setattr(runtime, "authorize", lambda *_arguments: None)
    return Double()


def request(**headers):
    return Request("POST", "/", {name.replace("_", "-"): value for name, value in headers.items()}, b"1", "key", "us-east-1")


class Told:
    """Keeps what the metrics are told."""

    def __init__(self):
        self.failures = []

    def failed(self, endpoint, variant, component, status, *, by_model, answered):
        self.failures.append((endpoint, variant, component, status, by_model, answered))


async def serving(double, *, single=False, faults=None, told=None):
    if single:
        container = {"Image": IMAGE, "ModelDataUrl": "s3://bucket/a.tar.gz"}
        double.sagemaker.create_model({"ModelName": "m", "ExecutionRoleArn": ROLE, "PrimaryContainer": container})
    else:
        double.sagemaker.create_model(model())
    double.sagemaker.create_endpoint_config(config("first"))
    endpoint = double.sagemaker.create_endpoint({"EndpointName": "shared", "EndpointConfigName": "first"})
    await endpoint.settled.wait()
    return Runtime(double.sagemaker, faults, told)


def test_an_answer_beyond_the_limit_is_the_models_error(double):
    async def scenario():
        told = Told()
        served = await serving(double, told=told)
        sizes = {"large": INVOKE_BODY_BYTES + 1, "full": INVOKE_BODY_BYTES}

        async def invoke(_fleet, asked):
            return InvokeReply(200, b"x" * sizes[asked.target_model], "text/csv", "i-1", False)

        double.fleets.invoke = invoke
        status, _headers, body = await served.invoke(request(x_amzn_sagemaker_target_model="full"), "shared")
        assert (status, len(body)) == (200, INVOKE_BODY_BYTES)
        with pytest.raises(AwsError, match="at most 6291456 are allowed") as caught:
            await served.invoke(request(x_amzn_sagemaker_target_model="large"), "shared")
        assert (caught.value.code, caught.value.status) == ("ModelError", 424)
        assert told.failures == [("shared", "AllTraffic", None, 500, True, True)]

    run(scenario())


@pytest.mark.parametrize(
    ("fault", "status", "by_model"),
    [
        (ThrottleInvoke(), 400, False),
        (FailInvoke(error="ServiceUnavailable"), 503, False),
        (FailInvoke(error="ModelError", status=418), 418, True),
    ],
)
def test_a_fault_that_no_fleet_sees_is_told_to_the_metrics(double, fault, status, by_model):
    async def scenario():
        faults, told = Faults(), Told()
        served = await serving(double, faults=faults, told=told)
        faults.put(fault)
        with pytest.raises(AwsError):
            await served.invoke(request(x_amzn_sagemaker_target_model="m"), "shared")
        assert told.failures == [("shared", "AllTraffic", None, status, by_model, False)]

    run(scenario())


def events(frames):
    """Events as botocore reads them: type, payload."""
    buffer = EventStreamBuffer()
    for part in frames:
        buffer.add_data(part)
    return [(message.headers.get(":event-type") or message.headers[":exception-type"], message.payload) for message in buffer]


@pytest.mark.parametrize(
    ("failure", "last"),
    [
        (None, ("PayloadPart", b"second")),
        (
            StreamFailed("ModelInvocationTimeExceeded", "8 minutes"),
            ("ModelStreamError", b'{"Message": "8 minutes", "ErrorCode": "ModelInvocationTimeExceeded"}'),
        ),
        (UnknownFleet("gone"), ("InternalStreamFailure", b'{"Message": "gone"}')),
    ],
    ids=["whole", "timed out", "stopped"],
)
def test_a_stream_ends_with_its_last_part_or_says_why_it_breaks_off(double, failure, last):
    async def chunks():
        yield b"first"
        if failure is not None:
            raise failure
        yield b"second"

    async def scenario():
        served = await serving(double, single=True)

        async def stream(_fleet, _asked):
            return InvokeStream(200, "text/plain", chunks(), "i-1", False)

        double.fleets.stream = stream
        reply = await served.stream(request(), "shared")
        assert reply.headers["X-Amzn-SageMaker-Content-Type"] == "text/plain"
        return events([part async for part in reply.parts])

    assert run(scenario()) == [("PayloadPart", b"first"), last]


def test_a_stream_that_is_given_up_lets_its_fleet_go(double):
    closed = asyncio.Event()

    async def chunks():
        try:
            while True:
                yield b"part"
        finally:
            closed.set()

    async def scenario():
        served = await serving(double, single=True)

        async def stream(_fleet, _asked):
            return InvokeStream(200, "text/plain", chunks(), "i-1", False)

        double.fleets.stream = stream
        reply = await served.stream(request(), "shared")
        assert await anext(reply.parts)
        double.sagemaker.create_endpoint_config(config("next"))
        endpoint = double.sagemaker.update_endpoint({"EndpointName": "shared", "EndpointConfigName": "next"})
        while endpoint.config_name != "next":
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert set(double.fleets.fleets) == {"shared.1.AllTraffic", "shared.2.AllTraffic"}, "the old fleet still answers"
        await reply.close()
        assert closed.is_set()
        await endpoint.settled.wait()
        assert set(double.fleets.fleets) == {"shared.2.AllTraffic"}

    run(scenario())


def test_a_stream_that_is_given_up_before_its_first_part_lets_its_fleet_go(double):
    class Chunks:
        closed = False

        def __aiter__(self):
            return self

        async def __anext__(self):
            raise AssertionError("nobody asks for a part")

        async def aclose(self):
            self.closed = True

    async def scenario():
        served = await serving(double, single=True)
        chunks = Chunks()

        async def stream(_fleet, _asked):
            return InvokeStream(200, "text/plain", chunks, "i-1", False)

        double.fleets.stream = stream
        reply = await served.stream(request(), "shared")

        async def gone():
            return {"type": "http.disconnect"}

        async def send(_message):
            await asyncio.Event().wait()

        await send_stream(gone, send, reply)
        assert chunks.closed
        await double.sagemaker.hosting.in_flight.drained("shared.1.AllTraffic")

    run(scenario())


@pytest.mark.parametrize(("operation", "seconds"), [("invoke", 60), ("stream", 480)])
def test_a_fleet_is_waited_for_as_long_as_the_answers_under_way_may_take(double, monkeypatch, operation, seconds):
    waits = []

    def timeout(limit):
        waits.append(limit)
        return asyncio.timeouts.timeout(0)

    async def chunks():
        yield b"part"

    async def scenario():
        served = await serving(double, single=True)
        double.fleets.answer_gate.clear()

        async def stream(_fleet, _asked):
            return InvokeStream(200, "text/plain", chunks(), "i-1", False)

        double.fleets.stream = stream
        call = asyncio.create_task(getattr(served, operation)(request(), "shared"))
        other = asyncio.create_task(served.invoke(request(), "shared"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        with monkeypatch.context() as patched:
            patched.setattr(asyncio, "timeout", timeout)
            await double.sagemaker.hosting.in_flight.drained("shared.1.AllTraffic")
        assert waits == [seconds]
        double.fleets.answer_gate.set()
        await asyncio.gather(call, other)

    run(scenario())


@pytest.mark.parametrize(
    ("error", "body", "text"),
    [
        (
            replies.timed_out(),
            b"",
            (
                'Received server error (0) from primary with message "Your invocation timed out while waiting for a response from '
                "container primary. Review the latency metrics for each container in Amazon CloudWatch, resolve the issue, and try again."
                '". See https://us-east-1.console.aws.amazon.com/cloudwatch/home?region=us-east-1#logEventViewer:group=/aws/sagemaker/Endpoints'
                "/shared in account 000000000000 for more information."
            ),
        ),
        (replies.reply_error(400), b"no numbers", 'Received client error (400) from primary with message "no numbers". See https://'),
        (replies.reply_error(500), b"", 'Received server error (500) from primary with message "The container answered with status 500.'),
        (replies.queue_full("m", 100), b"", 'Received server error (503) from primary with message "100 requests wait for model m'),
    ],
    ids=["timed out", "client's", "container's", "full"],
)
def test_the_text_of_a_models_error_is_said_once_and_as_aws_says_it(double, error, body, text):
    async def scenario():
        served = await serving(double)
        fleet_reply = _invoke_reply(error, None, Answer(error.original_status, body))

        async def invoke(_fleet, _asked):
            return fleet_reply

        double.fleets.invoke = invoke
        with pytest.raises(AwsError) as caught:
            await served.invoke(request(x_amzn_sagemaker_target_model="a"), "shared")
        assert caught.value.message.startswith(text)
        assert caught.value.message.count("Received") == 1
        assert caught.value.members["OriginalMessage"] == (body.decode() or error.message)

    run(scenario())


def test_an_error_before_the_stream_is_an_error_of_the_call(double):
    async def nothing():
        return
        yield b""

    async def scenario():
        served = await serving(double, single=True)

        async def stream(_fleet, _asked):
            return InvokeStream(424, None, nothing(), "i-1", False, error="ModelError", original_status=500, body=b"broken")

        double.fleets.stream = stream
        with pytest.raises(AwsError, match="broken") as caught:
            await served.stream(request(), "shared")
        assert (caught.value.code, caught.value.members["OriginalStatusCode"]) == ("ModelError", 500)

    run(scenario())


@pytest.mark.parametrize(
    ("error", "status"),
    [
        ("ModelNotReadyException", 429),
        ("ModelError", 424),
        ("InternalFailure", 500),
        ("ServiceUnavailable", 503),
        ("InternalDependencyException", 530),
        ("ValidationError", 400),
    ],
)
def test_every_error_of_the_table_has_its_status(double, error, status):
    async def scenario():
        served = await serving(double)

        async def invoke(_fleet, _asked):
            return InvokeReply(status, b"", None, None, False, error=error, message="text")

        double.fleets.invoke = invoke
        with pytest.raises(AwsError) as caught:
            await served.invoke(request(x_amzn_sagemaker_target_model="a"), "shared")
        assert (caught.value.code, caught.value.status) == (error, status)

    run(scenario())


def test_a_request_to_a_fleet_that_has_just_gone_finds_the_service_unavailable(double):
    async def scenario():
        served = await serving(double, single=True)

        async def gone(_fleet, _asked):
            raise UnknownFleet("gone")

        double.fleets.invoke = double.fleets.stream = gone
        for call in (served.invoke, served.stream):
            with pytest.raises(AwsError, match="its instances are being stopped") as caught:
                await call(request(), "shared")
            assert (caught.value.code, caught.value.status) == ("ServiceUnavailable", 503)

    run(scenario())


def test_sessions_are_refused_with_the_reason(double):
    async def scenario():
        served = await serving(double, single=True)
        for session in ("NEW_SESSION", "s-1"):
            with pytest.raises(AwsError, match="serves no sessions") as caught:
                await served.invoke(request(x_amzn_sagemaker_session_id=session), "shared")
            assert caught.value.code == "ValidationError"

    run(scenario())


def test_multi_model_endpoints_have_no_streams(double):
    async def scenario():
        served = await serving(double)
        with pytest.raises(AwsError, match="it has no response streaming"):
            await served.stream(request(), "shared")
        with pytest.raises(AwsError, match="does not support TargetModel"):
            await served.stream(request(x_amzn_sagemaker_target_model="a"), "shared")

    run(scenario())
