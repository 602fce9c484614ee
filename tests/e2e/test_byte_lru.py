"""One million requests over 10,000 models: the fleet against an independent byte LRU, without a difference."""

import pytest

from tests.fleet.byte_lru import check


@pytest.mark.e2e
@pytest.mark.parametrize("seed", [11, 12, 13])
def test_the_fleet_hits_loads_and_evicts_a_million_times_as_a_byte_lru(seed):
    check(seed, 1_000_000)
