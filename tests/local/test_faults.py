"""Fault documents and the registry of faults, without any cloud."""

from __future__ import annotations

import asyncio
import math
import threading

import pytest

from mme_local.dataplane import ArtifactDenied, ArtifactMissing, StartFailed
from mme_local.fault_documents import (
    KINDS,
    DuplicateEvent,
    FailDownload,
    FailInvoke,
    FailLoad,
    FaultError,
    FreezeInstance,
    InsufficientCapacity,
    JumpClock,
    KillInstance,
    LoseEvent,
    SlowDownload,
    SlowInvoke,
    SlowLoad,
    ThrottleControl,
    ThrottleInvoke,
    fault_from_document,
)
from mme_local.faults import BrokenDownloadError, Faults, UnknownFaultError
from mme_local.wire import AwsError

EXAMPLES = {
    "slow-download": {"seconds": 1},
    "slow-load": {"seconds": 0.5},
    "slow-invoke": {"seconds": 2},
    "fail-invoke": {"error": "InternalFailure"},
    "jump-clock": {"seconds": -60},
}


class Instance:
    """An instance that only notes what is done to it."""

    def __init__(self, endpoint, instance, *, zone="us-east-1a", runs=True):
        self.endpoint, self.instance, self.zone, self.runs, self.frozen, self.killed = endpoint, instance, zone, runs, False, 0

    def kill(self):
        self.killed += self.runs
        return self.runs

    def freeze(self):
        if not self.runs:
            return None
        self.frozen = True
        return lambda: setattr(self, "frozen", False)


@pytest.fixture
def loop():
    with asyncio.Runner() as runner:
        yield runner


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_survives_its_json_form(kind):
    fault = fault_from_document({"kind": kind, **EXAMPLES.get(kind, {})})
    assert type(fault) is KINDS[kind]
    assert fault_from_document(fault.document()) == fault


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ([], "a fault is a JSON object"),
        ({}, "kind is None: use one of kill-instance, freeze-instance"),
        ({"kind": ["kill-instance"]}, "use one of kill-instance"),
        ({"kind": "explode"}, "kind is 'explode': use one of"),
        ({"kind": "fail-load", "modell": "a"}, "fail-load has no member 'modell': use some of count, probability"),
        ({"kind": "fail-load", "patterns": []}, "fail-load has no member 'patterns'"),
        ({"kind": "fail-load", "model": 3}, "model is 3: use a text"),
        ({"kind": "fail-load", "model": ""}, "model is empty: use a name or a pattern"),
        ({"kind": "fail-load", "status": True}, "status is True: use a whole number"),
        ({"kind": "fail-load", "status": 507.5}, r"status is 507\.5: use a whole number"),
        ({"kind": "fail-load", "status": 200}, "status is 200: use an HTTP status from 400 to 599"),
        ({"kind": "fail-load", "count": 0}, "count is 0: use 1 or more"),
        ({"kind": "fail-load", "count": "2"}, "count is '2': use a whole number or null"),
        ({"kind": "fail-load", "probability": 0}, "probability is 0: use a number above 0, at most 1"),
        ({"kind": "fail-load", "probability": 1.1}, "probability is 1.1"),
        ({"kind": "fail-load", "probability": math.nan}, "probability is nan"),
        ({"kind": "fail-load", "expires_seconds": 0}, "expires_seconds is 0: use a positive number of seconds"),
        ({"kind": "fail-load", "expires_seconds": math.inf}, "expires_seconds is inf"),
        ({"kind": "slow-load"}, "slow-load needs seconds"),
        ({"kind": "slow-load", "seconds": -1}, "seconds is -1: use a number of seconds, 0 or more"),
        ({"kind": "slow-load", "seconds": "long"}, "seconds is 'long': use a number"),
        ({"kind": "slow-download"}, "needs seconds, bytes_per_second or both"),
        ({"kind": "slow-download", "bytes_per_second": 0}, "bytes_per_second is 0: use a number above 0"),
        ({"kind": "fail-download", "error": "gone"}, "error is 'gone': use one of unavailable, missing, denied, broken"),
        ({"kind": "fail-invoke"}, "fail-invoke needs error"),
        ({"kind": "fail-invoke", "error": "Teapot"}, "use one of InternalDependencyException"),
        ({"kind": "fail-invoke", "error": "ModelError", "status": 1}, "status is 1: use an HTTP status"),
        ({"kind": "duplicate-event", "copies": 1}, "copies is 1: use 2 to 100"),
        ({"kind": "jump-clock", "seconds": 0}, "seconds is 0: use a number of seconds other than 0"),
        ({"kind": "jump-clock", "seconds": 5, "count": 2}, "the clock jumps once, at once"),
    ],
)
def test_a_document_that_cannot_be_is_refused_and_told_why(document, text):
    with pytest.raises(FaultError, match=text):
        fault_from_document(document)


def test_a_fault_strikes_what_its_patterns_match_and_nothing_else():
    faults = Faults()
    faults.put(FailLoad(endpoint="shared", model="acme/*"))
    assert faults.strike(FailLoad, endpoint="shared", model="acme/a/v1.tar.gz") is not None
    assert faults.strike(FailLoad, endpoint="shared", model="globex/a/v1.tar.gz") is None
    assert faults.strike(FailLoad, endpoint="other", model="acme/a/v1.tar.gz") is None
    assert faults.strike(FailLoad, endpoint="SHARED", model="acme/a/v1.tar.gz") is None
    assert faults.strike(SlowLoad, endpoint="shared", model="acme/a/v1.tar.gz") is None
    assert [entry.struck for entry in faults.list()] == [1]


def test_a_fault_ends_after_its_count_and_stays_listed():
    faults = Faults()
    put = faults.put(FailLoad(count=2))
    assert [faults.strike(FailLoad, endpoint="e", model="m") is not None for _ in range(4)] == [True, True, False, False]
    (listed,) = faults.list()
    assert (listed.id, listed.struck, listed.active) == (put.id, 2, False)


def test_of_two_faults_the_first_strikes_until_it_ends():
    faults = Faults()
    faults.put(FailLoad(count=1, status=507))
    faults.put(FailLoad(status=500))
    assert [faults.strike(FailLoad, endpoint="e", model="m").status for _ in range(3)] == [507, 500, 500]


def test_chance_decides_by_the_seed():
    def strikes(seed):
        faults = Faults()
        faults.put(FailLoad(probability=0.3, seed=seed))
        return [faults.strike(FailLoad, endpoint="e", model="m") is not None for _ in range(200)]

    assert strikes(1) == strikes(1) != strikes(2)
    assert 40 <= sum(strikes(1)) <= 80


def test_a_fault_expires(loop):
    async def run():
        faults = Faults()
        faults.put(FailLoad(expires_seconds=0.02))
        assert faults.strike(FailLoad, endpoint="e", model="m") is not None
        async with asyncio.timeout(10):
            while faults.list()[0].active:
                await asyncio.sleep(0.005)
        assert faults.strike(FailLoad, endpoint="e", model="m") is None
        assert faults.list()[0].struck == 1

    loop.run(run())


def test_a_removed_fault_strikes_no_more_and_an_unknown_one_is_named():
    faults = Faults()
    put = faults.put(ThrottleInvoke())
    assert faults.remove(put.id).active is False
    assert faults.remove(put.id) is put, "removing it again is no error"
    assert faults.strike(ThrottleInvoke, endpoint="e", model="m") is None
    with pytest.raises(UnknownFaultError, match="There is no fault fault-9"):
        faults.remove("fault-9")


def test_clear_ends_and_forgets_everything():
    instance = Instance("e", "v-1")
    faults = Faults(lambda: [instance])
    faults.put(FreezeInstance())
    faults.put(LoseEvent())
    assert instance.frozen
    faults.clear()
    assert faults.list() == []
    assert not instance.frozen
    assert faults.event_copies("type", "e") == 1


def test_strikes_from_many_threads_are_counted_exactly():
    faults = Faults()
    faults.put(FailLoad(count=500))
    struck = []

    def strike():
        struck.extend(faults.strike(FailLoad, endpoint="e", model="m") is not None for _ in range(200))

    threads = [threading.Thread(target=strike) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(struck) == 500


def test_only_the_last_hundred_ended_faults_are_listed():
    faults = Faults()
    for _ in range(150):
        faults.remove(faults.put(LoseEvent()).id)
    assert [entry.id for entry in faults.list()][::99] == ["fault-51", "fault-150"]


class TestInstances:
    def test_a_kill_strikes_every_match_at_once_and_is_over(self):
        instances = [Instance("a", "v-1"), Instance("a", "v-2"), Instance("b", "v-1"), Instance("a", "v-3", runs=False)]
        entry = Faults(lambda: instances).put(KillInstance(endpoint="a"))
        assert (entry.struck, entry.active) == (2, False)
        assert [instance.killed for instance in instances] == [1, 1, 0, 0]

    def test_a_zone_is_killed_with_all_that_is_there(self):
        instances = [Instance("a", "v-1"), Instance("a", "v-2", zone="us-east-1b"), Instance("b", "v-1", zone="us-east-1b")]
        assert Faults(lambda: instances).put(KillInstance(zone="*-1b")).struck == 2
        assert [instance.killed for instance in instances] == [0, 1, 1]

    def test_a_count_limits_how_many_are_killed(self):
        instances = [Instance("a", f"v-{number}") for number in range(4)]
        assert Faults(lambda: instances).put(KillInstance(count=2)).struck == 2
        assert [instance.killed for instance in instances] == [1, 1, 0, 0]

    def test_what_a_freeze_holds_goes_on_when_it_ends(self, loop):
        instances = [Instance("a", "v-1"), Instance("a", "v-2")]
        faults = Faults(lambda: instances)
        entry = faults.put(FreezeInstance(instance="v-2"))
        assert [instance.frozen for instance in instances] == [False, True]
        faults.remove(entry.id)
        assert not instances[1].frozen

        async def expires():
            faults.put(FreezeInstance(expires_seconds=0.01))
            assert instances[0].frozen
            async with asyncio.timeout(10):
                while instances[0].frozen:
                    await asyncio.sleep(0.005)

        loop.run(expires())

    def test_a_fault_of_no_instance_is_refused_and_told_what_runs(self):
        faults = Faults(lambda: [Instance("a", "v-1")])
        with pytest.raises(FaultError, match=r"matches endpoint 'b', instance '\*' and zone '\*'; running: a/v-1 in us-east-1a"):
            faults.put(KillInstance(endpoint="b"))
        with pytest.raises(FaultError, match="running: none"):
            Faults().put(FreezeInstance())
        assert faults.list() == []

    def test_a_freeze_that_finds_only_ended_processes_is_over(self):
        assert Faults(lambda: [Instance("a", "v-1", runs=False)]).put(FreezeInstance()).active is False


class TestQuestions:
    def test_without_faults_nothing_happens(self, loop):
        faults = Faults()
        assert loop.run(faults.download("e", "m")) is None
        assert loop.run(faults.load("e", "m")) is None
        assert loop.run(faults.invoke("e", "m")) is None
        assert faults.event_copies("type", "e") == 1
        faults.capacity("e")
        faults.control_call("sagemaker", "DescribeEndpoint")

    @pytest.mark.parametrize(
        ("error", "raised"),
        [("missing", ArtifactMissing), ("denied", ArtifactDenied), ("broken", BrokenDownloadError), ("unavailable", OSError)],
    )
    def test_a_download_fails_as_asked(self, loop, error, raised):
        faults = Faults()
        faults.put(FailDownload(error=error, count=1))
        with pytest.raises(raised):
            loop.run(faults.download("e", "m"))
        assert loop.run(faults.download("e", "m")) is None

    def test_a_slow_download_tells_its_rate(self, loop):
        faults = Faults()
        faults.put(SlowDownload(bytes_per_second=1000))
        assert loop.run(faults.download("e", "m")) == 1000

    def test_waits_let_the_rest_go_on(self, loop):
        async def run():
            faults = Faults()
            faults.put(SlowDownload(seconds=3600))
            faults.put(SlowLoad(seconds=3600))
            faults.put(SlowInvoke(seconds=3600))
            waits = [asyncio.create_task(question("e", "m")) for question in (faults.download, faults.load, faults.invoke)]
            done, pending = await asyncio.wait(waits, timeout=0.01)
            assert not done
            for wait in pending:
                wait.cancel()
            assert [entry.struck for entry in faults.list()] == [1, 1, 1]

        loop.run(run())

    @pytest.mark.parametrize(
        ("fault", "status", "code", "original"),
        [
            (ThrottleInvoke(), 400, "ThrottlingException", None),
            (FailInvoke(error="InternalDependencyException"), 530, "InternalDependencyException", 500),
            (FailInvoke(error="InternalFailure"), 500, "InternalFailure", 500),
            (FailInvoke(error="ServiceUnavailable"), 503, "ServiceUnavailable", 500),
            (FailInvoke(error="ModelError", status=0), 424, "ModelError", 0),
        ],
    )
    def test_an_invocation_fails_as_asked(self, loop, fault, status, code, original):
        faults = Faults()
        faults.put(fault)
        reply = loop.run(faults.invoke("e", "m"))
        assert (reply.status, reply.error, reply.original_status) == (status, code, original)

    def test_calls_of_a_control_plane_are_throttled_by_service_and_operation(self):
        faults = Faults()
        faults.put(ThrottleControl(service="sagemaker", operation="Describe*"))
        faults.control_call("application-autoscaling", "DescribeScalableTargets")
        faults.control_call("sagemaker", "CreateEndpoint")
        with pytest.raises(AwsError) as caught:
            faults.control_call("sagemaker", "DescribeEndpoint")
        assert (caught.value.code, caught.value.status) == ("ThrottlingException", 400)

    def test_there_is_no_capacity_for_an_endpoint(self):
        faults = Faults()
        faults.put(InsufficientCapacity(endpoint="a"))
        faults.capacity("b")
        with pytest.raises(StartFailed, match="InsufficientInstanceCapacity"):
            faults.capacity("a")

    def test_events_are_lost_or_multiplied(self):
        faults = Faults()
        faults.put(LoseEvent(detail_type="SageMaker Endpoint State Change", count=1))
        faults.put(DuplicateEvent(copies=3))
        assert [faults.event_copies("SageMaker Endpoint State Change", "e") for _ in range(2)] == [0, 3]

    def test_the_clock_jumps_at_once(self):
        jumps = []
        entry = Faults(jump=jumps.append).put(JumpClock(seconds=90))
        assert (jumps, entry.struck, entry.active) == ([90], 1, False)
        with pytest.raises(FaultError, match="there is no clock"):
            Faults().put(JumpClock(seconds=90))
