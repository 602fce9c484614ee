"""The values of metric math and what its functions do with them (user guide: metric math syntax and functions).

A value is a number, a time series (moment -> number, missing moments left out), or an array of time series.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

__all__ = ["FUNCTIONS", "MathValueError", "Series", "Value", "binary", "fill", "negative"]


class MathValueError(ValueError):
    """An operator or a function does not take these values."""


@dataclass(frozen=True, slots=True)
class Series:
    """A time series.

    Attributes:
        points: beginning of the period -> value; moments without a value are left out.
        moments: all periods of the range, in order.
        period: seconds of a period.
        label: its name.
    """

    points: Mapping[float, float]
    moments: Sequence[float]
    period: float
    label: str = ""

    def with_points(self, points: Mapping[float, float]) -> Series:
        """The same series with other points; numbers that are none (such as 1 / 0) become missing."""
        return replace(self, points={moment: value for moment, value in points.items() if math.isfinite(value)})

    def ordered(self) -> list[tuple[float, float]]:
        """Its points, oldest first."""
        return sorted(self.points.items())


_NO_SERIES = Series({}, (), 0.0)
"""What becomes of an array of which REMOVE_EMPTY has left nothing; it fits to every period."""

Value = float | Series | list[Series]


def _number(operator: Callable[[float, float], float]) -> Callable[[float, float], float]:
    def safe(left: float, right: float) -> float:
        try:
            return operator(left, right)
        except (ZeroDivisionError, OverflowError, ValueError):
            return math.nan

    return safe


_OPERATORS: Mapping[str, Callable[[float, float], float]] = {
    "+": _number(lambda left, right: left + right),
    "-": _number(lambda left, right: left - right),
    "*": _number(lambda left, right: left * right),
    "/": _number(lambda left, right: left / right),
    "^": _number(math.pow),
    "==": lambda left, right: float(left == right),
    "!=": lambda left, right: float(left != right),
    "<": lambda left, right: float(left < right),
    "<=": lambda left, right: float(left <= right),
    ">": lambda left, right: float(left > right),
    ">=": lambda left, right: float(left >= right),
    "&&": lambda left, right: float(bool(left) and bool(right)),
    "||": lambda left, right: float(bool(left) or bool(right)),
}


def binary(operator: str, left: Value, right: Value) -> Value:
    """An operator between two values; of two series only moments count at which both have a value.

    Raises:
        MathValueError: two arrays.
    """
    return _pairwise(_OPERATORS[operator], left, right)


def negative(value: Value) -> Value:
    """The value with the other sign."""
    return _each(lambda number: -number, value)


def _pairwise(operator: Callable[[float, float], float], left: Value, right: Value) -> Value:
    if isinstance(left, list):
        if isinstance(right, list):
            raise MathValueError("an operator takes one array, not two")
        return [_single(_pairwise(operator, each, right)) for each in left]
    if isinstance(right, list):
        return [_single(_pairwise(operator, left, each)) for each in right]
    if isinstance(left, Series) and isinstance(right, Series):
        _check_periods((left, right))
        return left.with_points(
            {moment: operator(value, right.points[moment]) for moment, value in left.points.items() if moment in right.points}
        )
    if isinstance(left, Series):
        assert isinstance(right, float)
        return left.with_points({moment: operator(value, right) for moment, value in left.points.items()})
    if isinstance(right, Series):
        return right.with_points({moment: operator(left, value) for moment, value in right.points.items()})
    return operator(left, right)


def _single(value: Value) -> Series:
    assert isinstance(value, Series)
    return value


def _check_periods(series: Iterable[Series]) -> None:
    if len(periods := {each.period for each in series if each.period}) > 1:
        raise MathValueError(f"the metrics of an expression must have one period, not {sorted(periods)}")


def _each(function: Callable[[float], float], value: Value) -> Value:
    if isinstance(value, list):
        return [_single(_each(function, each)) for each in value]
    if isinstance(value, Series):
        return value.with_points({moment: function(number) for moment, number in value.points.items()})
    return value if math.isnan(value) else function(value)


def _mapped(name: str, function: Callable[[Series], Series]) -> Callable[[Sequence[Value]], Value]:
    """A function of a series, or of each series of an array."""

    def mapped(arguments: Sequence[Value]) -> Value:
        (value,) = _counted(name, arguments, 1)
        if isinstance(value, list):
            return [function(each) for each in value]
        return function(_series(name, value))

    return mapped


def _counted(name: str, arguments: Sequence[Value], *counts: int) -> Sequence[Value]:
    if len(arguments) not in counts:
        raise MathValueError(f"{name} takes {' or '.join(map(str, counts))} arguments, not {len(arguments)}")
    return arguments


def _series(name: str, value: Value) -> Series:
    if not isinstance(value, Series):
        raise MathValueError(f"{name} takes a time series, not {'an array' if isinstance(value, list) else 'a number'}")
    return value


def _array(name: str, value: Value) -> list[Series]:
    if not isinstance(value, list):
        raise MathValueError(f"{name} takes an array of time series")
    return value


def _of_numbers(name: str, function: Callable[[float], float]) -> Callable[[Sequence[Value]], Value]:
    def call(arguments: Sequence[Value]) -> Value:
        (value,) = _counted(name, arguments, 1)
        return _each(function, value)

    return call


def _logarithm(function: Callable[[float], float]) -> Callable[[float], float]:
    return lambda number: function(number) if number > 0 else math.nan


def _aggregate(name: str, function: Callable[[Sequence[float]], float]) -> Callable[[Sequence[Value]], Value]:
    """Of an array: the series of each moment's aggregate. Of a series: the number over all of its points."""

    def call(arguments: Sequence[Value]) -> Value:
        (value,) = _counted(name, arguments, 1)
        if isinstance(value, Series):
            return function(list(value.points.values())) if value.points else math.nan
        series = _array(name, value)
        if not series:
            return _NO_SERIES
        _check_periods(series)
        moments = sorted({moment for each in series for moment in each.points})
        return series[0].with_points(
            {moment: function([each.points[moment] for each in series if moment in each.points]) for moment in moments}
        )

    return call


def _between(function: Callable[[float, float, float], float]) -> Callable[[Series], Series]:
    """A function of each point, the one before, and the seconds between them."""

    def call(series: Series) -> Series:
        return series.with_points(
            {now: function(value, before, now - then) for (then, before), (now, value) in itertools.pairwise(series.ordered())}
        )

    return call


def _running_sum(series: Series) -> Series:
    ordered = series.ordered()
    sums = itertools.accumulate(value for _, value in ordered)
    return series.with_points(dict(zip((moment for moment, _ in ordered), sums, strict=True)))


def _if(arguments: Sequence[Value]) -> Value:
    condition, *branches = _counted("IF", arguments, 2, 3)
    if isinstance(condition, list) or any(isinstance(branch, list) for branch in branches):
        raise MathValueError("IF takes numbers and time series, no arrays")
    if not isinstance(condition, Series):
        series = next((branch for branch in branches if isinstance(branch, Series)), None)
        if math.isnan(condition) or (not condition and len(branches) == 1):
            return math.nan if series is None else series.with_points({})
        chosen = branches[0] if condition else branches[1]
        if series is not None and isinstance(chosen, float):
            # The kind of the result must not depend on the data.
            return series.with_points(dict.fromkeys(series.moments, chosen))
        return chosen
    _check_periods([condition, *(branch for branch in branches if isinstance(branch, Series))])
    points = {}
    for moment, holds in condition.points.items():
        if not holds and len(branches) == 1:
            continue
        branch = branches[0] if holds else branches[1]
        if isinstance(branch, Series):
            if moment in branch.points:
                points[moment] = branch.points[moment]
        else:
            assert isinstance(branch, float)
            points[moment] = branch
    return condition.with_points(points)


def fill(value: Value, filling: Value | str) -> Value:
    """``FILL``: missing moments get a number, another series' values, the last value (``REPEAT``) or a line (``LINEAR``).

    Raises:
        MathValueError: the first argument is a number, or the second one an array.
    """
    if isinstance(value, list):
        return [_single(fill(each, filling)) for each in value]
    series = _series("FILL", value)
    if isinstance(filling, list):
        raise MathValueError("FILL takes a number, a time series, REPEAT or LINEAR as its second argument")
    if filling == "LINEAR":
        return series.with_points(_linear(series))
    points, last = dict(series.points), None
    for moment in series.moments:
        if moment in points:
            last = points[moment]
        elif filling == "REPEAT":
            if last is not None:
                points[moment] = last
        elif isinstance(filling, Series):
            if moment in filling.points:
                points[moment] = filling.points[moment]
        else:
            assert isinstance(filling, float)
            points[moment] = filling
    return series.with_points(points)


def _linear(series: Series) -> dict[float, float]:
    points = dict(series.points)
    for (then, before), (now, value) in itertools.pairwise(series.ordered()):
        for moment in series.moments:
            if then < moment < now:
                points[moment] = before + (value - before) * (moment - then) / (now - then)
    return points


def _period(arguments: Sequence[Value]) -> Value:
    (value,) = _counted("PERIOD", arguments, 1)
    return float(_series("PERIOD", value).period)


def _first_or_last(name: str, index: int) -> Callable[[Sequence[Value]], Value]:
    def call(arguments: Sequence[Value]) -> Value:
        (value,) = _counted(name, arguments, 1)
        series = _array(name, value)
        return series[index] if series else _NO_SERIES

    return call


def _count(name: str, function: Callable[[Value], float]) -> Callable[[Sequence[Value]], Value]:
    def call(arguments: Sequence[Value]) -> Value:
        (value,) = _counted(name, arguments, 1)
        return function(value)

    return call


def _remove_empty(arguments: Sequence[Value]) -> Value:
    (value,) = _counted("REMOVE_EMPTY", arguments, 1)
    return [each for each in _array("REMOVE_EMPTY", value) if each.points]


FUNCTIONS: Mapping[str, Callable[[Sequence[Value]], Value]] = {
    "ABS": _of_numbers("ABS", abs),
    "AVG": _aggregate("AVG", lambda values: math.fsum(values) / len(values)),
    "CEIL": _of_numbers("CEIL", lambda number: float(math.ceil(number))),
    "DATAPOINT_COUNT": _count("DATAPOINT_COUNT", lambda value: float(len(_series("DATAPOINT_COUNT", value).points))),
    "DIFF": _mapped("DIFF", _between(lambda value, before, _: value - before)),
    "DIFF_TIME": _mapped("DIFF_TIME", _between(lambda _value, _before, seconds: seconds)),
    "FIRST": _first_or_last("FIRST", 0),
    "FLOOR": _of_numbers("FLOOR", lambda number: float(math.floor(number))),
    "IF": _if,
    "LAST": _first_or_last("LAST", -1),
    "LOG": _of_numbers("LOG", _logarithm(math.log)),
    "LOG10": _of_numbers("LOG10", _logarithm(math.log10)),
    "MAX": _aggregate("MAX", max),
    "METRIC_COUNT": _count("METRIC_COUNT", lambda value: float(len(_array("METRIC_COUNT", value)))),
    "MIN": _aggregate("MIN", min),
    "PERIOD": _period,
    "RATE": _mapped("RATE", _between(lambda value, before, seconds: (value - before) / seconds)),
    "REMOVE_EMPTY": _remove_empty,
    "RUNNING_SUM": _mapped("RUNNING_SUM", _running_sum),
    "STDDEV": _aggregate("STDDEV", statistics.pstdev),
    "SUM": _aggregate("SUM", math.fsum),
}
"""Functions of values; FILL, METRICS and TIME_SERIES need more and are `mme_local.cloudwatch.queries`'s."""
