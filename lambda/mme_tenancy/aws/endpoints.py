"""SageMaker's control plane: the state of endpoints."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from mme_tenancy.fleet_state import FleetState, PendingFleet, Shift

if TYPE_CHECKING:
    from mypy_boto3_sagemaker import SageMakerClient

__all__ = ["SageMakerFleets"]

_TAKES_REQUESTS = frozenset({"ActivatingTraffic", "Baking"})
"""VariantStatus of a new fleet that has been given requests (SageMaker API reference: ProductionVariantStatus)."""


class SageMakerFleets:
    """`mme_tenancy.fleet_watch.Fleets` by DescribeEndpoint.

    Args:
        client: SageMaker's client.
    """

    def __init__(self, client: SageMakerClient) -> None:
        self._client = client

    def state(self, endpoint: str) -> FleetState | None:
        """The endpoint's state; ``None`` if there is no such endpoint."""
        try:
            described: Mapping[str, Any] = self._client.describe_endpoint(EndpointName=endpoint)
        except ClientError as error:
            # The API reference of DescribeEndpoint lists no error for it: only the text of a ValidationException tells a missing one.
            if "could not find" in str(error.response["Error"].get("Message", "")).lower():
                return None
            raise
        variants = described.get("ProductionVariants", ())
        return FleetState(
            endpoint,
            described["EndpointStatus"],
            described["EndpointConfigName"],
            described["CreationTime"].timestamp(),
            described["LastModifiedTime"].timestamp(),
            instances=_counts(variants, "CurrentInstanceCount"),
            desired=_counts(variants, "DesiredInstanceCount"),
            weights={variant["VariantName"]: float(variant.get("DesiredWeight", 1.0)) for variant in variants},
            pending=_pending(described, variants),
            failure=described.get("FailureReason", ""),
        )


def _counts(variants: Iterable[Mapping[str, Any]], member: str) -> dict[str, int]:
    return {variant["VariantName"]: variant.get(member, 0) for variant in variants}


def _pending(described: Mapping[str, Any], old: Iterable[Mapping[str, Any]]) -> PendingFleet | None:
    summary = described.get("PendingDeploymentSummary")
    if summary is None:
        return None
    variants = summary.get("ProductionVariants", ())
    moments = [
        status["StartTime"].timestamp() if "StartTime" in status else described["LastModifiedTime"].timestamp()
        for status in _statuses(variants)
        if status["Status"] in _TAKES_REQUESTS
    ]
    desired = _counts(variants, "DesiredInstanceCount")
    shift = _shift(described.get("LastDeploymentConfig", {}), sum(desired.values()))
    return PendingFleet(
        summary["EndpointConfigName"],
        _counts(variants, "CurrentInstanceCount"),
        (summary.get("StartTime") or described["LastModifiedTime"]).timestamp(),
        desired=desired,
        shifted_at=min(moments, default=None),
        # In batches the old fleet is deleted bit by bit while it still takes requests.
        all_shifted=not shift.rolling and any(status["Status"] == "Deleting" for status in _statuses(old)),
        shift=shift,
    )


def _statuses(variants: Iterable[Mapping[str, Any]]) -> Iterable[Mapping[str, Any]]:
    return [status for variant in variants for status in variant.get("VariantStatus", ())]


def _shift(config: Mapping[str, Any], instances: int) -> Shift:
    """How a deployment gives the requests to the new fleet (SageMaker AI guide: "Deployment guardrails")."""
    if "RollingUpdatePolicy" in config:
        return Shift(rolling=True)
    routing = config.get("BlueGreenUpdatePolicy", {}).get("TrafficRoutingConfiguration", {})
    wait = routing.get("WaitIntervalInSeconds", 0)
    match routing.get("Type"):
        case "CANARY":
            return Shift(float(wait))
        case "LINEAR":
            size = routing.get("LinearStepSize", {"Type": "CAPACITY_PERCENT", "Value": 100})
            whole = 100 if size["Type"] == "CAPACITY_PERCENT" else max(1, instances)
            return Shift(float(wait * max(0, math.ceil(whole / size["Value"]) - 1)))
    return Shift()
