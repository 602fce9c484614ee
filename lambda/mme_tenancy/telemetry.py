"""One log line per invocation, in CloudWatch's embedded metric format: nobody writes a counter per request."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping

from mme_facts import telemetry

__all__ = ["invocation_line", "write_line"]


def invocation_line(fields: Mapping[str, object], *, epoch_seconds: float) -> str:
    """The line as JSON text.

    Args:
        fields: tenant, model, version, endpoint, placement, latency_ms, attempts, cold, failed, status and more. Without an
            endpoint (the request ended before there was a route) the line carries no metrics.
        epoch_seconds: now.
    """
    line: dict[str, object] = {name: value for name, value in fields.items() if value is not None}
    if "endpoint" in line:
        directive = {
            "Namespace": telemetry.NAMESPACE,
            "Dimensions": [list(telemetry.DIMENSIONS)],
            "Metrics": [{"Name": name, "Unit": unit} for name, unit in telemetry.METRICS.items()],
        }
        line["_aws"] = {"Timestamp": int(epoch_seconds * 1000), "CloudWatchMetrics": [directive]}
    return json.dumps(line, separators=(",", ":"))


def write_line(line: str) -> None:
    """Write one line to the function's log."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
