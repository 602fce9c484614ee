"""What a plan is made of: the fleets by the change's instances, and as much heat as the fleet before held."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from mme_facts.warm_up import WarmUpEndpoint
from mme_tenancy.warm_up.change import ChangeKind, FleetChange
from mme_tenancy.warm_up.plan import Candidate, Skip
from mme_tenancy.warm_up.planning import HeatPlanner
from mme_tenancy.warm_up.settings import WarmUpSettings

TARGET = WarmUpEndpoint("shared", "endpoint-a", "AllTraffic", memory_bytes=1000, load_slots=4)


@dataclass
class Source:
    """Candidates as they are given."""

    candidates: tuple[Candidate, ...] = ()
    problems: tuple[str, ...] = ()
    asked: list = field(default_factory=list)

    def read(self, pool, endpoint, *, enough_bytes):
        self.asked.append((pool, endpoint, enough_bytes))
        return self


def change(before, after, kind=ChangeKind.SCALE_OUT):
    return FleetChange(kind, "endpoint-a", 1, 0.0, before, after, max(0, after - before), "c", "c")


def candidate(name, last_used, **changes):
    fields = {"bytes": 300, "load_seconds": 1.0, "rate": 1.0, **changes}
    return Candidate(target_model=name, last_used=last_used, **fields)


@pytest.fixture
def explained(clock):
    def explained(source, *args):
        return HeatPlanner(source, WarmUpSettings(), clock).explained(TARGET, change(*args))

    return explained


def test_as_much_is_read_as_the_fleet_before_held_and_planned_for_the_fleet_after(explained, clock):
    source = Source((candidate("a", clock.now - 1), candidate("b", clock.now - 2, rate=3.0), candidate("c", clock.now - 3, sample=False)))
    planned = explained(source, 2, 3)
    assert source.asked == [("shared", "endpoint-a", 2000)]
    assert (planned.before.instances, planned.after.instances) == (2, 3)
    assert {step.target_model for step in planned.plan.steps} == {"a", "b"}
    assert planned.plan.skipped == {Skip.NO_SAMPLE: 1}
    assert {round(step.idle_seconds) for step in planned.plan.steps} == {1, 2}
    assert planned.plan.in_flight == 3, "three quarters of the new instance's four load slots"
    assert planned.found is source


def test_idle_times_count_by_the_machines_clock_also_where_the_platforms_runs_faster(explained, clock):
    clock.ahead = 1e6
    planned = explained(Source((candidate("a", clock.now - 7),)), 1, 2)
    assert planned.plan.steps[0].idle_seconds == pytest.approx(7)


@pytest.mark.parametrize("scale", [1.0, 60.0])
def test_how_long_the_change_is_ago_counts_by_the_machines_clock_too(clock, scale, monkeypatch):
    clock.ahead = 1e6
    seen = []
    monkeypatch.setattr("mme_tenancy.warm_up.planning.plan", lambda change, *_rest: seen.append(change.seen_at))
    ago = replace(change(1, 2), seen_at=clock.time() - 30 * scale)
    HeatPlanner(Source(), WarmUpSettings(), clock, scale=scale).explained(TARGET, ago)
    assert seen == [pytest.approx(clock.wall() - 30)]


def test_a_fleet_without_instances_is_described_by_one(explained):
    planned = explained(Source(), 0, 2)
    assert planned.before.instances == 1
    assert planned.plan.steps == ()


def test_a_source_that_fails_makes_no_plan(clock):
    class Broken(Source):
        def read(self, pool, endpoint, *, enough_bytes):
            raise OSError("S3 is out of reach")

    with pytest.raises(OSError, match="out of reach"):
        HeatPlanner(Broken(), WarmUpSettings(), clock).plan(TARGET, change(1, 2))
