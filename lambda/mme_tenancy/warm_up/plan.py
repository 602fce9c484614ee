"""What to warm after a fleet has changed, in which order: a function of values.

What was resident is not known: SageMaker tells nobody. Fleets evict the least recently used models, so it is taken to be the last used ones
that fit the memory of the fleet as it was. Of them, those are called that fit the fleet as it is now, less a reserve, by the requests
that a second of loading saves: until a model is there, each request for it waits. The ones that have not moved answer at once and cost
little, so the plan need not know where the router sends them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields
from enum import StrEnum
from typing import Any

from mme_tenancy.warm_up.change import ChangeKind, FleetChange
from mme_tenancy.warm_up.settings import WarmUpSettings

__all__ = ["Candidate", "FleetShape", "LeftOut", "Skip", "Step", "WarmUpPlan", "plan"]


class Skip(StrEnum):
    """Why a model is not warmed."""

    NO_SAMPLE = "no_sample"
    """Its version has no sample payload, so there is nothing to call it with."""
    RETIRED = "retired"
    """It gets no requests any more."""
    DEDICATED = "dedicated"
    """A component of its own serves it."""
    TOO_BIG = "too_big"
    """It does not fit an instance's memory less the reserve."""
    NOT_RESIDENT = "not_resident"
    """It was probably not in memory before the change: others, used later, filled it."""
    NO_ROOM = "no_room"
    """It probably was, but others, used later, fill the memory that there is now, less the reserve."""
    NOT_WORTH_IT = "not_worth_it"
    """It would push something out that is used as much, or it was not used at all."""
    ENDED = "ended"
    """The warm-up ended before its turn came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A model that might be warmed.

    Attributes:
        target_model: its TargetModel.
        bytes: memory that it takes.
        load_seconds: measured time of its download and load; ``None`` if no load of it was measured.
        rate: requests a second that users make of it.
        last_used: when it was last used, epoch seconds; heat knows it to its window.
        service_seconds: how long it takes to answer when it is in memory.
        sample: whether its version has a sample payload.
        retired: whether its version is retired.
        dedicated: whether a component of its own serves it.
    """

    target_model: str
    bytes: int
    load_seconds: float | None
    rate: float
    last_used: float
    service_seconds: float = 0.0
    sample: bool = True
    retired: bool = False
    dedicated: bool = False


@dataclass(frozen=True, slots=True)
class FleetShape:
    """A fleet, as far as a plan has to know it.

    Attributes:
        instances: how many.
        memory_bytes: what models may take of one instance's memory.
        load_slots: loads that one instance does at once.
    """

    instances: int
    memory_bytes: int
    load_slots: int

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if value < 1:
                raise ValueError(f"{item.name} is {value}: use 1 or more")

    @property
    def total_bytes(self) -> int:
        """What models may take of all instances' memory."""
        return self.instances * self.memory_bytes


@dataclass(frozen=True, slots=True)
class Step:
    """One model that is called.

    Attributes:
        target_model: its TargetModel.
        bytes: memory that it takes.
        load_seconds: how long its load probably takes.
        rate: requests a second that users make of it.
        service_seconds: how long it takes to answer when it is in memory.
        idle_seconds: how long ago it was last used when the plan was made.
    """

    target_model: str
    bytes: int
    load_seconds: float
    rate: float
    service_seconds: float
    idle_seconds: float

    @property
    def reason(self) -> str:
        """Why it is called, and in this place."""
        return f"used {self.idle_seconds:.0f} s ago, {self.rate:.3g} requests/s, loads in {self.load_seconds:.1f} s"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """One model that is not called, and why."""

    target_model: str
    reason: Skip


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUpPlan:
    """What a warm-up does.

    Attributes:
        kind: the change that it follows; ``None``: none, somebody named the models.
        steps: the models to call, first the first.
        skipped: why others are not called, and how many.
        in_flight: calls under way at once, at most.
        moved_share: share of what was resident that the change probably moved or lost, if the router moves anything.
        requests_per_second: what users ask of all candidates.
        left_out: the models that are not called; a plan that was dumped and loaded has forgotten them.
    """

    kind: ChangeKind | None
    steps: tuple[Step, ...]
    skipped: Mapping[Skip, int]
    in_flight: int
    moved_share: float
    requests_per_second: float
    left_out: tuple[LeftOut, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        if len({step.target_model for step in self.steps}) < len(self.steps):
            raise ValueError("a model comes twice in the plan: call each once")
        if self.in_flight < 1:
            raise ValueError(f"in_flight is {self.in_flight}: use 1 or more")

    @property
    def bytes(self) -> int:
        """Memory that the models to call take."""
        return sum(step.bytes for step in self.steps)

    def least_seconds(self, settings: WarmUpSettings) -> float:
        """How long it takes at least under its own bounds, when users are in nobody's way and everything moved has to be loaded."""
        loading = self.moved_share * sum(step.load_seconds for step in self.steps) / self.in_flight
        return max(loading, len(self.steps) / settings.calls_per_second(self.requests_per_second))

    def dump(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {
            "kind": None if self.kind is None else self.kind.value,
            "steps": [list(astuple(step)) for step in self.steps],
            "skipped": {reason.value: count for reason, count in self.skipped.items()},
            "in_flight": self.in_flight,
            "moved_share": self.moved_share,
            "requests_per_second": self.requests_per_second,
        }

    @classmethod
    def load(cls, document: Mapping[str, Any]) -> WarmUpPlan:
        """The plan that `dump` wrote."""
        return cls(
            kind=None if document["kind"] is None else ChangeKind(document["kind"]),
            steps=tuple(Step(*values) for values in document["steps"]),
            skipped={Skip(reason): count for reason, count in document["skipped"].items()},
            in_flight=document["in_flight"],
            moved_share=document["moved_share"],
            requests_per_second=document["requests_per_second"],
        )


def plan(
    change: FleetChange,
    before: FleetShape,
    after: FleetShape,
    candidates: Iterable[Candidate],
    settings: WarmUpSettings,
    now: float,
) -> WarmUpPlan:
    """What to warm after a change.

    Args:
        change: what happened.
        before: the fleet as it was.
        after: the fleet as it is.
        candidates: every model that users asked for lately, and what is known of it; a TargetModel that comes twice counts once.
        settings: bounds.
        now: epoch seconds.
    """
    known = list({candidate.target_model: candidate for candidate in candidates}.values())
    moved_share, loading = _moved(change)
    left_out: list[LeftOut] = []
    fitting = list(_usable(known, after, settings, left_out))
    kept = _resident(fitting, before, after, settings, left_out)
    kept.sort(key=lambda candidate: (-candidate.rate / _load_seconds(candidate, settings), candidate.target_model))
    if change.kind is ChangeKind.LOSS:
        kept = list(_worth_it(kept, moved_share, after, settings, left_out))
    steps = (
        Step(one.target_model, one.bytes, _load_seconds(one, settings), one.rate, one.service_seconds, max(0.0, now - one.last_used))
        for one in kept
    )
    return WarmUpPlan(
        kind=change.kind,
        steps=tuple(steps),
        skipped=dict(Counter(one.reason for one in left_out)),
        in_flight=max(1, int(settings.in_flight_share * loading * after.load_slots)),
        moved_share=moved_share,
        requests_per_second=sum(candidate.rate for candidate in known),
        left_out=tuple(left_out),
    )


def _moved(change: FleetChange) -> tuple[float, int]:
    """The share of the models that are no longer where they were, and how many instances load them."""
    before, after = max(1, change.instances_before), max(1, change.instances_after)
    if change.kind is ChangeKind.LOSS:
        return min(1.0, max(1, before - after) / before), after
    empty = min(after, max(1, change.empty_instances))
    return empty / after, empty


def _load_seconds(candidate: Candidate, settings: WarmUpSettings) -> float:
    measured = candidate.load_seconds
    return measured if measured is not None and measured > 0 else settings.unknown_load(candidate.bytes)


def _usable(known: Sequence[Candidate], after: FleetShape, settings: WarmUpSettings, left_out: list[LeftOut]) -> Iterator[Candidate]:
    """The candidates that are in the shared fleet's memory at all."""
    most_bytes = after.memory_bytes * (1 - settings.reserve_share)
    for candidate in known:
        if candidate.retired:
            reason = Skip.RETIRED
        elif candidate.dedicated:
            reason = Skip.DEDICATED
        elif candidate.bytes > most_bytes:
            reason = Skip.TOO_BIG
        elif candidate.rate <= 0:
            reason = Skip.NOT_WORTH_IT
        else:
            yield candidate
            continue
        left_out.append(LeftOut(candidate.target_model, reason))


def _resident(
    fitting: Sequence[Candidate], before: FleetShape, after: FleetShape, settings: WarmUpSettings, left_out: list[LeftOut]
) -> list[Candidate]:
    """Those that were probably in memory, as many of the last used as there is room for; one without a sample takes its room, too."""
    room = after.total_bytes * (1 - settings.reserve_share)
    used, kept = 0, []
    for candidate in sorted(fitting, key=lambda one: (-one.last_used, -one.rate, one.target_model)):
        used += candidate.bytes
        if used > before.total_bytes:
            left_out.append(LeftOut(candidate.target_model, Skip.NOT_RESIDENT))
        elif used > room:
            left_out.append(LeftOut(candidate.target_model, Skip.NO_ROOM))
        elif not candidate.sample:
            left_out.append(LeftOut(candidate.target_model, Skip.NO_SAMPLE))
        else:
            kept.append(candidate)
    return kept


def _worth_it(
    ordered: Sequence[Candidate], moved_share: float, after: FleetShape, settings: WarmUpSettings, left_out: list[LeftOut]
) -> Iterator[Candidate]:
    """Of the models of a fleet that has become smaller, those that are hotter than what their loads push out.

    The fleet that is left is as full as it was. What it loads pushes out its least recently used models; a model is worth that
    if users ask for more of it, byte for byte, than of those.
    """
    room = after.total_bytes * (1 - settings.reserve_share) - (1 - moved_share) * sum(one.bytes for one in ordered)
    victims = sorted(ordered, key=lambda one: (one.last_used, one.rate, one.target_model))
    pushed_out: set[str] = set()
    for candidate in ordered:
        room -= moved_share * candidate.bytes
        while room < 0 and victims and _density(victims[0]) < _density(candidate):
            victim = victims.pop(0)
            pushed_out.add(victim.target_model)
            room += (1 - moved_share) * victim.bytes
        if candidate.target_model in pushed_out or room < 0:
            room += moved_share * candidate.bytes
            left_out.append(LeftOut(candidate.target_model, Skip.NOT_WORTH_IT))
        else:
            yield candidate


def _density(candidate: Candidate) -> float:
    """Requests a second and byte."""
    return candidate.rate / max(1, candidate.bytes)
