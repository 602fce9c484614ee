"""The registry of tenants, models and versions, as the domain sees it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, overload

from mme_tenancy.routes import Model
from mme_tenancy.tenants import Quotas, Tenant, Usage
from mme_tenancy.versions import DigestClaim, Version

__all__ = [
    "Change",
    "Key",
    "Page",
    "Record",
    "Registry",
    "claim_key",
    "model_key",
    "tenant_key",
    "usage_key",
    "version_key",
]

Record = Tenant | Model | Version | DigestClaim
"""What the registry holds."""

_T = TypeVar("_T")
_K_co = TypeVar("_K_co", covariant=True)
_A = TypeVar("_A")
_B = TypeVar("_B")
_C = TypeVar("_C")
_D = TypeVar("_D")


@dataclass(frozen=True, slots=True)
class Change:
    """One write: ``after`` replaces ``before``, and only if the stored record still has the revision of ``before``.

    Attributes:
        before: the record as it was read; ``None`` if there must be none yet.
        after: the record to store.
    """

    before: Record | None
    after: Record


@dataclass(frozen=True, slots=True)
class Page(Generic[_T]):
    """A part of a list.

    Attributes:
        items: the part.
        more: whether there is more behind the last item.
    """

    items: Sequence[_T]
    more: bool


@dataclass(frozen=True, slots=True)
class Key(Generic[_K_co]):
    """Names one record of a known kind.

    Attributes:
        kind: the record's class.
        tenant: tenant id.
        model: model id, if the record belongs to a model.
        part: a version's number or an artifact's digest.
    """

    kind: type[_K_co]
    tenant: str
    model: str = ""
    part: int | str = ""


def tenant_key(tenant: str) -> Key[Tenant]:
    """Names a tenant."""
    return Key(Tenant, tenant)


def usage_key(tenant: str) -> Key[Usage]:
    """Names a tenant's usage."""
    return Key(Usage, tenant)


def model_key(tenant: str, model: str) -> Key[Model]:
    """Names a model."""
    return Key(Model, tenant, model)


def version_key(tenant: str, model: str, number: int) -> Key[Version]:
    """Names a version."""
    return Key(Version, tenant, model, number)


def claim_key(tenant: str, model: str, sha256: str) -> Key[DigestClaim]:
    """Names the claim on an artifact."""
    return Key(DigestClaim, tenant, model, sha256)


class Registry(Protocol):
    """Reads are consistent; a write is all or nothing.

    Errors of the store itself (throttling, network) pass through as they are: they are nobody's decision here.
    """

    @overload
    def read(self, a: Key[_A], b: Key[_B], /) -> tuple[_A | None, _B | None]: ...
    @overload
    def read(self, a: Key[_A], b: Key[_B], c: Key[_C], /) -> tuple[_A | None, _B | None, _C | None]: ...
    @overload
    def read(self, a: Key[_A], b: Key[_B], c: Key[_C], d: Key[_D], /) -> tuple[_A | None, _B | None, _C | None, _D | None]: ...
    def read(self, *keys: Key[Any]) -> tuple[Any, ...]:
        """Several records at once, in the order of ``keys``; ``None`` for what is not there.

        Each is read consistently, but not all at the same moment: what depends on two of them is made sure by `write`.
        """
        ...

    def tenant(self, tenant: str) -> Tenant | None:
        """The tenant's record, if there is one."""
        ...

    def model(self, tenant: str, model: str) -> Model | None:
        """The model's record, if there is one."""
        ...

    def version(self, tenant: str, model: str, number: int) -> Version | None:
        """The version's record, if there is one."""
        ...

    def claim(self, tenant: str, model: str, sha256: str) -> DigestClaim | None:
        """Which version of the model holds the artifact with this digest, if one does."""
        ...

    def models(self, tenant: str, *, limit: int, after: str | None = None) -> Page[Model]:
        """At most ``limit`` models by id, those behind the id ``after``."""
        ...

    def versions(self, tenant: str, model: str, *, limit: int, before: int | None = None) -> Page[Version]:
        """At most ``limit`` versions, newest first, those with a number below ``before``."""
        ...

    def write(self, *changes: Change, quotas: Quotas | None = None) -> None:
        """Write all changes or none, and what they do to the tenant's usage with them (`mme_tenancy.usage`).

        Args:
            *changes: the records.
            quotas: what must hold for a change that needs more of something. Default: nothing, as for moves, which only free.

        Raises:
            WriteConflictError: a record's revision is not the stored one any more; nothing else tells whether the rest was possible.
            QuotaExceededError: the changes need more than is left of a quota.
            TenantDeletedError: the changes need more of something, but the tenant was deleted.
        """
        ...
