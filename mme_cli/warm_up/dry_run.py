"""What a warm-up would do now, by the code and the sources of the function that does it. Nothing is written, and no model is called."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mme_cli.warm_up.targets import Target, answered
from mme_cli.warm_up.words import NOT_CANDIDATES, SKIPPED, change_text, count_text, gap_text, size_text

if TYPE_CHECKING:
    from mme_tenancy.warm_up.change import FleetChange
    from mme_tenancy.warm_up.planning import Planned
    from mme_tenancy.warm_up.ports import EndpointRecord
    from mme_tenancy.warm_up.sources import Candidates

__all__ = ["DryRun", "dry_run", "dry_run_view"]

_WHY = {
    "due": "what is due",
    "under way": "what the warm-up under way is for",
    "supposed": "supposed, nothing has changed: all instances may be empty, as 'mme warm-up --now' has it",
    "asked": "supposed, as asked",
}


@dataclass(frozen=True, slots=True)
class DryRun:
    """A plan, and what it was made for.

    Attributes:
        target: the endpoint.
        planned: the plan and its sources.
        why: ``due``, ``under way``, ``supposed`` or ``asked``: how it came to the change.
    """

    target: Target
    planned: Planned
    why: str

    @property
    def calls_per_second(self) -> float:
        """At most."""
        return self.target.bounds.calls_per_second(self.planned.plan.requests_per_second)

    @property
    def expected_seconds(self) -> float:
        """How long it takes when everything that moved has to be loaded and nobody is in the way, within its time limit."""
        return min(self.planned.plan.least_seconds(self.target.bounds), self.target.bounds.seconds)

    @property
    def room_bytes(self) -> int:
        """What may be warmed of the fleet's memory."""
        return int(self.planned.after.total_bytes * (1 - self.target.bounds.reserve_share))

    def document(self) -> dict[str, Any]:
        """One JSON document."""
        from mme_tenancy.warm_up.report import change_document

        plan, found, bounds = self.planned.plan, _found(self.planned), self.target.bounds
        return {
            "endpoint": self.target.name,
            "pool": self.target.endpoint.pool,
            "function": self.target.function,
            "change": {**change_document(self.planned.change), "why": self.why},
            "fleet": {
                "memory_bytes": self.target.endpoint.memory_bytes,
                "load_slots": self.target.endpoint.load_slots,
                "instances_before": self.planned.before.instances,
                "instances_after": self.planned.after.instances,
            },
            "heat": {
                "windows": found.windows,
                "newest": found.newest,
                "unknown": found.unknown,
                "elsewhere": found.elsewhere,
                "problems": list(found.problems),
            },
            "steps": [
                {
                    "target_model": step.target_model,
                    "bytes": step.bytes,
                    "load_seconds": round(step.load_seconds, 3),
                    "requests_per_second": step.rate,
                    "idle_seconds": round(step.idle_seconds, 1),
                    "reason": step.reason,
                }
                for step in plan.steps
            ],
            "called_twice": [plan.steps[place].target_model for place in plan.touches],
            "bytes": plan.bytes,
            "room_bytes": self.room_bytes,
            "skipped": {reason.value: count for reason, count in plan.skipped.items()},
            "left_out": [{"target_model": one.target_model, "reason": one.reason.value} for one in plan.left_out],
            "budget": {
                "calls_per_second": self.calls_per_second,
                "requests_per_second": plan.requests_per_second,
                "in_flight": plan.in_flight,
                "seconds": bounds.seconds,
                "traffic_share": bounds.traffic_share,
                "least_calls_per_second": bounds.least_calls_per_second,
                "in_flight_share": bounds.in_flight_share,
                "reserve_share": bounds.reserve_share,
            },
            "expected_seconds": round(self.expected_seconds, 1),
        }


def dry_run(target: Target, instances: int | None = None) -> DryRun:
    """The plan that would be made now.

    Args:
        target: the endpoint.
        instances: plan as if its fleet had just become so many, by new instances or by a loss. ``None``: what is due or under way, and
            where nothing is, as if all instances were empty.

    Raises:
        CommandError: AWS refuses, the endpoint serves nobody, or heat is not readable.
    """
    with answered(target.asked):
        change, why = _change(target, target.store().read(target.name), instances)
        return DryRun(target, target.planner().explained(target.endpoint, change), why)


def _change(target: Target, record: EndpointRecord | None, instances: int | None) -> tuple[FleetChange, str]:
    from mme_tenancy.warm_up.change import ChangeKind, FleetChange, asked_for, compare

    state, now = target.fleet(), target.clock.time()
    if instances is not None and instances != state.count:
        kind = ChangeKind.SCALE_OUT if instances > state.count else ChangeKind.LOSS
        empty = max(0, instances - state.count)
        return FleetChange(kind, target.name, 0, now, state.count, instances, empty, state.config, state.config), "asked"
    under_way = record.warm_up if record is not None and record.warm_up is not None and record.warm_up.is_open else None
    look = compare(None if record is None else record.seen, state, now, None if under_way is None else under_way.change)
    if look.change is not None and instances is None:
        return look.change, "due" if under_way is None else "under way"
    assert look.seen is not None, "there is an endpoint"
    return asked_for(look.seen, target.name, now, state.count)[1], "supposed" if instances is None else "asked"


def dry_run_view(done: DryRun, rows: int) -> RenderableType:
    """The plan as something to print.

    Args:
        done: the plan.
        rows: models to list.
    """
    plan, endpoint = done.planned.plan, done.target.endpoint
    memory = f"{size_text(endpoint.memory_bytes)} for models and {endpoint.load_slots} loads at once each"
    parts: list[RenderableType] = [
        Text.assemble(
            (done.target.name, "bold"), f"  pool {endpoint.pool}, {count_text(done.planned.after.instances, 'instance')}, {memory}"
        ),
        Text(f"for: {change_text(done.planned.change)} ({_WHY[done.why]})"),
    ]
    if plan.steps:
        parts.append(Text("order: what saves users most waiting for the time that its call takes, when its turn comes"))
        parts.append(_steps(done, rows))
    else:
        parts.append(Text("no model is warmed"))
    parts += [Text(line) for line in _lines(done)]
    parts += [Text(f"missing: {problem}", style="yellow") for problem in _found(done.planned).problems]
    return Group(*parts)


def _steps(done: DryRun, rows: int) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in ("", "model", "requests/s", "last used", "size", "load"):
        table.add_column(column, justify="left" if column == "model" else "right", overflow="fold", no_wrap=column != "model")
    steps = done.planned.plan.steps
    for number, step in enumerate(steps[:rows], 1):
        table.add_row(
            str(number),
            Text(step.target_model),
            f"{step.rate:.3g}",
            f"{gap_text(step.idle_seconds)} ago",
            size_text(step.bytes),
            f"{step.load_seconds:.1f} s",
        )
    if len(steps) > rows:
        table.add_row("", Text(f"and {len(steps) - rows} more (--rows, --json)", style="dim"))
    return table


def _lines(done: DryRun) -> Iterator[str]:
    plan, found, bounds = done.planned.plan, _found(done.planned), done.target.bounds
    yield (
        f"warmed: {count_text(len(plan.steps), 'model')}, {size_text(plan.bytes)} of the {size_text(done.room_bytes)} that may be "
        f"({bounds.reserve_share:.3g} of the memory is left alone)"
    )
    if plan.touches:
        yield f"called twice: {count_text(len(plan.touches), 'model')} near the end, so that the last loads do not push them out"
    for reason, count in sorted(plan.skipped.items(), key=lambda item: -item[1]):
        yield f"skipped: {count_text(count, 'model')} {SKIPPED[reason]}"
    yield from (
        f"skipped: {count_text(count, 'model')} {words}"
        for count, words in ((found.unknown, NOT_CANDIDATES["unknown"]), (found.elsewhere, NOT_CANDIDATES["elsewhere"]))
        if count
    )
    yield (
        f"budget: at most {done.calls_per_second:.3g} calls a second ({bounds.traffic_share:.0%} of users' "
        f"{plan.requests_per_second:.3g} requests a second, but {bounds.least_calls_per_second:g} in any case) and {plan.in_flight} at "
        f"once; over after {bounds.seconds:g} s"
    )
    if plan.steps:
        yield f"expected: {done.expected_seconds:.0f} s, if all that has moved must be loaded and users' own loads are not in the way"
    if found.newest is None:
        yield "heat: none of the last day: nobody is known to use anything"
    else:
        age = gap_text(max(0.0, done.target.clock.time() - found.newest))
        yield f"heat: {count_text(found.windows, 'window')}, the newest of {age} ago"


def _found(planned: Planned) -> Candidates:
    from mme_tenancy.warm_up.sources import Candidates

    assert isinstance(planned.found, Candidates), "the target's planner reads heat"
    return planned.found
