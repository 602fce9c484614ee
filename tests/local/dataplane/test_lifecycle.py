"""Fleets start, change their size and end, and leave nothing behind."""

import asyncio
import os
import signal
from pathlib import Path

import httpx
import psutil
import pytest

from mme_local.dataplane import DataPlane, DataPlaneError, DataPlaneSettings, FleetSpec, InvokeRequest, StartFailed, UnknownFleet
from mme_local.dataplane.server import SOCKET_PATH_BYTES

SCRIPTED = "000000000000.dkr.ecr.us-east-1.amazonaws.com/scripted:1"


def processes_of(group: int) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["status"]):
        try:
            if os.getpgid(process.pid) == group and process.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(process)
        except ProcessLookupError:
            continue
    return found


@pytest.fixture
def start_refused(tmp_path):
    """Tries to start a fleet; returns the error, after a look that nothing is left."""

    def start(error: type[Exception], settings: DataPlaneSettings | None = None, **spec):
        fields = {"image": "x/sagemaker-xgboost:1", "instance_count": 1, **spec}

        async def attempt():
            plane = DataPlane(tmp_path / "p", settings or DataPlaneSettings())
            with pytest.raises(error) as caught:
                await plane.start_fleet(FleetSpec("e", "v", bucket="b", models_prefix="models/", **fields), None)
            assert plane.status() == []
            await plane.close()
            return str(caught.value)

        message = asyncio.run(attempt())
        assert not [entry for entry in tmp_path.rglob("*") if entry.is_file()]
        return message

    return start


def test_a_fleet_has_at_least_one_instance(start_refused):
    assert "instance_count is 0" in start_refused(ValueError, instance_count=0)


def test_a_server_that_does_not_come_up_fails_the_start_with_its_own_words(start_refused):
    message = start_refused(StartFailed, DataPlaneSettings(jvm_options="-XX:NoSuchOption", start_attempts=2, restart_backoff_seconds=0))
    assert "NoSuchOption" in message


def test_one_endpoint_has_one_fleet_and_others_are_unknown(make_cloud):
    cloud = make_cloud()
    cloud.start("only", image=SCRIPTED)
    with pytest.raises(DataPlaneError, match="only"):
        cloud.start("only", image=SCRIPTED)
    for attempt in (cloud.plane.stop_fleet("other"), cloud.plane.resize_fleet("other", 1), cloud.invoke("other", "m")):
        with pytest.raises(UnknownFleet, match="other"):
            cloud.run(attempt)


def test_a_fleet_grows_shrinks_when_its_requests_are_answered_and_ends_without_a_trace(make_cloud, scripted, tmp_path):
    cloud = make_cloud()
    cloud.start("sizes", image=SCRIPTED)
    gate = tmp_path / "gate"
    cloud.source.put("models/gated.tar.gz", scripted(gate=str(gate)))
    cloud.source.put("models/plain.tar.gz", scripted())

    cloud.run(cloud.plane.resize_fleet("sizes", 2))
    assert [entry["state"] for entry in cloud.status("sizes")["instances"]] == ["up", "up"]
    assert cloud.call("sizes", "plain.tar.gz").instance == "AllTraffic-1"

    async def shrink():
        call = asyncio.create_task(cloud.invoke("sizes", "gated.tar.gz"))
        while not Path(f"{gate}.reached").exists():
            await asyncio.sleep(0.005)
        resizing = asyncio.create_task(cloud.plane.resize_fleet("sizes", 1))
        while cloud.plane.status()[0]["instances"][-1]["state"] != "draining":
            await asyncio.sleep(0)
        assert not call.done()
        gate.touch()
        await resizing
        return await call

    reply = cloud.run(shrink())
    assert (reply.status, reply.instance) == (200, "AllTraffic-2")
    assert [entry["id"] for entry in cloud.status("sizes")["instances"]] == ["AllTraffic-1"]
    assert cloud.call("sizes", "gated.tar.gz").instance == "AllTraffic-1"

    (instance,) = cloud.status("sizes")["instances"]
    assert len(processes_of(instance["pid"])) >= 5, "the JVM and two processes for each of two models"
    cloud.run(cloud.plane.stop_fleet("sizes"))
    assert processes_of(instance["pid"]) == []
    cloud.run(cloud.plane.close())
    assert not list((cloud.folder / "plane").glob("*"))


def test_a_stop_answers_the_requests_under_way(make_cloud, scripted, tmp_path):
    cloud = make_cloud()
    cloud.start("stopped", image=SCRIPTED)
    cloud.source.put("models/gated.tar.gz", scripted(gate=str(tmp_path / "never")))

    async def stop():
        calls = [asyncio.create_task(cloud.invoke("stopped", "gated.tar.gz")) for _ in range(2)]
        while not (tmp_path / "never.reached").exists():
            await asyncio.sleep(0.005)
        await cloud.plane.stop_fleet("stopped")
        return await asyncio.gather(*calls)

    assert [(reply.status, reply.error) for reply in cloud.run(stop())] == [(503, "ServiceUnavailable")] * 2


TRITON = "1.dkr.ecr.us-east-1.amazonaws.com/sagemaker-tritonserver:23.08-py3"


def test_an_image_without_a_server_starts_and_refuses_every_load_with_the_reason(make_cloud, scripted):
    cloud = make_cloud()
    cloud.start("triton", image=TRITON, instances=2)
    cloud.source.put("models/m.tar.gz", scripted())
    assert [entry["state"] for entry in cloud.status("triton")["instances"]] == ["up", "up"]
    for _ in range(2):
        reply = cloud.call("triton", "m.tar.gz")
        assert (reply.status, reply.error, reply.original_status) == (424, "ModelError", 501)
        assert f"no model server for image {TRITON}" in reply.message
        assert "scripted, sagemaker-xgboost" in reply.message.replace("sagemaker-xgboost, scripted", "scripted, sagemaker-xgboost")
    assert cloud.status("triton")["cold_loads"] == 0
    missing = cloud.call("triton", "none.tar.gz")
    assert "Failed to download model data" in missing.message, "the artifact is looked for first, as on AWS"


def test_the_refusing_server_keeps_the_container_contract(make_cloud):
    cloud = make_cloud()
    cloud.start("contract", image=TRITON)
    (instance,) = cloud.status("contract")["instances"]
    (port,) = {item.laddr for item in psutil.Process(instance["pid"]).net_connections() if item.status == psutil.CONN_LISTEN}
    assert port.ip == "127.0.0.1"
    with httpx.Client(base_url=f"http://127.0.0.1:{port.port}", trust_env=False) as client:
        assert client.get("/ping").status_code == 200
        assert client.get("/models").json() == {"models": []}
        refused = client.post("/models", json={"model_name": "m", "url": "/opt/ml/models/m/model"})
        assert (refused.status_code, "sagemaker-tritonserver" in refused.text) == (501, True)
        for method, path in (("GET", "/models/m"), ("DELETE", "/models/m"), ("POST", "/models/m/invoke"), ("GET", "/other")):
            assert client.request(method, path, content=b"x" if method == "POST" else None).status_code == 404
    environment = psutil.Process(instance["pid"]).environ()
    assert environment["SAGEMAKER_MULTI_MODEL"] == "true"
    assert not [name for name in environment if name.startswith("AWS_")]


def test_a_refusing_server_that_dies_is_started_again_and_ends_with_its_fleet(make_cloud):
    cloud = make_cloud(restart_backoff_seconds=0)
    cloud.start("dying", image=TRITON)
    (first,) = cloud.status("dying")["instances"]
    os.kill(first["pid"], signal.SIGKILL)
    cloud.until(
        lambda: cloud.plane.status()[0]["instances"][0]["restarts"] == 1 and cloud.plane.status()[0]["instances"][0]["state"] == "up"
    )
    (second,) = cloud.status("dying")["instances"]
    assert second["pid"] != first["pid"]
    cloud.run(cloud.plane.stop_fleet("dying"))
    assert processes_of(second["pid"]) == []


def test_closing_while_a_fleet_starts_leaves_no_process(tmp_path):
    async def close_early():
        plane = DataPlane(tmp_path / "p", DataPlaneSettings())
        spec = FleetSpec("early", "v", 1, "x/sagemaker-xgboost:1", "b", "models/")
        starting = asyncio.create_task(plane.start_fleet(spec, None))
        while not (plane.status() and plane.status()[0]["instances"] and plane.status()[0]["instances"][0]["pid"]):
            await asyncio.sleep(0)
        pid = plane.status()[0]["instances"][0]["pid"]
        await plane.close()
        with pytest.raises(StartFailed, match="stopped"):
            await starting
        return pid

    assert processes_of(asyncio.run(close_early())) == []
    assert not list((tmp_path / "p").glob("*"))


def test_a_long_directory_gives_way_to_a_short_private_one(tmp_path, scripted):
    directory = tmp_path / ("x" * 100)
    handler = f"{Path(__file__).with_name('scripted_handler.py')}:handle"

    class Source:
        def fetch(self, key, destination):
            return destination.write(scripted())

    async def serve():
        plane = DataPlane(directory, DataPlaneSettings(handlers={"scripted": handler}))
        await plane.start_fleet(FleetSpec("long", "v", 1, SCRIPTED, "b", "models/"), Source())
        reply = await plane.invoke("long", InvokeRequest(b"", "m"))
        (instance,) = plane.status()[0]["instances"]
        folder = Path(f"/proc/{instance['pid']}/cwd").resolve()
        await plane.close()
        return reply, folder

    reply, folder = asyncio.run(serve())
    assert reply.status == 200
    assert len(str(folder)) < SOCKET_PATH_BYTES / 2
    assert not folder.parent.exists()
    assert not directory.exists()


def test_without_a_cache_every_burst_of_requests_fetches_and_loads_again(make_cloud, scripted):
    cloud = make_cloud()
    cloud.start("uncached", image=SCRIPTED, cache_enabled=False)
    cloud.source.put("models/m.tar.gz", scripted())
    for burst in range(1, 3):
        assert cloud.call("uncached", "m.tar.gz", b"x", "text/plain").cold
        cloud.until(lambda: cloud.plane.status()[0]["instances"][0]["memory_bytes"] == 0)
        assert cloud.source.fetched == ["models/m.tar.gz"] * burst


def test_a_fleet_that_shrinks_parts_with_an_instance_whose_server_is_gone(make_cloud):
    cloud = make_cloud(restart_backoff_seconds=60, restart_backoff_max_seconds=60)
    cloud.start("shrinking", image=TRITON, instances=2)
    os.kill(cloud.status("shrinking")["instances"][0]["pid"], signal.SIGKILL)
    cloud.until(lambda: cloud.plane.status()[0]["instances"][0]["state"] == "down")
    cloud.run(cloud.plane.resize_fleet("shrinking", 1))
    assert [(entry["id"], entry["state"]) for entry in cloud.status("shrinking")["instances"]] == [("AllTraffic-2", "up")]
