"""The upper keys of a document that is too large to be held."""

from __future__ import annotations

__all__ = ["MAX_DEPTH", "Outline"]

MAX_DEPTH = 64
"""Deeper documents are refused: no framework writes them, and parsers recurse."""
_KEPT_DEPTH = 3
_KEPT_PATHS = 256
_KEPT_CHARACTERS = 64


class Outline:
    """Collects the paths of keys down to the third level, in bounded memory."""

    def __init__(self) -> None:
        self.paths: set[tuple[str, ...]] = set()

    def enter(self, path: tuple[str, ...] | None, key: bytes) -> tuple[str, ...] | None:
        """The path of ``key`` below ``path``; ``None`` where paths are not kept."""
        if path is None or len(path) >= _KEPT_DEPTH or len(key) > _KEPT_CHARACTERS or len(self.paths) >= _KEPT_PATHS:
            return None
        found = (*path, key.decode("utf-8", "replace"))
        self.paths.add(found)
        return found
