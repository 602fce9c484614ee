"""What happens to a fleet (events) and what its driver has to do (actions). All are immutable values.

Instances, models and requests are named by the driver: an instance by any string, a model by its TargetModel, a request
by an integer that is never used twice. Bytes are bytes; no value carries a time, `Fleet.on` gets it as an argument.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

__all__ = [
    "Action",
    "Discard",
    "Download",
    "Downloaded",
    "Event",
    "Forward",
    "InstanceDraining",
    "InstanceLost",
    "InstanceUp",
    "Load",
    "LoadFailed",
    "LoadFailure",
    "Loaded",
    "Release",
    "Replied",
    "Reply",
    "ReplyError",
    "Request",
    "Tick",
    "Unload",
    "Unloaded",
    "ZoneLost",
]


class LoadFailure(Enum):
    """Why a download or a load failed."""

    OUT_OF_MEMORY = "out_of_memory"
    """The container answered 507: the fleet evicts and tries again."""
    MISSING = "missing"
    """There is no artifact at the key."""
    DENIED = "denied"
    """The endpoint's role may not read the artifact."""
    BROKEN = "broken"
    """The artifact cannot be unpacked, or the container refused it."""
    UNAVAILABLE = "unavailable"
    """The store of the artifacts failed; a later request may succeed."""


@dataclass(frozen=True, slots=True)
class Request:
    """A caller asks for a prediction of ``model``."""

    request: int
    model: str


@dataclass(frozen=True, slots=True)
class Downloaded:
    """`Download` is done: the artifact lies unpacked on the instance's disk and takes ``unpacked_bytes`` there."""

    instance: str
    model: str
    unpacked_bytes: int


@dataclass(frozen=True, slots=True)
class Loaded:
    """`Load` is done. ``measured_bytes`` replaces the accounted memory of the model; ``None`` keeps it."""

    instance: str
    model: str
    measured_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class LoadFailed:
    """`Download` or `Load` failed and left nothing in memory. ``status`` is the container's answer, if it gave one."""

    instance: str
    model: str
    kind: LoadFailure
    status: int | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Unloaded:
    """`Unload` is done: the memory is free."""

    instance: str
    model: str


@dataclass(frozen=True, slots=True)
class Replied:
    """A forwarded request came back.

    ``status`` is the container's HTTP status, 0 if it did not answer in time, ``None`` if the connection broke.
    """

    request: int
    status: int | None


@dataclass(frozen=True, slots=True)
class InstanceUp:
    """An instance is ready for requests, new or again after `InstanceLost`; its memory is empty but for ``resident``.

    ``memory_bytes`` is its budget for models, ``disk_bytes`` that for unpacked artifacts. With ``disk_kept`` the artifacts
    that were on its disk before the loss are still there. ``zone`` names its availability zone. ``resident`` are models that are
    in its memory already, with their bytes: the one of a single-model container, which answers only once it has loaded it.
    """

    instance: str
    memory_bytes: int
    disk_bytes: int
    disk_kept: bool = False
    zone: str = ""
    resident: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class InstanceDraining:
    """An instance is to go: it gets no new request, and `Release` follows when its last one is answered."""

    instance: str


@dataclass(frozen=True, slots=True)
class InstanceLost:
    """An instance died: everything in its memory and every request that it was answering is gone."""

    instance: str


@dataclass(frozen=True, slots=True)
class ZoneLost:
    """An availability zone failed: all its instances are lost at once, so no request moves from one of them to another."""

    zone: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed: due at `Fleet.next_deadline`."""


@dataclass(frozen=True, slots=True)
class Download:
    """Fetch the artifact and unpack it on the instance's disk; answer with `Downloaded` or `LoadFailed`."""

    instance: str
    model: str


@dataclass(frozen=True, slots=True)
class Load:
    """Load the unpacked model into memory; answer with `Loaded` or `LoadFailed`."""

    instance: str
    model: str


@dataclass(frozen=True, slots=True)
class Unload:
    """Take the model out of memory; answer with `Unloaded` when its memory is free. Its files stay on disk."""

    instance: str
    model: str


@dataclass(frozen=True, slots=True)
class Discard:
    """Delete the unpacked artifact from the instance's disk. Nothing to answer."""

    instance: str
    model: str


@dataclass(frozen=True, slots=True)
class Forward:
    """Send the request to the instance, whose memory holds the model; answer with `Replied`.

    ``cold`` says that it waited for a load.
    """

    request: int
    instance: str
    model: str
    cold: bool


@dataclass(frozen=True, slots=True)
class Release:
    """A draining instance has nothing left to do: the fleet has forgotten it, stop it."""

    instance: str


@dataclass(frozen=True, slots=True)
class ReplyError:
    """Why a request failed: ``code`` and ``status`` are of `mme_facts.runtime_errors`.

    ``original_status`` is the container's own status where ``code`` is ``ModelError`` (0: no answer in time).
    """

    code: str
    status: int
    message: str
    original_status: int | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer the caller, exactly once a request: with the container's answer if ``error`` is ``None``."""

    request: int
    error: ReplyError | None = None


Event: TypeAlias = (
    Request | Downloaded | Loaded | LoadFailed | Unloaded | Replied | InstanceUp | InstanceDraining | InstanceLost | ZoneLost | Tick
)
Action: TypeAlias = Download | Load | Unload | Discard | Forward | Release | Reply
