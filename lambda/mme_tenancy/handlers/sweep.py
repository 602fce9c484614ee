"""Every few minutes: one tick of the sweep. It answers with what it did, and writes the same as one line of its log, with metrics."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import boto3

from mme_tenancy.aws.clients import dynamodb_client, events_client, s3_client
from mme_tenancy.aws.dynamodb import DynamoRegistry
from mme_tenancy.aws.sweeping import DynamoSweepIndex, EventAdmissions, S3SweepObjects
from mme_tenancy.clock import Clock, SystemClock
from mme_tenancy.handlers.http import Event, at_cold_start
from mme_tenancy.handlers.invocation import LambdaContext
from mme_tenancy.settings import SweepSettings
from mme_tenancy.sweep import Sweeper, SweepRules
from mme_tenancy.telemetry import sweep_line, write_line

__all__ = ["Sweep", "handler"]

_CONTEXT_MARGIN_SECONDS = 15.0
"""Left for what was begun before the deadline."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """The function, wired.

    Args:
        sweeper: does ticks.
        clock: time.
        function_name: the function's name, the metrics' only dimension.
    """

    sweeper: Sweeper
    clock: Clock
    function_name: str

    def __call__(self, context: LambdaContext) -> dict[str, Any]:
        """One tick. What failed is told and counted, not raised: another try at once would only meet it again."""
        deadline = self.clock.monotonic() + context.get_remaining_time_in_millis() / 1000 - _CONTEXT_MARGIN_SECONDS
        done = self.sweeper.tick(deadline=deadline).document()
        write_line(sweep_line(self.function_name, done, epoch_seconds=self.clock.time()))
        return done


@at_cold_start
def _application() -> Sweep:
    settings = SweepSettings.read(os.environ)
    session, clock = boto3.Session(), SystemClock()
    dynamodb, times = dynamodb_client(session), settings.times
    sweeper = Sweeper(
        DynamoRegistry(dynamodb, settings.table_name),
        DynamoSweepIndex(dynamodb, settings.table_name),
        S3SweepObjects(s3_client(session), settings.bucket_name, settings.models_prefix),
        EventAdmissions(events_client(session), settings.bucket_name),
        clock,
        SweepRules(
            times.stuck_seconds,
            expire_seconds=times.expire_seconds,
            orphan_seconds=times.orphan_seconds,
            retired_seconds=times.retired_seconds,
            unrecorded_seconds=times.unrecorded_seconds,
        ),
    )
    return Sweep(sweeper, clock, os.environ.get("AWS_LAMBDA_FUNCTION_NAME", "sweep"))


def handler(event: Event, context: LambdaContext) -> dict[str, Any]:  # noqa: ARG001 - Lambda's signature
    """The Lambda's entry point."""
    return _application()(context)
