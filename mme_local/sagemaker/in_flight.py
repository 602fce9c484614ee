"""Requests under way to each fleet, so that a fleet is stopped only when it has answered."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress

__all__ = ["InFlight"]


class InFlight:
    """Counts requests by fleet and by how long they may take. It lives on one event loop."""

    def __init__(self) -> None:
        self._counts: defaultdict[str, Counter[float]] = defaultdict(Counter)
        self._waiting: defaultdict[str, set[asyncio.Event]] = defaultdict(set)

    @contextmanager
    def to(self, fleet: str, limit_seconds: float) -> Iterator[None]:
        """A request to a fleet is under way, whose answer may take ``limit_seconds``."""
        counts = self._counts[fleet]
        counts[limit_seconds] += 1
        try:
            yield
        finally:
            counts[limit_seconds] -= 1
            if not counts[limit_seconds]:
                del counts[limit_seconds]
            if not counts:
                del self._counts[fleet]
                for idle in self._waiting.pop(fleet, ()):
                    idle.set()

    async def drained(self, fleet: str) -> None:
        """Wait until a fleet has answered what is under way, but no longer than the longest of the answers may take."""
        if fleet in self._counts:
            idle = asyncio.Event()
            self._waiting[fleet].add(idle)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(self._counts[fleet])):
                    await idle.wait()
