"""Application Auto Scaling that acts: alarms invoke policies, schedules set bounds, capacities change, activities tell it.

Everything happens on the gateway's event loop, in scaled time. Rules: Application Auto Scaling User Guide, "How target tracking
scaling works", "How step scaling works", "How scheduled scaling works", "Suspend and resume scaling".
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, Protocol

from mme_local.autoscaling.activities import Activities, Activity
from mme_local.autoscaling.arithmetic import aggregated, stepped, tracked_in, tracked_out
from mme_local.autoscaling.capacity import BusyError, Capacity, RefusedError
from mme_local.autoscaling.models import COMPONENT_COPIES, AutoScaling, Key, ScalableTarget, ScalingPolicy, ScheduledAction
from mme_local.autoscaling.tracking import HIGH
from mme_local.clock import CloudClock
from mme_local.cloudwatch.alarms import Alarm, Transition
from mme_local.wire import AwsError

__all__ = ["SCALED_TO_MAX", "AlarmStates", "Publish", "Scaler"]

logger = logging.getLogger(__name__)

SCALED_TO_MAX = "Application Auto Scaling Scaling Activity State Change"
"""Detail type of the only event that Application Auto Scaling sends."""
_SOURCE = "aws.application-autoscaling"
_COOLDOWN_SECONDS = 300
"""Default of every cooldown of SageMaker's targets (API reference: TargetTrackingScalingPolicyConfiguration)."""
_BUSY_SECONDS = 5.0
"""Scaled seconds between two attempts at a resource that changes at the moment."""
_PATIENCE_SECONDS = 3600.0
"""Scaled seconds after which a change that found no moment is given up."""

Direction = Literal["out", "in"]


class Publish(Protocol):
    """`mme_local.events.Events.publish`."""

    def __call__(self, detail_type: str, detail: Mapping[str, Any], resources: Sequence[str], *, source: str) -> None:
        """Send an event."""


class AlarmStates(Protocol):
    """`mme_local.cloudwatch.alarms.Alarms`, as far as it is asked about states."""

    by_name: dict[str, Alarm]


@dataclass(frozen=True, slots=True)
class _Call:
    """An alarm that invoked a policy."""

    policy: ScalingPolicy
    alarm: str
    state: str
    values: Sequence[float]
    threshold: float

    @property
    def cause(self) -> str:
        """In the words of a scaling activity."""
        return f"monitor alarm {self.alarm} in state {self.state} triggered policy {self.policy.name}"

    def wanted(self, current: int) -> int | None:
        """The capacity that the policy wants for this alarm; ``None`` when it says nothing."""
        configuration = self.policy.configuration
        if not self.policy.tracks:
            breach = aggregated(self.values, configuration.get("MetricAggregationType", "Average")) - self.threshold if self.values else 0.0
            return stepped(configuration, current, breach)
        if not self.values:
            return None
        if self.alarm == self.policy.alarms.get(HIGH):
            return tracked_out(current, self.values[-1], configuration["TargetValue"])
        # Scaling in looks at the busiest of the periods that the alarm evaluated.
        return tracked_in(current, max(self.values), configuration["TargetValue"])

    def cooldown(self, direction: Direction) -> float:
        """Seconds of the policy's cooldown after scaling in a direction."""
        member = "Cooldown" if not self.policy.tracks else "ScaleOutCooldown" if direction == "out" else "ScaleInCooldown"
        return float(self.policy.configuration.get(member, _COOLDOWN_SECONDS))


@dataclass(slots=True)
class _Change:
    """A change of a target's capacity that is to be done.

    Attributes:
        activity: tells it.
        base: what a policy added to; less than ``old`` when earlier steps of a cooldown are part of this one.
        old: the capacity before.
        new: the capacity wanted.
        cooldown: seconds of the cooldown that follows; ``None`` for changes that no policy asked for.
    """

    activity: Activity
    base: int
    old: int
    new: int
    cooldown: float | None


@dataclass(slots=True)
class _State:
    """What is going on with a target.

    Attributes:
        calls: invocations of the same moment, to be decided together.
        waiting: the change that SageMaker has not taken yet.
        running: the change that SageMaker is making.
        out_base: capacity before the scale-out whose cooldown runs.
        out_until: end of that cooldown.
        in_until: end of the cooldown of the last scale-in.
        task: does the changes.
    """

    calls: list[_Call] = field(default_factory=list)
    waiting: _Change | None = None
    running: _Change | None = None
    out_base: int = 0
    out_until: float = float("-inf")
    in_until: float = float("-inf")
    task: asyncio.Task[None] | None = None

    @property
    def under_way(self) -> _Change | None:
        """The newest change that is not done."""
        return self.waiting or self.running


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
        self._autoscaling, self._capacity, self._alarms, self._clock, self._publish = autoscaling, capacity, alarms, clock, publish
        self.activities = Activities(clock.time)
        self._states: dict[Key, _State] = {}
        self._runs: dict[tuple[str, Key], tuple[ScheduledAction, float]] = {}
        self._rescheduled = asyncio.Event()
        self._scheduler: asyncio.Task[None] | None = None
        autoscaling.listen(targets=self._enforce_bounds, schedules=self._reschedule)

    def start(self) -> None:
        """Run scheduled actions from now on, in the background."""
        self._scheduler = asyncio.get_running_loop().create_task(self._run_schedules(), name="scheduled actions")

    async def stop(self) -> None:
        """Do nothing any more."""
        await self.clear()
        if self._scheduler is not None:
            await _cancel(self._scheduler)

    async def clear(self) -> None:
        """Forget all targets' states and activities."""
        tasks = [state.task for state in self._states.values() if state.task is not None]
        self._states.clear()
        self._runs.clear()
        for task in tasks:
            await _cancel(task)
        self.activities.clear()

    # Alarms.

    def on_alarm(self, action_arn: str, alarm: Alarm, transition: Transition) -> None:
        """An alarm invokes a policy by its ARN; raises `LookupError` when there is no such policy."""
        policy = next((policy for policy in self._autoscaling.policies.values() if policy.arn == action_arn), None)
        if policy is None:
            raise LookupError(f"there is no scaling policy {action_arn}")
        values = [float(value) for value in transition.data.get("recentDatapoints", ()) if value is not None]
        call = _Call(policy, alarm.name, transition.new, values, float(transition.data.get("threshold") or 0.0))
        calls = self._state(policy.key).calls
        calls.append(call)
        if len(calls) == 1:
            # Alarms of one look of CloudWatch are decided together.
            asyncio.get_running_loop().call_soon(self._decide, policy.key)

    def _decide(self, key: Key) -> None:
        state = self._state(key)
        calls, state.calls = state.calls, []
        target, desired = self._autoscaling.targets.get(key), self._capacity.desired(key)
        if target is None or desired is None or not calls:
            return
        if state.under_way is not None:
            desired = state.under_way.new
        base = self._base(state, desired)
        outs: list[tuple[int, _Call]] = []
        ins: list[tuple[int, _Call]] = []
        for call in calls:
            high = call.policy.tracks and call.alarm == call.policy.alarms.get(HIGH)
            now_wanted = call.wanted(desired)
            if now_wanted is None:
                continue
            if high or now_wanted > desired:
                wanted = call.wanted(base)
                outs.append((desired if wanted is None else wanted, call))
            else:
                ins.append((now_wanted, call))
        if outs:
            self._scale_out(target, state, desired, base, outs)
        else:
            self._scale_in(target, state, desired, self._agreed(key, ins))

    def _base(self, state: _State, desired: int) -> int:
        """What a scale-out adds to: while a scale-out or its cooldown lasts, the capacity from before, so that it is part of the next."""
        if state.under_way is not None:
            return min(state.under_way.base, desired)
        return min(state.out_base, desired) if self._clock.time() < state.out_until else desired

    def _scale_out(self, target: ScalableTarget, state: _State, desired: int, base: int, wanted: Sequence[tuple[int, _Call]]) -> None:
        if target.suspended.get("DynamicScalingOutSuspended"):
            return
        new, call = max(wanted, key=lambda pair: pair[0])
        if new > desired and desired >= target.max_capacity:
            self.activities.note(target.key, call.cause, {"Code": "AlreadyAtMaxCapacity", "MaxCapacity": target.max_capacity})
            return
        new = min(new, target.max_capacity)
        if new > desired:
            # A scale-out ends the cooldown of a scale-in.
            state.in_until = float("-inf")
            self._begin(target, new, call.cause, call.cooldown("out"), base)
        elif state.under_way is None and self._clock.time() >= state.out_until:
            self.activities.note(target.key, call.cause, {"Code": "AlreadyAtDesiredCapacity", "CurrentCapacity": desired})

    def _agreed(self, key: Key, ins: list[tuple[int, _Call]]) -> list[tuple[int, _Call]]:
        """Without the target tracking policies' wishes unless all of them that may scale in are ready to."""
        ready = {call.policy.name for _, call in ins if call.policy.tracks}
        for policy in self._autoscaling.policies.values():
            if policy.key != key or not policy.tracks:
                continue
            if (policy.scales_in and policy.name not in ready) or self._state_of(policy.alarms.get(HIGH)) == "ALARM":
                return [(wanted, call) for wanted, call in ins if not call.policy.tracks]
        return ins

    def _state_of(self, alarm: str | None) -> str | None:
        found = self._alarms.by_name.get(alarm or "")
        return None if found is None else found.state

    def _scale_in(self, target: ScalableTarget, state: _State, desired: int, wanted: Sequence[tuple[int, _Call]]) -> None:
        if not wanted or target.suspended.get("DynamicScalingInSuspended") or state.under_way is not None:
            return
        new, call = max(wanted, key=lambda pair: pair[0])
        if desired <= target.min_capacity:
            self.activities.note(target.key, call.cause, {"Code": "AlreadyAtMinCapacity", "MinCapacity": target.min_capacity})
        elif new >= desired:
            code = "AutoScalingAnticipatedFlapping" if call.policy.tracks else "AlreadyAtDesiredCapacity"
            self.activities.note(target.key, call.cause, {"Code": code, "CurrentCapacity": desired})
        elif self._clock.time() >= state.in_until:
            self._begin(target, max(new, target.min_capacity), call.cause, call.cooldown("in"))

    # Bounds and schedules.

    def _enforce_bounds(self, key: Key) -> None:
        """Bring a target's capacity between its bounds, as when they are set."""
        target, desired = self._autoscaling.targets.get(key), self._capacity.desired(key)
        if target is None or desired is None:
            return
        state = self._state(key)
        if state.under_way is not None:
            desired = state.under_way.new
        if desired < target.min_capacity:
            self._begin(target, target.min_capacity, f"minimum capacity was set to {target.min_capacity}")
        elif desired > target.max_capacity:
            self._begin(target, target.max_capacity, f"maximum capacity was set to {target.max_capacity}")

    def _reschedule(self, key: Key) -> None:
        for number in [number for number in self._runs if number[1] == key]:
            if self._autoscaling.scheduled_actions.get(number) is not self._runs[number][0]:
                del self._runs[number]
        for number, action in self._autoscaling.scheduled_actions.items():
            if number[1] == key and number not in self._runs:
                self._plan_run(number, action, self._clock.time())
        self._rescheduled.set()

    def _plan_run(self, number: tuple[str, Key], action: ScheduledAction, after: float) -> None:
        starts, ends = action.request.get("StartTime"), action.request.get("EndTime", float("inf"))
        since = action.created.timestamp() if starts is None else starts
        # The start itself may be a moment of the schedule; a rate begins with it.
        if starts is not None and after < starts:
            moment = starts if action.schedule.text.startswith("rate") else action.schedule.next_after(starts - 0.001, since=since)
        else:
            moment = action.schedule.next_after(after, since=since)
        self._runs[number] = action, float("inf") if moment is None or moment > ends else moment

    async def _run_schedules(self) -> None:
        while True:
            self._rescheduled.clear()
            soonest = min((moment for _, moment in self._runs.values()), default=float("inf"))
            if soonest > self._clock.time():
                await self._until(soonest)
            now = self._clock.time()
            for number, (action, moment) in list(self._runs.items()):
                if moment <= now:
                    self._plan_run(number, action, now)
                    try:
                        self._run_action(action)
                    except Exception:
                        logger.exception("scheduled action %s", action.name)

    async def _until(self, moment: float) -> None:
        """Return at a moment of the clock, or earlier when schedules change."""
        waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(self._rescheduled.wait())]
        if moment < float("inf"):
            waits.append(asyncio.ensure_future(self._clock.sleep_until(moment)))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

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

    # Changes.

    def _begin(self, target: ScalableTarget, new: int, cause: str, cooldown: float | None = None, base: int | None = None) -> None:
        state = self._state(target.key)
        desired = self._capacity.desired(target.key) or 0
        if state.waiting is not None:
            self.activities.change(
                state.waiting.activity, "Overridden", f"{self._what(state.waiting)} was overridden by a newer scaling event."
            )
        activity = self.activities.begin(target.key, f"Setting {_noun(target.key)} to {new}.", cause)
        old = state.running.old if state.running is not None else desired
        state.waiting = _Change(activity, old if base is None else base, old, new, cooldown)
        if state.task is None or state.task.done():
            state.task = asyncio.get_running_loop().create_task(self._work(target.key, state), name=f"scale {target.key[1]}")

    async def _work(self, key: Key, state: _State) -> None:
        """Do the changes of a target, one after the other."""
        while state.waiting is not None:
            try:
                await self._take(key, state)
            except Exception as error:
                logger.exception("scaling %s", key[1])
                if (change := state.under_way) is not None:
                    self.activities.change(change.activity, "Failed", f"{self._failed(change)}{error}")
                state.waiting = state.running = None

    async def _take(self, key: Key, state: _State) -> None:
        patience = self._clock.time() + _PATIENCE_SECONDS
        while (change := state.waiting) is not None:
            try:
                self._capacity.set(key, change.new)
                break
            except BusyError:
                if self._clock.time() >= patience:
                    state.waiting = None
                    self.activities.change(change.activity, "Unfulfilled", f"{self._failed(change)}The resource did not become scalable.")
                    return
                with suppress(TimeoutError):
                    async with asyncio.timeout(_BUSY_SECONDS / self._clock.scale):
                        await self._capacity.settled(key)
                await asyncio.sleep(0)
            except RefusedError as error:
                state.waiting = None
                self.activities.change(change.activity, "Failed", f"{self._failed(change)}{error}")
                return
        if change is None:
            return
        state.waiting, state.running = None, change
        text = f"Successfully set {self._what(change)}."
        self.activities.change(change.activity, "InProgress", f"{text} Waiting for change to be fulfilled by sagemaker.", ended=False)
        await self._capacity.settled(key)
        reason = self._capacity.shortfall(key, change.new)
        state.running = None
        if reason is not None:
            self.activities.change(change.activity, "Failed", f"{self._failed(change)}{reason}")
            return
        self.activities.change(change.activity, "Successful", f"{text} Change successfully fulfilled by sagemaker.")
        self._cool_down(state, change)
        self._tell_maximum(key, change)

    def _cool_down(self, state: _State, change: _Change) -> None:
        if change.cooldown is None:
            return
        until = self._clock.time() + change.cooldown
        if change.new > change.old:
            state.out_base, state.out_until = change.base, until
        else:
            state.in_until = until

    def _tell_maximum(self, key: Key, change: _Change) -> None:
        target = self._autoscaling.targets.get(key)
        if target is None or change.new <= change.old or change.new != target.max_capacity:
            return
        namespace, resource_id, dimension = key
        detail = {
            "startTime": _iso(change.activity.started),
            "endTime": _iso(change.activity.ended or self._clock.time()),
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

    def _state(self, key: Key) -> _State:
        return self._states.setdefault(key, _State())

    def _what(self, change: _Change) -> str:
        return f"{_noun(change.activity.key)} to {change.new}"

    def _failed(self, change: _Change) -> str:
        return f"Failed to set {self._what(change)}. Reason: "


def _noun(key: Key) -> str:
    return "desired copy count" if key[2] == COMPONENT_COPIES else "desired instance count"


def _iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
