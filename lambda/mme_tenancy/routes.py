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
        target_model: what InvokeEndpoint takes as TargetModel; names the artifact also where a component serves it.
        component: the inference component of its own that serves it; ``None`` on a shared endpoint.
    """

    endpoint: str
    variant: str
    version: str
    target_model: str
    component: str | None = None

    @property
    def key(self) -> str:
        """What is invoked, in one name: component names hold no ``/`` and artifacts' names do, so no two are alike."""
        return self.component or self.target_model


@dataclass(frozen=True, slots=True)
class Canary:
    """A second version that gets a part of the requests; it may be in another pool than the active one.

    It is always served by a shared endpoint, also beside an active version that has a component of its own.

    Attributes:
        endpoint: the endpoint's name.
        variant: its production variant.
        version: the version's id.
        target_model: what InvokeEndpoint takes as TargetModel.
        percent: its part of the sticky keys, above 0 and below 100; a hundredth counts.
    """

    endpoint: str
    variant: str
    version: str
    target_model: str
    percent: float

    @property
    def target(self) -> Target:
        """The version as requests reach it."""
        return Target(self.endpoint, self.variant, self.version, self.target_model)

    def document(self) -> dict[str, object]:
        """What the API shows."""
        return {"version": self.version, "percent": self.percent}


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
        component: the inference component that serves the active version, and it alone: the placement is dedicated. ``None``: shared.
    """

    endpoint: str
    variant: str
    version: str
    target_model: str
    canary: Canary | None = None
    rev: int = 1
    component: str | None = None

    @property
    def number(self) -> int:
        """Number of the active version."""
        return VersionId.parse(self.version).number

    @property
    def active(self) -> Target:
        """The active version."""
        return Target(self.endpoint, self.variant, self.version, self.target_model, self.component)

    @property
    def versions(self) -> tuple[str, ...]:
        """Ids of the versions that get requests: the active one, then the canary."""
        return (self.version,) if self.canary is None else (self.version, self.canary.version)

    def choose(self, sticky_key: str) -> Target:
        """Where the request with this key goes: always the same as long as the route stays, and more keys the higher the percentage."""
        if self.canary is not None:
            digest = hashlib.sha256(f"{self.canary.version}\0{sticky_key}".encode("utf-8", "surrogatepass")).digest()
            if int.from_bytes(digest[:8], "big") % _BUCKETS < self.canary.percent * _BUCKETS / 100:
                return self.canary.target
        return self.active


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
        retired_through: versions up to this number went with a deletion: none of them gets requests again.
        retiring_below: of those, the ones below this number are still to be retired; ``None`` if none is. While there are some, the
            record is listed in the index of what is under way.
    """

    tenant: str
    model: str
    last_version: int
    created_at: str
    updated_at: str
    route: Route | None = None
    rev: int = 1
    retired_at: str | None = None
    retired_through: int = 0
    retiring_below: int | None = None

    def __post_init__(self) -> None:
        check_tenant_id(self.tenant)
        check_model_id(self.model)

    def count_up(self, now: str) -> Model:
        """The record after the next version number was taken; a retired model is back."""
        return replace(self, last_version=self.last_version + 1, updated_at=now, rev=self.rev + 1, retired_at=None)

    def reroute(self, route: Route | None, now: str) -> Model:
        """The record with another route, or with none; the route's own revision is counted up here."""
        if route is not None:
            route = replace(route, rev=self.route.rev + 1 if self.route else 1)
        return replace(self, route=route, updated_at=now, rev=self.rev + 1)

    def delete(self, now: str, *, retiring_below: int | None) -> Model:
        """The record once it is deleted: no route, and every version until now is retired or will be.

        Args:
            now: timestamp.
            retiring_below: the versions with lower numbers are still to be retired; ``None`` if none is.
        """
        return replace(
            self,
            route=None,
            retired_at=now,
            retired_through=self.last_version,
            retiring_below=retiring_below,
            updated_at=now,
            rev=self.rev + 1,
        )

    def retired(self, below: int | None, now: str) -> Model:
        """The record after more of its versions were retired: those ``below`` are left, or none."""
        return replace(self, retiring_below=below, updated_at=now, rev=self.rev + 1)

    def document(self) -> dict[str, object]:
        """What the API shows."""
        canary = self.route.canary if self.route else None
        return {
            "tenant": self.tenant,
            "model": self.model,
            "active_version": self.route.version if self.route else None,
            "canary": canary.document() if canary else None,
            "last_version": self.last_version,
            "created_at": self.created_at,
            "updated_at": self.updated_at,
            "retired_at": self.retired_at,
            "retiring": self.retiring_below is not None,
        }
