"""Starting a warm-up although no fleet has changed, and watching it to its end."""

from __future__ import annotations

import json
from collections.abc import Callable

from mme_cli.errors import CommandError
from mme_cli.warm_up.course import Course, course
from mme_cli.warm_up.targets import Target, answered
from mme_cli.warm_up.words import change_text

__all__ = ["follow", "start"]

_BEGIN_SECONDS = 90.0
"""So long the function may take to begin: Lambda gives events back after a minute, and the schedule looks every minute, too."""
_LOOK_SECONDS = 1.0
_LATE_SECONDS = 660.0
"""A warm-up ends within its time; one that nobody works on is given up so long after it."""


def start(target: Target) -> int:
    """Ask the function to warm an endpoint; returns the number of the newest warm-up before it.

    Raises:
        CommandError: a warm-up is under way, the endpoint serves nobody, or AWS refuses.
    """
    from mme_facts.own_events import WarmUpTask, warm_up_event

    with answered(target.asked):
        target.fleet()  # refuses what cannot be warmed
        before = course(target).warm_up
        if before is not None and before.is_open:
            raise CommandError(
                f"a warm-up of {target.name} is {before.state.value} already ({change_text(before.change)}): one at a time; "
                f"'mme warm-up {target.name}' shows it"
            )
        payload = json.dumps(warm_up_event(target.name, WarmUpTask.START)).encode()
        target.asked.client("lambda").invoke(FunctionName=target.function, InvocationType="Event", Payload=payload)
    return 0 if before is None else before.change.number


def follow(target: Target, number: int, tell: Callable[[str], None]) -> Course:
    """Watch the warm-up that comes after ``number`` until it has ended; what is known of it then.

    Args:
        target: the endpoint.
        number: of the warm-up before it.
        tell: is told how far it is.

    Raises:
        CommandError: it did not begin, it does not end, or AWS refuses.
    """
    clock = target.clock
    began, latest = clock.monotonic(), clock.monotonic() + target.bounds.seconds + _LATE_SECONDS
    while True:
        found = course(target)
        if found.warm_up is None or found.warm_up.change.number <= number:
            if clock.monotonic() > began + _BEGIN_SECONDS:
                raise CommandError(
                    f"no warm-up of {target.name} began within {_BEGIN_SECONDS:g} s: look at the log of {target.function}, and at "
                    "'mme dead-letters list warm_up'"
                )
            tell("waiting for the function")
        elif not found.warm_up.is_open:
            return found
        else:
            tell(found.text)
        if clock.monotonic() > latest:
            raise CommandError(f"the warm-up of {target.name} should have ended by now: look at the log of {target.function}")
        clock.sleep(_LOOK_SECONDS)
