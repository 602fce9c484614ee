"""What the fleet watch publishes: how long an endpoint has been out of service, and how many instances it has.

SageMaker has no metric for an endpoint that stays in ``Updating``; its description has status and time of the last change.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from mme_tenancy.fleet_state import FleetState
from mme_tenancy.telemetry import fleet_line

__all__ = ["Fleets", "watch"]


class Fleets(Protocol):
    """Describes endpoints."""

    def state(self, endpoint: str) -> FleetState | None:
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
        fleet_line(endpoint, updating_seconds=state.updating_seconds(now), instances=state.count, status=state.status, epoch_seconds=now)
        for endpoint, state in states
        if state is not None
    ]
