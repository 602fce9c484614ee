"""The tenant's record."""

from __future__ import annotations

from dataclasses import dataclass

from mme_facts.grammar import check_tenant_id

__all__ = ["Tenant"]


@dataclass(frozen=True, slots=True)
class Tenant:
    """A tenant.

    Attributes:
        tenant: its id.
        created_at: timestamp.
        updated_at: timestamp.
        rev: revision of the record, counted up by every write.
    """

    tenant: str
    created_at: str
    updated_at: str
    rev: int = 1

    def __post_init__(self) -> None:
        check_tenant_id(self.tenant)

    def document(self) -> dict[str, object]:
        """What the API shows."""
        return {"tenant": self.tenant, "created_at": self.created_at, "updated_at": self.updated_at}
