"""How long SageMaker's changes take in the local cloud."""

from __future__ import annotations

from dataclasses import dataclass, fields

__all__ = ["ControlPlaneSettings"]


@dataclass(frozen=True, slots=True)
class ControlPlaneSettings:
    """Least durations of statuses, in seconds of the scaled clock; what the servers take comes on top only if it is longer.

    Attributes:
        creating_seconds: an endpoint is Creating.
        updating_seconds: an endpoint is Updating, without the waits of its deployment policy.
        rolling_back_seconds: an endpoint is RollingBack.
        deleting_seconds: an endpoint is Deleting.
        component_seconds: an inference component is Creating, Updating or Deleting.
        instance_seconds: managed instance scaling brings an instance.
        alarm_poll_seconds: between two looks at the alarms of an automatic rollback; above 0.
    """

    creating_seconds: float = 0.1
    updating_seconds: float = 0.1
    rolling_back_seconds: float = 0.1
    deleting_seconds: float = 0.1
    component_seconds: float = 0.1
    instance_seconds: float = 0.1
    alarm_poll_seconds: float = 1.0

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if value < 0 or (value == 0 and one.name == "alarm_poll_seconds"):
                raise ValueError(f"{one.name} is {value}: use a number of seconds that is not negative; alarms need one above 0")
