"""Rows of the metric catalogue that AWS publishes.

Sources: Amazon SageMaker AI, Monitor SageMaker AI with Amazon CloudWatch (invocation, instance and inference component metrics);
CloudWatch Metrics for Multi-Model Endpoint Deployments (loading metrics, for which no percentiles are listed). Others: as each row says.
"""

from __future__ import annotations

from mme_facts.metrics_entry import BASIC_STATISTICS, Metric

__all__ = [
    "API_NAMESPACE",
    "AWS_METRICS",
    "COMPONENT_NAMESPACE",
    "DEDICATED_ONLY",
    "FUNCTION_NAMESPACE",
    "INSTANCE_NAMESPACE",
    "INVOCATION_NAMESPACE",
    "QUEUE_NAMESPACE",
]

INVOCATION_NAMESPACE = "AWS/SageMaker"
INSTANCE_NAMESPACE = "/aws/sagemaker/Endpoints"
COMPONENT_NAMESPACE = "/aws/sagemaker/InferenceComponents"
FUNCTION_NAMESPACE = "AWS/Lambda"
QUEUE_NAMESPACE = "AWS/SQS"
API_NAMESPACE = "AWS/ApiGateway"

_VARIANT = ("EndpointName", "VariantName")
_COMPONENT = ("InferenceComponentName",)
_LOADING = "Amazon SageMaker AI, CloudWatch Metrics for Multi-Model Endpoint Deployments"
_PEAK = ("Maximum", "Average", "Minimum", "Sum", "SampleCount")


def _invocation(name: str, statistics: tuple[str, ...], unit: str = "None", *, percentiles: bool = False) -> Metric:
    """Published for a variant and, where it hosts inference components, for each of them."""
    return Metric(name, INVOCATION_NAMESPACE, unit, statistics, percentiles, (_VARIANT, _COMPONENT))


def _loading(name: str) -> Metric:
    return Metric(name, INVOCATION_NAMESPACE, "Microseconds", BASIC_STATISTICS, source=_LOADING)


def _instance(name: str, unit: str = "Percent") -> Metric:
    return Metric(name, INSTANCE_NAMESPACE, unit, BASIC_STATISTICS)


def _component_level(name: str) -> Metric:
    return Metric(name, COMPONENT_NAMESPACE, "Percent", BASIC_STATISTICS, dimensions=(_COMPONENT,))


def _lambda(name: str, statistics: tuple[str, ...], unit: str = "Count", *, percentiles: bool = False) -> Metric:
    source = "AWS Lambda, Types of metrics for Lambda functions"
    return Metric(name, FUNCTION_NAMESPACE, unit, statistics, percentiles, (("FunctionName",),), "AWS Lambda", source)


def _queue(name: str, unit: str) -> Metric:
    source = "Amazon SQS, Available CloudWatch metrics for Amazon SQS"
    return Metric(name, QUEUE_NAMESPACE, unit, _PEAK, dimensions=(("QueueName",),), emitter="Amazon SQS", source=source)


def _api(name: str, statistics: tuple[str, ...], unit: str = "Count", *, percentiles: bool = False) -> Metric:
    source = "Amazon API Gateway, Amazon API Gateway dimensions and metrics"
    return Metric(name, API_NAMESPACE, unit, statistics, percentiles, (("ApiName",), ("ApiName", "Stage")), "Amazon API Gateway", source)


AWS_METRICS = (
    _invocation("Invocations", ("Sum",)),
    Metric("InvocationsPerInstance", INVOCATION_NAMESPACE, "None", ("Sum",)),
    _invocation("Invocation4XXErrors", ("Sum", "Average")),
    _invocation("Invocation5XXErrors", ("Sum", "Average")),
    _invocation("InvocationModelErrors", ("Sum", "Average")),
    _invocation("ModelLatency", BASIC_STATISTICS, "Microseconds", percentiles=True),
    _invocation("OverheadLatency", BASIC_STATISTICS, "Microseconds"),
    Metric("ConcurrentRequestsPerModel", INVOCATION_NAMESPACE, "None", ("Maximum", "Minimum")),
    _loading("ModelLoadingWaitTime"),
    _loading("ModelUnloadingTime"),
    _loading("ModelDownloadingTime"),
    _loading("ModelLoadingTime"),
    Metric("ModelCacheHit", INVOCATION_NAMESPACE, "None", ("Average", "Sum", "SampleCount"), source=_LOADING),
    Metric("LoadedModelCount", INSTANCE_NAMESPACE, "None", BASIC_STATISTICS, source=_LOADING),
    _instance("CPUUtilization"),
    _instance("MemoryUtilization"),
    _instance("DiskUtilization"),
    _instance("GPUUtilization"),
    _instance("GPUMemoryUtilization"),
    # Endpoints that host inference components only.
    Metric("InvocationsPerCopy", INVOCATION_NAMESPACE, "None", ("Sum",), dimensions=(_COMPONENT,)),
    Metric("ConcurrentRequestsPerCopy", INVOCATION_NAMESPACE, "None", ("Maximum", "Minimum"), dimensions=(_COMPONENT,)),
    Metric(
        "NoCapacityInvocationFailures",
        INVOCATION_NAMESPACE,
        "None",
        ("Sum",),
        dimensions=(_COMPONENT,),
        source="Amazon SageMaker AI, Scale an endpoint to zero instances",
    ),
    _instance("CPUUtilizationNormalized"),
    _instance("GPUUtilizationNormalized"),
    _instance("GPUMemoryUtilizationNormalized"),
    _instance("CPUReservation"),
    _instance("GPUReservation"),
    _instance("MemoryReservation"),
    _component_level("CPUUtilizationNormalized"),
    _component_level("MemoryUtilizationNormalized"),
    _component_level("GPUUtilizationNormalized"),
    _component_level("GPUMemoryUtilizationNormalized"),
    # What surrounds the endpoints.
    _lambda("Invocations", ("Sum",)),
    _lambda("Errors", ("Sum",)),
    _lambda("Throttles", ("Sum",)),
    _lambda("Duration", BASIC_STATISTICS, "Milliseconds", percentiles=True),
    _lambda("ConcurrentExecutions", ("Maximum",)),
    _queue("ApproximateNumberOfMessagesVisible", "Count"),
    _queue("ApproximateAgeOfOldestMessage", "Seconds"),
    _api("Count", ("Sum", "SampleCount")),
    _api("4XXError", ("Sum", "Average")),
    _api("5XXError", ("Sum", "Average")),
    _api("Latency", BASIC_STATISTICS, "Milliseconds", percentiles=True),
    _api("IntegrationLatency", BASIC_STATISTICS, "Milliseconds", percentiles=True),
)
"""Every row; a name is unique in its namespace."""

DEDICATED_ONLY = frozenset(
    {
        "CPUUtilizationNormalized",
        "GPUUtilizationNormalized",
        "GPUMemoryUtilizationNormalized",
        "CPUReservation",
        "GPUReservation",
        "MemoryReservation",
    }
)
"""Instance metrics that only endpoints of inference components publish."""
