"""What is measured: the cells of the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import product

from benchmarks.warm_up.workload import TRACES
from mme_fleet import LeastOutstandingRouter, OneHomeRouter, Router, StickyRouter

__all__ = ["CHANGES", "ROUTERS", "STARTS", "Cell", "Change", "Fleet", "cells", "starts"]

ROUTERS: Mapping[str, Callable[[], Router]] = {
    "sticky": StickyRouter,
    "one home": OneHomeRouter,
    "least outstanding": LeastOutstandingRouter,
}
_CONCURRENCIES = (4, 8, 16)
_MEMORY_SHARES = (0.35, 0.6)
_FIRST_START, _BETWEEN_STARTS, STARTS = 3 * 3600.0, 106 * 60.0, 12
"""From three in the night to half past ten in the evening, at different minutes of the hour: many models run by the clock."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the fleet.

    Attributes:
        before: instances before it.
        after: and after it.
        update: all are new ones.
    """

    before: int
    after: int
    update: bool = False

    @property
    def new(self) -> int:
        """Instances that come up."""
        return self.after if self.update else max(0, self.after - self.before)


CHANGES: Mapping[str, Change] = {
    "5 -> 7": Change(5, 7),
    "2 -> 3": Change(2, 3),
    "update": Change(5, 5, update=True),
    "loss": Change(4, 3),
}


@dataclass(frozen=True, slots=True)
class Fleet:
    """A fleet before its change.

    Attributes:
        trace: one of `TRACES`.
        router: one of `ROUTERS`.
        instances: how many.
        concurrency: loads at once of an instance.
        memory_share: memory of all its instances, as a share of the bytes of all models.
    """

    trace: str
    router: str
    instances: int
    concurrency: int
    memory_share: float

    @property
    def key(self) -> str:
        """Its name in files."""
        return "|".join(str(value) for value in asdict(self).values())


@dataclass(frozen=True, slots=True)
class Cell:
    """A row of the table: a fleet and what happens to it."""

    fleet: Fleet
    change: str

    @property
    def key(self) -> str:
        """Its name in files."""
        return f"{self.fleet.key}|{self.change}"


def cells(*, quick: bool = False) -> Iterator[Cell]:
    """All cells, or with ``quick`` those of one trace in the middle of the table."""
    traces = TRACES[:1] if quick else TRACES
    concurrencies = (8,) if quick else _CONCURRENCIES
    shares = _MEMORY_SHARES[:1] if quick else _MEMORY_SHARES
    for trace, router, (name, change), share, concurrency in product(traces, ROUTERS, CHANGES.items(), shares, concurrencies):
        yield Cell(Fleet(trace, router, change.before, concurrency, share), name)


def starts(count: int = STARTS) -> list[float]:
    """When the fleet changes, in the seconds of the day.

    Args:
        count: how many of the twelve, spread over them.
    """
    times = [_FIRST_START + number * _BETWEEN_STARTS for number in range(STARTS)]
    return [times[(2 * number + 1) * STARTS // (2 * count)] for number in range(count)]
