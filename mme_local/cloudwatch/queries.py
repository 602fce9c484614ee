"""Queries of metrics and metric math: the ``MetricDataQuery`` documents of GetMetricData and PutMetricAlarm, checked and evaluated."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mme_local.cloudwatch.math_language import (
    Binary,
    Call,
    Items,
    MathSyntaxError,
    Name,
    Negative,
    Node,
    Number,
    Text,
    parse_expression,
)
from mme_local.cloudwatch.math_values import FUNCTIONS, MathValueError, Series, Value, binary, fill, negative
from mme_local.cloudwatch.statistics import Statistic, parse_statistic
from mme_local.cloudwatch.store import Metric, MetricStore
from mme_local.wire import ValidationError

__all__ = ["MATH_FUNCTIONS", "Queries", "Query", "metric_of", "parse_queries"]

MATH_FUNCTIONS = tuple(sorted([*FUNCTIONS, "FILL", "METRICS", "TIME_SERIES"]))
"""The functions that expressions may use."""

_ID = re.compile(r"[a-z][A-Za-z0-9_]*")
_SHORT_PERIODS = (1, 5, 10, 20, 30)
_FILLINGS = ("REPEAT", "LINEAR")


@dataclass(frozen=True, slots=True)
class Query:
    """One query.

    Attributes:
        id: its id.
        metric: the metric, or None for an expression.
        statistic: the metric's statistic, or None.
        unit: only samples of this unit.
        period: seconds; None for an expression that leaves it to its metrics.
        expression: the parsed expression, or None for a metric.
        label: as asked for, or None.
        returned: whether its data is part of the answer.
    """

    id: str
    metric: Metric | None
    statistic: Statistic | None
    unit: str | None
    period: int | None
    expression: Node | None
    label: str | None
    returned: bool


def metric_of(document: Mapping[str, Any]) -> Metric:
    """The metric of a document with Namespace, MetricName and Dimensions; raises `ValidationError` for repeated dimensions."""
    dimensions: Sequence[Mapping[str, str]] = document.get("Dimensions", [])
    named = {dimension["Name"]: dimension["Value"] for dimension in dimensions}
    if len(named) != len(dimensions):
        names = [dimension["Name"] for dimension in dimensions]
        repeated = next(name for name in names if names.count(name) > 1)
        raise ValidationError(f"The dimensions of {document['MetricName']} name {repeated} more than once.")
    return Metric.of(document["Namespace"], document["MetricName"], named)


def parse_queries(documents: Sequence[Mapping[str, Any]]) -> Queries:
    """Check a list of MetricDataQuery documents.

    Raises:
        ValidationError: one of them is invalid, or asks for what the local cloud does not have.
    """
    found: dict[str, Query] = {}
    for document in documents:
        query = _query(document)
        if query.id in found:
            raise ValidationError(f"The id {query.id} is used by two queries.")
        found[query.id] = query
    queries = Queries(found)
    queries.check()
    return queries


def _query(document: Mapping[str, Any]) -> Query:
    name = document["Id"]
    if not _ID.fullmatch(name):
        raise ValidationError(
            f"The id {name} of a query must begin with a lower-case letter and have letters, digits and underscores only."
        )
    if "AccountId" in document:
        raise ValidationError(f"Query {name} names an AccountId: the local cloud has one account only.")
    if ("MetricStat" in document) == ("Expression" in document):
        raise ValidationError(f"Query {name} needs exactly one of MetricStat and Expression.")
    label, returned = document.get("Label"), document.get("ReturnData", True)
    if "Expression" in document:
        text = document["Expression"]
        if re.match(r"\s*SELECT\b", text, re.IGNORECASE):
            raise ValidationError(f"Query {name} is a Metrics Insights query, which the local cloud does not have.")
        try:
            expression = parse_expression(text)
        except MathSyntaxError as error:
            raise ValidationError(f"Error in expression '{name}': {error} in {text}") from None
        period = document.get("Period")
        if period is not None:
            _check_period(name, period)
        return Query(name, None, None, None, period, expression, label, returned)
    if "Period" in document:
        raise ValidationError(f"Query {name} has a MetricStat: its Period belongs there.")
    stat = document["MetricStat"]
    if "MetricName" not in stat["Metric"] or "Namespace" not in stat["Metric"]:
        raise ValidationError(f"The metric of query {name} needs Namespace and MetricName.")
    _check_period(name, stat["Period"])
    try:
        statistic = parse_statistic(stat["Stat"])
    except ValueError as error:
        raise ValidationError(f"The value {stat['Stat']} for parameter Stat of query {name} is not supported: {error}") from None
    return Query(name, metric_of(stat["Metric"]), statistic, stat.get("Unit"), stat["Period"], None, label, returned)


def _check_period(name: str, period: int) -> None:
    if period not in _SHORT_PERIODS and period % 60:
        raise ValidationError(f"Period {period} of query {name} must be 1, 5, 10, 20, 30 or a multiple of 60 seconds.")


class Queries:
    """Checked queries.

    Args:
        by_id: the queries by their ids, in the order given.
    """

    def __init__(self, by_id: Mapping[str, Query]) -> None:
        self.by_id = by_id

    def check(self) -> None:
        """Evaluate everything on no data: unknown names and functions, circles and wrong kinds of values show.

        Raises:
            ValidationError: with the query's id.
        """
        for name, value in _Run(self, None, 0.0, 0.0).results().items():
            if isinstance(value, float) and self.by_id[name].returned:
                raise ValidationError(
                    f"Error in expression '{name}': its result is a number, but must be a time series or an array of them"
                )

    def returns_one(self) -> bool:
        """Whether one query is returned, and its result is one time series."""
        results = _Run(self, None, 0.0, 0.0).results()
        return [isinstance(results[name], Series) for name, query in self.by_id.items() if query.returned] == [True]

    def periods(self) -> set[int]:
        """The periods of all metrics, and of expressions that have one."""
        return {query.period for query in self.by_id.values() if query.period is not None}

    def evaluate(self, store: MetricStore, start: float, end: float) -> dict[str, list[Series]]:
        """The time series of the queries whose data is returned, by id.

        Args:
            store: the metrics.
            start: beginning of the first period, in scaled epoch seconds.
            end: end of the range, exclusive.

        Raises:
            ValidationError: an expression cannot be evaluated.
        """
        results = _Run(self, store, start, end).results()
        series = {name: value if isinstance(value, list) else [value] for name, value in results.items() if not isinstance(value, float)}
        return {name: found for name, found in series.items() if self.by_id[name].returned}


class _Run:
    def __init__(self, queries: Queries, store: MetricStore | None, start: float, end: float) -> None:
        self._queries, self._store, self._start, self._end = queries, store, start, end
        self._values: dict[str, Value] = {}
        self._path: list[str] = []

    def results(self) -> dict[str, Value]:
        return {name: self._value(name) for name in self._queries.by_id}

    def _value(self, name: str) -> Value:
        if name in self._values:
            return self._values[name]
        if name in self._path:
            raise ValidationError(f"Error in expression '{name}': it needs its own result ({' -> '.join([*self._path, name])})")
        query = self._queries.by_id[name]
        self._path.append(name)
        try:
            self._values[name] = self._metric(query) if query.expression is None else self._expression(query, query.expression)
        except MathValueError as error:
            raise ValidationError(f"Error in expression '{name}': {error}") from None
        finally:
            self._path.pop()
        return self._values[name]

    def _metric(self, query: Query) -> Series:
        assert query.metric is not None
        assert query.statistic is not None
        assert query.period is not None
        points: dict[float, float] = {}
        if self._store is not None:
            found = self._store.samples(query.metric, start=self._start, end=self._end, period=query.period, unit=query.unit)
            for moment, samples in found.items():
                if (value := query.statistic.of(samples)) is not None:
                    points[moment] = value
        return Series(points, self._moments(query.period), query.period, query.label or query.metric.name)

    def _expression(self, query: Query, node: Node) -> Value:
        value = self._node(node, query)
        if isinstance(value, Series):
            return Series(value.points, value.moments, value.period, query.label or query.id)
        return value

    def _node(self, node: Node, query: Query) -> Value:
        match node:
            case Number(number):
                return number
            case Name(name):
                return self._name(name)
            case Negative(operand):
                return negative(self._node(operand, query))
            case Binary(operator, left, right):
                return binary(operator, self._node(left, query), self._node(right, query))
            case Items(items):
                return self._array([self._node(item, query) for item in items])
            case Call(function, arguments):
                return self._call(function, arguments, query)
            case Text(text):
                raise MathValueError(f"the text {text!r} is not expected there")

    def _name(self, name: str) -> Value:
        if name not in self._queries.by_id:
            raise MathValueError(f"{name} is neither the id of a query nor a function")
        return self._value(name)

    @staticmethod
    def _array(values: Sequence[Value]) -> Value:
        array: list[Series] = []
        for value in values:
            if isinstance(value, float):
                raise MathValueError("an array holds time series, no numbers")
            array += value if isinstance(value, list) else [value]
        return array

    def _call(self, function: str, arguments: Sequence[Node], query: Query) -> Value:
        match function, arguments:
            case "FILL", (value, Name(word)) if word.upper() in _FILLINGS and word not in self._queries.by_id:
                return fill(self._node(value, query), word.upper())
            case "FILL", (value, filling):
                return fill(self._node(value, query), self._node(filling, query))
            case "FILL", _:
                raise MathValueError(f"FILL takes 2 arguments, not {len(arguments)}")
            case "METRICS", ():
                return self._metrics("")
            case "METRICS", (Text(part),):
                return self._metrics(part)
            case "METRICS", _:
                raise MathValueError("METRICS takes nothing or one text")
            case "TIME_SERIES", (number,):
                return self._time_series(self._node(number, query), query)
            case "TIME_SERIES", _:
                raise MathValueError(f"TIME_SERIES takes 1 argument, not {len(arguments)}")
            case "PERIOD", (Name(name),) if name in self._queries.by_id and self._queries.by_id[name].metric is None:
                raise MathValueError("PERIOD takes a metric, not the result of an expression")
        if function not in FUNCTIONS:
            raise MathValueError(f"{function} is not a function that the local cloud has: use {', '.join(MATH_FUNCTIONS)}")
        return FUNCTIONS[function]([self._node(argument, query) for argument in arguments])

    def _metrics(self, part: str) -> list[Series]:
        names = [name for name, query in self._queries.by_id.items() if query.metric is not None and part in name]
        if not names:
            raise MathValueError(f"METRICS finds no metric whose id contains {part!r}")
        return [value for name in names if isinstance(value := self._value(name), Series)]

    def _time_series(self, value: Value, query: Query) -> Series:
        if not isinstance(value, float):
            raise MathValueError("TIME_SERIES takes a number")
        periods = self._queries.periods()
        period = query.period or (min(periods) if periods else 60)
        moments = self._moments(period)
        return Series({} if math.isnan(value) else dict.fromkeys(moments, value), moments, period)

    def _moments(self, period: float) -> list[float]:
        return [self._start + number * period for number in range(math.ceil((self._end - self._start) / period))]
