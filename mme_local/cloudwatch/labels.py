"""Labels of GetMetricData's results, with their dynamic parts (user guide: Using dynamic labels)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from mme_local.cloudwatch.math_values import Series
from mme_local.cloudwatch.queries import Query
from mme_local.wire import ValidationError

__all__ = ["label_of"]

_PART = re.compile(r"\$\{\s*([A-Z_]+)\s*(?:\(\s*'([^']*)'\s*\))?\s*\}")
_AGGREGATES: Mapping[str, Callable[[list[float]], float]] = {
    "AVG": lambda values: sum(values) / len(values),
    "DATAPOINT_COUNT": lambda values: float(len(values)),
    "FIRST": lambda values: values[0],
    "LAST": lambda values: values[-1],
    "MAX": max,
    "MIN": min,
    "SUM": sum,
}


def label_of(query: Query, series: Series, region: str, account: str) -> str:
    """The label of a result.

    Without a label of its own a metric is called by its name and an expression by its id.

    Raises:
        ValidationError: a dynamic part that the local cloud does not know.
    """
    if query.label is None or "${" not in query.label:
        return series.label or query.id
    values = [value for _, value in series.ordered()]
    properties = {"AccountId": account, "Region": region, **_properties(query)}

    def part(match: re.Match[str]) -> str:
        name, argument = match.groups()
        if name == "LABEL" and argument is None:
            return query.metric.name if query.metric is not None else query.id
        if name == "PROP" and argument is not None:
            return properties.get(argument, "")
        if name in _AGGREGATES and argument is None:
            return f"{_AGGREGATES[name](values):g}" if values else "--"
        raise ValidationError(f"The label of {query.id} has {match[0]}, which the local cloud does not know.")

    label = _PART.sub(part, query.label)
    if "${" in label:
        raise ValidationError(f"The label of {query.id} has a dynamic part that the local cloud does not know: {query.label}")
    return label


def _properties(query: Query) -> dict[str, str]:
    if query.metric is None or query.statistic is None:
        return {}
    dimensions = {f"Dim.{name}": value for name, value in query.metric.dimensions}
    of_metric = {
        "MetricName": query.metric.name,
        "Namespace": query.metric.namespace,
        "Stat": query.statistic.name,
        "Period": str(query.period),
    }
    return {**of_metric, **dimensions}
