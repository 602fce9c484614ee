"""The engine's settings of the local fleets reach the engine and the servers; instances are spread over zones."""

import asyncio
import json
from dataclasses import asdict

import pytest

from mme_fleet import Fleet, InstanceUp, OneHomeRouter, RandomRouter, StickyRouter, replay
from mme_local.dataplane import DataPlaneSettings
from mme_local.dataplane.mms import MultiModelServer
from mme_local.fault_documents import KillInstance

MIB = 1024 * 1024
IMAGE = "x/y:1"
MODELS = [f"m{number}" for number in range(12)]


@pytest.fixture
def start(make_cloud, archive):
    """Starts a fleet of simulated servers with models."""

    def make(instances=1, simulation=None, **settings):
        cloud = make_cloud(
            servers={"*": "simulated"}, simulation=simulation or {}, record_events=True, restart_backoff_seconds=0.01, **settings
        )
        for name in MODELS:
            cloud.source.put(f"models/{name}", archive({"x": b"1"}))
        cloud.start("e", image=IMAGE, instances=instances)
        return cloud

    return make


def call(cloud, names):
    async def calls():
        return await asyncio.gather(*(cloud.invoke("e", name, b"x") for name in names))

    return cloud.run(calls())


def most_loading(cloud) -> int:
    """The most loads that were under way at once."""
    counts, most = 0, 0
    for step in cloud.plane.recording("e"):
        names = [type(action).__name__ for action in step.actions]
        counts += names.count("Download") - (type(step.event).__name__ == "Loaded")
        most = max(most, counts)
    return most


@pytest.mark.parametrize(("limit", "most"), [(None, 12), (2, 2)])
def test_an_instance_does_as_many_loads_at_once_as_the_settings_say(start, limit, most):
    cloud = start(load_concurrency=limit, instance_memory_bytes=2000 * MIB)
    assert {reply.status for reply in call(cloud, MODELS)} == {200}
    assert most_loading(cloud) == most


def test_without_a_cache_the_factor_counts():
    settings = DataPlaneSettings(load_concurrency=2, uncached_load_factor=3)
    assert settings.fleet_settings().loads_at_once == 2
    assert settings.fleet_settings(cache_enabled=False).loads_at_once == 6


@pytest.mark.parametrize(("workers", "memory_bytes"), [(1, 110 * MIB), (3, 330 * MIB)])
def test_workers_take_memory_and_answer_side_by_side(start, workers, memory_bytes):
    cloud = start(workers_per_model=workers, simulation={"invoke_seconds": 30.0, "bytes": 10 * MIB, "queue": 0})

    async def crowd():
        calls = [asyncio.create_task(cloud.invoke("e", "m0", b"x")) for _ in range(workers + 1)]
        (refused,), under_way = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        (model,) = cloud.plane.status()[0]["instances"][0]["models"]
        for task in under_way:
            task.cancel()
        await asyncio.wait(under_way)
        return refused.result().original_status, model["in_flight"], model["bytes"]

    assert cloud.run(crowd()) == (503, workers, memory_bytes), "each has its own copy, and its own overhead"


def test_the_model_server_is_told_of_the_workers(tmp_path):
    for workers, text in ((None, "1"), (4, "4")):
        MultiModelServer("/h.py:handle").command(tmp_path, 20000, DataPlaneSettings(workers_per_model=workers))
        assert f"default_workers_per_model={text}\n" in (tmp_path / "config.properties").read_text()


@pytest.mark.parametrize(("name", "router"), [("sticky", StickyRouter), ("one-home", OneHomeRouter), ("random", RandomRouter)])
def test_the_router_of_the_settings_decides_and_its_run_can_be_replayed(start, name, router):
    cloud = start(instances=3, router=name)
    for _ in range(3):
        assert {reply.status for reply in call(cloud, MODELS[:6])} == {200}
    steps = cloud.plane.recording("e")
    settings = cloud.settings
    assert isinstance(settings.make_router(), router)
    assert replay(steps, Fleet(settings.fleet_settings(), settings.make_router())) == len(steps)
    copies = [model["target_model"] for entry in cloud.status("e")["instances"] for model in entry["models"]]
    assert (len(copies) > 6) == (name == "random"), "only chance makes copies of models that are hardly asked for"


def test_instances_are_spread_over_zones_and_a_zone_can_be_lost(start):
    cloud = start(instances=4)
    assert [entry["zone"][-1] for entry in cloud.status("e")["instances"]] == ["a", "b", "c", "a"]
    cloud.run(cloud.plane.resize_fleet("e", 1))
    cloud.run(cloud.plane.resize_fleet("e", 3))
    assert [entry["zone"][-1] for entry in cloud.status("e")["instances"]] == ["a", "b", "c"]

    async def lose():
        return cloud.faults.put(KillInstance(zone="us-east-1b"))

    assert cloud.run(lose()).struck == 1
    cloud.until(
        lambda: [(entry["restarts"], entry["state"]) for entry in cloud.plane.status()[0]["instances"]] == [(0, "up"), (1, "up"), (0, "up")]
    )
    ups = [step.event.zone for step in cloud.plane.recording("e") if isinstance(step.event, InstanceUp)]
    assert ups[-1] == "us-east-1b", "it comes back where it was"


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"load_concurrency": 0}, "load_concurrency is 0: use 1 or more"),
        ({"uncached_load_factor": 0}, "uncached_load_factor is 0: use 1 or more"),
        ({"workers_per_model": -1}, "workers_per_model is -1: use 1 or more"),
        ({"router": "fastest"}, "router is 'fastest': use one of sticky, one-home, least-outstanding, random"),
        ({"zones": ()}, "zones is"),
        ({"zones": "us-east-1a"}, "zones is 'us-east-1a': use one or more"),
        ({"zones": ["a", "a"]}, "use one or more different names"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong, text):
    with pytest.raises(ValueError, match=text.replace("(", r"\(")):
        DataPlaneSettings(**wrong)


def test_settings_are_the_same_after_a_way_through_json():
    settings = DataPlaneSettings(router="random", zones=("a", "b"), load_concurrency=4, workers_per_model=2)
    assert DataPlaneSettings(**json.loads(json.dumps(asdict(settings)))) == settings


def test_the_defaults_are_those_of_a_plain_fleet():
    settings = DataPlaneSettings()
    assert asdict(settings.fleet_settings()) == asdict(DataPlaneSettings(workers_per_model=1, router="sticky").fleet_settings())
    assert settings.fleet_settings().loads_at_once is None
    assert isinstance(settings.make_router(), StickyRouter)
