"""Kills processes that take more memory than they may, as Lambda does with a function's runtime.

What counts is the resident memory of the process itself, looked at every 20 ms: a process may be above its limit for that long.
Needs ``/proc``; elsewhere nothing is limited.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["MIB", "MemoryWatch", "Watched"]

MIB = 1 << 20
_INTERVAL_SECONDS = 0.02
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Watched:
    """A process under watch.

    Args:
        process: gives the process; ``None`` while there is none. It may be another one each time.
        limit_bytes: greatest resident memory.

    Attributes:
        killed: whether it was killed for its memory.
        peak_bytes: the most that was seen.
    """

    def __init__(self, process: Callable[[], subprocess.Popen[str] | None], limit_bytes: int) -> None:
        self._process, self._limit_bytes = process, limit_bytes
        self.killed = False
        self.peak_bytes = 0

    def look(self) -> None:
        """Look once."""
        process = self._process()
        if process is None or process.poll() is not None:
            return
        with suppress(OSError, IndexError):  # it may end at any moment
            resident = int(Path(f"/proc/{process.pid}/statm").read_text("ascii").split()[1]) * _PAGE_BYTES
            self.peak_bytes = max(self.peak_bytes, resident)
            if resident > self._limit_bytes:
                self.killed = True
                process.kill()


class MemoryWatch:
    """Looks at processes from a thread of its own, which sleeps while there is none."""

    def __init__(self) -> None:
        self._watched: set[Watched] = set()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    @contextmanager
    def over(self, process: Callable[[], subprocess.Popen[str] | None], limit_bytes: int) -> Iterator[Watched]:
        """Watch a process for the length of the block; it is looked at once more at the end."""
        watched = Watched(process, limit_bytes)
        with self._changed:
            self._watched.add(watched)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="memory watch", daemon=True)
                self._thread.start()
            self._changed.notify()
        try:
            yield watched
            watched.look()
        finally:
            with self._changed:
                self._watched.discard(watched)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._watched)
                watched = tuple(self._watched)
            for each in watched:
                each.look()
            time.sleep(_INTERVAL_SECONDS)
