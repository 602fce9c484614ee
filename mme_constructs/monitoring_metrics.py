"""From rows of the metric catalogue to CloudWatch metrics of one deployment, and the check of metrics that users bring."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch

from mme_constructs.errors import MetricError
from mme_facts import metrics
from mme_facts.metrics import Metric, MetricUseError

__all__ = ["MetricSource", "check_metric"]


class MetricSource:
    """Metrics of one deployment.

    Args:
        dimensions: dimension name -> value, of everything that is known: endpoint, variant, function, queue.
    """

    def __init__(self, dimensions: Mapping[str, str]) -> None:
        self._dimensions = dict(dimensions)

    def including(self, dimensions: Mapping[str, str]) -> MetricSource:
        """The same deployment with more dimensions known."""
        return MetricSource({**self._dimensions, **dimensions})

    def metric(self, row: Metric, statistic: str | None = None, *, period_minutes: int = 5, label: str | None = None) -> cloudwatch.Metric:
        """A metric of the catalogue.

        Args:
            row: which.
            statistic: a valid one. Default: the metric's first.
            period_minutes: length of a period. Default 5.
            label: how graphs name it. Default: the metric's name.

        Raises:
            MetricError: the metric has no such statistic, or its dimensions are not known here.
        """
        chosen = row.default_statistic if statistic is None else statistic
        names = next((names for names in row.dimensions if set(names) <= self._dimensions.keys()), None)
        if names is None:
            raise MetricError(
                f"{row.name} is published for something that is not known here",
                value=", ".join(self._dimensions),
                allowed=" or ".join(" with ".join(names) for names in row.dimensions),
                fix="Pass what it belongs to",
            )
        try:
            row.check_statistic(chosen)
            row.check_period(period_minutes * 60)
        except MetricUseError as error:
            raise MetricError(error.what, value=error.value, allowed=error.allowed, fix="Use one of these") from error
        return cloudwatch.Metric(
            namespace=row.namespace,
            metric_name=row.name,
            dimensions_map={name: self._dimensions[name] for name in names},
            statistic=chosen,
            period=_minutes(period_minutes),
            label=label,
        )


@cache
def _minutes(count: int) -> cdk.Duration:
    """One object for each length: making one is a call to another process."""
    return cdk.Duration.minutes(count)


def check_metric(metric: cloudwatch.IMetric) -> None:
    """Refuse a use of a catalogued metric that would show nothing; metrics of foreign namespaces pass.

    Args:
        metric: a metric, or a math expression, whose metrics are checked each.

    Raises:
        MetricError: wrong name, dimensions, statistic, unit or period.
    """
    if isinstance(metric, cloudwatch.MathExpression):
        for used in metric.using_metrics.values():
            check_metric(used)
    elif isinstance(metric, cloudwatch.Metric) and metric.namespace in metrics.namespaces():
        try:
            metrics.check_use(
                metric.namespace,
                metric.metric_name,
                dimensions=metric.dimensions or {},
                statistic=metric.statistic,
                period_seconds=metric.period.to_seconds(),
                unit=None if metric.unit is None else metric.unit.value.capitalize(),
            )
        except MetricUseError as error:
            raise MetricError(error.what, value=error.value, allowed=error.allowed, fix="Use one of these") from error
