"""What tenants use of their quotas. It follows from the records, so nobody counts by hand.

`mme_tenancy.registry.Registry.write` asks `usage_changes` what its changes do to each tenant's `Usage`, and changes that in the same
transaction: a version counts from its registration until it moves to rejected, expired or purged, a model until it is retired. Whoever
writes such a move frees what it held by that. The numbers are added to, not replaced, so writers of one tenant do not wait for a revision,
and they are exact however often a write is tried again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from mme_tenancy.errors import QuotaExceededError, TenancyError, TenantDeletedError
from mme_tenancy.registry import Change, Record
from mme_tenancy.routes import Model
from mme_tenancy.tenants import Quotas, Tenant, Usage
from mme_tenancy.versions import State, Version

__all__ = ["HELD_UNTIL", "UsageChange", "left_by", "refusal", "usage_changes", "usage_of"]

HELD_UNTIL = frozenset({State.REJECTED, State.EXPIRED, State.PURGED})
"""In these states a version holds nothing any more. A retired one still does: its artifact is there."""


@dataclass(frozen=True, slots=True)
class UsageChange:
    """What one write does to a tenant's usage.

    Attributes:
        tenant: tenant id.
        models: models more, or fewer.
        stored_bytes: bytes more, or fewer.
        closed: whether the tenant is deleted by it, so that from then on nothing can be taken, or begins anew; ``None``: neither.
    """

    tenant: str
    models: int = 0
    stored_bytes: int = 0
    closed: bool | None = None

    @property
    def takes(self) -> bool:
        """Whether it needs more of something."""
        return self.models > 0 or self.stored_bytes > 0


def _held(record: Record | None) -> tuple[int, int]:
    """Models and bytes that a record counts for."""
    match record:
        case Model():
            return (1 if record.retired_at is None else 0), 0
        case Version():
            return 0, (0 if record.state in HELD_UNTIL else record.size_bytes)
    return 0, 0


def _closed(change: Change) -> bool | None:
    before = isinstance(change.before, Tenant) and change.before.deleted_at is not None
    after = isinstance(change.after, Tenant) and change.after.deleted_at is not None
    return None if before == after else after


def usage_changes(changes: Iterable[Change]) -> tuple[UsageChange, ...]:
    """What these changes do together, a tenant each; tenants whose usage stays are left out."""
    sums: dict[str, UsageChange] = {}
    for change in changes:
        tenant = change.after.tenant
        models, stored_bytes = _held(change.after)
        models_before, bytes_before = _held(change.before)
        known = sums.get(tenant, UsageChange(tenant))
        sums[tenant] = replace(
            known,
            models=known.models + models - models_before,
            stored_bytes=known.stored_bytes + stored_bytes - bytes_before,
            closed=_closed(change) if isinstance(change.after, Tenant) else known.closed,
        )
    return tuple(change for change in sums.values() if change != UsageChange(change.tenant))


def usage_of(tenant: str, records: Iterable[Record]) -> Usage:
    """The usage that all records of a tenant add up to: what a repair writes."""
    held = [_held(record) for record in records if record.tenant == tenant]
    return Usage(tenant, sum(models for models, _ in held), sum(stored_bytes for _, stored_bytes in held))


def left_by(change: UsageChange, quotas: Quotas) -> Mapping[str, int]:
    """How much of each number that ``change`` raises may be in use before, so that the quota holds after it."""
    wanted = {"models": (change.models, quotas.models), "stored_bytes": (change.stored_bytes, quotas.stored_bytes)}
    return {name: quota - more for name, (more, quota) in wanted.items() if more > 0}


def refusal(change: UsageChange, usage: Usage, quotas: Quotas | None, *, closed: bool) -> TenancyError | None:
    """Why ``change`` is not possible while ``usage`` is what it is, or ``None`` if it is.

    Args:
        change: what is wanted.
        usage: what is in use.
        quotas: what must hold; ``None``: nothing.
        closed: whether the tenant was deleted.
    """
    if closed and change.takes:
        return TenantDeletedError(change.tenant)
    for name, left in ({} if quotas is None else left_by(change, quotas)).items():
        if (used := getattr(usage, name)) > left:
            return QuotaExceededError.of_quota(name, used=used, more=getattr(change, name), quota=getattr(quotas, name))
    return None
