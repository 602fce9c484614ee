"""Which models are probably used next, and which of them are called."""

from __future__ import annotations

import gzip
import json
import random

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from mme_tenancy.warm_up.plan import FleetShape
from mme_tenancy.warm_up.prefetch import Due, Prefetch, PrefetchError, PrefetchSettings

NOW = 1_767_225_600 // 60 * 60
SLOT = 60
SMALL = FleetShape(instances=2, memory_bytes=50, load_slots=4)
"""Its share for prefetch holds five models of ten bytes."""
BYTES = 10
FILLER = {f"filler/m{number}": BYTES for number in range(20)}
"""Models that were used once, so that not all of what is known fits the fleet."""


def settings(**values):
    return PrefetchSettings(**values)


def observed(uses, slots, *, chosen=None, sizes=None, lag=0):
    """A state that observed ``slots`` windows from NOW on; ``uses`` gives the slots in which each model is used."""
    prefetch = Prefetch(chosen or settings())
    for slot in range(slots):
        used = [model for model, times in uses.items() if slot in times]
        prefetch.observe(NOW + slot * SLOT, SLOT, used + list(FILLER) * (slot == 0))
    prefetch.size(dict.fromkeys(uses, BYTES) | FILLER if sizes is None else sizes, NOW)
    return prefetch


def moment(slot):
    return NOW + slot * SLOT


def probability(prefetch, model, slot):
    """Of a use in this slot alone: as it is when the one before is nearly over."""
    return prefetch.probabilities(moment(slot) - 1e-6)[model]


def names(due):
    return [each.model for each in due]


# What is predicted.


@pytest.mark.parametrize("period", [5, 15, 60, 240, 1440])
def test_a_periodic_model_is_due_from_the_minute_before_its_use_on_and_not_earlier(period):
    prefetch = observed({"acme/cron": range(0, 4 * period + 1, period)}, 5 * period - 2)
    called = {}
    for slot in range(5 * period - 2, 5 * period + 1):
        called[slot] = names(prefetch.due(moment(slot), SMALL))
    assert called == {5 * period - 2: [], 5 * period - 1: ["acme/cron"], 5 * period: ["acme/cron"]}
    assert probability(prefetch, "acme/cron", 5 * period - 1) < 0.05 < 0.8 < probability(prefetch, "acme/cron", 5 * period)


def test_a_model_is_called_for_its_use_however_late_heat_comes():
    """Its last use is seen three minutes later, and it is loaded for the next one all the same."""
    prefetch = observed({"acme/cron": range(0, 200, 20)}, 196)
    assert prefetch.due(moment(198), SMALL) == ()
    assert names(prefetch.due(moment(199), SMALL)) == ["acme/cron"]


def test_a_use_that_heat_does_not_tell_yet_is_counted_in():
    """It is used each second minute: minutes of which nothing is known yet may have had a use, and with it the next one comes."""
    prefetch = observed({"acme/often": range(0, 101, 2)}, 101)
    odd, even = ([probability(prefetch, "acme/often", slot) for slot in slots] for slots in ((103, 105, 107), (104, 106, 108)))
    assert max(odd) < 0.1 < 0.8 < min(even)


def test_what_is_over_of_a_minute_counts_no_more():
    prefetch = observed({"acme/cron": range(0, 200, 20)}, 197)
    over = [prefetch.probabilities(moment(200) + seconds)["acme/cron"] for seconds in (0, 15, 30, 45, 59.999)]
    at_its_use = probability(prefetch, "acme/cron", 200)
    assert over[0] > at_its_use - 0.01
    assert over == pytest.approx([share * at_its_use for share in (1, 0.75, 0.5, 0.25, 0)], abs=0.03)


def test_a_use_that_jitters_by_a_minute_is_due_in_both():
    times = [0]
    for step in range(30):
        times.append(times[-1] + 29 + step % 2)
    prefetch = observed({"acme/cron": times}, times[-1] + 20)
    assert probability(prefetch, "acme/cron", times[-1] + 29) == pytest.approx(0.5, abs=0.1)
    assert probability(prefetch, "acme/cron", times[-1] + 28) < 0.1


@pytest.mark.parametrize("seed", range(3))
def test_models_that_are_used_at_random_are_never_probable_enough_to_be_loaded(seed):
    rng = random.Random(seed)
    uses = {f"acme/random{number}": {slot for slot in range(1000) if rng.random() < 1 / 45} for number in range(15)}
    prefetch = observed(uses, 1000)
    most = 0.0
    for slot in range(1000, 1120):
        prefetch.observe(moment(slot), SLOT, [])
        most = max(most, *prefetch.probabilities(moment(slot + 1)).values())
    assert most < PrefetchSettings().load_probability


def test_a_model_with_a_single_use_is_judged_by_all_others():
    everybody = {f"acme/m{number}": range(number % 7, 400, 10) for number in range(50)}
    prefetch = observed(everybody | {"acme/new": {395}}, 401)
    assert probability(prefetch, "acme/new", 405) > 0.6
    assert probability(observed({"acme/new": {395}}, 401), "acme/new", 405) < 0.05


def test_evidence_of_its_own_weighs_more_the_more_there_is_of_it():
    everybody = {f"acme/m{number}": range(0, 400, 10) for number in range(50)}
    seen = [observed(everybody | {"acme/own": range(0, 25 * uses + 1, 25)}, 25 * uses + 1) for uses in (1, 3, 8)]
    at_its_own = [probability(prefetch, "acme/own", 25 * uses + 25) for prefetch, uses in zip(seen, (1, 3, 8), strict=True)]
    assert at_its_own == sorted(at_its_own)
    assert at_its_own[0] < 0.6 < at_its_own[2]


def test_idle_times_over_a_gap_in_the_heat_are_not_counted():
    whole = observed({"acme/cron": {0, 10, 20, 30, 40}}, 41)
    broken = Prefetch(settings())
    for slot in [*range(16), *range(17, 41)]:
        broken.observe(moment(slot), SLOT, ["acme/cron"] if slot in {0, 10, 20, 30, 40} else [])
    counts = [json.loads(gzip.decompress(each.dump()))["models"]["acme/cron"][3] for each in (whole, broken)]
    assert counts == [[[10, 4]], [[10, 3]]]


def test_heat_that_is_too_old_predicts_nothing():
    uses = {"acme/cron": range(0, 200, 10)}
    assert "acme/cron" in names(observed(uses, 195).due(moment(210), SMALL))
    assert observed(uses, 194).due(moment(210), SMALL) == ()


def test_without_heat_nothing_is_due():
    prefetch = Prefetch()
    assert prefetch.due(NOW, SMALL) == ()
    assert prefetch.probabilities(NOW) == {}
    assert prefetch.observed_until is None


def test_a_slot_that_was_observed_is_not_predicted():
    assert observed({"acme/cron": {0, 10}}, 20).probabilities(moment(19)) == {}


# What is observed.


@pytest.mark.parametrize(
    ("start", "seconds"), [(NOW + 4 * SLOT, SLOT), (NOW + 9 * SLOT, 300), (NOW + 9 * SLOT + 1, SLOT)], ids=["older", "longer", "shifted"]
)
def test_a_window_that_is_not_the_next_slot_or_a_later_one_is_not_counted(start, seconds):
    prefetch = observed({"acme/cron": {0}}, 6)
    before = prefetch.dump()
    assert not prefetch.observe(start, seconds, ["acme/cron"])
    assert prefetch.dump() == before
    assert prefetch.observed_until == NOW + 6 * SLOT


def test_a_window_counts_once_however_often_it_is_told():
    once, twice = (observed({"acme/cron": range(0, 50, 5)}, 50) for _ in range(2))
    assert not twice.observe(moment(45), SLOT, ["acme/cron"])
    assert once.dump() == twice.dump()


# What is called.


def test_nothing_is_due_twice_in_a_slot():
    prefetch = observed({"acme/cron": range(0, 200, 10)}, 200)
    assert names(prefetch.due(moment(200), SMALL))
    assert prefetch.due(moment(200) + 59, SMALL) == ()
    assert Prefetch.load(prefetch.dump(), settings()).due(moment(200), SMALL) == ()


def test_the_models_that_are_called_take_no_more_than_the_share():
    uses = {f"acme/m{number}": range(0, 200, 10) for number in range(30)}
    due = observed(uses, 200).due(moment(200), SMALL)
    assert len(due) == 5
    assert sum(each.bytes for each in due) <= 0.5 * SMALL.total_bytes


def test_the_most_probable_model_is_called_last_so_that_it_is_evicted_last():
    uses = {"acme/sure": range(0, 200, 10), "acme/less": {*range(0, 100, 10), *range(110, 185, 15), 190}}
    due = observed(uses, 200).due(moment(200), SMALL)
    assert names(due) == ["acme/less", "acme/sure"]
    assert [each.probability for each in due] == sorted(each.probability for each in due)


def test_what_is_to_be_loaded_is_called_before_what_is_kept():
    uses = {"acme/kept": range(0, 200, 5), "acme/hourly": range(21, 200, 60), "acme/half": range(20, 200, 30)}
    due = observed(uses, 198).due(moment(200), SMALL)
    assert [(each.model, each.loaded) for each in due] == [("acme/half", False), ("acme/hourly", False), ("acme/kept", True)]


def test_a_large_model_must_be_more_probable_than_a_small_one():
    uses = {"acme/large": range(0, 200, 10), "acme/small": range(0, 200, 10)}
    sizes = {"acme/large": 40, "acme/small": 10} | FILLER
    assert names(observed(uses, 200, sizes=sizes).due(moment(200), SMALL)) == ["acme/large", "acme/small"]
    assert names(observed(uses, 200, sizes=sizes, chosen=settings(memory_share=0.4)).due(moment(200), SMALL)) == ["acme/small"]


@pytest.mark.parametrize("size", [0, None, SMALL.memory_bytes + 1], ids=["cannot-be-called", "unknown", "too-large"])
def test_a_model_that_cannot_be_loaded_is_not_called(size):
    sizes = FILLER if size is None else {"acme/cron": size} | FILLER
    assert observed({"acme/cron": range(0, 200, 10)}, 200, sizes=sizes).due(moment(200), SMALL) == ()
    assert names(observed({"acme/cron": range(0, 200, 10)}, 200).due(moment(200), SMALL)) == ["acme/cron"]


def test_what_was_called_is_called_on_at_a_probability_at_which_it_would_not_be_loaded():
    """Its use is late: it stays loaded until another one needs the place more, or nobody believes in it any more."""
    times = [0]
    for step in range(60):
        times.append(times[-1] + (20 if step % 10 < 9 else 21 + step // 10 % 4))
    prefetch, last = observed({"acme/cron": times}, times[-1] + 19), times[-1]
    called = {}
    for idle in range(19, 40):
        prefetch.observe(moment(last + idle), SLOT, [])
        called[idle + 1] = prefetch.due(moment(last + idle + 1), SMALL)
    assert [idle for idle, due in called.items() if due] == [20, 21, 22, 23, 24]
    assert [each.loaded for due in called.values() for each in due] == [False, True, True, True, True]
    assert called[20][0].probability > 0.8 > called[21][0].probability
    assert observed({"acme/cron": times}, last + 21).due(moment(last + 21), SMALL) == ()


def test_nothing_is_called_while_all_models_fit_the_share():
    roomy = FleetShape(instances=2, memory_bytes=10_000, load_slots=4)
    assert observed({"acme/cron": range(0, 200, 10)}, 200).due(moment(200), roomy) == ()


def test_no_more_calls_are_made_than_allowed_and_those_are_the_most_probable():
    uses = {f"acme/m{number}": {*range(0, 100, 10), *range(110, 200, 10 if number < 3 else 15)} for number in range(6)}
    few = observed(uses, 200, chosen=settings(most_calls=3)).due(moment(200), SMALL)
    assert set(names(few)) == {"acme/m0", "acme/m1", "acme/m2"}


# What came of it.

CRON, SURE = "acme/cron", {"acme/cron": 0.9}


def loaded_at(slot, **values):
    """A state that has just had a model loaded, whose uses are older than what is taken to be loaded."""
    prefetch = observed({CRON: {0, 20}}, slot - 3, chosen=settings(**values))
    assert [each.loaded for each in prefetch.choose(NOW // SLOT + slot, SMALL, SURE)] == [False]
    return prefetch


def judged(prefetch, slots, used=()):
    """Observe these slots, the model being used in some; slot -> how many loads were of use and in vain by then, where that changed."""
    changes, before = {}, (prefetch.used, prefetch.wasted)
    for slot in slots:
        prefetch.observe(moment(slot), SLOT, [CRON] if slot in used else [])
        if (now := (prefetch.used, prefetch.wasted)) != before:
            changes[slot], before = now, now
    return changes


@pytest.mark.parametrize("use", [40, 41, 49])
def test_a_load_whose_model_is_used_soon_was_of_use(use):
    """In the minute of its call, too: nobody knows whether it was before or after."""
    assert judged(loaded_at(40), range(37, 70), {use, use + 1}) == {use: (1, 0)}


@pytest.mark.parametrize("uses", [set(), {39}, {51}], ids=["never", "before", "too-late"])
def test_a_load_whose_model_is_not_used_within_ten_minutes_was_in_vain(uses):
    assert judged(loaded_at(40), range(37, 70), uses) == {50: (0, 1)}


def test_a_model_that_is_called_on_is_waited_for_from_its_last_call_on():
    prefetch = loaded_at(40)
    for slot in range(41, 46):
        assert [each.loaded for each in prefetch.choose(NOW // SLOT + slot, SMALL, SURE)] == [True]
    assert judged(prefetch, range(37, 70)) == {55: (0, 1)}


def test_a_model_that_has_to_be_loaded_once_more_was_loaded_in_vain_before():
    prefetch = loaded_at(40, awaited_seconds=3600)
    assert [each.loaded for each in prefetch.choose(NOW // SLOT + 45, SMALL, SURE)] == [False]
    assert (prefetch.used, prefetch.wasted) == (0, 1)
    assert judged(prefetch, range(37, 70), {47}) == {47: (1, 1)}


def test_calls_that_keep_a_model_loaded_are_judged_by_nobody():
    prefetch = observed({CRON: range(0, 40, 5)}, 40)
    assert [each.loaded for each in prefetch.choose(NOW // SLOT + 42, SMALL, SURE)] == [True]
    assert judged(prefetch, range(40, 70), {45}) == {}


def test_of_loads_before_a_gap_in_the_heat_nobody_knows_what_came():
    assert judged(loaded_at(40), [*range(37, 42), *range(43, 70)], {44}) == {}


def test_a_load_is_waited_for_by_whichever_process_comes_next():
    again = Prefetch.load(loaded_at(40).dump())
    assert judged(again, range(37, 70), {41}) == {41: (1, 0)}
    assert (Prefetch.load(again.dump()).used, again.wasted) == (0, 0)


# Sizes.


def test_sizes_are_asked_for_once_and_again_after_a_while():
    prefetch = Prefetch(settings())
    for slot, model in enumerate(("acme/first", "acme/second", "acme/third")):
        prefetch.observe(moment(slot), SLOT, [model])
    assert prefetch.unsized(NOW, after_seconds=3600, most=2) == ["acme/third", "acme/second"]
    prefetch.size({"acme/third": 5, "acme/second": 0, "acme/unheard": 7}, NOW)
    assert prefetch.unsized(NOW + 3600, after_seconds=3600, most=9) == ["acme/first"]
    assert prefetch.unsized(NOW + 3660, after_seconds=3600, most=9) == ["acme/third", "acme/second", "acme/first"]
    assert len(prefetch) == 3


# As one object.


def test_a_state_of_another_slot_length_begins_anew():
    prefetch = observed({"acme/cron": {0, 10}}, 20)
    assert len(Prefetch.load(prefetch.dump(), settings(slot_seconds=300))) == 0
    assert len(Prefetch.load(prefetch.dump(), settings())) == 1 + len(FILLER)


def without(document, key):
    return {name: value for name, value in document.items() if name != key}


@pytest.mark.parametrize(
    "spoil",
    [
        lambda document: b"{}",
        lambda document: gzip.compress(b"{"),
        lambda document: gzip.compress(b"[]"),
        lambda document: gzip.compress(json.dumps(document | {"schema": 2}).encode()),
        lambda document: gzip.compress(json.dumps(without(document, "models")).encode()),
        lambda document: gzip.compress(json.dumps(document | {"models": []}).encode()),
        lambda document: gzip.compress(json.dumps(document | {"models": {"acme/cron": [1]}}).encode()),
        lambda document: gzip.compress(json.dumps(document).encode())[:-9],
    ],
    ids=["plain", "cut-json", "list", "schema", "no-models", "models-list", "model-short", "cut-gzip"],
)
def test_what_is_not_a_state_is_refused(spoil):
    document = json.loads(gzip.decompress(observed({"acme/cron": {0, 10}}, 20).dump()))
    with pytest.raises(PrefetchError, match="state of prefetch"):
        Prefetch.load(spoil(document))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("slot_seconds", 0),
        ("memory_share", 0),
        ("memory_share", 1.01),
        ("load_probability", float("nan")),
        ("keep_probability", 0.9),
        ("keep_probability", -0.1),
        ("recent_seconds", -1),
        ("awaited_seconds", float("nan")),
        ("prior_uses", 0),
        ("most_lag_seconds", 59),
        ("most_calls", 0.5),
        ("most_models", 0),
        ("most_idle_seconds", float("inf")),
        ("most_bins", 0),
        ("most_uses", 127),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(name, value):
    with pytest.raises(ValueError, match=f"{name} is"):
        PrefetchSettings(**{name: value})


# For any uses at all.

BOUNDED = settings(most_models=4, most_idle_seconds=30 * SLOT, most_bins=3, most_uses=8, most_calls=3)
windows = st.lists(
    st.tuples(st.integers(1, 6), st.sets(st.sampled_from([f"acme/m{number}" for number in range(8)]), max_size=4)), min_size=1, max_size=60
)
FLEET = FleetShape(instances=1, memory_bytes=30, load_slots=2)


def drive(prefetch, steps, slot=0, told=None):
    """Observe and ask, with gaps; what was due."""
    for skip, used in steps:
        slot += 1 if skip < 6 else 2
        prefetch.observe(moment(slot), SLOT, sorted(used))
        prefetch.size(dict.fromkeys(used, BYTES), moment(slot))
        due = prefetch.due(moment(slot + 2), FLEET)
        if told is not None:
            told.append(due)
    return slot


def histograms(prefetch):
    return {name: dict(model[3]) for name, model in json.loads(gzip.decompress(prefetch.dump()))["models"].items()}


@hypothesis_settings(max_examples=40, deadline=None)
@given(windows)
def test_the_state_stays_within_its_bounds(steps):
    prefetch = Prefetch(BOUNDED)
    for number in range(len(steps)):
        drive(prefetch, steps[number : number + 1], slot=number * 2)
        assert len(prefetch) <= 4
        for idle in histograms(prefetch).values():
            assert len(idle) <= 3
            assert 0 <= sum(idle.values()) <= 8
            assert all(1 <= each <= 31 and count >= 1 for each, count in idle.items())


@hypothesis_settings(max_examples=40, deadline=None)
@given(windows)
def test_what_is_due_is_bounded_probable_and_fits(steps):
    told = []
    drive(Prefetch(BOUNDED), steps, told=told)
    for due in told:
        assert len({each.model for each in due}) == len(due) <= 3
        assert sum(each.bytes for each in due) <= 0.5 * FLEET.total_bytes
        assert all(isinstance(each, Due) and 0.01 <= each.probability <= 1 for each in due)
        assert all(each.loaded or each.probability >= 0.8 for each in due)


@hypothesis_settings(max_examples=40, deadline=None)
@given(windows, windows)
def test_a_stored_state_goes_on_exactly_as_the_one_that_was_not_stored(steps, more):
    kept, told, told_again = Prefetch(BOUNDED), [], []
    slot = drive(kept, steps)
    again = Prefetch.load(kept.dump(), BOUNDED)
    assert again.dump() == kept.dump()
    drive(kept, more, slot, told)
    drive(again, more, slot, told_again)
    assert told == told_again
    assert again.dump() == kept.dump()


@hypothesis_settings(max_examples=40, deadline=None)
@given(windows)
def test_the_same_uses_give_the_same_state(steps):
    one, other = Prefetch(BOUNDED), Prefetch(BOUNDED)
    drive(one, steps)
    drive(other, steps)
    assert one.dump() == other.dump()
    assert one.probabilities(moment(150)) == other.probabilities(moment(150))


@hypothesis_settings(max_examples=40, deadline=None)
@given(windows)
def test_the_counts_of_all_models_together_are_the_sum_of_theirs(steps):
    """Kept up to date with each use, each halving and each model that is forgotten; a state that was loaded adds them up anew."""
    prefetch = Prefetch(BOUNDED)
    now = moment(drive(prefetch, steps) + 3)
    assert Prefetch.load(prefetch.dump(), BOUNDED).probabilities(now) == prefetch.probabilities(now)


@hypothesis_settings(max_examples=40, deadline=None)
@given(st.integers(2, 90), st.integers(0, 4))
def test_any_period_is_predicted_from_four_uses_on_whatever_the_lag(period, lag):
    slots = 5 * period - 1 - lag
    prefetch = observed({"acme/cron": range(0, min(slots, 4 * period + 1), period)}, slots)
    if slots > 4 * period:
        assert probability(prefetch, "acme/cron", 5 * period) > 0.5
