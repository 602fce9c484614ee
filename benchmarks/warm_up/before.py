"""The time before the change, and what a perfect copy of all caches would be after it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.warm_up.cells import ROUTERS, Change, Fleet
from benchmarks.warm_up.workload import Workload
from mme_fleet import FleetSettings, HashRing, InstanceSpec, Simulator

__all__ = ["BEFORE_MINUTES", "Before", "live_until", "misses_per_minute", "perfect_copy"]

_SETTLE_SECONDS = 1200.0
_REMEMBERED_SECONDS = 6 * 3600.0
_DISK_BYTES = 10**15
BEFORE_MINUTES = 10
"""Minutes before the change that are counted."""


@dataclass(frozen=True, slots=True)
class Before:
    """The fleet at the moment of its change.

    Attributes:
        memory_bytes: of an instance.
        resident: instance -> models in its memory, the least recently used first.
        last_used: model -> when a request last went to it, of those that are resident anywhere.
        misses: misses in each of the minutes before.
        requests: requests in them.
    """

    memory_bytes: int
    resident: Mapping[str, Sequence[str]]
    last_used: Mapping[str, float]
    misses: Sequence[int]
    requests: Sequence[int]

    @property
    def models(self) -> list[str]:
        """What is resident anywhere, the most recently used first."""
        return sorted(self.last_used, key=self.last_used.__getitem__, reverse=True)


def misses_per_minute(times: Iterable[float], start: float, minutes: int) -> list[int]:
    """How many of the times fall into each minute after ``start``."""
    edges = start + 60.0 * np.arange(minutes + 1)
    counts: list[int] = np.histogram(np.fromiter(times, np.float64), edges)[0].tolist()
    return counts


def live_until(load: Workload, fleet: Fleet, start: float) -> Before:
    """Let a fleet live until ``start``: from what the models' last uses would have left in its caches, for twenty minutes."""
    begin = start - _SETTLE_SECONDS
    memory = int(fleet.memory_share * int(load.bytes.sum())) // fleet.instances
    names = [f"instance-{number}" for number in range(1, fleet.instances + 1)]
    _seconds, model = load.between(max(0.0, begin - _REMEMBERED_SECONDS), begin)
    recent, position = np.unique(model[::-1], return_index=True)
    order = recent[np.argsort(position)].tolist()
    placed = _place(load, fleet.router, [(load.models[number], None) for number in order], dict.fromkeys(names, memory))
    simulator = Simulator(
        load.costs,
        [InstanceSpec(memory, _DISK_BYTES, resident=placed[name]) for name in names],
        settings=FleetSettings(load_concurrency=fleet.concurrency),
        router=ROUTERS[fleet.router],
        start=begin,
    )
    first = start - 60.0 * BEFORE_MINUTES
    simulator.run(load.arrivals(begin, first), until=first)
    results = simulator.run(load.arrivals(simulator.now, start), until=start)
    resident: dict[str, list[str]] = {}
    last_used: dict[str, float] = {}
    for instance in simulator.snapshot().instances:
        loaded = [entry for entry in instance.models if entry.state == "loaded"]
        resident[instance.instance] = [entry.model for entry in loaded]
        for age, entry in enumerate(loaded):
            used = begin - len(loaded) + age if entry.last_used is None else entry.last_used
            last_used[entry.model] = max(used, last_used.get(entry.model, used))
    came, _ = load.between(first, start)
    return Before(
        memory,
        resident,
        last_used,
        misses_per_minute([*results.cold_at, *results.refused_at], first, BEFORE_MINUTES),
        misses_per_minute(came, first, BEFORE_MINUTES),
    )


def perfect_copy(load: Workload, router: str, change: Change, before: Before) -> dict[str, list[str]]:
    """What every instance after the change has in memory if nothing is lost: instance -> models, the least recently used first.

    What was resident anywhere is resident where it is looked for now: at its new home if it has one by its hash, else on an instance that
    stays, or on one that takes the place of an old one. Where that is too much, the most recently used stay.
    """
    old = list(before.resident)
    names = [f"instance-{number}" for number in range(1, change.after + 1)]
    if change.update:
        names = [f"instance-{change.before + number}" for number in range(1, change.after + 1)]
        staying: dict[str, list[str]] = {name: [] for name in names}
    else:
        staying = {name: list(before.resident.get(name, ())) for name in names}
    if router == "one home":
        home = HashRing(names).home
        for model in before.models:
            if model not in staying[home(model)]:
                staying[home(model)].append(model)
    elif change.update:
        staying = dict(zip(names, (list(before.resident[name]) for name in old), strict=True))
    else:
        held = {model for models in staying.values() for model in models}
        lost = [model for model in before.models if model not in held]
        for number, model in enumerate(lost):
            staying[names[number % len(names)]].append(model)
    return {name: _fitting(load, before, models) for name, models in staying.items()}


def _fitting(load: Workload, before: Before, models: Sequence[str]) -> list[str]:
    """The most recently used that fit into an instance, the least recently used first."""
    room, kept = before.memory_bytes, []
    for model in sorted(models, key=before.last_used.__getitem__, reverse=True):
        room -= int(load.bytes[load.number[model]])
        if room < 0:
            break
        kept.append(model)
    return kept[::-1]


def _place(load: Workload, router: str, models: Iterable[tuple[str, object]], room: dict[str, int]) -> dict[str, list[str]]:
    """Fill instances with models, the first ones first; the least recently used first in the result."""
    home = HashRing(room).home
    placed: dict[str, list[str]] = {name: [] for name in room}
    full: set[str] = set()
    for model, _ in models:
        name = home(model) if router == "one home" else max(room, key=room.__getitem__)
        size = int(load.bytes[load.number[model]])
        if name in full or size > room[name]:
            full.add(name)
            if len(full) == len(room):
                break
            continue
        room[name] -= size
        placed[name].append(model)
    return {name: held[::-1] for name, held in placed.items()}
