"""Metrics in log events: CloudWatch's embedded metric format (user guide: Specification: Embedded metric format).

An event that is not in the format makes no metrics. Of one that claims to be, a directive that breaks the specification makes none either,
and counts as ``EMFValidationErrors`` of its log group, as on AWS. AWS does not say what a metric without a value in the event does to the
others of its directive: here it is left out alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mme_local.cloudwatch.store import MetricStore
from mme_local.wire import service_model

__all__ = ["EmbeddedMetric", "embedded_metrics", "put_embedded_metrics"]

_MOST_DIMENSIONS, _MOST_METRICS, _MOST_VALUES = 30, 100, 100
_NAME_CHARACTERS, _DIMENSION_CHARACTERS, _VALUE_CHARACTERS = 1024, 250, 1024
_OLDEST_SECONDS, _NEWEST_SECONDS = 14 * 86400, 2 * 3600
_ERROR_NAMESPACE = "AWS/Logs"


@dataclass(frozen=True, slots=True)
class EmbeddedMetric:
    """One metric of an event, with one set of dimensions.

    Attributes:
        namespace: its namespace.
        name: its name.
        dimensions: name -> value.
        values: its values.
        unit: its unit.
        timestamp: epoch seconds, of the event's metadata.
        resolution: 60 or 1 seconds.
    """

    namespace: str
    name: str
    dimensions: Mapping[str, str]
    values: tuple[float, ...]
    unit: str
    timestamp: float
    resolution: int


class _InvalidError(Exception):
    """The event breaks the specification."""


def embedded_metrics(message: str) -> tuple[list[EmbeddedMetric], int]:
    """The metrics of a log event's message, and how many errors it has."""
    if '"_aws"' not in message:
        return [], 0
    try:
        root = json.loads(message, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return [], 0
    metadata = root.get("_aws") if isinstance(root, dict) else None
    if not isinstance(metadata, dict) or "CloudWatchMetrics" not in metadata:
        return [], 0
    directives, timestamp = metadata["CloudWatchMetrics"], metadata.get("Timestamp")
    if not isinstance(directives, list) or timestamp is None or not _is_number(timestamp):
        return [], 1
    found: list[EmbeddedMetric] = []
    errors = 0
    for directive in directives:
        try:
            found += _of_directive(directive, root, timestamp / 1000)
        except _InvalidError:
            errors += 1
    return found, errors


def put_embedded_metrics(store: MetricStore, log_group: str, messages: Sequence[str], now: float) -> None:
    """Put the metrics of log events that have just been written.

    Args:
        store: where they go.
        log_group: name of the events' log group.
        messages: the events' messages.
        now: scaled epoch seconds; timestamps more than two weeks before or two hours after are refused.
    """
    for message in messages:
        metrics, errors = embedded_metrics(message)
        for metric in metrics:
            if not now - _OLDEST_SECONDS <= metric.timestamp <= now + _NEWEST_SECONDS:
                errors += 1
                continue
            store.put(
                metric.namespace,
                metric.name,
                metric.dimensions,
                metric.values,
                unit=metric.unit,
                timestamp=metric.timestamp,
                resolution=metric.resolution,
            )
        if errors:
            store.put(_ERROR_NAMESPACE, "EMFValidationErrors", {"LogGroupName": log_group}, [errors], unit="Count", timestamp=now)


def _of_directive(directive: Any, root: Mapping[str, Any], timestamp: float) -> Iterator[EmbeddedMetric]:
    if not isinstance(directive, dict):
        raise _InvalidError
    namespace, sets, definitions = (directive.get(member) for member in ("Namespace", "Dimensions", "Metrics"))
    if not _is_text(namespace, _NAME_CHARACTERS) or not isinstance(sets, list) or not sets or not isinstance(definitions, list):
        raise _InvalidError
    if len(definitions) > _MOST_METRICS:
        raise _InvalidError
    all_dimensions = [_dimensions(names, root) for names in sets]
    metrics = [metric for definition in definitions if (metric := _metric(definition, root)) is not None]
    return (
        EmbeddedMetric(str(namespace), name, dimensions, values, unit, timestamp, resolution)
        for name, values, unit, resolution in metrics
        for dimensions in all_dimensions
    )


def _dimensions(names: Any, root: Mapping[str, Any]) -> dict[str, str]:
    if not isinstance(names, list) or len(names) > _MOST_DIMENSIONS:
        raise _InvalidError
    if not all(_is_text(name, _DIMENSION_CHARACTERS) and _is_text(root.get(name), _VALUE_CHARACTERS) for name in names):
        raise _InvalidError
    return {name: root[name] for name in names}


def _metric(definition: Any, root: Mapping[str, Any]) -> tuple[str, tuple[float, ...], str, int] | None:
    if not isinstance(definition, dict) or not _is_text(definition.get("Name"), _NAME_CHARACTERS):
        raise _InvalidError
    name, unit, resolution = definition["Name"], definition.get("Unit", "None"), definition.get("StorageResolution", 60)
    if unit not in _units() or resolution not in (1, 60):
        raise _InvalidError
    if name not in root:
        return None
    values = root[name] if isinstance(root[name], list) else [root[name]]
    if len(values) > _MOST_VALUES or not all(_is_number(value) for value in values):
        raise _InvalidError
    return (name, tuple(map(float, values)), unit, resolution) if values else None


def _units() -> Sequence[str]:
    return service_model("cloudwatch", ("PutMetricData",)).enumeration("StandardUnit")


def _is_text(value: object, most: int) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= most


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
