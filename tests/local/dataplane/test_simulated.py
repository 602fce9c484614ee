"""Servers that compute nothing: sizes, latencies and failures by a script."""

import asyncio
import json

import pytest

from mme_local.dataplane import DataPlaneSettings, InvokeRequest
from mme_local.dataplane.simulated_server import Container, Request, Script

MIB = 1024 * 1024
IMAGE = "000000000000.dkr.ecr.us-east-1.amazonaws.com/anything:1"


@pytest.fixture(scope="module")
def cloud(make_cloud):
    cloud = make_cloud(
        servers={"*": "simulated"},
        simulation={"bytes": 40 * MIB, "invoke_seconds": [0, 0.001]},
        model_overhead_bytes=0,
        instance_memory_bytes=100 * MIB,
        restart_backoff_seconds=0,
    )
    cloud.start("simulated", image=IMAGE, instances=1)
    return cloud


@pytest.fixture
def model(cloud, archive, request):
    """Stores a model under the test's name; what is given overrides the script."""

    def store(name="m", **script) -> str:
        key = f"{request.node.name}/{name}.tar.gz"
        cloud.source.put(f"models/{key}", archive({"simulated.json": json.dumps(script).encode()} if script else {"empty": b""}))
        return key

    return store


def test_a_model_takes_the_scripted_bytes_and_echoes(cloud, model):
    names = [model(str(number)) for number in range(3)]
    for name in names:
        reply = cloud.call("simulated", name, name.encode(), "text/plain")
        assert (reply.status, reply.body, reply.content_type) == (200, name.encode(), "text/plain")
    status = cloud.status("simulated")
    assert [entry["target_model"] for entry in status["instances"][0]["models"]] == names[1:], "two of 40 MiB fit into 100"
    assert status["instances"][0]["memory_bytes"] == 80 * MIB


def test_an_artifact_overrides_the_script(cloud, model):
    reply = cloud.call("simulated", model(bytes=90 * MIB, answer="[1]", content_type="application/json"), b"x", "text/plain")
    assert (reply.body, reply.content_type) == (b"[1]", "application/json")
    assert cloud.status("simulated")["instances"][0]["memory_bytes"] == 90 * MIB


def test_a_load_out_of_memory_is_tried_again_after_an_eviction(cloud, model):
    cloud.call("simulated", model("other"), b"x")
    evictions = cloud.status("simulated")["evictions"]
    assert cloud.call("simulated", model(load_status=507, load_failures=1), b"x").status == 200
    assert cloud.status("simulated")["evictions"] == evictions + 1


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ({"load_status": 500}, ("ModelError", 500)),
        ({"load_status": 507}, ("ModelError", 507)),
        ({"invoke_status": 418}, ("ModelError", 418)),
        ({"dies": True}, ("ServiceUnavailable", None)),
        ({"unknown": 1}, ("ModelError", 500)),
        ({"load_seconds": -1}, ("ModelError", 500)),
    ],
)
def test_scripted_failures_become_the_modelled_errors(cloud, model, script, expected):
    restarts = cloud.status("simulated")["instances"][0]["restarts"] + ("dies" in script)
    reply = cloud.call("simulated", model(**script), b"x")
    assert (reply.error, reply.original_status) == expected

    def is_up():
        (instance,) = cloud.plane.status()[0]["instances"]
        return (instance["restarts"], instance["state"]) == (restarts, "up")

    cloud.until(is_up)


def test_what_a_container_tells_beside_its_answer_reaches_the_caller(cloud, model):
    assert cloud.call("simulated", model("silent"), b"x").custom_attributes is None
    assert cloud.call("simulated", model("telling", custom_attributes="mme-memory-bytes=5"), b"x").custom_attributes == "mme-memory-bytes=5"


def test_failures_may_end(cloud, model):
    name = model(invoke_status=500, invoke_failures=2)
    assert [cloud.call("simulated", name, b"x").status for _ in range(3)] == [424, 424, 200]


def test_a_full_queue_is_refused(cloud, model):
    name = model(workers=1, queue=1, invoke_seconds=0.2)
    cloud.call("simulated", name, b"x")

    async def burst():
        return await asyncio.gather(*(cloud.invoke("simulated", name, b"x") for _ in range(4)))

    statuses = [reply.original_status or reply.status for reply in cloud.run(burst())]
    assert sorted(statuses) == [200, 200, 503, 503]


def test_an_answer_may_come_in_parts(cloud, model):
    name = model(answer="abcdef", chunks=3, chunk_seconds=0.05)
    cloud.call("simulated", name, b"x")

    async def read():
        stream = await cloud.plane.stream("simulated", InvokeRequest(b"x", name))
        return [part async for part in stream.chunks]

    assert cloud.run(read()) == [b"ab", b"cd", b"ef"]


def test_a_stream_that_breaks_off_says_so(make_cloud, archive):
    from mme_local.dataplane import StreamFailed

    cloud = make_cloud(servers={"*": "simulated"}, stream_timeout_seconds=0.3)
    cloud.start("slow", image=IMAGE)
    cloud.source.put("models/m", archive({"simulated.json": b'{"answer": "abc", "chunks": 3, "chunk_seconds": 60}'}))

    async def read(kill):
        stream = await cloud.plane.stream("slow", InvokeRequest(b"x", "m"))
        assert await anext(stream.chunks) == b"a"
        if kill:
            cloud.plane.instances()[0].kill()
        with pytest.raises(StreamFailed) as failure:
            await anext(stream.chunks)
        return failure.value.code

    assert cloud.run(read(kill=False)) == "ModelInvocationTimeExceeded"
    assert cloud.run(read(kill=True)) == "StreamBroken"


def test_one_process_holds_thousands_of_models(tmp_path):
    async def run():
        container = Container(Script.read({"memory_bytes": 3000, "bytes": 1}))
        for number in range(3001):
            body = json.dumps({"model_name": f"m{number}", "url": str(tmp_path)}).encode()
            answer = await container.handle(Request("POST", "/models", {}, {}, body))
        return answer.status, len(container.models)

    assert asyncio.run(run()) == (507, 3000)


@pytest.mark.parametrize(
    "wrong",
    [
        {"servers": {"x": "tensorflow"}},
        {"simulation": {"loads_seconds": 1}},
        {"simulation": {"load_seconds": [2, 1]}},
        {"simulation": {"load_seconds": "1"}},
        {"simulation": {"invoke_status": 99}},
        {"simulation": {"memory_bytes": 0}},
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError, match=r"use|type"):
        DataPlaneSettings(**wrong)
