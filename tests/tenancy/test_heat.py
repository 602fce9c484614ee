"""Heat as values: what is written comes back, and ranges say what they do not cover."""

from __future__ import annotations

import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mme_facts.grammar import GrammarError, HeatKey
from mme_facts.heat import HeatRules
from mme_tenancy.heat import Counts, HeatError, ModelHeat, PoolHeat, read
from mme_tenancy.testing_heat import MemoryHeat

START = 1_796_000_100 // 300 * 300
KEY = HeatKey("xgboost", START, 300)


def heat(start=START, *, pool="xgboost", seconds=300, requests=3, **members):
    rows = (ModelHeat("acme", "iris", "v1-0123456789ab", Counts(requests, 30, 3, 1, 0, 12.5)),)
    return PoolHeat(HeatKey(pool, start, seconds), ("one",), rows, collected_at="2026-11-30T01:22:00.000Z", **members)


def test_what_is_written_comes_back():
    one = heat(tail=Counts(5, 50, 5, 2, 1, 99.0), truncated=True, recounted_at="2026-11-30T02:20:00.000Z", late_lines=4)
    assert PoolHeat.load(one.key, one.dump()) == one
    assert one.total == Counts(8, 80, 8, 3, 1, 111.5)


def test_the_same_heat_gives_the_same_bytes():
    assert heat().dump() == heat().dump()


@pytest.mark.parametrize(
    "content",
    [b"", b"junk", *(gzip.compress(text, mtime=0) for text in (b"{", b"{}", b'{"schema": 2}', b"[]")), heat().dump()[:-9]],
    ids=["nothing", "junk", "broken", "empty", "schema", "list", "cut"],
)
def test_what_the_collector_did_not_write_is_refused_by_its_key(content):
    with pytest.raises(HeatError, match=r"heat/xgboost/\d{8}T\d{6}Z-300s\.json\.gz"):
        PoolHeat.load(KEY, content)


def test_a_column_that_a_later_version_adds_is_passed_over():
    document = json.loads(gzip.decompress(heat().dump()))
    document["columns"].append("later")
    document["rows"][0].append(1)
    assert PoolHeat.load(KEY, gzip.compress(json.dumps(document).encode())) == heat()


def test_a_range_holds_the_windows_within_and_names_the_gaps():
    store = MemoryHeat(*(heat(START + at) for at in (-300, 0, 600, 1200)), heat(START, pool="other"))
    found = read(store, "xgboost", start=START, end=START + 1400)
    assert [window.key.start - START for window in found.windows] == [0, 600]
    assert [(start - START, end - START) for start, end in found.gaps] == [(300, 600), (900, 1400)]
    assert found.by_model() == {("acme", "iris"): Counts(6, 60, 6, 2, 0, 25.0)}
    assert list(found.models()) == [("acme", "iris")]
    assert found.total.requests == 6


def test_a_range_without_heat_is_one_gap():
    assert read(MemoryHeat(), "xgboost", start=10, end=20).gaps == ((10, 20),)


@settings(deadline=None)
@given(
    st.integers(0, 4_000_000_000), st.integers(1, 86_400), st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,20}[A-Za-z0-9])?", fullmatch=True)
)
def test_a_key_names_pool_and_window(start, seconds, pool):
    key = HeatKey(pool, start, seconds)
    assert HeatKey.parse(key.key) == key
    assert key.key.startswith("heat/")


@pytest.mark.parametrize(
    "key",
    [
        "heat/xgboost/20261130T012000Z.json.gz",
        "heat/xgboost/20261130T012000Z-0s.json.gz",
        "heat/xgboost/20261330T012000Z-300s.json.gz",
        "heat//20261130T012000Z-300s.json.gz",
        "heat/../20261130T012000Z-300s.json.gz",
        "heat/recounted.json",
        "models/xgboost/20261130T012000Z-300s.json.gz",
    ],
)
def test_another_key_is_not_heat(key):
    with pytest.raises(GrammarError):
        HeatKey.parse(key)


@pytest.mark.parametrize(
    "members",
    [
        {"pools": {}},
        {"pools": {"a/b": ("e",)}},
        {"pools": {"a": ()}},
        {"pools": {"a": ("e",), "b": ("e",)}},
        {"window_seconds": 90},
        {"window_seconds": 420},
        {"window_seconds": 0},
        {"delay_seconds": -1},
        {"recount_seconds": 60},
        {"catch_up_seconds": 100},
        {"windows_a_pass": 0},
        {"queries_at_once": 0},
    ],
)
def test_rules_that_cannot_be_are_refused_by_name(members):
    with pytest.raises(ValueError, match=next(iter(members)).removesuffix("s")):
        HeatRules(**{"pools": {"a": ("e",)}, **members})


def test_rules_come_back_as_they_were_written():
    rules = HeatRules({"xgboost": ("one", "two"), "dedicated": ("three",)}, window_seconds=60)
    assert HeatRules.load(rules.dump()) == rules
    assert (rules.pool_of("two"), rules.pool_of("nobody")) == ("xgboost", None)
