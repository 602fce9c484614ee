"""How warm-ups are told of: their changes, reasons, sizes and times."""

from __future__ import annotations

from collections.abc import Mapping

from mme_tenancy.warm_up.change import FleetChange
from mme_tenancy.warm_up.plan import Skip
from mme_tenancy.warm_up.run import End

__all__ = ["ENDS", "NOT_CANDIDATES", "SKIPPED", "change_text", "count_text", "gap_text", "size_text"]

SKIPPED: Mapping[Skip, str] = {
    Skip.NO_SAMPLE: "without a sample payload, so there is nothing to call them with",
    Skip.RETIRED: "whose version is retired",
    Skip.DEDICATED: "with a component of their own",
    Skip.TOO_BIG: "too big for an instance less the reserve",
    Skip.NOT_RESIDENT: "that were probably not loaded before: others, used later, filled the memory",
    Skip.NO_ROOM: "that probably were, but others, used later, fill the memory less the reserve",
    Skip.NOT_WORTH_IT: "that would push out what is used as much",
    Skip.ENDED: "whose turn did not come",
}
"""Why models are not warmed, behind their number."""
NOT_CANDIDATES: Mapping[str, str] = {
    "unknown": "used lately, but without a record or a route now",
    "elsewhere": "used lately, but routed to another endpoint",
}
ENDS: Mapping[End, str] = {
    End.DONE: "every model was called",
    End.NOTHING_MOVED: "the router has moved next to nothing: most of what should have had to be loaded was there",
    End.RECOVERED: "the hit ratio was back",
    End.TIME: "its time was over",
    End.THROTTLED: "the endpoint took no calls, again and again",
    End.FAILED: "too many models failed",
    End.ABANDONED: "it was given up",
}
"""Why warm-ups have ended."""
_UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))
_TIMES = (("d", 86_400), ("h", 3600), ("min", 60))


def change_text(change: FleetChange) -> str:
    """What has happened, in one line."""
    moved = f"from {change.instances_before} to {count_text(change.instances_after, 'instance')}"
    if change.instances_before == change.instances_after:
        moved = f"of {count_text(change.instances_after, 'instance')}"
    empty = f", {change.empty_instances} of them empty" if change.empty_instances else ""
    return f"{change.kind.value} {moved}{empty}"


def count_text(count: int, what: str) -> str:
    """Such as ``1 model`` and ``2 models``."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def size_text(size_bytes: float) -> str:
    """Bytes with three digits or so."""
    for unit, size in _UNITS:
        if size_bytes >= size:
            return f"{size_bytes / size:.3g} {unit}"
    return f"{size_bytes:.0f} B"


def gap_text(seconds: float) -> str:
    """A time span with two digits or so."""
    for unit, size in _TIMES:
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
