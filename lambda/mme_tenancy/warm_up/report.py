"""What the log says of warm-ups: changes that were found, what became of each warm-up with its metrics, and what went wrong beside it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from mme_tenancy.clock import Clock
from mme_tenancy.telemetry import prefetch_line, warm_up_line
from mme_tenancy.warm_up.change import FleetChange
from mme_tenancy.warm_up.plan import WarmUpPlan
from mme_tenancy.warm_up.ports import WarmUp
from mme_tenancy.warm_up.run import End, WarmUpSummary

if TYPE_CHECKING:
    from mme_tenancy.warm_up.execute import Driven
    from mme_tenancy.warm_up.prefetching import Prefetched

__all__ = ["Report", "change_document", "summary_document", "warm_up_document"]

_FAILED = frozenset({End.FAILED.value, End.THROTTLED.value})
"""Ends that somebody has to know of: the models are as cold as before."""
_TOLD = 20
"""So many models that failed, and problems, are told of one by one."""


@dataclass(frozen=True, slots=True)
class Report:
    """Writes lines.

    Attributes:
        write: writes one.
        clock: time.
    """

    write: Callable[[str], None]
    clock: Clock

    def note(self, endpoint: str, message: str, **more: object) -> None:
        """A line without metrics."""
        self.write(json.dumps({"message": message, "endpoint": endpoint, **more}))

    def trouble(self, endpoint: str, message: str, error: Exception) -> None:
        """A line about something that failed and stops nothing."""
        self.note(endpoint, message, level="WARNING", error=f"{type(error).__name__}: {error}")

    def unread(self, endpoint: str, problems: Sequence[str]) -> None:
        """A line about what a plan was made without."""
        self.note(endpoint, "not all that was used could be read", level="WARNING", problems=list(problems)[:_TOLD])

    def planned(self, endpoint: str, change: FleetChange, plan: WarmUpPlan, seconds: float) -> None:
        """A plan that was made in so many seconds."""
        self.note(
            endpoint,
            "planned",
            number=change.number,
            kind=change.kind.value,
            models=len(plan.steps),
            bytes=plan.bytes,
            in_flight=plan.in_flight,
            skipped={reason.value: count for reason, count in plan.skipped.items()},
            seconds=round(seconds, 3),
        )

    def ended(
        self, endpoint: str, warm_up: WarmUp, summary: WarmUpSummary | None = None, problems: Mapping[str, int] | None = None
    ) -> None:
        """What became of a warm-up, with the metrics of what was done for it.

        Args:
            endpoint: the endpoint's name.
            warm_up: the warm-up as it is recorded.
            summary: what was done. Default: nothing is known of it.
            problems: what failed beside the calls, and how often.
        """
        change = warm_up.change
        why = f"{change.kind.value} {change.number}" + (f": {warm_up.reason}" if warm_up.reason else "")
        failed = (warm_up.summary or {}).get("end") in _FAILED
        self.write(warm_up_line(endpoint, summary, why=why, failed=failed, epoch_seconds=self.clock.time(), problems=problems))

    def prefetched(self, endpoint: str, done: Prefetched, driven: Driven | None) -> None:
        """What a minute of prefetch came to, with its metrics.

        Args:
            endpoint: the endpoint's name.
            done: what was learned and due.
            driven: what came of the calls; ``None``: there were none.
        """
        more = {} if driven is None else {"summary": summary_document(driven.summary), "failures": dict(driven.problems)}
        called = 0 if driven is None else driven.summary.warmed
        self.write(prefetch_line(endpoint, done, called=called, more=more, epoch_seconds=self.clock.time()))


def change_document(change: FleetChange) -> dict[str, Any]:
    """A change as JSON can hold it."""
    return asdict(change) | {"kind": change.kind.value}


def summary_document(summary: WarmUpSummary) -> dict[str, Any]:
    """A summary as JSON can hold it, short enough for an item and a line: with some of the models that failed, and their number."""
    document = summary.document()
    return document | {"failed_models": len(summary.failed), "failed": document["failed"][:_TOLD]}


def warm_up_document(warm_up: WarmUp) -> dict[str, Any]:
    """A warm-up as JSON can hold it, for people."""
    return {
        "state": warm_up.state.value,
        "reason": warm_up.reason,
        "change": change_document(warm_up.change),
        "takes": warm_up.takes,
        "summary": warm_up.summary,
    }
