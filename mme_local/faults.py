"""Fault control: which faults are on, whom they strike, and the small questions that the rest of the local cloud asks.

Everything asks here before it does its work; without a fault that costs one look at an empty dictionary.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from mme_local.dataplane.interface import ArtifactDenied, ArtifactMissing, InvokeReply, StartFailed
from mme_local.fault_documents import (
    DuplicateEvent,
    FailDownload,
    FailInvoke,
    FailLoad,
    Fault,
    FaultError,
    FreezeInstance,
    InsufficientCapacity,
    JumpClock,
    KillInstance,
    LoseEvent,
    SlowDownload,
    SlowInvoke,
    SlowLoad,
    ThrottleControl,
    ThrottleInvoke,
)
from mme_local.wire import AwsError

__all__ = ["ActiveFault", "BrokenDownloadError", "Faults", "Target", "UnknownFaultError"]

_KEPT = 100
_CAPACITY = (
    "Unable to provision requested ML compute capacity due to InsufficientInstanceCapacity error. Please retry using a different "
    "ML instance type or after some time."
)
_INVOKE_ERRORS = {
    "InternalDependencyException": (530, "A dependency of the service failed (a fault that was asked for)."),
    "InternalFailure": (500, "The service failed (a fault that was asked for)."),
    "ServiceUnavailable": (503, "The service is unavailable (a fault that was asked for)."),
    "ModelError": (424, "a fault that was asked for"),
}

FaultKind = TypeVar("FaultKind", bound=Fault)


class UnknownFaultError(LookupError):
    """There is no fault of that id."""


class BrokenDownloadError(Exception):
    """What arrived is half an archive."""


class Target(Protocol):
    """An instance as fault control sees it."""

    @property
    def endpoint(self) -> str:
        """Name of its endpoint."""

    @property
    def instance(self) -> str:
        """Its name in its fleet."""

    @property
    def zone(self) -> str:
        """Its availability zone."""

    def kill(self) -> bool:
        """Kill its processes; ``False`` if there are none."""

    def freeze(self) -> Callable[[], None] | None:
        """Stop its processes; what lets the same ones go on, or ``None`` if there are none."""


@dataclass(slots=True)
class ActiveFault:
    """A fault that was put.

    Attributes:
        id: its name in the API.
        fault: the document.
        struck: how often it struck so far.
        active: whether it may strike again, or still holds what it froze.
    """

    id: str
    fault: Fault
    struck: int = 0
    active: bool = True
    chance: random.Random = field(default_factory=random.Random, repr=False)
    deadline: float | None = field(default=None, repr=False)
    undo: list[Callable[[], None]] = field(default_factory=list, repr=False)

    def document(self) -> dict[str, Any]:
        """The JSON form."""
        return {"id": self.id, **self.fault.document(), "struck": self.struck, "active": self.active}


class Faults:
    """The faults of a local cloud. `strike` may be called in any thread, the rest on the gateway's event loop.

    Args:
        instances: the running instances, in their order.
        jump: puts the cloud's clock forward by scaled seconds.
    """

    def __init__(self, instances: Callable[[], Sequence[Target]] = tuple, jump: Callable[[float], None] | None = None) -> None:
        self._instances, self._jump = instances, jump
        self._lock = threading.Lock()
        self._active: dict[str, ActiveFault] = {}
        self._ended: deque[ActiveFault] = deque(maxlen=_KEPT)
        self._numbers = itertools.count(1)
        self._timers: dict[str, asyncio.TimerHandle] = {}

    # What fault control does.

    def put(self, fault: Fault) -> ActiveFault:
        """Put a fault; those of instances and of the clock strike at once.

        Raises:
            FaultError: it can strike nothing: no instance matches, or there is no clock.
        """
        entry = ActiveFault(f"fault-{next(self._numbers)}", fault, chance=random.Random(fault.seed))  # noqa: S311 - no secret
        if isinstance(fault, KillInstance | FreezeInstance):
            self._strike_instances(entry, fault)
        elif isinstance(fault, JumpClock):
            if self._jump is None:
                raise FaultError("there is no clock to jump")
            self._jump(fault.seconds)
            entry.struck = 1
        if isinstance(fault, KillInstance | JumpClock) or (isinstance(fault, FreezeInstance) and not entry.undo):
            entry.active = False
            self._ended.append(entry)
            return entry
        if fault.expires_seconds is not None:
            entry.deadline = time.monotonic() + fault.expires_seconds
            self._timers[entry.id] = asyncio.get_running_loop().call_later(fault.expires_seconds, self._expire, entry.id)
        with self._lock:
            self._active[entry.id] = entry
        return entry

    def remove(self, fault_id: str) -> ActiveFault:
        """End a fault, and undo what it holds; it stays listed for a while. Raises `UnknownFaultError`."""
        with self._lock:
            entry = self._active.pop(fault_id, None)
        if entry is None:
            ended = next((known for known in self._ended if known.id == fault_id), None)
            if ended is None:
                raise UnknownFaultError(f"There is no fault {fault_id}.")
            return ended
        self._end(entry)
        return entry

    def clear(self) -> None:
        """End all faults and forget them."""
        for fault_id in tuple(self._active):
            self.remove(fault_id)
        self._ended.clear()

    def list(self) -> list[ActiveFault]:
        """The active ones and the last ones that ended, in the order in which they were put."""
        with self._lock:
            entries = [*self._ended, *self._active.values()]
        return sorted(entries, key=lambda entry: int(entry.id.rpartition("-")[2]))

    def _strike_instances(self, entry: ActiveFault, fault: KillInstance | FreezeInstance) -> None:
        running = self._instances()
        matching = [
            target for target in running if fault.matches({"endpoint": target.endpoint, "instance": target.instance, "zone": target.zone})
        ]
        if not matching:
            known = ", ".join(f"{target.endpoint}/{target.instance} in {target.zone}" for target in running) or "none"
            wanted = f"endpoint {fault.endpoint!r}, instance {fault.instance!r} and zone {fault.zone!r}"
            raise FaultError(f"no instance matches {wanted}; running: {known}")
        for target in matching:
            if fault.count is not None and entry.struck >= fault.count:
                return
            if entry.chance.random() >= fault.probability:
                continue
            if isinstance(fault, KillInstance):
                entry.struck += target.kill()
            elif (thaw := target.freeze()) is not None:
                entry.struck += 1
                entry.undo.append(thaw)

    def _expire(self, fault_id: str) -> None:
        with self._lock:
            entry = self._active.pop(fault_id, None)
        if entry is not None:
            self._end(entry)

    def _end(self, entry: ActiveFault) -> None:
        entry.active = False
        timer = self._timers.pop(entry.id, None)
        if timer is not None:
            timer.cancel()
        for undo in entry.undo:
            undo()
        entry.undo.clear()
        with self._lock:
            self._ended.append(entry)

    # What the rest of the local cloud asks.

    def strike(self, kind: type[FaultKind], **names: str) -> FaultKind | None:
        """The fault of a kind that strikes now, counted; ``None`` if none does.

        Args:
            kind: the class of the fault.
            names: what it would strike, by the names of the kind's patterns.
        """
        if not self._active:
            return None
        with self._lock:
            for entry in tuple(self._active.values()):
                fault = entry.fault
                if not isinstance(fault, kind) or not fault.matches(names):
                    continue
                if entry.deadline is not None and time.monotonic() >= entry.deadline:
                    continue  # its timer is late
                if fault.probability < 1 and entry.chance.random() >= fault.probability:
                    continue
                entry.struck += 1
                if entry.struck == fault.count:
                    entry.active = False
                    del self._active[entry.id]
                    self._ended.append(entry)
                return fault
        return None

    async def download(self, endpoint: str, model: str) -> float | None:
        """Before an artifact is fetched: waits, or fails.

        Returns:
            How many unpacked bytes may come a second; ``None`` for any number.

        Raises:
            ArtifactMissing: the store says that there is no such object.
            ArtifactDenied: the store refuses.
            BrokenDownloadError: half of the archive came.
            OSError: the store is unavailable.
        """
        if (slow := self.strike(SlowDownload, endpoint=endpoint, model=model)) is not None:
            await asyncio.sleep(slow.seconds)
        if (failure := self.strike(FailDownload, endpoint=endpoint, model=model)) is None:
            return slow.bytes_per_second if slow is not None else None
        if failure.error == "missing":
            raise ArtifactMissing(model)
        if failure.error == "denied":
            raise ArtifactDenied(model)
        if failure.error == "broken":
            raise BrokenDownloadError("the artifact is not a sound .tar.gz: it ends too early (a fault that was asked for)")
        raise OSError("503 Slow Down, a fault that was asked for")

    async def load(self, endpoint: str, model: str) -> FailLoad | None:
        """Before a container loads a model: waits, and says how it is to fail."""
        if (slow := self.strike(SlowLoad, endpoint=endpoint, model=model)) is not None:
            await asyncio.sleep(slow.seconds)
        return self.strike(FailLoad, endpoint=endpoint, model=model)

    async def invoke(self, endpoint: str, model: str) -> InvokeReply | None:
        """Before a request of InvokeEndpoint is routed: waits, and gives the answer if it fails here."""
        if not self._active:
            return None
        if (slow := self.strike(SlowInvoke, endpoint=endpoint, model=model)) is not None:
            await asyncio.sleep(slow.seconds)
        if self.strike(ThrottleInvoke, endpoint=endpoint, model=model) is not None:
            return _answer("ThrottlingException", 400, "Rate exceeded")
        if (failure := self.strike(FailInvoke, endpoint=endpoint, model=model)) is None:
            return None
        return _answer(failure.error, *_INVOKE_ERRORS[failure.error], failure.status)

    def control_call(self, service: str, operation: str) -> None:
        """Before an operation of a control plane; raises `AwsError` when it is throttled."""
        if self.strike(ThrottleControl, service=service, operation=operation) is not None:
            raise AwsError("ThrottlingException", "Rate exceeded")

    def capacity(self, endpoint: str) -> None:
        """Before new instances start; raises `StartFailed` when none can be had."""
        if self.strike(InsufficientCapacity, endpoint=endpoint) is not None:
            raise StartFailed(_CAPACITY)

    def event_copies(self, detail_type: str, endpoint: str) -> int:
        """How often an event is to be published: 0, 1 or several times."""
        if self.strike(LoseEvent, detail_type=detail_type, endpoint=endpoint) is not None:
            return 0
        duplicate = self.strike(DuplicateEvent, detail_type=detail_type, endpoint=endpoint)
        return 1 if duplicate is None else duplicate.copies


def _answer(error: str, status: int, message: str, original_status: int | None = None) -> InvokeReply:
    return InvokeReply(status, b"", None, None, cold=False, error=error, original_status=original_status, message=message)
