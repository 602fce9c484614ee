"""Candidates of a warm-up: what heat and registry tell together, how far back heat is read, and what cannot be read."""

from __future__ import annotations

import pytest

from mme_facts.grammar import HeatKey
from mme_tenancy.aws.clients import dynamodb_client
from mme_tenancy.aws.dynamodb import DynamoRegistry
from mme_tenancy.aws.warm_up_sources import DynamoWarmUpRecords
from mme_tenancy.heat import Counts, HeatError, ModelHeat, PoolHeat
from mme_tenancy.registry import Change
from mme_tenancy.routes import Canary, Model, Route
from mme_tenancy.testing import FakeClock, MemoryRegistry
from mme_tenancy.testing_heat import MemoryHeat
from mme_tenancy.testing_warm_calls import MemoryWarmUpRecords
from mme_tenancy.versions import State
from mme_tenancy.warm_up.sources import HeatCandidates, SourceRules, VersionOutline

WINDOW = 300
NEWEST = 1_796_000_100  # the end of the newest window: a multiple of its length
NOW = "2026-11-29T12:00:00.000Z"


@pytest.fixture
def clock():
    return FakeClock(NEWEST + 120.0)


@pytest.fixture
def registry():
    return MemoryRegistry()


@pytest.fixture
def add(registry, make_version):
    """Adds a model with an active version, and more if its route is given more."""

    def add(model, *, state=State.ACTIVE, endpoint="one", canary=None, component=None, routed=True, to=registry, **fields):
        version = make_version(state, model=model, artifact=model.encode(), moving=False, **fields)
        route = Route(endpoint, "AllTraffic", str(version.id), version.name.target_model, component=component)
        if canary is not None:
            other = make_version(State.READY, model=model, number=2, artifact=f"{model} 2".encode(), moving=False, **fields)
            to.write(Change(None, other))
            route = Route(
                endpoint,
                "AllTraffic",
                str(version.id),
                version.name.target_model,
                Canary("one", "AllTraffic", str(other.id), other.name.target_model, canary),
            )
        to.write(Change(None, version), Change(None, Model("acme", model, 2, NOW, NOW, route if routed else None)))
        return version.name.target_model

    return add


def window(ago, pool="shared", **requests):
    """A window that ended so many windows before the newest."""
    rows = tuple(
        ModelHeat("acme", model.replace("_", "-"), "v1-0123456789ab", Counts(count, served_ms=count * 10.0))
        for model, count in requests.items()
    )
    return PoolHeat(HeatKey(pool, NEWEST - WINDOW * (ago + 1), WINDOW), ("one",), rows)


def read(clock, registry, *windows, enough=10**12, **changes):
    return HeatCandidates(MemoryHeat(*windows), MemoryWarmUpRecords(registry), clock, **changes).read("shared", "one", enough_bytes=enough)


def test_a_model_comes_with_what_heat_and_registry_know(clock, registry, add):
    target = add("iris", size_bytes=500, memory_bytes=2000, timings={"first_invocation_seconds": 1.51})
    found = read(clock, registry, window(0, iris=29), window(1, iris=1))
    (candidate,) = found.candidates
    assert candidate.target_model == target
    assert (candidate.bytes, candidate.sample, candidate.retired, candidate.dedicated) == (2000, True, False, False)
    assert candidate.rate == pytest.approx(30 / 600)
    assert candidate.last_used == NEWEST - WINDOW / 30
    assert candidate.service_seconds == 0.01
    assert candidate.load_seconds == pytest.approx(1.5)
    assert (found.windows, found.newest, found.unknown, found.elsewhere, found.problems) == (2, NEWEST, 0, 0, ())


def test_without_a_measure_the_artifacts_size_and_no_load_time_are_told(clock, registry, add):
    add("iris", size_bytes=500)
    (candidate,) = read(clock, registry, window(0, iris=1)).candidates
    assert (candidate.bytes, candidate.load_seconds) == (500, None)


def test_the_answer_of_the_quickest_window_is_the_models_own_time(clock, registry, add):
    add("iris")
    slow = PoolHeat(HeatKey("shared", NEWEST - WINDOW, WINDOW), (), (ModelHeat("acme", "iris", "v1-0", Counts(1, served_ms=4000.0)),))
    (candidate,) = read(clock, registry, slow, window(1, iris=1)).candidates
    assert candidate.service_seconds == 0.01


def test_the_last_used_come_first_and_more_requests_in_a_window_mean_later(clock, registry, add):
    targets = [add(model) for model in ("a", "b", "c")]
    found = read(clock, registry, window(0, b=1, a=9), window(1, c=1000))
    assert [candidate.target_model for candidate in found.candidates] == targets
    assert [candidate.last_used for candidate in found.candidates] == [NEWEST - 30, NEWEST - 150, NEWEST - 300 - WINDOW / 1001]


def test_rates_are_of_the_last_hour_and_of_all_that_was_read_for_those_who_were_not_there(clock, registry, add):
    add("now")
    add("then")
    windows = [window(ago, now=10 if ago < 12 else 1000) for ago in range(24)]
    windows.append(window(24, then=50))
    rates = {c.target_model.split("/")[1]: c.rate for c in read(clock, registry, *windows).candidates}
    assert rates == {"now": pytest.approx(10 / 300), "then": pytest.approx(50 / (25 * 300))}


def test_all_versions_requests_go_where_the_route_leads_now(clock, registry, add):
    target = add("iris")
    rows = (ModelHeat("acme", "iris", "v7-0123456789ab", Counts(6)), ModelHeat("acme", "iris", "v8-0123456789ab", Counts(3)))
    (candidate,) = read(clock, registry, PoolHeat(HeatKey("shared", NEWEST - WINDOW, WINDOW), (), rows)).candidates
    assert candidate.target_model == target
    assert candidate.rate == pytest.approx(9 / WINDOW)


def test_a_canary_is_a_candidate_with_its_share(clock, registry, add):
    add("iris", canary=20.0)
    active, canary = read(clock, registry, window(0, iris=300)).candidates
    assert (active.rate, canary.rate) == (pytest.approx(0.8), pytest.approx(0.2))
    assert "/v2-" in canary.target_model


def test_models_that_cannot_be_warmed_are_told_apart(clock, registry, add):
    add("retired", state=State.RETIRED)
    add("hot", component="component-a", endpoint="dedicated")
    add("moved", endpoint="two")
    add("deleted", routed=False)
    found = read(clock, registry, window(0, retired=1, hot=1, moved=1, deleted=1, nobody=1))
    flags = {c.target_model.split("/")[1]: (c.retired, c.dedicated) for c in found.candidates}
    assert flags == {"retired": (True, False), "hot": (False, True)}
    assert (found.unknown, found.elsewhere) == (2, 1)


def test_heat_of_other_pools_and_before_the_lookback_is_not_read(clock, registry, add):
    add("other")
    add("old")
    found = read(clock, registry, window(0, pool="triton", other=1), window(300, old=1))
    assert (found.candidates, found.windows, found.newest) == ((), 0, None)


def test_heat_is_read_back_only_until_the_fleet_is_full(clock, registry, add):
    for model in ("a", "b", "c"):
        add(model, size_bytes=100)
    windows = [window(0, a=1), window(1, b=1), window(2, c=1)]
    rules = SourceRules(recent_seconds=WINDOW)
    for enough, models in ((100, 1), (101, 2), (10_000, 3)):
        assert len(read(clock, registry, *windows, enough=enough, rules=rules).candidates) == models


def test_records_are_read_only_until_the_fleet_is_full_last_used_first(clock, registry, add):
    for number in range(10):
        add(f"m{number}", size_bytes=100)
    records = MemoryWarmUpRecords(registry)
    source = HeatCandidates(
        MemoryHeat(window(0, **{f"m{number}": 100 - number for number in range(10)})),
        records,
        clock,
        rules=SourceRules(batch=2, threads=1),
    )
    found = source.read("shared", "one", enough_bytes=300)
    assert [candidate.target_model.split("/")[1] for candidate in found.candidates] == ["m0", "m1", "m2", "m3"]
    assert records.reads == [2, 2, 2, 2], "models and versions, twice"
    assert found.problems == ()


class SlowHeat(MemoryHeat):
    """Each window takes its time, on the clock."""

    clock: FakeClock

    def get(self, key):
        self.clock.sleep(2.0)
        return super().get(key)


def test_what_there_is_no_time_to_read_is_left_out_and_told(clock, registry, add):
    add("a")
    add("b")
    heat = SlowHeat(window(0, a=1), window(1, b=1))
    heat.clock = clock
    source = HeatCandidates(heat, MemoryWarmUpRecords(registry), clock, rules=SourceRules(recent_seconds=WINDOW, seconds=1.0))
    found = source.read("shared", "one", enough_bytes=10**12)
    assert [c.target_model.split("/")[1] for c in found.candidates] == ["a"]
    assert "there was no time" in found.problems[0]


class BrokenHeat(MemoryHeat):
    """Windows that end at these moments cannot be read."""

    broken: set[int]

    def get(self, key):
        if key.end in self.broken:
            raise HeatError(f"{key.key} is not readable")
        return super().get(key)


def test_a_window_that_cannot_be_read_is_missing_and_told(clock, registry, add):
    add("a")
    add("b")
    heat = BrokenHeat(window(0, a=1), window(1, b=1))
    heat.broken = {NEWEST}
    source = HeatCandidates(heat, MemoryWarmUpRecords(registry), clock)
    found = source.read("shared", "one", enough_bytes=10**12)
    assert [c.target_model.split("/")[1] for c in found.candidates] == ["b"]
    assert "is not readable" in found.problems[0]
    heat.broken |= {NEWEST - WINDOW}
    with pytest.raises(HeatError):
        source.read("shared", "one", enough_bytes=10**12)


class BrokenRecords(MemoryWarmUpRecords):
    """Batches with one of these models cannot be read."""

    broken: set[str]

    def models(self, names):
        if self.broken & {model for _tenant, model in names}:
            raise TimeoutError("DynamoDB left keys of a batch unprocessed")
        return super().models(names)


def test_a_batch_of_records_that_cannot_be_read_is_missing_and_told(clock, registry, add):
    add("a")
    add("b")
    records = BrokenRecords(registry)
    records.broken = {"a"}
    source = HeatCandidates(MemoryHeat(window(0, a=1, b=1)), records, clock, rules=SourceRules(batch=1))
    found = source.read("shared", "one", enough_bytes=10**12)
    assert [c.target_model.split("/")[1] for c in found.candidates] == ["b"]
    assert found.problems == ("TimeoutError: DynamoDB left keys of a batch unprocessed",)
    records.broken = {"a", "b"}
    with pytest.raises(TimeoutError):
        source.read("shared", "one", enough_bytes=10**12)
    with pytest.raises(TimeoutError):
        source.named([("acme", "a")], "one")
    records.broken = set()
    records.outlines = lambda _names: records.models(1)
    with pytest.raises(TypeError):
        source.read("shared", "one", enough_bytes=10**12)


def test_under_a_faster_clock_moments_and_rates_are_those_of_the_machine(registry, add):
    add("iris")
    clock = FakeClock(1_796_000_000.0, ahead=NEWEST + 120.0 - 1_796_000_000.0)
    (candidate,) = read(clock, registry, window(0, iris=1), scale=60.0).candidates
    assert candidate.rate == pytest.approx(60 / WINDOW)
    assert candidate.last_used == pytest.approx(clock.now - (120 + 150) / 60)


def test_named_models_come_in_their_order_whatever_heat_says(clock, registry, add):
    targets = [add("b"), add("a")]
    source = HeatCandidates(MemoryHeat(), MemoryWarmUpRecords(registry), clock)
    found = source.named([("acme", "b"), ("acme", "a"), ("acme", "b"), ("acme", "none")], "one")
    assert [candidate.target_model for candidate in found.candidates] == targets
    assert found.unknown == 1


def test_the_table_gives_the_same_and_leaves_payloads_where_they_are(cloud_session, table_name, add, make_version):
    client = dynamodb_client(cloud_session)
    table = DynamoRegistry(client, table_name)
    names = []
    for number in range(3):
        target = add(f"m{number}", to=table, size_bytes=7, memory_bytes=9, timings={"first_invocation_seconds": 2.5})
        names.append(target)
    seen = []
    client.meta.events.register("after-call.dynamodb.BatchGetItem", lambda parsed, **_: seen.append(parsed))
    records = DynamoWarmUpRecords(client, table_name)
    models = records.models([("acme", f"m{number}") for number in range(4)])
    assert {name: model.route.target_model for name, model in models.items()} == {("acme", f"m{n}"): names[n] for n in range(3)}
    versions = [make_version(model=f"m{n}", artifact=f"m{n}".encode()).name for n in range(4)]
    assert records.outlines(versions) == {name: VersionOutline(State.ACTIVE, 7, 9, 2.5, sample=True) for name in versions[:3]}
    assert "body" not in repr(seen[-1]), "payloads do not travel"
    other = make_version(model="m0", artifact=b"another artifact of the same number").name
    assert records.outlines([other]) == {}
    assert records.outlines([]) == {}
    bodies = {name: version.sample.body for name, version in records.versions(versions).items()}
    assert bodies == dict.fromkeys(versions[:3], b"5.1,3.5,1.4,0.2")
