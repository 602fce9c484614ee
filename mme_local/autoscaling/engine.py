"""Application Auto Scaling that acts: alarms invoke policies, schedules set bounds, capacities change, activities tell it.

Everything happens on the gateway's event loop, in scaled time. Rules: Application Auto Scaling User Guide, "How target tracking
scaling works", "How step scaling works", "How scheduled scaling works", "Suspend and resume scaling".
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Protocol

from mme_local.autoscaling.activities import Activities
from mme_local.autoscaling.calls import PolicyCall, call_of
from mme_local.autoscaling.capacity import Capacity
from mme_local.autoscaling.changes import Change, Changes
from mme_local.autoscaling.models import AutoScaling, Key, ScalableTarget, ScheduledAction
from mme_local.autoscaling.runs import ScheduledRuns
from mme_local.autoscaling.tracking import HIGH
from mme_local.clock import CloudClock
from mme_local.cloudwatch.alarms import Alarm, Transition
from mme_local.events import Publish
from mme_local.wire import AwsError

__all__ = ["SCALED_TO_MAX", "AlarmStates", "Scaler"]

SCALED_TO_MAX = "Application Auto Scaling Scaling Activity State Change"
"""Detail type of the only event that Application Auto Scaling sends."""
_SOURCE = "aws.application-autoscaling"

Wanted = tuple[int, PolicyCall]
"""A capacity, and who wants it."""


class AlarmStates(Protocol):
    """`mme_local.cloudwatch.alarms.Alarms`, as far as it is asked about states."""

    by_name: dict[str, Alarm]


class Scaler:
    """Acts on the targets, policies and scheduled actions of an `AutoScaling`.

    Args:
        autoscaling: what is registered.
        capacity: changes capacities.
        alarms: the alarms' states.
        clock: the cloud's clock.
        publish: sends events.

    Attributes:
        activities: what was done.
    """

    def __init__(self, autoscaling: AutoScaling, capacity: Capacity, alarms: AlarmStates, clock: CloudClock, publish: Publish) -> None:
        self._autoscaling, self._alarms, self._clock, self._publish = autoscaling, alarms, clock, publish
        self.activities = Activities(clock.time)
        self._changes = Changes(capacity, self.activities, clock, self._tell_maximum)
        self._runs = ScheduledRuns(autoscaling.scheduled_actions, clock, self._run_action)
        self._calls: dict[Key, list[PolicyCall]] = {}
        autoscaling.listen(targets=self._on_target, schedules=self._runs.read)

    def start(self) -> None:
        """Run scheduled actions from now on, in the background."""
        self._runs.start()

    async def stop(self) -> None:
        """Do nothing any more."""
        await self.clear()
        await self._runs.stop()

    async def clear(self) -> None:
        """Forget what is going on and all activities."""
        self._calls.clear()
        self._runs.clear()
        await self._changes.clear()
        self.activities.clear()

    # Alarms.

    def on_alarm(self, action_arn: str, alarm: Alarm, transition: Transition) -> None:
        """An alarm invokes a policy by its ARN; raises `LookupError` when there is no such policy."""
        policy = next((policy for policy in self._autoscaling.policies.values() if policy.arn == action_arn), None)
        if policy is None:
            raise LookupError(f"there is no scaling policy {action_arn}")
        calls = self._calls.setdefault(policy.key, [])
        calls.append(call_of(policy, alarm, transition))
        if len(calls) == 1:
            # Alarms of one look of CloudWatch are decided together.
            asyncio.get_running_loop().call_soon(self._decide, policy.key)

    def _decide(self, key: Key) -> None:
        calls = self._calls.pop(key, [])
        target, desired = self._autoscaling.targets.get(key), self._changes.desired(key)
        if target is None or desired is None:
            return
        base = self._changes.base(key, desired)
        outs: list[Wanted] = []
        ins: list[Wanted] = []
        for call in calls:
            wanted = call.wanted(desired)
            if wanted is None:
                continue
            if call.above_target or wanted > desired:
                outs.append((call.wanted(base) or desired, call))
            else:
                ins.append((wanted, call))
        if outs:
            self._scale_out(target, desired, base, outs)
        else:
            self._scale_in(target, desired, self._agreed(key, ins))

    def _scale_out(self, target: ScalableTarget, desired: int, base: int, wanted: Sequence[Wanted]) -> None:
        if target.suspended.get("DynamicScalingOutSuspended"):
            return
        new, call = max(wanted, key=lambda pair: pair[0])
        cooldowns = self._changes.cooldowns(target.key)
        if new > desired and desired >= target.max_capacity:
            self.activities.note(target.key, call.cause, {"Code": "AlreadyAtMaxCapacity", "MaxCapacity": target.max_capacity})
        elif new > desired:
            cooldowns.end_scale_in()
            seconds = call.cooldown_seconds("out")
            self._changes.begin(target.key, min(new, target.max_capacity), call.cause, cooldown_seconds=seconds, base=base)
        elif self._changes.under_way(target.key) is None and self._clock.time() >= cooldowns.out_until:
            self.activities.note(target.key, call.cause, {"Code": "AlreadyAtDesiredCapacity", "CurrentCapacity": desired})

    def _agreed(self, key: Key, ins: list[Wanted]) -> list[Wanted]:
        """Without the target tracking policies' wishes unless all of them that may scale in are ready to."""
        ready = {call.policy.name for _, call in ins if call.policy.tracks}
        for policy in self._autoscaling.policies.values():
            if policy.key != key or not policy.tracks:
                continue
            high = self._alarms.by_name.get(policy.alarms.get(HIGH, ""))
            if (policy.scales_in and policy.name not in ready) or (high is not None and high.state == "ALARM"):
                return [(wanted, call) for wanted, call in ins if not call.policy.tracks]
        return ins

    def _scale_in(self, target: ScalableTarget, desired: int, wanted: Sequence[Wanted]) -> None:
        under_way = self._changes.under_way(target.key) is not None
        if not wanted or under_way or target.suspended.get("DynamicScalingInSuspended"):
            return
        new, call = max(wanted, key=lambda pair: pair[0])
        if desired <= target.min_capacity:
            self.activities.note(target.key, call.cause, {"Code": "AlreadyAtMinCapacity", "MinCapacity": target.min_capacity})
        elif new >= desired:
            code = "AutoScalingAnticipatedFlapping" if call.policy.tracks else "AlreadyAtDesiredCapacity"
            self.activities.note(target.key, call.cause, {"Code": code, "CurrentCapacity": desired})
        elif self._clock.time() >= self._changes.cooldowns(target.key).in_until:
            seconds = call.cooldown_seconds("in")
            self._changes.begin(target.key, max(new, target.min_capacity), call.cause, cooldown_seconds=seconds)

    # Bounds and schedules.

    def _on_target(self, key: Key) -> None:
        if key in self._autoscaling.targets:
            self._enforce_bounds(key)
        else:
            self._calls.pop(key, None)
            self._changes.forget(key)

    def _enforce_bounds(self, key: Key) -> None:
        """Bring a target's capacity between its bounds, as when they are set."""
        target, desired = self._autoscaling.targets.get(key), self._changes.desired(key)
        if target is None or desired is None:
            return
        if desired < target.min_capacity:
            self._changes.begin(key, target.min_capacity, f"minimum capacity was set to {target.min_capacity}")
        elif desired > target.max_capacity:
            self._changes.begin(key, target.max_capacity, f"maximum capacity was set to {target.max_capacity}")

    def _run_action(self, action: ScheduledAction) -> None:
        target = self._autoscaling.targets.get(action.key)
        if target is None or target.suspended.get("ScheduledScalingSuspended"):
            return
        given = action.request["ScalableTargetAction"]
        bounds = {word: given[member] for word, member in (("min", "MinCapacity"), ("max", "MaxCapacity")) if member in given}
        what = " and ".join(f"{word} capacity to {value}" for word, value in bounds.items())
        activity = self.activities.begin(action.key, f"Setting {what}", f"scheduled action name {action.name} was triggered")
        try:
            self._autoscaling.bound(action.key, bounds.get("min"), bounds.get("max"))
        except AwsError as error:
            self.activities.change(activity, "Failed", f"Failed to set {what}. Reason: {error.message}")
            return
        self.activities.change(activity, "Successful", f"Successfully set {what}", ended=False)
        self._enforce_bounds(action.key)

    # Events.

    def _tell_maximum(self, change: Change) -> None:
        """A scale-out reached the maximum (User Guide: Monitor Application Auto Scaling events with EventBridge)."""
        target = self._autoscaling.targets.get(change.activity.key)
        if target is None or change.new <= change.old or change.new != target.max_capacity:
            return
        namespace, resource_id, dimension = target.key
        detail = {
            "startTime": _iso(change.activity.started),
            "endTime": _iso(self._clock.time()),
            "newDesiredCapacity": change.new,
            "oldDesiredCapacity": change.old,
            "minCapacity": target.min_capacity,
            "maxCapacity": target.max_capacity,
            "resourceId": resource_id,
            "scalableDimension": dimension,
            "serviceNamespace": namespace,
            "statusCode": "Successful",
            "scaledToMax": True,
            "direction": "scale-out",
        }
        self._publish(SCALED_TO_MAX, detail, [], source=_SOURCE)


def _iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
