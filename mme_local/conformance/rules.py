"""What a rule of the container contract is: a text with the check that decides about it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum

from mme_local.conformance.probe import Probe

__all__ = ["Check", "Outcome", "Rule", "rule"]

Check = Callable[[Probe], Awaitable[None]]


class Outcome(Enum):
    """What is known of a rule after a run."""

    KEPT = "kept"
    BROKEN = "broken"
    ALLOWED = "allowed"
    """Broken, as the table of differences says of this server (`mme_local.conformance.DIFFERENCES`)."""
    NOT_CHECKED = "not checked"


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule.

    Attributes:
        id: its name.
        text: what a container does.
        source: where that is from.
        required: whether the platform relies on it; the others make a container robust.
        needs: what has to be given of the container, attributes of `Subject`.
        after: rules that it builds on: when one of them is broken, this one is not checked.
        check: raises `mme_local.conformance.probe.BrokenRuleError` if the container breaks it.
    """

    id: str
    text: str
    source: str
    required: bool
    needs: tuple[str, ...]
    after: tuple[str, ...]
    check: Check


def rule(
    rule_id: str, text: str, source: str, *, required: bool = True, needs: tuple[str, ...] = (), after: tuple[str, ...] = ()
) -> Callable[[Check], Rule]:
    """Make a rule of its check; the arguments are those of `Rule`."""
    return lambda check: Rule(rule_id, text, source, required, needs, after, check)
