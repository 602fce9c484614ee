"""Works on a warm-up while holding its lease: plans it or continues it, has it driven, and says how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from mme_facts.warm_up import WarmUpEndpoint
from mme_tenancy.clock import Clock
from mme_tenancy.warm_up.change import FleetChange
from mme_tenancy.warm_up.execute import Driven, Hold, Job, Stop, Watch
from mme_tenancy.warm_up.observer import Observer
from mme_tenancy.warm_up.plan import WarmUpPlan
from mme_tenancy.warm_up.ports import EndpointRecord, Lease, LeaseLostError, WarmUpState, WarmUpStore, changed
from mme_tenancy.warm_up.report import Report, change_document, summary_document
from mme_tenancy.warm_up.run import End, WarmUpRun
from mme_tenancy.warm_up.settings import WarmUpSettings

__all__ = ["Driver", "Holder", "Planner", "Tools"]

_CHANGED_AGAIN = "the fleet has changed again"
_REFUSED = frozenset({End.FAILED, End.THROTTLED})
_NOT_DONE = _REFUSED | {End.ABANDONED}


class Planner(Protocol):
    """Makes plans."""

    def plan(self, target: WarmUpEndpoint, change: FleetChange) -> WarmUpPlan:
        """What to call after a change."""
        ...


class Driver(Protocol):
    """Makes the calls of a run: `mme_tenancy.warm_up.execute.Execution`."""

    def drive(self, run: WarmUpRun, job: Job, hold: Hold, watch: Watch, *, stop_at: float) -> Driven:
        """Go on with a run until it has ended, the time (monotonic clock) is over, or the lease is lost."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What a holder works with.

    Attributes:
        settings: bounds of a warm-up.
        store: what is remembered.
        observer: looks at the fleet.
        planner: makes plans.
        driver: makes calls.
        clock: time.
        report: the log.
        lease_seconds: how long a holder that is not heard of any more keeps others out.
        least_seconds: with less time than this left nothing is begun.
    """

    settings: WarmUpSettings
    store: WarmUpStore
    observer: Observer
    planner: Planner
    driver: Driver
    clock: Clock
    report: Report
    lease_seconds: float = 30.0
    least_seconds: float = 20.0

    def lease(self, holder: str) -> Lease:
        """One that begins now."""
        return Lease(holder, self.clock.wall() + self.lease_seconds)

    def has_time(self, stop_at: float) -> bool:
        """Whether there is time to begin something."""
        return self.clock.monotonic() + self.least_seconds <= stop_at


class Holder:
    """Whoever holds the lease of an endpoint's warm-up.

    Args:
        tools: what it works with.
        target: the endpoint.
        holder: its id, which no other process has.
    """

    def __init__(self, tools: Tools, target: WarmUpEndpoint, holder: str) -> None:
        self._tools, self._target, self._endpoint, self._holder = tools, target, target.endpoint, holder
        self._store, self._clock, self._report = tools.store, tools.clock, tools.report

    def take(self) -> EndpointRecord | None:
        """Take up the warm-up that is due; ``None`` if there is none, or somebody else works on it."""
        lease, wall = self._tools.lease(self._holder), self._clock.wall()
        record = changed(self._store, self._endpoint, lambda record: record.taken(lease, wall) if record.is_free(wall) else record)
        return record if record.held_by(self._holder) else None

    def work(self, record: EndpointRecord, *, stop_at: float) -> Stop:
        """Go on until the warm-up has ended, there is no time left, or the lease is lost.

        Args:
            record: as `take` left it.
            stop_at: when this must have returned, on the monotonic clock.
        """
        try:
            return self._work(record, stop_at)
        except LeaseLostError:
            return Stop.LOST
        except Exception:
            # Free at once for the next one who looks.
            self._let_go()
            raise

    def _work(self, record: EndpointRecord, stop_at: float) -> Stop:
        while True:
            change = record.held(self._holder).change
            run = self._continued(record)
            if run is None:
                run, record = self._begun(record, change)
                if record.held(self._holder).change != change:
                    continue
            driven = self._drive(run, record, change, stop_at)
            if driven.stop is Stop.LOST:
                self._tell_lost(driven)
                return Stop.LOST
            if driven.stop in {Stop.ENDED, Stop.CHANGED}:
                record = self._ended(change, driven)
                if not record.held_by(self._holder):
                    return Stop.ENDED
            # It goes on: there is no time left here, or there is another change and another plan to make.
            if driven.stop is Stop.PAUSED or not self._tools.has_time(stop_at):
                self._let_go()
                return Stop.PAUSED

    def _drive(self, run: WarmUpRun, record: EndpointRecord, change: FleetChange, stop_at: float) -> Driven:
        assert record.lease is not None, "held"
        job = Job(self._endpoint, self._target.variant, change.kind.value)
        hold = _Hold(self._tools, self._endpoint, record.lease, record.held(self._holder).plan)
        watch = _Watch(self._tools, self._endpoint, self._holder, change)
        return self._tools.driver.drive(run, job, hold, watch, stop_at=stop_at)

    def _begun(self, record: EndpointRecord, change: FleetChange) -> tuple[WarmUpRun, EndpointRecord]:
        """A new plan for a change, and the record with it."""
        began = self._clock.monotonic()
        plan = self._tools.planner.plan(self._target, change)
        self._report.planned(self._endpoint, change, plan, self._clock.monotonic() - began)
        run = self._fresh(plan, record)
        begun = {name: value for name, value in run.dump().items() if name != "progress"}
        name = self._store.keep(self._endpoint, {"change": change_document(change), "run": begun})
        lease = self._tools.lease(self._holder)
        return run, changed(self._store, self._endpoint, lambda record: record.planned(lease, name))

    def _continued(self, record: EndpointRecord) -> WarmUpRun | None:
        """The run that somebody left; ``None`` if none of this change can be continued."""
        warm_up = record.held(self._holder)
        kept = self._store.kept(self._endpoint, warm_up.plan) if warm_up.plan else None
        if kept is None or kept.get("change") != change_document(warm_up.change):
            return None
        progress = self._store.kept(self._endpoint, warm_up.progress) if warm_up.progress else None
        try:
            if progress is None:
                return self._fresh(WarmUpPlan.load(kept["run"]["plan"]), record)
            return WarmUpRun.load({**kept["run"], "progress": progress}, self._tools.settings)
        except (KeyError, TypeError, ValueError) as error:
            self._report.trouble(self._endpoint, "the checkpoint is another release's: it is planned again", error)
            return None

    def _fresh(self, plan: WarmUpPlan, record: EndpointRecord) -> WarmUpRun:
        """A run of which nothing is remembered: some of it may have been called before, by another process or for another plan."""
        warm_up = record.held(self._holder)
        return WarmUpRun(plan, self._tools.settings, self._clock.wall(), taken_up=warm_up.takes > 1 or bool(warm_up.plan))

    def _ended(self, change: FleetChange, driven: Driven) -> EndpointRecord:
        """The record once the run has ended: over, or with another change to warm for."""
        summary = driven.summary
        if summary.end in _REFUSED:
            self._tools.observer.look(self._endpoint)  # calls fail, too, when the fleet is gone
        state = WarmUpState.ABANDONED if summary.end in _NOT_DONE else WarmUpState.DONE
        reason = summary.detail or (summary.end or End.DONE).value
        wall = self._clock.wall()

        def end(record: EndpointRecord) -> EndpointRecord:
            if record.held(self._holder).change != change:
                return record
            return record.ended(state, wall, reason, summary_document(summary))

        try:
            record = changed(self._store, self._endpoint, end)
        except LeaseLostError:
            self._tell_lost(driven)
            raise
        assert record.warm_up is not None, "it was held"
        told = replace(record.warm_up, change=change, reason=_CHANGED_AGAIN) if record.warm_up.is_open else record.warm_up
        self._report.ended(self._endpoint, told, summary, driven.problems)
        return record

    def _tell_lost(self, driven: Driven) -> None:
        """What was done until somebody else ended the warm-up or took it over."""
        record = self._store.read(self._endpoint)
        if record is not None and record.warm_up is not None:
            self._report.ended(self._endpoint, record.warm_up, driven.summary, driven.problems)

    def _let_go(self) -> None:
        """Free for others at once; if that fails the lease runs out by itself."""
        try:
            changed(self._store, self._endpoint, lambda record: record.let_go(self._holder))
        except Exception as error:
            self._report.trouble(self._endpoint, "the lease could not be let go: it runs out", error)


class _Hold:
    """`mme_tenancy.warm_up.execute.Hold` on the record."""

    def __init__(self, tools: Tools, endpoint: str, lease: Lease, plan: str) -> None:
        self._tools, self._endpoint, self._lease, self._plan = tools, endpoint, lease, plan

    @property
    def expires_at(self) -> float:
        """Until when the lease is ours."""
        return self._lease.expires_at

    def save(self, progress: Mapping[str, Any]) -> bool:
        """Store how far the run has come and renew the lease; ``False`` if it is somebody else's."""
        name = self._tools.store.keep(self._endpoint, progress)
        lease = self._tools.lease(self._lease.holder)
        try:
            changed(self._tools.store, self._endpoint, lambda record: record.progressed(lease, self._plan, name))
        except LeaseLostError:
            return False
        self._lease = lease
        return True


class _Watch:
    """`mme_tenancy.warm_up.execute.Watch`: looks as every event does."""

    def __init__(self, tools: Tools, endpoint: str, holder: str, change: FleetChange) -> None:
        self._tools, self._endpoint, self._holder, self._change = tools, endpoint, holder, change

    def look(self) -> str | None:
        """Why the run must end; ``None`` while the fleet is the one that its plan was made for. Raises `LeaseLostError`."""
        record = self._tools.observer.look(self._endpoint)
        if record is None:
            raise LeaseLostError(f"there is no record of {self._endpoint} any more")
        return None if record.held(self._holder).change == self._change else _CHANGED_AGAIN
