"""What a command shows: results on standard output, progress on standard error, colours only on a terminal."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from rich.status import Status

__all__ = ["Steps", "print_json", "stderr", "stdout"]

stdout = Console(highlight=False)
stderr = Console(stderr=True, highlight=False)


def print_json(document: object) -> None:
    """Print one JSON document on standard output."""
    print(json.dumps(document, indent=2, default=str))


class Steps:
    """Numbered steps of a longer piece of work: a spinner on a terminal, one line a finished step anywhere.

    Args:
        total: how many steps there will be.
        console: where to show them.
    """

    def __init__(self, total: int, console: Console = stderr) -> None:
        self._total, self._console, self._number = total, console, 0
        self._status: Status | None = None

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """One step: shows ``title`` while it runs and the seconds it took once it is done."""
        self._number += 1
        label = f"[{self._number}/{self._total}] {title}"
        started = time.monotonic()
        with self._console.status(label, spinner="dots") as status:
            self._status, self._label = status, label
            try:
                yield
            except BaseException:
                self._console.print(f"{label}: failed after {time.monotonic() - started:.1f} s", style="red", markup=False)
                raise
            finally:
                self._status = None
        self._console.print(f"{label}: {time.monotonic() - started:.1f} s", markup=False)

    def detail(self, text: str) -> None:
        """What the running step is at now (seen on a terminal only)."""
        if self._status is not None:
            self._status.update(f"{self._label} - {text}")
