"""Conditional writes that lost a race are tried again from the first read, a few times."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from mme_tenancy.clock import Clock
from mme_tenancy.errors import WriteConflictError

__all__ = ["until_written"]

_T = TypeVar("_T")
_ATTEMPTS = 8
_FIRST_REST_SECONDS, _LONGEST_REST_SECONDS = 0.02, 0.5


def until_written(work: Callable[[], _T], *, clock: Clock, random: Callable[[], float], what: str) -> _T:
    """What ``work`` returns, once it meets no conflict.

    Args:
        work: reads, decides and writes.
        clock: time.
        random: numbers in [0, 1), for jitter.
        what: what others kept changing, for the error, such as ``this model's route``.

    Raises:
        WriteConflictError: every attempt met one.
    """
    for attempt in range(_ATTEMPTS):
        try:
            return work()
        except WriteConflictError:
            clock.sleep(min(_FIRST_REST_SECONDS * 2**attempt, _LONGEST_REST_SECONDS) * (0.5 + random()))
    raise WriteConflictError(f"others kept changing {what} at the same time: try again", retry_after_seconds=1)
