"""Reads an endpoint's description and metrics: the thin adapter below `mme doctor`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,  # noqa: A004 - botocore's, not the built-in
    HTTPClientError,
    NoCredentialsError,
    PartialCredentialsError,
)

from mme_cli.doctor_rules import Query, Readings
from mme_cli.errors import CommandError
from mme_facts import instances

__all__ = ["CloudWatchClient", "SageMakerClient", "doctor_readings"]

_PAGES = 10
"""Bound on pages of one GetMetricData call: 100,800 values each (API reference: GetMetricData)."""
_NOT_ALLOWED = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"})
_BAD_CREDENTIALS = frozenset(
    {
        *("ExpiredToken", "ExpiredTokenException", "InvalidClientTokenId", "UnrecognizedClientException"),
        *("InvalidSignatureException", "SignatureDoesNotMatch", "MissingAuthenticationToken"),
    }
)
_HOUR_SECONDS = 3600
_MINUTE_SECONDS = 60

T = TypeVar("T")


class SageMakerClient(Protocol):
    """What is used of boto3's client."""

    def describe_endpoint(self, *, EndpointName: str) -> Mapping[str, Any]:  # noqa: N803 - the API's name
        """Status and variants."""

    def describe_endpoint_config(self, *, EndpointConfigName: str) -> Mapping[str, Any]:  # noqa: N803
        """Instance types and models of the variants."""

    def describe_model(self, *, ModelName: str) -> Mapping[str, Any]:  # noqa: N803
        """Containers."""


class CloudWatchClient(Protocol):
    """What is used of boto3's client."""

    def get_metric_data(self, **request: Any) -> Mapping[str, Any]:
        """Values of many series."""


def doctor_readings(
    sagemaker: SageMakerClient,
    cloudwatch: CloudWatchClient,
    queries: Sequence[Query],
    *,
    endpoint: str,
    variant: str | None,
    instance_type: str | None,
    hours: int,
    now: float,
    where: str,
) -> Readings:
    """Read what `mme_cli.doctor_rules.diagnose` needs.

    Args:
        sagemaker: describes the endpoint.
        cloudwatch: has the metrics.
        queries: which series.
        endpoint: its name.
        variant: production variant; ``None``: the first.
        instance_type: instance type; ``None``: what the endpoint's configuration says.
        hours: length of the window; it begins at a whole hour.
        now: epoch seconds.
        where: what is asked, for error texts, such as ``AWS region eu-central-1``.

    Raises:
        CommandError: the endpoint or variant does not exist, or AWS cannot be asked.
    """
    description = _asked(lambda: sagemaker.describe_endpoint(EndpointName=endpoint), "sagemaker:DescribeEndpoint", where, endpoint)
    names = [item["VariantName"] for item in description.get("ProductionVariants", ())]
    chosen = variant or (names[0] if names else "AllTraffic")
    if names and chosen not in names:
        raise CommandError(f"endpoint {endpoint!r} has no variant {chosen!r}: use one of {', '.join(names)}")
    found_type, cached = _configuration(sagemaker, description, chosen)
    start = (int(now) // _HOUR_SECONDS - hours) * _HOUR_SECONDS
    end = int(now) // _MINUTE_SECONDS * _MINUTE_SECONDS
    values = {"EndpointName": endpoint, "VariantName": chosen, "endpoint": endpoint}
    return Readings(
        endpoint=endpoint,
        variant=chosen,
        status=str(description["EndpointStatus"]),
        seconds_in_status=max(0.0, now - description["LastModifiedTime"].timestamp()),
        instance=_instance(instance_type, found_type),
        cache_enabled=cached,
        start=start,
        end=end,
        series=_series(cloudwatch, queries, values, start, end, where),
    )


def _configuration(sagemaker: SageMakerClient, description: Mapping[str, Any], variant: str) -> tuple[str | None, bool]:
    """Instance type of the variant and whether its models stay loaded; unknown where the caller may not describe them."""
    try:
        config = sagemaker.describe_endpoint_config(EndpointConfigName=description["EndpointConfigName"])
        found = next(item for item in config["ProductionVariants"] if item["VariantName"] == variant)
        model = sagemaker.describe_model(ModelName=found["ModelName"]) if "ModelName" in found else {}
    except (BotoCoreError, ClientError, KeyError, StopIteration):
        return None, True
    containers = [*model.get("Containers", ()), *([model["PrimaryContainer"]] if "PrimaryContainer" in model else ())]
    if not any(container.get("Mode") == "MultiModel" for container in containers):
        raise CommandError(
            f"variant {variant!r} of endpoint {description['EndpointName']!r} hosts no multi-model container: "
            "mme doctor reads multi-model endpoints; name another one"
        )
    settings = [container.get("MultiModelConfig", {}).get("ModelCacheSetting") for container in containers]
    return found.get("InstanceType"), "Disabled" not in settings


def _instance(given: str | None, found: str | None) -> instances.InstanceType | None:
    if given is None and found is None:
        return None
    try:
        return instances.instance(given or found or "")
    except instances.InstanceTypeError as error:
        if given is not None:
            raise CommandError(str(error)) from error
        return None


def _series(
    cloudwatch: CloudWatchClient, queries: Sequence[Query], values: Mapping[str, str], start: int, end: int, where: str
) -> dict[Query, dict[int, float]]:
    """One batched call; its pages are followed."""
    request: dict[str, Any] = {
        "MetricDataQueries": [_metric_query(f"q{number}", query, values) for number, query in enumerate(queries)],
        "StartTime": start,
        "EndTime": end,
        "ScanBy": "TimestampAscending",
    }
    series: dict[Query, dict[int, float]] = {query: {} for query in queries}
    for _ in range(_PAGES):
        page = _asked(lambda: cloudwatch.get_metric_data(**request), "cloudwatch:GetMetricData", where)
        for result in page.get("MetricDataResults", ()):
            if result.get("StatusCode") in ("InternalError", "Forbidden"):
                raise CommandError(
                    f"CloudWatch of {where} gave no data ({result['StatusCode']}): try again, or look at the caller's rights"
                )
            into = series[queries[int(result["Id"][1:])]]
            into.update(zip(map(_epoch, result.get("Timestamps", ())), result.get("Values", ()), strict=True))
        if not page.get("NextToken"):
            return series
        request["NextToken"] = page["NextToken"]
    raise CommandError(f"CloudWatch of {where} has more than {_PAGES} pages of values: take fewer --hours")


def _metric_query(query_id: str, query: Query, values: Mapping[str, str]) -> dict[str, Any]:
    names = next(names for names in query.metric.dimensions if set(names) <= values.keys())
    metric = {
        "Namespace": query.metric.namespace,
        "MetricName": query.metric.name,
        "Dimensions": [{"Name": name, "Value": values[name]} for name in names],
    }
    return {"Id": query_id, "MetricStat": {"Metric": metric, "Period": query.period_minutes * _MINUTE_SECONDS, "Stat": query.statistic}}


def _epoch(moment: Any) -> int:
    return int(moment.timestamp())


def _asked(call: Callable[[], T], action: str, where: str, endpoint: str | None = None) -> T:
    """The answer; what AWS says otherwise becomes one sentence."""
    try:
        return call()
    except (NoCredentialsError, PartialCredentialsError) as error:
        raise CommandError(f"no AWS credentials for {where}: set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY") from error
    except ClientError as error:
        code, message = str(error.response["Error"].get("Code")), str(error.response["Error"].get("Message"))
        if endpoint is not None and "could not find" in message.lower():
            raise CommandError(f"{where} has no endpoint {endpoint!r}: look at its name and region") from error
        if code in _NOT_ALLOWED:
            raise CommandError(f"the caller may not call {action} in {where}: add the right to its policy") from error
        if code in _BAD_CREDENTIALS:
            raise CommandError(f"{where} refuses the credentials ({code}): renew them") from error
        raise CommandError(f"{action} failed in {where}: {code}: {message}") from error
    except (ConnectionError, HTTPClientError) as error:
        raise CommandError(f"{where} does not answer: {error}") from error
    except BotoCoreError as error:
        raise CommandError(f"{action} failed in {where}: {error}") from error
