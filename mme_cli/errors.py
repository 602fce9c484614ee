"""Errors that end a command: one sentence for the person, no traceback."""

from __future__ import annotations

__all__ = ["CommandError"]


class CommandError(Exception):
    """The work failed; the text says what went wrong, the value, what is allowed and what to do. Exit status 1."""
