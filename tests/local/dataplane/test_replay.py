"""What real servers did, told to a fresh engine, gives the same actions, event for event."""

import asyncio
from collections import Counter
from dataclasses import replace

import pytest

from mme_fleet import (
    Costs,
    Discard,
    Fleet,
    Forward,
    InstanceDraining,
    InstanceLost,
    InstanceUp,
    Load,
    Loaded,
    LoadFailed,
    Release,
    ReplayMismatchError,
    Request,
    Simulator,
    Unload,
)
from mme_fleet import replay as replay_steps

MIB = 1024 * 1024
SCRIPTED = "000000000000.dkr.ecr.us-east-1.amazonaws.com/scripted:1"
COSTS = Costs(unpacked_bytes=lambda _model: 1)  # does not matter: a recording says how its work ended


@pytest.fixture(scope="module")
def run(make_cloud, scripted):
    """Loads, evictions, failures, a killed server, growth and shrinkage, under requests; what was recorded, and the settings."""
    cloud = make_cloud(
        instance_memory_bytes=220 * MIB,
        model_overhead_bytes=100 * MIB,
        instance_disk_bytes=21_000,
        restart_backoff_seconds=0,
        record_events=True,
    )
    cloud.start("run", image=SCRIPTED, instances=2)
    models = [f"m{number}.tar.gz" for number in range(6)]
    for name in models:
        cloud.source.put(f"models/{name}", scripted(padding="x" * 5000))
    cloud.source.put("models/full.tar.gz", scripted(load="out of memory"))

    async def ask(names):
        replies = await asyncio.gather(*(cloud.invoke("run", name, b"x", "text/plain") for name in names))
        return Counter(reply.error for reply in replies)

    async def story():
        first = await ask(models)
        failed = await ask(["full.tar.gz", "none.tar.gz", models[0]])
        during = asyncio.gather(ask(models), ask(reversed(models)))
        await asyncio.sleep(0)
        cloud.plane.instances()[0].kill()
        await during
        while [entry["state"] for entry in cloud.plane.status()[0]["instances"]] != ["up", "up"]:
            await asyncio.sleep(0.01)
        await asyncio.gather(cloud.plane.resize_fleet("run", 3), ask(models))
        await asyncio.gather(cloud.plane.resize_fleet("run", 1), ask(models))
        last = Counter()
        for name in models:  # one by one: the disk of one instance is small
            last += await ask([name])
        return first, failed, last

    first, failed, last = cloud.run(story())
    assert first == last == {None: 6}
    assert failed == {None: 1, "ModelError": 1, "ValidationError": 1}
    return cloud.plane.recording("run"), cloud.settings.fleet_settings()


def test_the_run_has_everything_that_happens_to_fleets(run):
    steps, _settings = run
    events = Counter(type(step.event) for step in steps)
    actions = Counter(type(action) for step in steps for action in step.actions)
    assert events[InstanceUp] == 2 + 1 + 1, "at the start, after the death, and the third"
    assert (events[InstanceLost], events[InstanceDraining], actions[Release]) == (1, 2, 2)
    assert events[LoadFailed] >= 2
    assert actions[Load] > 12
    assert actions[Unload] > 6
    assert actions[Discard] > 0


def test_a_fresh_engine_does_the_same(run):
    steps, settings = run
    assert replay_steps(steps, Fleet(settings)) == len(steps)


def test_the_simulator_does_the_same(run):
    steps, settings = run
    seen = []
    simulator = Simulator(COSTS, [], settings=settings, observers=[lambda _fleet, step: seen.append(step)])
    results = simulator.replay(steps)
    assert seen == list(steps)
    events = Counter(type(step.event) for step in steps)
    actions = Counter(type(action) for step in steps for action in step.actions)
    assert results.requests == results.answered == events[Request] == 6 + 3 + 12 + 6 + 6 + 6
    assert results.errors["ValidationError", None] == 1
    assert results.errors["ModelError", 507] == 1
    assert (results.loads, results.unloads) == (events[Loaded], actions[Unload])
    assert len(results.waits) == sum(action.cold for step in steps for action in step.actions if isinstance(action, Forward))
    assert [instance.instance for instance in simulator.snapshot().instances] == ["AllTraffic-1"]


def test_a_simulator_with_other_settings_does_not(run):
    steps, settings = run
    with pytest.raises(ReplayMismatchError):
        Simulator(COSTS, [], settings=replace(settings, model_overhead_bytes=1)).replay(steps)


def test_an_engine_with_other_settings_does_not(run):
    steps, settings = run
    with pytest.raises(ReplayMismatchError):
        replay_steps(steps, Fleet(replace(settings, model_overhead_bytes=1)))


def test_a_run_that_lost_an_event_does_not(run):
    steps, settings = run
    without = [step for step in steps if not isinstance(step.event, InstanceLost)]
    with pytest.raises((ReplayMismatchError, ValueError)):
        replay_steps(without, Fleet(settings))
