"""The last things that happened, numbered: a bounded buffer that any number of readers follow at their own pace."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Any

__all__ = ["Feed"]


class Feed:
    """Items in their order.

    A reader holds the number of the last item that it took, nothing more; one that is slower than the buffer is long misses
    items and is told how many.

    Args:
        now: scaled epoch seconds, the ``time`` of an item.
        capacity: how many items are kept.
    """

    def __init__(self, now: Callable[[], float], capacity: int = 4096) -> None:
        self._items: deque[dict[str, Any]] = deque(maxlen=capacity)
        self._now = now
        self.last = 0

    def put(self, kind: str, **members: Any) -> None:
        """Add an item.

        Args:
            kind: its ``type``.
            members: the rest of it; JSON.
        """
        self.last += 1
        self._items.append({"type": kind, "time": round(self._now(), 3), **members})

    def after(self, number: int, limit: int) -> tuple[int, int, list[dict[str, Any]]]:
        """What came after an item.

        Args:
            number: of the last item that the reader took, or 0.
            limit: how many items at most.

        Returns:
            The number of the last item given, how many between were missed, and the items.
        """
        if number > self.last:  # of an earlier run of the cloud
            number = 0
        oldest = self.last - len(self._items)
        missed = max(0, oldest - number)
        skipped = max(0, number - oldest)
        items = list(islice(self._items, skipped, skipped + limit))
        return oldest + skipped + len(items), missed, items
