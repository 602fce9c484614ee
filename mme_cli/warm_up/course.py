"""The newest warm-up of an endpoint, as the table has it: under way or over, with how far it came."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mme_cli.warm_up.targets import Target, answered
from mme_cli.warm_up.words import ENDS, SKIPPED, change_text, count_text, gap_text, size_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mme_tenancy.aws.warm_up_store import DynamoWarmUpStore
    from mme_tenancy.warm_up.ports import WarmUp

__all__ = ["Course", "course", "course_view", "courses_view"]

_TONES = {"planned": "yellow", "running": "yellow", "done": "green", "abandoned": "red"}


@dataclass(frozen=True, slots=True)
class Course:
    """What is known of an endpoint's newest warm-up.

    Attributes:
        target: the endpoint.
        warm_up: the warm-up; ``None``: there has been none.
        summary: what it did, as its checkpoint or its end has it; ``None``: nothing is known yet.
    """

    target: Target
    warm_up: WarmUp | None
    summary: Mapping[str, Any] | None = None

    @property
    def went_well(self) -> bool:
        """Whether it came to its end by itself: all was called, or it was found that no more was needed."""
        from mme_tenancy.warm_up.run import End

        good = {End.DONE.value, End.NOTHING_MOVED.value, End.RECOVERED.value}
        return self.warm_up is not None and not self.warm_up.is_open and (self.summary or {}).get("end") in good

    def document(self) -> dict[str, Any]:
        """One JSON document."""
        named = {"endpoint": self.target.name, "pool": self.target.endpoint.pool, "function": self.target.function}
        if self.warm_up is None:
            return {**named, "warm_up": None}
        told = {name: getattr(self.warm_up, name) for name in ("due_at", "begun_at", "ended_at", "takes", "reason")}
        from mme_tenancy.warm_up.report import change_document

        change = change_document(self.warm_up.change)
        return {**named, "warm_up": {"state": self.warm_up.state.value, "change": change, **told, "summary": self.summary}}

    @property
    def text(self) -> str:
        """In one line."""
        if self.warm_up is None:
            return "none yet: its fleet has not changed since the function looks"
        done = self.summary or {}
        parts = [f"{self.warm_up.state.value}: {change_text(self.warm_up.change)}"]
        if done:
            parts.append(f"{done['warmed']} of {count_text(done['planned'], 'model')} called, {done['loaded']} of them loaded for it")
            parts.append(f"{done['seconds']:.0f} s")
        return ", ".join(parts)


def course(target: Target) -> Course:
    """The newest warm-up of an endpoint; raises `CommandError`."""
    with answered(target.asked):
        store = target.store()
        record = store.read(target.name)
        if record is None or record.warm_up is None:
            return Course(target, None)
        warm_up = record.warm_up
        return Course(target, warm_up, _so_far(target, store, warm_up) if warm_up.is_open else warm_up.summary)


def _so_far(target: Target, store: DynamoWarmUpStore, warm_up: WarmUp) -> Mapping[str, Any] | None:
    """What a warm-up under way had done at its last checkpoint."""
    from mme_tenancy.warm_up.report import change_document
    from mme_tenancy.warm_up.run import WarmUpRun

    kept = store.kept(target.name, warm_up.plan) if warm_up.plan else None
    progress = store.kept(target.name, warm_up.progress) if warm_up.progress else None
    if kept is None or progress is None or kept.get("change") != change_document(warm_up.change):
        return None
    try:
        return WarmUpRun.load({**kept["run"], "progress": progress}, target.bounds).summary(target.clock.wall()).document()
    except (KeyError, TypeError, ValueError):
        return None  # the function is of another release, whose checkpoints it alone can read


def courses_view(courses: Sequence[Course]) -> RenderableType:
    """Several endpoints, a line each."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in ("endpoint", "pool", "last warm-up"):
        table.add_column(column, overflow="fold")
    for each in courses:
        tone = "" if each.warm_up is None else _TONES[each.warm_up.state.value]
        table.add_row(Text(each.target.name), each.target.endpoint.pool, Text(each.text, style=tone))
    return table


def course_view(each: Course) -> RenderableType:
    """One endpoint, with all that is known."""
    lines = [Text.assemble((each.target.name, "bold"), f"  pool {each.target.endpoint.pool}, warmed by {each.target.function}")]
    warm_up, done = each.warm_up, each.summary
    lines.append(Text(each.text, style="" if warm_up is None else _TONES[warm_up.state.value]))
    if warm_up is None:
        return Group(*lines)
    if warm_up.ended_at is not None:
        lines.append(Text(f"ended {gap_text(each.target.clock.wall() - warm_up.ended_at)} ago: {_why(each)}"))
    elif warm_up.begun_at is not None:
        taken = f", taken up {warm_up.takes} times" if warm_up.takes > 1 else ""
        lines.append(Text(f"began {gap_text(each.target.clock.wall() - warm_up.begun_at)} ago{taken}"))
    if done:
        lines.append(
            Text(
                f"{count_text(done['calls'], 'call')}, {size_text(done['bytes'])} ({size_text(done['loaded_bytes'])} loaded), "
                f"{done['throttled']} throttled, {done['not_ready']} not ready; about {done['cold_requests_avoided']:.0f} requests "
                "of users did not wait for a load because of it"
            )
        )
        lines += [Text(f"skipped: {count_text(count, 'model')} {_skipped(reason)}") for reason, count in done["skipped"].items()]
        failed: Sequence[Mapping[str, Any]] = done["failed"]
        count = done.get("failed_models", len(failed))
        lines += [Text(f"failed: {one['target_model']}: {one['error']}", style="red") for one in failed]
        if count > len(failed):
            lines.append(Text(f"and {count - len(failed)} more failed: the function's log has them", style="red"))
    return Group(*lines)


def _why(each: Course) -> str:
    from mme_tenancy.warm_up.run import End

    assert each.warm_up is not None, "it has ended"
    end = (each.summary or {}).get("end")
    words = ENDS[End(end)] if end in set(End) else ""
    reason = each.warm_up.reason
    return words if not reason or reason == end else f"{words}: {reason}".removeprefix(": ")


def _skipped(reason: str) -> str:
    from mme_tenancy.warm_up.plan import Skip

    return SKIPPED[Skip(reason)] if reason in set(Skip) else reason
