"""Costs are split exactly."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mme_cli.top.split import Share, Use, divide, split

weights = st.dictionaries(
    st.sampled_from("abcdefgh"), st.floats(0, 1e18, allow_nan=False) | st.integers(0, 10**15) | st.just(0.1), max_size=8
)
uses = st.builds(Use, st.integers(0, 10**18), weights, weights)


@settings(deadline=None)
@given(st.lists(uses, max_size=6), st.fractions(0, 1))
def test_shares_add_up_to_the_cost_whatever_was_used(given_uses, memory_share):
    found = split(given_uses, memory_share=memory_share)
    assert found.cost == sum(use.cost for use in given_uses)
    assert found.unused == sum(use.cost for use in given_uses if not any(use.byte_seconds.values()) and not any(use.served_ms.values()))
    assert all(share.memory >= 0 and share.time >= 0 for share in found.shares.values())


@settings(deadline=None)
@given(st.integers(0, 10**12), weights.filter(lambda given: any(given.values())))
def test_nobody_is_more_than_a_unit_away_from_its_proportion(cost, given_weights):
    parts = divide(cost, given_weights)
    total = sum(map(Fraction, given_weights.values()))
    assert sum(parts.values()) == cost
    assert all(abs(part - cost * Fraction(given_weights[who]) / total) < 1 for who, part in parts.items())


@settings(deadline=None)
@given(st.integers(0, 10**9), weights.filter(lambda given: any(given.values())))
def test_who_used_nothing_pays_nothing_and_the_order_of_names_changes_nothing(cost, given_weights):
    parts = divide(cost, given_weights)
    assert all(parts[who] == 0 for who, weight in given_weights.items() if weight == 0)
    assert divide(cost, dict(reversed(given_weights.items()))) == parts


def test_memory_and_time_pay_half_each():
    found = split([Use(1000, {"resident": 1.0}, {"busy": 3.0, "resident": 1.0})])
    assert found.shares == {"resident": Share(500, 125), "busy": Share(0, 375)}
    assert (found.unused, found.cost) == (0, 1000)


@pytest.mark.parametrize(
    ("byte_seconds", "served_ms", "shares"),
    [({"a": 1.0}, {}, {"a": Share(7, 0)}), ({"a": 0.0}, {"b": 2.0}, {"b": Share(0, 7)}), ({}, {}, {})],
)
def test_a_half_that_nobody_used_goes_with_the_other(byte_seconds, served_ms, shares):
    found = split([Use(7, byte_seconds, served_ms)])
    assert found.shares == shares
    assert found.cost == 7


@pytest.mark.parametrize("weight", [-1.0, float("inf"), float("nan")])
def test_a_use_that_cannot_be_is_refused(weight):
    with pytest.raises(ValueError, match="must be 0 or more"):
        Use(1, {"a": weight}, {})
    with pytest.raises(ValueError, match="must be 0 or more"):
        Use(1, {}, {"a": weight})
    with pytest.raises(ValueError, match="cost is -1"):
        Use(-1, {}, {})
