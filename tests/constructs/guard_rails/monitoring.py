"""Guard rails of alarms: a metric used as it is not published would never fire."""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch

from mme_constructs import AlarmSettings, HeatSettings, MmeMonitoring, MultiModelEndpoint, MultiTenantInference, TelemetrySettings
from mme_constructs.errors import AlarmError, MetricError, TelemetryError
from tests.constructs.guard_rails.rail import GuardRail


def _alarm_on_a_percentile(stack: cdk.Stack) -> None:
    endpoint = MultiModelEndpoint.from_endpoint_attributes(stack, "There", endpoint_name="elsewhere")
    dimensions = {"EndpointName": "elsewhere", "VariantName": "AllTraffic"}
    wait = cloudwatch.Metric(namespace="AWS/SageMaker", metric_name="ModelLoadingWaitTime", dimensions_map=dimensions, statistic="p99")
    monitoring = MmeMonitoring(stack, "Monitoring", endpoint=endpoint)
    monitoring.add_alarm("Wait", metric=wait, title="Long waits", action="Look at S3", runbook="waits.md", threshold=5_000_000)


def _alarm_on_the_maximum(stack: cdk.Stack) -> None:
    endpoint = MultiModelEndpoint.from_endpoint_attributes(stack, "There", endpoint_name="elsewhere")
    dimensions = {"EndpointName": "elsewhere", "VariantName": "AllTraffic"}
    wait = cloudwatch.Metric(namespace="AWS/SageMaker", metric_name="ModelLoadingWaitTime", dimensions_map=dimensions, statistic="Maximum")
    monitoring = MmeMonitoring(stack, "Monitoring", endpoint=endpoint)
    monitoring.add_alarm("Wait", metric=wait, title="Long waits", action="Look at S3", runbook="waits.md", threshold=5_000_000)


def _alarm_on_other_dimensions(stack: cdk.Stack) -> None:
    endpoint = MultiModelEndpoint.from_endpoint_attributes(stack, "There", endpoint_name="elsewhere")
    dimensions = {"EndpointName": "elsewhere", "ModelName": "iris"}
    busy = cloudwatch.Metric(namespace="/aws/sagemaker/Endpoints", metric_name="CPUUtilization", dimensions_map=dimensions)
    monitoring = MmeMonitoring(stack, "Monitoring", endpoint=endpoint)
    monitoring.add_alarm("Busy", metric=busy, title="Busy", action="Add instances", runbook="busy.md", threshold=320)


def _alarm_on_the_variant(stack: cdk.Stack) -> None:
    endpoint = MultiModelEndpoint.from_endpoint_attributes(stack, "There", endpoint_name="elsewhere")
    dimensions = {"EndpointName": "elsewhere", "VariantName": "AllTraffic"}
    busy = cloudwatch.Metric(namespace="/aws/sagemaker/Endpoints", metric_name="CPUUtilization", dimensions_map=dimensions)
    monitoring = MmeMonitoring(stack, "Monitoring", endpoint=endpoint)
    monitoring.add_alarm("Busy", metric=busy, title="Busy", action="Add instances", runbook="busy.md", threshold=320)


def _alarm_over_two_days_of_minutes(stack: cdk.Stack) -> None:
    endpoint = MultiModelEndpoint.from_endpoint_attributes(stack, "There", endpoint_name="elsewhere")
    slow = AlarmSettings(period_minutes=5, periods=576)
    MmeMonitoring(stack, "Monitoring", endpoint=endpoint, overrides={"low-cache-hit": slow})


def _alarm_over_two_days_of_hours(stack: cdk.Stack) -> None:
    endpoint = MultiModelEndpoint.from_endpoint_attributes(stack, "There", endpoint_name="elsewhere")
    slow = AlarmSettings(period_minutes=60, periods=48)
    MmeMonitoring(stack, "Monitoring", endpoint=endpoint, overrides={"low-cache-hit": slow})


def _metrics_of_every_tenant(stack: cdk.Stack) -> None:
    everybody = [f"tenant-{number}" for number in range(1000)]
    MultiTenantInference(stack, "Platform", telemetry=TelemetrySettings(tenants=everybody))


def _metrics_of_a_few(stack: cdk.Stack) -> None:
    MultiTenantInference(stack, "Platform", telemetry=TelemetrySettings(tenants=["acme", "globex"]))


def _windows_that_divide_no_day(stack: cdk.Stack) -> None:
    MultiTenantInference(stack, "Platform", heat=HeatSettings(window_minutes=7))


def _windows_that_divide_a_day(stack: cdk.Stack) -> None:
    MultiTenantInference(stack, "Platform", heat=HeatSettings(window_minutes=10))


RAILS = (
    GuardRail(
        "Metrics for every tenant",
        "Each tenant with metrics of its own has about ten custom metrics for each endpoint, all billed, where the log of requests tells "
        "the same of all tenants (Amazon CloudWatch, pricing: custom metrics).",
        _metrics_of_every_tenant,
        _metrics_of_a_few,
        TelemetryError,
    ),
    GuardRail(
        "Heat in windows that divide no day",
        "Windows begin where their length divides the time since 1970: those of another length would lie elsewhere every day, and what is "
        "compared day by day would not match.",
        _windows_that_divide_no_day,
        _windows_that_divide_a_day,
        TelemetryError,
    ),
    GuardRail(
        "Alarm on an invalid statistic",
        "The metric has no such statistic, so the alarm would never see data (Amazon SageMaker AI, CloudWatch Metrics for Multi-Model "
        "Endpoint Deployments).",
        _alarm_on_a_percentile,
        _alarm_on_the_maximum,
        MetricError,
    ),
    GuardRail(
        "Alarm on dimensions that are not published",
        "CloudWatch finds a metric only under exactly its dimensions; per-model metrics of a multi-model endpoint do not exist (Amazon "
        "SageMaker AI, Monitor SageMaker AI with Amazon CloudWatch).",
        _alarm_on_other_dimensions,
        _alarm_on_the_variant,
        MetricError,
    ),
    GuardRail(
        "Alarm that looks back too far",
        "CloudWatch refuses windows above a day, or above seven days with periods of an hour or more (API reference: PutMetricAlarm).",
        _alarm_over_two_days_of_minutes,
        _alarm_over_two_days_of_hours,
        AlarmError,
    ),
)
