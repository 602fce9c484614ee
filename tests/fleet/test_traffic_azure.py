"""On the Azure traces, one instance of the fleet hits as often as exact LRU did elsewhere: the published table within half a point.

Sizes are the average memory of the trace's apps, and calls lie at random within their minute.
"""

import pytest

from mme_fleet.traffic import read_azure
from tests.fleet.instantly import fleet_counts, lru_counts
from tests.fleet.traces import CAPACITIES, FOLDER, HALF_A_POINT, TAIL_HIT_RATIOS, WHOLE_HIT_RATIOS, needs_traces

pytestmark = needs_traces
SEED = 1


@pytest.fixture(scope="module")
def sample():
    return read_azure(FOLDER)


@pytest.fixture(scope="module")
def whole(sample):
    return sample.trace(SEED)


def budget(trace, share):
    return int(trace.population.total_bytes * share)


def test_the_sample_is_the_one_that_the_table_was_made_from(sample):
    tail = sample.tail()
    assert (len(sample), len(tail), sample.calls.sum(), tail.calls.sum()) == (1250, 910, 18_279_781, 155_724)


def test_on_the_tail_the_fleet_hits_as_often_as_the_table_says(sample):
    tail = sample.tail().trace(SEED)
    for share, expected in zip(CAPACITIES, TAIL_HIT_RATIOS, strict=True):
        counted = fleet_counts(tail, budget(tail, share))
        assert counted.hit_ratio == pytest.approx(expected, abs=HALF_A_POINT), share
        assert counted == lru_counts(tail, budget(tail, share)), share


def test_on_the_whole_day_exact_lru_hits_as_often_as_the_table_says(whole):
    ratios = [lru_counts(whole, budget(whole, share)).hit_ratio for share in CAPACITIES]
    assert ratios == pytest.approx(WHOLE_HIT_RATIOS, abs=HALF_A_POINT)


@pytest.mark.e2e
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("share", "expected"), list(zip(CAPACITIES, WHOLE_HIT_RATIOS, strict=True)))
def test_on_the_whole_day_the_fleet_hits_as_often_as_the_table_says(whole, share, expected):
    counted = fleet_counts(whole, budget(whole, share))  # 18 million requests
    assert counted.hit_ratio == pytest.approx(expected, abs=HALF_A_POINT)
    assert counted == lru_counts(whole, budget(whole, share))
