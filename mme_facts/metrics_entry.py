"""What one row of the metric catalogue says, and the check of a use against it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["BASIC_STATISTICS", "Metric", "MetricUseError"]

BASIC_STATISTICS = ("Average", "Sum", "Minimum", "Maximum", "SampleCount")
_PERCENTILE = re.compile(r"p(?:100|[0-9]{1,2}(?:\.[0-9]+)?)")
_PERIOD_SECONDS = 60


class MetricUseError(ValueError):
    """A use of a metric that would show or alarm on nothing.

    Attributes:
        what: what is wrong, without the value.
        value: the value got.
        allowed: what is allowed, in words.
    """

    def __init__(self, what: str, *, value: object, allowed: str) -> None:
        self.what, self.value, self.allowed = what, value, allowed
        super().__init__(f"{what}: got {value!r}; allowed: {allowed}")


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        name: official name.
        namespace: where it is published.
        unit: CloudWatch's unit, ``None`` (the text) for a number without one.
        statistics: valid ones; the first is the default.
        percentiles: whether ``p99`` and the like are valid.
        dimensions: the sets of dimension names under which it is published.
        emitter: who publishes it: an AWS service, or one of our functions.
        source: title of the page (AWS) that says so, or what our function counts.
    """

    name: str
    namespace: str
    unit: str
    statistics: tuple[str, ...]
    percentiles: bool = False
    dimensions: tuple[tuple[str, ...], ...] = (("EndpointName", "VariantName"),)
    emitter: str = "Amazon SageMaker AI"
    source: str = "Amazon SageMaker AI, Monitor SageMaker AI with Amazon CloudWatch"

    @property
    def default_statistic(self) -> str:
        """The statistic that a use without one gets."""
        return self.statistics[0]

    def check_statistic(self, statistic: str) -> None:
        """Raise `MetricUseError` when the metric has no such statistic."""
        if statistic in self.statistics or (self.percentiles and _PERCENTILE.fullmatch(statistic)):
            return
        allowed = ", ".join(self.statistics) + (", percentiles" if self.percentiles else "")
        raise MetricUseError(f"{self.name} has no such statistic", value=statistic, allowed=allowed)

    def check_dimensions(self, names: Iterable[str]) -> None:
        """Raise `MetricUseError` when the metric is not published with exactly these dimensions: CloudWatch would find nothing."""
        got = tuple(sorted(names))
        if got not in {tuple(sorted(allowed)) for allowed in self.dimensions}:
            allowed = " or ".join(" with ".join(names) or "none" for names in self.dimensions)
            raise MetricUseError(f"{self.name} is not published with these dimensions", value=", ".join(got) or "none", allowed=allowed)

    def check_unit(self, unit: str) -> None:
        """Raise `MetricUseError` for another unit than the published one: CloudWatch never converts, an alarm would see no data."""
        if unit != self.unit:
            raise MetricUseError(f"{self.name} has another unit", value=unit, allowed=self.unit)

    def check_period(self, seconds: float) -> None:
        """Raise `MetricUseError` when the period is not a positive multiple of 60 s: the metrics have one value a minute."""
        if seconds < _PERIOD_SECONDS or seconds % _PERIOD_SECONDS:
            raise MetricUseError(f"{self.name} has one value a minute", value=seconds, allowed="multiples of 60 seconds from 60")
