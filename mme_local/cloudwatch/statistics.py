"""CloudWatch's statistics over the samples of one period (user guide: CloudWatch statistics definitions)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache

__all__ = ["BASIC_STATISTICS", "Samples", "Statistic", "parse_statistic"]

BASIC_STATISTICS = ("SampleCount", "Average", "Sum", "Minimum", "Maximum")

_SHORT = re.compile(r"(p|tm|wm|tc|ts)(\d{1,2}(?:\.\d{1,10})?|100)", re.IGNORECASE)
_RANGE = re.compile(r"(tm|wm|tc|ts|pr)\(([\d.]*)(%?):([\d.]*)(%?)\)", re.IGNORECASE)
_FULL = 100.0
_DIGITS = 3


@dataclass(slots=True)
class Samples:
    """What was put for a metric within some time.

    Attributes:
        count: number of samples.
        total: their sum.
        low: the least one; infinite without samples.
        high: the greatest one; minus infinite without samples.
        weights: value -> how often it was put; None when a statistic set hides the values, so that there are no percentiles.
    """

    count: float = 0.0
    total: float = 0.0
    low: float = math.inf
    high: float = -math.inf
    weights: dict[float, float] | None = field(default_factory=dict)

    def add(self, value: float, count: float = 1.0) -> None:
        """Add a value that was seen ``count`` times."""
        self.count += count
        self.total += value * count
        self.low = min(self.low, value)
        self.high = max(self.high, value)
        if self.weights is not None:
            self.weights[value] = self.weights.get(value, 0.0) + count

    def add_rounded(self, value: float) -> None:
        """Add a value of which only three significant digits are kept, so that however many come leave few: 900 a power of ten.

        Count, sum, minimum and maximum stay exact; percentiles and what is made like them are right within half a percent.
        """
        self.count += 1.0
        self.total += value
        self.low = min(self.low, value)
        self.high = max(self.high, value)
        if self.weights is not None:
            rounded = float(f"{value:.{_DIGITS}g}")
            self.weights[rounded] = self.weights.get(rounded, 0.0) + 1.0

    def add_set(self, *, count: float, total: float, low: float, high: float) -> None:
        """Add a statistic set; its values are known only when all of them are the same one."""
        if low == high and math.isclose(total, low * count):
            self.add(low, count)
            return
        self.weights = None
        self.count += count
        self.total += total
        self.low, self.high = min(self.low, low), max(self.high, high)

    def merge(self, other: Samples) -> None:
        """Add all of another one's samples."""
        self.count += other.count
        self.total += other.total
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        if self.weights is None or other.weights is None:
            self.weights = None
            return
        for value, count in other.weights.items():
            self.weights[value] = self.weights.get(value, 0.0) + count


@dataclass(frozen=True, slots=True)
class Statistic:
    """A statistic by its name.

    Attributes:
        name: as given, such as ``Average`` or ``p99``.
        percentile: the percentile between 0 and 100 of ``pNN``, else None.
    """

    name: str
    percentile: float | None
    _compute: Callable[[Samples], float | None]

    def of(self, samples: Samples) -> float | None:
        """Its value, or None where CloudWatch has none: no samples, or hidden or negative values in a percentile-like statistic."""
        return self._compute(samples) if samples.count > 0 else None


_BASIC: Mapping[str, Callable[[Samples], float | None]] = {
    "SampleCount": lambda samples: samples.count,
    "Average": lambda samples: samples.total / samples.count,
    "Sum": lambda samples: samples.total,
    "Minimum": lambda samples: samples.low,
    "Maximum": lambda samples: samples.high,
}


@cache
def parse_statistic(name: str) -> Statistic:
    """The statistic of a name.

    Served are the five basic ones, ``pNN``, the short forms ``tmNN``, ``wmNN``, ``tcNN``, ``tsNN``, the range forms ``TM(10%:90%)``,
    ``WM``, ``TC``, ``TS`` with percentages or values, ``PR(low:high)`` with values, and ``IQM``.

    Raises:
        ValueError: no statistic has this name.
    """
    if name in _BASIC:
        return Statistic(name, None, _BASIC[name])
    if name.upper() == "IQM":
        return Statistic(name, None, _Trimmed("tm", 25.0, 75.0, percent=True))
    if match := _SHORT.fullmatch(name):
        kind, bound = match[1].lower(), float(match[2])
        if kind == "p":
            return Statistic(name, bound, _Percentile(bound))
        return Statistic(name, None, _Trimmed(kind, 0.0, bound, percent=True))
    if match := _RANGE.fullmatch(name):
        return Statistic(name, None, _trimmed_range(name, match))
    raise ValueError(
        f"{name!r} is no statistic: use {', '.join(BASIC_STATISTICS)}, p99, tm90, wm90, tc90, ts90, TM(10%:90%), PR(0:100) or IQM"
    )


def _trimmed_range(name: str, match: re.Match[str]) -> _Trimmed:
    kind, low, low_percent, high, high_percent = match[1].lower(), *match.groups()[1:]
    percent = bool(low_percent or high_percent)
    mixed = percent and ((low and not low_percent) or (high and not high_percent))
    if not (low or high) or mixed or (kind == "pr" and percent):
        raise ValueError(f"{name!r} is no statistic: give two percentages or two values (only values for PR)")
    try:
        bounds = float(low or (0.0 if percent else -math.inf)), float(high or (_FULL if percent else math.inf))
    except ValueError:
        raise ValueError(f"{name!r} is no statistic: its bounds are no numbers") from None
    if bounds[0] >= bounds[1] or (percent and bounds[1] > _FULL):
        raise ValueError(f"{name!r} is no statistic: the lower bound must be less than the upper one, and percentages at most 100")
    return _Trimmed(kind, *bounds, percent=percent)


def _known(samples: Samples) -> list[tuple[float, float]] | None:
    """Sorted values with their counts; None where a percentile is not available."""
    if samples.weights is None or samples.low < 0:
        return None
    return sorted(samples.weights.items())


@dataclass(frozen=True, slots=True)
class _Percentile:
    """Linear interpolation between the two nearest ranks, never beyond the extremes: these are exact where values are rounded."""

    percent: float

    def __call__(self, samples: Samples) -> float | None:
        ordered = _known(samples)
        if ordered is None:
            return None
        rank = self.percent / _FULL * max(samples.count - 1, 0.0)
        lower = math.floor(rank)
        at_lower = _at(ordered, lower)
        fraction = rank - lower
        found = at_lower + fraction * (_at(ordered, lower + 1) - at_lower) if fraction else at_lower
        return min(max(found, samples.low), samples.high)


def _at(ordered: list[tuple[float, float]], rank: float) -> float:
    seen = 0.0
    for value, count in ordered:
        seen += count
        if rank < seen:
            return value
    return ordered[-1][0]


@dataclass(frozen=True, slots=True)
class _Trimmed:
    """Trimmed and winsorized means, trimmed counts and sums, percentile ranks. The lower bound is exclusive, the upper one inclusive."""

    kind: str
    low: float
    high: float
    percent: bool

    def __call__(self, samples: Samples) -> float | None:
        ordered = _known(samples)
        if ordered is None:
            return None
        kept = self._kept_by_rank(ordered, samples.count) if self.percent else self._kept_by_value(ordered)
        count = sum(weight for _, weight in kept)
        total = sum(value * weight for value, weight in kept)
        match self.kind:
            case "tc":
                return count
            case "ts":
                return total
            case "pr":
                return count / samples.count * _FULL
            case "wm":
                return self._winsorized(ordered, kept, samples.count)
        return total / count if count else None

    def _kept_by_rank(self, ordered: list[tuple[float, float]], count: float) -> list[tuple[float, float]]:
        first, last = self.low / _FULL * count, self.high / _FULL * count
        kept, seen = [], 0.0
        for value, weight in ordered:
            inside = min(seen + weight, last) - max(seen, first)
            seen += weight
            if inside > 0:
                kept.append((value, inside))
        return kept

    def _kept_by_value(self, ordered: list[tuple[float, float]]) -> list[tuple[float, float]]:
        return [(value, weight) for value, weight in ordered if self.low < value <= self.high]

    def _winsorized(self, ordered: list[tuple[float, float]], kept: list[tuple[float, float]], count: float) -> float | None:
        """Values outside become the nearest bound instead of being left out."""
        if not kept:
            return None
        low = kept[0][0] if self.percent or math.isinf(self.low) else self.low
        high = kept[-1][0] if self.percent or math.isinf(self.high) else self.high
        return sum(min(max(value, low), high) * weight for value, weight in ordered) / count
