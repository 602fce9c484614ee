"""Work beside the one thread that decides: what was begun ends some time later and is told then."""

from __future__ import annotations

import queue
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

__all__ = ["Finished", "ThreadWorkers", "Workers"]

_URGENT_THREADS = 4


@dataclass(frozen=True, slots=True)
class Finished:
    """Work that has ended.

    Attributes:
        key: what it was begun with.
        value: what it returned; ``None`` if it raised.
        error: what it raised.
    """

    key: Hashable
    value: object
    error: BaseException | None = None


class Workers(Protocol):
    """Does work, many pieces at once."""

    def begin(self, key: Hashable, work: Callable[[], object], *, urgent: bool = False) -> None:
        """Begin ``work`` without waiting for it. Work that is ``urgent`` waits for none that is not."""
        ...

    def finished(self, seconds: float) -> list[Finished]:
        """What has ended and was not told yet; waits at most ``seconds`` for the first."""
        ...


class ThreadWorkers:
    """`Workers` on threads. Leaving the context waits for nothing: what is not told by then is nobody's.

    Args:
        threads: pieces at once, at most; more wait for their turn. There are some more threads for urgent ones.
    """

    def __init__(self, threads: int) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="warm-up")
        self._urgent = ThreadPoolExecutor(_URGENT_THREADS, thread_name_prefix="warm-up-urgent")
        self._ended: queue.SimpleQueue[Finished] = queue.SimpleQueue()

    def __enter__(self) -> ThreadWorkers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for threads in (self._threads, self._urgent):
            threads.shutdown(wait=False, cancel_futures=True)

    def begin(self, key: Hashable, work: Callable[[], object], *, urgent: bool = False) -> None:
        """Begin ``work`` without waiting for it. Work that is ``urgent`` waits for none that is not."""
        (self._urgent if urgent else self._threads).submit(self._run, key, work)

    def finished(self, seconds: float) -> list[Finished]:
        """What has ended and was not told yet; waits at most ``seconds`` for the first."""
        told: list[Finished] = []
        try:
            told.append(self._ended.get(timeout=max(0.0, seconds)))
            while True:
                told.append(self._ended.get_nowait())
        except queue.Empty:
            return told

    def _run(self, key: Hashable, work: Callable[[], object]) -> None:
        try:
            self._ended.put(Finished(key, work()))
        except BaseException as error:
            self._ended.put(Finished(key, None, error))
