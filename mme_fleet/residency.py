"""The way of models into and out of the instances' memory: turns, downloads, memory, evictions, retries.

Internal to `mme_fleet.Fleet`, whose rules are told there; requests are not known here but as those that an entry keeps waiting.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

from mme_fleet import replies
from mme_fleet.events import Action, Discard, Download, Downloaded, Load, Loaded, LoadFailed, LoadFailure, ReplyError, Unload, Unloaded
from mme_fleet.instance import Instance, InstanceState, ModelEntry, ModelState
from mme_fleet.settings import FleetSettings

__all__ = ["Residency"]


class Residency:
    """Where the models of a fleet are.

    Args:
        settings: of the fleet.
        instances: those that the fleet knows, by name.
        refuse: answers everybody whom an entry keeps waiting with an error.
    """

    def __init__(
        self,
        settings: FleetSettings,
        instances: Mapping[str, Instance],
        refuse: Callable[[ModelEntry, ReplyError, list[Action]], None],
    ) -> None:
        self._settings, self._instances, self._refuse = settings, instances, refuse
        self._loads_at_once = sys.maxsize if settings.loads_at_once is None else settings.loads_at_once
        self._cached = settings.cache_enabled
        self._memory_bytes = settings.memory_bytes
        self.holders: dict[str, tuple[Instance, ...]] = {}
        self.loaders: dict[str, tuple[Instance, ...]] = {}
        self.loads: dict[str, int] = {}
        self.evictions = 0

    def hold(self, instance: Instance, model: str, accounted_bytes: int) -> None:
        """An instance came up with a model in its memory."""
        instance.hold(model, accounted_bytes)
        _add(self.holders, model, instance)

    def expect(self, instance: Instance, model: str) -> ModelEntry:
        """Put a model on its way into an instance's memory; `proceed` starts it."""
        entry = ModelEntry(instance, model, self._memory_bytes(instance.disk.get(model, 0)))
        instance.expect(entry)
        _add(self.loaders, model, instance)
        return entry

    def proceed(self, instance: Instance, actions: list[Action]) -> None:
        """Do what an instance can do now: evict, load, begin the next loads."""
        if instance.state is not InstanceState.UP:
            return
        if instance.queue or instance.overcommitted_bytes > 0:
            self._make_room(instance, actions)
        if instance.backlog and instance.active_loads < self._loads_at_once:
            self._begin_loads(instance, actions)
        # A model that becomes idle is then of use, or has to go.
        instance.awaits_answers = bool(instance.queue) or not self._cached or instance.overcommitted_bytes > 0

    def idle(self, instance: Instance, entry: ModelEntry, actions: list[Action]) -> None:
        """The last request of a model was answered."""
        if not self._cached:
            self._unload(instance, entry, actions)
        self.proceed(instance, actions)

    def leave_service(self, instance: Instance) -> None:
        """Take an instance out of the routers' sight."""
        for model in instance.loaded:
            _remove(self.holders, model, instance)
        for model in instance.pending:
            _remove(self.loaders, model, instance)

    def abandon_loads(self, instance: Instance) -> None:
        """Nothing more is to come into an instance's memory; what it still reports about its loads is ignored."""
        for entry in tuple(instance.pending.values()):
            if entry.state is ModelState.LOADING:
                instance.undo_load(entry)
            instance.drop_pending(entry)

    # What instances report.

    def on_downloaded(self, event: Downloaded, _now: float, actions: list[Action]) -> None:
        """See `mme_fleet.Downloaded`."""
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
        else:
            for model in disposable:
                self._discard(instance, model, actions)
            instance.revise_expectation(entry, self._memory_bytes(event.unpacked_bytes))
            self._enqueue(instance, entry, actions)
        self.proceed(instance, actions)

    def on_loaded(self, event: Loaded) -> ModelEntry | None:
        """See `mme_fleet.Loaded`: the entry, now in memory, if that was awaited. `proceed` is the caller's."""
        instance, entry = self._find_pending(event.instance, event.model, ModelState.LOADING)
        if instance is None or entry is None:
            return None
        instance.finish_load(entry, event.measured_bytes)
        _remove(self.loaders, entry.model, instance)
        _add(self.holders, entry.model, instance)
        self.loads[entry.model] = self.loads.get(entry.model, 0) + 1
        return entry

    def on_load_failed(self, event: LoadFailed, _now: float, actions: list[Action]) -> None:
        """See `mme_fleet.LoadFailed`."""
        instance = self._instances.get(event.instance)
        entry = instance.pending.get(event.model) if instance else None
        if instance is None or entry is None or entry.state not in (ModelState.DOWNLOADING, ModelState.LOADING):
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
        self.proceed(instance, actions)

    def on_unloaded(self, event: Unloaded, _now: float, actions: list[Action]) -> None:
        """See `mme_fleet.Unloaded`."""
        instance = self._instances.get(event.instance)
        if instance is None or event.model not in instance.unloading:
            return
        instance.finish_unload(event.model)
        for entry in instance.queue.values():
            if entry.after == event.model:
                entry.after = None
        if not self._cached:
            self._discard(instance, event.model, actions)
        self.proceed(instance, actions)

    # The way into memory.

    def _begin_loads(self, instance: Instance, actions: list[Action]) -> None:
        """Begin the loads whose turn has come, in order; one that nobody waits for any more is dropped."""
        while instance.active_loads < self._loads_at_once and (entry := self._next_load(instance)) is not None:
            if not entry.waiting:
                instance.drop_pending(entry)
                _remove(self.loaders, entry.model, instance)
                continue
            instance.begin(entry)
            stored = instance.disk.get(entry.model)
            if stored is None:
                entry.state = ModelState.DOWNLOADING
                actions.append(Download(instance.id, entry.model))
            else:
                instance.revise_expectation(entry, self._memory_bytes(stored))
                self._enqueue(instance, entry, actions)
                self._make_room(instance, actions)

    def _next_load(self, instance: Instance) -> ModelEntry | None:
        """Whose turn it is. One whose artifact is about to be removed from disk waits for that, and others pass it."""
        if self._cached:
            return next(iter(instance.backlog.values()), None)
        return next((entry for entry in instance.backlog.values() if entry.model not in instance.unloading), None)

    def _enqueue(self, instance: Instance, entry: ModelEntry, actions: list[Action]) -> None:
        """A model on disk asks for memory."""
        if entry.accounted_bytes > instance.memory_bytes:
            entry.state = ModelState.QUEUED
            error = replies.too_large(entry.model, entry.accounted_bytes, instance.memory_bytes, "memory")
            self._fail_load(instance, entry, error, actions, discard=True)
        else:
            instance.enqueue(entry)

    def _make_room(self, instance: Instance, actions: list[Action]) -> None:
        """Start the loads that fit, in order, and evict for the next one."""
        overcommitted = instance.overcommitted_bytes
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
        instance.evictions += 1
        self.evictions += 1
        self._unload(instance, entry, actions)

    def _unload(self, instance: Instance, entry: ModelEntry, actions: list[Action]) -> None:
        instance.begin_unload(entry)
        _remove(self.holders, entry.model, instance)
        actions.append(Unload(instance.id, entry.model))

    def _fail_load(self, instance: Instance, entry: ModelEntry, error: ReplyError, actions: list[Action], *, discard: bool = False) -> None:
        """Give a load up: nothing of it stays in memory, and everybody who waited hears why."""
        instance.drop_pending(entry)
        _remove(self.loaders, entry.model, instance)
        if discard or not self._cached:
            self._discard(instance, entry.model, actions)
        self._refuse(entry, error, actions)

    def _discard(self, instance: Instance, model: str, actions: list[Action]) -> None:
        if instance.discard(model):
            actions.append(Discard(instance.id, model))

    def _find_pending(self, instance_id: str, model: str, state: ModelState) -> tuple[Instance | None, ModelEntry | None]:
        instance = self._instances.get(instance_id)
        entry = instance.pending.get(model) if instance else None
        return instance, entry if entry is not None and entry.state is state else None


def _add(index: dict[str, tuple[Instance, ...]], model: str, instance: Instance) -> None:
    index[model] = (*index.get(model, ()), instance)


def _remove(index: dict[str, tuple[Instance, ...]], model: str, instance: Instance) -> None:
    places = index[model]
    if len(places) == 1:
        del index[model]
    else:
        index[model] = tuple(place for place in places if place is not instance)
