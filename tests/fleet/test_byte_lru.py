"""The fleet against an independent byte LRU: `make e2e` compares a million requests a seed."""

import pytest

from tests.fleet.byte_lru import check


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_fleet_hits_loads_and_evicts_as_a_byte_lru(seed):
    check(seed, 40_000)
