"""What a warm-up needs of the table and of the function, and the record of it: one warm-up of an endpoint at a time.

A record is one item; every write of it is conditional on the revision that was read. The lease says who works on the warm-up: whoever
holds it renews it, and one that has run out is anybody's, with the checkpoint that its holder left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Protocol

from mme_tenancy.errors import WriteConflictError
from mme_tenancy.fleet_state import FleetState
from mme_tenancy.warm_up.change import FleetChange, FleetSeen

__all__ = [
    "Continuations",
    "EndpointRecord",
    "Fleets",
    "Lease",
    "LeaseLostError",
    "WarmUp",
    "WarmUpState",
    "WarmUpStore",
    "changed",
]

_ATTEMPTS = 8


class LeaseLostError(Exception):
    """Someone else works on the warm-up now, or it has ended: the caller stops, and writes nothing more."""


class WarmUpState(StrEnum):
    """Where a warm-up is. ``planned -> running -> done | abandoned``, and ``planned -> abandoned``."""

    PLANNED = "planned"
    """It is due, and nobody has begun it."""
    RUNNING = "running"
    DONE = "done"
    ABANDONED = "abandoned"
    """Its change was taken back or overtaken, or it failed."""


@dataclass(frozen=True, slots=True)
class Lease:
    """Who works on a warm-up.

    Attributes:
        holder: an id of the invocation, which no other one has.
        expires_at: until when, in seconds of `mme_tenancy.clock.Clock.wall`: functions do not run faster where `time` does.
    """

    holder: str
    expires_at: float


@dataclass(frozen=True, slots=True)
class WarmUp:
    """The warm-up of one change.

    Attributes:
        change: what it is for. While it runs this may become another one: the run is then planned again.
        due_at: when it became due, seconds of `mme_tenancy.clock.Clock.wall`, like all times here.
        state: where it is.
        begun_at: when somebody first worked on it.
        ended_at: when it ended.
        takes: how often somebody took it up.
        plan: names the plan, for `WarmUpStore.kept`; empty: there is none. It may be that of an earlier ``change``: it says of which.
        progress: names how far that has come; empty: it was not begun.
        reason: why it ended; empty while it has not.
        summary: what was done, for people.
    """

    change: FleetChange
    due_at: float
    state: WarmUpState = WarmUpState.PLANNED
    begun_at: float | None = None
    ended_at: float | None = None
    takes: int = 0
    plan: str = ""
    progress: str = ""
    reason: str = ""
    summary: Mapping[str, Any] | None = None

    @property
    def is_open(self) -> bool:
        """Whether it has not ended."""
        return self.state in {WarmUpState.PLANNED, WarmUpState.RUNNING}


@dataclass(frozen=True, slots=True)
class EndpointRecord:
    """What the table knows of an endpoint.

    Attributes:
        endpoint: its name.
        seen: the fleet, as it was last seen.
        warm_up: the warm-up of its newest change; ``None``: there has been none.
        lease: who works on it; ``None``: nobody.
        rev: revision; every write adds one.
    """

    endpoint: str
    seen: FleetSeen
    warm_up: WarmUp | None = None
    lease: Lease | None = None
    rev: int = 1

    def is_free(self, wall: float) -> bool:
        """Whether there is a warm-up to work on that nobody holds; ``wall`` is the machine's time."""
        return self.warm_up is not None and self.warm_up.is_open and (self.lease is None or self.lease.expires_at <= wall)

    def held_by(self, holder: str) -> bool:
        """Whether ``holder`` works on the warm-up, and it has not ended."""
        return self.lease is not None and self.lease.holder == holder and self.warm_up is not None and self.warm_up.is_open

    def held(self, holder: str) -> WarmUp:
        """The warm-up that ``holder`` works on; raises `LeaseLostError` if it does not any more."""
        if self.warm_up is None or not self.held_by(holder):
            raise LeaseLostError(f"{holder} does not hold the warm-up of {self.endpoint} any more")
        return self.warm_up

    def taken(self, lease: Lease, wall: float) -> EndpointRecord:
        """Given to a holder, who begins or continues it."""
        assert self.warm_up is not None, "nothing to take"
        begun_at = wall if self.warm_up.begun_at is None else self.warm_up.begun_at
        warm_up = replace(self.warm_up, state=WarmUpState.RUNNING, begun_at=begun_at, takes=self.warm_up.takes + 1)
        return replace(self, warm_up=warm_up, lease=lease, rev=self.rev + 1)

    def planned(self, lease: Lease, plan: str) -> EndpointRecord:
        """A new plan, of which nothing was done yet, and the lease renewed; raises `LeaseLostError`."""
        return replace(self, warm_up=replace(self.held(lease.holder), plan=plan, progress=""), lease=lease, rev=self.rev + 1)

    def progressed(self, lease: Lease, plan: str, progress: str) -> EndpointRecord:
        """How far a plan has come, and the lease renewed; raises `LeaseLostError`, also when there is another plan by now."""
        warm_up = self.held(lease.holder)
        if warm_up.plan != plan:
            raise LeaseLostError(f"the warm-up of {self.endpoint} has another plan than {plan} by now")
        return replace(self, warm_up=replace(warm_up, progress=progress), lease=lease, rev=self.rev + 1)

    def let_go(self, holder: str) -> EndpointRecord:
        """Free for anybody to continue, at once; raises `LeaseLostError`."""
        self.held(holder)
        return replace(self, lease=None, rev=self.rev + 1)

    def ended(self, state: WarmUpState, wall: float, reason: str, summary: Mapping[str, Any] | None = None) -> EndpointRecord:
        """The warm-up over; ``state`` is done or abandoned."""
        assert self.warm_up is not None, "nothing to end"
        warm_up = replace(self.warm_up, state=state, ended_at=wall, reason=reason, summary=summary)
        return replace(self, warm_up=warm_up, lease=None, rev=self.rev + 1)


class Fleets(Protocol):
    """Describes endpoints."""

    def state(self, endpoint: str) -> FleetState | None:
        """The endpoint's state now; ``None`` if there is no such endpoint."""
        ...


class WarmUpStore(Protocol):
    """The table, as warm-ups use it."""

    def read(self, endpoint: str) -> EndpointRecord | None:
        """The endpoint's record, read consistently."""
        ...

    def write(self, before: EndpointRecord | None, after: EndpointRecord) -> None:
        """Write ``after`` over ``before``, which is as it was read (``None``: nothing was there).

        A write whose answer is lost and that is sent again counts as written.

        Raises:
            WriteConflictError: something else is there.
        """
        ...

    def keep(self, endpoint: str, document: Mapping[str, Any]) -> str:
        """Store what a run needs to be continued; returns its name. It replaces nothing, and goes by itself after a day."""
        ...

    def kept(self, endpoint: str, name: str) -> Mapping[str, Any] | None:
        """What `keep` stored by that name; ``None`` if it is not there, or not whole."""
        ...


class Continuations(Protocol):
    """Calls the function itself."""

    def send(self, endpoint: str) -> None:
        """Have an endpoint looked after at once by another invocation, without waiting for it."""
        ...


def changed(store: WarmUpStore, endpoint: str, change: Callable[[EndpointRecord], EndpointRecord]) -> EndpointRecord:
    """Read the record, change it and write it; again where another write came in between. Returns what was written.

    Args:
        store: the table.
        endpoint: the endpoint's name.
        change: makes the new record of the one that was read; the same one: nothing is written. What it raises ends the attempt.

    Raises:
        LeaseLostError: there is no record.
        WriteConflictError: others wrote in between again and again.
    """
    for _ in range(_ATTEMPTS):
        before = store.read(endpoint)
        if before is None:
            raise LeaseLostError(f"there is no record of {endpoint}")
        after = change(before)
        if after is before:
            return before
        try:
            store.write(before, after)
        except WriteConflictError as error:
            conflict = error
            continue
        return after
    raise conflict
