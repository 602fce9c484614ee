"""Fleets whose instances serve one model each, and answers that are read as they come."""

import json
import os
import signal

import pytest

from mme_fleet import Fleet, replay
from mme_local.dataplane import DataPlane, FleetSpec, InvokeRequest, StartFailed

MIB = 1024 * 1024
SCRIPTED = "000000000000.dkr.ecr.us-east-1.amazonaws.com/scripted:1"
KEY = "elsewhere/model.tar.gz"


@pytest.fixture(scope="module")
def cloud(make_cloud, scripted):
    cloud = make_cloud(restart_backoff_seconds=0, record_events=True)
    cloud.source.put(KEY, scripted())
    cloud.start("single", image=SCRIPTED, instances=2, model_key=KEY, memory_bytes=300 * MIB)
    return cloud


def start(cloud, name, key, **spec):
    cloud.run(cloud.plane.start_fleet(FleetSpec(name, "v", 1, SCRIPTED, "bucket", model_key=key, **spec), cloud.source))


def test_every_instance_has_the_model_in_memory_when_the_fleet_has_started(cloud):
    assert [(entry["state"], [model["target_model"] for model in entry["models"]]) for entry in cloud.status("single")["instances"]] == [
        ("up", [KEY]),
        ("up", [KEY]),
    ]
    assert {entry["memory_budget_bytes"] for entry in cloud.status("single")["instances"]} == {300 * MIB}
    assert cloud.source.fetched.count(KEY) == 2


def test_it_answers_without_a_target_model_and_tells_its_container_of_none(cloud):
    reply = cloud.call("single", None, b"ping", "text/plain", accept="a/b", custom_attributes="trace=1")
    answer = json.loads(reply.body)
    assert (reply.status, reply.cold, answer["body"]) == (200, False, "ping")
    assert answer["headers"]["x-amzn-sagemaker-custom-attributes"] == "trace=1"
    assert "x-amzn-sagemaker-target-model" not in answer["headers"]
    assert "SAGEMAKER_MULTI_MODEL" not in answer["environment"]


def test_a_target_model_is_refused(cloud):
    reply = cloud.call("single", "m.tar.gz")
    assert (reply.status, reply.error) == (400, "ValidationError")
    assert "m.tar.gz" in reply.message


def test_a_killed_instance_comes_back_with_its_model_and_without_a_download(cloud):
    fetched = cloud.source.fetched.count(KEY)
    victim = cloud.status("single")["instances"][0]
    os.kill(victim["pid"], signal.SIGKILL)
    cloud.until(lambda: cloud.plane.status()[0]["instances"][0]["restarts"] == 1 and cloud.plane.status()[0]["instances"][0]["models"])
    assert cloud.call("single", None, b"x", "text/plain").status == 200
    assert cloud.source.fetched.count(KEY) == fetched


def test_its_run_replays_with_the_same_actions(cloud):
    steps = cloud.plane.recording("single")
    assert replay(steps, Fleet(cloud.settings.fleet_settings())) == len(steps) > 3


@pytest.mark.parametrize(
    ("content", "spec", "text"),
    [
        (None, {}, "Failed to download model data(bucket: bucket, key: broken.tar.gz)"),
        (b"no archive", {}, "not a sound .tar.gz"),
        ({"load": "raise"}, {}, "cannot be loaded, the container answered 500"),
        ({"load": "out of memory"}, {}, "the container answered 507"),
        ({}, {"memory_bytes": MIB}, "1048576 are reserved"),
    ],
)
def test_a_model_that_cannot_be_served_fails_the_start_at_once(make_cloud, scripted, content, spec, text):
    cloud = make_cloud(start_attempts=50)
    if content is not None:
        cloud.source.put("broken.tar.gz", content if isinstance(content, bytes) else scripted(**content))
    with pytest.raises(StartFailed) as failure:
        start(cloud, "broken", "broken.tar.gz", **spec)
    assert text in str(failure.value)
    assert cloud.source.fetched == ["broken.tar.gz"]


def test_a_container_may_bring_its_model_itself(make_cloud, tmp_path):
    handler = tmp_path / "fixed.py"
    handler.write_text("def handle(data, context):\n    return data and ['fixed'] * len(data)\n")
    cloud = make_cloud()
    start(cloud, "own", "", handler=f"{handler}:handle")
    assert cloud.call("own", None, b"x", "text/plain").body == b"fixed"
    assert cloud.source.fetched == []


def test_reserved_memory_is_positive():
    with pytest.raises(ValueError, match="memory_bytes is 0"):
        FleetSpec("e", "v", 1, SCRIPTED, "bucket", memory_bytes=0)


async def read(plane: DataPlane, name: str, request: InvokeRequest):
    stream = await plane.stream(name, request)
    return stream, [part async for part in stream.chunks]


def test_an_answer_is_read_as_it_comes(cloud):
    stream, parts = cloud.run(read(cloud.plane, "single", InvokeRequest(b"ping", None, "text/plain")))
    assert (stream.status, stream.content_type, stream.error) == (200, "application/json", None)
    assert json.loads(b"".join(parts))["body"] == "ping"


def test_a_refused_stream_has_an_error_and_no_parts(cloud, scripted):
    stream, parts = cloud.run(read(cloud.plane, "single", InvokeRequest(b"", "m.tar.gz")))
    assert (stream.status, stream.error, parts) == (400, "ValidationError", [])


def test_a_containers_error_ends_a_stream_before_its_start(make_cloud, scripted):
    cloud = make_cloud()
    cloud.source.put(KEY, scripted(invoke="die"))
    start(cloud, "dying", KEY)
    stream, parts = cloud.run(read(cloud.plane, "dying", InvokeRequest(b"", None)))
    assert (stream.status, stream.error, stream.original_status, parts) == (424, "ModelError", 500, [])
    assert stream.body


def test_a_stream_that_is_given_up_frees_its_instance(cloud):
    async def give_up():
        stream = await cloud.plane.stream("single", InvokeRequest(b"ping", None, "text/plain"))
        await stream.aclose()
        return [part async for part in stream.chunks]

    assert cloud.run(give_up()) == []
    cloud.run(cloud.plane.resize_fleet("single", 1))  # drains: nothing is under way any more
    assert len(cloud.status("single")["instances"]) == 1
