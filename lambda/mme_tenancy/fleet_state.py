"""An endpoint as its description tells it: the fleet that serves, and one that an update brings up beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["SERVING", "FleetState", "PendingFleet", "Shift"]

_IN_SERVICE = "InService"
SERVING = frozenset({_IN_SERVICE, "Updating", "SystemUpdating", "RollingBack", "UpdateRollbackFailed"})
"""EndpointStatus of endpoints that answer requests (SageMaker API reference: DescribeEndpoint)."""


@dataclass(frozen=True, slots=True)
class Shift:
    """How an update gives the requests to the new fleet.

    Attributes:
        last_after_seconds: from the first share of them to the last one; 0: all at once.
        rolling: whether instances are replaced in batches, each of which takes its share at once.
    """

    last_after_seconds: float = 0.0
    rolling: bool = False


@dataclass(frozen=True, slots=True)
class PendingFleet:
    """The fleet that an update under way brings up.

    Attributes:
        config: its endpoint configuration.
        instances: instances by variant, now.
        started_at: when the update began, epoch seconds.
        desired: instances by variant that it is to have.
        shifted_at: since when the new fleet has taken requests, as far as its present stage tells; ``None``: it takes none yet.
        all_shifted: whether a stage tells that the old fleet takes none any more.
        shift: how the requests go over to it.
    """

    config: str
    instances: Mapping[str, int]
    started_at: float
    desired: Mapping[str, int] = field(default_factory=dict)
    shifted_at: float | None = None
    all_shifted: bool = False
    shift: Shift = field(default_factory=Shift)


@dataclass(frozen=True, slots=True)
class FleetState:
    """An endpoint's fleets at one moment.

    Attributes:
        endpoint: the endpoint's name.
        status: EndpointStatus, such as ``Updating``.
        config: name of the endpoint configuration.
        created_at: when the endpoint was created, epoch seconds.
        modified_at: when it last changed, epoch seconds.
        instances: instances by variant, now.
        desired: instances by variant that are wanted.
        weights: weights by variant.
        pending: the fleet that an update brings up; ``None``: no update is under way.
        failure: what went wrong with the last change; empty: nothing.
    """

    endpoint: str
    status: str
    config: str
    created_at: float
    modified_at: float
    instances: Mapping[str, int] = field(default_factory=dict)
    desired: Mapping[str, int] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    pending: PendingFleet | None = None
    failure: str = ""

    @property
    def in_service(self) -> bool:
        """Whether it rests: it serves, and nothing is under way."""
        return self.status == _IN_SERVICE

    @property
    def count(self) -> int:
        """Instances of all variants, without those of an update under way."""
        return sum(self.instances.values())

    def updating_seconds(self, now: float) -> float:
        """Seconds since the last change while it is not in service; 0 in service."""
        return 0.0 if self.in_service else max(0.0, now - self.modified_at)
