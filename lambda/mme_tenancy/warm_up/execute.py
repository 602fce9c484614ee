"""Drives a warm-up inside a function that has limited time: one thread decides, others call.

Nothing but calls of sample payloads goes to the endpoint, and those only as the run says: they are sent once, marked, and are in no
tenant's line, quota or cost, because they do not pass the invocation path. All else that fails costs the warm-up and nobody more: metrics
that cannot be read are missing, a record that cannot be read is asked for again later, a lease that cannot be renewed ends the work
before somebody else may take it.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any, Protocol

from mme_facts.grammar import ArtifactName
from mme_tenancy.clock import Clock
from mme_tenancy.invocation import Runtime
from mme_tenancy.retries import Failure, RuntimeFault, classify
from mme_tenancy.routes import Target
from mme_tenancy.versions import State, Version
from mme_tenancy.warm_up.ports import LeaseLostError
from mme_tenancy.warm_up.run import Answer, Call, FleetReading, Outcome, WarmUpRun, WarmUpSummary
from mme_tenancy.warm_up.sources import WarmUpRecords
from mme_tenancy.warm_up.workers import Finished, Workers
from mme_tenancy.warming import sample_request

__all__ = ["CALL_TIMEOUTS_SECONDS", "Driven", "Execution", "ExecutionRules", "Hold", "Job", "Minute", "Readings", "Stop", "Watch"]

_ANSWERS: Mapping[Failure, Answer] = {
    Failure.NOT_READY: Answer.NOT_READY,
    Failure.TIMED_OUT: Answer.NOT_READY,
    Failure.CONTAINER_SILENT: Answer.NOT_READY,
    Failure.THROTTLED: Answer.THROTTLED,
    Failure.UNAVAILABLE: Answer.THROTTLED,
    Failure.CONNECTION_LOST: Answer.THROTTLED,
}
"""What a failed call means to the run; all others are failures of the model or of its sample payload."""
_INVOKED = frozenset({State.READY, State.ACTIVE})
_MINUTE = 60
_TOLD_CHARACTERS = 300
_LEAST_REST_SECONDS = 0.001
CALL_TIMEOUTS_SECONDS = (6.0, 12.0, 30.0, 70.0)
"""A call gets the least of these that fits the model's load: botocore knows no timeout per call, so each is a client of its own. The
last covers the 60 s that SageMaker waits for a container."""


class Stop(StrEnum):
    """Why the work stopped."""

    ENDED = "ended"
    """The warm-up has ended, well or not: its summary says how."""
    CHANGED = "changed"
    """The fleet is not the one any more that it was planned for: the summary's detail says what happened."""
    PAUSED = "paused"
    """There is no time left here: it goes on from the checkpoint."""
    LOST = "lost"
    """The lease is somebody else's, or may be by now."""


@dataclass(frozen=True, slots=True)
class Job:
    """Where a warm-up calls.

    Attributes:
        endpoint: the endpoint's name.
        variant: its production variant.
        why: what the calls are for, such as ``scale_out``; the container is told.
    """

    endpoint: str
    variant: str
    why: str


@dataclass(frozen=True, slots=True)
class Minute:
    """A whole minute of an endpoint's metrics; ``None`` is what they do not tell.

    Attributes:
        start: when it began, seconds of the metrics' clock.
        invocations: requests, those of warm-ups among them.
        cache_hits: Sum of ModelCacheHit.
        cache_asked: how many samples that is of.
        least_loaded_models: LoadedModelCount, Minimum.
        most_loaded_models: LoadedModelCount, Maximum.
    """

    start: int
    invocations: float | None = None
    cache_hits: float | None = None
    cache_asked: float | None = None
    least_loaded_models: float | None = None
    most_loaded_models: float | None = None


class Readings(Protocol):
    """Reads an endpoint's metrics."""

    def minutes(self, endpoint: str, variant: str, *, start: int, end: int) -> Sequence[Minute]:
        """The minutes of a time range for which there is anything, oldest first."""
        ...


class Hold(Protocol):
    """A warm-up that this process has the lease of."""

    @property
    def expires_at(self) -> float:
        """Until when the lease is ours, epoch seconds of the machine's clock."""
        ...

    def save(self, progress: Mapping[str, Any]) -> bool:
        """Store how far the run has come (`WarmUpRun.progress`) and renew the lease, by a conditional write.

        ``False``: the lease is somebody else's. What it raises says nothing: the lease is ours until it expires.
        """
        ...


class Watch(Protocol):
    """Looks after the fleet while it is warmed."""

    def look(self) -> str | None:
        """Why the work must end, such as another change; ``None`` while the fleet is the one that the plan was made for.

        Raises:
            LeaseLostError: somebody else works on it, or it was ended.
        """
        ...


class _Task(StrEnum):
    SAVE = "checkpoint"
    LOOK = "look at the fleet"
    READ = "reading of metrics"


@dataclass(frozen=True, slots=True)
class ExecutionRules:
    """Times of the execution, in seconds, and how much it reads at once.

    Attributes:
        save_every: from one checkpoint to the next.
        look_every: from one look at the fleet to the next.
        read_every: from one reading of the metrics to the next.
        lag: a minute of the metrics is whole so long after its end.
        before: how far before the start of the run its ModelCacheHit is looked up.
        lease_margin: so long before the lease expires nothing is called any more.
        wait_for_answers: what is under way when the work stops may take so long,
        wait_after_change: and so long when it stops because of another change.
        last_save: left for the checkpoint when the time is over.
        load_share: a call gets so many times the load time that was measured; the least of `CALL_TIMEOUTS_SECONDS` is for the rest.
        samples: payloads that are read at once, at most.
    """

    save_every: float = 10.0
    look_every: float = 5.0
    read_every: float = 15.0
    lag: float = 30.0
    before: float = 900.0
    lease_margin: float = 5.0
    wait_for_answers: float = 10.0
    wait_after_change: float = 2.0
    last_save: float = 3.0
    load_share: float = 3.0
    samples: int = 40

    def call_timeout(self, load_seconds: float) -> float:
        """Of a call whose model loads so long: one of `CALL_TIMEOUTS_SECONDS`."""
        wanted = load_seconds * self.load_share
        return next((seconds for seconds in CALL_TIMEOUTS_SECONDS if seconds >= wanted), CALL_TIMEOUTS_SECONDS[-1])

    def every(self, task: _Task) -> float:
        """From one to the next of its kind."""
        return {_Task.SAVE: self.save_every, _Task.LOOK: self.look_every, _Task.READ: self.read_every}[task]


@dataclass(frozen=True, slots=True)
class Driven:
    """What the work came to.

    Attributes:
        stop: why it stopped.
        summary: what the warm-up has done so far.
        problems: what failed beside the calls, and how often.
    """

    stop: Stop
    summary: WarmUpSummary
    problems: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """Drives warm-ups.

    Attributes:
        runtime: sends one request, without any retry.
        records: where sample payloads come from.
        readings: the endpoint's metrics.
        workers: does the calls; beside them up to three pieces of its own work.
        clock: time.
        scale: seconds of the metrics' clock a real second, above 1 under a local cloud whose clock runs faster.
        rules: times.
    """

    runtime: Runtime
    records: WarmUpRecords
    readings: Readings
    workers: Workers
    clock: Clock
    scale: float = 1.0
    rules: ExecutionRules = field(default_factory=ExecutionRules)

    def drive(self, run: WarmUpRun, job: Job, hold: Hold, watch: Watch, *, stop_at: float) -> Driven:
        """Go on with a warm-up until it has ended, the time is over, or the lease is lost. Calls that are under way are waited for.

        Args:
            run: the warm-up; its seconds are the machine's epoch seconds.
            job: where it calls.
            hold: the lease.
            watch: the fleet.
            stop_at: when this must have returned, on the monotonic clock.
        """
        return _Drive(self, run, job, hold, watch, stop_at).go()


class _Drive:
    """One call of `Execution.drive`."""

    def __init__(self, tools: Execution, run: WarmUpRun, job: Job, hold: Hold, watch: Watch, stop_at: float) -> None:
        self._tools, self._rules, self._clock, self._workers = tools, tools.rules, tools.clock, tools.workers
        self._run, self._job, self._hold, self._watch, self._stop_at = run, job, hold, watch, stop_at
        self._steps = {step.target_model: step for step in run.plan.steps}
        self._samples = _Samples(tools.records, [ArtifactName.parse(name) for name in self._steps], tools.rules.samples)
        self._meter = _Meter(tools.clock, tools.scale, tools.rules, run.started_at)
        self._calls: dict[int, Call] = {}
        self._under_way: set[_Task] = set()
        now = tools.clock.monotonic()
        self._due = {_Task.SAVE: now + self._rules.save_every, _Task.LOOK: now + self._rules.look_every, _Task.READ: now}
        self._lost = self._changed = False
        self._mark = object()
        self._problems: Counter[str] = Counter()

    def go(self) -> Driven:
        """Until there is a reason to stop."""
        last_call = self._stop_at - self._rules.wait_for_answers - self._rules.last_save
        while True:
            now, wall = self._clock.monotonic(), self._clock.wall()
            if self._lost or wall >= self._hold.expires_at - self._rules.lease_margin:
                return self._driven(Stop.LOST)
            if self._run.stopping is not None or now >= last_call:
                break
            self._begin_tasks(now)
            for call in self._run.take(wall):
                self._begin_call(call, now)
            self._hear(self._rest(wall, now, last_call))
        if self._hear_out():
            return self._driven(Stop.LOST)
        if self._run.end is not None:
            return self._driven(Stop.CHANGED if self._changed else Stop.ENDED)
        return self._driven(self._pause())

    def _rest(self, wall: float, now: float, last_call: float) -> float:
        """How long nothing has to be done unless something is heard."""
        wake = self._run.wake_at(wall)
        moments = [last_call - now, self._hold.expires_at - self._rules.lease_margin - wall]
        moments += [due - now for task, due in self._due.items() if task not in self._under_way]
        if wake is not None:
            moments.append(wake - wall)
        return min(moments)

    def _begin_call(self, call: Call, now: float) -> None:
        self._calls[call.number] = call
        self._meter.began()
        timeout = self._rules.call_timeout(self._steps[call.target_model].load_seconds)
        self._workers.begin((self._mark, call.number), partial(self._call, call, min(timeout, self._stop_at - now)))

    def _call(self, call: Call, timeout_seconds: float) -> Outcome:
        """One call, made beside the deciding thread."""
        name = ArtifactName.parse(call.target_model)
        try:
            version = self._samples.take(name)
        except Exception as error:
            # The registry is busy or out of reach: no fault of the model, and no time for more calls.
            return Outcome(Answer.THROTTLED, 0.0, f"its record could not be read: {_told(error)}")
        if version is None:
            return Outcome(Answer.FAILED, 0.0, "its record is gone")
        if version.state not in _INVOKED:
            return Outcome(Answer.FAILED, 0.0, f"it is {version.state.value} now")
        request = sample_request(version, self._job.why)
        target = Target(self._job.endpoint, self._job.variant, str(name.version), call.target_model)
        began = self._clock.monotonic()
        try:
            request.check()
            self._tools.runtime.invoke(target, request, timeout_seconds)
        except RuntimeFault as fault:
            failure = classify(fault)
            seconds = self._clock.monotonic() - began
            return Outcome(_ANSWERS.get(failure, Answer.FAILED), seconds, f"{failure.value}: {fault}")
        return Outcome(Answer.OK, self._clock.monotonic() - began)

    def _begin_tasks(self, now: float) -> None:
        for task, due in self._due.items():
            if task not in self._under_way and due <= now:
                self._under_way.add(task)
                # Behind calls that fill all threads the lease would run out.
                self._workers.begin((self._mark, task), self._work(task), urgent=True)

    def _work(self, task: _Task) -> Callable[[], object]:
        if task is _Task.SAVE:
            # As it is now: the answers that come meanwhile are in the next one.
            return partial(self._hold.save, self._run.progress())
        if task is _Task.LOOK:
            return self._watch.look
        return partial(self._meter.read, self._tools.readings, self._job)

    def _hear(self, seconds: float) -> None:
        """Wait for what ends, and act on it."""
        for finished in self._workers.finished(max(_LEAST_REST_SECONDS, seconds)):
            key = finished.key
            if finished.error is not None and not isinstance(finished.error, Exception):
                raise finished.error  # the process is to end
            if isinstance(key, tuple) and key[0] is self._mark:
                # Else it was begun by a work before this one, which did not wait for it.
                if isinstance(key[1], _Task):
                    self._task_ended(key[1], finished)
                elif (call := self._calls.pop(key[1], None)) is not None:
                    self._call_ended(call, finished)

    def _call_ended(self, call: Call, finished: Finished) -> None:
        outcome = finished.value
        if not isinstance(outcome, Outcome):
            outcome = Outcome(Answer.FAILED, 0.0, _told(finished.error))
        wall, loaded = self._clock.wall(), self._run.loaded
        self._run.answered(call, wall, outcome)
        if outcome.answer is Answer.OK:
            self._meter.answered(hit=self._run.loaded == loaded)

    def _task_ended(self, task: _Task, finished: Finished) -> None:
        self._under_way.discard(task)
        self._due[task] = self._clock.monotonic() + self._rules.every(task)
        if isinstance(finished.error, LeaseLostError):
            self._lost = True
        elif finished.error is not None:
            self._problems[f"{task.value}: {_told(finished.error)}"] += 1
        elif task is _Task.SAVE:
            self._lost = finished.value is False
        elif task is _Task.LOOK and isinstance(finished.value, str):
            self._changed = self._run.stopping is None
            self._run.abandon(finished.value, self._clock.wall())
        elif task is _Task.READ and isinstance(finished.value, _Read):
            for reading in self._meter.readings(finished.value):
                self._run.observed(reading, self._clock.wall())

    def _hear_out(self) -> bool:
        """Wait for the answers of calls under way, as long as there is time; whether the lease was lost meanwhile.

        Of a run that has ended, the calls that are not answered by then are given up.
        """
        wait = self._rules.wait_after_change if self._changed else self._rules.wait_for_answers
        until = min(self._stop_at - self._rules.last_save, self._clock.monotonic() + wait)
        while self._calls and (left := until - self._clock.monotonic()) > 0:
            held = self._hold.expires_at - self._rules.lease_margin - self._clock.wall()
            if self._lost or held <= 0:
                return True
            self._hear(min(left, held))
        if self._run.stopping is not None:
            for call in self._calls.values():
                self._run.answered(call, self._clock.wall(), Outcome(Answer.NOT_READY, 0.0, "no answer was awaited"))
            self._calls.clear()
        return self._lost

    def _pause(self) -> Stop:
        try:
            return Stop.PAUSED if self._hold.save(self._run.progress()) else Stop.LOST
        except Exception as error:
            # The checkpoint before is there, and the calls since then are made again.
            self._problems[f"{_Task.SAVE.value}: {_told(error)}"] += 1
            return Stop.PAUSED

    def _driven(self, stop: Stop) -> Driven:
        return Driven(stop, self._run.summary(self._clock.wall()), dict(self._problems))


class _Samples:
    """Versions with their payloads, read ahead of the calls in the order of the plan; safe for threads."""

    def __init__(self, records: WarmUpRecords, order: Sequence[ArtifactName], at_once: int) -> None:
        self._records, self._order, self._at_once = records, order, at_once
        self._place = {name: place for place, name in enumerate(order)}
        self._ahead = 0
        self._held: dict[ArtifactName, Version | None] = {}
        self._lock = threading.Lock()

    def take(self, name: ArtifactName) -> Version | None:
        """The record, which is not kept: payloads of a whole fleet's models would be gigabytes."""
        with self._lock:
            if name not in self._held:
                place = self._place[name]
                # One that is called again is read again, alone: those behind it were called, too.
                names = self._order[place : place + self._at_once] if place >= self._ahead else [name]
                found = self._records.versions(names)
                self._held |= {each: found.get(each) for each in names}
                self._ahead = max(self._ahead, place + len(names))
            return self._held.pop(name)


@dataclass(frozen=True, slots=True)
class _Read:
    """Minutes as they were read at a moment of both clocks."""

    minutes: tuple[Minute, ...]
    time: float
    wall: float


class _Meter:
    """What users ask, out of metrics in which the warm-up's own calls are, too."""

    def __init__(self, clock: Clock, scale: float, rules: ExecutionRules, started_at: float) -> None:
        self._clock, self._scale, self._rules = clock, scale, rules
        self._own: Counter[int] = Counter()
        self._own_asked: Counter[int] = Counter()
        self._own_hits: Counter[int] = Counter()
        self._known_from = self._minute() * _MINUTE
        self._run_from = int(clock.time() - (clock.wall() - started_at) * scale) // _MINUTE * _MINUTE
        self._next = self._run_from - int(rules.before) // _MINUTE * _MINUTE
        self._hits_before = self._asked_before = 0.0

    def began(self) -> None:
        """A call begins."""
        self._own[self._minute()] += 1

    def answered(self, *, hit: bool) -> None:
        """A call was answered, by a model that was there or had to be loaded."""
        self._own_asked[self._minute()] += 1
        self._own_hits[self._minute()] += hit

    def read(self, readings: Readings, job: Job) -> _Read:
        """Read the minutes that are whole by now; this is done beside the deciding thread."""
        time, wall = self._clock.time(), self._clock.wall()
        end = int(time - self._rules.lag) // _MINUTE * _MINUTE
        minutes = readings.minutes(job.endpoint, job.variant, start=self._next, end=end) if end > self._next else ()
        return _Read(tuple(minutes), time, wall)

    def readings(self, read: _Read) -> Iterator[FleetReading]:
        """What each minute tells, once, oldest first."""
        for minute in read.minutes:
            if minute.start < self._next:
                continue
            self._next = minute.start + _MINUTE
            if not self._run_from <= minute.start < self._known_from:
                # Of those between, the calls of the processes before this one are not known.
                yield self._reading(minute, read)

    def _reading(self, minute: Minute, read: _Read) -> FleetReading:
        own = minute.start // _MINUTE
        asked = None if minute.cache_asked is None else minute.cache_asked - self._own_asked[own]
        hits = None if minute.cache_hits is None else minute.cache_hits - self._own_hits[own]
        if minute.start < self._run_from:
            self._hits_before += hits or 0.0
            self._asked_before += asked or 0.0
        rate = None if minute.invocations is None else max(0.0, minute.invocations - self._own[own]) / _MINUTE * self._scale
        return FleetReading(
            requests_per_second=rate,
            minute=read.wall - (read.time - minute.start) / self._scale,
            cache_hit=None if hits is None or asked is None or asked <= 0 else min(1.0, max(0.0, hits / asked)),
            cache_hit_before=self._hits_before / self._asked_before if self._asked_before > 0 else None,
            least_loaded_models=minute.least_loaded_models,
            most_loaded_models=minute.most_loaded_models,
        )

    def _minute(self) -> int:
        return int(self._clock.time()) // _MINUTE


def _told(error: BaseException | None) -> str:
    return f"{type(error).__name__}: {error}"[:_TOLD_CHARACTERS]
