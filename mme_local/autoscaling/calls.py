"""An alarm that invokes a scaling policy, and the capacity that the policy then wants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from mme_local.autoscaling.arithmetic import aggregated, stepped, tracked_in, tracked_out
from mme_local.autoscaling.models import ScalingPolicy
from mme_local.autoscaling.tracking import HIGH
from mme_local.cloudwatch.alarms import Alarm, Transition

__all__ = ["Direction", "PolicyCall", "call_of"]

_COOLDOWN_SECONDS = 300
"""Default of every cooldown of SageMaker's targets (API reference: TargetTrackingScalingPolicyConfiguration)."""

Direction = Literal["out", "in"]


@dataclass(frozen=True, slots=True)
class PolicyCall:
    """An alarm that invoked a policy.

    Attributes:
        policy: the policy.
        alarm: name of the alarm.
        state: its state.
        values: the datapoints that decided, oldest first.
        threshold: the alarm's.
    """

    policy: ScalingPolicy
    alarm: str
    state: str
    values: Sequence[float]
    threshold: float

    @property
    def cause(self) -> str:
        """In the words of a scaling activity."""
        return f"monitor alarm {self.alarm} in state {self.state} triggered policy {self.policy.name}"

    @property
    def above_target(self) -> bool:
        """Whether it is a target tracking policy's alarm for scaling out."""
        return self.policy.tracks and self.alarm == self.policy.alarms.get(HIGH)

    def wanted(self, current: int) -> int | None:
        """The capacity that the policy wants on top of (or below) a capacity; ``None`` when it says nothing."""
        configuration = self.policy.configuration
        if not self.policy.tracks:
            breach = aggregated(self.values, configuration.get("MetricAggregationType", "Average")) - self.threshold if self.values else 0.0
            return stepped(configuration, current, breach)
        if not self.values:
            return None
        if self.above_target:
            return tracked_out(current, self.values[-1], configuration["TargetValue"])
        # Scaling in looks at the busiest of the periods that the alarm evaluated.
        return tracked_in(current, max(self.values), configuration["TargetValue"])

    def cooldown_seconds(self, direction: Direction) -> float:
        """The policy's cooldown after scaling in a direction."""
        member = "Cooldown" if not self.policy.tracks else "ScaleOutCooldown" if direction == "out" else "ScaleInCooldown"
        return float(self.policy.configuration.get(member, _COOLDOWN_SECONDS))


def call_of(policy: ScalingPolicy, alarm: Alarm, transition: Transition) -> PolicyCall:
    """The call that an alarm's action is."""
    values = [float(value) for value in transition.data.get("recentDatapoints", ()) if value is not None]
    return PolicyCall(policy, alarm.name, transition.new, values, float(transition.data.get("threshold") or 0.0))
