from __future__ import annotations

import gc
import threading
import tracemalloc
from contextlib import ExitStack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mme_tenancy.errors import ModelFailedError, ModelLoadingError, ThrottledError
from mme_tenancy.fairness import Breaker, Fairness, Limits
from mme_tenancy.testing import FakeClock

LIMITS = Limits(10, in_flight=3, cold_loads=2)


@pytest.fixture
def fairness(clock):
    return Fairness(clock, breaker=Breaker(3, 2.0, 6.0))


def answered(fairness, tenant="acme", model="a", limits=LIMITS):
    with fairness.turn(tenant, model, limits) as turn:
        turn.answer()
    return turn


def failed(fairness, model="a"):
    with fairness.turn("acme", model, LIMITS) as turn:
        turn.blame()


def test_a_second_of_the_rate_may_come_at_once_and_then_it_flows(fairness, clock):
    for _ in range(10):
        answered(fairness)
    with pytest.raises(ThrottledError, match="more than its 10 requests a second") as refused:
        answered(fairness)
    assert refused.value.retry_after_seconds == 1
    clock.sleep(0.11)
    answered(fairness)
    with pytest.raises(ThrottledError):
        answered(fairness)


def test_a_slow_rate_still_lets_one_request_through(fairness, clock):
    slow = Limits(0.1)
    answered(fairness, limits=slow)
    with pytest.raises(ThrottledError) as refused:
        answered(fairness, limits=slow)
    assert refused.value.retry_after_seconds == 10
    clock.sleep(10)
    answered(fairness, limits=slow)


def test_another_tenant_is_not_touched(fairness):
    for _ in range(10):
        answered(fairness)
    answered(fairness, tenant="acme-evil")


def test_a_raised_limit_counts_at_once(fairness, clock):
    for _ in range(10):
        answered(fairness)
    clock.sleep(0.05)
    answered(fairness, limits=Limits(100))


@given(st.lists(st.floats(0, 0.5), max_size=200), st.floats(0.5, 50))
@settings(max_examples=60, deadline=None)
def test_no_more_than_the_rate_and_one_burst_ever_pass(pauses, rate):
    clock = FakeClock()
    fairness, began, passed = Fairness(clock), clock.now, 0
    for pause in pauses:
        clock.sleep(pause)
        try:
            answered(fairness, limits=Limits(rate))
            passed += 1
        except ThrottledError:
            pass
    assert passed <= max(rate, 1.0) + rate * (clock.now - began) + 1e-6


def test_requests_under_way_are_limited_and_given_back(fairness):
    answered(fairness)
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(fairness.turn("acme", "a", LIMITS))
        with pytest.raises(ThrottledError, match="3 requests of the tenant are under way"):
            answered(fairness)
    answered(fairness)


def test_a_turn_is_given_back_when_the_request_raises(fairness):
    for _ in range(4):
        with pytest.raises(OSError, match="boom"), fairness.turn("acme", "a", LIMITS):
            raise OSError("boom")
    answered(fairness)


def test_models_that_may_be_cold_are_limited_but_not_requests_to_the_same_one(fairness):
    with fairness.turn("acme", "a", LIMITS) as turn, fairness.turn("acme", "b", LIMITS):
        assert turn.cold
        with pytest.raises(ModelLoadingError, match="2 models of the tenant are being loaded"):
            answered(fairness, model="c")
        answered(fairness, model="a")
    answered(fairness, model="c")


def test_a_model_in_memory_needs_no_place_among_the_cold(fairness):
    answered(fairness, model="c")
    with fairness.turn("acme", "a", LIMITS), fairness.turn("acme", "b", LIMITS):
        assert not answered(fairness, model="c").cold


def test_a_model_counts_as_cold_again_after_a_while(fairness, clock):
    answered(fairness)
    clock.sleep(299)
    assert not answered(fairness).cold
    clock.sleep(300)
    assert answered(fairness).cold


def test_a_model_that_keeps_failing_rests_longer_each_time_and_comes_back(fairness, clock):
    for _ in range(3):
        failed(fairness)
    for rest in (2, 4, 6, 6):
        with pytest.raises(ModelFailedError, match="given a rest") as refused:
            answered(fairness)
        assert refused.value.retry_after_seconds == rest
        clock.sleep(rest)
        failed(fairness)
    clock.sleep(6)
    answered(fairness)
    for _ in range(2):
        failed(fairness)
    answered(fairness)


def test_only_one_request_tries_after_the_rest(fairness, clock):
    for _ in range(3):
        failed(fairness)
    clock.sleep(2)
    with fairness.turn("acme", "a", LIMITS) as turn:
        with pytest.raises(ModelFailedError):
            answered(fairness)
        turn.answer()
    answered(fairness)


def test_a_trial_that_tells_nothing_is_followed_by_another(fairness, clock):
    for _ in range(3):
        failed(fairness)
    clock.sleep(2)
    with fairness.turn("acme", "a", LIMITS):
        pass
    answered(fairness)


def test_requests_that_began_before_the_circuit_opened_neither_prolong_the_rest_nor_end_the_trial(fairness, clock):
    wide = Limits(100, in_flight=50, cold_loads=2)
    with ExitStack() as late:
        turns = [late.enter_context(fairness.turn("acme", "a", wide)) for _ in range(30)]
        for turn in turns[1:]:
            turn.blame()
        # Not told how it ended: it is given back while the trial is under way.
        undecided = ExitStack()
        undecided.enter_context(fairness.turn("acme", "a", wide))
    with pytest.raises(ModelFailedError) as refused:
        answered(fairness, limits=wide)
    assert refused.value.retry_after_seconds == 2, "all of them failed in the first rest"
    clock.sleep(2)
    with fairness.turn("acme", "a", wide) as trial:
        undecided.close()
        with pytest.raises(ModelFailedError):
            answered(fairness, limits=wide)
        trial.blame()
    with pytest.raises(ModelFailedError) as refused:
        answered(fairness, limits=wide)
    assert refused.value.retry_after_seconds == 4


def test_the_rest_of_one_model_leaves_the_others_alone(fairness):
    for _ in range(3):
        failed(fairness)
    answered(fairness, model="b")
    answered(fairness, tenant="acme-evil", model="a")


def test_failures_with_an_answer_between_them_do_not_add_up(fairness):
    for _ in range(4):
        failed(fairness)
        answered(fairness)


def test_a_million_tenants_are_not_remembered_and_those_under_way_are_not_forgotten(clock, monkeypatch):
    monkeypatch.setattr("mme_tenancy.fairness._REMEMBERED", 5)
    fairness = Fairness(clock)
    with fairness.turn("held", "a", LIMITS):
        for number in range(50):
            answered(fairness, tenant=f"tenant-{number}")
        with fairness.turn("held", "a", LIMITS), fairness.turn("held", "a", LIMITS), pytest.raises(ThrottledError):
            answered(fairness, tenant="held")


def test_threads_never_hold_more_than_allowed(clock):
    fairness, limits = Fairness(clock), Limits(1e9, in_flight=4, cold_loads=1)
    held, most, lock = 0, 0, threading.Lock()

    def work():
        nonlocal held, most
        for _ in range(200):
            try:
                with fairness.turn("acme", "a", limits) as turn:
                    with lock:
                        held += 1
                        most = max(most, held)
                    turn.answer()
                    with lock:
                        held -= 1
            except ThrottledError:
                pass

    threads = [threading.Thread(target=work) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 1 <= most <= 4


MANY = Limits(1000, in_flight=3, cold_loads=2)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("begin"), st.sampled_from(["acme", "globex"]), st.sampled_from("abcd")),
        st.tuples(st.just("end"), st.integers(0, 5), st.sampled_from(["answer", "blame", "nothing", "raise"])),
        st.tuples(st.just("sleep"), st.floats(0.1, 200), st.none()),
    ),
    max_size=80,
)


@given(STEPS)
@settings(max_examples=150, deadline=None)
def test_a_request_is_refused_only_if_the_tenant_holds_what_it_may_and_all_is_given_back(steps):
    clock = FakeClock()
    fairness, held = Fairness(clock, breaker=Breaker(failures=10**6)), []
    for step, one, other in steps:
        if step == "sleep":
            clock.sleep(one)
        elif step == "end" and held:
            end(held.pop(one % len(held)), other)
        elif step == "begin":
            mine = [entry for entry in held if entry[0] == one]
            loading = {model for _tenant, model, turn, _stack in mine if turn.cold}
            stack = ExitStack()
            try:
                turn = stack.enter_context(fairness.turn(one, other, MANY))
            except ThrottledError:
                assert len(mine) == MANY.in_flight
            except ModelLoadingError:
                assert len(loading) == MANY.cold_loads
                assert other not in loading
            else:
                assert len(mine) < MANY.in_flight
                assert not turn.cold or other in loading or len(loading) < MANY.cold_loads
                held.append((one, other, turn, stack))
    for entry in held:
        end(entry, "nothing")
    clock.sleep(1000)
    for tenant in ("acme", "globex"):
        with fairness.turn(tenant, "a", MANY) as one, fairness.turn(tenant, "b", MANY) as other, fairness.turn(tenant, "b", MANY):
            assert one.cold
            assert other.cold


def end(entry, how):
    _tenant, _model, turn, stack = entry
    if how == "raise":
        with pytest.raises(OSError, match="boom"), stack:
            raise OSError("boom")
        return
    if how != "nothing":
        getattr(turn, how)()
    stack.close()


def test_a_hundred_thousand_tenants_take_the_memory_of_those_that_are_remembered(clock):
    fairness = Fairness(clock)

    def sends(tenants):
        for number in tenants:
            answered(fairness, tenant=f"tenant-{number:06}")
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        at_first = sends(range(20_000))
        later = sends(range(20_000, 100_000))
    finally:
        tracemalloc.stop()
    assert later < at_first * 1.3
    assert at_first < 20e6


def test_threads_whose_requests_fail_give_back_what_they_held(clock):
    fairness, limits = Fairness(clock, breaker=Breaker(failures=10**6)), Limits(1e9, in_flight=4, cold_loads=2)

    def work(number):
        for step in range(300):
            try:
                with fairness.turn("acme", "abc"[(number + step) % 3], limits) as turn:
                    if step % 5 == 0:
                        raise OSError("boom")
                    if step % 7 == 0:
                        turn.blame()
            except (ThrottledError, ModelLoadingError, OSError):
                pass

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with ExitStack() as stack:
        for model in "abab":
            assert stack.enter_context(fairness.turn("acme", model, limits)).cold


@pytest.mark.parametrize(
    "change", [{"requests_per_second": 0}, {"in_flight": 0}, {"cold_loads": -1}, {"requests_per_second": float("nan")}]
)
def test_limits_that_admit_nothing_are_refused(change):
    with pytest.raises(ValueError, match=f"{next(iter(change))} .* is not allowed"):
        Limits(**{"requests_per_second": 1, **change})


def test_what_is_always_in_memory_needs_no_place_among_the_cold(fairness):
    with fairness.turn("acme", "a", LIMITS), fairness.turn("acme", "b", LIMITS), fairness.turn("acme", "c", LIMITS, resident=True) as turn:
        assert not turn.cold
