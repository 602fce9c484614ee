"""A whole warm-up in virtual time, from the look that finds the change to its end, with a fault or a kill at any call of any port."""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest
from botocore.exceptions import ClientError

from mme_facts.grammar import HeatKey
from mme_facts.warm_up import WarmUpEndpoint
from mme_tenancy.fleet_state import FleetState
from mme_tenancy.heat import Counts, ModelHeat, PoolHeat
from mme_tenancy.testing import FakeClock
from mme_tenancy.testing_heat import MemoryHeat
from mme_tenancy.testing_warm_calls import MemoryReadings, MemoryWarmUpRecords, VirtualWorkers
from mme_tenancy.testing_warm_up import MemoryContinuations, MemoryFleets, MemoryWarmUpStore
from mme_tenancy.warm_up.execute import Execution, Minute
from mme_tenancy.warm_up.holder import Tools
from mme_tenancy.warm_up.observer import Observer, ObserverRules
from mme_tenancy.warm_up.planning import HeatPlanner
from mme_tenancy.warm_up.ports import WarmUpState
from mme_tenancy.warm_up.report import Report
from mme_tenancy.warm_up.settings import WarmUpSettings
from mme_tenancy.warm_up.sources import HeatCandidates
from mme_tenancy.warm_up.trigger import Trigger
from tests.tenancy.warm_up_fleet import ENDPOINT, VARIANT, VirtualEndpoint, registered

MODELS = 60
SECONDS, TICK_SECONDS = 295.0, 60.0
GIVEN_UP_TICKS = 20
PORTS = {
    "store": ("read", "write", "keep", "kept"),
    "fleets": ("state",),
    "heat": ("windows", "get"),
    "records": ("models", "outlines", "versions"),
    "readings": ("minutes",),
    "runtime": ("invoke",),
}
FAULT = ClientError({"Error": {"Code": "ThrottlingException", "Message": "slow down"}}, "Operation")


class Killed(BaseException):
    """The process is gone."""


class Gate:
    """Counts the calls of all ports and lets a chosen one fail, before it does its work or after it."""

    def __init__(self):
        self.counts, self.total = Counter(), 0
        self.at, self.error, self.after = None, None, False

    def fail(self, at, error, *, after=False):
        """``at``: a port's method and which of its calls, or which of all calls."""
        self.counts, self.total = Counter(), 0
        self.at, self.error, self.after = at, error, after

    def pass_through(self, name, work):
        self.counts[name] += 1
        self.total += 1
        due = self.at in ((name, self.counts[name]), self.total)
        if due:
            self.at = None
            if not self.after:
                raise self.error
        done = work()
        if due:
            raise self.error
        return done


class Gated:
    """A port whose calls pass a gate."""

    def __init__(self, port, name, gate):
        self._port, self._name, self._gate = port, name, gate

    def __getattr__(self, method):
        inner = getattr(self._port, method)
        if method not in PORTS[self._name]:
            return inner
        return lambda *given, **named: self._gate.pass_through(f"{self._name}.{method}", lambda: inner(*given, **named))


class Platform:
    """An endpoint with a fleet of two instances and models that were used lately, and functions that look after it."""

    def __init__(self, make_version):
        self.clock, self.gate = FakeClock(1_796_000_000.0), Gate()
        self.registry, self.targets = registered(make_version, MODELS)
        self.endpoint = VirtualEndpoint(self.clock)
        self.lines, self.errors = [], []
        start = int(self.clock.now) // 300 * 300 - 300
        rows = tuple(ModelHeat("acme", f"m{n:03d}", "v1-0", Counts(2 + (n < 5), served_ms=100.0)) for n in range(MODELS))
        self.heat = MemoryHeat(PoolHeat(HeatKey("shared", start, 300), (ENDPOINT,), rows))
        self.fleets, self.store, self.continuations = MemoryFleets(), MemoryWarmUpStore(), MemoryContinuations()
        self.ports = {
            name: Gated(port, name, self.gate)
            for name, port in {
                "store": self.store,
                "fleets": self.fleets,
                "heat": self.heat,
                "records": MemoryWarmUpRecords(self.registry),
                "readings": MemoryReadings(Minute(start, 600.0, 600.0, 600.0)),
                "runtime": self.endpoint,
            }.items()
        }
        self.scale(2)
        self.tick()

    def scale(self, count, config="config-1"):
        """The fleet has so many instances now."""
        instances = {VARIANT: count}
        state = FleetState(ENDPOINT, "InService", config, 1.0, self.clock.now, instances, instances, {VARIANT: 1.0})
        self.fleets.states[ENDPOINT] = state

    def update(self):
        """Another fleet of as many instances takes the requests now."""
        self.scale(2, "config-2")

    def tick(self, seconds=SECONDS):
        """A process of its own looks after the endpoint, as the schedule has it do every minute."""
        settings, ports, report = WarmUpSettings(), self.ports, Report(self.lines.append, self.clock)
        execution = Execution(
            runtime=ports["runtime"],
            records=ports["records"],
            readings=ports["readings"],
            workers=VirtualWorkers(self.clock),
            clock=self.clock,
        )
        tools = Tools(
            settings=settings,
            store=ports["store"],
            observer=Observer(ports["store"], ports["fleets"], self.clock, report, ObserverRules()),
            planner=HeatPlanner(HeatCandidates(ports["heat"], ports["records"], self.clock), settings, self.clock, told=report.unread),
            driver=execution,
            clock=self.clock,
            report=report,
        )
        target = WarmUpEndpoint("shared", ENDPOINT, VARIANT, 100 * MODELS, 8)
        trigger = Trigger(targets=(target,), tools=tools, continuations=self.continuations)
        stop_at = self.clock.monotonic() + seconds
        try:
            visited = trigger.visit(stop_at=stop_at)
        except Killed:
            return None
        assert self.clock.monotonic() <= stop_at
        self.errors += visited.errors.values()
        return visited

    def until_it_ends(self, seconds=SECONDS):
        """Ticks until the warm-up has ended; how many that took."""
        for tick in range(1, GIVEN_UP_TICKS):
            self.clock.now += TICK_SECONDS
            self.tick(seconds)
            if self.has_ended:
                return tick
        raise AssertionError(f"it never ended: {self.record}")

    @property
    def has_ended(self):
        return self.record.warm_up is not None and not self.record.warm_up.is_open

    @property
    def record(self):
        return self.store.records[ENDPOINT]

    def check(self):
        """What holds however it went: one warm-up for the change, nobody holds it, and all that was called are sample payloads."""
        record = self.record
        assert (record.warm_up.change.number, record.seen.number, record.lease) == (1, 1, None)
        for _when, target, request, _timeout in self.endpoint.calls:
            assert request.warm_up == record.warm_up.change.kind.value
            assert request.body == f"sample of {target.target_model.split('/')[1]}".encode()

    def is_warm(self):
        assert (self.record.warm_up.state, self.endpoint.resident) == (WarmUpState.DONE, set(self.targets))


@pytest.fixture
def platform(make_version):
    return Platform(make_version)


def test_without_any_fault_one_look_finds_the_change_and_warms_it(platform):
    platform.scale(3)
    assert platform.until_it_ends() == 1
    platform.check()
    platform.is_warm()
    assert platform.endpoint.called == dict.fromkeys(platform.targets, 1)
    platform.tick()
    assert len(platform.endpoint.calls) == MODELS, "and it is over"
    metrics = [json.loads(line) for line in platform.lines if "_aws" in line]
    assert [(line["models_warmed"], line["failed"]) for line in metrics] == [(MODELS, 0)]


def clean_run(make_version):
    """How often each port is called when nothing fails."""
    platform = Platform(make_version)
    platform.gate.fail(None, None)
    platform.scale(3)
    platform.until_it_ends()
    return platform.gate


@pytest.mark.parametrize("after", [False, True], ids=["unsent", "unanswered"])
@pytest.mark.parametrize("method", [f"{port}.{method}" for port, methods in PORTS.items() for method in methods])
def test_a_fault_of_any_call_of_any_port_is_got_over(make_version, method, after):
    calls = clean_run(make_version).counts[method]
    for which in sorted({1, 2, max(1, calls // 2), max(1, calls)}):
        platform = Platform(make_version)
        platform.scale(3)
        platform.gate.fail((method, which), FAULT, after=after)
        platform.until_it_ends()
        platform.check()
        assert platform.record.warm_up.state is WarmUpState.DONE
        # A model whose one call failed for no reason of its own may be left; users load it then.
        assert len(platform.endpoint.resident) >= MODELS - 1
        assert platform.errors in ([], [FAULT])


def test_ports_that_fail_for_ten_minutes_leave_a_warm_up_that_is_finished_or_given_up(make_version):
    for port, methods in PORTS.items():
        platform = Platform(make_version)
        platform.scale(3)
        inner = platform.gate.pass_through
        end = platform.clock.now + 600

        def pass_through(name, work, *, inner=inner, port=port, clock=platform.clock, end=end):
            if name.startswith(f"{port}.") and clock.now < end:
                raise ConnectionError("reset")
            return inner(name, work)

        platform.gate.pass_through = pass_through
        while platform.clock.now < end:
            platform.clock.now += TICK_SECONDS
            platform.tick()
        if not platform.has_ended:
            platform.until_it_ends()
        platform.check()
        assert methods


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("kind", ["scale-out", "update"])
def test_a_process_that_is_killed_anywhere_leaves_a_warm_up_that_the_next_finishes(make_version, seed, kind):
    platform = Platform(make_version)
    platform.scale(3) if kind == "scale-out" else platform.update()
    platform.gate.fail(random.Random(seed).randrange(1, clean_run(make_version).total + 1), Killed(), after=seed % 2 == 1)
    assert platform.until_it_ends() <= 3
    platform.check()
    platform.is_warm()
    assert platform.errors == []


def test_a_plan_that_was_made_without_some_of_the_heat_says_so(platform):
    start = int(platform.clock.now) // 300 * 300 - 600
    platform.heat.create(PoolHeat(HeatKey("shared", start, 300), (ENDPOINT,), ()))
    platform.scale(3)
    platform.gate.fail(("heat.get", 2), FAULT)
    platform.until_it_ends()
    platform.is_warm()
    (told,) = [line for line in map(json.loads, platform.lines) if line["message"] == "not all that was used could be read"]
    assert (told["endpoint"], told["level"], len(told["problems"])) == (ENDPOINT, "WARNING", 1)
    assert "slow down" in told["problems"][0]


def test_no_tenant_has_a_line_or_uses_up_anything(platform, capsys):
    usages, records = dict(platform.registry.usages), dict(platform.registry.records)
    platform.scale(3)
    platform.until_it_ends()
    assert (platform.registry.usages, platform.registry.records) == (usages, records)
    assert capsys.readouterr().out == ""
    for line in map(json.loads, platform.lines):
        assert "tenant" not in line
        for directive in line.get("_aws", {}).get("CloudWatchMetrics", ()):
            assert directive["Dimensions"] == [["endpoint"]]
