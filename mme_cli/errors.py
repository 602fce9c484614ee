"""Errors that end a command: one sentence for the person, no traceback."""

from __future__ import annotations

__all__ = ["CommandError", "NoAnswerError", "UsageError"]


class CommandError(Exception):
    """The work failed; the text says what went wrong, the value, what is allowed and what to do. Exit status 1."""

    exit_status = 1


class UsageError(CommandError):
    """The command was given something wrong and has done nothing. Exit status 2."""

    exit_status = 2


class NoAnswerError(CommandError):
    """A request got no answer: it may have been done or not."""
