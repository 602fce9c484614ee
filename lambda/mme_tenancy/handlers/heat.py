"""On a schedule: turn the log lines of closed windows into heat."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass

import boto3

from mme_tenancy.aws.clients import logs_client, s3_client
from mme_tenancy.aws.heat import S3Heat
from mme_tenancy.aws.logs import LogsInsights
from mme_tenancy.clock import Clock, SystemClock
from mme_tenancy.handlers.http import Event, LambdaContext, at_cold_start
from mme_tenancy.heat_collection import HeatCollection
from mme_tenancy.settings import HeatSettings
from mme_tenancy.telemetry import heat_line, write_line

__all__ = ["HeatCollector", "handler"]

_MARGIN_SECONDS = 20.0
"""Left of the function's time for what follows the queries: their answers are written then."""


@dataclass(frozen=True, slots=True)
class HeatCollector:
    """The function, wired.

    Args:
        collection: what a pass does.
        clock: time.
        function_name: the metrics' dimension.
    """

    collection: HeatCollection
    clock: Clock
    function_name: str

    def __call__(self, context: LambdaContext) -> dict[str, object]:
        """Do one pass, write its line and say why queries failed; what is left is the next pass's."""
        left = context.get_remaining_time_in_millis() / 1000
        done = self.collection.collect(self.clock.monotonic() + max(left - _MARGIN_SECONDS, left / 2))
        write_line(heat_line(self.function_name, done, epoch_seconds=self.clock.time()))
        if done.why:
            write_line(json.dumps({"level": "ERROR", "heat": done.why}))
        return {"windows": done.windows, "missing": done.missing, "late_lines": done.late_lines, "failed": done.failed}


@at_cold_start
def _application() -> HeatCollector:
    settings = HeatSettings.read(os.environ)
    session, clock = boto3.Session(), SystemClock()
    queries, store = LogsInsights(logs_client(session), settings.log_groups), S3Heat(s3_client(session), settings.bucket_name)
    return HeatCollector(
        HeatCollection(queries, store, clock, settings.rules), clock, os.environ.get("AWS_LAMBDA_FUNCTION_NAME", "heat-collector")
    )


def handler(event: Event, context: LambdaContext) -> dict[str, object]:  # noqa: ARG001 - the schedule's event says nothing
    """The Lambda's entry point."""
    return _application()(context)
