"""From one schema to the next: items of the first release, as it wrote them, are read, changed and brought over."""

from __future__ import annotations

import pytest

from mme_tenancy.aws.attributes import from_item, to_item
from mme_tenancy.aws.clients import dynamodb_client
from mme_tenancy.aws.dynamodb import DynamoRegistry
from mme_tenancy.aws.items import claim_of, item_of, model_of, tenant_of, version_of
from mme_tenancy.registry import Change
from mme_tenancy.routes import Model, Route
from mme_tenancy.schema import ALWAYS_WRITTEN, OLDEST_SCHEMA, SCHEMA, SchemaError, current, is_old
from mme_tenancy.tenants import Quotas, Tenant, Tier
from mme_tenancy.versions import DigestClaim, Sample, State

NOW, LATER = "2026-11-29T12:00:00.000Z", "2026-11-30T12:00:00.000Z"
DIGEST = "c7be1ed902fb8dd4d48997c6452f5d7e509fbcdbe2808b16bcf4edce4c07d14e"
TARGET = f"acme/iris/v1-{DIGEST[:12]}.tar.gz"
FIRST_RELEASE = {
    "tenant": {"PK": "TENANT#acme", "SK": "TENANT", "schema": 1, "created_at": NOW, "updated_at": NOW, "rev": 1},
    "model": {
        "PK": "TENANT#acme",
        "SK": "MODEL#iris",
        "schema": 1,
        "last_version": 1,
        "created_at": NOW,
        "updated_at": NOW,
        "route": {"endpoint": "endpoint-a", "variant": "AllTraffic", "version": f"v1-{DIGEST[:12]}", "target_model": TARGET, "rev": 1},
        "rev": 2,
    },
    "version": {
        "PK": "TENANT#acme",
        "SK": "VERSION#iris#000001",
        "schema": 1,
        "number": 1,
        "sha256": DIGEST,
        "size_bytes": 8,
        "framework": "xgboost",
        "pool": "shared",
        "sample": {"content_type": "text/csv", "body": b"1,2", "accept": "text/csv"},
        "state": "active",
        "created_at": NOW,
        "updated_at": NOW,
        "reasons": [],
        "timings": {"inspect_seconds": 0.25},
        "rev": 6,
        "version": f"v1-{DIGEST[:12]}",
    },
    "claim": {"PK": "TENANT#acme", "SK": f"DIGEST#iris#{DIGEST}", "schema": 1, "sha256": DIGEST, "number": 1, "rev": 1},
}
"""What release 0.1 wrote, attribute by attribute."""


def test_items_of_the_first_release_are_read(make_version):
    assert tenant_of(FIRST_RELEASE["tenant"]) == Tenant("acme", NOW, NOW, Tier.STANDARD, Quotas(), None, None, 1)
    route = Route("endpoint-a", "AllTraffic", f"v1-{DIGEST[:12]}", TARGET, None, 1)
    assert model_of(FIRST_RELEASE["model"]) == Model("acme", "iris", 1, NOW, NOW, route, 2)
    assert claim_of(FIRST_RELEASE["claim"]) == DigestClaim("acme", "iris", DIGEST, 1)
    version = version_of(FIRST_RELEASE["version"])
    assert (version.state, version.rev, version.sample) == (State.ACTIVE, 6, Sample("text/csv", b"1,2", "text/csv"))
    assert (version.warnings, version.resumes, version.moving, version.purge_after) == ((), 0, False, None)


@pytest.mark.parametrize("kind", FIRST_RELEASE)
def test_an_item_is_brought_over_once_and_loses_nothing(kind):
    old = FIRST_RELEASE[kind]
    new = current(old)
    assert new["schema"] == SCHEMA
    assert {name: value for name, value in new.items() if name in old and name != "schema"} == {
        name: value for name, value in old.items() if name != "schema"
    }
    assert current(new) is new
    assert (is_old(old), is_old(new)) == (True, False)


@pytest.mark.parametrize(("kind", "read"), [("tenant", tenant_of), ("model", model_of), ("version", version_of), ("claim", claim_of)])
def test_what_is_brought_over_is_what_todays_release_writes_of_the_same_record(kind, read):
    assert current(FIRST_RELEASE[kind]) == from_item(to_item(item_of(read(FIRST_RELEASE[kind]))))


def test_a_retired_version_of_the_first_release_gets_into_the_queue():
    retired = FIRST_RELEASE["version"] | {"state": "retired"}
    assert current(retired)["moving"] == "retired"
    assert version_of(retired).moving is False


@pytest.mark.parametrize("number", [0, OLDEST_SCHEMA - 1, SCHEMA + 2])
def test_a_schema_that_is_too_old_or_too_new_is_refused(number):
    with pytest.raises(SchemaError, match=f"has schema {number}, and this release reads {OLDEST_SCHEMA} to {SCHEMA + 1}"):
        tenant_of(FIRST_RELEASE["tenant"] | {"schema": number})


def test_items_of_the_release_after_this_one_are_read_as_they_stand():
    later = current(FIRST_RELEASE["tenant"]) | {"schema": SCHEMA + 1, "new": "thing"}
    assert tenant_of(later) == tenant_of(FIRST_RELEASE["tenant"])


def test_a_change_of_an_old_item_writes_what_the_new_schema_added(cloud_session, table_name):
    client = dynamodb_client(cloud_session)
    for item in FIRST_RELEASE.values():
        client.put_item(TableName=table_name, Item=to_item(item))
    registry = DynamoRegistry(client, table_name)
    version = registry.version("acme", "iris", 1)
    registry.write(Change(version, version.move(State.READY, LATER)))
    key = {"PK": {"S": "TENANT#acme"}, "SK": {"S": "VERSION#iris#000001"}}
    stored = from_item(client.get_item(TableName=table_name, Key=key, ConsistentRead=True)["Item"])
    assert (stored["warnings"], stored["resumes"], stored["state"], stored["rev"]) == ([], 0, "ready", 7)
    assert version_of(stored) == version.move(State.READY, LATER)


def test_everything_that_items_of_this_schema_always_have_is_written_with_every_change(make_version):
    items = [item_of(record) for record in (Tenant("acme", NOW, NOW), Model("acme", "iris", 1, NOW, NOW), make_version())]
    added = {name for item in items for name in item} - {name for item in FIRST_RELEASE.values() for name in item} - {"moving"}
    assert added == ALWAYS_WRITTEN
