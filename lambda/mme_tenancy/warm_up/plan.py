"""What to warm after a fleet has changed, in which order: a function of values.

What was resident is not known: SageMaker tells nobody. Fleets evict the least recently used models, so it is taken to be the last used ones
that fit the memory of the fleet as it was. Of them, those are called that fit the fleet as it is now, less a reserve. The ones that have
not moved answer at once and cost little, so the plan need not know where the router sends them.

The order is by what a call saves: a model that is rarely used is seldom asked for while it is missing, and one that is used all the time
was brought back by its users before its turn comes. Near the end those in the middle are called a second time: where more models come
together on an instance than fit it, they would be the ones that the last loads push out, before users have asked for them.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields
from enum import StrEnum
from typing import Any

from mme_tenancy.warm_up.change import ChangeKind, FleetChange
from mme_tenancy.warm_up.settings import WarmUpSettings

__all__ = ["Candidate", "FleetShape", "LeftOut", "Skip", "Step", "WarmUpPlan", "plan"]

_LEAST_LAG_SECONDS = 5.0
"""Between a change and the first call."""
_ORDERED_ANEW = 1.3
"""What calls save changes with time: the order is decided anew whenever so many times the time has passed."""
_LEAST_RATE = 0.001
"""Requests a second that a load is worth for which something else has to go: one in a quarter of an hour."""
_CROWDED = 0.6
"""Where a plan fills less of the fleet's memory than this, no instance is likely to get more than fits."""
_TOUCH_AT = 0.85
"""Share of the plan's bytes that are there when models are called a second time."""
_TOUCHED_RATES = (0.002, 0.2)
_MOST_TOUCHES = 300


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
        least_in_flight: to so many they are brought down where loads take long: what one instance can do.
        touch_after: when so many steps have had their turn, models are called a second time,
        touches: these: positions in ``steps``.
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
    least_in_flight: int = 1
    touch_after: int = 0
    touches: tuple[int, ...] = ()
    left_out: tuple[LeftOut, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        if len({step.target_model for step in self.steps}) < len(self.steps):
            raise ValueError("a model comes twice in the plan: call each once")
        if not 1 <= self.least_in_flight <= self.in_flight:
            raise ValueError(f"in_flight is {self.in_flight}, and at least {self.least_in_flight}: use 1 or more")
        if not all(0 <= position < self.touch_after <= len(self.steps) for position in self.touches):
            raise ValueError("a model is called a second time before it was called once: touches must lie before touch_after")

    @property
    def bytes(self) -> int:
        """Memory that the models to call take."""
        return sum(step.bytes for step in self.steps)

    def least_seconds(self, settings: WarmUpSettings) -> float:
        """How long it takes at least under its own bounds, when users are in nobody's way and everything moved has to be loaded."""
        loading = self.moved_share * sum(step.load_seconds for step in self.steps) / self.in_flight
        calls = len(self.steps) + len(self.touches)
        return max(loading, calls / settings.calls_per_second(self.requests_per_second))

    def dump(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {
            "kind": None if self.kind is None else self.kind.value,
            "steps": [list(astuple(step)) for step in self.steps],
            "skipped": {reason.value: count for reason, count in self.skipped.items()},
            "in_flight": self.in_flight,
            "moved_share": self.moved_share,
            "requests_per_second": self.requests_per_second,
            "least_in_flight": self.least_in_flight,
            "touch_after": self.touch_after,
            "touches": list(self.touches),
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
            least_in_flight=document["least_in_flight"],
            touch_after=document["touch_after"],
            touches=tuple(document["touches"]),
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
    requests_per_second = sum(candidate.rate for candidate in known)
    moved_share, loading = _moved(change)
    in_flight = max(1, int(settings.in_flight_share * loading * after.load_slots))
    left_out: list[LeftOut] = []
    resident = _resident(list(_usable(known, after, settings, left_out)), before, left_out)
    kept = _fitting(resident, after, settings, left_out)
    steps = [
        Step(one.target_model, one.bytes, _load_seconds(one, settings), one.rate, one.service_seconds, max(0.0, now - one.last_used))
        for one in _callable(kept, left_out)
    ]
    call_seconds = 1 / settings.calls_per_second(requests_per_second)
    steps = _in_order(steps, call_seconds, moved_share / in_flight, max(_LEAST_LAG_SECONDS, now - change.seen_at))
    if change.kind is ChangeKind.LOSS:
        steps = _hotter(steps, resident, moved_share, after, left_out)
    touch_after, touches = (0, ()) if change.kind is ChangeKind.LOSS else _touches(steps, after)
    return WarmUpPlan(
        kind=change.kind,
        steps=tuple(steps),
        skipped=dict(Counter(one.reason for one in left_out)),
        in_flight=in_flight,
        least_in_flight=max(1, int(settings.in_flight_share * after.load_slots)),
        moved_share=moved_share,
        requests_per_second=requests_per_second,
        touch_after=touch_after,
        touches=touches,
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


def _resident(fitting: Sequence[Candidate], before: FleetShape, left_out: list[LeftOut]) -> list[Candidate]:
    """Those that were probably in memory: as many of the last used as fitted, the last used first."""
    used, resident = 0, []
    for candidate in sorted(fitting, key=lambda one: (-one.last_used, -one.rate, one.target_model)):
        used += candidate.bytes
        if used > before.total_bytes:
            left_out.append(LeftOut(candidate.target_model, Skip.NOT_RESIDENT))
        else:
            resident.append(candidate)
    return resident


def _fitting(resident: Sequence[Candidate], after: FleetShape, settings: WarmUpSettings, left_out: list[LeftOut]) -> list[Candidate]:
    """Those of them that there is room for now; one that cannot be called takes its room, too: its users load it."""
    room, kept = after.total_bytes * (1 - settings.reserve_share), []
    for candidate in resident:
        if candidate.bytes > room:
            left_out.append(LeftOut(candidate.target_model, Skip.NO_ROOM))
        else:
            room -= candidate.bytes
            kept.append(candidate)
    return kept


def _hotter(
    ordered: Sequence[Step], resident: Sequence[Candidate], moved_share: float, after: FleetShape, left_out: list[LeftOut]
) -> list[Step]:
    """Those for a fleet that has become smaller that are hotter than what their loads push out, in the same order.

    The fleet that is left is as full as it was, and what it loads pushes out its least recently used models. A model is worth that
    if users ask for more of it, byte for byte, than of those, and will probably ask for it soon at all.
    """
    room = after.total_bytes - (1 - moved_share) * sum(one.bytes for one in resident)
    victims = deque(reversed(resident))
    pushed_out: set[str] = set()
    kept = []
    for step in ordered:
        worth_it = step.rate >= _LEAST_RATE and step.target_model not in pushed_out
        needed = moved_share * step.bytes
        while worth_it and room < needed:
            if victims and _density(victims[0]) < _density(step):
                victim = victims.popleft()
                pushed_out.add(victim.target_model)
                room += (1 - moved_share) * victim.bytes
            else:
                worth_it = False
        if worth_it:
            room -= needed
            kept.append(step)
        else:
            left_out.append(LeftOut(step.target_model, Skip.NOT_WORTH_IT))
    return kept


def _density(model: Candidate | Step) -> float:
    """Requests a second and byte."""
    return model.rate / max(1, model.bytes)


def _callable(kept: Sequence[Candidate], left_out: list[LeftOut]) -> Iterator[Candidate]:
    for candidate in kept:
        if candidate.sample:
            yield candidate
        else:
            left_out.append(LeftOut(candidate.target_model, Skip.NO_SAMPLE))


def _in_order(steps: Sequence[Step], call_seconds: float, slot_share: float, lag_seconds: float) -> list[Step]:
    """By what a call saves for the time that it takes, when its turn comes.

    Args:
        steps: in any order.
        call_seconds: of the budget that a call takes.
        slot_share: of a second that a second of its load takes, of all loads that may be under way.
        lag_seconds: how long the models have been missing when the first is called.
    """
    rest = sorted(steps, key=lambda step: step.target_model)
    ordered: list[Step] = []
    passed = lag_seconds
    while rest:

        def saved(step: Step, until: float = passed) -> float:
            missing = math.exp(-step.rate * (until + step.load_seconds))
            return -step.rate * missing / (call_seconds + slot_share * step.load_seconds)

        rest.sort(key=saved)
        turn = passed * _ORDERED_ANEW
        taken = 0
        while taken < len(rest) and passed < turn:
            passed += max(call_seconds, slot_share * rest[taken].load_seconds)
            taken += 1
        ordered += rest[:taken]
        del rest[:taken]
    return ordered


def _touches(steps: Sequence[Step], after: FleetShape) -> tuple[int, tuple[int, ...]]:
    """When models are called a second time, and which: those that users have probably not asked for until then, but soon will."""
    total, used, first = sum(step.bytes for step in steps), 0, 0
    if total < _CROWDED * after.total_bytes:
        return 0, ()
    while first < len(steps) and used < _TOUCH_AT * total:
        used += steps[first].bytes
        first += 1
    least, most = _TOUCHED_RATES
    return first, tuple(number for number, step in enumerate(steps[:first]) if least <= step.rate <= most)[:_MOST_TOUCHES]
