# ruff: noqa: ARG002, SLF001 - the emulator's engine calls provisioners with these arguments; these reach into its services
"""CloudWatch resource types that the emulator lacks. They run on the event loop, as the emulator's own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mme_local.wire import service_model

__all__ = ["ALARM_OPERATIONS", "CompositeAlarmProvisioner"]

ALARM_OPERATIONS = ("PutCompositeAlarm", "PutMetricAlarm")

Properties = Mapping[str, Any]
Provisioned = tuple[str, dict[str, str]]

_NAME_CHARACTERS = 255


class InvalidAlarmError(ValueError):
    """CloudWatch refuses the alarm; the text is its answer."""


class CompositeAlarmProvisioner:
    """``AWS::CloudWatch::CompositeAlarm``, through the emulator's PutCompositeAlarm."""

    def create(self, logical_id: str, properties: Properties, stack: str) -> Provisioned:
        """Put the alarm; raises `InvalidAlarmError`, also when an alarm of its rule does not exist."""
        from mme_local.patches import physical_name

        return self._put(properties.get("AlarmName") or physical_name(stack, logical_id, _NAME_CHARACTERS), properties)

    def update(self, physical_id: str, old: Properties, new: Properties, stack: str) -> Provisioned:
        """Put the alarm again; raises `InvalidAlarmError`."""
        return self._put(physical_id, new)

    def delete(self, physical_id: str, properties: Properties) -> None:
        """Delete the alarm if it is there; raises `InvalidAlarmError` while another composite alarm needs it."""
        from ministack.services import cloudwatch

        _checked(cloudwatch._delete_alarms({}, {"AlarmNames": [physical_id]}, is_cbor=False, is_json=True))

    @staticmethod
    def _put(name: str, properties: Properties) -> Provisioned:
        from ministack.services import cloudwatch

        request = service_model("cloudwatch", ALARM_OPERATIONS).validated(
            "PutCompositeAlarm", {**properties, "AlarmName": name}, from_template=True
        )
        tags = {tag["Key"]: tag["Value"] for tag in request.pop("Tags", [])}
        _checked(cloudwatch._put_composite_alarm({}, request, is_cbor=False, is_json=True))
        alarm = cloudwatch._composite_alarms[name]
        alarm.update({member: value for member, value in request.items() if member.startswith("ActionsSuppressor")})
        cloudwatch._resource_tags[alarm["AlarmArn"]] = tags
        return name, {"Arn": alarm["AlarmArn"]}


def _checked(answer: tuple[int, Mapping[str, str], bytes]) -> None:
    status, _headers, body = answer
    if status >= 400:
        document = json.loads(body)
        raise InvalidAlarmError(str(document.get("message") or document.get("Message") or document))
