"""A model's record and its route: where the model's requests go now."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mme_facts.grammar import VersionId, check_model_id, check_tenant_id

__all__ = ["Model", "Route"]


@dataclass(frozen=True, slots=True)
class Route:
    """Where requests go.

    Attributes:
        endpoint: the endpoint's name.
        variant: its production variant.
        version: id of the active version.
        target_model: what InvokeEndpoint takes as TargetModel.
        rev: counts the changes of the route.
    """

    endpoint: str
    variant: str
    version: str
    target_model: str
    rev: int = 1

    @property
    def number(self) -> int:
        """Number of the active version."""
        return VersionId.parse(self.version).number


@dataclass(frozen=True, slots=True)
class Model:
    """A tenant's model.

    Attributes:
        tenant: tenant id.
        model: model id.
        last_version: number of the newest version; counts up.
        created_at: timestamp.
        updated_at: timestamp.
        route: where its requests go; ``None`` until a version became active.
        rev: revision of the record, counted up by every write.
    """

    tenant: str
    model: str
    last_version: int
    created_at: str
    updated_at: str
    route: Route | None = None
    rev: int = 1

    def __post_init__(self) -> None:
        check_tenant_id(self.tenant)
        check_model_id(self.model)

    def count_up(self, now: str) -> Model:
        """The record after the next version number was taken."""
        return replace(self, last_version=self.last_version + 1, updated_at=now, rev=self.rev + 1)

    def reroute(self, route: Route, now: str) -> Model:
        """The record with another route; the route's own revision is counted up here."""
        return replace(self, route=replace(route, rev=self.route.rev + 1 if self.route else 1), updated_at=now, rev=self.rev + 1)

    def document(self) -> dict[str, object]:
        """What the API shows."""
        return {
            "tenant": self.tenant,
            "model": self.model,
            "active_version": self.route.version if self.route else None,
            "last_version": self.last_version,
            "created_at": self.created_at,
            "updated_at": self.updated_at,
        }
