"""What SageMaker tells EventBridge of an endpoint: the details of its two kinds of events.

Statuses of endpoints are in UPPER_SNAKE there, unlike in the API (SageMaker AI guide: Amazon EventBridge events and rules). Times are in
epoch milliseconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from mme_local.events import DEPLOYMENT_CHANGE, STATE_CHANGE
from mme_local.sagemaker.resources import Endpoint, Variant

__all__ = ["Publish", "deployment_change", "state_change", "upper_snake"]

Publish = Callable[[str, Mapping[str, Any], Sequence[str]], None]
"""`mme_local.events.Events.publish`: detail type, detail, resources."""


def upper_snake(status: str) -> str:
    """The status of the API as events have it: ``InService`` is ``IN_SERVICE``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", status).upper()


def state_change(publish: Publish, endpoint: Endpoint) -> None:
    """Tell that EndpointStatus is what it is now."""
    variants = [{"DesiredWeight": item.desired_weight, "DesiredInstanceCount": item.desired_count} for item in endpoint.variants]
    publish(STATE_CHANGE, {**_head(endpoint), "ProductionVariants": variants}, [endpoint.arn])


def deployment_change(publish: Publish, endpoint: Endpoint) -> None:
    """Tell what happens to the fleets: the variants with their counts and statuses, and those of a deployment under way."""
    detail = {**_head(endpoint), "ProductionVariants": [_variant(item) for item in endpoint.variants]}
    if endpoint.pending is not None:
        detail["PendingDeploymentSummary"] = {
            "EndpointConfigName": endpoint.pending.config_name,
            "StartTime": _milliseconds(endpoint.pending.started),
            "ProductionVariants": [_variant(item) for item in endpoint.pending.variants],
        }
    publish(DEPLOYMENT_CHANGE, detail, [endpoint.arn])


def _head(endpoint: Endpoint) -> dict[str, Any]:
    return {
        "EndpointName": endpoint.name,
        "EndpointArn": endpoint.arn,
        "EndpointConfigName": endpoint.config_name,
        "EndpointStatus": upper_snake(endpoint.status),
        "CreationTime": _milliseconds(endpoint.created),
        "LastModifiedTime": _milliseconds(endpoint.modified),
        "Tags": dict(endpoint.tags),
    }


def _variant(variant: Variant) -> dict[str, Any]:
    described: dict[str, Any] = {
        "VariantName": variant.name,
        "CurrentWeight": variant.current_weight,
        "DesiredWeight": variant.desired_weight,
        "CurrentInstanceCount": variant.current_count,
        "DesiredInstanceCount": variant.desired_count,
    }
    if variant.doing is not None:
        status = {"Status": variant.doing.status, "StartTime": _milliseconds(variant.doing.started)}
        described["VariantStatus"] = [{**status, **({"StatusMessage": variant.doing.message} if variant.doing.message else {})}]
    return described


def _milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
