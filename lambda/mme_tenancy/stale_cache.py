"""A cache that answers at once: values kept for a short time, renewed behind the caller's back, replaced on request."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from mme_tenancy.clock import Clock

__all__ = ["Freshness", "StaleCache"]

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


@dataclass(slots=True)
class _Entry(Generic[_V]):
    value: _V
    read_at: float
    renewing: bool = False


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
    ) -> None:
        if entries < 1:
            raise ValueError(f"entries {entries} is not allowed: use 1 or more")
        self._read, self._clock, self._freshness, self._limit = read, clock, freshness, entries
        self._keep, self._background = keep, background
        self._entries: OrderedDict[_K, _Entry[_V]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: _K) -> _V:
        """The value, at most as old as `Freshness` says; raises what the source raises when there is no old one to fall back to."""
        now = self._clock.monotonic()
        with self._lock:
            entry = self._entries.get(key)
            age = now - entry.read_at if entry is not None else float("inf")
            if entry is not None and age < self._freshness.stale_seconds:
                self._entries.move_to_end(key)
                renew = age >= self._freshness.fresh_seconds and not entry.renewing
                entry.renewing = entry.renewing or renew
                if not renew:
                    return entry.value
        if entry is not None and age < self._freshness.stale_seconds:
            try:
                self._background(lambda: self._renew(key, entry))
            except RuntimeError:
                entry.renewing = False
            return entry.value
        try:
            return self.refresh(key)
        except Exception:
            if entry is None or age >= self._freshness.failing_seconds:
                raise
            _logger.warning("%s cannot be read; what was read %.0f s ago is used", key, age, exc_info=True)
            return entry.value

    def refresh(self, key: _K) -> _V:
        """Read the source now; raises what it raises."""
        # The age counts from before the read: a change that comes during it may be missing from the answer.
        read_at = self._clock.monotonic()
        value = self._read(key)
        with self._lock:
            known = self._entries.get(key)
            if not self._keep(value):
                self._entries.pop(key, None)
            elif known is None or known.read_at <= read_at:
                self._entries[key] = _Entry(value, read_at)
                self._entries.move_to_end(key)
                while len(self._entries) > self._limit:
                    self._entries.popitem(last=False)
        return value

    def _renew(self, key: _K, entry: _Entry[_V]) -> None:
        try:
            self.refresh(key)
        except Exception:
            # The next caller renews again, and meets the error once the old value is too old.
            _logger.warning("%s could not be renewed", key, exc_info=True)
            entry.renewing = False
