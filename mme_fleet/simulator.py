"""Drives a fleet in virtual time: the same `mme_fleet.Fleet` that the local cloud drives with real servers.

Every piece of work takes the time that `Costs` says; requests, the script of fleet changes and policies bring the rest. A run
is determined by its arguments. Without observers no values of events and actions are made for hits, which is what most requests are.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from heapq import heappop, heappush
from typing import Any, Protocol, TypeAlias

from mme_fleet.changes import FleetChange, InstanceSpec, LoseInstance, LoseZone, ScaleIn, ScaleOut, UpdateFleet
from mme_fleet.costs import Costs
from mme_fleet.events import (
    Action,
    Discard,
    Download,
    Downloaded,
    Event,
    Forward,
    InstanceDraining,
    InstanceLost,
    InstanceUp,
    Load,
    Loaded,
    LoadFailed,
    LoadFailure,
    Release,
    Replied,
    Reply,
    Request,
    Tick,
    Unload,
    Unloaded,
    ZoneLost,
)
from mme_fleet.generation import Generation, Server
from mme_fleet.recording import Step, StepObserver, compare
from mme_fleet.results import RequestAnswer, SimulationResults
from mme_fleet.routing import Router, StickyRouter
from mme_fleet.settings import FleetSettings
from mme_fleet.snapshot import FleetSnapshot

__all__ = [
    "SimulationPolicy",
    "Simulator",
]

_OK, _TIMED_OUT = 200, 0
_AT_DOWNLOAD = frozenset({LoadFailure.MISSING, LoadFailure.DENIED, LoadFailure.UNAVAILABLE})
_CONTAINER_STATUS = {LoadFailure.OUT_OF_MEMORY: 507, LoadFailure.BROKEN: 500}

_Report: TypeAlias = Downloaded | Loaded | LoadFailed | Unloaded
_Item: TypeAlias = tuple[float, int, "float | None", Any, Any]
"""Of the heap: when, a number that orders what is due at once, and either the answer to a request of that number (when it came, the
container's status, the generation), or, with ``None`` in the third place, any call (what to call and its arguments)."""


class SimulationPolicy(Protocol):
    """Reacts to what happens: a warm-up, a placement, a scaling policy."""

    def begin(self, simulator: Simulator) -> None:
        """Called once, before the first instance comes up: observe, set timers, remember the simulator."""


class _Asked:
    """A request of a policy that is not answered yet."""

    __slots__ = ("answered", "arrived", "cold", "instance", "model")

    def __init__(self, model: str, arrived: float, answered: Callable[[RequestAnswer], object]) -> None:
        self.model, self.arrived, self.answered = model, arrived, answered
        self.cold = False
        self.instance: str | None = None


class Simulator:
    """A fleet in virtual time. `run` may be called again: the fleet stays as it is, and time goes on.

    Args:
        costs: of the work.
        instances: in service from the start, named ``instance-1`` and so on.
        settings: of the fleet.
        router: makes the router of the fleet, and of each one that an update puts in its place.
        policies: begin in this order.
        observers: are told every step; see `observe`.
        start: virtual time of the beginning, in seconds.
    """

    def __init__(
        self,
        costs: Costs,
        instances: Sequence[InstanceSpec],
        *,
        settings: FleetSettings | None = None,
        router: Callable[[], Router] = StickyRouter,
        policies: Sequence[SimulationPolicy] = (),
        observers: Sequence[StepObserver] = (),
        start: float = 0.0,
    ) -> None:
        self._costs = costs
        self._now = float(start)
        self._heap: list[_Item] = [(math.inf, 0, None, None, None)]  # the last one is never reached, so the heap is never empty
        self._next_number = itertools.count(1).__next__
        self._instance_numbers = itertools.count(1)
        self._fleet_numbers = itertools.count(1)
        self._observers = list(observers)
        self._waiting: dict[int, float] = {}  # when callers' requests came that are not forwarded
        self._flying: dict[int, float] = {}  # and of those that are, where observers are told
        self._asked: dict[int, _Asked] = {}
        self._executors: dict[type[Action], Callable[[Generation, Any], None]] = {
            Forward: self._forward,
            Reply: self._reply,
            Download: self._download,
            Load: self._load,
            Unload: self._unload,
            Discard: self._discard,
            Release: self._release,
        }
        self._results = SimulationResults()
        self._running = self._replayed = False
        self._generations: list[Generation] = []
        self._generation = self._make_generation(settings or FleetSettings(), router)
        for policy in policies:
            policy.begin(self)
        self._add(instances)

    # What policies and observers use.

    @property
    def now(self) -> float:
        """Virtual time, in seconds."""
        return self._now

    @property
    def fleet_name(self) -> str:
        """The fleet that takes requests."""
        return self._generation.name

    @property
    def results(self) -> SimulationResults:
        """Of the run under way, so far, or of the last one. Requests, and hits that no observer is told, are counted at its end."""
        return self._results

    def snapshot(self) -> FleetSnapshot:
        """The state of the fleet that takes requests."""
        return self._generation.fleet.snapshot()

    def observe(self, observer: StepObserver) -> None:
        """Tell an observer every step from now on. That costs the fast path of the hits.

        Raises:
            RuntimeError: a run is under way, so the observer would miss the beginning of what it sees.
        """
        if self._running:
            raise RuntimeError("a run is under way: observe before it, or when a policy begins")
        self._observers.append(observer)

    def at(self, when: float, call: Callable[[], object]) -> None:
        """Call something at a virtual time.

        Raises:
            ValueError: the time is over.
        """
        if when < self._now:
            raise ValueError(f"{when} is over: it is {self._now}")
        self._later(when, call)

    def every(self, seconds: float, call: Callable[[], object]) -> None:
        """Call something again and again, for the first time after ``seconds``."""
        if seconds <= 0:
            raise ValueError(f"every {seconds} seconds: use a positive number")

        def again() -> None:
            self._later(self._now + seconds, again)
            call()

        self._later(self._now + seconds, again)

    def ask(self, model: str, answered: Callable[[RequestAnswer], object] | None = None) -> None:
        """Make a request of a policy's own, now; it is not among the callers' requests of the results.

        Args:
            model: TargetModel.
            answered: hears of the answer.
        """
        self._results.asked += 1
        number = self._next_number()
        self._asked[number] = _Asked(model, self._now, answered or _ignore)
        self._tell(self._generation, Request(number, model))

    def change(self, change: FleetChange) -> None:
        """Change the fleet now.

        Raises:
            ValueError: it cannot be done: no such instance in service, too few instances.
        """
        if isinstance(change, ScaleOut):
            self._add(change.instances)
        elif isinstance(change, ScaleIn):
            self._scale_in(change.count)
        elif isinstance(change, LoseInstance):
            self._lose(change)
        elif isinstance(change, LoseZone):
            self._lose_zone(change)
        else:
            self._update(change)

    # The run.

    def run(
        self,
        requests: Iterable[tuple[float, str]],
        changes: Iterable[tuple[float, FleetChange]] = (),
        *,
        until: float | None = None,
    ) -> SimulationResults:
        """Let requests come, and return when all of them are answered.

        Args:
            requests: virtual time and TargetModel of each, ascending in time.
            changes: virtual time of each, in any order; one that is later than the end of the run happens in the next one.
            until: go on until then, if all are answered earlier.

        Raises:
            ValueError: a time is over, or ``until`` is not finite.
            RuntimeError: the fleet is that of a replay.
        """
        if self._replayed:
            raise RuntimeError("the simulator has replayed a recording, whose servers it does not have: make a new one for a run")
        if until is not None and not math.isfinite(until):
            raise ValueError(f"until is {until}: use a time that comes, or None")
        results = self._results = SimulationResults()
        for when, change in changes:
            self.at(when, partial(self.change, change))
        self._running = True
        try:
            self._take(requests)
            while results.answered < results.requests:
                self._step()
            while until is not None and self._heap[0][0] <= until:
                self._step()
        finally:
            self._running = False
        results.ended_at = self._now = max(self._now, self._now if until is None else until)
        return results

    def replay(self, steps: Iterable[Step]) -> SimulationResults:
        """Take a recorded run, of real servers too, in place of requests, changes and costs, and check that the fleet acts alike.

        Every event comes at its recorded time, through the fleet and its router, and is told to the observers; what policies have set for
        a time before it happens first. The recording says how the work ended that the actions ask for: they are compared and counted,
        and not executed. The router must be in the state that the recorded one had.

        Args:
            steps: of one fleet, from its beginning (`mme_fleet.Recorder`, a `StepObserver`, `mme_local.dataplane.DataPlane.recording`).

        Raises:
            RuntimeError: the fleet is not fresh: make the simulator without instances, and replay once.
            ReplayMismatchError: at the first step whose actions differ.
            ValueError: a time is over, or an event cannot be.
        """
        fleet, results = self._generation.fleet, SimulationResults()
        snapshot = fleet.snapshot()
        if snapshot.instances or snapshot.requests or self._replayed:
            raise RuntimeError("the fleet is not fresh: replay with a new simulator that has no instances")
        self._results = results
        self._running = self._replayed = True
        try:
            for number, step in enumerate(steps, 1):
                if step.now < self._now:
                    raise ValueError(f"step {number} is at {step.now}, but it is {self._now}: steps must ascend in time")
                while self._heap[0][0] <= step.now:
                    self._step()
                self._now = step.now
                compare(number, step, fleet.on(step.event, step.now))
                for observe in self._observers:
                    observe(self._generation.name, step)
                self._count(step)
        finally:
            self._running = False
        results.ended_at = self._now
        return results

    def _count(self, step: Step) -> None:
        """What a replayed step adds to the results."""
        results, event = self._results, step.event
        if isinstance(event, Request):
            results.requests += 1
            self._waiting[event.request] = step.now
        results.loads += isinstance(event, Loaded)
        for action in step.actions:
            if isinstance(action, Forward):
                self._flying[action.request] = arrived = self._waiting.pop(action.request)
                self._forwarded(action, arrived)
            elif isinstance(action, Reply):
                self._reply(self._generation, action)
            else:
                results.downloads += isinstance(action, Download)
                results.unloads += isinstance(action, Unload)

    def _take(self, requests: Iterable[tuple[float, str]]) -> None:
        """The requests as they come, and what is due between them: the hot loop."""
        results, heap, next_number = self._results, self._heap, self._next_number
        service_seconds, timeout = self._costs.service_seconds, self._costs.invoke_timeout_seconds
        answered = results.latencies.append
        generation = self._generation
        take, servers = generation.fleet.request, generation.servers
        last, end, came, hits = self._now, math.inf, 0, 0
        for at, model in requests:
            if not last <= at < end:
                raise ValueError(f"a request for {model!r} comes at {at}, but it is {last}: requests must ascend in time")
            while heap[0][0] <= at:
                when, number, arrived, what, target = heappop(heap)
                if arrived is not None:
                    actions = target.replied(number, what, when)
                    if actions is None:
                        answered(when - arrived)
                    elif actions:
                        self._finish(target, arrived, when, actions)
                else:
                    self._now = when
                    what(*target)
            if generation is not self._generation:
                generation = self._generation
                take, servers = generation.fleet.request, generation.servers
            last = at
            came += 1
            number = next_number()
            if self._observers:
                self._now = at
                self._waiting[number] = at
                self._tell(generation, Request(number, model))
                continue
            taken = take(number, model, at)
            if isinstance(taken, str):
                hits += 1
                done = servers[taken].finish(model, at, service_seconds(model))
                if done - at <= timeout:
                    heappush(heap, (done, number, at, _OK, generation))
                else:
                    heappush(heap, (at + timeout, number, at, _TIMED_OUT, generation))
            else:
                self._now = at
                self._waiting[number] = at
                self._do(generation, taken)
        self._now = max(last, self._now)
        results.requests += came
        results.hits += hits

    def _step(self) -> None:
        """What is due next."""
        when, number, arrived, what, target = heappop(self._heap)
        self._now = when
        if arrived is None:
            what(*target)
            return
        actions = target.replied(number, what, when)
        if actions is None:
            self._results.latencies.append(when - arrived)
        elif actions:
            self._finish(target, arrived, when, actions)

    def _finish(self, generation: Generation, arrived: float, now: float, actions: tuple[Action, ...]) -> None:
        """An answer is an error, or lets something else go on."""
        self._now = now
        reply = actions[0]
        assert isinstance(reply, Reply)
        if reply.error is None:
            self._results.latencies.append(now - arrived)
            actions = actions[1:]
        self._do(generation, actions)

    def _later(self, when: float, call: Callable[..., object], *arguments: object) -> None:
        heappush(self._heap, (when, self._next_number(), None, call, arguments))

    # Events and actions.

    def _tell(self, generation: Generation, event: Event) -> None:
        actions = generation.fleet.on(event, self._now)
        if self._observers:
            step = Step(self._now, event, actions)
            for observe in self._observers:
                observe(generation.name, step)
        self._do(generation, actions)

    def _do(self, generation: Generation, actions: tuple[Action, ...]) -> None:
        """Execute a fleet's actions."""
        for action in actions:
            self._executors[type(action)](generation, action)
        if not generation.ticking:
            deadline = generation.fleet.next_deadline()
            if deadline is not None:
                generation.ticking = True
                self._later(deadline, self._tick, generation)

    def _tick(self, generation: Generation) -> None:
        generation.ticking = False
        deadline = generation.fleet.next_deadline()
        if deadline is None or deadline <= self._now:
            self._tell(generation, Tick())
        else:
            self._do(generation, ())

    def _forward(self, generation: Generation, action: Forward) -> None:
        now, number, timeout = self._now, action.request, self._costs.invoke_timeout_seconds
        done, status = generation.servers[action.instance].finish(action.model, now, self._costs.service_seconds(action.model)), _OK
        if done - now > timeout:
            done, status = now + timeout, _TIMED_OUT
        asked = self._asked.get(number)
        if asked is not None:
            asked.instance, asked.cold = action.instance, action.cold
        else:
            arrived = self._waiting.pop(number)
            self._forwarded(action, arrived)
            if not self._observers:
                heappush(self._heap, (done, number, arrived, status, generation))
                return
            self._flying[number] = arrived
        heappush(self._heap, (done, number, None, self._tell, (generation, Replied(number, status))))

    def _forwarded(self, action: Forward, arrived: float) -> None:
        """Count a caller's request that is forwarded."""
        if action.cold:
            self._results.cold_at.append(arrived)
            self._results.waits.append(self._now - arrived)
        else:
            self._results.hits += 1

    def _reply(self, _generation: Generation, action: Reply) -> None:
        error = action.error
        asked = self._asked.pop(action.request, None)
        if asked is not None:
            asked.answered(RequestAnswer(asked.model, self._now - asked.arrived, asked.cold, asked.instance, error))
            return
        waited_since, arrived = self._waiting.pop(action.request, None), self._flying.pop(action.request, None)
        if error is not None:
            self._results.errors[error.code, error.original_status] += 1
            if waited_since is not None:
                self._results.refused_at.append(waited_since)
        else:
            assert arrived is not None
            self._results.latencies.append(self._now - arrived)

    def _download(self, generation: Generation, action: Download) -> None:
        self._results.downloads += 1
        failure = self._costs.failures.get(action.model)
        event = (
            LoadFailed(action.instance, action.model, failure)
            if failure in _AT_DOWNLOAD
            else Downloaded(action.instance, action.model, self._costs.unpacked_bytes(action.model))
        )
        self._report_after(self._costs.download_seconds(action.model), generation, event)

    def _load(self, generation: Generation, action: Load) -> None:
        costs, model = self._costs, action.model
        failure = costs.failures.get(model)
        event = (
            Loaded(action.instance, model, None if costs.measured_bytes is None else costs.measured_bytes(model))
            if failure is None
            else LoadFailed(action.instance, model, failure, _CONTAINER_STATUS[failure])
        )
        self._report_after(costs.load_seconds(model), generation, event)

    def _unload(self, generation: Generation, action: Unload) -> None:
        self._results.unloads += 1
        self._report_after(self._costs.unload_seconds(action.model), generation, Unloaded(action.instance, action.model))

    def _discard(self, _generation: Generation, _action: Discard) -> None:
        """Deleting files takes no time."""

    def _release(self, generation: Generation, action: Release) -> None:
        generation.servers.pop(action.instance).alive = False

    def _report_after(self, seconds: float, generation: Generation, event: _Report) -> None:
        heappush(
            self._heap,
            (self._now + seconds, self._next_number(), None, self._report, (generation, generation.servers[event.instance], event)),
        )

    def _report(self, generation: Generation, server: Server, event: _Report) -> None:
        if not server.alive:
            return
        if isinstance(event, Loaded):
            self._results.loads += 1
        elif isinstance(event, Unloaded):
            server.forget(event.model)
        if self._observers:
            self._tell(generation, event)
        elif actions := generation.fleet.on(event, self._now):
            self._do(generation, actions)

    # The fleet's changes.

    def _make_generation(self, settings: FleetSettings, router: Callable[[], Router]) -> Generation:
        generation = Generation(f"fleet-{next(self._fleet_numbers)}", settings, router)
        self._generations.append(generation)
        return generation

    def _add(self, instances: Iterable[InstanceSpec]) -> None:
        for spec in instances:
            self._bring_up(self._generation, f"instance-{next(self._instance_numbers)}", spec)

    def _bring_up(self, generation: Generation, name: str, spec: InstanceSpec, *, disk_kept: bool = False) -> None:
        settings = generation.settings
        workers = settings.workers_per_model if settings.model_queue_size is None else None
        generation.servers[name] = Server(spec, workers)
        resident = tuple((model, self._memory_bytes(settings, model)) for model in spec.resident)
        self._tell(generation, InstanceUp(name, spec.memory_bytes, spec.disk_bytes, disk_kept, spec.zone, resident))

    def _memory_bytes(self, settings: FleetSettings, model: str) -> int:
        """What a model takes that an instance comes up with."""
        costs = self._costs
        return settings.memory_bytes(costs.unpacked_bytes(model)) if costs.measured_bytes is None else costs.measured_bytes(model)

    def _scale_in(self, count: int) -> None:
        names = list(self._generation.in_service())
        if count > len(names):
            raise ValueError(f"{count} instances are to go, but {len(names)} are in service: take fewer")
        for name in names[-count:]:
            self._generation.servers[name].draining = True
        for name in names[-count:]:
            self._tell(self._generation, InstanceDraining(name))

    def _lose(self, change: LoseInstance) -> None:
        server = self._generation.in_service().get(change.instance)
        if server is None:
            names = ", ".join(self._generation.in_service())
            raise ValueError(f"instance {change.instance!r} is to be lost, but is not in service: choose one of {names}")
        server.alive = False
        self._tell(self._generation, InstanceLost(change.instance))
        self._after_loss(self._generation, change.instance, change.returns_after_seconds, disk_kept=change.disk_kept)

    def _lose_zone(self, change: LoseZone) -> None:
        for generation in tuple(self._generations):
            lost = [name for name, server in generation.servers.items() if server.alive and server.spec.zone == change.zone]
            draining = [name for name in lost if generation.servers[name].draining]
            for name in lost:
                generation.servers[name].alive = False
            if lost:
                self._tell(generation, ZoneLost(change.zone))
            for name in lost:
                if name not in draining:
                    self._after_loss(generation, name, change.returns_after_seconds, disk_kept=False)

    def _after_loss(self, generation: Generation, name: str, seconds: float | None, *, disk_kept: bool) -> None:
        """A lost instance returns later, or is forgotten."""
        if seconds is None:
            self._tell(generation, InstanceDraining(name))
        else:
            self._later(self._now + seconds, self._return, generation, name, generation.servers[name], disk_kept)

    def _return(self, generation: Generation, name: str, was: Server, disk_kept: bool) -> None:
        if generation.servers.get(name) is was:
            self._bring_up(generation, name, replace(was.spec, resident=()), disk_kept=disk_kept)

    def _update(self, change: UpdateFleet) -> None:
        old = self._generation
        instances = change.instances
        if instances is None:
            instances = [replace(server.spec, resident=()) for server in old.in_service().values()]
        self._generation = self._make_generation(change.settings or old.settings, change.router or old.router)
        self._add(instances)
        self._later(self._now + old.settings.load_wait_seconds + self._costs.invoke_timeout_seconds, self._end, old)

    def _end(self, generation: Generation) -> None:
        """End a fleet that an update has replaced, when nothing can be under way there any more."""
        self._generations.remove(generation)
        for name in tuple(generation.servers):
            self._tell(generation, InstanceDraining(name))


def _ignore(_answer: RequestAnswer) -> None:
    """Of a policy that does not want to hear of the answer."""
