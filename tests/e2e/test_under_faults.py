"""A killed instance, a throttled endpoint, a frozen store, calls that fail: what callers see before, during and after.

Beside `TenantClient` boto3 sends to the same models without retries of ours: what it loses is what the client is for.
"""

import itertools
import threading
import time
from collections import Counter
from dataclasses import dataclass

import pytest
from botocore.exceptions import BotoCoreError, ClientError
from rich.table import Table

from benchmarks.simulated_platform import ENDPOINT, simulated_platform, target_model
from mme_local import FailInvoke, KillInstance, LocalSettings, SlowDownload, ThrottleInvoke
from mme_local.dataplane import DataPlaneSettings
from mme_tenancy import TenancyError

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

TENANTS, COLD_MODELS = 20, 40
PHASE_SECONDS, DEADLINE_SECONDS, SLACK_SECONDS = 10.0, 3.0, 0.5
OURS_NAME = "client"
OURS, RAW, PERIOD_SECONDS, COLD_EVERY = 8, 2, 0.08, 20
FAULTS = {
    "an instance is killed": lambda: KillInstance(endpoint=ENDPOINT, count=1),
    "every call is throttled": lambda: ThrottleInvoke(endpoint=ENDPOINT, expires_seconds=PHASE_SECONDS),
    "the store is frozen": lambda: SlowDownload(endpoint=ENDPOINT, seconds=PHASE_SECONDS, expires_seconds=PHASE_SECONDS),
    "5 % of calls fail": lambda: FailInvoke(
        endpoint=ENDPOINT, error="ServiceUnavailable", probability=0.05, seed=1, expires_seconds=PHASE_SECONDS
    ),
}
LEAST_AVAILABLE = {"an instance is killed": 0.99, "5 % of calls fail": 0.999}
"""What the retries must make of it. Nothing can be had of an endpoint that throttles every call; warm models know nothing of the store."""


@dataclass(frozen=True)
class Call:
    """One call: who sent it, in which phase it began, whether the model was new, how long it took, and its problem (slug) if it failed."""

    client: str
    phase: str
    cold: bool
    seconds: float
    problem: str | None
    retry_after: int | None = None


@pytest.fixture(scope="module")
def platform():
    models = {(f"t{tenant:02d}", name): {"load_seconds": 0.3, "invoke_seconds": 0.003} for tenant in range(TENANTS) for name in names()}
    settings = LocalSettings(faults=True, data_plane=DataPlaneSettings(servers={"*": "simulated"}, instance_memory_bytes=2**35))
    with simulated_platform(models, settings, instances=2) as platform:
        yield platform


def names():
    return ["warm", *(f"cold-{number}" for number in range(COLD_MODELS))]


@pytest.fixture(scope="module")
def cold_models():
    """Models that nobody has called yet, each once."""
    return iter([(f"t{tenant:02d}", name) for name in names()[1:] for tenant in range(TENANTS)])


class Load:
    """Callers of both kinds that go on through the phases and write down every call."""

    def __init__(self, platform, cold_models):
        self.calls, self.phase, self._stop, self._cold, self._lock = [], "before", threading.Event(), cold_models, threading.Lock()
        self._client, self._raw = platform.client(), platform.raw(read_timeout=DEADLINE_SECONDS)
        senders = [self._ours] * OURS + [self._theirs] * RAW
        self._threads = [threading.Thread(target=self._go_on, args=(number, send)) for number, send in enumerate(senders)]

    def __enter__(self):
        for number in range(TENANTS):
            self._client.invoke(f"t{number:02d}", "warm", b"1")
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._client.close()
        self._raw.close()

    def wait(self, phase):
        """Go on for a phase."""
        self.phase = phase
        self._stop.wait(PHASE_SECONDS)

    def _go_on(self, number, send):
        for turn in itertools.count(number):
            started, phase = time.monotonic(), self.phase
            cold = send == self._ours and turn % COLD_EVERY == 0
            with self._lock:
                tenant, model = next(self._cold) if cold else (f"t{turn % TENANTS:02d}", "warm")
            problem, retry_after = send(tenant, model)
            seconds = time.monotonic() - started
            client = OURS_NAME if send == self._ours else "boto3"
            self.calls.append(Call(client, phase, cold, seconds, problem, retry_after))
            if self._stop.wait(max(PERIOD_SECONDS - seconds, 0)):
                return

    def _ours(self, tenant, model):
        try:
            self._client.invoke(tenant, model, b"1", timeout_seconds=DEADLINE_SECONDS)
        except TenancyError as error:
            return error.problem.slug, error.retry_after_seconds
        return None, None

    def _theirs(self, tenant, model):
        try:
            self._raw.invoke_endpoint(EndpointName=ENDPOINT, TargetModel=target_model(tenant, model), Body=b"1")["Body"].read()
        except (ClientError, BotoCoreError) as error:
            return type(error).__name__, None
        return None, None


def percentile(values, percent):
    return sorted(values)[min(int(len(values) * percent / 100), len(values) - 1)]


def share(calls):
    """Part of the calls that was answered."""
    return sum(call.problem is None for call in calls) / len(calls)


@pytest.mark.parametrize("what", FAULTS)
def test_callers_under_a_fault(platform, cold_models, tell, what):
    with Load(platform, cold_models) as load:
        load.wait("before")
        platform.cloud.faults.put(FAULTS[what]())
        load.wait("during")
        load.wait("after")
    platform.cloud.faults.clear()
    groups = {}
    for call in load.calls:
        kind = "cold" if call.cold else "warm"
        groups.setdefault((f"{call.client}, {kind}", call.phase), []).append(call)
    tell(report(what, groups))
    ours = [call for call in load.calls if call.client == OURS_NAME]
    assert max(call.seconds for call in ours) <= DEADLINE_SECONDS + SLACK_SECONDS
    problems = Counter(call.problem for call in ours if call.problem is not None)
    assert set(problems) <= {"throttled", "unavailable", "model-loading"}, problems
    assert all(call.retry_after for call in ours if call.problem is not None)
    warm = {phase: groups[f"{OURS_NAME}, warm", phase] for phase in ("before", "during", "after")}
    assert share(warm["before"]) == 1.0
    assert share(warm["after"]) >= 0.99
    assert share(warm["during"]) >= (1.0 if what == "the store is frozen" else LEAST_AVAILABLE.get(what, 0.0))
    if what == "5 % of calls fail":
        assert share(groups["boto3, warm", "during"]) < LEAST_AVAILABLE[what]


def report(what, groups):
    table = Table("callers", "phase", "calls", "answered", "p50 ms", "p95 ms", "p99 ms", "max ms", title=what)
    for callers in sorted({callers for callers, _ in groups}):
        for phase in ("before", "during", "after"):
            calls = groups.get((callers, phase), [])
            if calls:
                times = [1000 * call.seconds for call in calls]
                figures = [percentile(times, 50), percentile(times, 95), percentile(times, 99), max(times)]
                table.add_row(callers, phase, str(len(calls)), f"{share(calls):.1%}", *(f"{figure:.0f}" for figure in figures))
    return table
