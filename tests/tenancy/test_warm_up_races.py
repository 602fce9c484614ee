"""Many invocations at the same moment, on threads and on the table of the local cloud: one of them works, and once."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest

from mme_facts.environment import BUCKET_NAME, TABLE_NAME, WARM_UP
from mme_facts.warm_up import WarmUpRules
from mme_tenancy.aws.clients import dynamodb_client
from mme_tenancy.aws.warm_up_store import DynamoWarmUpStore
from mme_tenancy.clock import SystemClock
from mme_tenancy.handlers import warm_up
from mme_tenancy.testing_warm_up import MemoryWarmUpStore
from mme_tenancy.warm_up.ports import WarmUpState
from mme_tenancy.warm_up.workers import ThreadWorkers
from tests.tenancy.warm_up_world import ENDPOINT, TARGET, Context, KilledError, World, sagemaker_event

INVOCATIONS = 8


class LiveClock(SystemClock):
    """The machine's own clock, where loads take a fiftieth of their time; nobody moves it."""

    @property
    def now(self):
        return self.time()

    @now.setter
    def now(self, moment):
        pass

    def sleep(self, seconds):
        time.sleep(seconds / 50)


@pytest.fixture(params=["memory", "aws"])
def world(request, make_version):
    store, clock = MemoryWarmUpStore(), LiveClock()
    if request.param == "aws":
        store = DynamoWarmUpStore(dynamodb_client(request.getfixturevalue("cloud_session")), request.getfixturevalue("table_name"), clock)
    pools = []

    def workers():
        pools.append(ThreadWorkers(8))
        return pools[-1]

    world = World(make_version, store=store, clock=clock, workers=workers)
    world.event()
    yield world
    for pool in pools:
        pool.__exit__(None, None, None)


def at_once(world, invocations=INVOCATIONS, times=1):
    """So many invocations that begin at the same moment, each ``times`` over; what they did."""
    ready, did, errors = threading.Barrier(invocations), [], []
    functions = [world.function() for _ in range(invocations)]

    def invoke(function):
        ready.wait()
        try:
            for _ in range(times):
                answer = function(sagemaker_event(), Context())
                did.append(answer["endpoints"][ENDPOINT]["did"])
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=invoke, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(did), errors


def test_of_a_hundred_events_in_eight_invocations_at_once_one_is_acted_on(world):
    world.scales_to(6)
    did, errors = at_once(world, times=13)
    assert errors == []
    assert did == ["ended"] + ["nothing"] * (13 * INVOCATIONS - 1)
    assert world.planner.asked == [(1, 6)]
    assert set(world.called().values()) == {1}
    assert (world.record.warm_up.takes, world.record.warm_up.state, world.record.lease) == (1, WarmUpState.DONE, None)


def test_a_lease_that_has_run_out_is_taken_by_one_of_those_who_look_at_once(world):
    world.scales_to(6)
    world.source.broken = KilledError()
    with pytest.raises(KilledError):
        world.event(sagemaker_event())
    world.source.broken = None
    held = world.record
    assert at_once(world) == (["nothing"] * INVOCATIONS, [])
    assert world.record.lease == held.lease
    expired = warm_up_expired(world)
    did, errors = at_once(world)
    assert (did, errors) == (["ended"] + ["nothing"] * (INVOCATIONS - 1), [])
    assert (expired.warm_up.takes, world.record.warm_up.takes, len(world.planner.asked)) == (1, 2, 2)
    assert set(world.called().values()) == {1}


def warm_up_expired(world):
    """The lease as it is when nobody has renewed it for long."""
    record = world.record
    after = replace(record, lease=replace(record.lease, expires_at=world.clock.wall() - 1), rev=record.rev + 1)
    world.store.write(record, after)
    return after


def test_a_change_that_several_see_at_once_is_counted_once(world):
    for count in (5, 6, 7):
        world.scales_to(count)
        _, errors = at_once(world)
        assert errors == []
    assert [number for number, _ in world.planner.asked] == [1, 2, 3]
    assert world.record.seen.number == 3


def test_the_entry_point_looks_at_its_endpoints(cloud_session, table_name, bucket_name, monkeypatch):
    monkeypatch.setenv(TABLE_NAME, table_name)
    monkeypatch.setenv(BUCKET_NAME, bucket_name)
    monkeypatch.setenv(WARM_UP, WarmUpRules((TARGET,), keep_warm=("acme/iris",)).dump())
    warm_up._application.cache_clear()
    try:
        for event in ({}, sagemaker_event(), {"mme_warm_up": {"endpoint": ENDPOINT, "task": "start"}}):
            assert warm_up.handler(event, Context()) == {"endpoints": {ENDPOINT: {"did": "nothing", "warm_up": None}}}
    finally:
        warm_up._application.cache_clear()


def test_the_function_calls_itself_without_waiting():
    calls = []

    class Client:
        def invoke(self, **given):
            calls.append(given)

    warm_up.LambdaContinuations(Client(), "warm-up").send(ENDPOINT)
    (call,) = calls
    assert (call["FunctionName"], call["InvocationType"]) == ("warm-up", "Event")
    assert call["Payload"] == b'{"mme_warm_up": {"endpoint": "shared-1", "task": "look"}}'
