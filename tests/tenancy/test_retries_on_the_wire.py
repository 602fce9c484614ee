"""Each row of the retry table over real HTTP, botocore's own parsing and retry layer included: requests on the wire, waits, final error.

An end-to-end test runs this file with the oldest and the newest boto3 that we support, so it uses no fixture of other files.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import boto3
import botocore
import pytest

from mme_tenancy.aws.clients import runtime_client
from mme_tenancy.aws.sagemaker import SageMakerRuntime
from mme_tenancy.invocation import InvocationRequest, Invoker
from mme_tenancy.retries import RetryBudget
from mme_tenancy.routes import Target
from mme_tenancy.testing import FakeClock
from tests.tenancy.retry_rows import DEADLINE_SECONDS, ROWS, Row

TARGET = Target("endpoint-a", "AllTraffic", "v1-0123456789ab", "acme/iris/v1-0123456789ab.tar.gz")
READ_TIMEOUT_SECONDS = 0.3


class Service(ThreadingHTTPServer):
    """Says what the row says, to every request."""

    daemon_threads = True

    def __init__(self, row: Row) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.row, self.count, self.over = row, 0, threading.Event()
        self.lock = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    server: Service

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        row = self.server.row
        with self.server.lock:
            self.server.count += 1
        if row.code == "ReadTimeout":
            self.server.over.wait(30)
        elif row.code == "ConnectionLost":
            self.connection.shutdown(socket.SHUT_RDWR)
        else:
            self._say(row)
        self.close_connection = True

    def _say(self, row: Row) -> None:
        document = {"Message": row.message} if row.message else {}
        if row.original_status is not None:
            document |= {"OriginalStatusCode": row.original_status, "OriginalMessage": "Traceback of the container"}
        body = json.dumps(document).encode() if row.code else b""
        self.send_response(row.http_status)
        if row.code:
            self.send_header("x-amzn-errortype", row.code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        pass


@pytest.fixture
def service(request):
    """The service of a row; for a refused connection one that has closed its port."""
    server = Service(request.param)
    if request.param.code == "NotConnected":
        server.server_close()
        yield server
        return
    with server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server
        server.over.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def invoke(service, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{service.server_address[1]}")
    for name in ("AWS_RETRY_MODE", "AWS_MAX_ATTEMPTS"):
        # What an operator set for other clients of the process must not add a second layer.
        monkeypatch.setenv(name, {"AWS_RETRY_MODE": "legacy", "AWS_MAX_ATTEMPTS": "7"}[name])
    session = boto3.Session("AKIAEXAMPLE", "secret", region_name="us-east-1")

    def make(seconds):
        return runtime_client(session, READ_TIMEOUT_SECONDS if service.row.code == "ReadTimeout" else seconds)

    def call(clock, request, budget=None):
        invoker = Invoker(SageMakerRuntime(make), clock, lambda: 0.5, budget)
        return invoker.invoke(TARGET, request, deadline=clock.monotonic() + DEADLINE_SECONDS)

    return call


rows = pytest.mark.parametrize("service", ROWS, indirect=True, ids=str)


@rows
def test_a_row_sends_so_many_requests_waits_so_long_and_ends_so(service, invoke):
    clock, row = FakeClock(), service.row
    outcome = invoke(clock, InvocationRequest(b"1,2", "text/csv"))
    assert outcome.failure is row.failure
    assert (outcome.attempts, service.count) == (row.attempts, 0 if row.code == "NotConnected" else row.attempts)
    assert (outcome.waited_seconds, sum(clock.slept)) == pytest.approx((row.waited_seconds, row.waited_seconds), abs=1e-6)
    assert len(clock.slept) == row.attempts - 1
    assert (type(outcome.error), outcome.error.problem.status) == (row.error, row.status)
    assert "Traceback" not in f"{outcome.fault}"


@rows
def test_a_request_that_must_not_run_twice_is_not_sent_again_once_the_model_may_have_begun(service, invoke):
    outcome = invoke(FakeClock(), InvocationRequest(b"1,2", "text/csv", idempotent=False))
    assert outcome.attempts == service.row.once
    assert (outcome.failure, outcome.error.problem.status) == (service.row.failure, service.row.status)


@rows
def test_an_empty_budget_leaves_one_attempt_to_what_is_budgeted(service, invoke):
    clock, row = FakeClock(), service.row
    outcome = invoke(clock, InvocationRequest(b"1,2", "text/csv"), RetryBudget(capacity=0.0))
    assert outcome.attempts == (1 if row.failure in {"throttled", "unavailable", "connection lost"} else row.attempts)


def test_these_rows_ran_with_the_botocore_that_was_meant():
    assert botocore.__version__ == os.environ.get("MME_TESTED_BOTOCORE", botocore.__version__)
