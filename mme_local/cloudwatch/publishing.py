"""PutMetricData: what it takes, and how it becomes samples (API reference of PutMetricData)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mme_local.cloudwatch.queries import metric_of
from mme_local.cloudwatch.store import Metric, MetricStore
from mme_local.wire import AwsError

__all__ = ["Datum", "check_data", "put_data"]

_MOST_DATA, _MOST_VALUES = 1000, 150
_GREATEST = 2.0**360
_OLDEST_SECONDS, _NEWEST_SECONDS = 14 * 86400, 2 * 3600
_RESOLUTIONS = (1, 60)
_SET_MEMBERS = ("SampleCount", "Sum", "Minimum", "Maximum")


@dataclass(frozen=True, slots=True)
class Datum:
    """One checked element of MetricData.

    Attributes:
        metric: what it is of.
        unit: of its values.
        timestamp: scaled epoch seconds.
        resolution: 1 or 60 seconds.
        values: the values; empty for a statistic set.
        counts: how often each value was seen.
        summary: count, sum, minimum and maximum of a statistic set, or None.
    """

    metric: Metric
    unit: str
    timestamp: float
    resolution: int
    values: tuple[float, ...]
    counts: tuple[float, ...]
    summary: tuple[float, float, float, float] | None


def check_data(given: Mapping[str, Any], now: float) -> list[Datum]:
    """Check a PutMetricData document that the model has accepted.

    Args:
        given: the document.
        now: scaled epoch seconds.

    Raises:
        AwsError: a value, a combination or a timestamp is not allowed.
    """
    if "EntityMetricData" in given or "StrictEntityValidation" in given:
        raise AwsError("InvalidParameterValue", "The local cloud knows no entities: leave out EntityMetricData and StrictEntityValidation.")
    data = given.get("MetricData", [])
    if not data:
        raise AwsError("MissingParameter", "The parameter MetricData is required.")
    if len(data) > _MOST_DATA:
        raise AwsError("InvalidParameterValue", f"The collection MetricData must not have a size greater than {_MOST_DATA}.")
    return [_datum(given["Namespace"], datum, f"MetricData.member.{number}", now) for number, datum in enumerate(data, 1)]


def put_data(store: MetricStore, data: Sequence[Datum]) -> None:
    """Put checked data."""
    for datum in data:
        if datum.summary is not None:
            count, total, low, high = datum.summary
            store.put_set(
                datum.metric,
                count=count,
                total=total,
                low=low,
                high=high,
                unit=datum.unit,
                timestamp=datum.timestamp,
                resolution=datum.resolution,
            )
            continue
        store.put(
            datum.metric.namespace,
            datum.metric.name,
            dict(datum.metric.dimensions),
            datum.values,
            unit=datum.unit,
            timestamp=datum.timestamp,
            counts=datum.counts,
            resolution=datum.resolution,
        )


def _datum(namespace: str, datum: Mapping[str, Any], path: str, now: float) -> Datum:
    metric = metric_of({**datum, "Namespace": namespace})
    timestamp = float(datum.get("Timestamp", now))
    if not now - _OLDEST_SECONDS <= timestamp <= now + _NEWEST_SECONDS:
        raise AwsError(
            "InvalidParameterValue",
            f"The parameter {path}.Timestamp must specify a time within the past two weeks and not more than two hours in the future.",
        )
    resolution = datum.get("StorageResolution", 60)
    if resolution not in _RESOLUTIONS:
        raise AwsError("InvalidParameterValue", f"The parameter {path}.StorageResolution must be 1 or 60.")
    forms = [member for member in ("Value", "Values", "StatisticValues") if member in datum]
    if not forms:
        raise AwsError("MissingParameter", f"One of the parameters {path}.Value, {path}.Values and {path}.StatisticValues is required.")
    if len(forms) > 1:
        raise AwsError(
            "InvalidParameterCombination", f"The parameters {' and '.join(f'{path}.{form}' for form in forms)} are mutually exclusive."
        )
    if "Counts" in datum and "Values" not in datum:
        raise AwsError("InvalidParameterCombination", f"The parameter {path}.Counts requires {path}.Values.")
    values, counts, summary = tuple(datum.get("Values", ())), (), None
    if "StatisticValues" in datum:
        summary = _summary(datum["StatisticValues"], path)
    else:
        values = values or ((datum["Value"],) if "Value" in datum else ())
        counts = tuple(datum.get("Counts") or [1.0] * len(values))
        _check_values(values, counts, path)
    return Datum(metric, datum.get("Unit", "None"), timestamp, resolution, values, counts, summary)


def _check_values(values: Sequence[float], counts: Sequence[float], path: str) -> None:
    if not 1 <= len(values) <= _MOST_VALUES:
        raise AwsError("InvalidParameterValue", f"The parameter {path}.Values must have between 1 and {_MOST_VALUES} values.")
    if len(values) != len(counts):
        raise AwsError("InvalidParameterValue", f"The parameters {path}.Values and {path}.Counts must be of the same size.")
    for value in values:
        _check_number(value, f"{path}.Value")
    for count in counts:
        _check_number(count, f"{path}.Counts")
        if count <= 0:
            raise AwsError("InvalidParameterValue", f"The value {count} for parameter {path}.Counts must be greater than 0.")


def _summary(values: Mapping[str, float], path: str) -> tuple[float, float, float, float]:
    count, total, low, high = (float(values[member]) for member in _SET_MEMBERS)
    for member in _SET_MEMBERS:
        _check_number(values[member], f"{path}.StatisticValues.{member}")
    if count <= 0:
        raise AwsError(
            "InvalidParameterValue", f"The value {count} for parameter {path}.StatisticValues.SampleCount must be greater than 0."
        )
    if low > high:
        raise AwsError("InvalidParameterValue", f"The parameter {path}.StatisticValues.Minimum must not be greater than Maximum.")
    return count, total, low, high


def _check_number(value: float, path: str) -> None:
    if not math.isfinite(value) or abs(value) > _GREATEST:
        raise AwsError("InvalidParameterValue", f"The value {value} for parameter {path} is invalid: it must be between -2^360 and 2^360.")
