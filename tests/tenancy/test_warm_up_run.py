"""The course of a warm-up under any answers, at any times, cut anywhere."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from heapq import heappop, heappush

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mme_tenancy.warm_up.change import ChangeKind
from mme_tenancy.warm_up.plan import Skip, Step, WarmUpPlan
from mme_tenancy.warm_up.run import Answer, End, FleetReading, Outcome, WarmUpRun
from mme_tenancy.warm_up.settings import WarmUpSettings

START = 1_700_000_000.0
DEFAULTS = WarmUpSettings()
OK, LOADED = Outcome(Answer.OK, 0.02), Outcome(Answer.OK, 2.0)
THROTTLED, NOT_READY = Outcome(Answer.THROTTLED, 0.01, "slow down"), Outcome(Answer.NOT_READY, 60.0)
BROKEN = Outcome(Answer.FAILED, 0.1, "status 500")


def plan_of(models, *, in_flight=4, moved_share=1.0, rate=0.1, requests_per_second=10.0, touch_after=0, touches=()):
    steps = tuple(Step(f"acme/m{number}/v1-000000000000.tar.gz", 10, 2.0, rate, 0.0, 5.0) for number in range(models))
    return WarmUpPlan(
        kind=ChangeKind.UPDATE,
        steps=steps,
        skipped={Skip.NO_SAMPLE: 3},
        in_flight=in_flight,
        moved_share=moved_share,
        requests_per_second=requests_per_second,
        touch_after=touch_after,
        touches=touches,
    )


class Driven:
    """Drives a run in virtual time; ``answers`` gives the outcome of every call by its number. Checks what always holds."""

    def __init__(self, run, answers, *, started_at=START):
        self.run, self.answers, self.now = run, answers, started_at
        self.calls, self.began, self.heap, self.order = [], [], [], []
        self.under_way = Counter()
        self.cuts = 0

    def step(self):
        """Take what may begin, and go to the next point in time; ``False`` at the end."""
        run = self.run
        for call in run.take(self.now):
            assert not self.under_way[call.target_model], "two calls of one model at once"
            self.under_way[call.target_model] += 1
            self.began.append(self.now)
            self.calls.append(call)
            heappush(self.heap, (self.now + self.answers(call).seconds, call.number, call))
        assert run.in_flight == len(self.heap) <= run.plan.in_flight
        if run.end is not None:
            return False
        wake_at = run.wake_at(self.now)
        assert wake_at is not None or self.heap
        if self.heap and (wake_at is None or self.heap[0][0] <= wake_at):
            self.now, _number, call = heappop(self.heap)
            self.under_way[call.target_model] -= 1
            run.answered(call, self.now, self.answers(call))
        else:
            assert wake_at > self.now, "woken for nothing"
            self.now = wake_at
        return True

    def cut(self):
        """The process dies after a checkpoint; another one continues."""
        self.cuts += len(self.heap)
        self.run = WarmUpRun.load(json.loads(json.dumps(self.run.dump())), self.run.settings)
        self.heap.clear()
        self.under_way.clear()

    def to_the_end(self, most_steps=20_000):
        for _ in range(most_steps):
            if not self.step():
                return self.run.summary(self.now)
        raise AssertionError("it does not end")


def drive(plan, answers, rules=DEFAULTS):
    driven = Driven(WarmUpRun(plan, rules, START), answers if callable(answers) else lambda _call: answers)
    return driven, driven.to_the_end()


def test_every_model_is_called_once_in_order_and_the_summary_tells_it():
    driven, summary = drive(plan_of(30), LOADED)
    assert [call.target_model for call in driven.calls] == [step.target_model for step in driven.run.plan.steps]
    assert (summary.end, summary.planned, summary.calls, summary.warmed, summary.loaded) == (End.DONE, 30, 30, 30, 30)
    assert (summary.bytes, summary.loaded_bytes, summary.failed, summary.skipped) == (300, 300, (), {Skip.NO_SAMPLE: 3})
    assert 0 < summary.cold_requests_avoided < 30


def test_answers_that_come_fast_do_not_end_it_before_that_says_something():
    _driven, summary = drive(plan_of(200, moved_share=0.3, rate=0.1), OK)
    assert (summary.end, summary.calls, summary.loaded) == (End.DONE, 200, 0), "users have brought them back themselves by then"


def test_models_that_must_have_moved_and_did_not_end_it():
    _driven, summary = drive(plan_of(200, moved_share=0.3, rate=0.0001), OK)
    assert summary.end is End.NOTHING_MOVED
    assert 12 / 0.3 <= summary.calls < 60
    assert summary.skipped[Skip.ENDED] == 200 - summary.calls


def test_a_few_loads_of_what_was_not_there_before_do_not_keep_it_going_but_a_good_part_of_the_expected_ones_does():
    plan = plan_of(200, moved_share=0.3, rate=0.0001)
    _driven, few = drive(plan, lambda call: LOADED if call.number % 12 == 0 else OK)
    assert (few.end, few.calls < 60) == (End.NOTHING_MOVED, True)
    _driven, many = drive(plan, lambda call: LOADED if call.number % 5 == 0 else OK)
    assert (many.end, many.calls) == (End.DONE, 200)


def test_where_loads_wait_behind_others_fewer_are_called_at_once_down_to_what_one_instance_does():
    run = WarmUpRun(replace(plan_of(60, in_flight=12), least_in_flight=3), DEFAULTS, START)
    calls, at_once = run.take(START), []
    for seconds in (5.0, 10.0, 15.0):
        for call in calls:
            run.answered(call, START + seconds, Outcome(Answer.OK, 5.0))
        calls = run.take(START + seconds)
        at_once.append(run.in_flight)
    assert at_once == [6, 3, 3]
    for second in range(16, 60):
        for call in calls:
            run.answered(call, START + second, LOADED)
        calls = run.take(START + second)
        at_once.append(run.in_flight)
    assert max(at_once) > 6, "and more again when they are fast"


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_whatever_is_answered_the_bounds_hold_every_model_ends_somehow_and_it_ends(data):
    models = data.draw(st.integers(0, 60))
    rules = WarmUpSettings(
        least_calls_per_second=data.draw(st.sampled_from([0.4, 1.0, 5.0, 20.0])),
        seconds=data.draw(st.sampled_from([10.0, 60.0, 180.0])),
        least_failed=data.draw(st.integers(1, 30)),
    )
    touch_after = data.draw(st.integers(0, models))
    plan = plan_of(
        models,
        in_flight=data.draw(st.integers(1, 9)),
        moved_share=data.draw(st.floats(0.1, 1)),
        requests_per_second=0,
        touch_after=touch_after,
        touches=tuple(range(0, touch_after, 3)),
    )
    drawn = {}

    def answers(call):
        if call.number not in drawn:
            kind = data.draw(st.sampled_from([Answer.OK, Answer.OK, Answer.OK, *Answer]))
            drawn[call.number] = Outcome(kind, data.draw(st.sampled_from([0.01, 0.3, 2.5, 60.0])), "why")
        return drawn[call.number]

    driven = Driven(WarmUpRun(plan, rules, START), answers)
    while driven.step():
        if data.draw(st.integers(0, 15)) == 0:
            driven.cut()
    summary = driven.run.summary(driven.now)
    ended = summary.warmed + len(summary.failed) + summary.skipped.get(Skip.ENDED, 0)
    assert ended == models, "a model was lost"
    assert len(driven.calls) == summary.calls
    assert summary.repeated <= driven.cuts
    assert max(Counter(call.target_model for call in driven.calls if not call.touch).values(), default=0) <= rules.attempts + driven.cuts
    assert max(Counter(call.target_model for call in driven.calls if call.touch).values(), default=0) <= 1
    assert summary.touched <= len(plan.touches)
    span, most = (1.0, int(rules.least_calls_per_second)) if rules.least_calls_per_second >= 1 else (2.5, 1)
    for number in range(most, len(driven.began)):
        assert driven.began[number] - driven.began[number - most] >= span - 1e-6, "more calls than the budget allows"
    first = [call.target_model for call in driven.calls if call.attempt == 1]
    assert list(dict.fromkeys(first)) == [step.target_model for step in plan.steps][: len(set(first))], "out of order"
    assert driven.now <= START + rules.seconds + 60.0


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_run_that_is_cut_when_nothing_is_under_way_goes_on_exactly_as_without(data):
    plan = plan_of(data.draw(st.integers(1, 25)), in_flight=data.draw(st.integers(1, 4)))
    kinds = data.draw(st.lists(st.sampled_from([LOADED, OK, THROTTLED, NOT_READY, BROKEN]), min_size=1, max_size=12))

    def answers(call):
        return kinds[call.number % len(kinds)]

    whole, summary = drive(plan, answers)
    parts = Driven(WarmUpRun(plan, DEFAULTS, START), answers)
    while parts.step():
        if not parts.heap:
            parts.cut()
    assert (parts.began, parts.calls, parts.run.summary(parts.now)) == (whole.began, whole.calls, summary)


def test_calls_that_were_under_way_when_it_was_cut_are_made_again_first():
    run = WarmUpRun(plan_of(10, in_flight=3), DEFAULTS, START)
    lost = run.take(START)
    run = WarmUpRun.load(run.dump(), DEFAULTS)
    run.answered(lost[0], START + 1, LOADED)
    assert run.summary(START + 1).warmed == 0, "an answer to a call of a process that is gone"
    again = run.take(START + 1)
    assert [call.target_model for call in again] == [call.target_model for call in lost]
    assert not {call.number for call in again} & {call.number for call in lost}
    assert (run.summary(START + 1).repeated, run.summary(START + 1).calls) == (3, 6)


def test_after_a_throttle_nothing_is_called_for_a_while_and_then_fewer_at_once():
    run = WarmUpRun(plan_of(40, in_flight=8), DEFAULTS, START)
    calls = run.take(START)
    assert len(calls) == 8
    for call in calls:
        run.answered(call, START + 0.5, THROTTLED)
    assert run.take(START + 0.5) == []
    assert run.wake_at(START + 0.5) == START + 1.5, "one back-off, though eight calls met it"
    again = run.take(START + 1.5)
    assert [call.attempt for call in again] == [2] * 4
    assert {call.target_model for call in again} <= {call.target_model for call in calls}


def test_models_that_were_warmed_are_called_again_in_time_and_that_counts_for_nothing_else():
    plan = plan_of(12, in_flight=1, touch_after=10, touches=(1, 4, 7))
    driven, summary = drive(plan, lambda call: BROKEN if "/m4/" in call.target_model else LOADED)
    called = [(call.target_model.split("/")[1], call.touch) for call in driven.calls]
    assert called[10:] == [("m1", True), ("m7", True), ("m10", False), ("m11", False)]
    assert (summary.warmed, summary.loaded, summary.touched, summary.calls) == (11, 11, 2, 14)


def test_a_second_call_that_fails_is_left_at_that():
    plan = plan_of(3, in_flight=1, touch_after=3, touches=(0, 1))
    _driven, summary = drive(plan, lambda call: {True: [BROKEN, THROTTLED][call.number % 2]}.get(call.touch, LOADED))
    assert (summary.end, summary.warmed, summary.failed, summary.touched, summary.calls) == (End.DONE, 3, (), 0, 5)


def test_a_fleet_that_takes_no_calls_ends_it_after_a_bounded_number_of_back_offs():
    driven, summary = drive(plan_of(500), THROTTLED)
    assert summary.end is End.THROTTLED
    assert summary.calls <= 6 * 4
    assert driven.now - START < 1 + 2 + 4 + 8 + 16 + 20
    assert summary.warmed + len(summary.failed) + summary.skipped[Skip.ENDED] == 500


def test_a_model_that_fails_does_not_stop_the_others_and_is_listed():
    driven, summary = drive(plan_of(50), lambda call: BROKEN if "/m7/" in call.target_model else LOADED)
    assert (summary.end, summary.warmed) == (End.DONE, 49)
    assert [(one.target_model, one.error, one.attempts) for one in summary.failed] == [
        (driven.run.plan.steps[7].target_model, "status 500", 1)
    ]


def test_too_many_failures_end_it():
    _driven, summary = drive(plan_of(100), BROKEN)
    assert summary.end is End.FAILED
    assert len(summary.failed) <= 10 + 4


def test_a_model_that_is_not_ready_is_called_again_later_and_given_up_after_some_attempts():
    driven, summary = drive(plan_of(1), NOT_READY, WarmUpSettings(seconds=900))
    assert [call.attempt for call in driven.calls] == [1, 2, 3]
    assert driven.began[1] - driven.began[0] == pytest.approx(65)
    assert [one.attempts for one in summary.failed] == [3]
    assert (summary.end, summary.not_ready) == (End.DONE, 3)


def test_time_ends_it_and_answers_to_calls_under_way_still_count():
    driven, summary = drive(plan_of(40, in_flight=1), Outcome(Answer.OK, 7.0), WarmUpSettings(seconds=20))
    assert (summary.end, summary.calls, summary.warmed) == (End.TIME, 3, 3)
    assert driven.now == START + 21


def test_the_budget_follows_the_users_traffic():
    run = WarmUpRun(plan_of(400, in_flight=400, requests_per_second=400), DEFAULTS, START)
    assert len(run.take(START)) == 100
    run.observed(FleetReading(requests_per_second=40), START + 0.5)
    assert run.calls_per_second == 20
    assert run.take(START + 0.9) == []
    assert len(run.take(START + 1)) == 20


@pytest.mark.parametrize(
    ("readings", "end"),
    [
        ([(60, 0.95), (120, 0.95)], End.RECOVERED),
        ([(60, 0.95), (60, 0.95)], None),
        ([(-60, 0.95), (60, 0.95)], None),
        ([(60, 0.95), (120, 0.94)], None),
    ],
    ids=["two-minutes", "one-minute-twice", "one-before-the-change", "one-not-back"],
)
def test_cache_hits_as_before_in_two_whole_minutes_end_it(readings, end):
    run = WarmUpRun(plan_of(10), DEFAULTS, START)
    for minute, hit in readings:
        run.observed(FleetReading(minute=START + minute, cache_hit=hit, cache_hit_before=0.955), START + 180)
    assert run.stopping is end


def test_an_instance_that_is_still_emptier_than_others_keeps_it_going():
    run = WarmUpRun(plan_of(10), DEFAULTS, START)
    for minute in (60, 120):
        reading = FleetReading(None, START + minute, 0.96, 0.955, least_loaded_models=4, most_loaded_models=20)
        run.observed(reading, START + 180)
    assert run.stopping is None


def test_metrics_that_are_missing_change_nothing():
    run = WarmUpRun(plan_of(10), DEFAULTS, START)
    before = run.dump()
    run.observed(FleetReading(), START + 180)
    run.observed(FleetReading(minute=START + 60, cache_hit=0.5), START + 180)
    assert run.dump() == before


def test_it_can_be_abandoned_and_then_nothing_is_called():
    run = WarmUpRun(plan_of(10), DEFAULTS, START)
    (first, *others) = run.take(START)
    run.abandon("the fleet has changed again", START + 1)
    assert (run.stopping, run.end, run.take(START + 1), run.wake_at(START + 1)) == (End.ABANDONED, None, [], None)
    for call in (first, *others):
        run.answered(call, START + 3, LOADED)
    summary = run.summary(START + 99)
    assert (summary.end, summary.detail, summary.warmed, summary.seconds) == (End.ABANDONED, "the fleet has changed again", 4, 3)
    assert summary.skipped[Skip.ENDED] == 6


def test_a_run_that_was_stopping_when_it_was_cut_calls_nothing_more():
    run = WarmUpRun(plan_of(10), DEFAULTS, START)
    run.take(START)
    run.abandon("gone", START + 1)
    run = WarmUpRun.load(run.dump(), DEFAULTS)
    assert (run.end, run.take(START + 2)) == (End.ABANDONED, [])
    assert run.summary(START + 2).skipped[Skip.ENDED] == 10


def test_a_checkpoint_of_another_form_is_refused():
    document = WarmUpRun(plan_of(1), DEFAULTS, START).dump() | {"schema": 2}
    with pytest.raises(ValueError, match="the checkpoint has schema 2: this release reads 1"):
        WarmUpRun.load(document, DEFAULTS)


def test_an_empty_plan_is_done_at_once():
    run = WarmUpRun(plan_of(0), DEFAULTS, START)
    assert (run.end, run.take(START), run.summary(START).seconds) == (End.DONE, [], 0)


def test_the_summary_is_a_document():
    _driven, summary = drive(plan_of(3), lambda call: BROKEN if call.number == 2 else LOADED)
    document = json.loads(json.dumps(summary.document()))
    assert document["failed"] == [{"target_model": "acme/m1/v1-000000000000.tar.gz", "error": "status 500", "attempts": 1}]
    assert (document["end"], document["skipped"], document["warmed"]) == ("done", {"no_sample": 3}, 2)
