"""The runtime adapter over real HTTP: a small server says what SageMaker says."""

from __future__ import annotations

import json
import socket
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import boto3
import pytest

from mme_local.eventstream import frame
from mme_tenancy.aws.clients import runtime_client
from mme_tenancy.aws.sagemaker import SageMakerRuntime
from mme_tenancy.invocation import InvocationRequest, ModelReply
from mme_tenancy.retries import Failure, RuntimeFault, classify
from mme_tenancy.routes import Target

TARGET = Target("endpoint-a", "AllTraffic", "v1-0123456789ab", "acme/iris/v1-0123456789ab.tar.gz")


class Endpoint(ThreadingHTTPServer):
    """Answers every request by the next entry of ``script``; ``None`` says nothing until the end."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.script, self.requests, self.over = [], [], threading.Event()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append((self.path, dict(self.headers), body))
        entry = self.server.script.pop(0) if len(self.server.script) > 1 else self.server.script[0]
        if entry is None:
            self.server.over.wait(30)
            return
        status, headers, body = entry
        self.send_response(status)
        chunked = "Transfer-Encoding" in headers
        for name, value in (headers if chunked else {**headers, "Content-Length": str(len(body))}).items():
            self.send_header(name, value)
        self.end_headers()
        if not chunked:
            self.wfile.write(body)
            return
        # One chunk, and the rest never comes.
        self.wfile.write(b"%x\r\n%s\r\n" % (len(body), body))
        self.wfile.flush()
        if headers["X-Then"] == "silence":
            self.server.over.wait(30)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def endpoint():
    with Endpoint() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.over.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def session(endpoint, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint.url)
    return boto3.Session("AKIAEXAMPLE", "secret", region_name="us-east-1")


@pytest.fixture
def runtime(session):
    return SageMakerRuntime(lambda seconds: runtime_client(session, seconds))


def error(status, code, **members):
    return (status, {"x-amzn-errortype": code, "Content-Type": "application/json"}, json.dumps({"Message": "m", **members}).encode())


def test_a_request_goes_to_the_target_model_and_its_answer_comes_back(endpoint, runtime):
    endpoint.script = [(200, {"Content-Type": "text/csv"}, b"1.0")]
    assert runtime.invoke(TARGET, InvocationRequest(b"1,2", "text/csv", "text/csv"), 10) == ModelReply(b"1.0", "text/csv")
    ((path, headers, body),) = endpoint.requests
    assert (path, body) == ("/endpoints/endpoint-a/invocations", b"1,2")
    assert headers["X-Amzn-SageMaker-Target-Model"] == TARGET.target_model
    assert (headers["Content-Type"], headers["Accept"]) == ("text/csv", "text/csv")


@pytest.mark.parametrize(
    ("answer", "code", "status", "original"),
    [
        (error(429, "ModelNotReadyException"), "ModelNotReadyException", 429, None),
        (error(424, "ModelError", OriginalStatusCode=500, OriginalMessage="Traceback"), "ModelError", 424, 500),
        (error(424, "ModelError", OriginalStatusCode=400), "ModelError", 424, 400),
        (error(503, "ServiceUnavailable"), "ServiceUnavailable", 503, None),
        (error(500, "InternalFailure"), "InternalFailure", 500, None),
        (error(530, "InternalDependencyException"), "InternalDependencyException", 530, None),
        (error(400, "ValidationError"), "ValidationError", 400, None),
        (error(400, "ThrottlingException"), "ThrottlingException", 400, None),
        ((400, {"x-amzn-errortype": "ThrottlingException"}, b"{}"), "ThrottlingException", 400, None),
        (error(403, "AccessDeniedException"), "AccessDeniedException", 403, None),
    ],
)
def test_an_error_is_one_attempt_and_keeps_its_code(endpoint, runtime, answer, code, status, original):
    endpoint.script = [answer]
    with pytest.raises(RuntimeFault) as caught:
        runtime.invoke(TARGET, InvocationRequest(b"1,2"), 10)
    assert (caught.value.code, caught.value.http_status, caught.value.original_status) == (code, status, original)
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize(("code", "logged"), [("ValidationError", True), ("ModelError", False)])
def test_what_the_service_said_is_kept_for_the_log_but_not_what_a_container_said(endpoint, runtime, code, logged):
    endpoint.script = [(400, {"x-amzn-errortype": code}, b'{"Message": "some words"}')]
    with pytest.raises(RuntimeFault) as caught:
        runtime.invoke(TARGET, InvocationRequest(b"1,2"), 10)
    assert ("some words" in str(caught.value)) is logged


def test_a_silent_endpoint_is_given_up_in_time(endpoint, runtime):
    endpoint.script = [None]
    with pytest.raises(RuntimeFault) as caught:
        runtime.invoke(TARGET, InvocationRequest(b"1,2"), 1.5)
    assert caught.value.code == "ReadTimeout"
    assert len(endpoint.requests) == 1


def test_an_endpoint_that_refuses_the_connection_has_got_nothing(session, monkeypatch):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{unused.getsockname()[1]}")
        runtime = SageMakerRuntime(lambda seconds: runtime_client(boto3.Session("AKIAEXAMPLE", "secret", region_name="us-east-1"), seconds))
        with pytest.raises(RuntimeFault) as caught:
            runtime.invoke(TARGET, InvocationRequest(b"1,2"), 5)
    assert caught.value.code == "NotConnected"


def test_an_answer_that_breaks_off_is_a_lost_connection(endpoint, runtime):
    class Short(bytes):
        def __len__(self):
            return 100

    endpoint.script = [(200, {"Content-Type": "text/csv"}, Short(b"1.0"))]
    with pytest.raises(RuntimeFault) as caught:
        runtime.invoke(TARGET, InvocationRequest(b"1,2"), 5)
    assert caught.value.code == "ConnectionLost"


def test_timeouts_share_few_clients():
    made = []
    runtime = SageMakerRuntime(made.append)
    for timeout in (0.2, 0.96, 26.9, 25.99, 27.0, 29.0, 500.0, 0.7):
        runtime.prepare(timeout)
    assert made == [0.2, 1, 26, 70, 0.5]


def test_trace_ids_go_on_with_the_request(endpoint, runtime, monkeypatch):
    traceparent, xray = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=1"
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "invocation")
    monkeypatch.setenv("_X_AMZN_TRACE_ID", xray)
    endpoint.script = [(200, {}, b"1.0")]
    runtime.invoke(TARGET, InvocationRequest(b"1", traceparent=traceparent), 10)
    runtime.invoke(TARGET, InvocationRequest(b"1"), 10)
    (_, traced, _), (_, untraced, _) = endpoint.requests
    assert (traced["X-Amzn-SageMaker-Custom-Attributes"], traced["X-Amzn-Trace-Id"]) == (f"traceparent={traceparent}", xray)
    assert "X-Amzn-SageMaker-Custom-Attributes" not in untraced


def test_a_container_is_told_of_calls_that_nobody_asked_for(endpoint, runtime):
    endpoint.script = [(200, {}, b"1.0")]
    runtime.invoke(TARGET, InvocationRequest(b"1", warm_up="activation"), 10)
    runtime.invoke(TARGET, InvocationRequest(b"1", traceparent="00-1", warm_up="activation"), 10)
    told = [headers["X-Amzn-SageMaker-Custom-Attributes"] for _, headers, _ in endpoint.requests]
    assert told == ["mme-warm-up=activation", "traceparent=00-1,mme-warm-up=activation"]


@pytest.mark.parametrize(
    ("attributes", "memory_bytes"),
    [
        ("mme-memory-bytes=123456", 123456),
        ("traceparent=00-ab, mme-memory-bytes=7;x=y", 7),
        ("xmme-memory-bytes=7", None),
        ("mme-memory-bytes=-7", None),
        ("mme-memory-bytes=7x", None),
        (f"mme-memory-bytes={'9' * 30}", None),
        (None, None),
    ],
)
def test_the_memory_that_a_container_reports_is_taken_from_its_custom_attributes(endpoint, session, attributes, memory_bytes):
    headers = {} if attributes is None else {"X-Amzn-SageMaker-Custom-Attributes": attributes}
    endpoint.script = [(200, headers, b"1.0")]
    runtime = SageMakerRuntime(lambda seconds: runtime_client(session, seconds))
    assert runtime.invoke(TARGET, InvocationRequest(b"1"), 5).memory_bytes == memory_bytes


def test_a_request_to_a_component_names_it_and_no_target_model(endpoint, runtime):
    endpoint.script = [(200, {"Content-Type": "text/csv"}, b"1.0")]
    target = replace(TARGET, component="acme-iris-1")
    assert runtime.invoke(target, InvocationRequest(b"1,2"), 10) == ModelReply(b"1.0", "text/csv")
    ((path, headers, _),) = endpoint.requests
    assert path == "/endpoints/endpoint-a/invocations"
    assert headers["X-Amzn-SageMaker-Inference-Component"] == "acme-iris-1"
    assert "X-Amzn-SageMaker-Target-Model" not in headers


COMPONENT = replace(TARGET, component="acme-iris-1")


def events(*parts, error=None):
    """What a stream of these parts is on the wire, ended by an error if there is one."""
    frames = [frame({":message-type": "event", ":event-type": "PayloadPart"}, part) for part in parts]
    if error is not None:
        frames.append(frame({":message-type": "exception", ":exception-type": error}, b'{"Message": "secret"}'))
    headers = {"Content-Type": "application/vnd.amazon.eventstream", "X-Amzn-SageMaker-Content-Type": "text/plain"}
    return 200, headers, b"".join(frames)


def read(stream, seconds=5):
    parts = [stream.body]
    while (part := stream.more(seconds)) is not None:
        parts.append(part)
    stream.close()
    return parts


def test_a_components_answer_comes_part_by_part_and_its_connection_is_used_again(endpoint, runtime):
    endpoint.script = [events(b"one", b"", b"two")]
    for _ in range(2):
        stream = runtime.stream(COMPONENT, InvocationRequest(b"1,2", "text/csv", traceparent="00-1"), 10)
        assert (read(stream), stream.content_type) == ([b"one", b"two"], "text/plain")
    path, headers, body = endpoint.requests[0]
    assert (path, body) == ("/endpoints/endpoint-a/invocations-response-stream", b"1,2")
    assert headers["X-Amzn-SageMaker-Inference-Component"] == "acme-iris-1"
    assert "X-Amzn-SageMaker-Target-Model" not in headers


def test_an_empty_answer_is_a_stream_without_parts(endpoint, runtime):
    endpoint.script = [events()]
    assert read(runtime.stream(COMPONENT, InvocationRequest(b"1"), 10)) == [b""]


def test_nothing_is_streamed_from_a_shared_endpoint(endpoint, runtime):
    with pytest.raises(ValueError, match="shared endpoint"):
        runtime.stream(TARGET, InvocationRequest(b"1"), 10)
    assert endpoint.requests == []


@pytest.mark.parametrize(
    ("code", "failure"), [("ModelStreamError", Failure.MODEL_FAILED), ("InternalStreamFailure", Failure.CONNECTION_LOST)]
)
def test_an_error_within_a_stream_keeps_its_code_and_not_its_text(endpoint, runtime, code, failure):
    endpoint.script = [events(b"one", error=code), events(error=code)]
    stream = runtime.stream(COMPONENT, InvocationRequest(b"1"), 10)
    with pytest.raises(RuntimeFault) as within:
        stream.more(5)
    with pytest.raises(RuntimeFault) as at_once:
        runtime.stream(COMPONENT, InvocationRequest(b"1"), 10)
    for caught in (within, at_once):
        assert (caught.value.code, classify(caught.value)) == (code, failure)
        assert ("secret" in str(caught.value)) is (code == "InternalStreamFailure")


def test_an_error_instead_of_a_stream_keeps_its_code(endpoint, runtime):
    endpoint.script = [error(429, "ThrottlingException")]
    with pytest.raises(RuntimeFault) as caught:
        runtime.stream(COMPONENT, InvocationRequest(b"1"), 10)
    assert (caught.value.code, caught.value.http_status) == ("ThrottlingException", 429)


@pytest.mark.parametrize(("then", "code"), [("silence", "ReadTimeout"), ("end", "ConnectionLost")])
def test_a_stream_that_stops_is_given_up_in_time(endpoint, runtime, then, code):
    status, headers, body = events(b"one")
    endpoint.script = [(status, {**headers, "Transfer-Encoding": "chunked", "X-Then": then}, body)]
    stream = runtime.stream(COMPONENT, InvocationRequest(b"1"), 10)
    assert stream.body == b"one"
    with pytest.raises(RuntimeFault) as caught:
        stream.more(0.3)
    assert caught.value.code == code
    stream.close()


def test_threads_that_call_at_once_share_one_client(session):
    made, at_once = [], threading.Barrier(8, timeout=30)

    def make(seconds):
        made.append(seconds)
        return runtime_client(session, seconds)

    runtime = SageMakerRuntime(make)

    def prepare():
        at_once.wait()
        runtime.prepare(10)

    threads = [threading.Thread(target=prepare) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [10]
