"""The plain handler of the gateway's figures: it loads nothing and answers at once. It runs inside a model server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["handle"]


def handle(data: Sequence[Any] | None, _context: Any) -> list[bytes] | None:
    """Answer; without data it is the load."""
    return None if data is None else [b"ok"]
