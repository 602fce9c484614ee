"""What the fleet watch publishes: how long an endpoint has been out of service, and how many instances it has.

SageMaker has no metric for an endpoint that stays in ``Updating``; its description has status and time of the last change.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from mme_tenancy.telemetry import fleet_line

__all__ = ["EndpointState", "Fleets", "watch"]

_IN_SERVICE = "InService"


@dataclass(frozen=True, slots=True)
class EndpointState:
    """An endpoint as its description tells it.

    Attributes:
        status: EndpointStatus, such as ``Updating``.
        modified_at: when it last changed, epoch seconds.
        instances: instances of all its variants now.
    """

    status: str
    modified_at: float
    instances: int

    def updating_seconds(self, now: float) -> float:
        """Seconds since the last change while it is not in service; 0 in service."""
        return 0.0 if self.status == _IN_SERVICE else max(0.0, now - self.modified_at)


class Fleets(Protocol):
    """Describes endpoints."""

    def state(self, endpoint: str) -> EndpointState | None:
        """The endpoint's state; ``None`` if there is no such endpoint."""
        ...


def watch(fleets: Fleets, endpoints: Iterable[str], now: float) -> list[str]:
    """One log line for each endpoint that exists.

    Args:
        fleets: describes them.
        endpoints: names.
        now: epoch seconds.
    """
    states = ((endpoint, fleets.state(endpoint)) for endpoint in endpoints)
    return [
        fleet_line(
            endpoint, updating_seconds=state.updating_seconds(now), instances=state.instances, status=state.status, epoch_seconds=now
        )
        for endpoint, state in states
        if state is not None
    ]
