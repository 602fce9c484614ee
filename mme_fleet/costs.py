"""What work costs in virtual time: how long downloads, loads, unloads and answers take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from mme_facts.limits import INVOKE_TIMEOUT_SECONDS
from mme_fleet.events import LoadFailure

__all__ = ["Costs", "LoadCosts"]


def _nothing(_model: str) -> float:
    """Of a cost that is not given."""
    return 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What the servers and the artifact store of a simulation do. Functions of a TargetModel; a table's ``__getitem__`` is one.

    A function may draw random numbers of its own: it is asked once for every piece of work, in the order of virtual time.

    Attributes:
        unpacked_bytes: size of the unpacked artifact.
        download_seconds: from the start of the download until the artifact lies unpacked on disk; 0 unless given.
        load_seconds: from disk into memory; 0 unless given.
        unload_seconds: out of memory; 0 unless given.
        service_seconds: one worker answers one request; 0 unless given.
        measured_bytes: what a loaded model turns out to take of the memory budget; as accounted, unless given.
        failures: models that cannot be had: their downloads (``MISSING``, ``DENIED``, ``UNAVAILABLE``) or loads (the others) fail.
        invoke_timeout_seconds: the caller of a forwarded request gets the error of a late answer after this time (API reference:
            InvokeEndpoint); the worker goes on.
    """

    unpacked_bytes: Callable[[str], int]
    download_seconds: Callable[[str], float] = _nothing
    load_seconds: Callable[[str], float] = _nothing
    unload_seconds: Callable[[str], float] = _nothing
    service_seconds: Callable[[str], float] = _nothing
    measured_bytes: Callable[[str], int] | None = None
    failures: Mapping[str, LoadFailure] = field(default_factory=dict)
    invoke_timeout_seconds: float = INVOKE_TIMEOUT_SECONDS

    def __post_init__(self) -> None:
        if self.invoke_timeout_seconds <= 0:
            raise ValueError(f"invoke_timeout_seconds is {self.invoke_timeout_seconds}: use a positive number of seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadCosts:
    """Download and load times that grow with the artifact. Every download has the bandwidth for itself.

    Attributes:
        unpacked_bytes: size of the unpacked artifact by TargetModel.
        download_bytes_per_second: of the archive, unpacking included.
        download_latency_seconds: until the first byte.
        archive_ratio: bytes of the archive per unpacked byte.
        load_bytes_per_second: from disk into memory, in unpacked bytes.
        load_constant_seconds: of a load of nothing: the start of its workers.
    """

    unpacked_bytes: Callable[[str], int]
    download_bytes_per_second: float
    load_bytes_per_second: float
    download_latency_seconds: float = 0.0
    archive_ratio: float = 1.0
    load_constant_seconds: float = 0.0

    def __post_init__(self) -> None:
        for name in ("download_bytes_per_second", "load_bytes_per_second", "archive_ratio"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}: use a positive number")
        for name in ("download_latency_seconds", "load_constant_seconds"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}: use 0 or more")

    def download_seconds(self, model: str) -> float:
        """For `Costs.download_seconds`."""
        return self.download_latency_seconds + self.unpacked_bytes(model) * self.archive_ratio / self.download_bytes_per_second

    def load_seconds(self, model: str) -> float:
        """For `Costs.load_seconds`."""
        return self.load_constant_seconds + self.unpacked_bytes(model) / self.load_bytes_per_second
