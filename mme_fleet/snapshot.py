"""The state of a fleet as values, for status pages and tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["FleetSnapshot", "InstanceSnapshot", "ModelSnapshot"]


@dataclass(frozen=True, slots=True)
class ModelSnapshot:
    """One model on one instance.

    Attributes:
        model: its TargetModel.
        state: ``waiting`` (for its turn to be loaded), ``downloading``, ``queued`` (waits for memory), ``loading``, ``loaded`` or
            ``unloading``.
        accounted_bytes: what it counts against the memory budget (expected, before it is loading).
        in_flight: requests that it is answering.
        waiting: requests that wait for its load, or for one of its workers.
        last_used: when a request last went to it, in the driver's seconds; ``None`` before the first.
    """

    model: str
    state: str
    accounted_bytes: int
    in_flight: int
    waiting: int
    last_used: float | None


@dataclass(frozen=True, slots=True)
class InstanceSnapshot:
    """One instance.

    Attributes:
        instance: its name.
        state: ``up``, ``draining`` or ``down``.
        memory_bytes: memory that resident, loading and unloading models take.
        memory_budget_bytes: what they may take.
        disk_bytes: what unpacked artifacts take on disk.
        disk_budget_bytes: what they may take.
        models: everything in memory or on its way, least recently used first.
        on_disk: the unpacked artifacts.
        requests: requests forwarded to it, ever.
        loads: loads completed, ever.
        evictions: models unloaded to make room, ever.
        losses: how often it was lost.
        zone: its availability zone.
    """

    instance: str
    state: str
    memory_bytes: int
    memory_budget_bytes: int
    disk_bytes: int
    disk_budget_bytes: int
    models: tuple[ModelSnapshot, ...]
    on_disk: tuple[str, ...]
    requests: int
    loads: int
    evictions: int
    losses: int
    zone: str = ""


@dataclass(frozen=True, slots=True)
class FleetSnapshot:
    """The fleet.

    Attributes:
        instances: in the order in which they joined.
        requests: requests seen, ever.
        hits: of them, those that found the model in memory when they came.
        cold_loads: loads completed, ever.
        evictions: models unloaded to make room, ever.
        loads_by_model: TargetModel -> loads completed.
    """

    instances: tuple[InstanceSnapshot, ...]
    requests: int
    hits: int
    cold_loads: int
    evictions: int
    loads_by_model: Mapping[str, int]
