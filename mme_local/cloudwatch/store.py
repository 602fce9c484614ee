"""Where metric data points are kept: put by anyone in any thread, read as statistics of periods.

Values are kept as they were put, so that every statistic is exact; who has very many of them rounds them (`Samples.add_rounded`).
Points are stored by the minute, or by the second with ``resolution=1``, and forgotten after 15 days of the cloud's clock (CloudWatch would
keep coarser ones longer).
"""

from __future__ import annotations

import bisect
import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from mme_local.cloudwatch.statistics import Samples, parse_statistic

__all__ = ["Datapoint", "Metric", "MetricStore"]

_RETENTION_SECONDS = 15 * 86400
_STANDARD_RESOLUTION = 60


@dataclass(frozen=True, slots=True)
class Metric:
    """What identifies a metric: not its unit.

    Attributes:
        namespace: such as ``AWS/SageMaker``.
        name: such as ``ModelCacheHit``.
        dimensions: pairs of name and value, sorted.
    """

    namespace: str
    name: str
    dimensions: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, namespace: str, name: str, dimensions: Mapping[str, str]) -> Metric:
        """The metric with these dimensions, in whatever order they come."""
        return cls(namespace, name, tuple(sorted(dimensions.items())))


@dataclass(frozen=True, slots=True)
class Datapoint:
    """Statistics of one period.

    Attributes:
        timestamp: the period's beginning, in scaled epoch seconds.
        unit: unit of the samples.
        values: statistic -> value, for those that are available.
    """

    timestamp: float
    unit: str
    values: Mapping[str, float]


@dataclass(slots=True)
class _Series:
    """One metric in one unit: samples by the second at which their minute (or second) begins."""

    keys: list[int] = field(default_factory=list)
    samples: dict[int, Samples] = field(default_factory=dict)

    def at(self, key: int) -> Samples:
        found = self.samples.get(key)
        if found is None:
            found = self.samples[key] = Samples()
            bisect.insort(self.keys, key)
        return found

    def between(self, start: float, end: float) -> Iterable[tuple[int, Samples]]:
        for key in self.keys[bisect.bisect_left(self.keys, start) : bisect.bisect_left(self.keys, end)]:
            yield key, self.samples[key]

    def forget(self, before: float) -> None:
        gone = bisect.bisect_left(self.keys, before)
        for key in self.keys[:gone]:
            del self.samples[key]
        del self.keys[:gone]


class MetricStore:
    """The metrics of a local cloud.

    Args:
        now: the cloud's time in scaled epoch seconds, for forgetting.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._series: dict[Metric, dict[str, _Series]] = {}
        self._forgotten_until = -math.inf

    def put(
        self,
        namespace: str,
        name: str,
        dimensions: Mapping[str, str],
        values: Sequence[float],
        *,
        unit: str = "None",
        timestamp: float,
        counts: Sequence[float] | None = None,
        resolution: int = _STANDARD_RESOLUTION,
    ) -> None:
        """Add data points; may be called in any thread.

        Args:
            namespace: namespace of the metric.
            name: name of the metric.
            dimensions: name -> value; all of them identify the metric.
            values: the values.
            unit: one of CloudWatch's units; points of different units are kept apart.
            timestamp: when, in scaled epoch seconds.
            counts: how often each value was seen; once without.
            resolution: 60 keeps the minute, 1 the second of the timestamp (for alarms with periods of 10 to 30 seconds).

        Raises:
            ValueError: ``counts`` is not as long as ``values``, or a number is not finite.
        """
        weights = [1.0] * len(values) if counts is None else counts
        if len(weights) != len(values):
            raise ValueError(f"{len(values)} values of {name} have {len(weights)} counts: give one count a value")
        if not all(math.isfinite(number) for number in (*values, *weights, timestamp)):
            raise ValueError(f"the values of {name} are not all finite: {[*values]} with counts {[*weights]}")
        metric = Metric.of(namespace, name, dimensions)
        with self._lock:
            samples = self._at(metric, unit, timestamp, resolution)
            for value, count in zip(values, weights, strict=True):
                samples.add(float(value), float(count))

    def put_set(
        self,
        metric: Metric,
        *,
        count: float,
        total: float,
        low: float,
        high: float,
        unit: str = "None",
        timestamp: float,
        resolution: int = _STANDARD_RESOLUTION,
    ) -> None:
        """Add a statistic set: ``count`` samples with this sum, minimum and maximum. May be called in any thread."""
        with self._lock:
            self._at(metric, unit, timestamp, resolution).add_set(count=count, total=total, low=low, high=high)

    def put_samples(self, metric: Metric, samples: Samples, *, unit: str = "None", timestamp: float) -> None:
        """Add what was gathered in a minute; cheap however many samples it was. May be called in any thread."""
        with self._lock:
            self._at(metric, unit, timestamp, _STANDARD_RESOLUTION).merge(samples)

    def statistics(
        self,
        namespace: str,
        name: str,
        dimensions: Mapping[str, str],
        *,
        start: float,
        end: float,
        period: float,
        statistics: Sequence[str],
        unit: str | None = None,
    ) -> list[Datapoint]:
        """The datapoints of the periods from ``start`` (inclusive) to ``end`` (exclusive) in which there are samples, oldest first.

        Args:
            namespace: namespace of the metric.
            name: name of the metric.
            dimensions: all of the metric's dimensions; others' data never counts.
            start: scaled epoch seconds; the periods begin here.
            end: scaled epoch seconds.
            period: length of a period in seconds.
            statistics: names as in `parse_statistic`.
            unit: only samples of this unit; without one, each unit gets its own datapoints.

        Raises:
            ValueError: an unknown statistic.
        """
        wanted = [parse_statistic(statistic) for statistic in statistics]
        metric = Metric.of(namespace, name, dimensions)
        with self._lock:
            found = [
                Datapoint(moment, its_unit, {each.name: value for each in wanted if (value := each.of(samples)) is not None})
                for its_unit, series in self._units(metric, unit)
                for moment, samples in _periods([series], start, end, period).items()
            ]
        return sorted(found, key=lambda point: point.timestamp)

    def samples(self, metric: Metric, *, start: float, end: float, period: float, unit: str | None = None) -> dict[float, Samples]:
        """The samples of each period that has some, by its beginning; samples of all units together when none is named."""
        with self._lock:
            return _periods([series for _, series in self._units(metric, unit)], start, end, period)

    def metrics(self, *, since: float | None = None) -> list[Metric]:
        """All metrics, or those with samples since a moment, sorted."""
        with self._lock:
            found = [
                metric
                for metric, units in self._series.items()
                if since is None or any(series.keys and series.keys[-1] >= since for series in units.values())
            ]
        return sorted(found, key=lambda metric: (metric.namespace, metric.name, metric.dimensions))

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._series.clear()

    def _at(self, metric: Metric, unit: str, timestamp: float, resolution: int) -> Samples:
        self._forget()
        key = math.floor(timestamp / resolution) * resolution
        return self._series.setdefault(metric, {}).setdefault(unit, _Series()).at(key)

    def _units(self, metric: Metric, unit: str | None) -> list[tuple[str, _Series]]:
        return [(name, series) for name, series in self._series.get(metric, {}).items() if unit in (None, name)]

    def _forget(self) -> None:
        """Drop what is too old, looked at once an hour of the cloud's time."""
        horizon = self._now() - _RETENTION_SECONDS
        if horizon < self._forgotten_until + 3600:
            return
        self._forgotten_until = horizon
        for metric, units in list(self._series.items()):
            for unit, series in list(units.items()):
                series.forget(horizon)
                if not series.keys:
                    del units[unit]
            if not units:
                del self._series[metric]


def _periods(all_series: Iterable[_Series], start: float, end: float, period: float) -> dict[float, Samples]:
    periods: dict[float, Samples] = {}
    for series in all_series:
        for key, samples in series.between(start, end):
            moment = start + (key - start) // period * period
            periods.setdefault(moment, Samples()).merge(samples)
    return periods
