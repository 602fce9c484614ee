"""500 first calls to 500 models within 5 s on two instances: every caller hears within its deadline, and retries add no second storm.

The servers are simulated ones whose loads take as long as those of XGBoost models in the real multi-model server (0.3 s to 1.2 s, at most
eight at once on an instance), because 500 real processes of models do not fit on one machine.
"""

import json
import threading
import time
from contextlib import closing
from dataclasses import dataclass

import pytest
from botocore.exceptions import ClientError, HTTPClientError

from benchmarks.simulated_platform import ENDPOINT, simulated_platform, target_model
from mme_local import LocalSettings
from mme_local.dataplane import DataPlaneSettings
from mme_tenancy import TenancyError

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

STORMS = ("patient", "hurried", "impatient")
TENANTS, MODELS, WITHIN_SECONDS = 100, 5, 5.0
BEHAVIOUR = {"load_seconds": [0.3, 1.2]}
LOADS_AT_ONCE = 8
HELD_SECONDS = 6.0
"""So long the endpoint holds a request for a model that is being loaded before it says 429."""
SLACK_SECONDS = 1.0
"""Of 500 threads on two cores."""


@dataclass(frozen=True)
class Call:
    """How a call ended: seconds from its beginning, those between requests, requests sent, and an error's status and Retry-After."""

    seconds: float
    waited: float
    attempts: int
    status: int = 200
    retry_after: int | None = None

    @property
    def needed(self):
        """Requests that it takes at least: the endpoint holds each for a bounded time, and the client's own pauses need none."""
        return 1 + int((self.seconds - self.waited) / HELD_SECONDS)


@pytest.fixture(scope="module")
def platform():
    plane = DataPlaneSettings(
        servers={"*": "simulated"}, load_concurrency=LOADS_AT_ONCE, load_wait_seconds=HELD_SECONDS, instance_memory_bytes=2**33
    )
    models = [name for storm in STORMS for name in models_of(storm)]
    with simulated_platform(dict.fromkeys(models, BEHAVIOUR), LocalSettings(data_plane=plane), instances=2) as platform:
        yield platform


def models_of(storm):
    """The models of a storm, which no other storm touches: tenant and model."""
    return [(f"t{tenant:03d}", f"{storm}-{model}") for tenant in range(TENANTS) for model in range(MODELS)]


def storm(models, call):
    """Each model's first call at its time, each from a thread of its own."""
    calls, start = [], time.monotonic()

    def send(number, name):
        time.sleep(max(start + WITHIN_SECONDS * number / len(models) - time.monotonic(), 0))
        calls.append(call(*name))

    threads = [threading.Thread(target=send, args=each) for each in enumerate(models)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == len(models)
    return calls


def with_client(client, lines, deadline_seconds):
    """Calls by `TenantClient`; the requests that each took are in its log line."""

    def call(tenant, model):
        began, status, retry_after = time.monotonic(), 200, None
        try:
            client.invoke(tenant, model, b"1,2,3", timeout_seconds=deadline_seconds)
        except TenancyError as error:
            status, retry_after = error.problem.status, error.retry_after_seconds
        seconds = time.monotonic() - began
        line = next(line for line in map(json.loads, lines) if (line["tenant"], line["model"]) == (tenant, model))
        return Call(seconds, line["waited_ms"] / 1000, line["attempts"], status, retry_after)

    return call


def refused_by(platform):
    """Errors of the endpoint so far, by their code."""
    (endpoint,) = platform.cloud.status()["endpoints"]
    return dict(endpoint["errors_by_code"])


def told(tell, what, calls):
    sent, needed = (sum(getattr(call, name) for call in calls) for name in ("attempts", "needed"))
    answered = sum(call.status == 200 for call in calls)
    slowest = max(call.seconds for call in calls)
    tell(f"{what}: {answered} of {len(calls)} answered, {sent} requests where {needed} are needed, the slowest after {slowest:.1f} s")
    return sent / needed


def test_a_storm_that_fits_the_deadline_is_answered_with_few_retries_and_no_full_queue(platform, tell):
    lines = []
    with platform.client(lines.append) as client:
        calls = storm(models_of("patient"), with_client(client, lines, 25.0))
    assert told(tell, "deadline 25 s", calls) <= 1.2
    assert max(call.seconds for call in calls) <= 25.0 + SLACK_SECONDS
    assert {call.status for call in calls} <= {200, 503}
    assert sum(call.status == 200 for call in calls) >= 0.9 * len(calls)
    assert set(refused_by(platform)) <= {"ModelNotReadyException"}


def test_a_storm_above_what_loads_in_time_gets_a_503_that_says_when_to_come_back(platform, tell):
    lines = []
    with platform.client(lines.append) as client:
        calls = storm(models_of("hurried"), with_client(client, lines, 8.0))
    assert told(tell, "deadline 8 s", calls) <= 1.2
    assert max(call.seconds for call in calls) <= 8.0 + SLACK_SECONDS
    late = [call for call in calls if call.status != 200]
    assert 0 < len(late) < len(calls)
    assert {(call.status, call.retry_after is not None and call.retry_after > 0) for call in late} == {(503, True)}
    assert set(refused_by(platform)) <= {"ModelNotReadyException"}


def test_callers_that_ask_again_every_second_make_a_second_storm(platform, tell):
    """What the bound tells apart: boto3 with a short read timeout, asked again at once."""
    raw = platform.raw(read_timeout=1, max_pool_connections=600)

    def call(tenant, model):
        began, attempts = time.monotonic(), 0
        while time.monotonic() - began < 25.0:
            attempts += 1
            try:
                raw.invoke_endpoint(EndpointName=ENDPOINT, TargetModel=target_model(tenant, model), Body=b"1,2,3")["Body"].read()
            except (ClientError, HTTPClientError):
                continue
            return Call(time.monotonic() - began, 0.0, attempts)
        return Call(time.monotonic() - began, 0.0, attempts, 503)

    with closing(raw):
        calls = storm(models_of("impatient"), call)
    assert told(tell, "asked again every second", calls) > 1.2
