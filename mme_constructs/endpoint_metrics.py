"""Metrics of the catalogue as CDK metrics."""

from __future__ import annotations

from collections.abc import Mapping

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch

from mme_constructs.errors import MetricError
from mme_facts.metrics import Metric, MetricUseError

__all__ = ["metric_of"]


def metric_of(
    publisher: str,
    catalogue: Mapping[str, Metric],
    name: str,
    *,
    dimensions: Mapping[str, str],
    statistic: str | None,
    period_minutes: int,
) -> cloudwatch.Metric:
    """A metric by its official name.

    Args:
        publisher: who publishes the catalogue's metrics, for the error's text.
        catalogue: the metrics to choose from.
        name: official name.
        dimensions: name -> value.
        statistic: CloudWatch statistic (``Average``, ``p99``). Default: the metric's usual one.
        period_minutes: whole minutes; the metrics have no finer grain.

    Raises:
        MetricError: the metric does not exist or has no such statistic.
    """
    known = catalogue.get(name)
    if known is None:
        raise MetricError(f"{publisher} publish no such metric", value=name, allowed=", ".join(catalogue), fix="Use one of these")
    chosen = known.default_statistic if statistic is None else statistic
    try:
        known.check_statistic(chosen)
    except MetricUseError as error:
        raise MetricError(error.what, value=error.value, allowed=error.allowed, fix="Use one of these") from error
    if period_minutes < 1:
        raise MetricError(f"{name} has one value a minute", value=period_minutes, allowed="whole minutes from 1", fix="Use 1 or more")
    return cloudwatch.Metric(
        namespace=known.namespace,
        metric_name=known.name,
        dimensions_map=dimensions,
        statistic=chosen,
        period=cdk.Duration.minutes(period_minutes),
    )
