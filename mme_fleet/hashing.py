"""Consistent hashing: which of several names a key falls to, with few keys moving when names come or go."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from hashlib import blake2b

__all__ = ["HashRing"]

_POINTS = 128
"""Points of a name on the ring: the shares of the names then differ by about 9 percent (1 / sqrt(128)) from their mean."""


class HashRing:
    """A ring of points, some for every name; a key belongs to the first point at or after its own place.

    The same in every process and on every machine. Taking a name away moves only its own keys; adding one moves only keys to it.

    Args:
        names: different from each other, in any order.
    """

    def __init__(self, names: Iterable[str]) -> None:
        points = sorted((_place(f"{number}:{name}"), name) for name in names for number in range(_POINTS))
        self._places = [place for place, _ in points]
        self._names = [name for _, name in points]

    def home(self, key: str) -> str:
        """The name that the key belongs to.

        Raises:
            ValueError: the ring has no names.
        """
        if not self._names:
            raise ValueError(f"the ring has no names, so {key!r} belongs to none: give at least one")
        return self._names[bisect_right(self._places, _place(key)) % len(self._names)]


def _place(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
