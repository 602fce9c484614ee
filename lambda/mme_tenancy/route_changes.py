"""Which routes changed: counters that invocations watch instead of reading every route again and again.

Each tenant belongs to one of `PARTS` parts, and each part has a counter in the registry. `mme_tenancy.registry.Registry.write` counts up
those of its changes in the same transaction, so a counter that stands still says that no route and no limit of that part changed, whatever
the clocks of writers say. One read of all counters a second answers for every route that a process keeps.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from zlib import crc32

from mme_tenancy.apart import run_apart
from mme_tenancy.clock import Clock
from mme_tenancy.registry import Change, Record
from mme_tenancy.routes import Model
from mme_tenancy.stale_cache import Freshness
from mme_tenancy.tenants import Tenant

__all__ = ["PARTS", "RouteChanges", "changed_parts", "part_of"]

_logger = logging.getLogger(__name__)
PARTS = 64
"""So many counters are one read unit (4 KB) together, and writers of different tenants seldom meet on one."""
_REST_SECONDS = 1.0
_MAX_REST_SECONDS = 60.0
_PATIENCE_SECONDS = 1.0
"""So long a caller waits for the counters; after that each route counts by its own age."""


def part_of(tenant: str) -> int:
    """The part that a tenant belongs to, the same in every process."""
    return crc32(tenant.encode()) % PARTS


def changed_parts(changes: Iterable[Change]) -> tuple[int, ...]:
    """The parts whose counters these changes count up, in order, each once.

    What no invocation can have kept does not count: new records, and models that had no route. So onboarding counts nothing.
    """
    return tuple(sorted({part_of(change.after.tenant) for change in changes if _is_followed(change)}))


def _is_followed(change: Change) -> bool:
    match change.before:
        case Tenant():
            return True
        case Model(route=route) if route is not None:
            return _heeded(change.before) != _heeded(change.after)
    return False


def _heeded(record: Record | None) -> tuple[object, ...]:
    assert isinstance(record, Model)
    return record.route, record.retired_at


class RouteChanges:
    """The counters as they were a moment ago; safe for threads.

    Args:
        read: reads all counters consistently, in the order of their parts; what it raises is an error of the source.
        clock: time.
        freshness: how old counters may be: from ``fresh_seconds`` on they are read in the background, from ``stale_seconds`` on while the
            caller waits, as in a container of Lambda that was frozen.
        background: runs a function soon, on another thread; a `RuntimeError` says that it does not.
    """

    def __init__(
        self,
        read: Callable[[], Sequence[int]],
        clock: Clock,
        *,
        freshness: Freshness,
        background: Callable[[Callable[[], None]], object],
    ) -> None:
        self._read, self._clock, self._freshness, self._background = read, clock, freshness, background
        # Counters and when their read began, replaced as one so that a caller needs no lock to see both.
        self._known: tuple[float, Sequence[int]] | None = None
        self._turn = threading.Lock()
        self._polling: Future[None] | None = None
        self._begun = False
        self._failures, self._rest_until = 0, float("-inf")

    def last(self) -> Sequence[int] | None:
        """The counters that were read last, however long ago; ``None`` if none were."""
        return None if self._known is None else self._known[1]

    def current(self, now: float) -> Sequence[int] | None:
        """The counters, not older than ``stale_seconds`` at the monotonic time ``now``; ``None`` while they cannot be had."""
        known = self._known
        if known is not None and now - known[0] < self._freshness.fresh_seconds:
            return known[1]
        if known is None or now - known[0] < self._freshness.stale_seconds:
            if not self._begun and now >= self._rest_until:
                self._begun = True
                try:
                    self._background(self._poll)
                except RuntimeError:
                    self._begun = False
            return None if known is None else known[1]
        with self._turn:
            # Whoever comes here later waits for the read that another began.
            if self._polling is None and self._is_old(now) and self._clock.monotonic() >= self._rest_until:
                self._polling = run_apart(self._poll, name="mme-route-changes")
            polling = self._polling
        if polling is not None:
            wait([polling], _PATIENCE_SECONDS)
            with self._turn:
                if polling.done() and self._polling is polling:
                    self._polling = None
        known = self._known
        return None if known is None or self._is_old(now) else known[1]

    def _is_old(self, now: float) -> bool:
        return self._known is None or now - self._known[0] >= self._freshness.stale_seconds

    def _poll(self) -> None:
        began = self._clock.monotonic()
        try:
            counters = tuple(self._read())
        except Exception as error:
            self._failures += 1
            rest = min(_REST_SECONDS * 2.0 ** min(self._failures - 1, 10), _MAX_REST_SECONDS)
            self._rest_until = self._clock.monotonic() + rest
            level = logging.WARNING if self._failures == 1 else logging.DEBUG
            _logger.log(level, "changes of routes cannot be read (%s): each route is read again by itself; next try in %g s", error, rest)
        else:
            self._failures = 0
            with _ORDER:
                if self._known is None or self._known[0] <= began:
                    self._known = began, counters
        finally:
            self._begun = False


_ORDER = threading.Lock()
"""Held for two assignments: an answer never replaces one whose read began later."""
