"""The one metric catalogue: AWS's metrics and our own, with namespace, dimensions, unit, valid statistics and source.

Constructs, functions, dashboards and `mme doctor` take every metric from here; a test walks what they use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from mme_facts.metrics_aws import (
    API_NAMESPACE,
    AWS_METRICS,
    COMPONENT_NAMESPACE,
    DEDICATED_ONLY,
    FUNCTION_NAMESPACE,
    INSTANCE_NAMESPACE,
    INVOCATION_NAMESPACE,
    QUEUE_NAMESPACE,
)
from mme_facts.metrics_entry import Metric, MetricUseError
from mme_facts.metrics_own import (
    ADMISSION_METRICS,
    ADMISSION_NAMESPACE,
    FLEET_NAMESPACE,
    HEAT_NAMESPACE,
    INVOCATION_LINE_METRICS,
    INVOCATION_LINE_NAMESPACE,
    OWN_METRICS,
    PLACEMENT_NAMESPACE,
    SWEEP_NAMESPACE,
    WARM_UP_NAMESPACE,
)

__all__ = [
    "ADMISSION_METRICS",
    "ADMISSION_NAMESPACE",
    "API_NAMESPACE",
    "CATALOGUE",
    "COMPONENT_METRICS",
    "COMPONENT_NAMESPACE",
    "DEDICATED_ENDPOINT_METRICS",
    "ENDPOINT_METRICS",
    "FLEET_NAMESPACE",
    "FUNCTION_NAMESPACE",
    "HEAT_NAMESPACE",
    "INSTANCE_NAMESPACE",
    "INVOCATION_LINE_METRICS",
    "INVOCATION_LINE_NAMESPACE",
    "INVOCATION_NAMESPACE",
    "PLACEMENT_NAMESPACE",
    "SWEEP_NAMESPACE",
    "QUEUE_NAMESPACE",
    "WARM_UP_NAMESPACE",
    "EndpointMetric",
    "Metric",
    "MetricUseError",
    "check_use",
    "metric",
    "namespaces",
]

CATALOGUE: Mapping[tuple[str, str], Metric] = MappingProxyType({(row.namespace, row.name): row for row in (*AWS_METRICS, *OWN_METRICS)})
"""(namespace, name) -> metric."""

EndpointMetric = Metric
"""A metric with the dimensions ``EndpointName`` and ``VariantName``."""

_VARIANT = ("EndpointName", "VariantName")
_COMPONENT = ("InferenceComponentName",)


def _with(dimensions: tuple[str, ...], rows: Iterable[Metric]) -> Mapping[str, Metric]:
    return MappingProxyType({row.name: row for row in rows if dimensions in row.dimensions})


ENDPOINT_METRICS = _with(_VARIANT, (row for row in AWS_METRICS if row.name not in DEDICATED_ONLY))
"""Name -> metric of a multi-model endpoint's variant."""
DEDICATED_ENDPOINT_METRICS = _with(_VARIANT, (row for row in AWS_METRICS if row.name in DEDICATED_ONLY))
"""Name -> instance metric that only the variant of an endpoint of inference components publishes, relative to 100 percent."""
COMPONENT_METRICS = _with(_COMPONENT, AWS_METRICS)
"""Name -> metric of an inference component."""


def namespaces() -> frozenset[str]:
    """Every namespace of the catalogue."""
    return frozenset(namespace for namespace, _ in CATALOGUE)


def metric(namespace: str, name: str) -> Metric:
    """The row of a metric.

    Raises:
        MetricUseError: there is no such metric.
    """
    row = CATALOGUE.get((namespace, name))
    if row is None:
        known = [known for space, known in CATALOGUE if space == namespace]
        allowed = ", ".join(known) if known else f"namespaces {', '.join(sorted(namespaces()))}"
        raise MetricUseError(f"{namespace} has no such metric", value=name, allowed=allowed)
    return row


def check_use(
    namespace: str,
    name: str,
    *,
    dimensions: Iterable[str],
    statistic: str,
    period_seconds: float,
    unit: str | None = None,
) -> Metric:
    """Check a use of a metric and return its row.

    Args:
        namespace: where it is published.
        name: its name.
        dimensions: names of the dimensions asked for.
        statistic: CloudWatch's statistic.
        period_seconds: seconds between values.
        unit: the unit asked for. Default: whatever is published.

    Raises:
        MetricUseError: the use would show nothing.
    """
    row = metric(namespace, name)
    row.check_dimensions(dimensions)
    row.check_statistic(statistic)
    row.check_period(period_seconds)
    if unit is not None:
        row.check_unit(unit)
    return row
