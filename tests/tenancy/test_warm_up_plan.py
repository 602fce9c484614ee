"""What is warmed after a change, in which order, and what is left out and why."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mme_facts.warm_up import WarmUpSettings as Bounds
from mme_tenancy.warm_up.change import ChangeKind, FleetChange
from mme_tenancy.warm_up.plan import Candidate, FleetShape, Skip, WarmUpPlan, plan
from mme_tenancy.warm_up.settings import WarmUpSettings

NOW = 1_700_000_000.0
DEFAULTS = WarmUpSettings()


def candidate(name, *, size=10, load=2.0, rate=0.1, idle=60.0, **kinds):
    return Candidate(target_model=name, bytes=size, load_seconds=load, rate=rate, last_used=NOW - idle, **kinds)


def change(kind, before, after):
    empty = {
        ChangeKind.SCALE_OUT: max(1, after - before),
        ChangeKind.UPDATE: after,
        ChangeKind.REPLACEMENT: 1,
        ChangeKind.LOSS: 0,
    }[kind]
    return FleetChange(kind, "shared", 1, NOW, before, after, empty, "one", "two")


def plan_for(kind, before, after, candidates, *, memory=100, slots=8, rules=DEFAULTS):
    shapes = FleetShape(before, memory, slots), FleetShape(after, memory, slots)
    return plan(change(kind, before, after), *shapes, candidates, rules, NOW)


def names(made):
    return [step.target_model for step in made.steps]


def reasons(made):
    return {one.target_model: one.reason for one in made.left_out}


def test_the_last_used_that_filled_the_old_fleet_are_called():
    candidates = [
        *(candidate(f"last{number}", idle=number) for number in range(10)),
        *(candidate(f"old{number}", idle=90) for number in range(13)),
    ]
    made = plan_for(ChangeKind.SCALE_OUT, 1, 2, candidates)
    assert set(names(made)) == {f"last{number}" for number in range(10)}, "100 bytes were there before"
    assert made.skipped == {Skip.NOT_RESIDENT: 13}


def test_models_come_first_that_users_miss_most_and_have_not_brought_back_themselves():
    candidates = [
        candidate("slow", rate=0.1, load=8.0),
        candidate("often", rate=0.1, load=1.0),
        candidate("rare", rate=0.001, load=1.0),
        candidate("hot", rate=5.0, load=1.0),
    ]
    assert names(plan_for(ChangeKind.UPDATE, 1, 1, candidates)) == ["often", "slow", "rare", "hot"]


def test_a_change_that_was_seen_late_puts_off_what_users_have_brought_back_since():
    candidates = [candidate("often", rate=0.1, load=1.0), candidate("seldom", rate=0.01, load=1.0)]
    shapes = FleetShape(1, 100, 8), FleetShape(1, 100, 8)
    early, late = (plan(replace(change(ChangeKind.UPDATE, 1, 1), seen_at=NOW - ago), *shapes, candidates, DEFAULTS, NOW) for ago in (0, 60))
    assert (names(early), names(late)) == (["often", "seldom"], ["seldom", "often"])


def test_in_a_crowded_fleet_models_of_the_middle_are_called_again_before_the_last_ones():
    rates = [1.0, 0.1, 0.05, 0.02, 0.01, 0.004, 0.001, 0.0005]
    made = plan_for(ChangeKind.UPDATE, 1, 1, [candidate(f"m{rate}", rate=rate) for rate in rates])
    assert made.touch_after == 7
    assert {made.steps[number].rate for number in made.touches} == {0.1, 0.05, 0.02, 0.01, 0.004}
    assert plan_for(ChangeKind.UPDATE, 2, 2, [candidate(f"m{rate}", rate=rate) for rate in rates]).touches == ()
    assert plan_for(ChangeKind.LOSS, 2, 1, [candidate(f"m{rate}", rate=rate) for rate in rates]).touches == ()


def test_of_those_that_do_not_fit_the_new_fleet_less_the_reserve_the_last_used_are_called():
    made = plan_for(ChangeKind.UPDATE, 2, 1, [candidate(f"m{number}", idle=number) for number in range(20)])
    assert set(names(made)) == {f"m{number}" for number in range(8)}, "80 of 87.5 bytes"
    assert made.skipped == {Skip.NO_ROOM: 12}


def test_models_that_cannot_be_called_or_need_not_be_are_left_out_and_counted():
    candidates = [
        candidate("retired", retired=True),
        candidate("dedicated", dedicated=True),
        candidate("big", size=88),
        candidate("unused", rate=0.0),
        candidate("untold", sample=False),
        candidate("good", idle=90),
    ]
    made = plan_for(ChangeKind.UPDATE, 2, 2, candidates)
    assert names(made) == ["good"]
    assert reasons(made) == {
        "retired": Skip.RETIRED,
        "dedicated": Skip.DEDICATED,
        "big": Skip.TOO_BIG,
        "unused": Skip.NOT_WORTH_IT,
        "untold": Skip.NO_SAMPLE,
    }


def test_a_model_without_a_sample_still_takes_its_room():
    candidates = [candidate("untold", size=80, sample=False, idle=1), candidate("next", size=80, idle=2)]
    assert reasons(plan_for(ChangeKind.UPDATE, 1, 1, candidates)) == {"untold": Skip.NO_SAMPLE, "next": Skip.NOT_RESIDENT}


def test_a_model_that_comes_twice_is_called_once_as_it_came_last():
    made = plan_for(ChangeKind.UPDATE, 1, 1, [candidate("m", rate=1.0), candidate("m", rate=2.0)])
    assert [step.rate for step in made.steps] == [2.0]


def test_a_load_that_was_never_measured_is_taken_to_last_by_its_bytes():
    made = plan_for(ChangeKind.UPDATE, 1, 1, [candidate("m", size=1_400_000_000, load=None)], memory=10**10)
    assert made.steps[0].load_seconds == 11.0


@pytest.mark.parametrize(
    ("kind", "before", "after", "moved_share", "in_flight"),
    [
        (ChangeKind.SCALE_OUT, 5, 7, 2 / 7, 12),
        (ChangeKind.SCALE_OUT, 2, 3, 1 / 3, 6),
        (ChangeKind.UPDATE, 4, 4, 1.0, 24),
        (ChangeKind.REPLACEMENT, 4, 4, 1 / 4, 6),
        (ChangeKind.LOSS, 4, 3, 1 / 4, 18),
    ],
    ids=["5-to-7", "2-to-3", "update", "replacement", "loss"],
)
def test_as_many_calls_as_three_quarters_of_the_loads_of_the_instances_that_have_something_to_load(
    kind, before, after, moved_share, in_flight
):
    made = plan_for(kind, before, after, [candidate("m")])
    assert (made.moved_share, made.in_flight) == (pytest.approx(moved_share), in_flight)


def test_one_call_is_always_allowed():
    assert plan_for(ChangeKind.SCALE_OUT, 2, 3, [candidate("m")], slots=1).in_flight == 1


def test_after_a_loss_a_full_fleet_loads_only_what_is_hotter_than_what_it_pushes_out():
    recent = [candidate(f"recent{number}", rate=0.2 if number % 2 else 0.05, idle=number) for number in range(20)]
    older = [candidate(f"older{number}", rate=0.1, idle=100 + number) for number in range(20)]
    made = plan_for(ChangeKind.LOSS, 4, 3, recent + older)
    assert set(names(made)) >= {one.target_model for one in recent if one.rate == 0.2}, "hotter than the oldest, which go"
    colder = {one.target_model for one in recent if one.rate == 0.05} & set(names(made))
    assert len(colder) <= 2, "the oldest are hotter than these: only what fits beside the others"
    assert set(reasons(made).values()) == {Skip.NOT_WORTH_IT, Skip.NO_ROOM}


def test_after_a_loss_nothing_is_loaded_that_nobody_asks_for_soon():
    assert reasons(plan_for(ChangeKind.LOSS, 4, 3, [candidate("daily", rate=1e-5)])) == {"daily": Skip.NOT_WORTH_IT}


def test_after_a_loss_a_fleet_with_room_loads_everything():
    candidates = [candidate(f"m{number}") for number in range(10)]
    assert len(plan_for(ChangeKind.LOSS, 4, 3, candidates).steps) == 10


def test_every_step_says_why():
    made = plan_for(ChangeKind.UPDATE, 1, 1, [candidate("m", rate=0.25, idle=42.4, load=1.5)])
    assert made.steps[0].reason == "used 42 s ago, 0.25 requests/s, loads in 1.5 s"


def test_how_long_it_takes_at_least():
    made = plan_for(ChangeKind.UPDATE, 2, 2, [candidate(f"m{number}", size=1, load=12.0) for number in range(80)])
    assert made.least_seconds(DEFAULTS) == 80 * 12 / 12
    assert plan_for(ChangeKind.UPDATE, 1, 1, [candidate("m", size=1, load=0.01)]).least_seconds(DEFAULTS) == 1 / 20


def test_an_empty_fleet_is_refused():
    with pytest.raises(ValueError, match="instances is 0: use 1 or more"):
        FleetShape(0, 1, 1)


def test_a_plan_that_names_a_model_twice_is_refused():
    made = plan_for(ChangeKind.UPDATE, 1, 1, [candidate("m")])
    with pytest.raises(ValueError, match="called a second time before it was called once"):
        replace(made, touches=(0,))
    with pytest.raises(ValueError, match="a model comes twice"):
        WarmUpPlan(kind=made.kind, steps=made.steps * 2, skipped={}, in_flight=1, moved_share=1, requests_per_second=1)


CANDIDATES = st.lists(
    st.builds(
        candidate,
        st.integers(0, 60).map("m{}".format),
        size=st.integers(1, 120),
        load=st.one_of(st.none(), st.floats(0, 30)),
        rate=st.one_of(st.floats(0, 10), st.sampled_from([0.0005, 0.005, 0.05])),
        idle=st.sampled_from([0.0, 300.0, 600.0, 90_000.0]),
        sample=st.booleans(),
        retired=st.booleans(),
        dedicated=st.booleans(),
    ),
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(CANDIDATES, st.sampled_from(ChangeKind), st.integers(1, 6), st.integers(1, 6))
def test_any_plan_keeps_the_reserve_calls_by_value_and_accounts_for_every_model(candidates, kind, before, after):
    made = plan_for(kind, before, after, candidates)
    assert made.bytes <= 0.875 * after * 100 or kind is ChangeKind.LOSS
    assert made.bytes <= before * 100
    assert all(step.rate > 0 and step.bytes <= 87.5 for step in made.steps)
    assert made.least_seconds(DEFAULTS) >= (len(made.steps) + len(made.touches)) / 20 - 1e-9
    for one, two in pairwise(made.steps):
        if one.rate == two.rate:
            assert one.load_seconds <= two.load_seconds
        elif one.load_seconds == two.load_seconds and max(one.rate, two.rate) < 0.01:
            assert one.rate > two.rate
    assert all(number < made.touch_after <= len(made.steps) for number in made.touches)
    assert 0 < made.moved_share <= 1
    assert 1 <= made.least_in_flight <= made.in_flight
    told = {*names(made), *reasons(made)}
    assert told == {one.target_model for one in candidates}
    assert len(made.steps) + sum(made.skipped.values()) == len(told)
    assert WarmUpPlan.load(json.loads(json.dumps(made.dump()))) == made
    assert plan_for(kind, before, after, candidates[::-1]).skipped.keys() <= set(Skip)


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("reserve_share", 1.0, "0 to 0.9"),
        ("failed_share", 0, "more than 0, at most 1"),
        ("recovered_points", -0.1, "a finite number of 0 or more"),
        ("nothing_moved_loads", float("inf"), "a finite number above 0"),
        ("attempts", 1.5, "a whole number of 1 or more"),
        ("most_back_off_seconds", 0.5, "back_off_seconds, which is 1.0, or more"),
    ],
)
def test_settings_out_of_range_are_refused(name, value, allowed):
    with pytest.raises(ValueError, match=f"{name} is {value}: use {allowed}"):
        WarmUpSettings(**{name: value})


def test_bounds_that_users_set_keep_the_constants_of_the_course():
    assert WarmUpSettings.of(Bounds(seconds=60, reserve_share=0.2)) == WarmUpSettings(seconds=60, reserve_share=0.2)
