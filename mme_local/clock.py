"""The local cloud's clock: scaled time for statuses, cooldowns, metrics, alarms and schedules.

Not scaled: request deadlines, the 60 s limit of an invocation, model loads, credentials. Those use the event loop's own time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime

from mme_facts.scaled_time import ScaledTime

__all__ = ["CloudClock"]


class CloudClock:
    """One for a gateway; made on its event loop.

    Args:
        scale: scaled seconds a real second.
    """

    def __init__(self, scale: float = 1.0) -> None:
        now = time.time()
        self._map = ScaledTime(now, now, scale)
        self._jumped = asyncio.Event()
        self._followers: list[Callable[[], None]] = []

    @property
    def scale(self) -> float:
        """Scaled seconds a real second."""
        return self._map.scale

    @property
    def setting(self) -> str:
        """The value of `mme_facts.scaled_time.CLOCK_VARIABLE` for child processes."""
        return self._map.setting

    def time(self) -> float:
        """Scaled epoch seconds; may be called in any thread."""
        return self._map.at(time.time())

    def now(self) -> datetime:
        """The same as a datetime in UTC."""
        return datetime.fromtimestamp(self.time(), UTC)

    async def sleep(self, seconds: float) -> None:
        """Wait for scaled seconds; a jump of the clock shortens or lengthens the wait."""
        await self.sleep_until(self.time() + seconds)

    async def sleep_until(self, moment: float) -> None:
        """Wait until the clock shows ``moment``, in scaled epoch seconds."""
        while (missing := moment - self.time()) > 0:
            jumped = self._jumped
            try:
                async with asyncio.timeout(missing / self.scale):
                    await jumped.wait()
            except TimeoutError:
                continue

    def jump(self, seconds: float) -> None:
        """Put the clock forward, or back with a negative number; whoever sleeps looks again."""
        self._map = self._map.jumped(time.time(), seconds)
        jumped, self._jumped = self._jumped, asyncio.Event()
        jumped.set()
        for follow in self._followers:
            follow()

    def on_jump(self, follow: Callable[[], None]) -> None:
        """Call ``follow`` after every jump: other processes and copies of `setting` have to be told."""
        self._followers.append(follow)
