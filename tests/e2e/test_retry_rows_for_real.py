"""The retry table against the local cloud's own faults: what a row promises holds where a real endpoint, container and store misbehave."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import boto3
import pytest

from mme_local import (
    FailDownload,
    FailInvoke,
    FailLoad,
    Fault,
    FreezeInstance,
    KillInstance,
    LocalCloud,
    SlowInvoke,
    SlowLoad,
    ThrottleInvoke,
)
from mme_tenancy.aws.clients import runtime_client
from mme_tenancy.aws.sagemaker import SageMakerRuntime
from mme_tenancy.clock import SystemClock
from mme_tenancy.errors import (
    InvocationTimeoutError,
    ModelFailedError,
    ModelLoadingError,
    ModelRejectedInputError,
    TenancyError,
    ThrottledError,
    UnavailableError,
)
from mme_tenancy.invocation import InvocationRequest, Invoker
from mme_tenancy.retries import Failure
from mme_tenancy.routes import Target
from mme_tenancy.testing import FakeClock
from tests.local.conftest import Workbench
from tests.local.scripted_endpoint import artifact, deploy, settings

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

SECONDS = 27.0
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
LOAD_WAIT_SECONDS = 0.3
"""How long the local cloud lets a request wait for a load before it says that the model is not ready."""


@dataclass(frozen=True)
class Case:
    """A fault of the local cloud, and what a request meets while it lasts.

    Attributes:
        fault: what is asked for, for one model; ``None`` for none.
        failure: the row.
        attempts: requests in all.
        waited_seconds: time between them in all.
        error: what the caller gets.
        status: its HTTP status.
        model: which model is asked.
        timeout_seconds: the client's time limit.
        allowed: whether the caller may invoke.
    """

    fault: Fault | None
    failure: Failure
    attempts: int
    waited_seconds: float
    error: type[TenancyError]
    status: int
    model: str = "warm.tar.gz"
    timeout_seconds: float = SECONDS
    allowed: bool = True

    def __str__(self) -> str:
        asked = getattr(self.fault, "error", "") or (self.fault.kind if self.fault else self.model)
        return f"{asked} {self.failure}".replace(" ", "-")


def failing(error: Any, status: int = 500) -> FailInvoke:
    return FailInvoke(error=error, status=status)


CASES = [
    Case(ThrottleInvoke(), Failure.THROTTLED, 5, 3.75, ThrottledError, 429),
    Case(failing("InternalFailure"), Failure.UNAVAILABLE, 10, 11.1, UnavailableError, 503),
    Case(failing("ServiceUnavailable"), Failure.UNAVAILABLE, 10, 11.1, UnavailableError, 503),
    Case(failing("InternalDependencyException"), Failure.UNAVAILABLE, 10, 11.1, UnavailableError, 503),
    Case(FailDownload(), Failure.UNAVAILABLE, 10, 11.1, UnavailableError, 503, model="cold-a.tar.gz"),
    Case(FailDownload(error="missing"), Failure.TARGET_GONE, 1, 0.0, UnavailableError, 503, model="cold-a.tar.gz"),
    Case(None, Failure.TARGET_GONE, 1, 0.0, UnavailableError, 503, model="not-there.tar.gz"),
    Case(FailLoad(status=500), Failure.WORKER_DIED, 2, 0.2, ModelFailedError, 502, model="cold-a.tar.gz"),
    Case(None, Failure.WORKER_DIED, 2, 0.2, ModelFailedError, 502, model="dies.tar.gz"),
    Case(failing("ModelError", 501), Failure.MODEL_FAILED, 1, 0.0, ModelFailedError, 502),
    Case(failing("ModelError", 415), Failure.INPUT_REJECTED, 1, 0.0, ModelRejectedInputError, 422),
    Case(failing("ModelError", 0), Failure.CONTAINER_SILENT, 2, 0.1, InvocationTimeoutError, 504),
    Case(None, Failure.REFUSED, 1, 0.0, UnavailableError, 503, allowed=False),
    Case(SlowInvoke(seconds=3), Failure.TIMED_OUT, 2, 0.1, InvocationTimeoutError, 504, timeout_seconds=1),
    Case(SlowLoad(seconds=20), Failure.NOT_READY, 17, 25.1, ModelLoadingError, 503, model="cold-b.tar.gz"),
    Case(FreezeInstance(), Failure.TIMED_OUT, 2, 0.1, InvocationTimeoutError, 504, timeout_seconds=1),
]


@pytest.fixture(scope="module")
def bench():
    models = {"warm.tar.gz": artifact(), "cold-a.tar.gz": artifact(), "cold-b.tar.gz": artifact(), "dies.tar.gz": artifact(invoke="die")}
    scripted = settings(faults=True)
    quick = replace(scripted, data_plane=replace(scripted.data_plane, load_wait_seconds=LOAD_WAIT_SECONDS))
    with LocalCloud(settings=quick) as cloud, closing(Workbench(cloud)) as bench:
        deploy(bench, "e", models)
        yield bench


@pytest.fixture
def send(bench, monkeypatch):
    """Invokes a model by the rules; the outcome, and how many requests botocore sent."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", bench.cloud.endpoint_url)

    def send(model, clock, timeout_seconds=SECONDS, keys=None):
        sent, keys = [], keys or bench.cloud.admin
        session = boto3.Session(keys.access_key_id, keys.secret_access_key, region_name=bench.cloud.region)

        def make(_seconds):
            client = runtime_client(session, timeout_seconds)
            client.meta.events.register("before-send", lambda **_: sent.append(1))
            return client

        invoker = Invoker(SageMakerRuntime(make), clock, lambda: 0.5)
        request = InvocationRequest(b"1", "text/csv", traceparent=TRACEPARENT)
        outcome = invoker.invoke(Target("e", "AllTraffic", "v1", model), request, deadline=clock.monotonic() + SECONDS)
        return outcome, len(sent)

    yield send
    bench.cloud.faults.clear()


def test_the_trace_context_reaches_the_container(send):
    outcome, _ = send("warm.tar.gz", SystemClock())
    headers = json.loads(outcome.answer().body)["headers"]
    assert headers["x-amzn-sagemaker-custom-attributes"] == f"traceparent={TRACEPARENT}"


def test_a_killed_instance_is_waited_for(bench, send):
    assert send("warm.tar.gz", SystemClock())[0].reply is not None
    bench.cloud.faults.put(KillInstance(endpoint="e"))
    outcome, sent = send("warm.tar.gz", SystemClock())
    assert (outcome.failure, outcome.attempts) == (None, sent)
    assert 1 < sent <= 10


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_row_holds_where_it_really_happens(bench, send, case):
    clock, keys = FakeClock(), None if case.allowed else bench.user()
    if isinstance(case.fault, FreezeInstance):
        assert send(case.model, FakeClock())[0].reply is not None, "it is the loaded model that goes silent"
    if case.fault is not None:
        bench.cloud.faults.put(case.fault)
    outcome, sent = send(case.model, clock, case.timeout_seconds, keys)
    assert outcome.failure is case.failure, outcome
    assert (outcome.attempts, sent) == (case.attempts, case.attempts)
    assert (outcome.waited_seconds, sum(clock.slept)) == pytest.approx((case.waited_seconds, case.waited_seconds))
    assert (type(outcome.error), outcome.error.problem.status) == (case.error, case.status)
