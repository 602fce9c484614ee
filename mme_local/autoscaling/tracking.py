"""The two alarms of a target tracking policy, as Application Auto Scaling makes them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["HIGH", "LOW", "alarm_documents", "alarm_name"]

HIGH, LOW = "AlarmHigh", "AlarmLow"
_LOW_SHARE = 0.9
"""AlarmLow's threshold as a share of the target: 63 for a target of 70."""
_INVOCATIONS = "AWS/SageMaker"


@dataclass(frozen=True, slots=True)
class _Predefined:
    metric: str
    statistic: str
    period: int


_PREDEFINED = {
    "SageMakerVariantInvocationsPerInstance": _Predefined("InvocationsPerInstance", "Sum", 60),
    "SageMakerVariantConcurrentRequestsPerModelHighResolution": _Predefined("ConcurrentRequestsPerModel", "Maximum", 10),
    "SageMakerInferenceComponentInvocationsPerCopy": _Predefined("InvocationsPerCopy", "Sum", 60),
    "SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution": _Predefined("ConcurrentRequestsPerCopy", "Maximum", 10),
}
_HIGH_SECONDS = {60: 180, 10: 30}
_LOW_SECONDS = 900


def alarm_name(resource_id: str, which: str) -> str:
    """A new name: ``TargetTracking-endpoint/NAME/variant/VARIANT-AlarmHigh-<uuid>``."""
    return f"TargetTracking-{resource_id}-{which}-{uuid.uuid4()}"


def alarm_documents(configuration: Mapping[str, Any], resource_id: str, policy_arn: str, names: Mapping[str, str]) -> list[dict[str, Any]]:
    """The PutMetricAlarm documents of a policy: three of three minutes above the target, 15 of 15 below nine tenths of it.

    Those of high-resolution metrics look at ten seconds: three of three, and 90 of 90.

    Args:
        configuration: TargetTrackingScalingPolicyConfiguration.
        resource_id: of the scalable target.
        policy_arn: what the alarms invoke.
        names: `HIGH` and `LOW` -> the alarms' names; `LOW` is missing where scale-in is disabled.
    """
    metric, period = _metric(configuration, resource_id)
    target = float(configuration["TargetValue"])
    which = {
        HIGH: ("GreaterThanThreshold", target, _HIGH_SECONDS[period] // period),
        LOW: ("LessThanThreshold", target * _LOW_SHARE, _LOW_SECONDS // period),
    }
    return [
        {
            "AlarmName": name,
            "AlarmDescription": f"DO NOT EDIT OR DELETE. For TargetTrackingScaling policy {policy_arn}.",
            "ActionsEnabled": True,
            "AlarmActions": [policy_arn],
            "ComparisonOperator": which[kind][0],
            "Threshold": which[kind][1],
            "EvaluationPeriods": which[kind][2],
            **metric,
        }
        for kind, name in names.items()
    ]


def _metric(configuration: Mapping[str, Any], resource_id: str) -> tuple[dict[str, Any], int]:
    """What the alarms watch, and their period in seconds."""
    custom = configuration.get("CustomizedMetricSpecification")
    if custom is None:
        predefined = _PREDEFINED[configuration["PredefinedMetricSpecification"]["PredefinedMetricType"]]
        return {
            "Namespace": _INVOCATIONS,
            "MetricName": predefined.metric,
            "Dimensions": _dimensions(resource_id),
            "Statistic": predefined.statistic,
            "Period": predefined.period,
        }, predefined.period
    if "Metrics" in custom:
        return {"Metrics": [_query(query) for query in custom["Metrics"]]}, 60
    return {**custom, "Period": 60}, 60


def _query(query: Mapping[str, Any]) -> dict[str, Any]:
    """A TargetTrackingMetricDataQuery as a MetricDataQuery of an alarm: its metrics get a period."""
    if "MetricStat" not in query:
        return dict(query)
    return {**query, "MetricStat": {"Period": 60, **query["MetricStat"]}}


def _dimensions(resource_id: str) -> list[dict[str, str]]:
    parts = resource_id.split("/")
    named = (
        {"InferenceComponentName": parts[1]} if parts[0] == "inference-component" else {"EndpointName": parts[1], "VariantName": parts[3]}
    )
    return [{"Name": name, "Value": value} for name, value in named.items()]
