"""The faults that can be asked for: one typed, immutable document a kind."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Literal

__all__ = [
    "KINDS",
    "DuplicateEvent",
    "FailDownload",
    "FailInvoke",
    "FailLoad",
    "Fault",
    "FaultError",
    "FreezeInstance",
    "InsufficientCapacity",
    "JumpClock",
    "KillInstance",
    "LoseEvent",
    "SlowDownload",
    "SlowInvoke",
    "SlowLoad",
    "ThrottleControl",
    "ThrottleInvoke",
    "fault_from_document",
]

_TYPE_NAMES = {"int": "a whole number", "float": "a number", "str": "a text", "NoneType": "null"}


class FaultError(ValueError):
    """A fault that cannot be: the text names the member, its value and what is allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What all faults have. Names are patterns as in file names: ``*`` and ``?`` match anything, a slash included.

    Attributes:
        count: how often it strikes before it ends; without it, until it is removed or expires.
        probability: the chance to strike, each time that it could; above 0, at most 1.
        seed: of the random numbers behind ``probability``.
        expires_seconds: when it ends, in real seconds after it was put; without it, never.
    """

    kind: ClassVar[str] = ""
    patterns: ClassVar[tuple[str, ...]] = ()

    count: int | None = None
    probability: float = 1.0
    seed: int = 0
    expires_seconds: float | None = None

    def __post_init__(self) -> None:
        if self.count is not None and self.count < 1:
            raise FaultError(f"count is {self.count}: use 1 or more, or leave it out")
        if not 0 < self.probability <= 1:
            raise FaultError(f"probability is {self.probability}: use a number above 0, at most 1")
        if self.expires_seconds is not None and not 0 < self.expires_seconds < math.inf:
            raise FaultError(f"expires_seconds is {self.expires_seconds}: use a positive number of seconds, or leave it out")
        for name in self.patterns:
            if not getattr(self, name):
                raise FaultError(f"{name} is empty: use a name or a pattern, such as *")

    def matches(self, names: Mapping[str, str]) -> bool:
        """Whether every pattern matches the name of that kind."""
        return all(fnmatchcase(names.get(name, ""), getattr(self, name)) for name in self.patterns)

    def document(self) -> dict[str, Any]:
        """The JSON form."""
        return {"kind": self.kind, **dataclasses.asdict(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfInstances(Fault):
    """A fault of the instances that match when it is put, ``count`` of them at most.

    Attributes:
        endpoint: names of endpoints.
        instance: names of instances.
        zone: their availability zones.
    """

    patterns: ClassVar[tuple[str, ...]] = ("endpoint", "instance", "zone")

    endpoint: str = "*"
    instance: str = "*"
    zone: str = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class KillInstance(_OfInstances):
    """The processes of the instances are killed, at once; it ends with that. The local cloud starts them again, empty."""

    kind: ClassVar[str] = "kill-instance"


@dataclass(frozen=True, slots=True, kw_only=True)
class FreezeInstance(_OfInstances):
    """The processes of the instances are stopped: they answer nothing. When the fault ends they go on."""

    kind: ClassVar[str] = "freeze-instance"


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfModels(Fault):
    """A fault of models.

    Attributes:
        endpoint: names of endpoints.
        model: TargetModels.
    """

    patterns: ClassVar[tuple[str, ...]] = ("endpoint", "model")

    endpoint: str = "*"
    model: str = "*"


def _check_seconds(seconds: float) -> None:
    if not 0 <= seconds < math.inf:
        raise FaultError(f"seconds is {seconds}: use a number of seconds, 0 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowDownload(_OfModels):
    """S3 is slow: an instance's download of an artifact takes longer.

    Attributes:
        seconds: waited before the download.
        bytes_per_second: in addition, how fast the artifact's unpacked bytes come.
    """

    kind: ClassVar[str] = "slow-download"

    seconds: float = 0.0
    bytes_per_second: float | None = None

    def __post_init__(self) -> None:
        Fault.__post_init__(self)
        _check_seconds(self.seconds)
        if self.bytes_per_second is not None and not 0 < self.bytes_per_second < math.inf:
            raise FaultError(f"bytes_per_second is {self.bytes_per_second}: use a number above 0, or leave it out")
        if not self.seconds and self.bytes_per_second is None:
            raise FaultError("a slow download needs seconds, bytes_per_second or both")


@dataclass(frozen=True, slots=True, kw_only=True)
class FailDownload(_OfModels):
    """S3 fails: an instance's download of an artifact ends as it does when the store is unavailable, and so on.

    Attributes:
        error: ``unavailable`` (5xx), ``missing`` (404), ``denied`` (403) or ``broken`` (half an archive).
    """

    kind: ClassVar[str] = "fail-download"

    error: Literal["unavailable", "missing", "denied", "broken"] = "unavailable"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowLoad(_OfModels):
    """The container takes longer to load a model.

    Attributes:
        seconds: waited before the load.
    """

    kind: ClassVar[str] = "slow-load"

    seconds: float

    def __post_init__(self) -> None:
        Fault.__post_init__(self)
        _check_seconds(self.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailLoad(_OfModels):
    """The container refuses the load of a model.

    Attributes:
        status: what it answers, 400 to 599; with 507 (out of memory) the fleet evicts and tries again.
        message: what it says.
    """

    kind: ClassVar[str] = "fail-load"

    status: int = 500
    message: str = "a fault that was asked for"

    def __post_init__(self) -> None:
        Fault.__post_init__(self)
        _check_status(self.status)


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottleInvoke(_OfModels):
    """InvokeEndpoint answers ThrottlingException (400)."""

    kind: ClassVar[str] = "throttle-invoke"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowInvoke(_OfModels):
    """InvokeEndpoint takes longer; the wait comes on top of the container's 60 s.

    Attributes:
        seconds: waited before the request reaches an instance.
    """

    kind: ClassVar[str] = "slow-invoke"

    seconds: float

    def __post_init__(self) -> None:
        Fault.__post_init__(self)
        _check_seconds(self.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailInvoke(_OfModels):
    """InvokeEndpoint answers an error without asking an instance.

    Attributes:
        error: ``InternalDependencyException`` (530), ``InternalFailure`` (500), ``ServiceUnavailable`` (503) or ``ModelError`` (424).
        status: of a ModelError, its OriginalStatusCode: 0 (not answered in time), or 400 to 599.
    """

    kind: ClassVar[str] = "fail-invoke"

    error: Literal["InternalDependencyException", "InternalFailure", "ServiceUnavailable", "ModelError"]
    status: int = 500

    def __post_init__(self) -> None:
        Fault.__post_init__(self)
        if self.status != 0:
            _check_status(self.status)


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottleControl(Fault):
    """Calls of the control plane answer ThrottlingException (400).

    Attributes:
        service: ``sagemaker`` or ``application-autoscaling``.
        operation: such as ``DescribeEndpoint``.
    """

    kind: ClassVar[str] = "throttle-control"
    patterns: ClassVar[tuple[str, ...]] = ("service", "operation")

    service: str = "*"
    operation: str = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class InsufficientCapacity(Fault):
    """New instances cannot be had: creating, updating and scaling out fail with AWS's reason.

    Attributes:
        endpoint: names of endpoints.
    """

    kind: ClassVar[str] = "insufficient-capacity"
    patterns: ClassVar[tuple[str, ...]] = ("endpoint",)

    endpoint: str = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfEvents(Fault):
    """A fault of what SageMaker publishes on EventBridge.

    Attributes:
        detail_type: such as ``SageMaker Endpoint State Change``.
        endpoint: names of endpoints.
    """

    patterns: ClassVar[tuple[str, ...]] = ("detail_type", "endpoint")

    detail_type: str = "*"
    endpoint: str = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoseEvent(_OfEvents):
    """An event never comes."""

    kind: ClassVar[str] = "lose-event"


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplicateEvent(_OfEvents):
    """An event comes several times.

    Attributes:
        copies: how often in all, at least 2.
    """

    kind: ClassVar[str] = "duplicate-event"

    copies: int = 2

    def __post_init__(self) -> None:
        Fault.__post_init__(self)
        if not 2 <= self.copies <= 100:
            raise FaultError(f"copies is {self.copies}: use 2 to 100")


@dataclass(frozen=True, slots=True, kw_only=True)
class JumpClock(Fault):
    """The cloud's clock jumps, at once; it ends with that and is not undone.

    Attributes:
        seconds: scaled seconds, negative to go back.
    """

    kind: ClassVar[str] = "jump-clock"

    seconds: float

    def __post_init__(self) -> None:
        Fault.__post_init__(self)
        if not math.isfinite(self.seconds) or not self.seconds:
            raise FaultError(f"seconds is {self.seconds}: use a number of seconds other than 0, negative to go back")
        if (self.count, self.probability, self.expires_seconds) != (None, 1.0, None):
            raise FaultError("the clock jumps once, at once: leave count, probability and expires_seconds out")


def _check_status(status: int) -> None:
    if not 400 <= status <= 599:
        raise FaultError(f"status is {status}: use an HTTP status from 400 to 599")


KINDS: Mapping[str, type[Fault]] = {
    fault.kind: fault
    for fault in (
        KillInstance,
        FreezeInstance,
        SlowDownload,
        FailDownload,
        SlowLoad,
        FailLoad,
        ThrottleInvoke,
        SlowInvoke,
        FailInvoke,
        ThrottleControl,
        InsufficientCapacity,
        LoseEvent,
        DuplicateEvent,
        JumpClock,
    )
}
"""The faults by kind."""


def fault_from_document(document: object) -> Fault:
    """Read a fault from its JSON form; raises `FaultError`."""
    if not isinstance(document, dict):
        raise FaultError('a fault is a JSON object, such as {"kind": "fail-load", "model": "acme/*"}')
    members = dict(document)
    kind = members.pop("kind", None)
    fault = KINDS.get(kind) if isinstance(kind, str) else None
    if fault is None:
        raise FaultError(f"kind is {kind!r}: use one of {', '.join(KINDS)}")
    hints = typing.get_type_hints(fault)
    fields = {field.name: field for field in dataclasses.fields(fault)}
    for name, value in members.items():
        if name not in fields:
            raise FaultError(f"{kind} has no member {name!r}: use some of {', '.join(fields)}")
        _check_type(name, value, hints[name])
    missing = [name for name, field in fields.items() if field.default is dataclasses.MISSING and name not in members]
    if missing:
        raise FaultError(f"{kind} needs {' and '.join(missing)}")
    return fault(**members)


def _check_type(name: str, value: object, hint: Any) -> None:
    if typing.get_origin(hint) is Literal:
        allowed: tuple[Any, ...] = typing.get_args(hint)
        if value not in allowed:
            raise FaultError(f"{name} is {value!r}: use one of {', '.join(allowed)}")
        return
    types_allowed: tuple[Any, ...] = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    accepted = (*types_allowed, int) if float in types_allowed else types_allowed
    if not isinstance(value, accepted) or isinstance(value, bool):
        wanted = " or ".join(_TYPE_NAMES[option.__name__] for option in types_allowed)
        raise FaultError(f"{name} is {value!r}: use {wanted}")
