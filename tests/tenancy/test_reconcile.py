"""What differs between registry and bucket, and that the repairs leave nothing behind."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mme_facts.grammar import ArtifactName, VersionId
from mme_tenancy.purge import ARTIFACT_STATES
from mme_tenancy.reconcile import Kind, Stock, differences
from mme_tenancy.registry import Change
from mme_tenancy.routes import Canary, Model, Route
from mme_tenancy.tenants import Tenant, Usage
from mme_tenancy.testing import MemoryRegistry
from mme_tenancy.usage import usage_of
from mme_tenancy.versions import DigestClaim, State

NOW, LATER = "2026-11-29T12:00:00.000Z", "2026-11-30T12:00:00.000Z"
TENANT = Tenant("acme", NOW, NOW)


def route_to(version, canary=None):
    second = None if canary is None else Canary("endpoint-a", "AllTraffic", str(canary.id), canary.name.target_model, 10)
    return Route("endpoint-a", "AllTraffic", str(version.id), version.name.target_model, second)


def stock_of(records, artifacts, usage=None):
    records = list(records)
    return Stock("acme", records, usage_of("acme", records) if usage is None else usage, frozenset(artifacts))


@pytest.fixture
def healthy(make_version):
    """A model with an active, a ready and a rejected version, as it should be."""
    versions = [
        make_version(state, number=number, artifact=b"%d" % number, moving=False)
        for number, state in enumerate((State.READY, State.ACTIVE, State.REJECTED), start=1)
    ]
    claims = [DigestClaim("acme", "iris", version.sha256, version.number) for version in versions]
    model = Model("acme", "iris", 3, NOW, NOW, route_to(versions[1]))
    return {"versions": versions, "claims": claims, "model": model, "artifacts": {versions[0].name, versions[1].name}}


def build(parts, **changes):
    parts = parts | changes
    records = [TENANT, *([parts["model"]] if parts["model"] else []), *parts["versions"], *parts["claims"]]
    return stock_of(records, parts["artifacts"], parts.get("usage"))


def apply(stock):
    """The stock after its repairs, written as the command does."""
    registry = MemoryRegistry()
    for record in stock.records:
        registry.write(Change(None, replace(record, rev=1)))
    first = [replace(record, rev=1) for record in stock.records]
    again = Stock(stock.tenant, first, stock.usage, stock.artifacts)
    for difference in differences(again, LATER):
        if difference.changes:
            registry.write(*difference.changes)
    records = list(registry.records.values())
    return Stock(stock.tenant, records, usage_of(stock.tenant, records), stock.artifacts)


def kinds(stock):
    return sorted(difference.kind.value for difference in differences(stock, LATER))


def test_what_is_right_has_no_differences(healthy):
    assert differences(build(healthy), LATER) == []


def test_a_ready_version_without_artifact_ends_as_purged_and_says_why(healthy):
    ready, active, _ = healthy["versions"]
    stock = build(healthy, artifacts={active.name})
    (difference,) = differences(stock, LATER)
    assert (difference.kind, difference.subject) == (Kind.RECORD_WITHOUT_OBJECT, f"iris/{ready.id}")
    (change,) = difference.changes
    assert (change.after.state, change.after.rev, change.after.reasons[0].rule) == (State.PURGED, ready.rev + 1, "artifact-lost")
    assert kinds(apply(stock)) == []


@pytest.mark.parametrize("state", [State.STORED, State.WARMING])
def test_a_version_that_never_answered_its_sample_ends_as_rejected(make_version, healthy, state):
    version = make_version(state, number=3, artifact=b"3")
    stock = build(healthy, versions=[*healthy["versions"][:2], version])
    (difference,) = differences(stock, LATER)
    assert difference.changes[0].after.state is State.REJECTED
    assert kinds(apply(stock)) == []


def test_a_lost_active_version_gives_the_route_to_the_newest_that_can_serve(healthy):
    ready, _, _ = healthy["versions"]
    stock = build(healthy, artifacts={ready.name})
    assert kinds(stock) == ["record-without-object", "route-to-missing"]
    after = apply(stock)
    assert kinds(after) == []
    assert after.models["iris"].route == replace(route_to(ready), rev=2)
    assert [after.versions["iris", number].state.value for number in (1, 2)] == ["active", "purged"]


def test_without_any_that_can_serve_the_route_is_taken_away(healthy):
    stock = build(healthy, artifacts=set())
    assert kinds(stock) == ["record-without-object", "record-without-object", "route-to-missing"]
    after = apply(stock)
    assert (kinds(after), after.models["iris"].route) == ([], None)


def test_another_pool_never_gets_the_route(healthy, make_version):
    other = make_version(State.READY, number=1, artifact=b"1", moving=False, pool="other")
    stock = build(healthy, versions=[other, *healthy["versions"][1:]], artifacts={other.name})
    assert apply(stock).models["iris"].route is None


def test_a_route_to_a_version_that_is_not_recorded_is_repaired(healthy):
    ready, _, rejected = healthy["versions"]
    stock = build(healthy, versions=[ready, rejected], artifacts={ready.name}, claims=[healthy["claims"][0]])
    assert kinds(stock) == ["route-to-missing"]
    assert apply(stock).models["iris"].route.version == str(ready.id)


def test_a_canary_that_cannot_serve_ends_and_the_route_stays(healthy):
    ready, active, rejected = healthy["versions"]
    model = replace(healthy["model"], route=route_to(active, canary=rejected))
    stock = build(healthy, model=model)
    assert kinds(stock) == ["route-to-missing"]
    assert apply(stock).models["iris"].route == replace(route_to(active), rev=2)
    assert ready in stock.records


def test_a_routed_version_is_active_and_an_active_one_is_routed(healthy, make_version):
    versions = [
        replace(healthy["versions"][0], state=State.ACTIVE),
        replace(healthy["versions"][1], state=State.READY),
        healthy["versions"][2],
    ]
    stock = build(healthy, versions=versions)
    assert kinds(stock) == ["active-not-routed", "routed-not-active"]
    after = apply(stock)
    assert [after.versions["iris", number].state.value for number in (1, 2)] == ["ready", "active"]


def test_a_counter_never_gives_a_number_again_that_an_artifact_has(healthy):
    lost = ArtifactName("acme", "iris", VersionId(9, "0" * 12))
    stock = build(healthy, artifacts={*healthy["artifacts"], lost})
    assert kinds(stock) == ["counter-behind", "object-without-record"]
    assert apply(stock).models["iris"].last_version == 9


def test_a_lost_model_is_made_anew_without_a_route_and_nothing_stays_active(healthy):
    stock = build(healthy, model=None)
    assert kinds(stock) == ["active-not-routed", "model-missing"]
    after = apply(stock)
    assert (after.models["iris"].last_version, after.models["iris"].route) == (3, None)
    assert kinds(after) == []


def test_a_lost_tenant_is_made_anew(healthy):
    stock = build(healthy)
    lost = replace(stock, records=[record for record in stock.records if not isinstance(record, Tenant)])
    (difference,) = differences(lost, LATER)
    assert (difference.kind, difference.changes) == (Kind.TENANT_MISSING, (Change(None, Tenant("acme", LATER, LATER)),))


def test_a_claim_belongs_to_the_live_version_of_its_digest(healthy):
    ready, _, _ = healthy["versions"]
    for claims in (healthy["claims"][1:], [replace(healthy["claims"][0], number=3, rev=4), *healthy["claims"][1:]]):
        stock = build(healthy, claims=claims)
        (difference,) = differences(stock, LATER)
        assert (difference.kind, difference.changes[0].after.number) == (Kind.CLAIM_WRONG, ready.number)


def test_usage_is_recomputed(healthy):
    stock = build(healthy, usage=Usage("acme", 5, 17))
    (difference,) = differences(stock, LATER)
    assert (difference.kind, difference.usage) == (Kind.USAGE_WRONG, Usage("acme", 1, 2))
    assert "5 models and 17 bytes" in difference.detail


@pytest.mark.parametrize("state", sorted(set(State) - ARTIFACT_STATES - {State.INSPECTING}))
def test_an_artifact_of_a_version_that_has_ended_may_be_deleted_and_no_record_changes(make_version, state):
    version = make_version(state, moving=False)
    claims = [DigestClaim("acme", "iris", version.sha256, 1)]
    stock = stock_of([TENANT, Model("acme", "iris", 1, NOW, NOW), version, *claims], {version.name})
    (difference,) = differences(stock, LATER)
    assert (difference.kind, difference.artifact, difference.changes) == (Kind.OBJECT_WITHOUT_RECORD, version.name, ())


def test_artifacts_of_a_tenant_without_records_are_told_and_kept():
    name = ArtifactName("acme", "iris", VersionId(3, "0" * 12))
    (difference,) = differences(Stock("acme", [], None, frozenset({name})), LATER)
    assert (difference.kind, difference.artifact) == (Kind.OBJECT_WITHOUT_RECORD, name)
    assert "never gave" in difference.detail


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150, deadline=None)
@given(
    states=st.lists(st.sampled_from(sorted(State)), min_size=1, max_size=5),
    there=st.lists(st.booleans(), min_size=5, max_size=5),
    routed=st.integers(0, 6),
    canary=st.integers(0, 6),
    counter=st.integers(1, 6),
    without=st.sampled_from(["", "model", "claims"]),
)
def test_after_the_repairs_nothing_is_wrong_any_more_whatever_was_lost(make_version, states, there, routed, canary, counter, without):
    versions = [
        make_version(State(state), number=number, artifact=b"%d" % number, moving=False) for number, state in enumerate(states, start=1)
    ]
    others = [make_version(State.READY, number=number, artifact=b"%d" % number) for number in range(1, 7)]
    route = None if routed == 0 else route_to(others[routed - 1], None if canary in {0, routed} else others[canary - 1])
    model = None if without == "model" else Model("acme", "iris", counter, NOW, NOW, route)
    claims = [] if without == "claims" else [DigestClaim("acme", "iris", versions[0].sha256, 1)]
    artifacts = {version.name for version, is_there in zip(versions, there, strict=False) if is_there}
    stock = stock_of([TENANT, *([model] if model else []), *versions, *claims], artifacts)
    after = apply(stock)
    assert set(kinds(after)) <= {"object-without-record"}
    assert {version.number for version in after.versions.values()} == {version.number for version in versions}
    for version in after.versions.values():
        assert version.state not in ARTIFACT_STATES or version.name in artifacts
    if after.models["iris"].route is not None:
        assert after.versions["iris", after.models["iris"].route.number].state is State.ACTIVE
