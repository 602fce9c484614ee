"""Heat: requests, bytes and cold loads per model and window, as one object for each pool and window. Values only, and their readers.

Placement, warm-up and the split of costs read heat with `read`; `mme_tenancy.heat_collection` writes it.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Protocol

from mme_facts.grammar import HeatKey
from mme_tenancy.clock import timestamp

__all__ = ["Counts", "HeatError", "HeatRange", "HeatReader", "HeatStore", "ModelHeat", "PoolHeat", "read"]

SCHEMA = 1
_NUMBERS = ("requests", "bytes_in", "bytes_out", "cold", "failed", "served_ms")
_NAMES = ("tenant", "model", "version")


class HeatError(Exception):
    """An object below ``heat/`` is not one that the collector wrote."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What is counted of requests.

    Attributes:
        requests: those that had a route, whatever their answer.
        bytes_in: of their bodies.
        bytes_out: of the answers' bodies.
        cold: those that SageMaker told that the model was not ready.
        failed: those answered with status 500 or more.
        served_ms: milliseconds of the attempts that the container answered; what takes an instance's time.
    """

    requests: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    cold: int = 0
    failed: int = 0
    served_ms: float = 0.0

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, name) + getattr(other, name) for name in _NUMBERS))

    def less(self, other: Counts) -> Counts:
        """What is left when ``other`` is taken away; nothing is below 0."""
        return Counts(*(max(0, getattr(self, name) - getattr(other, name)) for name in _NUMBERS))


@dataclass(frozen=True, slots=True)
class ModelHeat:
    """One version of a model in one window.

    Attributes:
        tenant: whose.
        model: which model.
        version: which version was asked; a model has several rows while its route moves or has a canary.
        counts: of its requests.
    """

    tenant: str
    model: str
    version: str
    counts: Counts


@dataclass(frozen=True, slots=True)
class PoolHeat:
    """One pool in one window.

    Attributes:
        key: pool and window.
        endpoints: those of the pool when it was collected.
        rows: the versions with most requests, at most 10,000 of all pools together.
        tail: all others together; zeros unless ``truncated``.
        truncated: whether there are others.
        collected_at: when the window was first counted, ISO 8601.
        recounted_at: when it was counted again, if it was.
        late_lines: requests that the first count did not know.
    """

    key: HeatKey
    endpoints: tuple[str, ...]
    rows: tuple[ModelHeat, ...]
    tail: Counts = field(default_factory=Counts)
    truncated: bool = False
    collected_at: str = ""
    recounted_at: str | None = None
    late_lines: int = 0

    @property
    def total(self) -> Counts:
        """Of all requests of the pool, the tail's included."""
        return sum((row.counts for row in self.rows), self.tail)

    def recounted(self, earlier: PoolHeat, now: float) -> PoolHeat:
        """This later count of the window in place of ``earlier``."""
        late = earlier.late_lines + max(0, self.total.requests - earlier.total.requests)
        return replace(self, collected_at=earlier.collected_at, recounted_at=timestamp(now), late_lines=late)

    def dump(self) -> bytes:
        """The object's content: gzip of JSON; the same heat gives the same bytes."""
        document = {
            "schema": SCHEMA,
            "pool": self.key.pool,
            "endpoints": list(self.endpoints),
            "start": timestamp(self.key.start),
            "seconds": self.key.seconds,
            "collected_at": self.collected_at,
            "recounted_at": self.recounted_at,
            "late_lines": self.late_lines,
            "truncated": self.truncated,
            "tail": _listed(self.tail),
            "columns": [*_NAMES, *_NUMBERS],
            "rows": [[row.tenant, row.model, row.version, *_listed(row.counts)] for row in self.rows],
        }
        return gzip.compress(json.dumps(document, separators=(",", ":")).encode(), mtime=0)

    @classmethod
    def load(cls, key: HeatKey, content: bytes) -> PoolHeat:
        """Read what `dump` wrote; raises `HeatError`."""
        try:
            document = json.loads(gzip.decompress(content))
            if document["schema"] != SCHEMA:
                raise HeatError(f"{key.key} has schema {document['schema']!r}: this version reads {SCHEMA}")
            columns: list[str] = document["columns"]
            return cls(
                key,
                tuple(document["endpoints"]),
                tuple(_row(dict(zip(columns, row, strict=True))) for row in document["rows"]),
                Counts(*document["tail"]),
                document["truncated"],
                document["collected_at"],
                document["recounted_at"],
                document["late_lines"],
            )
        except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
            raise HeatError(f"{key.key} is not readable: delete it, the collector writes it again ({error!r})") from error


def _listed(counts: Counts) -> list[float]:
    return [getattr(counts, name) for name in _NUMBERS]


def _row(values: Mapping[str, Any]) -> ModelHeat:
    tenant, model, version = (values[name] for name in _NAMES)
    return ModelHeat(tenant, model, version, Counts(*(values[name] for name in _NUMBERS)))


class HeatReader(Protocol):
    """Where heat lies."""

    def windows(self, pool: str, *, since: int) -> Sequence[HeatKey]:
        """The windows of a pool that begin at ``since`` (epoch seconds) or later, oldest first."""
        ...

    def get(self, key: HeatKey) -> tuple[PoolHeat, str] | None:
        """One window's heat and its revision, if it is there; raises `HeatError`."""
        ...


class HeatStore(HeatReader, Protocol):
    """Where heat is written."""

    def create(self, heat: PoolHeat) -> bool:
        """Write a window that is not there yet; ``False`` if it is."""
        ...

    def replace(self, heat: PoolHeat, revision: str) -> bool:
        """Write a window in place of this revision of it; ``False`` if it has another one now."""
        ...

    def recounted_until(self) -> tuple[int, str] | None:
        """Up to when all windows were counted again (epoch seconds), and the note's revision."""
        ...

    def note_recounted(self, until: int, revision: str | None) -> bool:
        """Change that note; ``False`` if it has another revision now."""
        ...


@dataclass(frozen=True, slots=True)
class HeatRange:
    """Heat of one pool over a time range.

    Attributes:
        start: epoch seconds.
        end: epoch seconds.
        windows: those that lie wholly within, oldest first.
    """

    start: int
    end: int
    windows: tuple[PoolHeat, ...]

    @property
    def gaps(self) -> tuple[tuple[int, int], ...]:
        """Parts of the range that no window covers: not collected yet, or lost."""
        edges = [self.start, *(edge for window in self.windows for edge in (window.key.start, window.key.end)), self.end]
        return tuple((one, other) for one, other in list(pairwise(edges))[::2] if one < other)

    def models(self) -> Iterator[tuple[str, str]]:
        """(tenant, model) of every row, each once."""
        return iter(dict.fromkeys((row.tenant, row.model) for window in self.windows for row in window.rows))

    def by_model(self) -> dict[tuple[str, str], Counts]:
        """(tenant, model) -> counts of all versions and windows. What is in a tail has no name and is not there."""
        return _summed(((row.tenant, row.model), row.counts) for window in self.windows for row in window.rows)

    @property
    def total(self) -> Counts:
        """Of all requests, the tails' included."""
        return sum((window.total for window in self.windows), Counts())


def _summed(pairs: Iterable[tuple[tuple[str, str], Counts]]) -> dict[tuple[str, str], Counts]:
    sums: dict[tuple[str, str], Counts] = {}
    for name, counts in pairs:
        known = sums.get(name)
        sums[name] = counts if known is None else known + counts
    return sums


def read(reader: HeatReader, pool: str, *, start: int, end: int) -> HeatRange:
    """The heat of a pool in a time range.

    Args:
        reader: where it lies.
        pool: the pool's name.
        start: epoch seconds; windows that begin earlier are left out.
        end: epoch seconds; windows that end later are left out.

    Raises:
        HeatError: an object is not one of the collector's.
    """
    keys = [key for key in reader.windows(pool, since=start) if key.end <= end]
    found = (reader.get(key) for key in keys)
    return HeatRange(start, end, tuple(heat for heat, _revision in filter(None, found)))
