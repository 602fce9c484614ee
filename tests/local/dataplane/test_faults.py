"""Faults that are asked for strike real model servers."""

import asyncio
import itertools

import pytest

from mme_local.dataplane import StartFailed
from mme_local.fault_documents import (
    FailDownload,
    FailLoad,
    FreezeInstance,
    InsufficientCapacity,
    KillInstance,
    SlowDownload,
    SlowLoad,
)

numbers = itertools.count()
SCRIPTED = "000000000000.dkr.ecr.us-east-1.amazonaws.com/scripted:1"


@pytest.fixture(scope="module")
def cloud(make_cloud):
    cloud = make_cloud(
        invoke_timeout_seconds=0.4, ping_interval_seconds=0.1, ping_timeout_seconds=1.0, ping_attempts=2, restart_backoff_seconds=0.01
    )
    cloud.start("shared.1.v", image=SCRIPTED)
    return cloud


@pytest.fixture
def model(cloud, scripted):
    """Uploads a model of a new name; the faults of a test end with it."""

    def put(**script):
        name = f"m{next(numbers)}.tar.gz"
        cloud.source.put(f"models/{name}", scripted(**script))
        return name

    yield put
    cloud.faults.clear()


def put(cloud, fault):
    async def on_the_loop():
        return cloud.faults.put(fault)

    return cloud.run(on_the_loop())


def instance(cloud):
    return cloud.plane.status()[0]["instances"][0]


def up_again(cloud, restarts):
    cloud.until(lambda: instance(cloud)["restarts"] == restarts and instance(cloud)["state"] == "up")


def test_a_killed_instance_comes_back_empty(cloud, model):
    name = model()
    assert cloud.call("shared.1.v", name).cold
    before = cloud.status("shared.1.v")["instances"][0]
    assert put(cloud, KillInstance(endpoint="shared")).struck == 1
    up_again(cloud, before["restarts"] + 1)
    after = cloud.status("shared.1.v")["instances"][0]
    assert after["pid"] != before["pid"]
    assert after["models"] == []
    assert cloud.call("shared.1.v", name).cold


def test_invocations_of_a_frozen_instance_time_out_until_it_is_started_again(cloud, model):
    name = model()
    assert cloud.call("shared.1.v", name).status == 200
    before = cloud.status("shared.1.v")["instances"][0]
    fault = put(cloud, FreezeInstance(instance="AllTraffic-*"))
    reply = cloud.call("shared.1.v", name)
    assert (reply.status, reply.error, reply.original_status) == (424, "ModelError", 0)
    up_again(cloud, before["restarts"] + 1)
    assert cloud.status("shared.1.v")["instances"][0]["pid"] != before["pid"]
    assert cloud.call("shared.1.v", name).status == 200
    assert (fault.struck, fault.active) == (1, True)
    cloud.faults.remove(fault.id)
    assert cloud.call("shared.1.v", name).status == 200


def test_an_instance_that_thaws_in_time_goes_on_with_its_models(make_cloud, scripted):
    cloud = make_cloud(ping_interval_seconds=0.05, ping_timeout_seconds=60.0, ping_attempts=2)
    cloud.start("patient", image=SCRIPTED)
    cloud.source.put("models/m.tar.gz", scripted())
    assert cloud.call("patient", "m.tar.gz").cold
    before = cloud.status("patient")["instances"][0]
    fault = put(cloud, FreezeInstance())

    async def thaw_while_a_caller_waits():
        call = asyncio.create_task(cloud.invoke("patient", "m.tar.gz"))
        assert not (await asyncio.wait([call], timeout=0.2))[0]
        cloud.faults.remove(fault.id)
        return await call

    reply = cloud.run(thaw_while_a_caller_waits())
    assert (reply.status, reply.cold) == (200, False)
    after = cloud.status("patient")["instances"][0]
    assert (after["pid"], after["restarts"]) == (before["pid"], 0)


@pytest.mark.parametrize(
    ("error", "status", "code", "original"),
    [
        ("missing", 400, "ValidationError", None),
        ("denied", 400, "ValidationError", None),
        ("unavailable", 503, "ServiceUnavailable", None),
        ("broken", 424, "ModelError", 500),
    ],
)
def test_a_download_fails_as_the_store_would_and_the_next_one_succeeds(cloud, model, error, status, code, original):
    name = model()
    fault = put(cloud, FailDownload(model=name, error=error, count=1))
    reply = cloud.call("shared.1.v", name)
    assert (reply.status, reply.error, reply.original_status) == (status, code, original)
    assert f"models/{name}" not in cloud.source.fetched
    assert cloud.call("shared.1.v", name).status == 200
    assert (fault.struck, fault.active) == (1, False)


def test_a_slow_download_lets_requests_give_up_and_ends(make_cloud, scripted):
    cloud = make_cloud(load_wait_seconds=0.05)
    cloud.start("slow", image=SCRIPTED)
    for name in ("a/m.tar.gz", "b/m.tar.gz"):
        cloud.source.put(f"models/{name}", scripted())
    put(cloud, SlowDownload(model="a/*", seconds=3600, count=1))
    assert cloud.call("slow", "a/m.tar.gz").error == "ModelNotReadyException"
    cloud.call("slow", "b/m.tar.gz")
    cloud.until(lambda: "b/m.tar.gz" in cloud.plane.status()[0]["loads_by_model"])  # it holds up no other download
    assert cloud.source.fetched == ["models/b/m.tar.gz"]


def test_the_rate_of_a_slow_download_counts_unpacked_bytes(cloud, model):
    name = model(padding="x" * 2000)
    fault = put(cloud, SlowDownload(model=name, bytes_per_second=10_000))

    async def timed():
        began = asyncio.get_running_loop().time()
        return await cloud.invoke("shared.1.v", name), asyncio.get_running_loop().time() - began

    reply, seconds = cloud.run(timed())
    assert (reply.status, fault.struck) == (200, 1)
    assert seconds >= 0.2


def test_a_container_that_answers_507_makes_the_fleet_evict_and_try_again(cloud, model):
    resident, name = model(), model()
    assert cloud.call("shared.1.v", resident).status == 200
    evictions = cloud.status("shared.1.v")["evictions"]
    fault = put(cloud, FailLoad(model=name, status=507, count=1))
    assert cloud.call("shared.1.v", name).status == 200
    assert (fault.struck, cloud.status("shared.1.v")["evictions"]) == (1, evictions + 1)


def test_a_load_fails_with_the_status_and_the_words_asked_for(cloud, model):
    name = model()
    fault = put(cloud, FailLoad(model=name, status=500, message="no such operator"))
    reply = cloud.call("shared.1.v", name)
    assert (reply.status, reply.error, reply.original_status) == (424, "ModelError", 500)
    assert "no such operator" in reply.message
    assert cloud.call("shared.1.v", name).original_status == 500, "it was not loaded"
    assert fault.struck == 2


def test_a_slow_load_keeps_its_memory_and_its_callers_waiting(cloud, model):
    name = model()
    put(cloud, SlowLoad(model=name, seconds=3600))

    async def wait_and_see():
        call = asyncio.create_task(cloud.invoke("shared.1.v", name))
        while not cloud.faults.list()[0].struck:
            await asyncio.sleep(0.005)
        state = next(entry for entry in cloud.plane.status()[0]["instances"])
        call.cancel()
        await asyncio.wait([call])
        return state

    state = cloud.run(wait_and_see())
    ((used,),) = [fleet["instances"] for fleet in cloud.plane.use()]
    assert used == {name: state[name] for name in ("id", "pid", "memory_bytes", "memory_budget_bytes")}
    assert cloud.plane.names() == [fleet["name"] for fleet in cloud.plane.use()] == ["shared.1.v"]
    assert state["memory_bytes"] >= sum(entry["bytes"] for entry in state["models"]) + cloud.settings.model_overhead_bytes
    restarts = state["restarts"]
    put(cloud, KillInstance())  # the load that was slow goes with its server
    up_again(cloud, restarts + 1)
    cloud.faults.clear()
    assert cloud.call("shared.1.v", name).status == 200


def test_without_capacity_no_fleet_starts_and_none_grows(cloud, model):
    fault = put(cloud, InsufficientCapacity(count=2))
    with pytest.raises(StartFailed, match="InsufficientInstanceCapacity"):
        cloud.start("other", image=SCRIPTED)
    with pytest.raises(StartFailed, match="InsufficientInstanceCapacity"):
        cloud.run(cloud.plane.resize_fleet("shared.1.v", 2))
    assert (len(cloud.status("shared.1.v")["instances"]), fault.active) == (1, False)
    with pytest.raises(StopIteration):
        cloud.status("other")
