"""The course of a warm-up: which calls may begin now, and what their answers mean. No I/O, no threads, no clock.

Whoever drives a run calls what `WarmUpRun.take` gives, tells it the answers, and asks again then and at `WarmUpRun.wake_at`. A run can be
cut anywhere: `WarmUpRun.dump` and `WarmUpRun.load` continue it, and calls whose answers nobody heard are made again.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from heapq import heapify, heappop, heappush
from typing import Any

from mme_tenancy.warm_up.plan import Skip, WarmUpPlan
from mme_tenancy.warm_up.settings import WarmUpSettings

__all__ = ["Answer", "Call", "End", "FailedStep", "FleetReading", "Outcome", "WarmUpRun", "WarmUpSummary"]

_SCHEMA = 1
_SECOND = 1.0
_MINUTE = 60.0
_AVOIDED_WITHIN_SECONDS = 300.0
"""A request that comes later than this after the change would have found its model loaded by another one, or is not the change's fault."""
_ASSUMED_LAG_SECONDS = 60.0
"""The change may have been there so long before the run began: users have brought models back meanwhile."""


class Answer(StrEnum):
    """How a call was answered."""

    OK = "ok"
    """With a prediction."""
    NOT_READY = "not_ready"
    """The model is still being loaded: ModelNotReadyException."""
    THROTTLED = "throttled"
    """The endpoint, its account or the model's server takes no more now."""
    FAILED = "failed"
    """In any other way: calling again would not help."""


class End(StrEnum):
    """Why a warm-up has ended."""

    DONE = "done"
    """Every model was called."""
    NOTHING_MOVED = "nothing_moved"
    """Models that should have had to be loaded were in memory: the router has moved nothing."""
    RECOVERED = "recovered"
    """ModelCacheHit is what it was before the change."""
    TIME = "time"
    """The time limit."""
    THROTTLED = "throttled"
    """The endpoint took no calls, again and again."""
    FAILED = "failed"
    """Too many models failed."""
    ABANDONED = "abandoned"
    """Whoever drives it said so."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call to make.

    Attributes:
        number: of the call, unique in the run.
        target_model: the model to call with its sample payload.
        attempt: how many times the model has been called with this one.
        touch: it is called a second time, so that it stays; its answer changes nothing.
    """

    number: int
    target_model: str
    attempt: int
    touch: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a call.

    Attributes:
        answer: how it was answered.
        seconds: how long that took.
        error: what failed, for people.
    """

    answer: Answer
    seconds: float
    error: str = ""


@dataclass(frozen=True, slots=True)
class FleetReading:
    """What metrics tell of the fleet; ``None`` is what they do not tell.

    Attributes:
        requests_per_second: that users make now.
        minute: when the whole minute began that the rest is of, in the seconds of the run's ``now``.
        cache_hit: ModelCacheHit (Average) of that minute, 0 to 1.
        cache_hit_before: the same before the change.
        least_loaded_models: LoadedModelCount of the instance with fewest.
        most_loaded_models: LoadedModelCount of the one with most.
    """

    requests_per_second: float | None = None
    minute: float | None = None
    cache_hit: float | None = None
    cache_hit_before: float | None = None
    least_loaded_models: float | None = None
    most_loaded_models: float | None = None


@dataclass(frozen=True, slots=True)
class FailedStep:
    """A model that could not be warmed.

    Attributes:
        target_model: its TargetModel.
        error: of the last call.
        attempts: calls made.
    """

    target_model: str
    error: str
    attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUpSummary:
    """What a warm-up has done so far.

    Attributes:
        end: why it has ended; ``None`` while it goes on.
        detail: the same for people, where there is more to say.
        seconds: from its start to its end, or until now.
        planned: models in the plan.
        calls: calls made.
        warmed: models that answered.
        loaded: of them, those that probably were loaded for the call.
        bytes: memory that the warmed models take.
        loaded_bytes: memory that the loaded ones take.
        failed: the models that could not be warmed.
        skipped: why others were not called, and how many.
        throttled: calls that were throttled.
        not_ready: calls that were answered before the model was loaded.
        touched: models that answered a second call.
        repeated: calls that were made again because the first answer was lost with the process.
        cold_requests_avoided: estimate of users' requests in the five minutes after the change that did not wait for a load because of it.
    """

    end: End | None
    detail: str
    seconds: float
    planned: int
    calls: int
    warmed: int
    loaded: int
    bytes: int
    loaded_bytes: int
    failed: tuple[FailedStep, ...]
    skipped: Mapping[Skip, int]
    throttled: int
    not_ready: int
    touched: int = 0
    repeated: int
    cold_requests_avoided: float

    def document(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {
            "end": None if self.end is None else self.end.value,
            "detail": self.detail,
            "seconds": round(self.seconds, 3),
            "planned": self.planned,
            "calls": self.calls,
            "warmed": self.warmed,
            "loaded": self.loaded,
            "bytes": self.bytes,
            "loaded_bytes": self.loaded_bytes,
            "failed": [{"target_model": one.target_model, "error": one.error, "attempts": one.attempts} for one in self.failed],
            "skipped": {reason.value: count for reason, count in self.skipped.items()},
            "throttled": self.throttled,
            "not_ready": self.not_ready,
            "touched": self.touched,
            "repeated": self.repeated,
            "cold_requests_avoided": round(self.cold_requests_avoided, 1),
        }


@dataclass(slots=True)
class _UnderWay:
    step: int
    attempt: int
    began: float
    touch: bool


@dataclass(slots=True)
class _State:
    """What a run remembers besides its plan: all of it can be JSON."""

    started_at: float
    next_step: int = 0
    next_touch: int = 0
    next_number: int = 1
    again: list[tuple[float, int, int]] = field(default_factory=list)  # when, step, attempts made: a heap
    limit: float = 1.0  # calls under way at once
    user_rate: float = 0.0
    quiet_until: float = -math.inf  # nothing is called before
    cut_at: float = -math.inf  # when the limit was lowered last
    back_offs: int = 0  # in succession
    expected_loads: float = 0.0
    recovered_minutes: list[float] = field(default_factory=list)
    end: str | None = None
    detail: str = ""
    ended_at: float | None = None
    calls: int = 0
    warmed: int = 0
    loaded: int = 0
    bytes: int = 0
    loaded_bytes: int = 0
    throttled: int = 0
    not_ready: int = 0
    touched: int = 0
    repeated: int = 0
    avoided: float = 0.0
    skipped: int = 0  # by the end
    failed: list[tuple[int, str, int]] = field(default_factory=list)  # step, error, calls made
    taken_up: bool = False  # somebody may have called models of which nothing is remembered
    recent: list[float] = field(default_factory=list)  # when the calls of the last second began


class WarmUpRun:
    """One warm-up under way.

    Args:
        plan: what to do.
        settings: bounds.
        started_at: now. All times are epoch seconds of the machine's own clock, never scaled: model loads are not, either.
        taken_up: whether somebody may have called models of this plan before, of which nobody knows any more: then models that are there
            do not tell that nothing has moved.
    """

    def __init__(self, plan: WarmUpPlan, settings: WarmUpSettings, started_at: float, *, taken_up: bool = False) -> None:
        self.plan, self.settings = plan, settings
        self._state = _State(started_at, limit=float(plan.in_flight), user_rate=plan.requests_per_second, taken_up=taken_up)
        self._under_way: dict[int, _UnderWay] = {}
        self._recent: deque[float] = deque()
        self._conclude(started_at)

    # What a driver asks.

    @property
    def started_at(self) -> float:
        """When it began."""
        return self._state.started_at

    @property
    def deadline(self) -> float:
        """When its time is up."""
        return self._state.started_at + self.settings.seconds

    @property
    def stopping(self) -> End | None:
        """Why no more calls begin; answers to those under way may still be awaited."""
        return None if self._state.end is None else End(self._state.end)

    @property
    def end(self) -> End | None:
        """Why it has ended; ``None`` while calls are to be made, or are under way."""
        return None if self._under_way else self.stopping

    @property
    def in_flight(self) -> int:
        """Calls under way."""
        return len(self._under_way)

    @property
    def loaded(self) -> int:
        """Models that answered so late that they probably were loaded for the call."""
        return self._state.loaded

    @property
    def calls_per_second(self) -> float:
        """Calls that may begin in any second."""
        return self.settings.calls_per_second(self._state.user_rate)

    def take(self, now: float) -> list[Call]:
        """The calls to begin now."""
        state, calls = self._state, []
        if state.end is None and now >= self.deadline:
            self._stop(End.TIME, now, f"after {self.settings.seconds:.0f} s")
        while state.end is None and now >= state.quiet_until and self._may_call(now):
            turn = self._next(now)
            if turn is None:
                break
            step, attempts, touch = turn
            call = Call(state.next_number, self.plan.steps[step].target_model, attempts + 1, touch)
            state.next_number += 1
            state.calls += 1
            self._recent.append(now)
            self._under_way[call.number] = _UnderWay(step, attempts + 1, now, touch)
            calls.append(call)
        self._conclude(now)
        return calls

    def wake_at(self, now: float) -> float | None:
        """When to ask `take` again if no answer comes before; ``None`` once no more calls begin."""
        state = self._state
        if state.end is not None:
            return None
        if len(self._under_way) >= int(state.limit):
            return self.deadline
        if state.next_step < len(self.plan.steps) or self._touch_due():
            ready = now
        elif state.again:
            ready = state.again[0][0]
        else:
            return self.deadline
        return min(self.deadline, max(now, ready, state.quiet_until, self._budget_at(now)))

    # What a driver tells.

    def answered(self, call: Call, now: float, outcome: Outcome) -> None:
        """A call was answered, or was given up. One that this run has not made, or has made anew since, changes nothing."""
        under_way = self._under_way.pop(call.number, None)
        if under_way is None:
            return
        if outcome.answer is Answer.OK:
            self._warmed(under_way, outcome, now)
        elif outcome.answer is Answer.FAILED:
            if not under_way.touch:
                self._failed(under_way, outcome.error)
        else:
            self._refused(under_way, outcome, now)
        self._conclude(now)

    def observed(self, reading: FleetReading, now: float) -> None:
        """Metrics were read."""
        state = self._state
        if reading.requests_per_second is not None:
            state.user_rate = max(0.0, reading.requests_per_second)
        if reading.minute is None or reading.minute < state.started_at or not self._is_back(reading):
            return
        if reading.minute not in state.recovered_minutes:
            state.recovered_minutes.append(reading.minute)
        if len(state.recovered_minutes) >= 2:
            self._stop(End.RECOVERED, now, f"ModelCacheHit is {100 * (reading.cache_hit or 0.0):.1f} %")

    def abandon(self, detail: str, now: float) -> None:
        """End it: the fleet has changed again, or is gone."""
        self._stop(End.ABANDONED, now, detail)

    # What it has done.

    def summary(self, now: float) -> WarmUpSummary:
        """What was done until now."""
        state = self._state
        skipped = Counter(self.plan.skipped)
        if state.skipped:
            skipped[Skip.ENDED] += state.skipped
        return WarmUpSummary(
            end=self.end,
            detail=state.detail,
            seconds=(now if state.ended_at is None else state.ended_at) - state.started_at,
            planned=len(self.plan.steps),
            calls=state.calls,
            warmed=state.warmed,
            loaded=state.loaded,
            bytes=state.bytes,
            loaded_bytes=state.loaded_bytes,
            failed=tuple(FailedStep(self.plan.steps[step].target_model, error, attempts) for step, error, attempts in state.failed),
            skipped=dict(skipped),
            throttled=state.throttled,
            not_ready=state.not_ready,
            touched=state.touched,
            repeated=state.repeated,
            cold_requests_avoided=state.avoided,
        )

    # Checkpoints.

    def dump(self) -> dict[str, Any]:
        """All of it, as JSON can hold it: ``plan``, which never changes, and ``progress``."""
        return {"schema": _SCHEMA, "plan": self.plan.dump(), "progress": self.progress()}

    def progress(self) -> dict[str, Any]:
        """The part of `dump` that changes, as it is now: it may be stored while the run goes on."""
        state = {name: list(value) if isinstance(value := getattr(self._state, name), list) else value for name in _State.__slots__}
        state["recent"] = list(self._recent)
        for name in ("quiet_until", "cut_at"):
            if state[name] == -math.inf:
                state[name] = None
        return {**state, "under_way": [[one.step, one.attempt] for one in self._under_way.values() if not one.touch]}

    @classmethod
    def load(cls, document: Mapping[str, Any], settings: WarmUpSettings) -> WarmUpRun:
        """Continue the run that `dump` wrote: the calls that were under way are made again, the first before all others.

        Raises:
            ValueError: another release wrote it in a form that this one does not know.
        """
        if document["schema"] != _SCHEMA:
            raise ValueError(f"the checkpoint has schema {document['schema']!r}: this release reads {_SCHEMA}; begin a new warm-up")
        progress = dict(document["progress"])
        under_way = progress.pop("under_way")
        run = cls(WarmUpPlan.load(document["plan"]), settings, progress["started_at"])
        for name in ("quiet_until", "cut_at"):
            if progress[name] is None:
                progress[name] = -math.inf
        progress["again"] = [tuple(one) for one in progress["again"]]
        progress["failed"] = [tuple(one) for one in progress["failed"]]
        state = run._state = _State(**progress)
        run._recent = deque(state.recent)
        state.taken_up = True
        if state.end is None:
            # They were begun, so they count as calls, but not as attempts: nobody knows that they were in vain.
            state.again += [(-1.0, step, attempt - 1) for step, attempt in under_way]
            heapify(state.again)
            state.repeated += len(under_way)
        else:
            state.skipped += len(under_way)
        return run

    # Turns.

    def _may_call(self, now: float) -> bool:
        return len(self._under_way) < int(self._state.limit) and self._budget_at(now) <= now

    def _budget_at(self, now: float) -> float:
        """When the next call is within the budget: fewer than so many began in the second before.

        A budget below one call a second is that many in a longer time.
        """
        rate = self.calls_per_second
        count, seconds = (int(rate), _SECOND) if rate >= 1 else (1, 1 / rate)
        while self._recent and self._recent[0] + max(seconds, _SECOND) <= now:
            self._recent.popleft()
        return now if len(self._recent) < count else self._recent[-count] + seconds

    def _next(self, now: float) -> tuple[int, int, bool] | None:
        """The step whose turn it is, the calls that were made of it, and whether it had its turn: one that has waited, or the next one."""
        state = self._state
        if state.again and state.again[0][0] <= now:
            _when, step, attempts = heappop(state.again)
            return step, attempts, False
        while self._touch_due():
            step = self.plan.touches[state.next_touch]
            state.next_touch += 1
            if self._is_warmed(step):
                return step, 1, True
        if state.next_step < len(self.plan.steps):
            state.next_step += 1
            return state.next_step - 1, 0, False
        return None

    def _touch_due(self) -> bool:
        return self._state.next_step >= self.plan.touch_after and self._state.next_touch < len(self.plan.touches)

    def _is_warmed(self, step: int) -> bool:
        """Whether a step that had its turn was answered."""
        state = self._state
        waiting = (*(one.step for one in self._under_way.values()), *(again[1] for again in state.again))
        return step not in waiting and all(step != failed for failed, _error, _attempts in state.failed)

    # Answers.

    def _warmed(self, under_way: _UnderWay, outcome: Outcome, now: float) -> None:
        state, step = self._state, self.plan.steps[under_way.step]
        state.back_offs = 0
        if outcome.seconds < step.service_seconds + self.settings.queued_factor * step.load_seconds:
            state.limit = min(float(self.plan.in_flight), state.limit + 1 / max(1.0, state.limit))
        elif under_way.began >= state.cut_at and state.limit > self.plan.least_in_flight:
            state.limit = max(float(self.plan.least_in_flight), state.limit / 2)
            state.cut_at = now
        if under_way.touch:
            state.touched += 1
            return
        state.warmed += 1
        state.bytes += step.bytes
        passed = under_way.began - state.started_at
        unasked = math.exp(-step.rate * (passed + _ASSUMED_LAG_SECONDS))
        state.expected_loads += self.plan.moved_share * unasked
        if outcome.seconds >= step.service_seconds + self.settings.loaded_share * step.load_seconds:
            state.loaded += 1
            state.loaded_bytes += step.bytes
            left = max(0.0, _AVOIDED_WITHIN_SECONDS - passed - outcome.seconds)
            state.avoided += math.exp(-step.rate * outcome.seconds) * -math.expm1(-step.rate * left)

    def _failed(self, under_way: _UnderWay, error: str) -> None:
        self._state.failed.append((under_way.step, error, under_way.attempt))

    def _refused(self, under_way: _UnderWay, outcome: Outcome, now: float) -> None:
        """Throttled or not ready: fewer calls at once, and this model again later."""
        state, settings = self._state, self.settings
        if under_way.began >= state.cut_at:  # the others that began before have met the same
            state.limit = max(1.0, state.limit / 2)
            state.cut_at = now
            if outcome.answer is Answer.THROTTLED:
                pause = min(settings.most_back_off_seconds, settings.back_off_seconds * 2**state.back_offs)
                state.back_offs += 1
                state.quiet_until = max(state.quiet_until, now + pause)
        if outcome.answer is Answer.THROTTLED:
            state.throttled += 1
            again = state.quiet_until
        else:
            state.not_ready += 1
            again = now + settings.not_ready_seconds
        if under_way.touch:
            return
        if under_way.attempt >= settings.attempts:
            self._failed(under_way, outcome.error or outcome.answer.value)
        elif state.end is None:
            heappush(state.again, (again, under_way.step, under_way.attempt))
        else:
            state.skipped += 1

    # The end.

    def _conclude(self, now: float) -> None:
        """End it if there is nothing left to do, or no sense in going on."""
        state, settings = self._state, self.settings
        failed, answered = len(state.failed), len(state.failed) + state.warmed
        if failed >= settings.least_failed and failed >= settings.failed_share * answered:
            self._stop(End.FAILED, now, f"{failed} of {answered} models failed")
        elif state.back_offs >= settings.most_back_offs:
            self._stop(End.THROTTLED, now, f"{state.back_offs} times in succession")
        elif not state.taken_up and self._has_nothing_moved():
            self._stop(End.NOTHING_MOVED, now, f"{state.loaded} of {state.warmed} models had to be loaded")
        elif state.next_step >= len(self.plan.steps) and not self._touch_due() and not state.again and not self._under_way:
            self._stop(End.DONE, now, "")
        if state.end is not None and not self._under_way and state.ended_at is None:
            state.ended_at = now

    def _has_nothing_moved(self) -> bool:
        expected, settings = self._state.expected_loads, self.settings
        return expected >= settings.nothing_moved_loads and self._state.loaded < settings.nothing_moved_share * expected

    def _stop(self, end: End, now: float, detail: str) -> None:
        """No more calls; what was not called is skipped."""
        state = self._state
        if state.end is None:
            state.end, state.detail = end.value, detail
            state.skipped += len(self.plan.steps) - state.next_step + len(state.again)
            state.next_step = len(self.plan.steps)
            state.again.clear()
            if not self._under_way:
                state.ended_at = now

    def _is_back(self, reading: FleetReading) -> bool:
        """ModelCacheHit is what it was, and no instance is much emptier than the fullest, as far as is known."""
        if reading.cache_hit is None or reading.cache_hit_before is None:
            return False
        least, most = reading.least_loaded_models, reading.most_loaded_models
        if least is not None and most is not None and least < 0.5 * most:
            return False
        return reading.cache_hit >= reading.cache_hit_before - self.settings.recovered_points / 100
