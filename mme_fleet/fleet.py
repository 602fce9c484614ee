"""The residency engine: where models are, and what happens next.

Rules, with their source where AWS documents them (Developer Guide, "How multi-model endpoints work", and the MME container
contract, "Build Your Own Container for multi-model endpoints"):

- A request goes to an instance by the router's choice; if the model is not in its memory, it is downloaded to the
  instance's disk, unless it lies there already, and loaded.
- Memory is a budget in bytes. A model takes its unpacked size and an overhead from the start of its load until its unload
  is done; `Loaded` may correct it. When a load does not fit, the least recently used models without a request in flight
  are unloaded; if that does not suffice, the load waits. Loads get memory in the order in which they came.
- A load that the container refuses with 507 is tried again after an eviction, a bounded number of times.
- Disk is a budget too: artifacts stay there after their eviction from memory, and those that left memory first go first.
- A request that waits longer than ``load_wait_seconds`` gets ModelNotReadyException while the load goes on.
- Requests that a lost instance was answering fail; those that still waited for a load there go to another instance.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from mme_fleet import replies
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
    ReplyError,
    Request,
    Tick,
    Unload,
    Unloaded,
)
from mme_fleet.instance import Instance, InstanceState, ModelEntry, ModelState
from mme_fleet.routing import InstanceView, Router, StickyRouter
from mme_fleet.settings import FleetSettings
from mme_fleet.snapshot import FleetSnapshot

__all__ = ["Fleet"]


@dataclass(slots=True)
class _Pending:
    """A request that has no answer yet."""

    id: int
    model: str
    deadline: float
    instance: Instance | None = None
    forwarded: bool = False
    waited: bool = False


class Fleet:
    """One fleet of instances under one endpoint variant. No I/O, no clock, no randomness.

    Args:
        settings: its constants.
        router: chooses instances; `StickyRouter` unless given.
    """

    def __init__(self, settings: FleetSettings | None = None, router: Router | None = None) -> None:
        self._settings = settings or FleetSettings()
        self._router = router or StickyRouter()
        self._instances: dict[str, Instance] = {}
        self._up: dict[str, Instance] = {}
        self._holders: dict[str, dict[str, Instance]] = {}
        self._loaders: dict[str, dict[str, Instance]] = {}
        self._requests: dict[int, _Pending] = {}
        self._deadlines: deque[_Pending] = deque()
        self._seen = 0
        self._hits = 0
        self._loads: dict[str, int] = {}
        self._evictions = 0
        self._handlers: Mapping[type[Any], Callable[[Any, float, list[Action]], None]] = {
            Request: self._on_request,
            Replied: self._on_replied,
            Downloaded: self._on_downloaded,
            Loaded: self._on_loaded,
            LoadFailed: self._on_load_failed,
            Unloaded: self._on_unloaded,
            Tick: self._on_tick,
            InstanceUp: self._on_instance_up,
            InstanceDraining: self._on_instance_draining,
            InstanceLost: self._on_instance_lost,
        }

    def on(self, event: Event, now: float) -> tuple[Action, ...]:
        """Take one event at time ``now`` (seconds, never less than before) and say what to do.

        The same events at the same times always give the same actions. What an instance reports about work that a loss
        or a failure has overtaken is ignored, as long as the instance is down: whoever drives the fleet must not report, after
        `InstanceUp`, about work of an earlier life of that instance.

        Raises:
            ValueError: a request id is used twice, or an instance comes up that is up.
        """
        actions: list[Action] = []
        self._handlers[type(event)](event, now, actions)
        return tuple(actions)

    def next_deadline(self) -> float | None:
        """When the next `Tick` is due, in the seconds of ``now``; ``None`` when no request waits."""
        while self._deadlines and not self._waits(self._deadlines[0]):
            self._deadlines.popleft()
        return self._deadlines[0].deadline if self._deadlines else None

    def snapshot(self) -> FleetSnapshot:
        """The state as values."""
        return FleetSnapshot(
            instances=tuple(instance.snapshot() for instance in self._instances.values()),
            requests=self._seen,
            hits=self._hits,
            cold_loads=sum(self._loads.values()),
            evictions=self._evictions,
            loads_by_model=dict(self._loads),
        )

    # What routers see: mme_fleet.routing.FleetView.

    @property
    def instances(self) -> Collection[InstanceView]:
        """The instances that take requests."""
        return self._up.values()

    def holders(self, model: str) -> Collection[InstanceView]:
        """Those with the model in memory."""
        return self._holders.get(model, {}).values()

    def loaders(self, model: str) -> Collection[InstanceView]:
        """Those that are bringing it into memory."""
        return self._loaders.get(model, {}).values()

    # Requests.

    def _on_request(self, event: Request, now: float, actions: list[Action]) -> None:
        if event.request in self._requests:
            raise ValueError(f"request {event.request} is under way: use every id once")
        self._seen += 1
        request = _Pending(event.request, event.model, now + self._settings.load_wait_seconds)
        self._requests[event.request] = request
        self._place(request, now, actions)

    def _place(self, request: _Pending, now: float, actions: list[Action]) -> None:
        """Send a request to an instance, or let it wait there for the model."""
        if not self._up:
            self._fail_request(request, replies.unavailable("no instance is in service"), actions)
            return
        instance = self._instances[self._router.route(request.model, self).id]
        request.instance = instance
        entry = instance.loaded.get(request.model)
        if entry is not None:
            if not request.waited:
                self._hits += 1
            self._forward(request, instance, entry, now, actions)
            return
        if not request.waited:
            request.waited = True
            self._deadlines.append(request)
        entry = instance.pending.get(request.model)
        if entry is not None:
            entry.waiting[request.id] = None
            return
        stored = instance.disk.get(request.model)
        entry = ModelEntry(request.model, (stored or 0) + self._settings.model_overhead_bytes, ModelState.DOWNLOADING)
        entry.waiting[request.id] = None
        instance.expect(entry)
        self._loaders.setdefault(request.model, {})[instance.id] = instance
        if stored is None:
            actions.append(Download(instance.id, request.model))
        else:
            self._enqueue(instance, entry, actions)

    def _forward(self, request: _Pending, instance: Instance, entry: ModelEntry, now: float, actions: list[Action]) -> None:
        request.forwarded = True
        instance.outstanding += 1
        instance.requests += 1
        instance.loaded.move_to_end(entry.model)
        entry.in_flight += 1
        entry.last_used = now
        actions.append(Forward(request.id, instance.id, entry.model, request.waited))

    def _on_replied(self, event: Replied, _now: float, actions: list[Action]) -> None:
        request = self._requests.get(event.request)
        if request is None or not request.forwarded:
            return
        instance = request.instance
        assert instance is not None
        instance.outstanding -= 1
        entry = instance.loaded[request.model]
        entry.in_flight -= 1
        del self._requests[request.id]
        actions.append(Reply(request.id, replies.reply_error(event.status)))
        if instance.state is InstanceState.DRAINING:
            self._release_if_idle(instance, actions)
        elif entry.in_flight == 0:
            self._make_room(instance, actions)

    def _fail_request(self, request: _Pending, error: ReplyError, actions: list[Action]) -> None:
        del self._requests[request.id]
        actions.append(Reply(request.id, error))

    def _waits(self, request: _Pending) -> bool:
        return not request.forwarded and request.id in self._requests

    def _on_tick(self, _event: Tick, now: float, actions: list[Action]) -> None:
        while self._deadlines and (self._deadlines[0].deadline <= now or not self._waits(self._deadlines[0])):
            request = self._deadlines.popleft()
            if self._waits(request):
                assert request.instance is not None
                del request.instance.pending[request.model].waiting[request.id]
                self._fail_request(request, replies.not_ready(request.model), actions)

    # The way into memory.

    def _on_downloaded(self, event: Downloaded, _now: float, actions: list[Action]) -> None:
        instance, entry = self._find_pending(event.instance, event.model, ModelState.DOWNLOADING)
        if instance is None or entry is None:
            return
        instance.store(event.model, event.unpacked_bytes)
        disposable = instance.disposable()
        if disposable is None:
            if event.unpacked_bytes > instance.disk_bytes:
                error = replies.too_large(event.model, event.unpacked_bytes, instance.disk_bytes, "disk")
            else:
                error = replies.unavailable(f"no space is left on the instance's disk for {event.model}")
            self._fail_load(instance, entry, error, actions, discard=True)
            return
        for model in disposable:
            self._discard(instance, model, actions)
        instance.revise_expectation(entry, event.unpacked_bytes + self._settings.model_overhead_bytes)
        self._enqueue(instance, entry, actions)

    def _enqueue(self, instance: Instance, entry: ModelEntry, actions: list[Action]) -> None:
        """A model on disk asks for memory."""
        if entry.accounted_bytes > instance.memory_bytes:
            error = replies.too_large(entry.model, entry.accounted_bytes, instance.memory_bytes, "memory")
            self._fail_load(instance, entry, error, actions, discard=True)
            return
        instance.enqueue(entry)
        self._make_room(instance, actions)

    def _make_room(self, instance: Instance, actions: list[Action]) -> None:
        """Start the loads that fit, in order, and evict for the next one."""
        overcommitted = instance.used_bytes - instance.unloading_bytes - instance.memory_bytes
        while overcommitted > 0:  # a measured size was larger than the accounted one
            victim = instance.oldest_idle()
            if victim is None:
                return
            overcommitted -= victim.accounted_bytes
            self._evict(instance, victim, actions)
        while instance.queue:
            entry = next(iter(instance.queue.values()))
            if entry.model in instance.unloading or entry.after in instance.unloading:
                return
            if entry.must_evict:
                if self._evict_for_retry(instance, entry, actions):
                    continue
                return
            missing = entry.accounted_bytes + instance.used_bytes - instance.memory_bytes
            if missing <= 0:
                instance.begin_load(entry)
                actions.append(Load(instance.id, entry.model))
                continue
            missing -= instance.unloading_bytes
            if missing > 0:
                for victim in instance.idle_victims(missing) or ():
                    self._evict(instance, victim, actions)
            return

    def _evict_for_retry(self, instance: Instance, entry: ModelEntry, actions: list[Action]) -> bool:
        """Free memory, whatever the books say, after a load that ended out of memory; ``True`` if the load was given up."""
        victim = None if instance.unloading else instance.oldest_idle()
        if victim is not None:
            self._evict(instance, victim, actions)
        if instance.unloading:
            entry.must_evict, entry.after = False, next(reversed(instance.unloading))
            return False
        if instance.loaded or any(other.state is ModelState.LOADING for other in instance.pending.values()):
            return False  # one of them becomes idle
        self._fail_load(instance, entry, replies.out_of_memory(entry.model), actions)
        return True

    def _evict(self, instance: Instance, entry: ModelEntry, actions: list[Action]) -> None:
        instance.begin_unload(entry)
        self._forget(self._holders, entry.model, instance)
        self._evictions += 1
        actions.append(Unload(instance.id, entry.model))

    def _on_unloaded(self, event: Unloaded, _now: float, actions: list[Action]) -> None:
        instance = self._instances.get(event.instance)
        if instance is not None and event.model in instance.unloading:
            instance.finish_unload(event.model)
            for entry in instance.queue.values():
                if entry.after == event.model:
                    entry.after = None
            self._make_room(instance, actions)

    def _on_loaded(self, event: Loaded, now: float, actions: list[Action]) -> None:
        instance, entry = self._find_pending(event.instance, event.model, ModelState.LOADING)
        if instance is None or entry is None:
            return
        instance.finish_load(entry, event.measured_bytes)
        self._forget(self._loaders, entry.model, instance)
        self._holders.setdefault(entry.model, {})[instance.id] = instance
        self._loads[entry.model] = self._loads.get(entry.model, 0) + 1
        for request_id in entry.waiting:
            self._forward(self._requests[request_id], instance, entry, now, actions)
        entry.waiting.clear()
        self._make_room(instance, actions)

    def _on_load_failed(self, event: LoadFailed, _now: float, actions: list[Action]) -> None:
        instance = self._instances.get(event.instance)
        entry = instance.pending.get(event.model) if instance else None
        if instance is None or entry is None or entry.state is ModelState.QUEUED:
            return
        if entry.state is ModelState.LOADING:
            instance.undo_load(entry)
        if event.kind is LoadFailure.OUT_OF_MEMORY:
            entry.attempts += 1
            if entry.attempts < self._settings.load_attempts:
                entry.must_evict = True
                instance.enqueue(entry, first=True)
            else:
                self._fail_load(instance, entry, replies.out_of_memory(entry.model), actions)
        else:
            # A copy that the container refused may be a damaged one: a later request fetches it again.
            self._fail_load(instance, entry, replies.load_error(event), actions, discard=event.kind is LoadFailure.BROKEN)
        self._make_room(instance, actions)

    def _fail_load(self, instance: Instance, entry: ModelEntry, error: ReplyError, actions: list[Action], *, discard: bool = False) -> None:
        """Give a load up: nothing of it stays in memory, and everybody who waited hears why."""
        instance.drop_pending(entry)
        self._forget(self._loaders, entry.model, instance)
        if discard:
            self._discard(instance, entry.model, actions)
        for request_id in entry.waiting:
            self._fail_request(self._requests[request_id], error, actions)

    def _discard(self, instance: Instance, model: str, actions: list[Action]) -> None:
        if instance.discard(model):
            actions.append(Discard(instance.id, model))

    def _find_pending(self, instance_id: str, model: str, state: ModelState) -> tuple[Instance | None, ModelEntry | None]:
        instance = self._instances.get(instance_id)
        entry = instance.pending.get(model) if instance else None
        return instance, entry if entry is not None and entry.state is state else None

    @staticmethod
    def _forget(index: dict[str, dict[str, Instance]], model: str, instance: Instance) -> None:
        places = index.get(model)
        if places is not None and places.pop(instance.id, None) is not None and not places:
            del index[model]

    # The instances themselves.

    def _on_instance_up(self, event: InstanceUp, _now: float, _actions: list[Action]) -> None:
        instance = self._instances.setdefault(event.instance, Instance(event.instance))
        if instance.state is not InstanceState.DOWN:
            raise ValueError(f"instance {event.instance!r} comes up but is {instance.state.value}: report its loss first")
        instance.start(event.memory_bytes, event.disk_bytes, disk_kept=event.disk_kept)
        self._up[instance.id] = instance

    def _on_instance_draining(self, event: InstanceDraining, now: float, actions: list[Action]) -> None:
        instance = self._instances.get(event.instance)
        if instance is None or instance.state is InstanceState.DRAINING:
            return
        self._up.pop(instance.id, None)
        if instance.state is InstanceState.UP:
            instance.state = InstanceState.DRAINING
            waiting = self._leave_service(instance)
            for entry in tuple(instance.pending.values()):  # what still comes from these loads is ignored
                if entry.state is ModelState.LOADING:
                    instance.undo_load(entry)
                instance.drop_pending(entry)
            for request in waiting:
                self._place(request, now, actions)
        self._release_if_idle(instance, actions)

    def _on_instance_lost(self, event: InstanceLost, now: float, actions: list[Action]) -> None:
        instance = self._instances.get(event.instance)
        if instance is None or instance.state is InstanceState.DOWN:
            return
        draining = instance.state is InstanceState.DRAINING
        self._up.pop(instance.id, None)
        waiting = self._leave_service(instance)
        instance.lose_memory()
        instance.losses += 1
        for request in [request for request in self._requests.values() if request.forwarded and request.instance is instance]:
            self._fail_request(request, replies.unavailable("the instance was lost while it answered"), actions)
        for request in waiting:
            self._place(request, now, actions)
        if draining:
            self._release_if_idle(instance, actions)

    def _leave_service(self, instance: Instance) -> list[_Pending]:
        """Take the instance out of the routers' sight; the requests that wait there, oldest first."""
        for model in instance.loaded:
            self._forget(self._holders, model, instance)
        for model in instance.pending:
            self._forget(self._loaders, model, instance)
        return [request for request in self._requests.values() if request.instance is instance and not request.forwarded]

    def _release_if_idle(self, instance: Instance, actions: list[Action]) -> None:
        if instance.outstanding == 0:
            del self._instances[instance.id]
            actions.append(Release(instance.id))
