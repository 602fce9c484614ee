"""CloudWatch's metrics of a multi-model endpoint, minute by minute."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from mme_facts.metrics_aws import INSTANCE_NAMESPACE, INVOCATION_NAMESPACE
from mme_tenancy.warm_up.execute import Minute

__all__ = ["CloudWatchReadings"]

_PERIOD_SECONDS = 60
_STATISTICS: Mapping[str, tuple[str, str, str]] = {
    "invocations": (INVOCATION_NAMESPACE, "Invocations", "Sum"),
    "cache_hits": (INVOCATION_NAMESPACE, "ModelCacheHit", "Sum"),
    "cache_asked": (INVOCATION_NAMESPACE, "ModelCacheHit", "SampleCount"),
    "least_loaded_models": (INSTANCE_NAMESPACE, "LoadedModelCount", "Minimum"),
    "most_loaded_models": (INSTANCE_NAMESPACE, "LoadedModelCount", "Maximum"),
}


class CloudWatchReadings:
    """`mme_tenancy.warm_up.execute.Readings` by GetMetricData.

    Args:
        client: CloudWatch's client.
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    def minutes(self, endpoint: str, variant: str, *, start: int, end: int) -> Sequence[Minute]:
        """The minutes from ``start`` to ``end`` (epoch seconds) for which there is anything, oldest first.

        One page has them all: it holds 100,800 values.
        """
        dimensions = [{"Name": "EndpointName", "Value": endpoint}, {"Name": "VariantName", "Value": variant}]
        answer = self._client.get_metric_data(
            MetricDataQueries=[
                {
                    "Id": field,
                    "MetricStat": {
                        "Metric": {"Namespace": namespace, "MetricName": name, "Dimensions": dimensions},
                        "Period": _PERIOD_SECONDS,
                        "Stat": statistic,
                    },
                }
                for field, (namespace, name, statistic) in _STATISTICS.items()
            ],
            StartTime=datetime.fromtimestamp(start, UTC),
            EndTime=datetime.fromtimestamp(end, UTC),
            ScanBy="TimestampAscending",
        )
        minutes: defaultdict[int, dict[str, float]] = defaultdict(dict)
        for result in answer["MetricDataResults"]:
            for moment, value in zip(result["Timestamps"], result["Values"], strict=True):
                minutes[int(moment.timestamp())][result["Id"]] = value
        return [Minute(minute, **values) for minute, values in sorted(minutes.items())]
