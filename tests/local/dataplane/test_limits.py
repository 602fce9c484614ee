"""Servers that take too long, and faults of our own: the instance comes back, and leaves nothing on its disk."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from mme_fleet import InstanceLost, InstanceUp
from mme_local.dataplane import DataPlaneSettings, StartFailed
from mme_local.dataplane.instance import ServerInstance
from mme_local.fault_documents import SlowDownload

MIB = 1024 * 1024
IMAGE = "x/y:1"


@pytest.fixture
def start(make_cloud, archive):
    """Starts a fleet of one simulated server, with a model of that script."""

    def make(script: str = "{}", **settings):
        cloud = make_cloud(servers={"*": "simulated"}, restart_backoff_seconds=0.01, record_events=True, **settings)
        for name in ("m", "other"):
            cloud.source.put(f"models/{name}", archive({"simulated.json": script.encode()}))
        cloud.start("e", image=IMAGE)
        return cloud

    return make


def instance(cloud):
    return cloud.plane.status()[0]["instances"][0]


def up_again(cloud, restarts=1):
    cloud.until(lambda: (instance(cloud)["restarts"], instance(cloud)["state"]) == (restarts, "up"))


def test_a_load_that_does_not_end_fails_and_its_server_is_started_again(start, archive):
    cloud = start('{"load_seconds": 600}', load_timeout_seconds=0.3)
    reply = cloud.call("e", "m", b"x")
    assert (reply.status, reply.error) == (424, "ModelError")
    assert "Model m cannot be loaded, the container did not answer within 0.3 s." in reply.message
    up_again(cloud)
    cloud.source.put("models/quick", archive({"simulated.json": b"{}"}))
    assert cloud.call("e", "quick", b"x").status == 200


def test_a_single_model_that_is_not_loaded_in_time_fails_the_start(make_cloud, archive):
    cloud = make_cloud(servers={"*": "simulated"}, load_timeout_seconds=0.2, start_attempts=2, restart_backoff_seconds=0)
    cloud.source.put("m", archive({"simulated.json": b'{"load_seconds": 600}'}))
    with pytest.raises(StartFailed, match=r"Model m cannot be loaded, the container did not answer within 0\.2 s"):
        cloud.start("single", image=IMAGE, model_key="m")


def test_a_server_that_does_not_unload_is_started_again(start):
    cloud = start('{"unload_seconds": 600}', unload_timeout_seconds=0.3, instance_memory_bytes=150 * MIB, model_overhead_bytes=100 * MIB)
    assert cloud.call("e", "m", b"x").status == 200
    assert cloud.call("e", "other", b"x").status in (200, 503), "it waits for the memory of the first"
    up_again(cloud)
    assert cloud.call("e", "other", b"x").status == 200


@pytest.mark.parametrize("name", ["load_timeout_seconds", "unload_timeout_seconds"])
def test_limits_are_positive(name):
    with pytest.raises(ValueError, match=f"{name} is 0: use a positive number of seconds"):
        DataPlaneSettings(**{name: 0})


def test_an_unexpected_error_loses_the_instance_for_a_while_only(start, monkeypatch):
    until_lost = ServerInstance._until_lost
    lives = Counter()

    async def broken_once(self, server, client):
        lives[self.id] += 1
        if lives[self.id] == 1:
            raise RuntimeError("unexpected")
        await until_lost(self, server, client)

    monkeypatch.setattr(ServerInstance, "_until_lost", broken_once)
    cloud = start()
    up_again(cloud)
    events = [step.event for step in cloud.plane.recording("e")]
    assert [type(event) for event in events] == [InstanceUp, InstanceLost, InstanceUp]
    assert cloud.call("e", "m", b"x").status == 200


def test_a_download_that_is_cancelled_after_its_end_leaves_nothing_on_the_disk(start):
    cloud = start()
    scratch = Path(f"/proc/{cloud.status('e')['instances'][0]['pid']}/cwd").resolve() / "scratch"

    async def story():
        fault = cloud.faults.put(SlowDownload(bytes_per_second=0.001))  # the time passes after the fetch
        call = asyncio.create_task(cloud.invoke("e", "m", b"x"))
        async with asyncio.timeout(60):
            while not [path for path in scratch.glob("*/model/*") if not (path.parent.parent / "artifact").exists()]:
                await asyncio.sleep(0.01)
        cloud.faults.remove(fault.id)
        cloud.plane.instances()[0].kill()
        return await call

    cloud.run(story())
    up_again(cloud)
    cloud.until(lambda: not list(scratch.iterdir()))
    assert cloud.call("e", "m", b"x").status == 200
