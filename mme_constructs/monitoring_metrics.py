"""From rows of the metric catalogue to what alarms and dashboards of one deployment say of them, and the check of metrics that users bring.

These are values, not CDK metrics: an alarm or a graph is then one call to CDK instead of five.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aws_cdk import aws_cloudwatch as cloudwatch

from mme_constructs.errors import MetricError
from mme_facts import metrics
from mme_facts.metrics import Metric, MetricUseError
from mme_facts.metrics_entry import BASIC_STATISTICS

__all__ = ["MetricSource", "MetricUse", "check_metric"]


@dataclass(frozen=True, slots=True)
class MetricUse:
    """A metric of one deployment under one statistic.

    Attributes:
        namespace: where it is published.
        name: official name.
        dimensions: dimension name -> value.
        statistic: a valid one.
        period_seconds: length of a period.
        label: how graphs name it.
    """

    namespace: str
    name: str
    dimensions: Mapping[str, str]
    statistic: str
    period_seconds: int
    label: str | None = None

    def alone(self) -> dict[str, Any]:
        """The arguments of an L1 alarm that looks at nothing else."""
        return {
            "namespace": self.namespace,
            "metric_name": self.name,
            "dimensions": self._dimensions(),
            "period": self.period_seconds,
            ("statistic" if self.statistic in BASIC_STATISTICS else "extended_statistic"): self.statistic,
        }

    def signal(self, id: str) -> cloudwatch.CfnAlarm.MetricDataQueryProperty:  # noqa: A002 - CloudWatch's name for it
        """An entry of an L1 alarm's ``metrics`` that an expression names ``id``."""
        metric = cloudwatch.CfnAlarm.MetricProperty(namespace=self.namespace, metric_name=self.name, dimensions=self._dimensions())
        stat = cloudwatch.CfnAlarm.MetricStatProperty(metric=metric, period=self.period_seconds, stat=self.statistic)
        return cloudwatch.CfnAlarm.MetricDataQueryProperty(id=id, metric_stat=stat, return_data=False)

    def row(self, **options: object) -> list[object]:
        """A row of a graph (Amazon CloudWatch, Dashboard body structure and syntax, metrics)."""
        names = [part for pair in self.dimensions.items() for part in pair]
        shown = {} if self.label is None else {"label": self.label}
        return [self.namespace, self.name, *names, {**shown, **options, "period": self.period_seconds, "stat": self.statistic}]

    def _dimensions(self) -> list[cloudwatch.CfnAlarm.DimensionProperty]:
        return [cloudwatch.CfnAlarm.DimensionProperty(name=name, value=value) for name, value in self.dimensions.items()]


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

    def metric(self, row: Metric, statistic: str | None = None, *, period_minutes: int = 5, label: str | None = None) -> MetricUse:
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
        return MetricUse(row.namespace, row.name, {name: self._dimensions[name] for name in names}, chosen, period_minutes * 60, label)


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
