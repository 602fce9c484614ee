"""What goes wrong in and around model servers becomes the errors of InvokeEndpoint, and passes."""

import asyncio
import json
import os
import signal
from collections import Counter

import pytest

from mme_fleet import Download, Fleet, Request, replay
from mme_local.dataplane.server import ModelServer

MIB = 1024 * 1024
SCRIPTED = "000000000000.dkr.ecr.us-east-1.amazonaws.com/scripted:1"


@pytest.fixture(scope="module")
def cloud(make_cloud):
    cloud = make_cloud(
        instance_memory_bytes=220 * MIB,
        model_overhead_bytes=100 * MIB,
        invoke_timeout_seconds=2.0,
        job_queue_size=1,
        record_events=True,
    )
    cloud.start("scripted", image=SCRIPTED, instances=2, environment={"GREETING": "hello", "AWS_SECRET_ACCESS_KEY": "x"})
    return cloud


@pytest.fixture
def model(cloud, scripted, request):
    """Stores a scripted model under the test's name."""

    def store(**script) -> str:
        name = f"{request.node.name}/{len(script)}.tar.gz"
        cloud.source.put(f"models/{name}", scripted(**script))
        return name

    return store


def test_the_container_gets_the_callers_headers_and_its_environment(cloud, model):
    name = model()
    reply = cloud.call("scripted", name, b"ping", "text/plain", accept="a/b", custom_attributes="trace=1")
    answer = json.loads(reply.body)
    assert answer["body"] == "ping"
    assert answer["headers"]["x-amzn-sagemaker-target-model"] == name
    assert answer["headers"]["x-amzn-sagemaker-custom-attributes"] == "trace=1"
    assert answer["headers"]["accept"] == "a/b"
    assert answer["environment"]["GREETING"] == "hello"
    assert not [variable for variable in answer["environment"] if variable.startswith("AWS_")]


def test_out_of_memory_evicts_retries_and_ends_in_507_without_a_ghost(cloud, model):
    name = model(load="out of memory")
    for _ in range(2):  # a ghost would answer the second load with 409
        reply = cloud.call("scripted", name)
        assert (reply.error, reply.original_status) == ("ModelError", 507)
    assert cloud.call("scripted", model()).status == 200


def test_a_worker_that_dies_is_a_model_error_with_500(cloud, model):
    reply = cloud.call("scripted", model(invoke="die"))
    assert (reply.status, reply.error, reply.original_status) == (424, "ModelError", 500)


def test_an_answer_that_comes_too_late_is_a_model_error_with_0(cloud, model, tmp_path):
    reply = cloud.call("scripted", model(gate=str(tmp_path / "never")))
    assert (reply.status, reply.error, reply.original_status) == (424, "ModelError", 0)
    assert "timed out" in reply.message


def test_a_full_job_queue_is_a_model_error_with_503(cloud, model, tmp_path):
    gate = tmp_path / "gate"
    name = model(gate=str(gate))

    async def crowd():
        calls = [asyncio.create_task(cloud.invoke("scripted", name)) for _ in range(6)]
        refused, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        gate.touch()
        return [call.result() for call in refused], await asyncio.gather(*calls)

    refused, replies = cloud.run(crowd())
    assert {(reply.error, reply.original_status) for reply in refused} == {("ModelError", 503)}
    assert any(reply.status == 200 for reply in replies)


def test_a_load_that_outlasts_the_wait_answers_429_and_completes(make_cloud, scripted):
    cloud = make_cloud(load_wait_seconds=0.05)
    cloud.start("waiting", image=SCRIPTED)
    cloud.source.put("models/m.tar.gz", scripted())
    cloud.source.gate.clear()
    reply = cloud.call("waiting", "m.tar.gz")
    assert (reply.status, reply.error) == (429, "ModelNotReadyException")
    cloud.source.gate.set()
    cloud.until(lambda: cloud.plane.status()[0]["cold_loads"] == 1)
    reply = cloud.call("waiting", "m.tar.gz")
    assert (reply.status, reply.cold) == (200, False)
    assert cloud.source.fetched == ["models/m.tar.gz"]


def test_a_caller_that_goes_away_while_it_waits_leaves_nothing_behind(cloud, model):
    name = model()
    cloud.source.gate.clear()

    async def give_up():
        call = asyncio.create_task(cloud.invoke("scripted", name))
        cloud.source.reached.clear()
        while not cloud.source.reached.is_set():
            await asyncio.sleep(0.005)
        call.cancel()
        await asyncio.wait([call])

    cloud.run(give_up())
    cloud.source.gate.set()
    cloud.until(lambda: name in cloud.plane.status()[0]["loads_by_model"])
    assert cloud.call("scripted", name).cold is False


def test_a_request_that_waits_on_a_killed_server_is_served_by_another(cloud, model):
    name = model()
    cloud.source.gate.clear()
    cloud.source.reached.clear()

    async def kill_while_downloading():
        call = asyncio.create_task(cloud.invoke("scripted", name))
        while not cloud.source.reached.is_set():
            await asyncio.sleep(0.005)
        fetched = len(cloud.source.fetched)
        (step,) = [step for step in cloud.plane.recording("scripted") if isinstance(step.event, Request) and step.event.model == name]
        victim = next(action.instance for action in step.actions if isinstance(action, Download))
        pid = next(entry["pid"] for entry in cloud.plane.status()[0]["instances"] if entry["id"] == victim)
        os.kill(pid, signal.SIGKILL)
        while len(cloud.source.fetched) == fetched:
            await asyncio.sleep(0.005)
        cloud.source.gate.set()
        return victim, await call

    victim, reply = cloud.run(kill_while_downloading())
    assert (reply.status, reply.cold) == (200, True)
    assert reply.instance != victim
    cloud.until(lambda: all(entry["state"] == "up" for entry in cloud.plane.status()[0]["instances"]))


def test_a_killed_server_costs_only_service_unavailable_and_comes_back(cloud, model):
    name = model()
    victim = cloud.call("scripted", name).instance
    before = next(entry for entry in cloud.status("scripted")["instances"] if entry["id"] == victim)
    seen = Counter()

    def entry():
        return next(entry for entry in cloud.plane.status()[0]["instances"] if entry["id"] == victim)

    async def caller(done: asyncio.Event):
        while not done.is_set():
            reply = await cloud.invoke("scripted", name)
            # the queue holds one request and there are more callers: the server itself may refuse some
            seen[reply.error if reply.original_status != 503 else "queue full"] += 1

    async def kill_and_wait():
        done = asyncio.Event()
        callers = [asyncio.create_task(caller(done)) for _ in range(4)]
        while seen[None] < 20:
            await asyncio.sleep(0.005)
        os.kill(before["pid"], signal.SIGKILL)
        async with asyncio.timeout(30):
            while entry()["restarts"] == before["restarts"] or entry()["state"] != "up":
                await asyncio.sleep(0.005)
        returned = dict(entry())
        answered = seen[None]
        while seen[None] < answered + 20:
            await asyncio.sleep(0.005)
        done.set()
        await asyncio.gather(*callers)
        return returned

    returned = cloud.run(kill_and_wait())
    assert set(seen) <= {None, "ServiceUnavailable", "queue full"}
    assert returned["pid"] not in (None, before["pid"])
    assert returned["models"] == []
    cloud.run(cloud.plane.resize_fleet("scripted", 1))
    assert cloud.call("scripted", name).status == 200


def test_the_run_with_all_its_failures_replays_with_the_same_actions(cloud, model):
    cloud.call("scripted", model())
    steps = cloud.plane.recording("scripted")
    assert replay(steps, Fleet(cloud.settings.fleet_settings())) == len(steps) > 5


def test_an_instance_comes_back_whatever_kept_it_away(make_cloud, scripted, monkeypatch):
    cloud = make_cloud(servers={"*": "simulated"}, restart_backoff_max_seconds=0.05)
    cloud.start("odd")
    cloud.source.put("models/m.tar.gz", scripted())
    start, odd = ModelServer.start, [RuntimeError("what nobody thought of"), OSError("no process to be had")]

    async def start_oddly(server):
        if odd:
            raise odd.pop()
        await start(server)

    monkeypatch.setattr(ModelServer, "start", start_oddly)
    (before,) = cloud.status("odd")["instances"]
    os.kill(before["pid"], signal.SIGKILL)
    cloud.until(lambda: not odd)
    cloud.until(lambda: [entry["state"] for entry in cloud.plane.status()[0]["instances"]] == ["up"])
    assert cloud.call("odd", "m.tar.gz", b"1").status == 200
