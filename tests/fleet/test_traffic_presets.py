"""The presets: their traffic is like the traces that they were fitted to."""

import numpy as np
import pytest

from mme_fleet.traffic import (
    AZURE_2019,
    AZURE_2019_TAIL,
    GENAI_2026,
    GENAI_LOAD_SECONDS,
    GENAI_LORA_LOAD_SECONDS,
    generate,
    read_azure,
    read_genai_loads,
    read_genai_requests,
    shape_of,
)
from tests.fleet.instantly import lru_counts
from tests.fleet.traces import CAPACITIES, FOLDER, needs_traces

SEEDS = (11, 12, 13)
AZURE_POINTS, GENAI_POINTS = 0.08, 0.03


def hit_ratios(trace):
    return [lru_counts(trace, int(trace.population.total_bytes * share)).hit_ratio for share in CAPACITIES]


@pytest.mark.parametrize("preset", [AZURE_2019, AZURE_2019_TAIL, GENAI_2026])
def test_presets_make_traffic_of_any_size(preset):
    trace = generate(preset.resized(models=500, requests=20_000, days=1), SEEDS[0])
    assert len(trace) == pytest.approx(20_000, rel=0.1)
    assert len(trace.population.tenants) == pytest.approx(500 * (preset.tenants or preset.models) / preset.models, abs=1)


@needs_traces
@pytest.mark.parametrize(("preset", "most_calls"), [(AZURE_2019, 5000), (AZURE_2019_TAIL, 1440)], ids=["whole", "tail"])
def test_the_azure_presets_hit_as_often_as_the_trace(preset, most_calls):
    trace = read_azure(FOLDER).tail(most_calls).trace(SEEDS[0])
    assert (preset.models, preset.requests) == (len(trace.population), len(trace))
    assert_alike(preset, trace, points=AZURE_POINTS)
    made, real = shape_of(generate(preset, SEEDS[0])), shape_of(trace)
    assert made.distance(real) < 0.04
    assert list(made.top_shares.values()) == pytest.approx(list(real.top_shares.values()), abs=0.04)


@needs_traces
def test_the_genai_preset_hits_as_often_as_the_trace():
    trace = read_genai_requests(FOLDER).trace(memory_bytes=10**9, load_seconds=1)
    assert (GENAI_2026.models, GENAI_2026.requests) == (len(trace.population), len(trace))
    assert GENAI_2026.tenants == len(np.unique(trace.population.tenant))
    assert_alike(GENAI_2026, trace, points=GENAI_POINTS)


def assert_alike(preset, trace, *, points):
    """Mean hit ratios of three seeds against the trace's, at every capacity."""
    made = np.mean([hit_ratios(generate(preset, seed, each_request=False)) for seed in SEEDS], axis=0)
    assert made.tolist() == pytest.approx(hit_ratios(trace), abs=points)


@needs_traces
@pytest.mark.parametrize(("kind", "distribution"), [("base", GENAI_LOAD_SECONDS), ("lora", GENAI_LORA_LOAD_SECONDS)])
def test_the_load_times_have_the_percentiles_of_the_trace(kind, distribution):
    loads = read_genai_loads(FOLDER / f"alibaba_gentd26_{kind}_load_ms.csv.gz")
    made = distribution.sample(np.random.default_rng(SEEDS[0]), 50_000)
    assert np.percentile(made, (10, 50, 75, 90)) == pytest.approx(np.percentile(loads, (10, 50, 75, 90)), rel=0.25)
    assert made.mean() == pytest.approx(loads.mean(), rel=0.05)
