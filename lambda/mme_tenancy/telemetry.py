"""Log lines in CloudWatch's embedded metric format (EMF): one per invocation, upload and look at a fleet; no counter per request.

Names, units and namespaces come from the metric catalogue (`mme_facts.metrics_own`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping

from mme_facts import telemetry
from mme_facts.metrics_own import ADMISSION_METRICS, ADMISSION_NAMESPACE, FLEET_METRICS, FLEET_NAMESPACE

__all__ = ["admission_line", "fleet_line", "invocation_line", "write_line"]


def invocation_line(fields: Mapping[str, object], *, epoch_seconds: float) -> str:
    """The line as JSON text.

    Args:
        fields: tenant, model, version, endpoint, placement, latency_ms, attempts, cold, failed, throttled, status and more. Without an
            endpoint (the request ended before there was a route) the line carries no metrics.
        epoch_seconds: now.
    """
    line: dict[str, object] = {name: value for name, value in fields.items() if value is not None}
    if "endpoint" in line:
        line["_aws"] = _directive(telemetry.NAMESPACE, telemetry.DIMENSIONS, telemetry.METRICS.items(), epoch_seconds)
    return _text(line)


def admission_line(function_name: str, *, rejected: bool, epoch_seconds: float) -> str:
    """The metrics of an upload that was admitted or rejected, as JSON text.

    Args:
        function_name: the admission function's name, the metrics' only dimension.
        rejected: whether the artifact was rejected.
        epoch_seconds: now.
    """
    units = [(row.name, row.unit) for row in ADMISSION_METRICS]
    line: dict[str, object] = {"function": function_name, "admitted": int(not rejected), "rejected": int(rejected)}
    line["_aws"] = _directive(ADMISSION_NAMESPACE, ("function",), units, epoch_seconds)
    return _text(line)


def fleet_line(endpoint: str, *, updating_seconds: float, instances: int, status: str, epoch_seconds: float) -> str:
    """The metrics of an endpoint's state, as JSON text.

    Args:
        endpoint: its name, the metrics' only dimension.
        updating_seconds: how long it has been out of service; 0 in service.
        instances: how many it has.
        status: EndpointStatus, for readers of the log.
        epoch_seconds: now.
    """
    units = [(row.name, row.unit) for row in FLEET_METRICS]
    line: dict[str, object] = {"endpoint": endpoint, "updating_seconds": updating_seconds, "instances": instances, "status": status}
    line["_aws"] = _directive(FLEET_NAMESPACE, ("endpoint",), units, epoch_seconds)
    return _text(line)


def write_line(line: str) -> None:
    """Write one line to the function's log."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _directive(namespace: str, dimensions: Iterable[str], units: Iterable[tuple[str, str]], epoch_seconds: float) -> dict[str, object]:
    metrics = [{"Name": name, "Unit": unit} for name, unit in units]
    directive = {"Namespace": namespace, "Dimensions": [list(dimensions)], "Metrics": metrics}
    return {"Timestamp": int(epoch_seconds * 1000), "CloudWatchMetrics": [directive]}


def _text(line: Mapping[str, object]) -> str:
    return json.dumps(line, separators=(",", ":"))
