"""Time as an argument: the clock that everything here takes, and the one form of timestamps."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from typing import Protocol

from mme_facts.scaled_time import CLOCK_VARIABLE, ScaledTime

__all__ = ["Clock", "SystemClock", "timestamp"]


class Clock(Protocol):
    """Clocks and sleep, all in seconds."""

    def time(self) -> float:
        """Seconds since 1970."""
        ...

    def wall(self) -> float:
        """Seconds since 1970 by the machine's own clock, where a local cloud's `time` runs faster: for the deadlines of requests."""
        ...

    def monotonic(self) -> float:
        """Seconds of a clock that never goes back; deadlines are points on it."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class SystemClock:
    """The machine's own clock; under a local cloud with a scaled clock (`mme_facts.scaled_time`) `time` is that one.

    Args:
        scaled: how `time` passes. Default: as the local cloud tells its functions, else as the machine's.
    """

    def __init__(self, scaled: ScaledTime | None = None) -> None:
        self.scaled = ScaledTime.read(os.environ.get(CLOCK_VARIABLE)) if scaled is None else scaled

    def time(self) -> float:
        """Seconds since 1970."""
        return self.scaled.at(time.time())

    def wall(self) -> float:
        """Seconds since 1970, never scaled."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds of a clock that never goes back."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


def timestamp(epoch_seconds: float) -> str:
    """ISO 8601 in UTC with milliseconds (``2026-11-29T12:00:00.000Z``): as text it sorts by time."""
    return datetime.fromtimestamp(epoch_seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
