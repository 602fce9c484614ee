"""A model's record and its route: where the model's requests go now."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from mme_facts.grammar import VersionId, check_model_id, check_tenant_id

__all__ = ["Canary", "Model", "Route", "Target"]

_BUCKETS = 10_000
"""Sticky keys fall into so many parts: a hundredth of a percent each."""


@dataclass(frozen=True, slots=True)
class Target:
    """One version where a request reaches it.

    Attributes:
        endpoint: the endpoint's name.
        variant: its production variant.
        version: id of the version.
        target_model: what InvokeEndpoint takes as TargetModel.
    """

    endpoint: str
    variant: str
    version: str
    target_model: str


@dataclass(frozen=True, slots=True)
class Canary:
    """A second version that gets a part of the requests.

    Attributes:
        version: its id.
        target_model: what InvokeEndpoint takes as TargetModel.
        percent: its part of the sticky keys, above 0 and below 100.
    """

    version: str
    target_model: str
    percent: float


@dataclass(frozen=True, slots=True)
class Route:
    """Where requests go.

    Attributes:
        endpoint: the endpoint's name.
        variant: its production variant.
        version: id of the active version.
        target_model: what InvokeEndpoint takes as TargetModel.
        canary: a second version that gets a part of the requests, if there is one.
        rev: counts the changes of the route.
    """

    endpoint: str
    variant: str
    version: str
    target_model: str
    canary: Canary | None = None
    rev: int = 1

    @property
    def number(self) -> int:
        """Number of the active version."""
        return VersionId.parse(self.version).number

    def choose(self, sticky_key: str) -> Target:
        """Where the request with this key goes: always the same as long as the route stays, and more keys the higher the percentage."""
        if self.canary is not None:
            digest = hashlib.sha256(f"{self.canary.version}\0{sticky_key}".encode("utf-8", "surrogatepass")).digest()
            if int.from_bytes(digest[:8], "big") % _BUCKETS < self.canary.percent * _BUCKETS / 100:
                return Target(self.endpoint, self.variant, self.canary.version, self.canary.target_model)
        return self.active

    @property
    def active(self) -> Target:
        """The active version."""
        return Target(self.endpoint, self.variant, self.version, self.target_model)


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
        retired_at: timestamp of its deletion, from which on it does not count as a model; ``None`` while it lives. The next version that
            is registered brings it back.
    """

    tenant: str
    model: str
    last_version: int
    created_at: str
    updated_at: str
    route: Route | None = None
    rev: int = 1
    retired_at: str | None = None

    def __post_init__(self) -> None:
        check_tenant_id(self.tenant)
        check_model_id(self.model)

    def count_up(self, now: str) -> Model:
        """The record after the next version number was taken; a retired model is back."""
        return replace(self, last_version=self.last_version + 1, updated_at=now, rev=self.rev + 1, retired_at=None)

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
