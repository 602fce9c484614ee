"""What alarms do when their state changes: messages to SNS topics, calls of functions, events on EventBridge.

The documents are CloudWatch's (user guide: Notify users on alarm changes; Alarm events and EventBridge; Invoke a Lambda function).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

from mme_local.cloudwatch.alarms import Alarm, Alarms, Transition
from mme_local.cloudwatch.definitions import MetricDefinition
from mme_local.cloudwatch.evaluation import iso
from mme_local.events import Publish

__all__ = ["STATE_CHANGE", "Messenger", "connect"]

STATE_CHANGE = "CloudWatch Alarm State Change"
"""Detail type of the event."""

_REGION_NAMES = {"us-east-1": "US East (N. Virginia)"}
_SUBJECT_CHARACTERS = 100

Document = dict[str, Any]


class Messenger(Protocol):
    """Delivers what alarms say; both raise when the receiver is not there or does not let CloudWatch in."""

    def publish(self, topic_arn: str, subject: str, message: str, source_arn: str) -> None:
        """Publish to an SNS topic."""

    def invoke(self, function_arn: str, payload: Mapping[str, Any], source_arn: str) -> None:
        """Invoke a function and do not wait for it."""


def connect(alarms: Alarms, messenger: Messenger, publish: Publish, *, region: str, account: str) -> None:
    """Let alarms act on SNS topics and functions, and tell EventBridge of every change."""

    def notify(action: str, alarm: Alarm, transition: Transition) -> None:
        name = _REGION_NAMES.get(region, region)
        subject = f'{transition.new}: "{alarm.name}" in {name}'[:_SUBJECT_CHARACTERS]
        messenger.publish(action, subject, json.dumps(_notification(alarm, transition, name, account)), alarm.arn)

    def call(action: str, alarm: Alarm, transition: Transition) -> None:
        payload = {
            "source": "aws.cloudwatch",
            "alarmArn": alarm.arn,
            "accountId": account,
            "time": iso(transition.at),
            "region": region,
            "alarmData": _detail(alarm, transition),
        }
        messenger.invoke(action, payload, alarm.arn)

    def tell(alarm: Alarm, transition: Transition) -> None:
        publish(STATE_CHANGE, _detail(alarm, transition), [alarm.arn], source="aws.cloudwatch")

    alarms.on_action("arn:aws:sns:", notify)
    alarms.on_action("arn:aws:lambda:", call)
    alarms.on_change(tell)


def _notification(alarm: Alarm, transition: Transition, region_name: str, account: str) -> Document:
    request = alarm.definition.request
    message: Document = {
        "AlarmName": alarm.name,
        "AlarmDescription": request.get("AlarmDescription"),
        "AWSAccountId": account,
        "AlarmConfigurationUpdatedTimestamp": iso(alarm.configured),
        "NewStateValue": transition.new,
        "NewStateReason": transition.reason,
        "StateChangeTime": iso(transition.at),
        "Region": region_name,
        "AlarmArn": alarm.arn,
        "OldStateValue": transition.old,
        "OKActions": request["OKActions"],
        "AlarmActions": request["AlarmActions"],
        "InsufficientDataActions": request["InsufficientDataActions"],
    }
    if not isinstance(alarm.definition, MetricDefinition):
        return {**message, "AlarmRule": request["AlarmRule"], "TriggeringChildren": _children(transition)}
    return {**message, "Trigger": _trigger(alarm.definition)}


def _children(transition: Transition) -> list[Document]:
    children: list[Document] = list(transition.data.get("triggeringAlarms", []))
    return [
        {"Arn": child["arn"], "State": {"Value": child["state"]["value"], "Timestamp": child["state"]["timestamp"]}} for child in children
    ]


def _trigger(definition: MetricDefinition) -> Document:
    request = definition.request
    limits: Document = {
        "Period": definition.period,
        "EvaluationPeriods": definition.evaluated,
        "DatapointsToAlarm": definition.needed,
        "ComparisonOperator": request["ComparisonOperator"],
        "Threshold": definition.threshold,
        "TreatMissingData": definition.treatment,
        "EvaluateLowSampleCountPercentile": request.get("EvaluateLowSampleCountPercentile", ""),
    }
    if definition.metric is None:
        return {**limits, "Metrics": request["Metrics"]}
    statistic: Document = (
        {"StatisticType": "Statistic", "Statistic": request["Statistic"].upper()}
        if "Statistic" in request
        else {"StatisticType": "ExtendedStatistic", "ExtendedStatistic": request["ExtendedStatistic"]}
    )
    return {
        "MetricName": definition.metric.name,
        "Namespace": definition.metric.namespace,
        **statistic,
        "Unit": definition.unit,
        "Dimensions": [{"value": value, "name": name} for name, value in definition.metric.dimensions],
        **limits,
    }


def _detail(alarm: Alarm, transition: Transition) -> Document:
    return {
        "alarmName": alarm.name,
        "state": _state(transition.new, transition.reason, transition.data, transition.at),
        "previousState": _state(transition.old, transition.old_reason, transition.old_data, transition.old_at),
        "configuration": _configuration(alarm),
    }


def _state(value: str, reason: str, data: Mapping[str, Any], at: float) -> Document:
    return {"value": value, "reason": reason, **({"reasonData": json.dumps(data)} if data else {}), "timestamp": iso(at)}


def _configuration(alarm: Alarm) -> Document:
    request = alarm.definition.request
    described = {"description": request["AlarmDescription"]} if "AlarmDescription" in request else {}
    if not isinstance(alarm.definition, MetricDefinition):
        suppressed = {
            name: request[member]
            for name, member in (
                ("actionsSuppressor", "ActionsSuppressor"),
                ("actionsSuppressorWaitPeriod", "ActionsSuppressorWaitPeriod"),
                ("actionsSuppressorExtensionPeriod", "ActionsSuppressorExtensionPeriod"),
            )
            if member in request
        }
        return {**described, "alarmRule": request["AlarmRule"], **suppressed}
    if alarm.definition.metric is None:
        return {**described, "metrics": [_query(query) for query in request["Metrics"]]}
    stat = {
        "Metric": {member: request[member] for member in ("Namespace", "MetricName", "Dimensions") if member in request},
        "Period": request["Period"],
        "Stat": request.get("Statistic") or request["ExtendedStatistic"],
        **({"Unit": request["Unit"]} if "Unit" in request else {}),
    }
    return {**described, "metrics": [_query({"Id": "m1", "MetricStat": stat, "ReturnData": True})]}


def _query(query: Mapping[str, Any]) -> Document:
    document: Document = {"id": query["Id"], "returnData": query.get("ReturnData", True)}
    if "Expression" in query:
        document["expression"] = query["Expression"]
    if "Label" in query:
        document["label"] = query["Label"]
    if "MetricStat" in query:
        stat = query["MetricStat"]
        metric = stat["Metric"]
        document["metricStat"] = {
            "metric": {
                "namespace": metric["Namespace"],
                "name": metric["MetricName"],
                "dimensions": {dimension["Name"]: dimension["Value"] for dimension in metric.get("Dimensions", [])},
            },
            "period": stat["Period"],
            "stat": stat["Stat"],
            **({"unit": stat["Unit"]} if "Unit" in stat else {}),
        }
    return document
