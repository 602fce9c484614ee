"""The alarms of a local cloud and the clock that evaluates them. All of it happens on the gateway's event loop.

Every minute of the cloud's clock (every 10 seconds while an alarm has a shorter period) each metric alarm looks at its metric. Composite
alarms follow at once. Actions go to whoever registered for their ARNs with `Alarms.on_action`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from mme_local.clock import CloudClock
from mme_local.cloudwatch.definitions import CompositeDefinition, MetricDefinition, composite_definition, metric_definition
from mme_local.cloudwatch.evaluation import Evaluation, evaluate, iso
from mme_local.cloudwatch.judgement import State
from mme_local.cloudwatch.store import MetricStore
from mme_local.wire import AwsError, ValidationError

__all__ = ["Alarm", "Alarms", "HistoryItem", "Transition"]

logger = logging.getLogger(__name__)

_DELAY_SECONDS = 5.0
"""Alarms look this long after a period has ended, so that the period's last data points are there."""
_REAL_DELAY_SECONDS = 0.1
"""And at least so long in real time, however fast the clock runs: publishers do not become faster with it."""
_ACTIONS: Mapping[str, str] = {"ALARM": "AlarmActions", "OK": "OKActions", "INSUFFICIENT_DATA": "InsufficientDataActions"}
_HISTORY_ITEMS = 10_000

Suppressed = Literal["Alarm", "WaitPeriod", "ExtensionPeriod"]


@dataclass(frozen=True, slots=True)
class Transition:
    """A change of an alarm's state.

    Attributes:
        old: the state before.
        new: the state after; the same as ``old`` when an action is repeated while the state lasts.
        old_reason: why it was in the old state.
        reason: why it changed, in CloudWatch's words.
        data: the document of StateReasonData; ``recentDatapoints`` holds the values that decided, oldest first.
        old_data: the same of the old state.
        old_at: when it came to the old state, in scaled epoch seconds.
        at: when, in scaled epoch seconds.
    """

    old: State
    new: State
    old_reason: str
    reason: str
    data: Mapping[str, Any]
    old_data: Mapping[str, Any]
    old_at: float
    at: float


ActionHandler = Callable[[str, "Alarm", Transition], object]
ChangeHandler = Callable[["Alarm", Transition], object]


@dataclass(frozen=True, slots=True)
class HistoryItem:
    """One line of DescribeAlarmHistory; ``at`` in scaled epoch seconds, ``data`` a JSON document."""

    alarm: str
    alarm_type: str
    at: float
    kind: Literal["ConfigurationUpdate", "StateUpdate", "Action"]
    summary: str
    data: Mapping[str, Any]


@dataclass(slots=True)
class Alarm:
    """An alarm and its state; moments are scaled epoch seconds.

    Attributes:
        arn: its ARN.
        definition: what it watches.
        actions_enabled: whether it acts.
        configured: when it was last put.
        state: its state.
        reason: why, in CloudWatch's words.
        data: the document of StateReasonData.
        updated: when state or reason last changed.
        transitioned: when the state last changed.
        tags: name -> value.
        suppressed: why a composite alarm's actions are held back, or None.
        held: the transition whose actions are held back.
        deadline: when held actions are taken at last.
        extended_until: until when actions stay suppressed after the suppressor left ALARM.
    """

    arn: str
    definition: MetricDefinition | CompositeDefinition
    actions_enabled: bool
    configured: float
    updated: float
    transitioned: float
    state: State = "INSUFFICIENT_DATA"
    reason: str = "Unchecked: Initial alarm creation"
    data: Mapping[str, Any] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    suppressed: Suppressed | None = None
    held: Transition | None = None
    deadline: float = math.inf
    extended_until: float = -math.inf

    @property
    def name(self) -> str:
        """Its name."""
        return self.definition.name

    @property
    def kind(self) -> Literal["MetricAlarm", "CompositeAlarm"]:
        """Its AlarmType."""
        return "MetricAlarm" if isinstance(self.definition, MetricDefinition) else "CompositeAlarm"

    def document(self) -> dict[str, Any]:
        """The alarm as in DescribeAlarms, with datetimes."""
        document = {
            **self.definition.request,
            "AlarmArn": self.arn,
            "ActionsEnabled": self.actions_enabled,
            "AlarmConfigurationUpdatedTimestamp": _datetime(self.configured),
            "StateValue": self.state,
            "StateReason": self.reason,
            "StateUpdatedTimestamp": _datetime(self.updated),
            "StateTransitionedTimestamp": _datetime(self.transitioned),
        }
        if self.data:
            document["StateReasonData"] = json.dumps(self.data)
        if self.suppressed is not None:
            document["ActionsSuppressedBy"] = self.suppressed
            document["ActionsSuppressedReason"] = _suppression(self.suppressed, str(self.definition.request["ActionsSuppressor"]))
        return document


class Alarms:
    """The alarms; made and used on the gateway's event loop.

    Args:
        store: the metrics.
        clock: the cloud's clock.
        region: region of the alarms' ARNs.
        account: account of the alarms' ARNs.
    """

    def __init__(self, store: MetricStore, clock: CloudClock, *, region: str, account: str) -> None:
        self._store, self._clock, self._region, self._account = store, clock, region, account
        self.by_name: dict[str, Alarm] = {}
        self.history: deque[HistoryItem] = deque(maxlen=_HISTORY_ITEMS)
        self._handlers: list[tuple[str, ActionHandler, bool]] = []
        self._observers: list[ChangeHandler] = []
        self._last_minute = -math.inf

    def on_action(self, prefix: str, handler: ActionHandler, *, repeated: bool = False) -> None:
        """Call ``handler(action_arn, alarm, transition)`` on the loop for actions whose ARNs start with ``prefix``.

        Args:
            prefix: such as ``arn:aws:sns:``.
            handler: what it raises is logged and recorded as a failed action.
            repeated: also once a minute while the state lasts, as for Auto Scaling (user guide: Alarm actions).
        """
        self._handlers.append((prefix, handler, repeated))

    def on_change(self, handler: ChangeHandler) -> None:
        """Call ``handler(alarm, transition)`` on the loop for every change of a state."""
        self._observers.append(handler)

    def arn(self, name: str) -> str:
        """The ARN of an alarm of this name."""
        return f"arn:aws:cloudwatch:{self._region}:{self._account}:alarm:{name}"

    def put(self, request: object, *, from_template: bool = False) -> Alarm:
        """Create or replace a metric alarm. A new one is evaluated at once; another one keeps its state until the next look.

        Args:
            request: the document of PutMetricAlarm; tags count for a new alarm only.
            from_template: numbers and booleans may come as text, as in CloudFormation templates.

        Raises:
            AwsError: the document is invalid, or a composite alarm has the name.
        """
        definition = metric_definition(request, from_template=from_template)
        known = definition.name in self.by_name
        alarm = self._put(definition, request)
        if not known:
            self._evaluate(alarm)
        return alarm

    def put_composite(self, request: object, *, from_template: bool = False) -> Alarm:
        """Create or replace a composite alarm and evaluate it.

        Args:
            request: the document of PutCompositeAlarm; tags count for a new alarm only.
            from_template: numbers and booleans may come as text.

        Raises:
            AwsError: the document is invalid, an alarm in it does not exist, or a metric alarm has the name.
        """
        definition = composite_definition(request, from_template=from_template)
        wanted = [*definition.rule.alarms, *([definition.suppressor] if definition.suppressor is not None else [])]
        if missing := [name for name in wanted if name not in self.by_name]:
            raise ValidationError(f"Could not save the composite alarm as alarms {missing} in the alarm rule do not exist")
        alarm = self._put(definition, request)
        if definition.suppressor is None and alarm.held is not None:
            self._release(alarm)
        self._evaluate(alarm)
        return alarm

    def delete(self, names: Sequence[str]) -> None:
        """Delete alarms that are there; all of them or, when it is refused, none.

        Raises:
            AwsError: a composite alarm depends on one of them, or there is more than one composite alarm among them.
        """
        wanted = {name for name in names if name in self.by_name}
        composites = [name for name in wanted if self.by_name[name].kind == "CompositeAlarm"]
        if len(composites) > 1:
            raise ValidationError(
                f"Cannot delete [{len(composites)}] Composite Alarms as only one composite alarm delete is allowed in single request"
            )
        for alarm in self.by_name.values():
            if needed := sorted(wanted & set(_depends_on(alarm))):
                raise ValidationError(f"Cannot delete {needed[0]} as there are composite alarm(s) depending on it.")
        for name in wanted:
            del self.by_name[name]

    def describe(
        self,
        names: Iterable[str] | None = None,
        *,
        prefix: str = "",
        kinds: Sequence[str] = ("MetricAlarm",),
        state: str | None = None,
        action_prefix: str = "",
    ) -> list[dict[str, Any]]:
        """Documents of alarms as in DescribeAlarms, with datetimes, by name.

        Args:
            names: only these; missing ones are left out.
            prefix: only names that start so.
            kinds: ``MetricAlarm``, ``CompositeAlarm``.
            state: only alarms in this state.
            action_prefix: only alarms with an action whose ARN starts so.
        """
        wanted = None if names is None else set(names)
        return [
            alarm.document()
            for name, alarm in sorted(self.by_name.items())
            if (wanted is None or name in wanted)
            and name.startswith(prefix)
            and alarm.kind in kinds
            and state in (None, alarm.state)
            and (not action_prefix or any(action.startswith(action_prefix) for action in _all_actions(alarm)))
        ]

    def set_state(self, name: str, state: State, reason: str, data: Mapping[str, Any] | None = None) -> None:
        """Put an alarm into a state until its next evaluation; raises ``ResourceNotFound``."""
        alarm = self._alarm(name)
        now = self._clock.time()
        if alarm.state == state:
            alarm.reason, alarm.data, alarm.updated = reason, data or {}, now
            return
        self._change(alarm, state, reason, data or {}, now, frozenset())

    def enable_actions(self, names: Iterable[str], *, enabled: bool) -> None:
        """Let alarms act or not; missing ones are left alone."""
        for name in names:
            if (alarm := self.by_name.get(name)) is not None and alarm.actions_enabled != enabled:
                alarm.actions_enabled = enabled
                self._record(alarm, "ConfigurationUpdate", f'Alarm "{name}" updated', {"type": "Update", "actionsEnabled": enabled})

    def clear(self) -> None:
        """Forget all alarms and their history; handlers stay."""
        self.by_name.clear()
        self.history.clear()

    async def run(self) -> None:
        """Evaluate by the clock, until cancelled; a jump of the clock is an occasion to look, too, when publishers have had theirs."""
        jumped = asyncio.Event()
        self._clock.on_jump(jumped.set)
        while True:
            real_seconds = max(self._next_look() - self._clock.time(), 0.0) / self._clock.scale
            with suppress(TimeoutError):
                async with asyncio.timeout(real_seconds):
                    await jumped.wait()
                await asyncio.sleep(_REAL_DELAY_SECONDS)
            jumped.clear()
            try:
                self.evaluate()
            except Exception:
                logger.exception("the alarms could not be evaluated")

    def evaluate(self) -> None:
        """Look at all alarms now, as the clock does: new states, held actions whose time has come, repeated actions once a minute."""
        now = self._clock.time()
        minute = math.floor(now / 60)
        new_minute, self._last_minute = minute != self._last_minute, minute
        for alarm in [alarm for alarm in self.by_name.values() if alarm.kind == "MetricAlarm"]:
            try:
                self._look(alarm, now, repeating=new_minute)
            except Exception:
                # The others are looked at all the same, and this one again the next time.
                logger.exception("alarm %s could not be evaluated", alarm.name)
        for alarm in [alarm for alarm in self.by_name.values() if alarm.held is not None and alarm.deadline <= now]:
            self._release(alarm)

    def _look(self, alarm: Alarm, now: float, *, repeating: bool) -> None:
        before = alarm.state
        seen = self._evaluate(alarm)
        if repeating and alarm.state == before:
            data = seen.data if seen is not None and seen.state == alarm.state else alarm.data
            lasting = Transition(alarm.state, alarm.state, alarm.reason, alarm.reason, data, alarm.data, alarm.updated, now)
            self._act(alarm, lasting, repeating=True)

    def _lag(self) -> float:
        """Scaled seconds by which the last data points may come later than `_DELAY_SECONDS`: 0 unless the clock runs fast."""
        return max(_REAL_DELAY_SECONDS * self._clock.scale - _DELAY_SECONDS, 0.0)

    def _next_look(self) -> float:
        now = self._clock.time()
        short = any(isinstance(alarm.definition, MetricDefinition) and alarm.definition.period < 60 for alarm in self.by_name.values())
        step = 10 if short else 60
        delay = _DELAY_SECONDS + self._lag()
        look = (math.floor((now - delay) / step) + 1) * step + delay
        deadlines = [alarm.deadline for alarm in self.by_name.values() if alarm.held is not None and alarm.deadline > now]
        return min([look, *deadlines])

    def _put(self, definition: MetricDefinition | CompositeDefinition, request: object) -> Alarm:
        now = self._clock.time()
        alarm = self.by_name.get(definition.name)
        known = alarm is not None
        enabled = bool(definition.request["ActionsEnabled"])
        if alarm is None:
            assert isinstance(request, Mapping)
            tags = {tag["Key"]: tag["Value"] for tag in request.get("Tags") or []}
            alarm = Alarm(self.arn(definition.name), definition, enabled, now, now, now, tags=tags)
            self.by_name[definition.name] = alarm
        elif isinstance(alarm.definition, MetricDefinition) != isinstance(definition, MetricDefinition):
            raise ValidationError(f"An alarm of another type with the name {definition.name} exists already.")
        else:
            alarm.definition, alarm.actions_enabled, alarm.configured = definition, enabled, now
        update = {
            "version": "1.0",
            "type": "Update" if known else "Create",
            "updatedAlarm" if known else "createdAlarm": definition.request,
        }
        self._record(alarm, "ConfigurationUpdate", f'Alarm "{alarm.name}" {"updated" if known else "created"}', update)
        return alarm

    def _alarm(self, name: str) -> Alarm:
        if name not in self.by_name:
            raise AwsError("ResourceNotFound", f"Alarm {name} does not exist.", 404)
        return self.by_name[name]

    def _evaluate(self, alarm: Alarm) -> Evaluation | None:
        now = self._clock.time()
        if isinstance(alarm.definition, CompositeDefinition):
            self._follow(alarm, None, now, frozenset())
            return None
        seen = evaluate(alarm.definition, self._store, now - self._lag())
        if seen.state is not None and seen.state != alarm.state:
            self._change(alarm, seen.state, seen.reason, seen.data, now, frozenset())
        return seen

    def _change(self, alarm: Alarm, state: State, reason: str, data: Mapping[str, Any], now: float, path: frozenset[str]) -> None:
        transition = Transition(alarm.state, state, alarm.reason, reason, data, alarm.data, alarm.updated, now)
        alarm.state, alarm.reason, alarm.data, alarm.updated, alarm.transitioned = state, reason, data, now, now
        self._record(
            alarm,
            "StateUpdate",
            f"Alarm updated from {transition.old} to {state}",
            {
                "version": "1.0",
                "oldState": _state_document(transition.old, transition.old_reason, transition.old_data),
                "newState": _state_document(state, reason, data),
            },
        )
        for observer in self._observers:
            try:
                observer(alarm, transition)
            except Exception:
                logger.exception("an observer of alarm %s failed", alarm.name)
        self._act_unless_suppressed(alarm, transition)
        self._tell_dependents(alarm, now, path | {alarm.name})

    def _tell_dependents(self, alarm: Alarm, now: float, path: frozenset[str]) -> None:
        for other in list(self.by_name.values()):
            if not isinstance(other.definition, CompositeDefinition):
                continue
            if other.definition.suppressor == alarm.name:
                self._suppressor_changed(other, alarm.state == "ALARM", now)
            # A cycle of composite alarms ends the evaluation (API reference of PutCompositeAlarm).
            if alarm.name in other.definition.rule.alarms and other.name not in path:
                self._follow(other, alarm, now, path)

    def _follow(self, alarm: Alarm, cause: Alarm | None, now: float, path: frozenset[str]) -> None:
        assert isinstance(alarm.definition, CompositeDefinition)
        state: State = "ALARM" if alarm.definition.rule.holds(self._state_of) else "OK"
        if state == alarm.state:
            return
        if cause is None:
            reason = f"{alarm.arn} was created or updated and its alarm rule evaluates to {state}"
        else:
            reason = f"{cause.arn} transitioned to {cause.state} at {_datetime(now):%A %d %B, %Y %H:%M:%S} UTC"
        children = [self.by_name[name] for name in alarm.definition.rule.alarms if name in self.by_name]
        triggering = [{"arn": child.arn, "state": {"value": child.state, "timestamp": iso(child.transitioned)}} for child in children]
        self._change(alarm, state, reason, {"triggeringAlarms": triggering}, now, path)

    def _state_of(self, name: str) -> str:
        return self.by_name[name].state if name in self.by_name else "INSUFFICIENT_DATA"

    def _act_unless_suppressed(self, alarm: Alarm, transition: Transition) -> None:
        definition = alarm.definition
        if not isinstance(definition, CompositeDefinition) or definition.suppressor is None:
            self._act(alarm, transition)
            return
        now = transition.at
        if self._state_of(definition.suppressor) == "ALARM":
            alarm.suppressed, alarm.deadline = "Alarm", math.inf
        elif now < alarm.extended_until:
            alarm.suppressed, alarm.deadline = "ExtensionPeriod", alarm.extended_until
        elif definition.wait_seconds > 0:
            alarm.suppressed, alarm.deadline = "WaitPeriod", now + definition.wait_seconds
        else:
            self._act(alarm, transition)
            return
        alarm.held = transition

    def _suppressor_changed(self, alarm: Alarm, suppresses: bool, now: float) -> None:
        assert isinstance(alarm.definition, CompositeDefinition)
        if suppresses:
            alarm.extended_until = -math.inf
            if alarm.held is not None:
                alarm.suppressed, alarm.deadline = "Alarm", math.inf
            return
        alarm.extended_until = now + alarm.definition.extension_seconds
        if alarm.held is not None and alarm.suppressed == "Alarm":
            alarm.suppressed, alarm.deadline = "ExtensionPeriod", alarm.extended_until
            if alarm.deadline <= now:
                self._release(alarm)

    def _release(self, alarm: Alarm) -> None:
        transition, alarm.held, alarm.suppressed, alarm.deadline = alarm.held, None, None, math.inf
        if transition is not None:
            self._act(alarm, transition)

    def _act(self, alarm: Alarm, transition: Transition, *, repeating: bool = False) -> None:
        if not alarm.actions_enabled:
            return
        for action in alarm.definition.request[_ACTIONS[transition.new]]:
            for prefix, handler, repeated in self._handlers:
                if not action.startswith(prefix) or (repeating and not repeated):
                    continue
                try:
                    handler(action, alarm, transition)
                    outcome = "Successfully executed"
                except Exception:
                    logger.exception("alarm %s: action %s failed", alarm.name, action)
                    outcome = "Failed to execute"
                data = {"actionState": outcome.split()[0], "stateUpdateTimestamp": iso(transition.at), "notificationResource": action}
                self._record(alarm, "Action", f"{outcome} action {action}", data)

    def _record(
        self, alarm: Alarm, kind: Literal["ConfigurationUpdate", "StateUpdate", "Action"], summary: str, data: Mapping[str, Any]
    ) -> None:
        self.history.append(HistoryItem(alarm.name, alarm.kind, self._clock.time(), kind, summary, data))


def _depends_on(alarm: Alarm) -> tuple[str, ...]:
    definition = alarm.definition
    if not isinstance(definition, CompositeDefinition):
        return ()
    return (*definition.rule.alarms, *([definition.suppressor] if definition.suppressor is not None else []))


def _all_actions(alarm: Alarm) -> list[str]:
    return [action for member in _ACTIONS.values() for action in alarm.definition.request[member]]


def _state_document(state: str, reason: str, data: Mapping[str, Any]) -> dict[str, Any]:
    return {"stateValue": state, "stateReason": reason, **({"stateReasonData": data} if data else {})}


def _suppression(cause: Suppressed, suppressor: str) -> str:
    return {
        "Alarm": f"Actions suppressed by {suppressor}",
        "WaitPeriod": f"Actions wait for {suppressor} to go to ALARM",
        "ExtensionPeriod": f"Actions stay suppressed after {suppressor} left ALARM",
    }[cause]


def _datetime(moment: float) -> datetime:
    return datetime.fromtimestamp(moment, UTC)
