"""The tenant's record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum

from mme_facts.grammar import check_tenant_id
from mme_tenancy.errors import FormatNotAllowedError, TenantDeletedError

__all__ = ["Quotas", "Tenant", "Tier", "Usage"]


class Tier(StrEnum):
    """How far a tenant is trusted."""

    STANDARD = "standard"
    """Its artifacts are data only."""
    TRUSTED = "trusted"
    """Its artifacts may carry code, which runs in the container that other tenants share."""


@dataclass(frozen=True, slots=True)
class Quotas:
    """What a tenant may use.

    Attributes:
        models: models at the same time.
        stored_bytes: compressed bytes of all its artifacts.
        requests_per_second: invocations a second.
        in_flight: invocations under way at the same time.
        cold_loads: models at the same time that are being loaded on its behalf, or may be.

    The last three hold in each container of the invocation function, and in each process of an application, by itself.
    """

    models: int = 10_000
    stored_bytes: int = 100 * 2**30
    requests_per_second: int = 100
    in_flight: int = 64
    cold_loads: int = 8

    def document(self) -> dict[str, object]:
        """What the API shows."""
        return asdict(self)

    @classmethod
    def known_of(cls, values: Mapping[str, int]) -> Quotas:
        """The quotas that a record holds: those that it has not are the defaults, and those of a later release are passed over."""
        return cls(**{name: values[name] for name in cls.__dataclass_fields__ if name in values})


@dataclass(frozen=True, slots=True)
class Tenant:
    """A tenant.

    Attributes:
        tenant: its id.
        created_at: timestamp.
        updated_at: timestamp.
        tier: how far it is trusted.
        quotas: what it may use.
        formats: frameworks whose artifacts it may bring; ``None``: all that the platform serves.
        deleted_at: timestamp of its deletion; ``None`` while it lives.
        rev: revision of the record, counted up by every write.
        retiring_after: the models behind this id are still to be retired, after a deletion; empty: all of them; ``None``: none is. While
            there are some, the record is listed in the index of what is under way.
        api_key: id of its key at the gateway, where the platform has usage plans; ``None``: it has none yet.
    """

    tenant: str
    created_at: str
    updated_at: str
    tier: Tier = Tier.STANDARD
    quotas: Quotas = field(default_factory=Quotas)
    formats: tuple[str, ...] | None = None
    deleted_at: str | None = None
    rev: int = 1
    retiring_after: str | None = None
    api_key: str | None = None

    def __post_init__(self) -> None:
        check_tenant_id(self.tenant)

    def check_open(self) -> None:
        """Raise `TenantDeletedError` if nothing of it may be changed any more."""
        if self.deleted_at is not None:
            raise TenantDeletedError(self.tenant)

    def check_format(self, framework: str) -> None:
        """Raise `FormatNotAllowedError` if it may not bring artifacts of ``framework``."""
        if self.formats is not None and framework not in self.formats:
            raise FormatNotAllowedError(self.tenant, framework, self.formats)

    def delete(self, now: str) -> Tenant:
        """The record once the tenant is deleted; all its models are still to be retired."""
        return replace(self, deleted_at=now, retiring_after="", updated_at=now, rev=self.rev + 1)

    def retired(self, after: str | None, now: str) -> Tenant:
        """The record after more of its models were retired: those behind the id ``after`` are left, or none."""
        return replace(self, retiring_after=after, updated_at=now, rev=self.rev + 1)

    def begin_anew(self, now: str) -> Tenant:
        """The record of a deleted tenant that is created again, with nothing of what it had set.

        Raises:
            TenantDeletedError: models of it are still to be retired.
        """
        if self.retiring_after is not None:
            raise TenantDeletedError(self.tenant)
        return Tenant(self.tenant, now, now, rev=self.rev + 1)

    def document(self) -> dict[str, object]:
        """What the API shows."""
        return {
            "tenant": self.tenant,
            "tier": self.tier.value,
            "quotas": self.quotas.document(),
            "formats": None if self.formats is None else list(self.formats),
            "created_at": self.created_at,
            "updated_at": self.updated_at,
            "deleted_at": self.deleted_at,
            "retiring": self.retiring_after is not None,
        }


@dataclass(frozen=True, slots=True)
class Usage:
    """What a tenant uses of its quotas now.

    Attributes:
        tenant: its id.
        models: models that are not retired.
        stored_bytes: declared sizes of all versions that are not rejected, expired or purged.
    """

    tenant: str
    models: int = 0
    stored_bytes: int = 0

    def document(self) -> dict[str, object]:
        """What the API shows."""
        return {"models": self.models, "stored_bytes": self.stored_bytes}
