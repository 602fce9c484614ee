# ruff: noqa: ARG002 - the emulator's engine calls provisioners with these arguments
"""CloudWatch's alarms as resource types. They run on the event loop, as the emulator's own types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mme_local.cloudwatch.alarms import Alarm, Alarms
from mme_local.cloudwatch.definitions import ALARM_OPERATIONS
from mme_local.wire import ValidationError, service_model

__all__ = ["CompositeAlarmProvisioner", "MetricAlarmProvisioner"]

Properties = Mapping[str, Any]
Provisioned = tuple[str, dict[str, str]]

_NAME_CHARACTERS = 255


class _AlarmProvisioner:
    """Both kinds: their properties are the members of their Put operation."""

    def __init__(self, alarms: Alarms, operation: str) -> None:
        self._alarms, self._operation = alarms, operation

    def create(self, logical_id: str, properties: Properties, stack: str) -> Provisioned:
        """Put the alarm; raises `AwsError`."""
        from mme_local.patches import physical_name

        return self._put(properties.get("AlarmName") or physical_name(stack, logical_id, _NAME_CHARACTERS), properties)

    def update(self, physical_id: str, old: Properties, new: Properties, stack: str) -> Provisioned:
        """Put the alarm again; its state stays. Raises `AwsError`."""
        return self._put(physical_id, new)

    def delete(self, physical_id: str, properties: Properties) -> None:
        """Delete the alarm if it is there; raises `AwsError` while a composite alarm needs it."""
        self._alarms.delete([physical_id])

    def _put(self, name: str, properties: Properties) -> Provisioned:
        if unknown := sorted(properties.keys() - service_model("cloudwatch", ALARM_OPERATIONS).members(self._operation)):
            raise ValidationError(f"Encountered unsupported property {unknown[0]}.")
        put: Callable[..., Alarm] = self._alarms.put if self._operation == "PutMetricAlarm" else self._alarms.put_composite
        alarm = put({**properties, "AlarmName": name}, from_template=True)
        alarm.tags = {str(tag["Key"]): str(tag["Value"]) for tag in properties.get("Tags") or []}
        return name, {"Arn": alarm.arn}


class MetricAlarmProvisioner(_AlarmProvisioner):
    """``AWS::CloudWatch::Alarm``.

    Args:
        alarms: the alarms.
    """

    def __init__(self, alarms: Alarms) -> None:
        super().__init__(alarms, "PutMetricAlarm")


class CompositeAlarmProvisioner(_AlarmProvisioner):
    """``AWS::CloudWatch::CompositeAlarm``.

    Args:
        alarms: the alarms.
    """

    def __init__(self, alarms: Alarms) -> None:
        super().__init__(alarms, "PutCompositeAlarm")
