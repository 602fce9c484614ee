"""The registry of tenants, models and versions, as the domain sees it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from mme_tenancy.routes import Model
from mme_tenancy.tenants import Tenant
from mme_tenancy.versions import DigestClaim, Version

__all__ = ["Change", "Page", "Record", "Registry"]

Record = Tenant | Model | Version | DigestClaim
"""What the registry holds."""

_T = TypeVar("_T")


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


class Registry(Protocol):
    """Reads are consistent; a write is all or nothing.

    Errors of the store itself (throttling, network) pass through as they are: they are nobody's decision here.
    """

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

    def write(self, *changes: Change) -> None:
        """Write all changes or none; raises `WriteConflictError` if one's revision is not the stored one any more."""
        ...
