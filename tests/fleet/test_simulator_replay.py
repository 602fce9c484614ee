"""A recorded run, told to a simulator, gives the same actions and the same results."""

import random
from dataclasses import replace

import pytest

from mme_fleet import (
    Costs,
    FleetSettings,
    InstanceSpec,
    LoadFailure,
    LoseInstance,
    OneHomeRouter,
    ReplayMismatchError,
    ScaleIn,
    ScaleOut,
    Simulator,
    Tick,
)

COSTS = Costs(
    unpacked_bytes=lambda _model: 30,
    download_seconds=lambda _model: 2.0,
    load_seconds=lambda _model: 1.0,
    unload_seconds=lambda _model: 0.5,
    service_seconds=lambda _model: 0.25,
    failures={"none": LoadFailure.MISSING, "big": LoadFailure.OUT_OF_MEMORY},
)
SETTINGS = FleetSettings(load_wait_seconds=2.5, load_concurrency=2)
NAMES = [*(f"m{number}" for number in range(9)), "none", "big"]
REQUESTS = [(0.4 * number, model) for number, model in enumerate(random.Random(1).choices(NAMES, k=200))]
CHANGES = [
    (10.0, ScaleOut([InstanceSpec(100, 200)])),
    (20.0, LoseInstance("instance-1", returns_after_seconds=4.0, disk_kept=True)),
    (40.0, ScaleIn(1)),
]


@pytest.fixture(scope="module")
def run():
    """The steps of a run with growth, loss, shrinkage and errors, and its results."""
    steps = []
    simulator = Simulator(COSTS, [InstanceSpec(100, 200)] * 2, settings=SETTINGS, observers=[lambda _fleet, step: steps.append(step)])
    results = simulator.run(REQUESTS, CHANGES)
    assert results.errors
    assert results.unloads
    assert any(isinstance(step.event, Tick) for step in steps)
    return steps, results


def fresh(**arguments):
    return Simulator(COSTS, [], **{"settings": SETTINGS, **arguments})


def test_a_replay_gives_the_results_of_the_run_whatever_the_costs(run):
    steps, results = run
    other = replace(COSTS, load_seconds=lambda _model: 99.0)
    assert fresh().replay(steps) == Simulator(other, [], settings=SETTINGS).replay(steps) == results


def test_observers_see_the_steps_and_timers_run_between_them(run):
    steps, _results = run
    seen = []
    simulator = fresh(observers=[lambda fleet, step: seen.append((fleet, step))])
    simulator.at(30.0, lambda: seen.append(("timer", None)))
    simulator.replay(steps)
    timer = seen.index(("timer", None))
    assert seen[timer - 1][1].now < 30.0 <= seen[timer + 1][1].now
    assert [step for fleet, step in seen if fleet == "fleet-1"] == steps


@pytest.mark.parametrize("other", [{"settings": replace(SETTINGS, load_concurrency=1)}, {"router": OneHomeRouter}])
def test_a_fleet_that_decides_otherwise_is_found_out(run, other):
    steps, _results = run
    with pytest.raises(ReplayMismatchError, match="step "):
        fresh(**other).replay(steps)


def test_a_replay_needs_a_fresh_fleet_and_leaves_none_to_run(run):
    steps, _results = run
    with pytest.raises(RuntimeError, match="not fresh"):
        Simulator(COSTS, [InstanceSpec(100, 200)], settings=SETTINGS).replay(steps)
    simulator = fresh()
    simulator.replay([])
    with pytest.raises(RuntimeError, match="not fresh"):
        simulator.replay(steps)
    with pytest.raises(RuntimeError, match="has replayed a recording"):
        simulator.run([])


def test_steps_ascend_in_time(run):
    steps, _results = run
    with pytest.raises(ValueError, match=r"step 2 is at 0\.0, but it is 9\.0: steps must ascend in time"):
        fresh().replay([replace(steps[0], now=9.0), steps[1]])
