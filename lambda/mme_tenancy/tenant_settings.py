"""Tenants as operators set them up: created, changed, and shown with what they use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from mme_tenancy.clock import Clock, timestamp
from mme_tenancy.conflicts import until_written
from mme_tenancy.errors import TenantNotFoundError
from mme_tenancy.registry import Change, Registry, tenant_key, usage_key
from mme_tenancy.tenants import Tenant, Tier, Usage

__all__ = ["TenantStatus", "changed", "put_tenant", "status_of"]


@dataclass(frozen=True, slots=True)
class TenantStatus:
    """A tenant, with what it uses of its quotas now.

    Attributes:
        tenant: its record.
        usage: what it uses.
    """

    tenant: Tenant
    usage: Usage

    def document(self) -> dict[str, object]:
        """What the API shows."""
        return {**self.tenant.document(), "usage": self.usage.document()}


def status_of(registry: Registry, tenant: str) -> TenantStatus:
    """A tenant, deleted or not; raises `TenantNotFoundError`."""
    record, usage = registry.read(tenant_key(tenant), usage_key(tenant))
    if record is None:
        raise TenantNotFoundError(tenant)
    return TenantStatus(record, usage or Usage(tenant))


def changed(tenant: Tenant, settings: Mapping[str, Any]) -> Tenant:
    """The record with these settings, which are what `mme_tenancy.bodies.tenant_shape` lets in; what is not among them stays."""
    after = replace(tenant, quotas=replace(tenant.quotas, **settings.get("quotas", {})))
    if "tier" in settings:
        after = replace(after, tier=Tier(settings["tier"]))
    if "formats" in settings:
        after = replace(after, formats=None if settings["formats"] is None else tuple(settings["formats"]))
    return after


def put_tenant(
    registry: Registry, tenant: str, settings: Mapping[str, Any], *, clock: Clock, random: Callable[[], float]
) -> tuple[TenantStatus, bool]:
    """Create a tenant, or change the settings of one that is there; returns it, and whether it is new.

    One that was deleted begins anew once all its models are retired, with nothing of what it had set.

    Raises:
        TenantDeletedError: it was deleted, and models of it are still to be retired.
        WriteConflictError: others kept changing it at the same time.
        GrammarError: the id is outside the grammar.
    """

    def put() -> tuple[TenantStatus, bool]:
        before, usage = registry.read(tenant_key(tenant), usage_key(tenant))
        now = timestamp(clock.time())
        if before is None:
            after = changed(Tenant(tenant, now, now), settings)
        elif before.deleted_at is not None:
            after = changed(before.begin_anew(now), settings)
        else:
            after = changed(before, settings)
            if after != before:
                after = replace(after, updated_at=now, rev=before.rev + 1)
        if after != before:
            registry.write(Change(before, after))
        return TenantStatus(after, usage or Usage(tenant)), before is None or before.deleted_at is not None

    return until_written(put, clock=clock, random=random, what="this tenant")
