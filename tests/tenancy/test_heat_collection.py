"""The collector's passes, over log lines as the invocation path writes them and the local cloud's own query language."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mme_facts.grammar import HeatKey
from mme_facts.heat import HeatRules
from mme_facts.metrics import CATALOGUE
from mme_facts.metrics_own import HEAT_METRICS
from mme_tenancy.handlers.heat import HeatCollector
from mme_tenancy.heat import Counts
from mme_tenancy.heat_collection import HeatCollection, Window, missing_windows
from mme_tenancy.testing_heat import MemoryHeat
from tests.tenancy.log_lines import Log

NOON = 1_795_953_600
RULES = HeatRules({"xgboost": ("one",), "sklearn": ("two", "three")})


@pytest.fixture
def log():
    return Log()


@pytest.fixture
def store():
    return MemoryHeat()


@pytest.fixture
def run(log, store, clock):
    """A pass at so many seconds after noon."""

    def run(at, rules=RULES, seconds=60.0):
        clock.now = float(NOON + at)
        return HeatCollection(log, store, clock, rules).collect(clock.monotonic() + seconds)

    return run


def heat(store, at, pool="xgboost", seconds=300):
    found = store.get(HeatKey(pool, NOON + at, seconds))
    return found and found[0]


def windows(store, pool="xgboost"):
    return [key.start - NOON for key in store.windows(pool, since=0)]


def test_a_closed_window_becomes_an_object_for_each_pool(log, store, run):
    log.write(NOON + 10, count=3, cold=1)
    log.write(NOON + 20, tenant="globex", model="churn", failed=1)
    log.write(NOON + 299.9, endpoint="two", model="wine", model_latency_ms=None)
    log.write(NOON + 30, endpoint="three", model="wine")
    done = run(430)
    assert (done.windows, done.missing, done.failed, done.models, done.lag_seconds) == (2, 0, 0, 4, 130)
    one, other = heat(store, 0), heat(store, 0, "sklearn")
    assert [(row.tenant, row.model, row.counts) for row in one.rows] == [
        ("acme", "iris", Counts(3, 30, 6, 3, 0, 4.5)),
        ("globex", "churn", Counts(1, 10, 2, 0, 1, 1.5)),
    ]
    assert [row.counts for row in other.rows] == [Counts(1, 10, 2, 0, 0, 0.0), Counts(1, 10, 2, 0, 0, 1.5)]
    assert not one.truncated
    assert (one.endpoints, other.endpoints) == (("one",), ("two", "three"))
    assert one.collected_at == "2026-11-29T12:07:10.000Z"


def test_a_window_ends_before_the_next_one_begins(log, store, run):
    for at in (-0.001, 0, 299.999, 300):
        log.write(NOON + at)
    run(430)
    assert heat(store, 0).total.requests == 2


def test_a_window_without_requests_is_an_empty_object(store, run):
    run(430)
    assert heat(store, 0).rows == ()
    assert heat(store, 0, "sklearn").total == Counts()


def test_a_window_is_not_counted_before_its_delay_is_over(store, run):
    run(419)
    assert windows(store) == [-300]


def test_a_second_pass_asks_nothing_and_changes_nothing(log, store, run):
    log.write(NOON + 10)
    run(430)
    before, asked = dict(store.objects), len(log.texts)
    assert run(431).windows == 0
    assert (store.objects, len(log.texts)) == (before, asked)


def test_lines_without_a_route_are_not_heat(log, store, run):
    log.write(NOON + 10, endpoint=None)
    log.write(NOON + 10)
    run(430)
    assert heat(store, 0).total.requests == 1


def test_requests_to_endpoints_of_no_pool_are_told(log, store, run):
    log.write(NOON + 10, endpoint="removed", count=7)
    done = run(430)
    assert done.unassigned == 7
    assert heat(store, 0).total.requests == 0


def test_versions_of_a_model_are_told_apart(log, store, run):
    log.write(NOON + 10, version="v1-0123456789ab", count=2)
    log.write(NOON + 20, version="v2-0123456789ab")
    run(430)
    assert [(row.version, row.counts.requests) for row in heat(store, 0).rows] == [("v1-0123456789ab", 2), ("v2-0123456789ab", 1)]


def test_more_models_than_the_query_returns_are_a_tail_with_its_total(log, store, run):
    log.write(NOON + 1, count=5, model="hottest")
    for number in range(10_002):
        log.write(NOON + 10, model=f"m{number}", cold=1)
    done = run(430)
    found = heat(store, 0)
    assert (done.truncated, found.truncated, len(found.rows)) == (1, True, 10_000)
    assert found.tail == Counts(3, 30, 6, 3, 0, 4.5)
    assert found.total.requests == 10_007
    assert found.rows[0].model == "hottest"
    assert not heat(store, 0, "sklearn").truncated


def test_after_an_outage_the_newest_window_comes_first_and_each_pass_does_a_bounded_part(log, store, run):
    run(430)
    for at in range(0, 3 * 3600, 300):
        log.write(NOON + at + 1)
    end = 3 * 3600 + 130
    first = run(end)
    assert first.lag_seconds == 130
    assert (first.windows, first.missing) == (24, 23)
    assert windows(store)[-1] == 3 * 3600 - 300
    assert run(end + 1).missing == 11
    assert run(end + 2).missing == 0
    assert windows(store) == list(range(0, 3 * 3600, 300))
    assert all(heat(store, at).total.requests == 1 for at in windows(store)[1:])


def test_windows_further_back_than_the_catch_up_are_given_up(store, run):
    run(430)
    run(3 * 86_400)
    assert windows(store) == [0, 3 * 86_400 - 600]


def test_a_query_that_fails_leaves_its_window_to_the_next_pass(log, store, run):
    run(430)
    log.write(NOON + 310)
    log.failing = {NOON + 300}
    done = run(1030)
    assert (done.failed, done.missing) == (1, 1)
    assert "2026-11-29T12:05:00.000Z: it ended as Failed" in done.why
    assert windows(store) == [0, 600]
    log.failing = set()
    assert run(1040).missing == 0
    assert heat(store, 300).total.requests == 1


def test_at_the_accounts_limit_of_queries_nothing_has_failed_and_nothing_is_written(log, store, run):
    log.busy = True
    done = run(430)
    assert (done.failed, done.windows, done.missing, done.lag_seconds) == (0, 0, 1, None)
    log.busy = False
    assert run(440).windows == 2


def test_a_pass_without_time_writes_nothing(store, run):
    assert run(430, seconds=0).missing == 1
    assert store.objects == {}


def test_a_pass_that_is_cut_between_two_pools_is_finished_by_the_next(log, store, run, monkeypatch):
    log.write(NOON + 10)
    create = MemoryHeat.create
    monkeypatch.setattr(store, "create", lambda heat: create(store, heat) if heat.key.pool == "xgboost" else 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run(430)
    monkeypatch.undo()
    before = dict(store.objects)
    done = run(440)
    assert (done.windows, done.missing) == (1, 0)
    assert {key: store.objects[key] for key in before} == before


def test_a_window_that_another_pass_wrote_meanwhile_stays_as_it_is(log, store, clock):
    log.write(NOON + 10)
    clock.now = float(NOON + 430)
    other = MemoryHeat()
    HeatCollection(log, other, clock, RULES).collect(clock.monotonic() + 60)
    log.write(NOON + 20)
    ours = HeatCollection(log, store, clock, RULES)
    listed = store.windows

    def overtaken(pool, *, since):
        keys = listed(pool, since=since)
        store.objects.update(other.objects)
        return keys

    store.windows = overtaken
    assert ours.collect(clock.monotonic() + 60).windows == 0
    assert heat(store, 0).total.requests == 1


def test_late_lines_are_found_when_the_window_is_counted_again(log, store, run):
    log.write(NOON + 10, count=4)
    run(430)
    log.write(NOON + 20, model="late", count=3)
    log.write(NOON + 20, endpoint="two")
    assert run(3600 + 200).late_lines == 0, "not due"
    done = run(3600 + 300)
    assert (done.late_lines, done.failed) == (4, 0)
    found = heat(store, 0)
    assert (found.total.requests, found.late_lines, found.recounted_at) == (7, 3, "2026-11-29T13:05:00.000Z")
    assert found.collected_at == "2026-11-29T12:07:10.000Z"
    assert heat(store, 0, "sklearn").late_lines == 1
    asked = len(log.texts)
    assert run(3600 + 301).late_lines == 0
    assert len(log.texts) == asked, "once"


def test_windows_that_did_not_grow_cost_one_query_for_all(log, store, run):
    for at in range(430, 3600 + 900, 300):
        run(at)
    store.note = None
    asked = len(log.texts)
    done = run(3600 + 901)
    assert (len(log.texts) - asked, done.late_lines) == (1, 0)
    assert store.note[0] == NOON + 900
    assert "bin(300s)" in log.texts[-1] or "bin(900s)" in log.texts[-1]


def test_a_recount_that_fails_is_done_again(log, store, run):
    run(430)
    log.write(NOON + 20)
    log.failing = {NOON}
    assert run(3900).failed == 1
    assert store.note is None
    log.failing = set()
    assert run(3901).late_lines == 1


def test_lines_that_expired_since_take_nothing_away(log, store, run):
    log.write(NOON + 10, count=4)
    run(430)
    log.events.clear()
    assert run(3900).late_lines == 0
    assert heat(store, 0).total.requests == 4


def test_nothing_is_counted_again_beyond_a_window_that_is_missing(log, store, run):
    run(430)
    run(1030)
    del store.objects[HeatKey("xgboost", NOON + 300, 300).key]
    log.failing = {NOON + 300}
    run(5000)
    assert store.note[0] == NOON + 300


def test_an_object_that_cannot_be_read_is_told_and_keeps_nothing_else_from_being_counted(log, store, run):
    run(430)
    key = HeatKey("xgboost", NOON, 300).key
    store.objects[key] = (b"junk", store.objects[key][1])
    done = run(3900)
    assert done.failed == 1
    assert key in done.why[0]
    assert store.note[0] == NOON + 300


@pytest.mark.parametrize(("before", "after"), [(300, 900), (900, 300), (60, 3600)])
def test_another_length_of_windows_leaves_no_gap_and_no_overlap(log, store, run, before, after):
    for at in range(0, 7200, 30):
        log.write(NOON + at)
    for at in range(before + 120, 2600, before):
        run(at, HeatRules(RULES.pools, window_seconds=before))
    for at in range(2600, 7200 + 3600, 600):
        run(at, HeatRules(RULES.pools, window_seconds=after, recount_seconds=86_400))
    keys = store.windows("xgboost", since=0)
    inside = [key for key in keys if key.start >= NOON and key.end <= NOON + 7200]
    assert [key.end for key in inside[:-1]] == [key.start for key in inside[1:]]
    assert sum(store.get(key)[0].total.requests for key in inside) == (inside[-1].end - NOON) / 30


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 200), st.sampled_from([1, 5, 10, 60])), max_size=20),
    st.sampled_from([60, 300, 900, 3600]),
    st.integers(0, 5),
)
def test_known_and_missing_windows_cover_the_time_once(spans, window_seconds, beyond):
    keys, at = [], 0
    for start, minutes in sorted(spans):
        if start * 60 >= at:
            keys.append(HeatKey("p", start * 60, minutes * 60))
            at = keys[-1].end
    closed_end = (at // window_seconds + 1 + beyond) * window_seconds
    missing = missing_windows(keys, closed_end, window_seconds)
    spans = sorted([*missing, *(Window(key.start, key.end) for key in keys)])
    assert [span.end for span in spans[:-1]] == [span.start for span in spans[1:]]
    assert spans[-1].end == closed_end
    assert spans[0].start == (keys[0].start if keys else closed_end - window_seconds)
    assert all(window.end - window.start <= window_seconds for window in missing)


def test_the_function_writes_the_catalogues_metrics_and_why_queries_failed(log, store, clock, context, capsys):
    clock.now = float(NOON + 430)
    log.failing = {NOON}
    answer = HeatCollector(HeatCollection(log, store, clock, RULES), clock, "collector")(context)
    assert answer == {"windows": 0, "missing": 1, "late_lines": 0, "failed": 1}
    line, failures = map(json.loads, capsys.readouterr().out.splitlines())
    (directive,) = line["_aws"]["CloudWatchMetrics"]
    assert (directive["Namespace"], directive["Dimensions"], line["function"]) == ("MME/Heat", [["function"]], "collector")
    assert {metric["Name"] for metric in directive["Metrics"]} == {row.name for row in HEAT_METRICS} - {"lag_seconds"}
    assert all(metric["Unit"] == CATALOGUE["MME/Heat", metric["Name"]].unit for metric in directive["Metrics"])
    assert "Failed" in failures["heat"][0]
    log.failing = set()
    HeatCollector(HeatCollection(log, store, clock, RULES), clock, "collector")(context)
    assert json.loads(capsys.readouterr().out)["lag_seconds"] == pytest.approx(130, abs=1)
