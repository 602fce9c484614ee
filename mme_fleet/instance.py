"""The books of one instance: what is in its memory and on its disk, what is on the way, and what may be evicted.

Internal to `mme_fleet.Fleet`, which decides; here only bytes and orders are kept right.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from enum import Enum

from mme_fleet.snapshot import InstanceSnapshot, ModelSnapshot

__all__ = ["Instance", "InstanceState", "ModelEntry", "ModelState"]


class ModelState(Enum):
    """Where a model is on its way into an instance's memory."""

    WAITING = "waiting"
    DOWNLOADING = "downloading"
    QUEUED = "queued"
    LOADING = "loading"
    LOADED = "loaded"


class InstanceState(Enum):
    """Whether an instance takes requests."""

    UP = "up"
    DRAINING = "draining"
    DOWN = "down"


@dataclass(slots=True, eq=False)
class ModelEntry:
    """A model in an instance's memory, or on its way there.

    Attributes:
        instance: where it is.
        model: its TargetModel.
        accounted_bytes: what it takes of the budget once it is loading; until then what it is expected to take.
        state: how far it is.
        waiting: requests that wait for the load or for a worker, in the order in which they came (a dict as an ordered set).
        in_flight: requests that the instance is answering with it.
        last_used: when a request was last forwarded to it.
        attempts: loads that ended out of memory.
        must_evict: the next attempt needs an eviction first.
        after: the model that must be gone before the next attempt.
    """

    instance: Instance
    model: str
    accounted_bytes: int
    state: ModelState = ModelState.WAITING
    waiting: dict[int, None] = field(default_factory=dict)
    in_flight: int = 0
    last_used: float | None = None
    attempts: int = 0
    must_evict: bool = False
    after: str | None = None


class Instance:
    """One instance; implements `mme_fleet.routing.InstanceView`."""

    __slots__ = (
        "active_loads",
        "awaits_answers",
        "backlog",
        "disk",
        "disk_bytes",
        "evictions",
        "free_bytes",
        "id",
        "loaded",
        "loads",
        "losses",
        "memory_bytes",
        "outstanding",
        "pending",
        "queue",
        "requests",
        "state",
        "unloading",
        "unloading_bytes",
        "unneeded",
        "used_bytes",
        "used_disk_bytes",
        "zone",
    )

    def __init__(self, instance_id: str) -> None:
        self.id = instance_id
        self.zone = ""
        self.state = InstanceState.DOWN
        self.memory_bytes = 0
        self.disk_bytes = 0
        self.outstanding = 0  # in flight or waiting here
        self.awaits_answers = False  # an answer may have consequences here
        self.loaded: OrderedDict[str, ModelEntry] = OrderedDict()  # least recently used first
        self.pending: dict[str, ModelEntry] = {}  # everything on its way into memory
        self.backlog: dict[str, ModelEntry] = {}  # those whose turn has not come, next first
        self.active_loads = 0  # the others
        self.queue: OrderedDict[str, ModelEntry] = OrderedDict()  # the queued ones, next first
        self.unloading: dict[str, int] = {}  # model -> bytes that still count
        self.disk: dict[str, int] = {}  # unpacked artifacts
        self.unneeded: dict[str, None] = {}  # those of them that memory does not need, next to be discarded first
        self.used_bytes = 0  # loading, loaded and unloading
        self.unloading_bytes = 0
        self.free_bytes = 0  # the budget less those, and less what is expected: waiting, downloading and queued
        self.used_disk_bytes = 0
        self.requests = 0
        self.loads = 0
        self.evictions = 0
        self.losses = 0

    @property
    def overcommitted_bytes(self) -> int:
        """Bytes beyond the budget once all unloads are done; a measured size was larger than the accounted one."""
        return self.used_bytes - self.unloading_bytes - self.memory_bytes

    @property
    def loads_in_progress(self) -> int:
        """See `mme_fleet.routing.InstanceView`."""
        return len(self.pending)

    def requests_of(self, model: str) -> int:
        """See `mme_fleet.routing.InstanceView`."""
        entry = self.loaded.get(model) or self.pending.get(model)
        return entry.in_flight + len(entry.waiting) if entry else 0

    def start(self, memory_bytes: int, disk_bytes: int, zone: str, *, disk_kept: bool) -> None:
        """Come up with these budgets and empty memory; `hold` follows for what it has loaded already."""
        self.state = InstanceState.UP
        self.awaits_answers = False
        self.zone = zone
        self.memory_bytes = self.free_bytes = memory_bytes
        self.disk_bytes = disk_bytes
        if not disk_kept:
            self.disk.clear()
            self.used_disk_bytes = 0
        self.unneeded = dict.fromkeys(self.disk)

    def drain(self) -> None:
        """Take no more requests."""
        self.state = InstanceState.DRAINING
        self.awaits_answers = True

    def hold(self, model: str, accounted_bytes: int) -> None:
        """It came up with this model in memory."""
        self.used_bytes += accounted_bytes
        self.loaded[model] = ModelEntry(self, model, accounted_bytes, ModelState.LOADED)

    def lose_memory(self) -> None:
        """Go down: everything but the disk is gone."""
        self.state = InstanceState.DOWN
        self.outstanding = self.used_bytes = self.unloading_bytes = self.active_loads = 0
        self.free_bytes = self.memory_bytes
        for gone in (self.loaded, self.pending, self.backlog, self.queue, self.unloading):
            gone.clear()

    def expect(self, entry: ModelEntry) -> None:
        """A model is to come into memory, when its turn has come."""
        self.pending[entry.model] = self.backlog[entry.model] = entry
        self.free_bytes -= entry.accounted_bytes

    def begin(self, entry: ModelEntry) -> None:
        """Its turn has come."""
        del self.backlog[entry.model]
        self.unneeded.pop(entry.model, None)
        self.active_loads += 1

    def revise_expectation(self, entry: ModelEntry, accounted_bytes: int) -> None:
        """Its size became known."""
        self.free_bytes -= accounted_bytes - entry.accounted_bytes
        entry.accounted_bytes = accounted_bytes

    def enqueue(self, entry: ModelEntry, *, first: bool = False) -> None:
        """It waits for memory."""
        entry.state = ModelState.QUEUED
        self.queue[entry.model] = entry
        if first:
            self.queue.move_to_end(entry.model, last=False)

    def begin_load(self, entry: ModelEntry) -> None:
        """It leaves the queue; its bytes count from now on."""
        del self.queue[entry.model]
        entry.state = ModelState.LOADING
        self.used_bytes += entry.accounted_bytes

    def undo_load(self, entry: ModelEntry) -> None:
        """Its load failed and left nothing in memory: it is expected again."""
        self.used_bytes -= entry.accounted_bytes

    def finish_load(self, entry: ModelEntry, measured_bytes: int | None) -> None:
        """It is in memory, as the most recently used."""
        del self.pending[entry.model]
        if measured_bytes is not None:
            self.used_bytes += measured_bytes - entry.accounted_bytes
            self.free_bytes -= measured_bytes - entry.accounted_bytes
            entry.accounted_bytes = measured_bytes
        entry.state = ModelState.LOADED
        self.active_loads -= 1
        self.loaded[entry.model] = entry
        self.loads += 1

    def drop_pending(self, entry: ModelEntry) -> None:
        """It will not be loaded. A loading one must be undone first."""
        del self.pending[entry.model]
        self.free_bytes += entry.accounted_bytes
        if entry.state is ModelState.WAITING:
            del self.backlog[entry.model]
        else:
            self.active_loads -= 1
            self.queue.pop(entry.model, None)
            self._leave(entry.model)

    def begin_unload(self, entry: ModelEntry) -> None:
        """It leaves memory; its bytes count until `finish_unload`."""
        del self.loaded[entry.model]
        self.unloading[entry.model] = entry.accounted_bytes
        self.unloading_bytes += entry.accounted_bytes

    def finish_unload(self, model: str) -> None:
        """Its memory is free."""
        freed = self.unloading.pop(model)
        self.unloading_bytes -= freed
        self.used_bytes -= freed
        self.free_bytes += freed
        self._leave(model)

    def _leave(self, model: str) -> None:
        """Memory needs the artifact no more, unless it is on its way again: of those, the one that left last is discarded last."""
        if model in self.disk and model not in self.unloading and (model not in self.pending or model in self.backlog):
            self.unneeded[model] = None

    def idle_victims(self, wanted_bytes: int) -> list[ModelEntry] | None:
        """The least recently used models without requests in flight that together free ``wanted_bytes``.

        ``None`` if all of them together do not.
        """
        victims = []
        for entry in self.loaded.values():
            if entry.in_flight == 0:
                victims.append(entry)
                wanted_bytes -= entry.accounted_bytes
                if wanted_bytes <= 0:
                    return victims
        return None

    def oldest_idle(self) -> ModelEntry | None:
        """The least recently used model without requests in flight."""
        return next((entry for entry in self.loaded.values() if entry.in_flight == 0), None)

    def store(self, model: str, unpacked_bytes: int) -> None:
        """An artifact lies on disk now, perhaps instead of an earlier copy."""
        self.used_disk_bytes += unpacked_bytes - self.disk.pop(model, 0)
        self.disk[model] = unpacked_bytes

    def discard(self, model: str) -> bool:
        """Forget an artifact on disk; ``False`` if there was none."""
        size = self.disk.pop(model, None)
        if size is None:
            return False
        self.unneeded.pop(model, None)
        self.used_disk_bytes -= size
        return True

    def disposable(self) -> list[str] | None:
        """The artifacts to discard to get within the disk budget; none that memory needs, ``None`` if it takes those."""
        excess = self.used_disk_bytes - self.disk_bytes
        if excess <= 0:
            return []
        models = []
        for model in self.unneeded:
            models.append(model)
            excess -= self.disk[model]
            if excess <= 0:
                return models
        return None

    def snapshot(self) -> InstanceSnapshot:
        """Its state as a value."""
        entries = (*self.loaded.values(), *self.pending.values())
        models = [
            ModelSnapshot(entry.model, entry.state.value, entry.accounted_bytes, entry.in_flight, len(entry.waiting), entry.last_used)
            for entry in entries
        ]
        models += [ModelSnapshot(model, "unloading", size, 0, 0, None) for model, size in self.unloading.items()]
        return InstanceSnapshot(
            instance=self.id,
            state=self.state.value,
            memory_bytes=self.used_bytes,
            memory_budget_bytes=self.memory_bytes,
            disk_bytes=self.used_disk_bytes,
            disk_budget_bytes=self.disk_bytes,
            models=tuple(models),
            on_disk=tuple(self.disk),
            requests=self.requests,
            loads=self.loads,
            evictions=self.evictions,
            losses=self.losses,
            zone=self.zone,
        )
