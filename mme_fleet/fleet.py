"""The residency engine: where models are, and what happens next.

Rules, with their source where AWS documents them (Developer Guide, "How multi-model endpoints work", and the MME container
contract, "Build Your Own Container for multi-model endpoints"):

- A request goes to an instance by the router's choice; if the model is not in its memory, it is downloaded to the
  instance's disk, unless it lies there already, and loaded.
- An instance does a limited number of loads at once, if the settings say so; the others wait for their turn, in order, and are
  dropped when nobody waits for them any more.
- Memory is a budget in bytes. A model takes its unpacked size and an overhead for each of its workers from the start of its
  load until its unload is done; `Loaded` may correct it. When a load does not fit, the least recently used models without a
  request in flight are unloaded; if that does not suffice, the load waits. Loads get memory in the order in which they came.
- A load that the container refuses with 507 is tried again after an eviction, a bounded number of times.
- Disk is a budget too: artifacts stay there after their eviction from memory, and those that left memory first go first.
- Without cache (`ModelCacheSetting` Disabled) a model is unloaded and removed from disk when its last request was answered.
- A request that waits longer than ``load_wait_seconds`` gets ModelNotReadyException while the load goes on.
- With ``model_queue_size`` set, a model's workers get one request each and a bounded number waits; otherwise the server queues.
- Requests that a lost instance was answering fail; those that still waited there go to another instance.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from mme_fleet import replies
from mme_fleet.events import (
    Action,
    Downloaded,
    Event,
    Forward,
    InstanceDraining,
    InstanceLost,
    InstanceUp,
    Loaded,
    LoadFailed,
    Release,
    Replied,
    Reply,
    ReplyError,
    Request,
    Tick,
    Unloaded,
    ZoneLost,
)
from mme_fleet.instance import Instance, InstanceState, ModelEntry, ModelState
from mme_fleet.residency import Residency
from mme_fleet.routing import InstanceView, Router, StickyRouter
from mme_fleet.settings import FleetSettings
from mme_fleet.snapshot import FleetSnapshot

__all__ = ["Fleet"]

_OK = 200


@dataclass(slots=True, eq=False)
class _Waiting:
    """A request that is not forwarded yet, and the entry that keeps it waiting."""

    id: int
    model: str
    deadline: float
    entry: ModelEntry | None = None
    cold: bool = False


class Fleet:
    """One fleet of instances under one endpoint variant. No I/O, no clock, no randomness.

    Args:
        settings: its constants.
        router: chooses instances; `StickyRouter` unless given.
    """

    def __init__(self, settings: FleetSettings | None = None, router: Router | None = None) -> None:
        self._settings = settings or FleetSettings()
        self._route = cast(Callable[[str, Fleet], Instance], (router or StickyRouter()).route)  # the views that routers see
        queue_size = self._settings.model_queue_size
        self._served_at_once = sys.maxsize if queue_size is None else self._settings.workers_per_model
        self._held = sys.maxsize if queue_size is None else self._settings.workers_per_model + queue_size
        self._instances: dict[str, Instance] = {}
        self._up: tuple[Instance, ...] = ()
        self._residency = Residency(self._settings, self._instances, self._refuse)
        self._holders, self._loaders = self._residency.holders, self._residency.loaders
        self._flying: dict[int, ModelEntry] = {}
        self._waiting: dict[int, _Waiting] = {}
        self._deadlines: deque[_Waiting] = deque()
        self._seen = 0
        self._hits = 0
        self._handlers: Mapping[type[Any], Callable[[Any, float, list[Action]], None]] = {
            Downloaded: self._residency.on_downloaded,
            Loaded: self._on_loaded,
            LoadFailed: self._residency.on_load_failed,
            Unloaded: self._residency.on_unloaded,
            Tick: self._on_tick,
            InstanceUp: self._on_instance_up,
            InstanceDraining: self._on_instance_draining,
            InstanceLost: self._on_instance_lost,
            ZoneLost: self._on_zone_lost,
        }

    def on(self, event: Event, now: float) -> tuple[Action, ...]:
        """Take one event at time ``now`` (seconds, never less than before) and say what to do.

        The same events at the same times always give the same actions. What an instance reports about work that a loss
        or a failure has overtaken is ignored, as long as the instance is down: whoever drives the fleet must not report, after
        `InstanceUp`, about work of an earlier life of that instance.

        Raises:
            ValueError: a request id is used twice, or an instance comes up that is up.
        """
        if isinstance(event, Request):
            answer = self.request(event.request, event.model, now)
            return (Forward(event.request, answer, event.model, cold=False),) if isinstance(answer, str) else answer
        if isinstance(event, Replied):
            answers = self.replied(event.request, event.status, now)
            return (Reply(event.request),) if answers is None else answers
        actions: list[Action] = []
        self._handlers[type(event)](event, now, actions)
        return tuple(actions)

    def request(self, request: int, model: str, now: float) -> str | tuple[Action, ...]:
        """As `on` with a `Request`, without values for what happens most: a simulator makes millions of these.

        Returns:
            The actions; for a hit, whose only one is to forward the request (``cold`` is false), the name of the instance.
        """
        flying = self._flying
        if request in flying or request in self._waiting:
            raise ValueError(f"request {request} is under way: use every id once")
        self._seen += 1
        if not self._up:
            return (Reply(request, replies.unavailable("no instance is in service")),)
        instance = self._route(model, self)
        entry = instance.loaded.get(model)
        if entry is not None and entry.in_flight < self._served_at_once:
            self._hits += 1
            instance.outstanding += 1
            instance.requests += 1
            instance.loaded.move_to_end(model)
            entry.in_flight += 1
            entry.last_used = now
            flying[request] = entry
            return instance.id
        self._check_choice(instance)
        actions: list[Action] = []
        waiting = self._waiting[request] = _Waiting(request, model, now + self._settings.load_wait_seconds)
        self._deadlines.append(waiting)
        self._place(waiting, instance, now, actions)
        self._hits += entry is not None and waiting.entry is entry
        return tuple(actions)

    def replied(self, request: int, status: int | None, now: float) -> tuple[Action, ...] | None:
        """As `on` with a `Replied`, without values for what happens most.

        Returns:
            The actions; ``None`` when the only one is to answer the caller with the container's answer.
        """
        entry = self._flying.pop(request, None)
        if entry is None:
            return ()
        instance = entry.instance
        instance.outstanding -= 1
        entry.in_flight -= 1
        if status == _OK and not instance.awaits_answers and not entry.waiting:
            return None
        error = replies.reply_error(status)
        actions: list[Action] = [Reply(request, error)]
        if instance.state is InstanceState.DRAINING:
            self._release_if_idle(instance, actions)
        elif entry.waiting:
            self._serve_waiting(entry, now, actions)
        elif entry.in_flight == 0:
            self._residency.idle(instance, entry, actions)
        return tuple(actions) if error or len(actions) > 1 else None

    def next_deadline(self) -> float | None:
        """When the next `Tick` is due, in the seconds of ``now``; ``None`` when no request waits."""
        while self._deadlines and self._deadlines[0].id not in self._waiting:
            self._deadlines.popleft()
        return self._deadlines[0].deadline if self._deadlines else None

    def snapshot(self) -> FleetSnapshot:
        """The state as values."""
        return FleetSnapshot(
            instances=tuple(instance.snapshot() for instance in self._instances.values()),
            requests=self._seen,
            hits=self._hits,
            cold_loads=sum(self._residency.loads.values()),
            evictions=self._residency.evictions,
            loads_by_model=dict(self._residency.loads),
        )

    def used_bytes(self) -> dict[str, int]:
        """The memory that is taken on each instance, as in `snapshot`, without its models."""
        return {instance.id: instance.used_bytes for instance in self._instances.values()}

    # What routers see: mme_fleet.routing.FleetView.

    @property
    def instances(self) -> Sequence[InstanceView]:
        """See `mme_fleet.FleetView`."""
        return self._up

    def holders(self, model: str) -> Sequence[InstanceView]:
        """See `mme_fleet.FleetView`."""
        return self._holders.get(model, ())

    def loaders(self, model: str) -> Sequence[InstanceView]:
        """See `mme_fleet.FleetView`."""
        return self._loaders.get(model, ())

    # Requests.

    def _serve_waiting(self, entry: ModelEntry, now: float, actions: list[Action]) -> None:
        """Forward those who wait for a model in memory, as many as its workers take."""
        instance = entry.instance
        while entry.waiting and entry.in_flight < self._served_at_once:
            request_id = next(iter(entry.waiting))
            del entry.waiting[request_id]
            waiting = self._waiting.pop(request_id)
            instance.requests += 1
            instance.loaded.move_to_end(entry.model)
            entry.in_flight += 1
            entry.last_used = now
            self._flying[request_id] = entry
            actions.append(Forward(request_id, instance.id, entry.model, waiting.cold))

    def _place_again(self, request: _Waiting, now: float, actions: list[Action]) -> None:
        """Send a request elsewhere that waited on an instance which is no longer in service."""
        if not self._up:
            self._fail(request, replies.unavailable("no instance is in service"), actions)
            return
        instance = self._route(request.model, self)
        self._check_choice(instance)
        self._place(request, instance, now, actions)

    def _check_choice(self, instance: Instance) -> None:
        if instance not in self._up:
            raise ValueError(f"the router chose instance {instance.id!r}, which takes no requests: it must be one of fleet.instances")

    def _place(self, request: _Waiting, instance: Instance, now: float, actions: list[Action]) -> None:
        """At this instance a request is forwarded, waits for the model or one of its workers, or is refused."""
        entry = instance.loaded.get(request.model) or instance.pending.get(request.model)
        if entry is not None and entry.in_flight + len(entry.waiting) >= self._held:
            self._fail(request, replies.queue_full(request.model, len(entry.waiting)), actions)
            return
        comes_anew = entry is None
        if entry is None:
            entry = self._residency.expect(instance, request.model)
        request.entry = entry
        entry.waiting[request.id] = None
        instance.outstanding += 1
        if entry.state is ModelState.LOADED:
            self._serve_waiting(entry, now, actions)
            return
        request.cold = True
        if comes_anew:
            self._residency.proceed(instance, actions)

    def _refuse(self, entry: ModelEntry, error: ReplyError, actions: list[Action]) -> None:
        """Answer everybody whom an entry keeps waiting."""
        entry.instance.outstanding -= len(entry.waiting)
        for request_id in entry.waiting:
            self._fail(self._waiting[request_id], error, actions)
        entry.waiting.clear()

    def _fail(self, request: _Waiting, error: ReplyError, actions: list[Action]) -> None:
        del self._waiting[request.id]
        actions.append(Reply(request.id, error))

    def _on_tick(self, _event: Tick, now: float, actions: list[Action]) -> None:
        while self._deadlines and (self._deadlines[0].deadline <= now or self._deadlines[0].id not in self._waiting):
            request = self._deadlines.popleft()
            if request.id in self._waiting:
                assert request.entry is not None
                del request.entry.waiting[request.id]
                request.entry.instance.outstanding -= 1
                late = request.entry.state is ModelState.LOADED
                self._fail(request, replies.timed_out() if late else replies.not_ready(request.model), actions)

    def _on_loaded(self, event: Loaded, now: float, actions: list[Action]) -> None:
        entry = self._residency.on_loaded(event)
        if entry is not None:
            self._serve_waiting(entry, now, actions)
            self._residency.proceed(entry.instance, actions)

    # The instances themselves.

    def _on_instance_up(self, event: InstanceUp, _now: float, _actions: list[Action]) -> None:
        instance = self._instances.setdefault(event.instance, Instance(event.instance))
        if instance.state is not InstanceState.DOWN:
            raise ValueError(f"instance {event.instance!r} comes up but is {instance.state.value}: report its loss first")
        instance.start(event.memory_bytes, event.disk_bytes, event.zone, disk_kept=event.disk_kept)
        for model, accounted_bytes in event.resident:
            self._residency.hold(instance, model, accounted_bytes)
        self._up = (*self._up, instance)

    def _on_instance_draining(self, event: InstanceDraining, now: float, actions: list[Action]) -> None:
        instance = self._instances.get(event.instance)
        if instance is None or instance.state is InstanceState.DRAINING:
            return
        if instance.state is InstanceState.UP:
            instance.drain()
            waiting = self._leave_service([instance])
            self._residency.abandon_loads(instance)
            for request in waiting:
                self._place_again(request, now, actions)
        self._release_if_idle(instance, actions)

    def _on_instance_lost(self, event: InstanceLost, now: float, actions: list[Action]) -> None:
        instance = self._instances.get(event.instance)
        if instance is not None:
            self._lose([instance], now, actions)

    def _on_zone_lost(self, event: ZoneLost, now: float, actions: list[Action]) -> None:
        self._lose([instance for instance in self._instances.values() if instance.zone == event.zone], now, actions)

    def _lose(self, instances: Collection[Instance], now: float, actions: list[Action]) -> None:
        """Instances die together."""
        lost = [instance for instance in instances if instance.state is not InstanceState.DOWN]
        draining = [instance for instance in lost if instance.state is InstanceState.DRAINING]
        waiting = self._leave_service([instance for instance in lost if instance.state is InstanceState.UP])
        for instance in lost:
            instance.lose_memory()
            instance.losses += 1
        error = replies.unavailable("the instance was lost while it answered")
        for request_id in [request_id for request_id, entry in self._flying.items() if entry.instance in lost]:
            del self._flying[request_id]
            actions.append(Reply(request_id, error))
        for request in waiting:
            self._place_again(request, now, actions)
        for instance in draining:
            self._release_if_idle(instance, actions)

    def _leave_service(self, instances: Collection[Instance]) -> list[_Waiting]:
        """Take instances out of the routers' sight; the requests that waited there, oldest first."""
        self._up = tuple(instance for instance in self._up if instance not in instances)
        for instance in instances:
            self._residency.leave_service(instance)
        moving = [request for request in self._waiting.values() if request.entry is not None and request.entry.instance in instances]
        for request in moving:
            assert request.entry is not None
            del request.entry.waiting[request.id]
            request.entry.instance.outstanding -= 1
        return moving

    def _release_if_idle(self, instance: Instance, actions: list[Action]) -> None:
        if instance.outstanding == 0:
            instance.lose_memory()
            del self._instances[instance.id]
            actions.append(Release(instance.id))
