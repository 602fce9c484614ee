"""Byte-seconds resident, estimated: AWS tells nobody which models an instance holds, so the one residency engine is asked.

The heat of each window is played to a simulated fleet of the endpoint's size. A model's requests come evenly over the window, at most so
many that the whole stays quick: only the order of uses decides what is evicted. Loads take no time. The fleet begins empty, a while before
the range.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from mme_facts.grammar import ArtifactName, VersionId
from mme_fleet import Costs, FleetSettings, InstanceSpec, Load, Simulator, Step, Unloaded
from mme_tenancy.heat import ModelHeat, PoolHeat

__all__ = ["MODEL_OVERHEAD_BYTES", "FleetSize", "byte_seconds", "sizes_of"]

MODEL_OVERHEAD_BYTES = 100 << 20
"""Memory of a loaded model beside its artifact: the worker process with what it imports (measured with SageMaker's XGBoost server)."""
_MOST_REQUESTS = 300_000
"""Simulated requests of a range, at most, if no window has more models than that allows one each."""
_MOST_A_WINDOW = 12


@dataclass(frozen=True, slots=True)
class FleetSize:
    """What an endpoint has.

    Attributes:
        instances: how many, 1 or more.
        memory_bytes: of one instance, for models.
        overhead_bytes: of a loaded model beside its artifact.
    """

    instances: int
    memory_bytes: int
    overhead_bytes: int = MODEL_OVERHEAD_BYTES


def byte_seconds(
    windows: Sequence[PoolHeat], sizes: Callable[[ModelHeat], int], fleet: FleetSize, *, start: int, end: int
) -> dict[str, float]:
    """Tenant -> bytes resident times seconds, between two moments.

    Args:
        windows: the pool's heat, oldest first; what lies before ``start`` fills the memory.
        sizes: unpacked bytes of a row's artifact.
        fleet: the endpoint's.
        start: epoch seconds.
        end: epoch seconds, after the beginning of every window.
    """
    known = {_target(row): sizes(row) for window in windows for row in window.rows}
    if not known:
        return {}
    # What is larger than an instance could never be loaded; it was served, so the size is overrated.
    room = max(fleet.memory_bytes - fleet.overhead_bytes, 1)
    costs = Costs(unpacked_bytes=lambda target: min(known[target], room))
    watch = _Watch(start, end, lambda target: min(known[target], room) + fleet.overhead_bytes)
    begin = min(start, windows[0].key.start)
    simulator = Simulator(
        costs,
        [InstanceSpec(max(fleet.memory_bytes, fleet.overhead_bytes + 1), sum(known.values()) + 1)] * fleet.instances,
        settings=FleetSettings(model_overhead_bytes=fleet.overhead_bytes),
        observers=[watch],
        start=float(begin),
    )
    simulator.run(_requests(windows), until=float(end))
    return watch.ended()


class _Watch:
    """Sums what is resident from the start of a load until the unload is done, as the engine accounts memory."""

    def __init__(self, start: int, end: int, memory: Callable[[str], int]) -> None:
        self._start, self._end, self._memory = start, end, memory
        self._since: dict[tuple[str, str], float] = {}
        self._sums: dict[str, float] = {}

    def __call__(self, fleet: str, step: Step) -> None:  # noqa: ARG002 - the protocol's
        """Take one step of the engine."""
        if isinstance(step.event, Unloaded):
            self._leave((step.event.instance, step.event.model), step.now)
        for action in step.actions:
            if isinstance(action, Load):
                self._since[action.instance, action.model] = step.now

    def ended(self) -> dict[str, float]:
        """The sums, with what is resident in the end."""
        for place in list(self._since):
            self._leave(place, self._end)
        return self._sums

    def _leave(self, place: tuple[str, str], now: float) -> None:
        since = self._since.pop(place, None)
        seconds = 0.0 if since is None else min(now, self._end) - max(since, self._start)
        if seconds > 0:
            tenant = place[1].partition("/")[0]
            self._sums[tenant] = self._sums.get(tenant, 0.0) + seconds * self._memory(place[1])


def _target(row: ModelHeat) -> str:
    return ArtifactName(row.tenant, row.model, VersionId.parse(row.version)).target_model


def _requests(windows: Sequence[PoolHeat]) -> Iterator[tuple[float, str]]:
    rows = sum(len(window.rows) for window in windows)
    most = max(1, min(_MOST_A_WINDOW, _MOST_REQUESTS // max(rows, 1)))
    for window in windows:
        yield from sorted(request for row in window.rows for request in _of_row(row, window, most))


def _of_row(row: ModelHeat, window: PoolHeat, most: int) -> list[tuple[float, str]]:
    """Evenly over the window, each model with a phase of its own that stays from run to run."""
    target, count = _target(row), min(row.counts.requests, most)
    step = window.key.seconds / max(count, 1)
    phase = zlib.crc32(target.encode()) / 2**32
    return [(window.key.start + (number + phase) * step, target) for number in range(count)]


def sizes_of(known: Mapping[tuple[str, str, str], int]) -> Callable[[ModelHeat], int]:
    """Sizes by (tenant, model, version); a version that is not known any more counts as the mean of the others, or nothing."""
    mean = sum(known.values()) // len(known) if known else 0
    return lambda row: known.get((row.tenant, row.model, row.version), mean)
