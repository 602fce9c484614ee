"""What happened to an endpoint's fleet between two looks at it, and what a warm-up is for. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["ChangeKind", "FleetChange"]


class ChangeKind(StrEnum):
    """What happened to a fleet."""

    SCALE_OUT = "scale-out"
    """Instances were added; they are empty."""
    UPDATE = "update"
    """An update's fleet takes the requests; all of its instances are empty."""
    REPLACEMENT = "replacement"
    """Instances came back that had been lost, or all were replaced in place; they are empty."""
    LOSS = "loss"
    """Instances are gone, and with them what they held; none is empty."""


@dataclass(frozen=True, slots=True)
class FleetChange:
    """A change of an endpoint's fleet that a warm-up is for.

    Attributes:
        kind: what happened.
        endpoint: the endpoint's name.
        number: counts the changes of the endpoint, from 1: there is one warm-up for each number.
        seen_at: when it was found, epoch seconds.
        instances_before: instances of all variants that took requests before.
        instances_after: instances that take them now.
        empty_instances: how many of those hold nothing yet.
        config_before: name of the endpoint configuration before.
        config_after: name of it now.
    """

    kind: ChangeKind
    endpoint: str
    number: int
    seen_at: float
    instances_before: int
    instances_after: int
    empty_instances: int
    config_before: str
    config_after: str

    @property
    def whole(self) -> bool:
        """Whether every instance is empty."""
        return self.empty_instances >= self.instances_after
