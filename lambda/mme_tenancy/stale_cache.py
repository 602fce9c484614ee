"""A cache that answers at once: values kept for a short time, renewed behind the caller's back, replaced on request.

Where a `Watch` tells whether a value may have changed, values are kept for minutes and the short time holds for the watch alone.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, Protocol, TypeVar

from mme_tenancy.apart import run_apart
from mme_tenancy.clock import Clock

__all__ = ["Freshness", "StaleCache", "Watch"]

_logger = logging.getLogger(__name__)
_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


@dataclass(frozen=True, slots=True)
class Freshness:
    """How long an entry is good for, in seconds since it was read.

    Attributes:
        fresh_seconds: so long it is used as it is.
        stale_seconds: so long it is used while it is renewed in the background.
        failing_seconds: so long it is used while the source fails.
    """

    fresh_seconds: float = 1.0
    stale_seconds: float = 2.0
    failing_seconds: float = 300.0

    def __post_init__(self) -> None:
        if not 0 <= self.fresh_seconds <= self.stale_seconds <= self.failing_seconds:
            raise ValueError(f"{self} is not allowed: fresh_seconds <= stale_seconds <= failing_seconds, none below 0")


class Watch(Protocol):
    """Tells whether values may have changed, by counters that never stand still when one did."""

    def last(self) -> Sequence[int] | None:
        """The counters that were read last, however long ago; ``None`` if none were. Never waits."""
        ...

    def current(self, now: float) -> Sequence[int] | None:
        """The counters as of a moment before the monotonic time ``now``; ``None`` while they cannot be had."""
        ...


_PATIENCE_SECONDS = 1.0
"""So long a new value is waited for where there is an old one; the source answers in milliseconds, or not at all."""
_WATCHED = Freshness(30.0, 60.0, 300.0)
"""For values that are watched: the longest that a change goes unseen which nobody counted, such as one of an earlier release."""


@dataclass(slots=True)
class _Entry(Generic[_V]):
    """A value: when its read began, which counter is its own, and what that was before the read began."""

    value: _V
    read_at: float
    part: int = 0
    mark: int | None = None
    renewing: bool = False


@dataclass(slots=True)
class _Flight(Generic[_V]):
    """A read under way, which others wait for instead of reading the same."""

    read_at: float
    part: int
    mark: int | None
    answer: Future[_V] = field(default_factory=Future)


class StaleCache(Generic[_K, _V]):
    """A bounded cache with stale-while-revalidate and stale-if-error (RFC 5861), safe for threads.

    Args:
        read: the source; what it raises is an error of the source.
        clock: time.
        freshness: how long entries are good for.
        entries: so many are kept; the least recently used goes.
        keep: which answers are kept; another one is given once, and what was kept for its key is forgotten.
        background: runs a function soon, on another thread. A `RuntimeError` says that it does not, as a pool of threads that was shut down
            says; then the value is good until it is stale.
        watch: tells whether values may have changed. Default: nothing does.
        part: which of the watch's counters is a key's.
    """

    def __init__(
        self,
        read: Callable[[_K], _V],
        clock: Clock,
        *,
        freshness: Freshness,
        entries: int,
        keep: Callable[[_V], bool],
        background: Callable[[Callable[[], None]], object],
        watch: Watch | None = None,
        part: Callable[[_K], int] = lambda _key: 0,
    ) -> None:
        if entries < 1:
            raise ValueError(f"entries {entries} is not allowed: use 1 or more")
        self._read, self._clock, self._freshness, self._limit = read, clock, freshness, entries
        self._keep, self._background = keep, background
        self._watch, self._part = watch, part
        self._entries: OrderedDict[_K, _Entry[_V]] = OrderedDict()
        self._flights: dict[_K, _Flight[_V]] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: _K, *, deadline: float = math.inf) -> _V:
        """The value, at most as old as `Freshness` says.

        Args:
            key: its key.
            deadline: until when the source is waited for, on the monotonic clock; where there is an old value, a second at most.

        Raises:
            TimeoutError: the source did not answer by then, and there is no old value to fall back to.
            Exception: what the source raises, likewise.
        """
        now = self._clock.monotonic()
        entry = self._entries.get(key)
        if entry is None:
            return self._read_once(key, now, deadline)
        freshness, changed = self._freshness, False
        if self._watch is not None and (counters := self._watch.current(now)) is not None and entry.mark is not None:
            freshness, changed = _WATCHED, counters[entry.part] != entry.mark
        age = now - entry.read_at
        if not changed and age < freshness.stale_seconds:
            with self._lock:
                if key in self._entries:
                    self._entries.move_to_end(key)
                renew = age >= freshness.fresh_seconds and not entry.renewing
                entry.renewing = entry.renewing or renew
            if renew:
                try:
                    self._background(lambda: self._renew(key, entry))
                except RuntimeError:
                    entry.renewing = False
            return entry.value
        try:
            return self._read_once(key, now, min(deadline, now + _PATIENCE_SECONDS))
        except Exception:
            if age >= self._freshness.failing_seconds:
                raise
            _logger.warning("%s cannot be read; what was read %.0f s ago is used", key, age, exc_info=True)
            return entry.value

    def refresh(self, key: _K, *, deadline: float = math.inf) -> _V:
        """Read the source now; raises what it raises, or `TimeoutError` when it has not answered by ``deadline``."""
        with self._lock:
            flight = self._begin(key)
        return self._waited(key, flight, deadline)

    def _waited(self, key: _K, flight: _Flight[_V], deadline: float) -> _V:
        if deadline == math.inf:
            return self._fly(key, flight)
        return run_apart(partial(self._fly, key, flight), name="mme-route").result(self._left(deadline))

    def _left(self, deadline: float) -> float | None:
        return None if deadline == math.inf else max(deadline - self._clock.monotonic(), 0.0)

    def _read_once(self, key: _K, now: float, deadline: float) -> _V:
        """Read the source, or wait for somebody who does; not for one who began before a change that is known."""
        with self._lock:
            flight = self._flights.get(key)
            mark = self._mark(self._part(key))
            join = flight is not None and flight.mark == mark and now - flight.read_at < self._freshness.stale_seconds
            if flight is None or not join:
                join, flight = False, self._begin(key)
        return flight.answer.result(self._left(deadline)) if join else self._waited(key, flight, deadline)

    def _begin(self, key: _K) -> _Flight[_V]:
        # The age counts from before the read: a change that comes during it may be missing from the answer. So does the counter.
        part = self._part(key)
        flight = self._flights[key] = _Flight[_V](self._clock.monotonic(), part, self._mark(part))
        return flight

    def _mark(self, part: int) -> int | None:
        counters = None if self._watch is None else self._watch.last()
        return None if counters is None else counters[part]

    def _fly(self, key: _K, flight: _Flight[_V]) -> _V:
        try:
            value = self._read(key)
        except BaseException as error:
            self._end(key, flight)
            flight.answer.set_exception(error)
            raise
        with self._lock:
            known = self._entries.get(key)
            if not self._keep(value):
                self._entries.pop(key, None)
            elif known is None or known.read_at <= flight.read_at:
                self._entries[key] = _Entry(value, flight.read_at, flight.part, flight.mark)
                self._entries.move_to_end(key)
                while len(self._entries) > self._limit:
                    self._entries.popitem(last=False)
        self._end(key, flight)
        flight.answer.set_result(value)
        return value

    def _end(self, key: _K, flight: _Flight[_V]) -> None:
        with self._lock:
            if self._flights.get(key) is flight:
                del self._flights[key]

    def _renew(self, key: _K, entry: _Entry[_V]) -> None:
        try:
            self.refresh(key)
        except Exception:
            # The next caller renews again, and meets the error once the old value is too old.
            _logger.warning("%s could not be renewed", key, exc_info=True)
            entry.renewing = False
