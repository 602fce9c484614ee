"""The benchmark of the warm-up on a toy day: what it starts from, what it measures, how it judges, and that it can be cut off."""

from xml.etree import ElementTree

import numpy as np
import pytest

from benchmarks.warm_up.before import Before, live_until, perfect_copy
from benchmarks.warm_up.cells import CHANGES, Cell, Change, Fleet, cells, starts
from benchmarks.warm_up.judge import Measured, bad_variants, judge
from benchmarks.warm_up.measure import measure_table
from benchmarks.warm_up.plot import plot
from benchmarks.warm_up.report import document, markdown
from benchmarks.warm_up.results import Results
from benchmarks.warm_up.runs import BEFORE, jobs
from benchmarks.warm_up.variants import VARIANTS, Outcome, Scene, run
from benchmarks.warm_up.workload import Workload
from mme_fleet import HashRing
from mme_fleet.traffic import TrafficSettings, generate

START = 5400.0
FLEET = Fleet("toy", "one home", 5, 4, 0.6)


@pytest.fixture(scope="module")
def load() -> Workload:
    draws = tuple(generate(TrafficSettings(models=120, requests=30_000, days=1 / 12), seed, each_request=False) for seed in (1, 1))
    models = draws[0].population.models
    sizes = np.random.default_rng(3).integers(20_000_000, 400_000_000, len(models))
    return Workload("toy", models, sizes, 0.3 + sizes / 140e6, np.full(len(models), 0.02), draws)


@pytest.fixture(scope="module")
def before(load) -> Before:
    return live_until(load, FLEET, START)


def test_a_fleet_lives_until_its_change_and_is_known_then(load, before):
    assert list(before.resident) == [f"instance-{number}" for number in range(1, 6)]
    home = HashRing(before.resident).home
    assert all(home(model) == name for name, models in before.resident.items() for model in models)
    for models in before.resident.values():
        assert sum(load.bytes[load.number[model]] for model in models) <= before.memory_bytes
    assert sum(before.requests) == len(load.between(START - 600, START)[0])
    assert 0 < sum(before.misses) < 0.2 * sum(before.requests)
    asked = load.between(START - 60, START)[1]
    assert {load.models[number] for number in asked[:-20]} & set(before.last_used)


@pytest.mark.parametrize("router", ["sticky", "one home", "least outstanding"])
@pytest.mark.parametrize("name", CHANGES)
def test_a_perfect_copy_has_everything_where_it_is_looked_for_as_far_as_memory_goes(load, router, name):
    change = CHANGES[name]
    models = load.models[:40]
    size = 2 * max(int(load.bytes[load.number[model]]) for model in models) * 40
    held = {f"instance-{number + 1}": models[number :: change.before] for number in range(change.before)}
    before = Before(size, held, {model: float(age) for age, model in enumerate(models)}, [0], [1])
    copied = perfect_copy(load, router, change, before)
    names = [f"instance-{number + (change.before if change.update else 0)}" for number in range(1, change.after + 1)]
    assert list(copied) == names
    assert {model for kept in copied.values() for model in kept} == set(models)
    if router == "one home":
        home = HashRing(names).home
        assert all(model in copied[home(model)] for model in models)
    tight = Before(size // 160, held, before.last_used, [0], [1])
    for kept in perfect_copy(load, router, change, tight).values():
        assert sum(load.bytes[load.number[model]] for model in kept) <= tight.memory_bytes
        assert kept == sorted(kept, key=before.last_used.__getitem__), "the least recently used first"


def test_an_update_costs_cold_requests_and_a_warm_up_avoids_some_of_them(load, before):
    scene = Scene(load, FLEET, CHANGES["update"], START, before)
    outcomes = {name: run(scene, VARIANTS[name]) for name in ("none", "reference", "warm-up", "floor", "clairvoyant", "copies")}
    cold = {name: sum(outcome.misses[:5]) for name, outcome in outcomes.items()}
    assert cold["reference"] < cold["floor"] < cold["warm-up"] < cold["none"]
    assert cold["clairvoyant"] < cold["none"]
    warm = outcomes["warm-up"]
    assert warm.ended == "done"
    assert warm.calls[0] <= 5 * 20, "five seconds of the first ten, at 20 calls a second"
    assert sum(warm.calls) >= warm.loaded > 0
    assert 0 < warm.least_seconds <= warm.seconds
    assert 0.5 < warm.bytes_back <= 1
    assert sum(outcomes["copies"].calls) > 10 * sum(warm.calls)
    assert outcomes["none"].requests[:6] == outcomes["reference"].requests
    assert run(scene, VARIANTS["none"]).misses == outcomes["none"].misses, "a run is determined by its arguments"


def test_a_warm_up_that_is_late_begins_a_minute_later(load, before):
    late = run(Scene(load, FLEET, CHANGES["5 -> 7"], START, before), VARIANTS["late"])
    assert late.calls[:6] == [0] * 6
    assert late.calls[6] > 0


# The verdicts.


def outcome(misses: float, *rest: float, minutes: int = 60, **changes) -> dict:
    """Of a run with so many misses in each of the first five minutes, or those in the first ones; of 6,000 requests a minute."""
    first = [misses, *rest] if rest else [misses] * 5
    given = {
        "calls": [200, 200],
        "seconds": 30.0,
        "least_seconds": 20.0,
        "loaded": 50,
        "ended": "done",
        "bytes_back": 0.9,
        "heat_back": 0.99,
    }
    return {"misses": (first + [10] * minutes)[:minutes], "requests": [6000] * minutes, "failed": 0, **given, **changes}


def measured(cell: Cell, **variants) -> Measured:
    good = {
        BEFORE: [{"misses": [10] * 10, "requests": [6000] * 10}] * 3,
        "none": [outcome(100)] * 3,
        "reference": [outcome(10, minutes=6)] * 3,
        "noise": [outcome(100)] * 3,
        **{name: [outcome(20, minutes=variant.minutes)] * 3 for name, variant in VARIANTS.items() if variant.engine},
    }
    return Measured(cell, {**good, **variants})


UPDATE = Cell(Fleet("toy", "sticky", 5, 8, 0.35), "update")
LOSS = Cell(Fleet("toy", "one home", 4, 8, 0.35), "loss")


def test_a_cell_that_holds_all_bounds_misses_none():
    result = judge(measured(UPDATE))
    assert not result.overloaded
    assert set(result.judged) == {
        "after_first_minute",
        "five_minutes",
        "of_clairvoyant",
        "harm_mean",
        "harm_worst",
        "traffic",
        "done",
        "time",
        "bytes_back",
        "heat_back",
    }
    assert result.missed == []
    assert result.extra == (450.0, 360.0)
    assert result.reduction["warm-up"] == pytest.approx(8 / 9)


@pytest.mark.parametrize(
    ("changes", "missed"),
    [
        ({"misses": [0, 40, 40, 40, 40] + [10] * 55}, "after_first_minute"),
        ({"misses": [400, 10, 10, 10, 10] + [10] * 55}, "five_minutes"),
        ({"misses": [10] * 30 + [17] * 30}, "harm_mean"),
        ({"calls": [250, 251]}, "traffic"),
        ({"seconds": 186.0, "least_seconds": 170.0}, "done"),
        ({"seconds": 36.0}, "time"),
        ({"bytes_back": 0.84}, "bytes_back"),
        ({"heat_back": 0.97}, "heat_back"),
    ],
)
def test_a_cell_that_misses_a_bound_is_told_which(changes, missed):
    first = measured(UPDATE, **{"warm-up": [{**outcome(20), **changes}] * 3})
    assert missed in judge(first).missed
    assert " !**" in markdown([judge(first)], {"late": {}}, 3)
    assert document([judge(first)])[0]["missed"] == judge(first).missed


def test_one_start_with_harm_beyond_the_noise_is_enough():
    harmed = outcome(*[20] * 5, *[23] * 10)
    result = judge(measured(UPDATE, **{"warm-up": [harmed, outcome(20), outcome(20)]}))
    assert result.missed == ["harm_worst"]
    noisy = [outcome(*[100] * 5, *[25] * 10)] * 3
    assert judge(measured(UPDATE, noise=noisy, **{"warm-up": [harmed, outcome(20), outcome(20)]})).missed == []


def test_a_clairvoyant_plan_that_does_much_better_shows_what_was_missed():
    half = outcome(230, 20, 20, 20, 20)
    assert judge(measured(UPDATE, **{"warm-up": [half] * 3})).missed == ["of_clairvoyant"]


def test_the_bound_after_a_loss_is_that_of_one_home_alone():
    least = outcome(360, 10, 10, 10, 10)
    same = {"warm-up": [least] * 3, "clairvoyant": [{**least, "misses": least["misses"][:6], "requests": least["requests"][:6]}] * 3}
    assert judge(measured(UPDATE, none=[outcome(110)] * 3, **same)).missed == ["five_minutes"]
    assert judge(measured(LOSS, none=[outcome(110)] * 3, **same)).missed == []
    sticky = Cell(Fleet("toy", "sticky", 4, 8, 0.35), "loss")
    assert "five_minutes" not in judge(measured(sticky, **same)).judged


def test_cells_with_few_extra_cold_requests_are_judged_by_the_harm_alone():
    result = judge(measured(UPDATE, none=[outcome(15)] * 3))
    assert result.extra == (25.0, 20.0)
    assert not {"after_first_minute", "five_minutes", "of_clairvoyant"} & set(result.judged)
    assert "harm_mean" in result.judged


def test_overloaded_cells_are_not_judged():
    result = judge(measured(UPDATE, **{BEFORE: [{"misses": [301], "requests": [6000]}] * 3}))
    assert result.overloaded
    assert result.judged == {}
    assert "overloaded" in markdown([result], {}, 3)


def test_a_bad_variant_misses_bounds_and_a_good_one_in_its_place_is_found_out():
    bad = measured(UPDATE, late=[outcome(90, minutes=6)] * 3, copies=[outcome(20, minutes=16, calls=[900])] * 3)
    missed = bad_variants([bad])
    assert set(missed["late"]) == {"after_first_minute", "five_minutes", "of_clairvoyant"}
    assert missed["copies"] == {"traffic": 1}
    assert missed["unbounded"] == {}


def test_a_plot_is_a_document_with_a_panel_for_each_change_and_memory():
    other = Cell(Fleet("toy", "sticky", 2, 8, 0.6), "2 -> 3")
    root = ElementTree.fromstring(plot("A & B", [measured(UPDATE), measured(other)]))
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "A & B" in texts
    assert "blue/green update of 5, memory 0.35" in texts
    assert "2 -> 3 instances, memory 0.6" in texts
    assert len([1 for element in root.iter("{http://www.w3.org/2000/svg}path")]) == 3 + 2 * 3


# The course of it.


def test_the_whole_table_is_what_the_issue_asks_for():
    whole = list(cells())
    assert len(whole) == len(set(whole)) == 2 * 3 * 4 * 3 * 2
    assert len(starts()) == 12
    assert all(3600 <= start <= 23 * 3600 for start in starts())
    assert all(set(starts(count)) <= set(starts()) and len(set(starts(count))) == count for count in range(1, 13))
    assert set(cells(quick=True)) <= set(whole)


def test_what_is_measured_is_not_measured_again_even_after_a_kill_in_the_middle_of_a_line(tmp_path):
    path = tmp_path / "results.jsonl"
    first = Results(path)
    todo = list(jobs([UPDATE], [60.0], first))
    assert [name for _, name in todo[0].wanted] == list(VARIANTS)
    key = "toy|sticky|5|8|0.35|update"
    first.put({(f"{key}|none|60", False): {"misses": [1]}, (f"{key}|warm-up|60", True): {"misses": [2]}})
    with path.open("a") as file:
        file.write('{"code": "half')
    again = Results(path)
    assert again.get(f"{key}|none|60", engine=False) == {"misses": [1]}
    assert again.get(f"{key}|none|60", engine=True) is None, "it is the outcome of other code"
    (job,) = jobs([UPDATE], [60.0], again)
    assert [name for _, name in job.wanted] == [name for name in VARIANTS if name not in {"none", "warm-up"}]
    again.put({(f"{key}|late|60", True): {"misses": [3]}})
    assert Results(path).get(f"{key}|late|60", engine=True) == {"misses": [3]}, "a torn line costs itself alone"
    assert Results(path, fresh=True).get(f"{key}|none|60", engine=False) is None


def test_outcomes_of_other_code_are_left_out(tmp_path):
    path = tmp_path / "results.jsonl"
    Results(path).put({("a", True): {"misses": [1]}})
    path.write_text(path.read_text().replace('"code": "', '"code": "0'))
    assert Results(path).get("a", engine=True) is None


def test_a_change_knows_its_new_instances():
    assert [change.new for change in CHANGES.values()] == [2, 1, 5, 0]
    assert Change(3, 2).new == 0
    assert Outcome([], []).loaded == 0


def test_a_pattern_that_no_cell_matches_is_refused(tmp_path):
    with pytest.raises(LookupError, match=r"no cell matches 'azure\|warm'"):
        measure_table(tmp_path, only="azure|warm")
