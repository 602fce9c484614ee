from __future__ import annotations

from dataclasses import replace

import pytest

from mme_tenancy.routes import Canary, Model, Route, Target

ROUTE = Route("shared", "AllTraffic", "v1-0123456789ab", "acme/iris/v1-0123456789ab.tar.gz")
NEW = Target("other-pool", "Variant", "v2-abcdef012345", "acme/iris/v2-abcdef012345.tar.gz")
NOW, LATER = "2026-11-29T12:00:00.000Z", "2026-11-29T12:00:01.000Z"
KEYS = [f"user-{number}" for number in range(20_000)]


def with_canary(percent):
    return Route(
        ROUTE.endpoint,
        ROUTE.variant,
        ROUTE.version,
        ROUTE.target_model,
        Canary(NEW.endpoint, NEW.variant, NEW.version, NEW.target_model, percent),
    )


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
    other = Route(
        ROUTE.endpoint, ROUTE.variant, ROUTE.version, ROUTE.target_model, Canary("shared", "AllTraffic", "v3-abcdef012345", "other", 10)
    )
    assert {key for key in KEYS if other.choose(key).version.startswith("v3")} != {
        key for key in KEYS if with_canary(10).choose(key) == NEW
    }


def test_a_model_shows_its_canary_and_what_becomes_of_it():
    model = Model("acme", "iris", 2, NOW, NOW, with_canary(10))
    assert model.document()["active_version"] == ROUTE.version
    assert model.document()["canary"] == {"version": NEW.version, "percent": 10}
    deleted = model.delete(LATER, retiring_below=2)
    assert (deleted.route, deleted.retired_at, deleted.retired_through, deleted.document()["retiring"]) == (None, LATER, 2, True)
    done = deleted.retired(None, LATER)
    assert (done.document()["retiring"], done.document()["retired_at"]) == (False, LATER)
    again = done.count_up(LATER)
    assert (again.retired_at, again.last_version, again.retired_through) == (None, 3, 2)
    assert [record.rev for record in (deleted, done, again)] == [2, 3, 4]


def test_a_component_serves_the_active_version_alone():
    dedicated = replace(with_canary(10), component="acme-iris-1")
    assert {target.component for target in map(dedicated.choose, KEYS) if target.version == ROUTE.version} == {"acme-iris-1"}
    assert {target for target in map(dedicated.choose, KEYS) if target.version != ROUTE.version} == {NEW}
    assert [dedicated.choose(key) == NEW for key in KEYS] == [with_canary(10).choose(key) == NEW for key in KEYS]


def test_what_is_invoked_has_one_name_of_its_own():
    assert (ROUTE.active.key, replace(ROUTE, component="acme-iris-1").active.key) == (ROUTE.target_model, "acme-iris-1")
