"""Byte-seconds by the residency engine: models stay until others push them out."""

from __future__ import annotations

import pytest

from mme_cli.top.residency import FleetSize, byte_seconds, sizes_of
from mme_facts.grammar import HeatKey
from mme_tenancy.heat import Counts, ModelHeat, PoolHeat

START = 1_795_953_600
MIB = 1 << 20


def window(number, **requests):
    rows = tuple(ModelHeat(tenant, "m", "v1-0123456789ab", Counts(count)) for tenant, count in requests.items())
    return PoolHeat(HeatKey("p", START + number * 300, 300), ("one",), rows)


def resident(windows, fleet, size=10 * MIB, *, start=START, end=None):
    return byte_seconds(windows, lambda _row: size, fleet, start=start, end=end or windows[-1].key.end)


def test_a_model_is_resident_from_its_first_request_to_the_end():
    found = resident([window(0, acme=1), window(1), window(2)], FleetSize(1, 100 * MIB, 2 * MIB))
    assert 600 * 12 * MIB <= found["acme"] <= 900 * 12 * MIB


def test_what_came_before_the_range_counts_only_within():
    windows = [window(0, acme=1), window(1)]
    assert resident(windows, FleetSize(1, 100 * MIB, 0), start=START + 300) == {"acme": pytest.approx(300 * 10 * MIB)}


def test_a_model_that_is_pushed_out_is_resident_no_more():
    windows = [window(0, acme=5), window(1, globex=5), window(2, globex=5)]
    found = resident(windows, FleetSize(1, 15 * MIB, 0))
    assert found["acme"] <= 600 * 10 * MIB
    assert found["globex"] >= 300 * 10 * MIB
    assert sum(found.values()) <= 900 * 10 * MIB


def test_memory_never_holds_more_than_there_is():
    tenants = {f"t{number}": 3 for number in range(40)}
    found = resident([window(number, **tenants) for number in range(4)], FleetSize(2, 100 * MIB, MIB))
    assert sum(found.values()) <= 2 * 100 * MIB * 1200
    assert sum(found.values()) >= 0.8 * 2 * 88 * MIB * 1200
    assert set(found) == set(tenants)


def test_a_model_larger_than_an_instance_counts_as_all_of_it():
    found = resident([window(0, acme=1)], FleetSize(1, 100 * MIB, 2 * MIB), size=5000 * MIB)
    assert 0 < found["acme"] <= 300 * 100 * MIB


def test_without_heat_nobody_is_resident():
    assert resident([window(0)], FleetSize(1, 100 * MIB)) == {}
    assert byte_seconds([], lambda _row: 1, FleetSize(1, 1), start=0, end=1) == {}


def test_the_same_heat_gives_the_same_answer():
    windows = [window(0, acme=5, globex=2), window(1, globex=9)]
    assert resident(windows, FleetSize(2, 30 * MIB, MIB)) == resident(windows, FleetSize(2, 30 * MIB, MIB))


def test_many_models_stay_quick_because_each_is_asked_for_seldom():
    tenants = {f"t{number}": 100_000 for number in range(1000)}
    found = resident([window(number, **tenants) for number in range(3)], FleetSize(1, 1 << 40, 0), size=MIB)
    assert len(found) == 1000


def test_a_version_that_is_not_known_counts_as_the_mean():
    row = ModelHeat("acme", "m", "v9-0123456789ab", Counts(1))
    assert sizes_of({("a", "m", "v"): 10, ("b", "m", "v"): 20})(row) == 15
    assert sizes_of({})(row) == 0
