"""Looks at endpoints and writes down what has changed, and which warm-up is due for it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mme_tenancy.clock import Clock
from mme_tenancy.errors import WriteConflictError
from mme_tenancy.fleet_state import SERVING, FleetState
from mme_tenancy.warm_up.change import Look, asked_for, compare
from mme_tenancy.warm_up.ports import EndpointRecord, Fleets, WarmUp, WarmUpState, WarmUpStore
from mme_tenancy.warm_up.report import Report, change_document
from mme_tenancy.warm_up.run import End

__all__ = ["Observer", "ObserverRules"]

_ATTEMPTS = 8


@dataclass(frozen=True, slots=True)
class ObserverRules:
    """When a warm-up that does not end is given up.

    Attributes:
        late_seconds: so long after it became due: users' requests have loaded the models by then. Longer than it may last.
        takes: when it was taken up so often: it may be what ends the processes that work on it.
    """

    late_seconds: float = 780.0
    takes: int = 10


@dataclass(frozen=True, slots=True)
class Observer:
    """Looks at endpoints.

    Attributes:
        store: what is remembered.
        fleets: describes endpoints.
        clock: time.
        report: the log.
        rules: when a warm-up is given up.
    """

    store: WarmUpStore
    fleets: Fleets
    clock: Clock
    report: Report
    rules: ObserverRules

    def look(self, endpoint: str, *, start: bool = False) -> EndpointRecord | None:
        """The endpoint's record with all that has changed until now; ``None``: there has never been such an endpoint.

        The endpoint is described after its record was read, and the record is only written if it still is what was read: of several that
        look at the same moment one finds a change, and the others see then that it was found.

        Args:
            endpoint: its name.
            start: a warm-up is due although nothing has changed, unless one is under way.

        Raises:
            WriteConflictError: others wrote in between again and again.
        """
        for _ in range(_ATTEMPTS):
            before = self.store.read(endpoint)
            after = self._after(endpoint, before, self.fleets.state(endpoint), start=start)
            if after is None or after == before:
                return before
            after = replace(after, rev=1 if before is None else before.rev + 1)
            try:
                self.store.write(before, after)
            except WriteConflictError as error:
                conflict = error
                continue
            self._tell(before, after)
            return after
        raise conflict

    def _after(self, endpoint: str, before: EndpointRecord | None, state: FleetState | None, *, start: bool) -> EndpointRecord | None:
        """What is to be written, of any revision; the same as ``before``: nothing is."""
        now, wall = self.clock.time(), self.clock.wall()
        if before is None:
            look = compare(None, state, now)
            record = None if look.seen is None else EndpointRecord(endpoint, look.seen)
        else:
            under_way = before.warm_up if before.warm_up is not None and before.warm_up.is_open else None
            look = compare(before.seen, state, now, None if under_way is None else under_way.change)
            record = replace(before, seen=before.seen if look.seen is None else look.seen)
            if under_way is not None:
                return self._gone_on(record, under_way, look, wall)
        if record is None:
            return None
        change = look.change
        if change is None and start and state is not None and state.status in SERVING:
            seen, change = asked_for(record.seen, endpoint, now, state.count)
            record = replace(record, seen=seen)
        return record if change is None else replace(record, warm_up=WarmUp(change, wall), lease=None)

    def _gone_on(self, record: EndpointRecord, warm_up: WarmUp, look: Look, wall: float) -> EndpointRecord:
        """A record whose warm-up has not ended: as it goes on."""
        if look.change is None:
            return replace(record.ended(WarmUpState.ABANDONED, wall, look.reason), rev=record.rev)
        if look.change != warm_up.change:
            # Whoever works on it sees that and plans again; otherwise the next one does.
            return replace(record, warm_up=replace(warm_up, change=look.change, due_at=wall, takes=0))
        reason = self._why_given_up(warm_up, wall) if record.is_free(wall) else ""
        if not reason:
            return record
        return replace(record.ended(WarmUpState.ABANDONED, wall, reason, {"end": End.FAILED.value}), rev=record.rev)

    def _why_given_up(self, warm_up: WarmUp, wall: float) -> str:
        if warm_up.takes >= self.rules.takes:
            return f"it was taken up {warm_up.takes} times and never ended"
        if wall >= warm_up.due_at + self.rules.late_seconds:
            return "it did not end in time: users' requests have loaded the models"
        return ""

    def _tell(self, before: EndpointRecord | None, after: EndpointRecord) -> None:
        """A line for a change that was found, and one for a warm-up that has ended without anybody who would tell of it."""
        old, new = None if before is None else before.warm_up, after.warm_up
        if new is None or new == old:
            return
        if new.is_open:
            self.report.note(after.endpoint, "the fleet has changed", change=change_document(new.change))
        elif before is None or before.is_free(self.clock.wall()):
            self.report.ended(after.endpoint, new)
