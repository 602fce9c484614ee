from __future__ import annotations

from dataclasses import replace

import pytest

from mme_tenancy.aws.attributes import from_item, to_item
from mme_tenancy.aws.items import item_of, model_of, tenant_of, version_of
from mme_tenancy.routes import Canary, Model, Route
from mme_tenancy.tenants import Quotas, Tenant, Tier
from mme_tenancy.versions import Multipart, Reason, State

NOW = "2026-11-29T12:00:00.000Z"
ROUTE = Route(
    "shared",
    "AllTraffic",
    "v1-0123456789ab",
    "acme/iris/v1-0123456789ab.tar.gz",
    Canary("other", "AllTraffic", "v2-0123456789ab", "target", 2.5),
    3,
)


@pytest.mark.parametrize(
    ("record", "read"),
    [
        (Tenant("acme", NOW, NOW), tenant_of),
        (Tenant("acme", NOW, NOW, Tier.TRUSTED, Quotas(1, 2, 3, 4, 5), ("xgboost",), NOW, 4), tenant_of),
        (Tenant("acme", NOW, NOW, api_key="a1b2c3d4e5"), tenant_of),
        (Model("acme", "iris", 2, NOW, NOW), model_of),
        (Model("acme", "iris", 2, NOW, NOW, ROUTE, 5), model_of),
        (Model("acme", "iris", 2, NOW, NOW, replace(ROUTE, component="acme-iris-1"), 5), model_of),
        (Model("acme", "iris", 7, NOW, NOW, None, 5, NOW, 6, 3), model_of),
        (Tenant("acme", NOW, NOW, deleted_at=NOW, retiring_after=""), tenant_of),
    ],
)
def test_a_record_is_read_as_it_was_written(record, read):
    assert read(from_item(to_item(item_of(record)))) == record


def test_quotas_of_an_earlier_release_get_defaults_and_those_of_a_later_one_are_passed_over():
    item = item_of(Tenant("acme", NOW, NOW, quotas=Quotas(1, 2, 3)))
    item["quotas"] = {"models": 1, "stored_bytes": 2, "requests_per_second": 3, "wishes": 9}
    assert tenant_of(item).quotas == Quotas(1, 2, 3, 64, 8)


def test_a_version_is_read_as_it_was_written(make_version):
    warning = Reason("ignored-file", "requirements.txt is not installed", "leave it out", "requirements.txt")
    version = make_version(State.RETIRED, warnings=(warning,), memory_bytes=5, multipart=Multipart("id", 7), purge_after=NOW)
    assert version_of(from_item(to_item(item_of(version)))) == version


def test_what_a_deletion_left_over_is_listed_as_under_way():
    tenant, model = Tenant("acme", NOW, NOW), Model("acme", "iris", 2, NOW, NOW, ROUTE)
    leftovers = [tenant.delete(NOW), model.delete(NOW, retiring_below=1)]
    assert [item_of(record)["moving"] for record in leftovers] == ["tenant", "model"]
    done = [tenant, model, tenant.delete(NOW).retired(None, NOW), model.delete(NOW, retiring_below=None)]
    assert not any("moving" in item_of(record) for record in done)


def test_items_of_the_first_release_are_still_read(make_version):
    tenant = {"PK": "TENANT#acme", "SK": "TENANT", "schema": 1, "created_at": NOW, "updated_at": NOW, "rev": 1}
    assert tenant_of(tenant) == Tenant("acme", NOW, NOW)
    item = {"PK": "TENANT#acme", "SK": "MODEL#iris", "schema": 1, "last_version": 2, "created_at": NOW, "updated_at": NOW, "rev": 1}
    assert model_of(item) == Model("acme", "iris", 2, NOW, NOW)
    item = from_item(to_item(item_of(make_version())))
    del item["warnings"], item["activate"]
    assert version_of(item) == make_version()


def test_what_a_later_release_adds_to_a_route_is_passed_over():
    model = Model("acme", "iris", 2, NOW, NOW, ROUTE, 5)
    item = from_item(to_item(item_of(model)))
    item["route"] |= {"wishes": 9}
    item["route"]["canary"] |= {"wishes": 9}
    assert model_of(item) == model


def test_a_model_is_listed_as_dedicated_exactly_while_a_component_serves_it():
    shared = Model("acme", "iris", 2, NOW, NOW, ROUTE, 5)
    dedicated = shared.reroute(replace(ROUTE, component="acme-iris-1"), NOW)
    assert item_of(dedicated)["dedicated"] == "model"
    assert not any(
        "dedicated" in item_of(model) for model in (shared, dedicated.reroute(ROUTE, NOW), dedicated.delete(NOW, retiring_below=1))
    )
