"""Log lines in CloudWatch's embedded metric format (EMF): one per invocation, upload and look at a fleet; no counter per request.

Names, units and namespaces come from the metric catalogue (`mme_facts.metrics_own`).
"""

from __future__ import annotations

import json
import sys
import threading
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

from mme_facts import telemetry
from mme_facts.metrics_own import (
    ADMISSION_METRICS,
    ADMISSION_NAMESPACE,
    FLEET_METRICS,
    FLEET_NAMESPACE,
    HEAT_METRICS,
    HEAT_NAMESPACE,
    PREFETCH_METRICS,
    SWEEP_METRICS,
    SWEEP_NAMESPACE,
    WARM_UP_METRICS,
    WARM_UP_NAMESPACE,
)
from mme_facts.telemetry import LineSettings

if TYPE_CHECKING:
    from mme_tenancy.heat_collection import Collected
    from mme_tenancy.warm_up.prefetching import Prefetched
    from mme_tenancy.warm_up.run import WarmUpSummary

__all__ = [
    "admission_line",
    "fleet_line",
    "heat_line",
    "invocation_line",
    "prefetch_line",
    "sweep_line",
    "to_standard_output",
    "warm_up_line",
    "write_line",
]

_DEFAULT = LineSettings()
_NAMED_FAILURES = 20


def invocation_line(fields: Mapping[str, object], *, epoch_seconds: float, settings: LineSettings | None = None) -> str:
    """The line as JSON text. Every request has one and its numbers are never sampled: what is counted of the lines is exact.

    Only the fields of the access log are (`mme_facts.telemetry.ACCESS_FIELDS`), by the request's id, so that a retry of the same request
    is judged alike everywhere.

    Args:
        fields: tenant, model, version, endpoint, placement, component, latency_ms, attempts, cold, failed, throttled, status and more.
            Without an endpoint (the request ended before there was a route) the line carries no metrics. ``sampled`` says whether the
            caller samples the request's trace; it is not written.
        epoch_seconds: now.
        settings: which tenants have metrics of their own, and how many lines carry the access log. Default: `LineSettings` as it stands.
    """
    settings = _DEFAULT if settings is None else settings
    line: dict[str, object] = {name: value for name, value in fields.items() if value is not None and name != "sampled"}
    if not _accessed(fields, settings):
        line = {name: value for name, value in line.items() if name not in telemetry.ACCESS_FIELDS}
    if "endpoint" not in line:
        return _text(line)
    names = tuple(name for name in telemetry.METRICS if name in line)
    directives = _directives(names, line.get("tenant") in settings.tenants)
    return f'{_text(line)[:-1]},"_aws":{{"Timestamp":{int(epoch_seconds * 1000)},"CloudWatchMetrics":{directives}}}}}'


@cache
def _directives(names: tuple[str, ...], of_tenant: bool) -> str:
    """What most lines share, as JSON text."""
    dimensions = [telemetry.DIMENSIONS, *([telemetry.TENANT_DIMENSIONS] if of_tenant else [])]
    units = [(name, telemetry.METRICS[name]) for name in names]
    return _text([_directive(telemetry.NAMESPACE, dimensions, units)])


def _accessed(fields: Mapping[str, object], settings: LineSettings) -> bool:
    if settings.access_share >= 1 or fields.get("cold") or fields.get("sampled"):
        return True
    status, latency_ms = fields.get("status"), fields.get("latency_ms")
    if not isinstance(status, int) or status >= 400 or not isinstance(latency_ms, int | float) or latency_ms >= settings.slow_ms:
        return True
    return zlib.crc32(str(fields.get("request_id")).encode()) < settings.access_share * 2**32


def admission_line(function_name: str, *, rejected: bool, epoch_seconds: float) -> str:
    """The metrics of an upload that was admitted or rejected, as JSON text.

    Args:
        function_name: the admission function's name, the metrics' only dimension.
        rejected: whether the artifact was rejected.
        epoch_seconds: now.
    """
    units = [(row.name, row.unit) for row in ADMISSION_METRICS]
    line: dict[str, object] = {"function": function_name, "admitted": int(not rejected), "rejected": int(rejected)}
    line["_aws"] = _metadata(ADMISSION_NAMESPACE, [("function",)], units, epoch_seconds)
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
    line["_aws"] = _metadata(FLEET_NAMESPACE, [("endpoint",)], units, epoch_seconds)
    return _text(line)


def sweep_line(function_name: str, done: Mapping[str, object], *, epoch_seconds: float) -> str:
    """What a tick of the sweep did, as JSON text.

    Args:
        function_name: the sweeper's name, the metrics' only dimension.
        done: counts by name, and more for readers of the log.
        epoch_seconds: now.
    """
    units = [(row.name, row.unit) for row in SWEEP_METRICS]
    line: dict[str, object] = {"message": "swept", "function": function_name, **done}
    line["_aws"] = _metadata(SWEEP_NAMESPACE, [("function",)], units, epoch_seconds)
    return _text(line)


def heat_line(function_name: str, collected: Collected, *, epoch_seconds: float) -> str:
    """The metrics of a pass of the heat collector, as JSON text.

    Args:
        function_name: the collector's name, the metrics' only dimension.
        collected: what the pass did.
        epoch_seconds: now.
    """
    values = {row.name: getattr(collected, row.name) for row in HEAT_METRICS}
    line: dict[str, object] = {"function": function_name, **{name: value for name, value in values.items() if value is not None}}
    units = [(row.name, row.unit) for row in HEAT_METRICS if row.name in line]
    line["_aws"] = _metadata(HEAT_NAMESPACE, [("function",)], units, epoch_seconds)
    return _text(line)


def warm_up_line(
    endpoint: str, summary: WarmUpSummary | None, *, why: str, failed: bool, epoch_seconds: float, problems: Mapping[str, int] | None = None
) -> str:
    """What a warm-up did, as JSON text, once it has ended.

    Args:
        endpoint: the endpoint's name, the metrics' only dimension.
        summary: what was done; ``None``: nobody is left who knows. Of the models that failed the first ones are named, for readers of the
            log.
        why: what it was for, such as the change's kind and number, and why it ended.
        failed: whether it was given up.
        epoch_seconds: now.
        problems: what failed beside the calls, and how often.
    """
    line: dict[str, object] = {"message": "warmed up", "endpoint": endpoint, "why": why, "failed": int(failed)}
    if summary is not None:
        told = summary.document()
        line |= {
            "models_warmed": summary.warmed,
            "calls": summary.calls,
            "bytes_warmed": summary.bytes,
            "seconds": round(summary.seconds, 3),
            "cold_requests_avoided": round(summary.cold_requests_avoided, 1),
            "overrun": int(summary.end == "time"),
        }
        names = ("end", "detail", "planned", "loaded", "loaded_bytes", "skipped", "throttled", "not_ready", "repeated")
        line |= {name: told[name] for name in names}
        line |= {"failed_models": len(summary.failed), "first_failed": told["failed"][:_NAMED_FAILURES]}
    if problems:
        line["problems"] = dict(problems)
    units = [(row.name, row.unit) for row in WARM_UP_METRICS if row.name in line]
    line["_aws"] = _metadata(WARM_UP_NAMESPACE, [("endpoint",)], units, epoch_seconds)
    return _text(line)


def prefetch_line(endpoint: str, done: Prefetched, *, called: int, more: Mapping[str, object], epoch_seconds: float) -> str:
    """What a minute of prefetch came to, as JSON text.

    Args:
        endpoint: the endpoint's name, the metrics' only dimension.
        done: what was learned and due.
        called: the models that were called.
        more: what came of the calls, for readers of the log.
        epoch_seconds: now.
    """
    line: dict[str, object] = {"message": "prefetch", "endpoint": endpoint, **done.document(), **more}
    line |= {"prefetched": called, "prefetch_loads": done.expected_loads, "prefetch_used": done.used, "prefetch_wasted": done.wasted}
    units = [(row.name, row.unit) for row in PREFETCH_METRICS]
    line["_aws"] = _metadata(WARM_UP_NAMESPACE, [("endpoint",)], units, epoch_seconds)
    return _text(line)


def to_standard_output(line: str) -> None:
    """Write one line to standard output, which Lambda sends to the function's log."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


_WRITING = threading.RLock()
"""Reentrant: a signal's handler, or a generator that the garbage collector ends, may write its line while the thread writes another."""


def write_line(line: str, write: Callable[[str], object] = to_standard_output) -> None:
    """Write one line to the function's log, or to an application's, while no other thread of the process writes one.

    Text files of Python 3.11, and of 3.12 until the summer of 2024, are not safe for threads, standard output among them: when several
    write at once, lines get lost and keep their memory for good, and other memory may be written in their place (python/cpython#119506).

    Args:
        line: the line, without its end.
        write: takes it. Default: `to_standard_output`.
    """
    with _WRITING:
        write(line)


def _directive(namespace: str, dimensions: Sequence[Sequence[str]], units: Iterable[tuple[str, str]]) -> dict[str, object]:
    metrics = [{"Name": name, "Unit": unit} for name, unit in units]
    return {"Namespace": namespace, "Dimensions": dimensions, "Metrics": metrics}


def _metadata(
    namespace: str, dimensions: Sequence[Sequence[str]], units: Iterable[tuple[str, str]], epoch_seconds: float
) -> dict[str, object]:
    return {"Timestamp": int(epoch_seconds * 1000), "CloudWatchMetrics": [_directive(namespace, dimensions, units)]}


_text = json.JSONEncoder(separators=(",", ":")).encode
