"""The warm-up function as a whole, in memory and in virtual time: storms of events, faults in every call, processes that die anywhere."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from mme_facts.own_events import warm_up_event
from mme_tenancy.fleet_state import PendingFleet
from mme_tenancy.retries import RuntimeFault
from mme_tenancy.warm_up.ports import WarmUpState
from tests.tenancy.warm_up_world import ENDPOINT, Context, FaultError, KilledError, World, sagemaker_event, start_event


@pytest.fixture
def world(make_version):
    world = World(make_version)
    world.event()
    return world


def ended(world, state=WarmUpState.DONE):
    warm_up = world.record.warm_up
    assert (warm_up.state, world.record.lease) == (state, None)
    return warm_up


def test_a_fleet_that_is_as_it_was_is_looked_at_and_left_alone(world):
    before = world.record
    assert world.event() == {"endpoints": {ENDPOINT: {"did": "nothing", "warm_up": None}}}
    assert world.record == before
    assert world.runtime.calls == []


def test_a_scale_out_is_warmed_within_the_invocation_that_finds_it(world):
    world.scales_to(6)
    found_at = world.clock.now
    answer = world.event(sagemaker_event())
    assert answer["endpoints"][ENDPOINT]["did"] == "ended"
    assert answer["endpoints"][ENDPOINT]["warm_up"]["summary"]["warmed"] == 8
    assert set(world.called().values()) == {1}
    assert {why for *_, why in world.runtime.calls} == {"scale-out"}
    assert world.runtime.calls[0][0] - found_at <= 5
    assert ended(world).reason == "done"
    (line,) = world.told("warmed up")
    assert (line["models_warmed"], line["failed"], line["overrun"], line["why"]) == (8, 0, 0, "scale-out 1: done")


@pytest.mark.parametrize("claim", ["FAILED", "CREATING", "UPDATING", "NONSENSE"])
def test_what_an_event_claims_is_not_believed(world, claim):
    world.event(sagemaker_event(EndpointStatus=claim, ProductionVariants=[{"CurrentInstanceCount": 99}]))
    assert world.record.warm_up is None
    world.scales_to(6)
    world.event(sagemaker_event(EndpointStatus=claim))
    assert ended(world).change.instances_after == 6


def test_an_event_of_another_endpoint_is_nothing(world):
    world.scales_to(6)
    assert world.event(sagemaker_event(EndpointName="another")) == {"endpoints": {}}
    assert world.record.warm_up is None


def test_a_hundred_duplicates_lead_to_one_warm_up(world):
    world.scales_to(6)
    for _ in range(100):
        world.event(sagemaker_event())
    assert world.planner.asked == [(1, 6)]
    assert set(world.called().values()) == {1}
    assert ended(world).takes == 1


def test_a_hundred_duplicates_that_arrive_while_it_is_warmed_do_nothing(world):
    world.scales_to(6)
    inner, answers = iter(range(100)), []

    def invoke(*_arguments):
        answers.extend(world.event(sagemaker_event())["endpoints"][ENDPOINT]["did"] for _ in inner)
        return original(*_arguments)

    original, world.runtime.invoke = world.runtime.invoke, invoke
    world.event(sagemaker_event())
    assert set(answers) == {"nothing"}
    assert len(answers) == 100
    assert world.planner.asked == [(1, 6)]
    assert ended(world).takes == 1


def test_events_in_a_wrong_order_and_late_are_one_warm_up_a_change(world):
    events = []
    for count in (6, 7, 5, 8):
        world.is_now(status="Updating", desired=count)
        events.append(sagemaker_event(EndpointStatus="UPDATING"))
        world.scales_to(count)
        events.append(sagemaker_event())
        if count in (6, 8):
            world.event(events.pop())
    random.Random(7).shuffle(events)
    for event in events * 3:
        world.event(event)
    assert [number for number, _ in world.planner.asked] == [1, 2]


def test_with_all_events_lost_the_schedule_finds_every_change(world):
    for count in (5, 6, 4, 7):
        world.scales_to(count)
        world.clock.now += 60
        world.event()
    assert world.planner.asked == [(1, 5), (2, 6), (3, 7)]
    assert ended(world).change.instances_before == 4


def test_an_update_that_is_rolled_back_while_it_is_warmed_ends_at_once(world):
    world.is_now(status="Updating", pending=PendingFleet("config-2", {"main": 4}, world.clock.time(), shifted_at=world.clock.time()))

    def invoke(*_arguments):
        world.is_now(status="RollingBack")
        world.runtime.invoke = original
        return original(*_arguments)

    original, world.runtime.invoke = world.runtime.invoke, invoke
    world.settings = replace(world.settings, in_flight_share=0.01)
    world.planner._planner._settings = world.settings
    world.event(sagemaker_event())
    calls = len(world.runtime.calls)
    assert 0 < calls < 8
    assert ended(world, WarmUpState.ABANDONED).reason == "the update is rolled back"
    world.is_now(status="InService", pending=None)
    for _ in range(5):
        world.event(sagemaker_event())
    assert len(world.runtime.calls) == calls


def slowly(world):
    """One call at a time."""
    world.planner._planner._settings = world.settings = replace(world.settings, in_flight_share=0.01)


def during(world, change, *, call=2):
    """``change`` happens when that call is made."""
    original, left = world.runtime.invoke, iter(range(call))

    def invoke(*_arguments):
        if next(left, None) == call - 1:
            change()
        return original(*_arguments)

    world.runtime.invoke = invoke


def test_an_endpoint_that_is_deleted_while_it_is_warmed_leaves_nothing_behind(world):
    slowly(world)
    world.scales_to(6)

    def deleted():
        world.state = None

    during(world, deleted)
    assert world.event(sagemaker_event())["endpoints"][ENDPOINT]["did"] == "lost"
    calls = len(world.runtime.calls)
    assert calls < 8
    assert ended(world, WarmUpState.ABANDONED).reason == "the endpoint was deleted"
    for _ in range(5):
        world.event()
    assert len(world.runtime.calls) == calls
    assert world.sent.sent == []
    assert [line["failed"] for line in world.told("warmed up")] == [0]


def test_calls_that_fail_because_the_endpoint_is_gone_are_no_failure(make_version):
    world = World(make_version, models=12)
    world.event()
    world.scales_to(6)
    gone = RuntimeFault("ValidationError", 400, message="Endpoint shared-1 of account 1 not found.")
    world.runtime.fails = {candidate.target_model: gone for candidate in world.source.candidates}

    def deleted():
        world.state = None

    during(world, deleted, call=1)
    world.event(sagemaker_event())
    assert ended(world, WarmUpState.ABANDONED).reason == "the endpoint was deleted"
    assert [line["failed"] for line in world.told("warmed up")] == [0]


def test_a_warm_up_on_which_every_call_fails_counts_as_failed(make_version):
    world = World(make_version, models=12)
    world.event()
    world.scales_to(6)
    fault = RuntimeFault("ModelError", 424, 400, "bad sample")
    world.runtime.fails = {candidate.target_model: fault for candidate in world.source.candidates}
    world.event(sagemaker_event())
    assert ended(world, WarmUpState.ABANDONED).summary["end"] == "failed"
    assert [line["failed"] for line in world.told("warmed up")] == [1]


def test_a_warm_up_that_somebody_still_works_on_is_not_given_up(world):
    world.scales_to(6)
    world.source.broken = KilledError()
    world.survives(sagemaker_event())
    record = world.record
    world.clock.now += 900
    lease = replace(record.lease, expires_at=world.clock.wall() + 30)
    world.store.write(record, replace(record, lease=lease, rev=record.rev + 1))
    world.event()
    assert world.record.warm_up.is_open
    world.clock.now += 31
    world.event()
    assert ended(world, WarmUpState.ABANDONED).reason.startswith("it did not end in time")


def test_a_fleet_that_changes_while_it_is_warmed_is_planned_anew_by_the_same_holder(world):
    slowly(world)
    world.scales_to(6)
    during(world, lambda: world.scales_to(8))
    assert world.event(sagemaker_event())["endpoints"][ENDPOINT]["did"] == "ended"
    assert world.planner.asked == [(1, 6), (2, 8)]
    warm_up = ended(world)
    assert (warm_up.change.number, warm_up.takes, warm_up.summary["warmed"]) == (2, 0, 8)
    assert [line["why"] for line in world.told("warmed up")] == ["scale-out 1: the fleet has changed again", "scale-out 2: done"]


def test_a_warm_up_for_which_there_is_no_time_left_is_continued_at_once_by_another_invocation(world):
    slowly(world)
    world.scales_to(6)
    assert world.event(sagemaker_event(), seconds=30)["endpoints"][ENDPOINT]["did"] == "paused"
    assert world.sent.sent == [ENDPOINT]
    assert world.record.lease is None
    world.settles()
    warm_up = ended(world)
    assert warm_up.takes > 1
    assert warm_up.summary["warmed"] == 8
    assert set(world.called().values()) == {1}
    assert len(world.planner.asked) == 1


def test_an_invocation_with_too_little_time_begins_nothing_and_calls_no_other_like_it(world):
    world.scales_to(6)
    assert world.event(sagemaker_event(), seconds=20)["endpoints"][ENDPOINT]["did"] == "nothing"
    assert (world.runtime.calls, world.sent.sent) == ([], [])
    assert world.record.warm_up.state is WarmUpState.PLANNED
    assert [line["level"] for line in world.told("this invocation has too little time to warm anything")] == ["WARNING"]


@pytest.fixture
def endpoints(world):
    """Three endpoints whose fleets have all changed."""
    names = [ENDPOINT, "shared-2", "shared-3"]
    world.targets = tuple(replace(world.targets[0], endpoint=name) for name in names)
    for name in names:
        world.fleets.states[name] = replace(world.state, endpoint=name)
    world.event()
    for name in names:
        world.fleets.states[name] = replace(world.state, instances={"main": 6}, desired={"main": 6}, modified_at=world.clock.now + 1)
    return names


def all_warmed(world, names):
    return {name: world.store.read(name).warm_up.summary["warmed"] for name in names} == dict.fromkeys(names, 8)


def test_of_several_endpoints_that_changed_one_is_warmed_here_and_the_others_beside_it(world, endpoints):
    did = {name: told["did"] for name, told in world.event()["endpoints"].items()}
    assert did == {ENDPOINT: "ended", "shared-2": "sent", "shared-3": "sent"}
    for name in list(world.sent.sent):
        world.event(warm_up_event(name))
    assert all_warmed(world, endpoints)
    assert len(world.planner.asked) == 3


def test_where_no_other_invocation_can_be_asked_all_are_warmed_here_or_by_the_next_minute(world, endpoints):
    def send(_endpoint):
        raise FaultError("no way to Lambda")

    slowly(world)
    world.sent.send = send
    did = {name: told["did"] for name, told in world.event(seconds=60)["endpoints"].items()}
    assert did == {ENDPOINT: "ended", "shared-2": "ended", "shared-3": "paused"}
    world.event()
    assert all_warmed(world, endpoints)


def test_an_endpoint_that_cannot_be_described_keeps_no_other_from_its_turn(world, endpoints):
    original = world.fleets.state

    def state(endpoint):
        if endpoint == ENDPOINT:
            raise FaultError("throttled")
        return original(endpoint)

    world.fleets.state = state
    with pytest.raises(FaultError, match="throttled"):
        world.event()
    world.event(warm_up_event("shared-3"))
    assert all_warmed(world, endpoints[1:])
    assert world.record.warm_up is None


def test_a_model_whose_sample_fails_stops_no_other_and_is_reported(world):
    bad = world.source.candidates[3].target_model
    world.runtime.fails[bad] = RuntimeFault("ModelError", 424, 400, "bad sample")
    world.scales_to(6)
    world.event(sagemaker_event())
    warm_up = ended(world)
    assert (warm_up.summary["warmed"], warm_up.summary["failed_models"]) == (7, 1)
    assert [failure["target_model"] for failure in warm_up.summary["failed"]] == [bad]
    (line,) = world.told("warmed up")
    assert line["first_failed"][0]["target_model"] == bad


def test_an_endpoint_that_takes_no_calls_ends_it_and_that_counts_as_failed(world):
    for candidate in world.source.candidates:
        world.runtime.fails[candidate.target_model] = RuntimeFault("ThrottlingException", 400)
    world.scales_to(6)
    world.event(sagemaker_event())
    warm_up = ended(world, WarmUpState.ABANDONED)
    assert (warm_up.summary["end"], warm_up.summary["warmed"]) == ("throttled", 0)
    (line,) = world.told("warmed up")
    assert (line["failed"], line["overrun"]) == (1, 0)


def test_a_warm_up_by_hand_needs_no_change_and_is_one_at_a_time(world):
    world.event(start_event())
    assert ended(world).change.kind == "replacement"
    assert world.planner.asked == [(1, 4)]
    slowly(world)
    answers = []
    during(world, lambda: answers.append(world.event(start_event())))
    world.event(start_event())
    assert world.planner.asked == [(1, 4), (2, 4)]
    assert answers[0]["endpoints"][ENDPOINT]["did"] == "nothing"


def test_a_warm_up_by_hand_of_an_endpoint_that_does_not_serve_is_nothing(world):
    world.is_now(status="Failed")
    world.event(start_event())
    assert world.record.warm_up is None


def test_a_warm_up_that_cannot_be_planned_is_given_up_after_some_minutes_and_counts_as_failed(world):
    world.scales_to(6)
    world.source.broken = FaultError("no heat")
    for _ in range(11):
        with pytest.raises(FaultError, match="no heat"):
            world.event()
        assert world.record.lease is None
        world.clock.now += 60
        if world.record.warm_up.takes == 10:
            break
    world.event()
    assert ended(world, WarmUpState.ABANDONED).reason == "it was taken up 10 times and never ended"
    (line,) = world.told("warmed up")
    assert (line["failed"], "calls" in line) == (1, False)


def test_a_warm_up_whose_every_holder_dies_is_given_up_in_time(world):
    world.scales_to(6)
    world.source.broken = KilledError()
    minutes = 0
    while world.record.warm_up is None or world.record.warm_up.is_open:
        world.survives()
        world.clock.now += 120
        minutes += 2
    assert minutes <= 16
    assert ended(world, WarmUpState.ABANDONED).reason == "it did not end in time: users' requests have loaded the models"


def test_a_fleet_that_changes_while_it_is_planned_is_planned_again(world):
    world.scales_to(6)
    original, states = world.source.read, iter([7])

    def read(*arguments, **named):
        for count in states:
            world.scales_to(count)
            world.event(sagemaker_event())
        return original(*arguments, **named)

    world.source.read = read
    world.event(sagemaker_event())
    assert world.planner.asked == [(1, 6), (2, 7)]
    assert ended(world).change.number == 2
    assert set(world.called().values()) == {1}


def test_whoever_has_lost_its_lease_stops_and_leaves_the_warm_up_to_the_other(world):
    slowly(world)
    world.scales_to(6)

    def taken_over():
        record = world.record
        world.store.write(record, replace(record, lease=replace(record.lease, holder="another"), rev=record.rev + 1))

    during(world, taken_over)
    assert world.event(sagemaker_event())["endpoints"][ENDPOINT]["did"] == "lost"
    assert world.record.lease.holder == "another"
    assert len(world.runtime.calls) < 8
    world.clock.now += 61
    world.settles()
    assert ended(world).summary["warmed"] == 8


def test_whoever_loses_its_lease_at_the_very_end_does_not_say_how_it_ended(world):
    world.scales_to(6)

    def taken_over():
        record = world.record
        world.store.write(record, replace(record, lease=replace(record.lease, holder="another"), rev=record.rev + 1))

    during(world, taken_over, call=8)
    assert world.event(sagemaker_event())["endpoints"][ENDPOINT]["did"] == "lost"
    assert world.record.warm_up.is_open
    assert [line["models_warmed"] for line in world.told("warmed up")] == [8]


def test_a_checkpoint_of_another_release_is_planned_again(world):
    slowly(world)
    world.scales_to(6)
    world.event(sagemaker_event(), seconds=30)
    for key, document in world.store.documents.items():
        world.store.documents[key] = document.replace('"schema": 1', '"schema": 99')
    world.settles()
    assert len(world.planner.asked) == 2
    assert world.told("the checkpoint is another release's: it is planned again")
    assert ended(world).summary["warmed"] == 8


def test_a_record_that_is_taken_away_ends_the_work(world):
    slowly(world)
    world.scales_to(6)

    def deleted():
        world.state = None
        del world.store.records[ENDPOINT]

    during(world, deleted)
    assert world.event(sagemaker_event())["endpoints"][ENDPOINT]["did"] == "lost"
    assert world.record is None
    assert len(world.runtime.calls) < 8


def test_what_is_done_beside_warm_ups_stops_nothing_and_is_done_by_the_schedule_only(world):
    done = []

    def broken(target, _stop_at):
        done.append(target.endpoint)
        raise FaultError("broken")

    function = world.function()
    function = replace(function, chores=(broken, lambda target, _stop_at: done.append(target.variant)))
    function(sagemaker_event(), Context())
    assert done == []
    with pytest.raises(FaultError, match="broken"):
        function({}, Context())
    assert done == [ENDPOINT, "main"]
    world.scales_to(6)
    function({}, Context())
    assert ended(world).summary["warmed"] == 8
    assert len(done) == 2


def a_run(make_version, arm=lambda _faults: None):
    """A scale-out that is warmed, slowly and with little time, so that everything happens that may."""
    world = World(make_version, models=9)
    slowly(world)
    world.event()
    begun = len(world.faults.calls)
    world.scales_to(6)
    arm(world.faults)
    for _ in range(2):
        world.survives(sagemaker_event(), seconds=32)
    taken = world.settles()
    return world, world.faults.calls[begun:], taken


def check_clean(world, taken):
    """One warm-up, over, without a lease, a message or an error that is left; every model was called."""
    warm_up = world.record.warm_up
    assert (warm_up.change.number, world.record.lease) == (1, None)
    assert (warm_up.state, warm_up.summary["failed_models"]) == (WarmUpState.DONE, 0)
    assert len(world.called()) == 9
    assert world.sent.sent == []
    assert taken <= 3
    before = len(world.runtime.calls)
    world.event()
    assert len(world.runtime.calls) == before


def test_a_fault_in_any_call_costs_the_warm_up_a_minute_at_most(make_version):
    _, calls, _ = a_run(make_version)
    assert {
        "table.read",
        "table.write",
        "table.keep",
        "table.kept",
        "sagemaker.state",
        "heat.read",
        "endpoint.invoke",
        "lambda.send",
    } <= set(calls)
    for number, name in enumerate(calls):
        for late in (False, True):
            fault = RuntimeFault("ServiceUnavailable", 503) if name == "endpoint.invoke" else FaultError(number)
            world, _, taken = a_run(make_version, lambda faults, n=number, fault=fault, late=late: faults.arm(n, fault, late=late))
            check_clean(world, taken)


def test_a_process_that_dies_at_any_call_is_followed_by_one_that_ends_its_work(make_version):
    _, calls, _ = a_run(make_version)
    for number in range(len(calls)):
        for late in (False, True):
            world, _, taken = a_run(make_version, lambda faults, n=number, late=late: faults.arm(n, KilledError(n), late=late))
            check_clean(world, taken)


def test_faults_all_over_a_run_leave_nothing_behind(make_version):
    for seed in range(60):
        chance = random.Random(seed)
        world = World(make_version, models=5)
        slowly(world)
        world.event()
        world.scales_to(6)
        for number in range(200):
            if chance.random() < 0.2:
                world.faults.arm(number, chance.choice([FaultError, KilledError])(number), late=chance.random() < 0.5)
        for _ in range(6):
            world.survives(chance.choice([None, sagemaker_event()]), seconds=chance.choice([22, 32, 300]))
            world.clock.now += chance.choice([1, 20, 61])
        world.settles()
        warm_up = world.record.warm_up
        assert (warm_up.change.number, world.record.lease, warm_up.is_open) == (1, None, False)
        assert world.sent.sent == []
