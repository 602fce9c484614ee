"""What happened to an endpoint's fleet between two looks at it, and what a warm-up is for. Pure.

Only descriptions count, never what an event claims: a look at any time finds what changed since the last one. So events may come twice,
late, in any order or not at all; a change that was found is remembered with what was seen, and is found once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from mme_tenancy.fleet_state import SERVING, FleetState, PendingFleet

__all__ = ["ChangeKind", "FleetChange", "FleetSeen", "Look", "asked_for", "compare"]


class ChangeKind(StrEnum):
    """What happened to a fleet."""

    SCALE_OUT = "scale-out"
    """Instances were added; they are empty."""
    UPDATE = "update"
    """An update's fleet takes the requests; all of its instances are empty."""
    REPLACEMENT = "replacement"
    """Instances came back that had been lost, or all were replaced in place; they are empty."""
    LOSS = "loss"
    """Instances are gone, and with them what they held; none is empty."""


@dataclass(frozen=True, slots=True)
class FleetChange:
    """A change of an endpoint's fleet that a warm-up is for.

    Attributes:
        kind: what happened.
        endpoint: the endpoint's name.
        number: counts the changes of the endpoint, from 1: there is one warm-up for each number.
        seen_at: when it was found, epoch seconds.
        instances_before: instances of all variants that took requests before.
        instances_after: instances that take them now.
        empty_instances: how many of those hold nothing yet.
        config_before: name of the endpoint configuration before.
        config_after: name of it now.
    """

    kind: ChangeKind
    endpoint: str
    number: int
    seen_at: float
    instances_before: int
    instances_after: int
    empty_instances: int
    config_before: str
    config_after: str

    @property
    def whole(self) -> bool:
        """Whether every instance is empty."""
        return self.empty_instances >= self.instances_after


@dataclass(frozen=True, slots=True)
class FleetSeen:
    """What is remembered of an endpoint from one look to the next.

    Attributes:
        status: EndpointStatus.
        config: name of the endpoint configuration.
        created_at: when the endpoint was created, epoch seconds.
        modified_at: when it had last changed, epoch seconds.
        instances: instances by variant; none for an endpoint that never served.
        desired: wanted instances by variant.
        weights: weights by variant.
        number: changes found so far.
        pending: configuration of the update under way; empty: none is.
        pending_since: when that began, epoch seconds.
        shifted_at: when its fleet first took requests, epoch seconds; ``None``: it has not.
        counted: instances of its fleet for which a change was found.
        explained: whether it is known why the endpoint was modified since it last rested.
        lost: whether instances are missing that were lost.
        gone: whether the endpoint was deleted.
    """

    status: str
    config: str
    created_at: float
    modified_at: float
    instances: Mapping[str, int] = field(default_factory=dict)
    desired: Mapping[str, int] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    number: int = 0
    pending: str = ""
    pending_since: float = 0.0
    shifted_at: float | None = None
    counted: int = 0
    explained: bool = False
    lost: bool = False
    gone: bool = False

    @property
    def count(self) -> int:
        """Instances of all variants."""
        return sum(self.instances.values())


@dataclass(frozen=True, slots=True)
class Look:
    """What a look at an endpoint found.

    Attributes:
        seen: what is remembered from now on; ``None``: nothing, there has never been such an endpoint.
        change: what a warm-up is due for now: a new change, the one under way, or that one as it has grown meanwhile (the same number);
            ``None``: nothing is due, and a warm-up under way ends.
        reason: why a warm-up under way ends; empty: none does.
    """

    seen: FleetSeen | None
    change: FleetChange | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class _Found:
    kind: ChangeKind
    before: int
    after: int
    empty: int


def compare(seen: FleetSeen | None, state: FleetState | None, now: float, under_way: FleetChange | None = None) -> Look:
    """What happened since the last look, and what is to be warmed.

    Args:
        seen: what the last look remembered; ``None``: there was none.
        state: the endpoint, described after ``seen`` was read; ``None``: there is no such endpoint.
        now: epoch seconds.
        under_way: the change whose warm-up has not ended.
    """
    if seen is None:
        return Look(None if state is None else _first(state, 0))
    if state is None:
        return Look(replace(seen, gone=True), reason="the endpoint was deleted" if under_way else "")
    if state.created_at != seen.created_at:
        return _created_anew(seen, state, now, under_way)
    if state.modified_at < seen.modified_at:
        return Look(seen, under_way)  # an old description
    if state.status not in SERVING:
        left = replace(seen, status=state.status, modified_at=state.modified_at, explained=False, gone=False)
        return Look(left, reason=f"the endpoint is {state.status}" if under_way else "")
    if not seen.count:
        return Look(_first(state, seen.number))  # it has just come into service for the first time
    return _served(seen, state, now, under_way)


def asked_for(seen: FleetSeen, endpoint: str, now: float, instances: int) -> tuple[FleetSeen, FleetChange]:
    """A change that someone says there was: every instance may be empty. For a warm-up that is started by hand.

    Args:
        seen: what is remembered.
        endpoint: the endpoint's name.
        now: epoch seconds.
        instances: instances that take requests.
    """
    found = _Found(ChangeKind.REPLACEMENT, instances, instances, instances)
    return replace(seen, number=seen.number + 1), _change(found, endpoint, seen.number + 1, now, seen.config, seen.config)


def _first(state: FleetState, number: int) -> FleetSeen:
    """Remember an endpoint as it is: what is there already is nobody's change."""
    serves = state.status in SERVING
    return FleetSeen(
        state.status,
        state.config,
        state.created_at,
        state.modified_at,
        instances=state.instances if serves else {},
        desired=state.desired,
        weights=state.weights,
        number=number,
        explained=not state.in_service,
    )


def _created_anew(seen: FleetSeen, state: FleetState, now: float, under_way: FleetChange | None) -> Look:
    if state.created_at < seen.created_at:
        return Look(seen, under_way)  # an old description
    if not seen.count:
        return Look(_first(state, seen.number))
    if state.status not in SERVING:
        return Look(seen, reason="the endpoint was deleted" if under_way else "")
    found = _Found(ChangeKind.UPDATE, seen.count, state.count, state.count)
    after = _first(state, seen.number + 1)
    return Look(after, _change(found, state.endpoint, after.number, now, seen.config, state.config))


def _served(seen: FleetSeen, state: FleetState, now: float, under_way: FleetChange | None) -> Look:
    pending = state.pending
    shifted_at = _shifted_at(seen, pending)
    back = state.status == "RollingBack"
    explained = seen.explained or back or bool(state.failure) or _is_explained(seen, state)
    counted = seen.counted if pending is not None and _is_same(seen, pending) and not back else 0
    found = None if back else _committed(seen, state)
    if found is None and pending is not None and not back:
        found = _shifted(seen, pending, shifted_at, counted, now)
        counted = counted if found is None else sum(pending.instances.values())
    if found is None and not _is_another_fleet(seen, state):
        found = _resized(seen, state)
    if found is None and state.in_service and state.modified_at > seen.modified_at and not explained:
        # Nothing else that is described has changed: the same configuration was deployed again, or the instances were replaced.
        found = _Found(ChangeKind.REPLACEMENT, seen.count, state.count, state.count)
    after = FleetSeen(
        state.status,
        state.config,
        state.created_at,
        state.modified_at,
        instances=state.instances,
        desired=state.desired,
        weights=state.weights,
        number=seen.number,
        pending=pending.config if pending else "",
        pending_since=pending.started_at if pending else 0.0,
        shifted_at=shifted_at,
        counted=counted,
        explained=not state.in_service and (explained or found is not None),
        lost=_is_missing(seen, state, found),
    )
    if found is not None:
        change = _merged(found, seen, state, now, under_way)
        return Look(replace(after, number=change.number), change)
    return _carried_on(seen, after, state, under_way)


def _shifted_at(seen: FleetSeen, pending: PendingFleet | None) -> float | None:
    if pending is None:
        return None
    moments = (seen.shifted_at if _is_same(seen, pending) else None, pending.shifted_at)
    return min((moment for moment in moments if moment is not None), default=None)


def _is_same(seen: FleetSeen, pending: PendingFleet) -> bool:
    return (seen.pending, seen.pending_since) == (pending.config, pending.started_at)


def _is_another_fleet(seen: FleetSeen, state: FleetState) -> bool:
    """Whether the fleet that is described is another one than before: its instances cannot be compared with those."""
    return state.config != seen.config or _ended_as_counted(seen, state)


def _ended_as_counted(seen: FleetSeen, state: FleetState) -> bool:
    """Whether the update has ended whose fleet was found to take requests while it was under way."""
    goes_on = state.pending is not None and _is_same(seen, state.pending)
    return bool(seen.counted) and seen.pending == state.config and not goes_on and state.status != "RollingBack"


def _rolled_back(seen: FleetSeen, state: FleetState) -> bool:
    """Whether the fleet goes or has gone again that was found to take requests."""
    goes_on = state.pending is not None and _is_same(seen, state.pending)
    return bool(seen.counted) and (state.status == "RollingBack" or (not goes_on and seen.pending != state.config))


def _committed(seen: FleetSeen, state: FleetState) -> _Found | None:
    """What an update means that has ended since the last look."""
    if _ended_as_counted(seen, state):
        last = state.count - seen.counted  # of a rolling update, the batches since
        return _Found(ChangeKind.UPDATE, seen.count, state.count, last) if last > 0 else None
    same_again = state.pending is None and seen.pending == state.config and not state.failure and not seen.explained
    if state.config == seen.config and not same_again:
        return None
    return _Found(ChangeKind.UPDATE, seen.count, state.count, state.count)


def _shifted(seen: FleetSeen, pending: PendingFleet, shifted_at: float | None, counted: int, now: float) -> _Found | None:
    """What an update means that is under way."""
    if shifted_at is None:
        return None
    new = sum(pending.instances.values())
    if pending.shift.rolling:
        # The old instances go one by one: what is warmed has to fit those that will be there.
        after = max(new, sum(pending.desired.values()))
        return _Found(ChangeKind.UPDATE, seen.count, after, new - counted) if new > counted else None
    wait = pending.shift.last_after_seconds  # without one the stage is enough, whatever the clocks of others say
    if counted or not (pending.all_shifted or not wait or now >= shifted_at + wait):
        return None
    return _Found(ChangeKind.UPDATE, seen.count, new, new)


def _resized(seen: FleetSeen, state: FleetState) -> _Found | None:
    """What instances that came or went mean, of a fleet that is the same as before."""
    grown = sum(max(0, count - seen.instances.get(name, 0)) for name, count in state.instances.items())
    if grown:
        back = seen.lost or state.status == "RollingBack"
        return _Found(ChangeKind.REPLACEMENT if back else ChangeKind.SCALE_OUT, seen.count, state.count, grown)
    if state.pending is None and state.status != "RollingBack" and _lost(seen, state):
        return _Found(ChangeKind.LOSS, seen.count, state.count, 0)
    return None


def _lost(seen: FleetSeen, state: FleetState) -> bool:
    """Whether instances are gone although they are wanted. Where others are wanted than before, fewer is what a scaling has left."""
    return any(
        state.instances.get(name, 0) < min(before, state.desired.get(name, 0)) and state.desired.get(name) == seen.desired.get(name)
        for name, before in seen.instances.items()
    )


def _is_missing(seen: FleetSeen, state: FleetState, found: _Found | None) -> bool:
    if found is not None and found.kind is ChangeKind.LOSS:
        return True
    return seen.lost and any(state.instances.get(name, 0) < wanted for name, wanted in state.desired.items())


def _is_explained(seen: FleetSeen, state: FleetState) -> bool:
    """Whether what is seen tells why the endpoint was modified, or will be when it rests."""
    return (
        state.instances != seen.instances
        or state.desired != seen.desired
        or state.desired != state.instances
        or state.weights != seen.weights
        or bool(seen.pending and seen.pending != state.config)
        or (state.pending is not None and state.pending.config != state.config)
    )


def _change(found: _Found, endpoint: str, number: int, now: float, before: str, after: str) -> FleetChange:
    return FleetChange(found.kind, endpoint, number, now, found.before, found.after, found.empty, before, after)


def _merged(found: _Found, seen: FleetSeen, state: FleetState, now: float, under_way: FleetChange | None) -> FleetChange:
    """The change to warm for: what was found, and what is not warm yet of the one under way."""
    shifted = found.kind is ChangeKind.UPDATE and state.pending is not None and state.config == seen.config
    config = state.pending.config if shifted and state.pending is not None else state.config
    fresh = _change(found, state.endpoint, seen.number + 1, now, seen.config, config)
    if under_way is None or not under_way.empty_instances or found.empty >= found.after:
        return fresh
    if found.kind is ChangeKind.LOSS and not under_way.whole and found.after <= under_way.instances_before:
        return fresh
    empty = min(found.after, under_way.empty_instances + found.empty)
    grows = found.kind is under_way.kind and under_way.number == seen.number and seen.status != "InService"
    if grows:
        # More instances of the same scaling, or the next batch of the same update.
        return replace(under_way, instances_after=found.after, empty_instances=empty)
    kind = under_way.kind if under_way.whole or found.kind is ChangeKind.LOSS else found.kind
    return replace(
        fresh, kind=kind, instances_before=under_way.instances_before, config_before=under_way.config_before, empty_instances=empty
    )


def _carried_on(seen: FleetSeen, after: FleetSeen, state: FleetState, under_way: FleetChange | None) -> Look:
    """Nothing new: whether there is still something to warm for the change under way."""
    if under_way is None:
        return Look(after)
    if _rolled_back(seen, state):
        return Look(after, reason="the update is rolled back")
    gone = max(0, seen.count - state.count) if not _committed(seen, state) and state.pending is None else 0
    if not gone:
        return Look(after, under_way)
    left = under_way.instances_after - gone
    if left <= under_way.instances_before and not under_way.whole:
        return Look(after, reason="the instances that were added are gone again")
    # Which of them went is not told; it is the smaller warm-up that can do no harm.
    empty = min(under_way.empty_instances, left if under_way.whole else left - under_way.instances_before)
    return Look(after, replace(under_way, instances_after=left, empty_instances=empty))
