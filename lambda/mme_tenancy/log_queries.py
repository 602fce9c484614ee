"""Queries of logs that take their time: started, polled, and given up at a deadline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from mme_tenancy.clock import Clock

__all__ = ["MOST_ROWS", "LogQueries", "QueriesBusyError", "Query", "QueryAnswer", "QueryFailedError", "run_queries"]

MOST_ROWS = 10_000
"""Rows that a query is asked for, at most (Amazon CloudWatch Logs, CloudWatch Logs quotas: query results)."""
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 0.2, 2.0

Row = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Query:
    """One query.

    Attributes:
        text: in the Logs Insights query language.
        start: of its time range, epoch seconds.
        end: of its time range, epoch seconds, inclusive as the service counts.
    """

    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class QueryAnswer:
    """What a query found.

    Attributes:
        rows: field -> value, in the query's order; a field without a value is missing.
        scanned_bytes: what the service bills.
    """

    rows: tuple[Row, ...]
    scanned_bytes: float = 0.0


class QueriesBusyError(Exception):
    """The account runs as many queries as it may; try again later."""


class QueryFailedError(Exception):
    """The query ended without an answer; the text says how."""


class LogQueries(Protocol):
    """The service that evaluates queries."""

    def start(self, query: Query) -> str:
        """Start one and return its id; raises `QueriesBusyError`, `QueryFailedError`."""
        ...

    def poll(self, query_id: str) -> QueryAnswer | None:
        """The answer; ``None`` while it runs. Raises `QueryFailedError`."""
        ...

    def stop(self, query_id: str) -> None:
        """Stop one that may still run."""
        ...


def run_queries(
    service: LogQueries, queries: Iterable[Query], *, clock: Clock, deadline: float, at_once: int
) -> list[QueryAnswer | QueryFailedError | QueriesBusyError]:
    """Run queries, some at a time, in their order, and wait for the answers.

    Args:
        service: evaluates them.
        queries: the queries.
        clock: time.
        deadline: point on the monotonic clock: what runs then is stopped and has failed, what waits is not started.
        at_once: how many run at the same time, at most.

    Returns:
        For each query its answer, or why there is none. `QueriesBusyError`: it was not started, because the service takes no more or
        because no time was left.
    """
    waiting = list(enumerate(queries))
    ended: dict[int, QueryAnswer | QueryFailedError | QueriesBusyError] = {}
    running: dict[int, str] = {}
    wait = _FIRST_WAIT_SECONDS
    count = len(waiting)
    while waiting or running:
        if clock.monotonic() >= deadline:
            ended |= {number: QueriesBusyError("no time was left to start it") for number, _query in waiting}
            for number, query_id in running.items():
                service.stop(query_id)
                ended[number] = QueryFailedError("it did not end in time")
            break
        while waiting and len(running) < at_once:
            number, query = waiting.pop(0)
            try:
                running[number] = service.start(query)
            except QueryFailedError as error:
                ended[number] = error
            except QueriesBusyError as error:
                # Those that run go on; no other is tried: each refusal costs the account's other users a start.
                ended |= {number: error, **{number: error for number, _query in waiting}}
                waiting.clear()
        before = len(ended)
        for number, query_id in list(running.items()):
            try:
                answer = service.poll(query_id)
            except QueryFailedError as error:
                ended[number] = error
            else:
                if answer is None:
                    continue
                ended[number] = answer
            del running[number]
        if running and len(ended) == before:
            clock.sleep(min(wait, max(0.0, deadline - clock.monotonic())))
            wait = min(wait * 2, _LONGEST_WAIT_SECONDS)
        else:
            wait = _FIRST_WAIT_SECONDS
    return [ended[number] for number in range(count)]
