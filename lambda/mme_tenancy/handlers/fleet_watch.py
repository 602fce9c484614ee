"""Every minute: describe the endpoints that the event names and publish how long each has been out of service."""

from __future__ import annotations

from dataclasses import dataclass

import boto3

from mme_tenancy.aws.clients import sagemaker_client
from mme_tenancy.aws.endpoints import SageMakerFleets
from mme_tenancy.clock import Clock, SystemClock
from mme_tenancy.fleet_watch import Fleets, watch
from mme_tenancy.handlers.http import Event, at_cold_start
from mme_tenancy.telemetry import write_line

__all__ = ["FleetWatch", "handler"]


@dataclass(frozen=True, slots=True)
class FleetWatch:
    """The function, wired.

    Args:
        fleets: describes endpoints.
        clock: time.
    """

    fleets: Fleets
    clock: Clock

    def __call__(self, event: Event) -> dict[str, int]:
        """Write one line for each endpoint of ``event``; an endpoint that was deleted has none.

        An endpoint that cannot be described keeps no other one from its line; the first such error is raised at the end.
        """
        errors: list[Exception] = []
        watched = 0
        for endpoint in event["endpoints"]:
            try:
                lines = watch(self.fleets, [endpoint], self.clock.time())
            except Exception as error:
                errors.append(error)
                continue
            for line in lines:
                write_line(line)
            watched += len(lines)
        if errors:
            raise errors[0]
        return {"watched": watched}


@at_cold_start
def _application() -> FleetWatch:
    return FleetWatch(SageMakerFleets(sagemaker_client(boto3.Session())), SystemClock())


def handler(event: Event, context: object) -> dict[str, int]:  # noqa: ARG001 - Lambda's signature
    """The Lambda's entry point."""
    return _application()(event)
