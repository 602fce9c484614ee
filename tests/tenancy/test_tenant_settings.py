from __future__ import annotations

from dataclasses import replace

import pytest

from mme_tenancy.errors import TenantDeletedError, TenantNotFoundError, WriteConflictError
from mme_tenancy.registry import Change
from mme_tenancy.routes import Model
from mme_tenancy.tenant_settings import put_tenant, status_of
from mme_tenancy.tenants import Quotas, Tenant, Tier, Usage
from mme_tenancy.testing import MemoryRegistry

NOW = "2026-11-29T12:00:00.000Z"
SETTINGS = {"tier": "trusted", "quotas": {"models": 5, "stored_bytes": 6, "requests_per_second": 7}, "formats": ["onnx", "xgboost"]}


@pytest.fixture
def registry():
    return MemoryRegistry()


@pytest.fixture
def put(registry, clock):
    def put(settings, registry=registry):
        status, created = put_tenant(registry, "acme", settings, clock=clock, random=lambda: 0.5)
        clock.sleep(1)
        return status.tenant, created

    return put


def test_a_new_tenant_has_the_given_settings_and_defaults_for_the_rest(registry, put):
    tenant, created = put({"quotas": {"models": 5}})
    assert created
    assert (tenant.quotas, tenant.tier, tenant.formats, tenant.rev) == (Quotas(models=5), Tier.STANDARD, None, 1)
    assert registry.tenant("acme") == tenant


def test_what_is_not_given_stays(registry, put):
    first, _ = put(SETTINGS)
    second, created = put({"quotas": {"stored_bytes": 60}})
    assert not created
    assert second == replace(first, quotas=Quotas(5, 60, 7), updated_at=second.updated_at, rev=2)
    assert second.updated_at > first.updated_at
    third, _ = put({"formats": None, "tier": "standard"})
    assert (third.formats, third.tier, third.quotas) == (None, Tier.STANDARD, Quotas(5, 60, 7))
    assert registry.tenant("acme") == third


@pytest.mark.parametrize("settings", [{}, SETTINGS, {"quotas": {}}, {"tier": "trusted"}])
def test_settings_that_are_there_already_write_nothing(registry, put, settings):
    first, _ = put(SETTINGS)
    assert put(settings) == (first, False)


class Contended(MemoryRegistry):
    """Somebody else changes the tenant right before each of the next writes."""

    others = 0

    def write(self, *changes, quotas=None):
        if self.others:
            self.others -= 1
            before = self.tenant("acme")
            after = replace(before, quotas=replace(before.quotas, models=before.quotas.models + 1), rev=before.rev + 1)
            super().write(Change(before, after))
        super().write(*changes, quotas=quotas)


def test_a_change_that_met_another_one_keeps_both(put):
    registry = Contended()
    put(SETTINGS, registry)
    registry.others = 2
    tenant, _ = put({"tier": "standard"}, registry)
    assert (tenant.tier, tenant.quotas.models) == (Tier.STANDARD, 7)


def test_a_tenant_that_others_never_stop_changing_ends_with_a_conflict(put):
    registry = Contended()
    put(SETTINGS, registry)
    registry.others = 1000
    with pytest.raises(WriteConflictError, match="this tenant"):
        put({"tier": "standard"}, registry)


def test_two_that_create_at_the_same_time_create_once(put):
    class Raced(MemoryRegistry):
        raced = False

        def write(self, *changes, quotas=None):
            if not self.raced:
                self.raced = True
                super().write(Change(None, Tenant("acme", NOW, NOW)))
            super().write(*changes, quotas=quotas)

    tenant, created = put({"tier": "trusted"}, Raced())
    assert (created, tenant.tier, tenant.rev) == (False, Tier.TRUSTED, 2)


def test_a_tenant_is_shown_with_what_it_uses(registry, put, make_version):
    put({})
    registry.write(Change(None, Model("acme", "iris", 1, NOW, NOW)), Change(None, make_version(size_bytes=12)))
    assert status_of(registry, "acme").document()["usage"] == {"models": 1, "stored_bytes": 12}
    assert put_usage(registry, put) == Usage("acme", 1, 12)


def put_usage(registry, put):
    put({"tier": "trusted"})
    return status_of(registry, "acme").usage


def test_an_unknown_tenant_is_not_shown(registry):
    with pytest.raises(TenantNotFoundError):
        status_of(registry, "acme")


def test_a_deleted_tenant_is_shown_but_not_changed_while_models_of_it_are_left(registry, put):
    first, _ = put(SETTINGS)
    registry.write(Change(first, first.delete(NOW)))
    assert status_of(registry, "acme").tenant.deleted_at == NOW
    with pytest.raises(TenantDeletedError):
        put({"tier": "standard"})


def test_a_deleted_tenant_begins_anew_with_nothing_of_what_it_had_set(registry, put):
    first, _ = put(SETTINGS)
    deleted = first.delete(NOW)
    registry.write(Change(first, deleted))
    registry.write(Change(deleted, deleted.retired(None, NOW)))
    anew, created = put({"quotas": {"models": 3}})
    assert created
    assert (anew.deleted_at, anew.quotas, anew.tier, anew.formats) == (None, Quotas(models=3), Tier.STANDARD, None)
    assert (registry.tenant("acme"), anew.rev) == (anew, deleted.rev + 2)
    assert put({"quotas": {"models": 3}}) == (anew, False)
