"""The metrics of multi-model endpoints: official names, units and the statistics that each one has.

Source: Amazon SageMaker AI, Monitor SageMaker AI with Amazon CloudWatch; CloudWatch Metrics for Multi-Model Endpoint Deployments.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ENDPOINT_METRICS", "INSTANCE_NAMESPACE", "INVOCATION_NAMESPACE", "EndpointMetric"]

INVOCATION_NAMESPACE = "AWS/SageMaker"
INSTANCE_NAMESPACE = "/aws/sagemaker/Endpoints"

_BASIC = ("Average", "Sum", "Minimum", "Maximum", "SampleCount")


@dataclass(frozen=True, slots=True)
class EndpointMetric:
    """One metric with the dimensions ``EndpointName`` and ``VariantName``.

    Attributes:
        name: official name.
        namespace: where it is published.
        unit: ``Microseconds``, ``Percent`` or ``None``.
        statistics: valid ones; the first is the default.
        percentiles: whether ``p99`` and the like are valid.
    """

    name: str
    namespace: str
    unit: str
    statistics: tuple[str, ...]
    percentiles: bool = False


ENDPOINT_METRICS = {
    metric.name: metric
    for metric in (
        EndpointMetric("Invocations", INVOCATION_NAMESPACE, "None", ("Sum",)),
        EndpointMetric("InvocationsPerInstance", INVOCATION_NAMESPACE, "None", ("Sum",)),
        EndpointMetric("Invocation4XXErrors", INVOCATION_NAMESPACE, "None", ("Sum", "Average")),
        EndpointMetric("Invocation5XXErrors", INVOCATION_NAMESPACE, "None", ("Sum", "Average")),
        EndpointMetric("InvocationModelErrors", INVOCATION_NAMESPACE, "None", ("Sum", "Average")),
        EndpointMetric("ModelLatency", INVOCATION_NAMESPACE, "Microseconds", _BASIC, percentiles=True),
        EndpointMetric("OverheadLatency", INVOCATION_NAMESPACE, "Microseconds", _BASIC),
        EndpointMetric("ModelLoadingWaitTime", INVOCATION_NAMESPACE, "Microseconds", _BASIC),
        EndpointMetric("ModelUnloadingTime", INVOCATION_NAMESPACE, "Microseconds", _BASIC),
        EndpointMetric("ModelDownloadingTime", INVOCATION_NAMESPACE, "Microseconds", _BASIC),
        EndpointMetric("ModelLoadingTime", INVOCATION_NAMESPACE, "Microseconds", _BASIC),
        EndpointMetric("ModelCacheHit", INVOCATION_NAMESPACE, "None", ("Average", "Sum", "SampleCount")),
        EndpointMetric("LoadedModelCount", INSTANCE_NAMESPACE, "None", _BASIC),
        EndpointMetric("CPUUtilization", INSTANCE_NAMESPACE, "Percent", _BASIC),
        EndpointMetric("MemoryUtilization", INSTANCE_NAMESPACE, "Percent", _BASIC),
        EndpointMetric("DiskUtilization", INSTANCE_NAMESPACE, "Percent", _BASIC),
        EndpointMetric("GPUUtilization", INSTANCE_NAMESPACE, "Percent", _BASIC),
        EndpointMetric("GPUMemoryUtilization", INSTANCE_NAMESPACE, "Percent", _BASIC),
    )
}
