from __future__ import annotations

import pytest

from mme_tenancy.routes import Canary, Route, Target

ROUTE = Route("shared", "AllTraffic", "v1-0123456789ab", "acme/iris/v1-0123456789ab.tar.gz")
NEW = Target(ROUTE.endpoint, ROUTE.variant, "v2-abcdef012345", "acme/iris/v2-abcdef012345.tar.gz")
KEYS = [f"user-{number}" for number in range(20_000)]


def with_canary(percent):
    return Route(ROUTE.endpoint, ROUTE.variant, ROUTE.version, ROUTE.target_model, Canary(NEW.version, NEW.target_model, percent))


def test_without_a_canary_every_key_goes_to_the_active_version():
    assert {ROUTE.choose(key) for key in KEYS} == {ROUTE.active}


@pytest.mark.parametrize("percent", [0.5, 5, 50, 99])
def test_a_canary_gets_its_part_of_the_keys(percent):
    share = sum(with_canary(percent).choose(key) == NEW for key in KEYS) / len(KEYS)
    assert share == pytest.approx(percent / 100, abs=0.01)


def test_a_key_sticks_while_the_percentage_grows():
    small, large = with_canary(10), with_canary(30)
    assert all(large.choose(key) == NEW for key in KEYS if small.choose(key) == NEW)


def test_another_canary_takes_other_keys():
    other = Route(ROUTE.endpoint, ROUTE.variant, ROUTE.version, ROUTE.target_model, Canary("v3-abcdef012345", "other", 10))
    assert {key for key in KEYS if other.choose(key).version.startswith("v3")} != {
        key for key in KEYS if with_canary(10).choose(key) == NEW
    }
