"""The benchmark of prefetch counts what it says, on a small day of periodic models; and is skipped without the trace."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.prefetch import Day, Hottest, Predicted, Predictions, Windows, measure, run
from mme_fleet.traffic import Population, Trace
from mme_tenancy.warm_up.prefetch import PrefetchSettings
from tests.fleet.instantly import lru_counts

MODELS, BYTES, MINUTES = 24, 10, 1440
MEMORY = 8 * BYTES
SETTINGS = PrefetchSettings()
PHASE = 30


@pytest.fixture(scope="module")
def trace():
    """Every model is used once in its own period of 20 to 66 minutes, at a random moment of the minute."""
    random = np.random.default_rng(1)
    uses = [(at, model) for model in range(MODELS) for at in range(model, MINUTES, 20 + 2 * model)]
    seconds = np.array([at * 60 for at, _ in uses]) + random.random(len(uses)) * 60
    order = np.argsort(seconds)
    zeros = np.zeros(MODELS)
    population = Population(
        models=[f"acme/m{number}" for number in range(MODELS)],
        tenants=("acme",),
        tenant=zeros,
        memory_bytes=np.full(MODELS, BYTES),
        load_seconds=zeros,
        service_seconds=zeros,
        payload_bytes=zeros,
        born=zeros,
        gone=np.full(MODELS, np.inf),
    )
    return Trace(population, seconds[order], np.array([model for _, model in uses])[order], MINUTES * 60.0)


@pytest.fixture(scope="module")
def predictions(trace):
    return Predictions(Day(trace), SETTINGS, PHASE)


def misses(halves):
    return halves[1].misses


def test_without_a_rule_the_engine_is_a_cache_whose_misses_are_counted(trace):
    halves = run(trace, MEMORY, None)
    counts = lru_counts(trace, MEMORY)
    assert sum(half.requests for half in halves) == counts.requests == len(trace)
    assert sum(half.misses + half.compulsory for half in halves) == counts.requests - counts.hits
    assert [half.compulsory for half in halves] == [MODELS, 0]
    assert all((half.calls, half.loads, half.wasted, half.wasted_share) == (0, 0, 0, 0) for half in halves)


def test_models_with_a_period_are_loaded_before_their_uses(trace, predictions):
    before, after = run(trace, MEMORY, None), run(trace, MEMORY, Predicted(predictions, MEMORY), PHASE)
    assert misses(before) > 100
    assert misses(after) < 0.1 * misses(before)
    assert after[1].wasted_share < 0.2
    assert after[1].requests == before[1].requests


def test_rules_that_do_not_know_when_avoid_much_less(trace, predictions):
    backwards = Predicted(predictions, MEMORY, lambda found: dict(zip(found, reversed(found.values()), strict=True)))
    without = misses(run(trace, MEMORY, None))
    for rule in (Hottest(predictions.day, MEMORY, SETTINGS.memory_share), backwards):
        assert misses(run(trace, MEMORY, rule)) > 0.5 * without


def test_the_window_of_the_paper_loads_periodic_models_too_but_wastes_more(trace, predictions):
    windows, ours = (run(trace, MEMORY, rule, PHASE) for rule in (Windows(predictions.day), Predicted(predictions, MEMORY)))
    assert misses(ours) < misses(windows) < misses(run(trace, MEMORY, None))
    assert ours[1].wasted_share < windows[1].wasted_share


def test_a_load_whose_model_nobody_asks_for_is_wasted(trace):
    class Once:
        def calls(self, minute):
            return ["acme/m23"] if minute == 30 else []

    first, _second = run(trace, BYTES, Once())
    assert (first.calls, first.loads, first.wasted) == (1, 1, 1)


def test_heat_comes_late(trace):
    day = Day(trace, lag_minutes=2)
    assert day.seen(2) == {}
    assert day.seen(3) == {"acme/m0": 1}
    assert (day.window(3), day.minutes) == (0, MINUTES)


def test_without_the_trace_it_is_skipped_and_says_so(monkeypatch, tmp_path):
    monkeypatch.setenv("MME_TRACES", str(tmp_path / "none"))
    told = []
    assert list(measure(told.append)) == []
    assert len(told) == 1
    assert "skipped" in told[0]
    assert str(tmp_path / "none") in told[0]
