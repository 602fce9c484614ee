"""Requests under way to each fleet, so that a fleet is stopped only when it has answered."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from mme_facts.limits import INVOKE_TIMEOUT_SECONDS

__all__ = ["InFlight"]


class InFlight:
    """Counts requests by fleet. It lives on one event loop."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._waiting: defaultdict[str, set[asyncio.Event]] = defaultdict(set)

    @contextmanager
    def to(self, fleet: str) -> Iterator[None]:
        """A request to a fleet is under way."""
        self._counts[fleet] += 1
        try:
            yield
        finally:
            self._counts[fleet] -= 1
            if not self._counts[fleet]:
                del self._counts[fleet]
                for idle in self._waiting.pop(fleet, ()):
                    idle.set()

    async def drained(self, fleet: str) -> None:
        """Wait until a fleet has answered what is under way, but no longer than an answer may take."""
        if self._counts[fleet]:
            idle = asyncio.Event()
            self._waiting[fleet].add(idle)
            with suppress(TimeoutError):
                async with asyncio.timeout(INVOKE_TIMEOUT_SECONDS):
                    await idle.wait()
