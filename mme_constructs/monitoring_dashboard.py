"""The dashboard: what a person on call reads in ten seconds. Are users hurt; then the cache; then the fleet; then the tenants.

Its body is written here, as CloudWatch documents it (Amazon CloudWatch, Dashboard body structure and syntax).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_logs as logs
from constructs import Construct

from mme_constructs.monitoring_metrics import MetricSource, MetricUse
from mme_constructs.stack_of import stack_of
from mme_facts.instances import InstanceType
from mme_facts.metrics import ADMISSION_NAMESPACE, ENDPOINT_METRICS, QUEUE_NAMESPACE, WARM_UP_NAMESPACE, metric
from mme_facts.thresholds import CPU_HIGH_PERCENT, CPU_LOW_PERCENT

__all__ = ["MonitoringDashboard"]

_WIDTH, _THIRD, _HEIGHT = 24, 8, 6
_MICROSECONDS_PER_SECOND = 1_000_000
_TENANTS_SHOWN = 20

Document = dict[str, Any]
Rows = list[list[object]]


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
        self._stack = stack_of(self)
        self._region = self._stack.region
        self._widgets: list[Document] = []
        self._foreign = False
        self._height = 0
        self._resource = cloudwatch.CfnDashboard(self, "Dashboard", dashboard_body="")

    @property
    def dashboard_name(self) -> str:
        """The dashboard's name."""
        return self._resource.ref

    def add_widgets(self, *widgets: cloudwatch.IWidget) -> None:
        """A row of your own below the others."""
        self._foreign = True
        height = 0
        column = 0
        for widget in widgets:
            widget.position(column, self._height)
            self._widgets += widget.to_json()
            column += int(widget.width)
            height = max(height, int(widget.height))
        self._height += height
        self._write()

    def add_endpoint(self, hurt: str, *, users: Sequence[str], cache: Sequence[str], fleet: Sequence[str]) -> None:
        """The rows of the endpoint: what users feel, the cache, the fleet.

        Args:
            hurt: ARN of the composite alarm.
            users: ARNs of the alarms that users feel.
            cache: those of the cache.
            fleet: those of the fleet.
        """
        self._add_users(hurt, users)
        self._add_cache(cache)
        self._add_fleet(fleet)
        self._write()

    def _add_users(self, hurt_arn: str, alarm_arns: Sequence[str]) -> None:
        """The composite alarm with its parts, errors, and how long requests wait."""
        self._add(
            f"## Are users hurt? Red below: yes. Runbook: {self._runbook}",
            _status("Users are hurt", [hurt_arn, *alarm_arns]),
            self._graph(
                "Errors a minute",
                [self._named(name, "Sum", name).row() for name in ("Invocation5XXErrors", "InvocationModelErrors", "Invocation4XXErrors")],
                [self._named("Invocations", "Sum", "requests").row(yAxis="right")],
            ),
            self._graph(
                "How long requests take, seconds",
                [
                    *self._seconds("ModelLoadingWaitTime", "Maximum", "longest wait for a model"),
                    *self._seconds("ModelLatency", "p99", "p99 of the models"),
                ],
            ),
        )

    def _add_cache(self, alarm_arns: Sequence[str]) -> None:
        """Hit ratio, loads and unloads, loaded models."""
        self._add(
            "## Cache: is the memory large enough?",
            self._graph("Hit ratio (aim near 1)", [self._named("ModelCacheHit", "Average", "hit ratio").row()]),
            self._graph(
                "Loads and unloads a minute (both high: thrashing)",
                [
                    self._named("ModelLoadingTime", "SampleCount", "loads").row(),
                    self._named("ModelUnloadingTime", "SampleCount", "unloads").row(),
                ],
                [
                    *self._seconds("ModelDownloadingTime", "Average", "mean download, s", yAxis="right"),
                    *self._seconds("ModelLoadingTime", "Average", "mean load, s", yAxis="right"),
                ],
            ),
            self._graph(
                "Loaded models an instance",
                [self._named("LoadedModelCount", name, name.lower()).row() for name in ("Maximum", "Average", "Minimum")],
            ),
        )
        self._add_status("Cache alarms", alarm_arns)

    def _add_fleet(self, alarm_arns: Sequence[str]) -> None:
        """CPU, memory and disk, load an instance."""
        cpu = self._named("CPUUtilization", "Average", "CPU")
        if self._instance is None:
            usage = self._graph("CPU, percent summed over the cores", [cpu.row()])
        else:
            vcpus = self._instance.vcpus
            usage = self._graph(f"CPU, percent of {vcpus} vCPUs", _divided(cpu, "value", vcpus))
            usage["properties"]["annotations"] = {
                "horizontal": [
                    {"value": CPU_LOW_PERCENT, "label": "over-provisioned below", "yAxis": "left"},
                    {"value": CPU_HIGH_PERCENT, "label": "under-provisioned above", "yAxis": "left"},
                ]
            }
        levels = ["MemoryUtilization", "DiskUtilization"]
        if self._instance is not None and self._instance.gpus:
            levels += ["GPUUtilization", "GPUMemoryUtilization"]
        self._add(
            "## Fleet: is it the right size?",
            usage,
            self._graph("Fullest instance, percent", [self._named(name, "Maximum", name).row() for name in levels]),
            self._graph("Requests an instance and minute", [self._named("InvocationsPerInstance", "Sum", "requests an instance").row()]),
        )
        self._add_status("Fleet alarms", alarm_arns)

    def add_admission(self, source: MetricSource, alarm_arns: Sequence[str]) -> None:
        """A row on uploads: admitted, rejected, and events that failed for good."""
        counts = [source.metric(metric(ADMISSION_NAMESPACE, name), "Sum", label=name).row() for name in ("admitted", "rejected")]
        waiting = source.metric(metric(QUEUE_NAMESPACE, "ApproximateNumberOfMessagesVisible"), label="failed for good")
        self._add(
            "## Tenants: uploads",
            self._graph("Uploads in 5 minutes", counts),
            self._graph("Dead letters", [waiting.row()]),
            _status("Admission alarms", alarm_arns),
        )
        self._write()

    def add_warm_up(self, alarm_arns: Sequence[str], *, prefetch: bool = False) -> None:
        """A row on warm-ups after changes of the fleet: what they did, how long they took, what they were good for.

        Args:
            alarm_arns: ARNs of their alarms.
            prefetch: whether models are also called before their next use: a row on what was called, and what it was good for.
        """
        self._add(
            "## Warm-up: were caches filled again after the fleet changed?",
            self._graph("Calls in 5 minutes", [self._warmed("models_warmed", "models warmed"), self._warmed("calls", "calls")]),
            self._graph(
                "How long it took, and its bytes",
                [self._warmed("seconds", "seconds", "Maximum")],
                [self._warmed("bytes_warmed", "bytes", yAxis="right")],
            ),
            self._graph(
                "What came of it",
                [self._warmed("cold_requests_avoided", "cold requests avoided, estimated")],
                [self._warmed("failed", "failed", yAxis="right"), self._warmed("overrun", "out of time", yAxis="right")],
            ),
        )
        if prefetch:
            self._add_prefetch()
        self._add_status("Warm-up alarms", alarm_arns)
        self._write()

    def _add_prefetch(self) -> None:
        used, wasted = self._warm_up("prefetch_used", "used"), self._warm_up("prefetch_wasted", "in vain")
        share = {
            "label": "in vain, percent",
            "expression": "100 * wasted / (used + wasted)",
            "period": wasted.period_seconds,
            "yAxis": "right",
        }
        self._place(
            [
                self._graph(
                    "Prefetch in 5 minutes",
                    [self._warmed("prefetched", "models called"), self._warmed("prefetch_loads", "of them to be loaded")],
                ),
                self._graph("Loads of prefetch: used, or in vain", [used.row(id="used"), wasted.row(id="wasted")], [[share]]),
            ]
        )

    def add_tenants(self, log_groups: Sequence[logs.ILogGroup]) -> None:
        """A table of the busiest tenants, from the lines that the invocation path writes."""
        query = (
            *(f"SOURCE '{group.log_group_name}'" for group in log_groups),
            "filter ispresent(tenant) and ispresent(status) and ispresent(latency_ms) and ispresent(failed)",
            "stats count(*) as requests, sum(cold) as cold_requests, sum(failed) as failures, pct(latency_ms, 99) as p99_ms by tenant",
            "sort requests desc",
            f"limit {_TENANTS_SHOWN}",
        )
        table = {
            "view": "table",
            "title": f"The {_TENANTS_SHOWN} busiest tenants",
            "region": self._region,
            "query": "\n| ".join(query),
        }
        self._add("## Tenants: who is busy, who is cold", _widget("log", _WIDTH, _HEIGHT, table))
        self._write()

    def _add(self, heading: str, *widgets: Document) -> None:
        self._place([_widget("text", _WIDTH, 1, {"markdown": heading})])
        self._place(widgets)

    def _add_status(self, title: str, alarm_arns: Sequence[str]) -> None:
        if alarm_arns:
            self._place([_status(title, alarm_arns, width=_WIDTH, height=2)])

    def _place(self, row: Sequence[Document]) -> None:
        """A row below the others, from the left."""
        column = 0
        for widget in row:
            self._widgets.append({**widget, "x": column, "y": self._height})
            column += widget["width"]
        self._height += max(widget["height"] for widget in row)

    def _write(self) -> None:
        body = {"start": "-PT3H", "widgets": self._widgets}
        # Ours hold tokens inside texts only, which JSON keeps; widgets of users may hold anything that CDK resolves.
        self._resource.dashboard_body = self._stack.to_json_string(body) if self._foreign else json.dumps(body, separators=(",", ":"))

    def _named(self, name: str, statistic: str, label: str) -> MetricUse:
        return self._source.metric(ENDPOINT_METRICS[name], statistic, period_minutes=1, label=label)

    def _seconds(self, name: str, statistic: str, label: str, **options: object) -> Rows:
        used = self._named(name, statistic, label)
        return _divided(used, f"{name[0].lower()}{name[1:]}", _MICROSECONDS_PER_SECOND, **options)

    def _warmed(self, name: str, label: str, statistic: str = "Sum", **options: object) -> list[object]:
        return self._warm_up(name, label, statistic).row(**options)

    def _warm_up(self, name: str, label: str, statistic: str = "Sum") -> MetricUse:
        return self._source.metric(metric(WARM_UP_NAMESPACE, name), statistic, label=label)

    def _graph(self, title: str, left: Rows, right: Rows | None = None) -> Document:
        from_zero: Mapping[str, object] = {"min": 0}
        rows = [*left, *(right or ())]
        axes = {"left": from_zero, "right": from_zero}
        shown = {"view": "timeSeries", "title": title, "region": self._region, "metrics": rows, "yAxis": axes}
        return _widget("metric", _THIRD, _HEIGHT, shown)


def _divided(used: MetricUse, name: str, by: int, **options: object) -> Rows:
    """The rows of ``used / by``: the expression, and what it looks at, unseen."""
    expression = {"label": used.label, "expression": f"{name} / {by}", "period": used.period_seconds, **options}
    return [[expression], used.row(id=name, visible=False)]


def _status(title: str, alarm_arns: Sequence[str], *, width: int = _THIRD, height: int = _HEIGHT) -> Document:
    return _widget("alarm", width, height, {"title": title, "alarms": list(alarm_arns)})


def _widget(kind: str, width: int, height: int, properties: Document) -> Document:
    return {"type": kind, "width": width, "height": height, "properties": properties}
