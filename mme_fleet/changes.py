"""What may happen to the fleet in a simulation, by a script or by a policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from mme_fleet.routing import Router
from mme_fleet.settings import FleetSettings

__all__ = ["FleetChange", "InstanceSpec", "LoseInstance", "LoseZone", "ScaleIn", "ScaleOut", "UpdateFleet"]


@dataclass(frozen=True, slots=True)
class InstanceSpec:
    """An instance to be: see `mme_fleet.InstanceUp` for the budgets and the zone.

    Attributes:
        resident: models that are in its memory when it first comes up, the least recently used first: the state of an earlier run, or
            what a perfect copy of caches would be. They take the memory that the costs say.
    """

    memory_bytes: int
    disk_bytes: int
    zone: str = ""
    resident: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ScaleOut:
    """Further instances take requests from now on; they are empty, unless told otherwise. Their start-up time is the script's business."""

    instances: Sequence[InstanceSpec]


@dataclass(frozen=True, slots=True)
class ScaleIn:
    """The newest ``count`` instances are drained. Which ones AWS chooses is not documented."""

    count: int = 1

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"count is {self.count}: use 1 or more")


@dataclass(frozen=True, slots=True)
class LoseInstance:
    """An instance dies.

    Attributes:
        instance: its name.
        returns_after_seconds: when it is up again, empty; ``None``: never.
        disk_kept: its artifacts are still on disk then, as after the end of a container; AWS replaces a lost instance by an empty one.
    """

    instance: str
    returns_after_seconds: float | None = None
    disk_kept: bool = False


@dataclass(frozen=True, slots=True)
class LoseZone:
    """All instances of an availability zone die at once.

    Attributes:
        zone: its name.
        returns_after_seconds: when they are up again, empty; ``None``: never.
    """

    zone: str
    returns_after_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class UpdateFleet:
    """Blue/green: requests go to a whole new, empty fleet from now on; the old one answers what it has, and then ends.

    Attributes:
        instances: of the new fleet; ``None``: such ones as the old one has in service.
        settings: of the new fleet; ``None``: the old ones.
        router: makes its router; ``None``: as the old one.
    """

    instances: Sequence[InstanceSpec] | None = None
    settings: FleetSettings | None = None
    router: Callable[[], Router] | None = None


FleetChange: TypeAlias = ScaleOut | ScaleIn | LoseInstance | LoseZone | UpdateFleet
