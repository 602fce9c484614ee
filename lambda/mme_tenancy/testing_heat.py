"""Heat in a dictionary, for tests of whatever reads or writes it."""

from __future__ import annotations

from mme_facts.grammar import HeatKey
from mme_tenancy.heat import PoolHeat

__all__ = ["MemoryHeat"]


class MemoryHeat:
    """`mme_tenancy.heat.HeatStore` in a dictionary.

    Attributes:
        objects: key -> content and revision.
        note: up to when windows were counted again, and the note's revision.
    """

    def __init__(self, *heats: PoolHeat) -> None:
        self.objects: dict[str, tuple[bytes, str]] = {}
        self.note: tuple[int, str] | None = None
        self._writes = 0
        for heat in heats:
            self.create(heat)

    def windows(self, pool: str, *, since: int) -> list[HeatKey]:
        """The windows of a pool that begin at ``since`` (epoch seconds) or later, oldest first."""
        keys = (HeatKey.parse(key) for key in self.objects)
        return sorted(key for key in keys if key.pool == pool and key.start >= since)

    def get(self, key: HeatKey) -> tuple[PoolHeat, str] | None:
        """One window's heat and its revision, if it is there; raises `HeatError`."""
        found = self.objects.get(key.key)
        return None if found is None else (PoolHeat.load(key, found[0]), found[1])

    def create(self, heat: PoolHeat) -> bool:
        """Write a window that is not there yet; ``False`` if it is."""
        if heat.key.key in self.objects:
            return False
        self.objects[heat.key.key] = (heat.dump(), self._revision())
        return True

    def replace(self, heat: PoolHeat, revision: str) -> bool:
        """Write a window in place of this revision of it; ``False`` if it has another one now."""
        found = self.objects.get(heat.key.key)
        if found is None or found[1] != revision:
            return False
        self.objects[heat.key.key] = (heat.dump(), self._revision())
        return True

    def recounted_until(self) -> tuple[int, str] | None:
        """Up to when all windows were counted again (epoch seconds), and the note's revision."""
        return self.note

    def note_recounted(self, until: int, revision: str | None) -> bool:
        """Change that note; ``False`` if it has another revision now."""
        if revision != (self.note and self.note[1]):
            return False
        self.note = (until, self._revision())
        return True

    def _revision(self) -> str:
        self._writes += 1
        return f'"{self._writes}"'
