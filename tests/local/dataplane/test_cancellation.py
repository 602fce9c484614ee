"""Whoever is waiting for a fleet may go away, and whoever observes it may fail: no server is left, and the fleet can be used."""

import asyncio
import os

import pytest

from mme_fleet import InstanceDraining
from mme_local.dataplane import DataPlane, DataPlaneSettings, FleetSpec, InvokeRequest, StartFailed, UnknownFleet


class Source:
    def __init__(self, content: bytes) -> None:
        self.content = content

    def fetch(self, _key, destination):
        return destination.write(self.content)


async def until(condition):
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def play(tmp_path, archive):
    """Plays a story with a data plane of simulated servers, which is closed afterwards and has to leave nothing."""

    def run(story, observers=(), count=2, **simulation):
        async def main():
            plane = DataPlane(tmp_path / "p", DataPlaneSettings(servers={"*": "simulated"}, simulation=simulation), observers)
            try:
                await plane.start_fleet(FleetSpec("e", "v", count, "x/y:1", "b", "models/"), Source(archive({"x": b"1"})))
                return await story(plane)
            finally:
                await plane.close()

        result = asyncio.run(main())
        assert not list((tmp_path / "p").glob("*"))
        return result

    return run


async def cancel(task):
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def work(plane):
    """The calls that two instances are at work on."""
    calls = [asyncio.create_task(plane.invoke("e", InvokeRequest(b"x", model))) for model in ("a", "b")]
    await until(lambda: [model["in_flight"] for entry in plane.status()[0]["instances"] for model in entry["models"]] == [1, 1])
    return calls


async def cancelled_shrinkage(plane):
    """Both instances are at work, one is to go, and whoever asked for that goes away; the calls under way and the pids."""
    calls = await work(plane)
    pids = [instance.pid for instance in plane.instances()]
    resizing = asyncio.create_task(plane.resize_fleet("e", 1))
    await until(lambda: plane.status()[0]["instances"][1]["state"] == "draining")
    await cancel(resizing)
    return calls, pids


def test_a_fleet_whose_shrinkage_was_cancelled_can_be_stopped(play):
    async def story(plane):
        calls, pids = await cancelled_shrinkage(plane)
        await plane.stop_fleet("e")
        assert plane.status() == []
        assert [alive(pid) for pid in pids] == [False, False]
        assert [(await call).error for call in calls] == ["ServiceUnavailable"] * 2

    play(story, invoke_seconds=30.0)


def test_a_cancelled_shrinkage_goes_on_and_the_fleet_still_changes_its_size(play):
    async def story(plane):
        calls, pids = await cancelled_shrinkage(plane)
        await plane.resize_fleet("e", 1)
        assert [instance.pid for instance in plane.instances()] == pids[:1]
        assert [(await call).status for call in calls] == [200, 200]
        assert not alive(pids[1])
        await plane.resize_fleet("e", 2)
        assert [entry["state"] for entry in plane.status()[0]["instances"]] == ["up", "up"]

    play(story, invoke_seconds=0.5)


def test_a_growth_that_waits_for_a_shrinkage_is_refused_when_the_fleet_is_stopped(play):
    async def story(plane):
        calls = await work(plane)
        shrinking = asyncio.create_task(plane.resize_fleet("e", 1))
        growing = asyncio.create_task(plane.resize_fleet("e", 3))
        await until(lambda: plane.status()[0]["instances"][1]["state"] == "draining")
        await plane.stop_fleet("e")
        await shrinking
        with pytest.raises(StartFailed, match="being stopped"):
            await growing
        assert [(await call).error for call in calls] == ["ServiceUnavailable"] * 2
        assert plane.instances() == []

    play(story, invoke_seconds=30.0)


def test_a_cancelled_growth_leaves_the_fleet_as_before(play):
    async def story(plane):
        growing = asyncio.create_task(plane.resize_fleet("e", 3))
        await until(lambda: len(plane.instances()) == 3 and plane.instances()[2].pid is not None)
        pid = plane.instances()[2].pid
        await cancel(growing)
        assert not alive(pid)
        assert [entry["state"] for entry in plane.status()[0]["instances"]] == ["up", "up"]
        await plane.resize_fleet("e", 3)
        assert [entry["state"] for entry in plane.status()[0]["instances"]] == ["up", "up", "up"]

    play(story)


def test_an_observer_that_fails_leaves_no_server_and_the_stop_can_be_repeated(play):
    broken = [True]

    def observe(_fleet, step):
        if broken[0] and isinstance(step.event, InstanceDraining):
            raise RuntimeError("an observer failed")

    async def story(plane):
        pids = [instance.pid for instance in plane.instances()]
        with pytest.raises(RuntimeError, match="an observer failed"):
            await plane.stop_fleet("e")
        assert [alive(pid) for pid in pids] == [False, False]
        with pytest.raises(UnknownFleet):
            await plane.invoke("e", InvokeRequest(b"x", "a"))
        assert len(plane.status()) == 1, "the failed stop is not forgotten"
        broken[0] = False
        await plane.stop_fleet("e")
        assert plane.status() == []

    play(story, observers=[observe])
