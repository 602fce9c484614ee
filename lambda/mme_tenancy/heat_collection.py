"""Collects heat: the log lines of each closed window, counted once by a query, as one object for each pool and window.

Each pass finds out by itself what is missing and does a bounded part of it, newest window first, so that a pass may be lost, cut anywhere
or come twice: a window is written only if it is not there. Lines that came after their window was counted are found by a second, cheap
count later; a window that grew is collected again.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from mme_facts.grammar import HeatKey
from mme_facts.heat import HeatRules
from mme_tenancy.clock import Clock, timestamp
from mme_tenancy.heat import Counts, HeatError, HeatStore, ModelHeat, PoolHeat
from mme_tenancy.log_queries import MOST_ROWS, LogQueries, Query, QueryAnswer, QueryFailedError, run_queries

__all__ = ["Collected", "HeatCollection", "Window", "missing_windows"]

_SUMS = (
    "count(*) as requests, sum(bytes_in) as bytes_in, sum(bytes_out) as bytes_out, sum(cold) as cold, sum(failed) as failed, "
    "sum(model_latency_ms) as served_ms"
)


@dataclass(frozen=True, slots=True, order=True)
class Window:
    """A time span: from ``start`` until just before ``end``, epoch seconds."""

    start: int
    end: int

    def key(self, pool: str) -> HeatKey:
        """The name of a pool's heat in it."""
        return HeatKey(pool, self.start, self.end - self.start)

    def query(self, counted: str) -> Query:
        """A query of the lines with a route in it. The service counts a range's last second in; the filter makes the end exact.

        Applications write other lines to their log groups as well: those of requests name what only a route gives.
        """
        span = f"toMillis(@timestamp) >= {self.start * 1000} and toMillis(@timestamp) < {self.end * 1000}"
        lines = f"filter ispresent(endpoint) and ispresent(version) and ispresent(tenant) and {span}"
        return Query(f"{lines} | {counted}", self.start, self.end)


@dataclass(slots=True)
class Collected:
    """What a pass did.

    Attributes:
        windows: windows that were written, each pool's counted.
        models: versions of models with requests in the newest of them.
        late_lines: lines that came after their window was written.
        truncated: written windows with more models than the query returns.
        unassigned: requests of written windows to endpoints of no pool.
        missing: closed windows that are still to be written.
        lag_seconds: since the end of the newest window that is written; ``None``: none is.
        failed: queries that failed, and objects that cannot be read.
        why: of the failures, for the log.
    """

    windows: int = 0
    models: int = 0
    late_lines: int = 0
    truncated: int = 0
    unassigned: int = 0
    missing: int = 0
    lag_seconds: float | None = None
    failed: int = 0
    why: list[str] = field(default_factory=list)

    def fail(self, why: object) -> None:
        """Count a failure."""
        self.failed += 1
        self.why.append(str(why))


def missing_windows(keys: Iterable[HeatKey], closed_end: int, window_seconds: int) -> list[Window]:
    """The closed windows that a pool lacks, oldest first.

    From the oldest one that is there on, whatever its length: gaps and what follows are cut where windows begin. A pool without any starts
    with the newest.

    Args:
        keys: the windows that are there.
        closed_end: where the newest closed window ends, epoch seconds.
        window_seconds: length of a window.
    """
    known = sorted(keys)
    if not known:
        return [Window(closed_end - window_seconds, closed_end)]
    missing: list[Window] = []
    at = known[0].start
    for start, end in [*((key.start, key.end) for key in known), (closed_end, closed_end)]:
        while at < start:
            cut = min((at // window_seconds + 1) * window_seconds, start)
            missing.append(Window(at, cut))
            at = cut
        at = max(at, end)
    return missing


class HeatCollection:
    """Passes of the collector.

    Args:
        queries: asks the log.
        store: where heat goes.
        clock: time.
        rules: what is counted where and when.
    """

    def __init__(self, queries: LogQueries, store: HeatStore, clock: Clock, rules: HeatRules) -> None:
        self._queries, self._store, self._clock, self._rules = queries, store, clock, rules

    def collect(self, deadline: float) -> Collected:
        """One pass: write windows that are missing, then count again what is due.

        Args:
            deadline: point on the monotonic clock at which queries that still run are stopped.
        """
        done, now = Collected(), self._clock.time()
        closed_end = self._begin_of(now - self._rules.delay_seconds)
        keys = {pool: self._store.windows(pool, since=closed_end - self._rules.catch_up_seconds) for pool in self._rules.pools}
        lacking: dict[Window, list[str]] = defaultdict(list)
        for pool, known in keys.items():
            for window in missing_windows(known, closed_end, self._rules.window_seconds):
                lacking[window].append(pool)
        newest_first = sorted(lacking, reverse=True)[: self._rules.windows_a_pass]
        written: list[Window] = []
        for window, heats in self._count(newest_first, deadline, done).items():
            self._write(window, heats, lacking[window], done, written)
        left = [window for window in lacking if window not in written]
        ends = [key.end for known in keys.values() for key in known] + [window.end for window in written]
        done.missing, done.lag_seconds = len(left), now - max(ends) if ends else None
        self._recount(keys, left, deadline, done)
        return done

    def _begin_of(self, moment: float) -> int:
        return math.floor(moment / self._rules.window_seconds) * self._rules.window_seconds

    def _write(self, window: Window, heats: Mapping[str, PoolHeat], pools: Sequence[str], done: Collected, written: list[Window]) -> None:
        for pool in pools:
            heat = heats[pool]
            if self._store.create(heat):
                done.windows += 1
                done.truncated += heat.truncated
        if not written:
            done.models = sum(len(heat.rows) for heat in heats.values())
        written.append(window)

    # Counting.

    def _count(self, windows: Sequence[Window], deadline: float, done: Collected) -> dict[Window, dict[str, PoolHeat]]:
        """The heat of every pool in each window whose queries were answered."""
        by = f"stats {_SUMS} by endpoint, tenant, model, version | sort requests desc | limit {MOST_ROWS}"
        answers = self._ask({window: window.query(by) for window in windows}, deadline, done)
        full = [window for window, answer in answers.items() if len(answer.rows) >= MOST_ROWS]
        # Only then there may be more than was returned: one more scan tells how much.
        totals = self._ask({window: window.query(f"stats {_SUMS} by endpoint") for window in full}, deadline, done)
        return {
            window: self._heats(window, answer, totals.get(window), done)
            for window, answer in answers.items()
            if window not in full or window in totals
        }

    def _ask(self, queries: Mapping[Window, Query], deadline: float, done: Collected) -> dict[Window, QueryAnswer]:
        answers = run_queries(self._queries, queries.values(), clock=self._clock, deadline=deadline, at_once=self._rules.queries_at_once)
        found: dict[Window, QueryAnswer] = {}
        for window, answer in zip(queries, answers, strict=True):
            if isinstance(answer, QueryAnswer):
                found[window] = answer
            elif isinstance(answer, QueryFailedError):
                done.fail(f"{timestamp(window.start)}: {answer}")
        return found

    def _heats(self, window: Window, answer: QueryAnswer, totals: QueryAnswer | None, done: Collected) -> dict[str, PoolHeat]:
        rows: dict[str, list[ModelHeat]] = {pool: [] for pool in self._rules.pools}
        for row in answer.rows:
            pool = self._rules.pool_of(row.get("endpoint", ""))
            counts = _counts(row)
            if pool is None:
                done.unassigned += counts.requests
            else:
                rows[pool].append(ModelHeat(row.get("tenant", ""), row.get("model", ""), row.get("version", ""), counts))
        heats: dict[str, PoolHeat] = {}
        for pool, found in rows.items():
            tail = Counts()
            if totals is not None:
                whole = sum((_counts(row) for row in totals.rows if self._rules.pool_of(row.get("endpoint", "")) == pool), Counts())
                tail = whole.less(sum((row.counts for row in found), Counts()))
            heats[pool] = PoolHeat(
                window.key(pool), self._rules.pools[pool], tuple(found), tail, tail.requests > 0, timestamp(self._clock.time())
            )
        return heats

    # Counting again.

    def _recount(self, keys: Mapping[str, Sequence[HeatKey]], left: Sequence[Window], deadline: float, done: Collected) -> None:
        """Look for lines that came late: one query over all windows that are due, and one more for each that grew."""
        note = self._store.recounted_until()
        until, revision = (0, None) if note is None else note
        upper = min([self._begin_of(self._clock.time() - self._rules.recount_seconds), *(window.start for window in left)])
        due: dict[Window, list[HeatKey]] = defaultdict(list)
        for key in sorted(key for known in keys.values() for key in known):
            if key.start >= until and key.end <= upper:
                due[Window(key.start, key.end)].append(key)
        windows = sorted(due)[: self._rules.windows_a_pass]
        if not windows:
            return
        known = {window: [heat for key in due[window] if (heat := self._stored(key, done)) is not None] for window in windows}
        span = Window(windows[0].start, windows[-1].end)
        slot = math.gcd(*(edge for window in windows for edge in (window.start, window.end)))
        answers = self._ask({span: span.query(f"stats count(*) as requests by bin({slot}s), endpoint")}, deadline, done)
        if span not in answers:
            return
        grown = {window for window in windows for heat, _revision in known[window] if self._late(heat, window, answers[span]) > 0}
        counted = self._count(sorted(grown), deadline, done)
        for window, heats in counted.items():
            for earlier, stored_revision in known[window]:
                later = heats[earlier.key.pool].recounted(earlier, self._clock.time())
                late = later.late_lines - earlier.late_lines
                if late > 0 and self._store.replace(later, stored_revision):
                    done.late_lines += late
        if grown <= set(counted):
            self._store.note_recounted(span.end, revision)

    def _stored(self, key: HeatKey, done: Collected) -> tuple[PoolHeat, str] | None:
        try:
            return self._store.get(key)
        except HeatError as error:
            done.fail(error)
            return None

    def _late(self, heat: PoolHeat, window: Window, answer: QueryAnswer) -> int:
        """Requests of the pool that the window's heat does not know."""
        endpoints = self._rules.pools[heat.key.pool]
        counted = sum(
            _whole(row["requests"])
            for row in answer.rows
            if row.get("endpoint") in endpoints and window.start <= _slot_of(row) < window.end
        )
        return counted - heat.total.requests


def _counts(row: Mapping[str, str]) -> Counts:
    requests, bytes_in, bytes_out, cold, failed = (
        _whole(row.get(name)) for name in ("requests", "bytes_in", "bytes_out", "cold", "failed")
    )
    return Counts(requests, bytes_in, bytes_out, cold, failed, round(float(row.get("served_ms") or 0), 1))


def _whole(value: str | None) -> int:
    return round(float(value or 0))


def _slot_of(row: Mapping[str, str]) -> float:
    """The beginning of a row's time slot, epoch seconds: the column is called as the expression is written."""
    (text,) = (value for name, value in row.items() if name not in ("requests", "endpoint"))
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
