"""The dashboard: what a person on call reads in ten seconds. Are users hurt; then the cache; then the fleet; then the tenants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_logs as logs
from constructs import Construct

from mme_constructs.monitoring_metrics import MetricSource
from mme_facts.instances import InstanceType
from mme_facts.metrics import ADMISSION_NAMESPACE, ENDPOINT_METRICS, QUEUE_NAMESPACE, Metric, metric
from mme_facts.thresholds import CPU_HIGH_PERCENT, CPU_LOW_PERCENT

__all__ = ["MonitoringDashboard"]

_WIDTH, _THIRD, _HEIGHT = 24, 8, 6
_MICROSECONDS_PER_SECOND = 1_000_000
_TENANTS_SHOWN = 20


class MonitoringDashboard(Construct):
    """A dashboard of one endpoint.

    Args:
        scope: the parent.
        id: the id below the parent.
        source: the endpoint's metrics.
        instance: its instance type. Default: unknown; CPU is then shown as published, summed over the cores.
        runbook: address of the runbook's index.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002 - CDK's name for it
        *,
        source: MetricSource,
        instance: InstanceType | None,
        runbook: str,
    ) -> None:
        super().__init__(scope, id)
        self._source, self._instance, self._runbook = source, instance, runbook
        self.dashboard = cloudwatch.Dashboard(self, "Dashboard", default_interval=cdk.Duration.hours(3))
        """The dashboard."""

    def add_users(self, hurt: cloudwatch.IAlarm, alarms: Sequence[cloudwatch.IAlarm]) -> None:
        """The first row: the composite alarm with its parts, errors, and how long requests wait."""
        self._add(
            f"## Are users hurt? Red below: yes. Runbook: {self._runbook}",
            cloudwatch.AlarmStatusWidget(title="Users are hurt", alarms=[hurt, *alarms], width=_THIRD, height=_HEIGHT),
            self._graph(
                "Errors a minute",
                [self._named(name, "Sum", label=name) for name in ("Invocation5XXErrors", "InvocationModelErrors", "Invocation4XXErrors")],
                [self._named("Invocations", "Sum", label="requests")],
            ),
            self._graph(
                "How long requests take, seconds",
                [
                    self._seconds("ModelLoadingWaitTime", "Maximum", "longest wait for a model"),
                    self._seconds("ModelLatency", "p99", "p99 of the models"),
                ],
            ),
        )

    def add_cache(self, alarms: Sequence[cloudwatch.IAlarm]) -> None:
        """The second row: hit ratio, loads and unloads, loaded models."""
        self._add(
            "## Cache: is the memory large enough?",
            self._graph("Hit ratio (aim near 1)", [self._named("ModelCacheHit", "Average", label="hit ratio")]),
            self._graph(
                "Loads and unloads a minute (both high: thrashing)",
                [
                    self._named("ModelLoadingTime", "SampleCount", label="loads"),
                    self._named("ModelUnloadingTime", "SampleCount", label="unloads"),
                ],
                [
                    self._seconds("ModelDownloadingTime", "Average", "mean download, s"),
                    self._seconds("ModelLoadingTime", "Average", "mean load, s"),
                ],
            ),
            self._graph(
                "Loaded models an instance",
                [self._named("LoadedModelCount", name, label=name.lower()) for name in ("Maximum", "Average", "Minimum")],
            ),
        )
        self._add_status("Cache alarms", alarms)

    def add_fleet(self, alarms: Sequence[cloudwatch.IAlarm]) -> None:
        """The third row: CPU, memory and disk, load an instance."""
        right_sized = [
            cloudwatch.HorizontalAnnotation(value=CPU_LOW_PERCENT, label="over-provisioned below"),
            cloudwatch.HorizontalAnnotation(value=CPU_HIGH_PERCENT, label="under-provisioned above"),
        ]
        cpu: cloudwatch.IMetric = self._named("CPUUtilization", "Average", label="CPU")
        title = "CPU, percent summed over the cores"
        if self._instance is not None:
            title = f"CPU, percent of {self._instance.vcpus} vCPUs"
            cpu = cloudwatch.MathExpression(
                expression=f"value / {self._instance.vcpus}", using_metrics={"value": cpu}, label="CPU", period=cdk.Duration.minutes(1)
            )
        levels = ["MemoryUtilization", "DiskUtilization"]
        if self._instance is not None and self._instance.gpus:
            levels += ["GPUUtilization", "GPUMemoryUtilization"]
        self._add(
            "## Fleet: is it the right size?",
            cloudwatch.GraphWidget(
                title=title,
                left=[cpu],
                left_annotations=right_sized if self._instance is not None else [],
                left_y_axis=cloudwatch.YAxisProps(min=0),
                width=_THIRD,
                height=_HEIGHT,
            ),
            self._graph("Fullest instance, percent", [self._named(name, "Maximum", label=name) for name in levels]),
            self._graph("Requests an instance and minute", [self._named("InvocationsPerInstance", "Sum", label="requests an instance")]),
        )
        self._add_status("Fleet alarms", alarms)

    def add_admission(self, source: MetricSource, alarms: Sequence[cloudwatch.IAlarm]) -> None:
        """A row on uploads: admitted, rejected, and events that failed for good."""
        counts = [source.metric(metric(ADMISSION_NAMESPACE, name), "Sum", label=name) for name in ("admitted", "rejected")]
        waiting = source.metric(metric(QUEUE_NAMESPACE, "ApproximateNumberOfMessagesVisible"), label="failed for good")
        self._add(
            "## Tenants: uploads",
            self._graph("Uploads in 5 minutes", counts),
            self._graph("Dead letters", [waiting]),
            cloudwatch.AlarmStatusWidget(title="Admission alarms", alarms=list(alarms), width=_THIRD, height=_HEIGHT),
        )

    def add_tenants(self, log_group: logs.ILogGroup) -> None:
        """A table of the busiest tenants, from the lines that the invocation path writes."""
        self._add(
            "## Tenants: who is busy, who is cold",
            cloudwatch.LogQueryWidget(
                title=f"The {_TENANTS_SHOWN} busiest tenants",
                log_group_names=[log_group.log_group_name],
                query_lines=[
                    "filter ispresent(tenant) and ispresent(latency_ms)",
                    (
                        "stats count(*) as requests, sum(cold) as cold_requests, sum(failed) as failures, pct(latency_ms, 99) as p99_ms"
                        " by tenant"
                    ),
                    "sort requests desc",
                    f"limit {_TENANTS_SHOWN}",
                ],
                view=cloudwatch.LogQueryVisualizationType.TABLE,
                width=_WIDTH,
                height=_HEIGHT,
            ),
        )

    def _add(self, heading: str, *widgets: cloudwatch.IWidget) -> None:
        self.dashboard.add_widgets(cloudwatch.TextWidget(markdown=heading, width=_WIDTH, height=1))
        self.dashboard.add_widgets(*widgets)

    def _add_status(self, title: str, alarms: Sequence[cloudwatch.IAlarm]) -> None:
        if alarms:
            self.dashboard.add_widgets(cloudwatch.AlarmStatusWidget(title=title, alarms=list(alarms), width=_WIDTH, height=2))

    def _named(self, name: str, statistic: str, *, label: str) -> cloudwatch.Metric:
        return self._of(ENDPOINT_METRICS[name], statistic, label)

    def _of(self, row: Metric, statistic: str, label: str) -> cloudwatch.Metric:
        return self._source.metric(row, statistic, period_minutes=1, label=label)

    def _seconds(self, name: str, statistic: str, label: str) -> cloudwatch.MathExpression:
        using: Mapping[str, cloudwatch.IMetric] = {f"{name[0].lower()}{name[1:]}": self._named(name, statistic, label=label)}
        (used,) = using
        return cloudwatch.MathExpression(
            expression=f"{used} / {_MICROSECONDS_PER_SECOND}", using_metrics=using, label=label, period=cdk.Duration.minutes(1)
        )

    @staticmethod
    def _graph(title: str, left: Sequence[cloudwatch.IMetric], right: Sequence[cloudwatch.IMetric] = ()) -> cloudwatch.GraphWidget:
        axis = cloudwatch.YAxisProps(min=0)
        return cloudwatch.GraphWidget(
            title=title, left=list(left), right=list(right), left_y_axis=axis, right_y_axis=axis, width=_THIRD, height=_HEIGHT
        )
