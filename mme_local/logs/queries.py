"""Queries under way: started, run on threads, stopped, described (API reference of CloudWatch Logs)."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

from mme_local.logs.evaluation import Answer, evaluate
from mme_local.logs.language import MOST_ROWS, Command, QuerySyntaxError, parse_query
from mme_local.logs.values import Event
from mme_local.wire import AwsError, service_model

__all__ = ["OPERATIONS", "LogSource", "QueryRuns"]

logger = logging.getLogger(__name__)

OPERATIONS = ("DescribeQueries", "GetQueryResults", "StartQuery", "StopQuery")
"""The operations that are served."""

_MOST_GROUPS = 50
_MOST_SECONDS = 100_000_000_000
_MOST_UNDER_WAY = 30
"""Queries that an account runs at once (API reference: StartQuery)."""
_KEPT_QUERIES = 1000
_KEPT_ROWS = 100_000
"""Rows of all answers together: the oldest queries are forgotten when there are more. The newest answer stays whatever its size."""
_THREADS = 2

_UNDER_WAY = ("Scheduled", "Running")
Status = Literal["Scheduled", "Running", "Complete", "Failed", "Cancelled"]
LogSource = Callable[[str, float, float], Callable[[], Sequence[Event]] | None]
"""How to read, on any thread, the events of a log group between two moments in epoch milliseconds, both inclusive.

None when there is no such group.
"""


@dataclass(slots=True)
class _Query:
    id: str
    text: str
    groups: tuple[str, ...]
    created: float
    limit: int
    status: Status = "Scheduled"
    answer: Answer | None = None
    ended: float | None = None


class QueryRuns:
    """The queries of a local cloud. Calls come on the event loop, queries run on threads.

    Args:
        source: the log events.
        now: scaled epoch seconds.
    """

    def __init__(self, source: LogSource, now: Callable[[], float]) -> None:
        self._source, self._now = source, now
        self._queries: dict[str, _Query] = {}
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="logs-insights")

    def serve(self, operation: str, request: object) -> dict[str, Any]:
        """Perform one operation of `OPERATIONS`.

        Raises:
            AwsError: the request is refused; a query that cannot be evaluated with ``MalformedQueryException``.
        """
        try:
            given = service_model("logs", OPERATIONS).validated(operation, request)
        except AwsError as error:
            raise AwsError("InvalidParameterException", error.message) from None
        handlers: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
            "DescribeQueries": self._describe,
            "GetQueryResults": self._results,
            "StartQuery": self._start,
            "StopQuery": self._stop,
        }
        return handlers[operation](given)

    def clear(self) -> None:
        """Forget all queries."""
        with self._lock:
            self._queries.clear()

    def close(self) -> None:
        """Run nothing any more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _start(self, given: Mapping[str, Any]) -> dict[str, Any]:
        if given.get("queryLanguage", "CWLI") != "CWLI":
            raise AwsError("InvalidParameterException", f"queryLanguage {given['queryLanguage']} is not evaluated here: use CWLI.")
        groups = _groups(given)
        start, end = given["startTime"], given["endTime"]
        if start > end:
            raise AwsError("InvalidParameterException", f"startTime {start} must not be after endTime {end}.")
        if end >= _MOST_SECONDS:
            raise AwsError("InvalidParameterException", f"startTime and endTime are seconds since 1970: {end} looks like milliseconds.")
        limit = given.get("limit", MOST_ROWS)
        if limit > MOST_ROWS:
            raise AwsError("InvalidParameterException", f"limit {limit} must be at most {MOST_ROWS}.")
        try:
            commands = parse_query(given["queryString"])
        except QuerySyntaxError as error:
            place = {"startCharOffset": error.start, "endCharOffset": error.end}
            raise AwsError("MalformedQueryException", str(error), queryCompileError={"location": place, "message": str(error)}) from None
        readers = []
        for group in groups:
            reader = self._source(group, start * 1000, end * 1000 + 999)
            if reader is None:
                raise AwsError("ResourceNotFoundException", f"Log group '{group}' does not exist.")
            readers.append(reader)
        query = _Query(str(uuid.uuid4()), given["queryString"], groups, self._now(), limit)
        with self._lock:
            if sum(other.status in _UNDER_WAY for other in self._queries.values()) >= _MOST_UNDER_WAY:
                raise AwsError("LimitExceededException", f"The account runs {_MOST_UNDER_WAY} queries already.")
            self._queries[query.id] = query
            for name in list(self._queries)[: max(0, len(self._queries) - _KEPT_QUERIES)]:
                del self._queries[name]
        self._pool.submit(self._run, query, commands, readers)
        return {"queryId": query.id}

    def _run(self, query: _Query, commands: Sequence[Command], readers: Sequence[Callable[[], Sequence[Event]]]) -> None:
        with self._lock:
            if query.status != "Scheduled":
                return
            query.status = "Running"
        try:
            answer = evaluate(commands, [event for read in readers for event in read()], limit=query.limit)
        except Exception:
            logger.exception("the query %s failed", query.text)
            answer = None
        with self._lock:
            if query.status == "Running":
                query.status, query.answer, query.ended = "Complete" if answer is not None else "Failed", answer, self._now()
                self._forget_answers(query)

    def _forget_answers(self, newest: _Query) -> None:
        answered = [(query, len(query.answer.rows)) for query in self._queries.values() if query.answer is not None]
        rows = sum(count for _query, count in answered)
        for query, count in answered:
            if rows > _KEPT_ROWS and query is not newest:
                del self._queries[query.id]
                rows -= count

    def _query(self, query_id: str) -> _Query:
        query = self._queries.get(query_id)
        if query is None:
            raise AwsError("ResourceNotFoundException", f"The query {query_id} does not exist.")
        return query

    def _results(self, given: Mapping[str, Any]) -> dict[str, Any]:
        with self._lock:
            query = self._query(given["queryId"])
            status, answer = query.status, query.answer
        rows = answer.rows if answer is not None else []
        start, most = _offset(given.get("nextToken")), given.get("maxItems", MOST_ROWS) or MOST_ROWS
        page = rows[start : start + most]
        more = {"nextToken": str(start + most)} if start + most < len(rows) else {}
        return {
            "queryLanguage": "CWLI",
            "status": status,
            "results": [[{"field": name, "value": value} for name, value in row] for row in page],
            "statistics": {
                "recordsMatched": float(answer.matched if answer else 0),
                "recordsScanned": float(answer.scanned if answer else 0),
                "estimatedRecordsSkipped": 0.0,
                "bytesScanned": float(answer.scanned_bytes if answer else 0),
                "estimatedBytesSkipped": 0.0,
                "logGroupsScanned": float(len(query.groups)),
            },
            **more,
        }

    def _stop(self, given: Mapping[str, Any]) -> dict[str, Any]:
        with self._lock:
            query = self._query(given["queryId"])
            if query.status not in _UNDER_WAY:
                raise AwsError("InvalidParameterException", f"The query {query.id} is {query.status}: only one that runs can be stopped.")
            query.status, query.ended = "Cancelled", self._now()
        return {"success": True}

    def _describe(self, given: Mapping[str, Any]) -> dict[str, Any]:
        if given.get("queryLanguage", "CWLI") != "CWLI":
            return {"queries": []}
        with self._lock:
            wanted = [
                query
                for query in reversed(self._queries.values())
                if given.get("status", query.status) == query.status and given.get("logGroupName", query.groups[0]) in query.groups
            ]
            described = [_described(query) for query in wanted]
        start, most = _offset(given.get("nextToken")), given.get("maxResults", 1000)
        more = {"nextToken": str(start + most)} if start + most < len(described) else {}
        return {"queries": described[start : start + most], **more}


def _groups(given: Mapping[str, Any]) -> tuple[str, ...]:
    forms = [member for member in ("logGroupName", "logGroupNames", "logGroupIdentifiers") if given.get(member)]
    if len(forms) != 1:
        raise AwsError("InvalidParameterException", "Exactly one of logGroupName, logGroupNames and logGroupIdentifiers is required.")
    named = given[forms[0]] if forms[0] != "logGroupName" else [given["logGroupName"]]
    names = [name.partition(":log-group:")[2].partition(":")[0] if name.startswith("arn:") else name for name in named]
    if len(names) > _MOST_GROUPS:
        raise AwsError("InvalidParameterException", f"{len(names)} log groups were given: at most {_MOST_GROUPS} can be queried.")
    return tuple(dict.fromkeys(names))


def _offset(token: str | None) -> int:
    if token is None:
        return 0
    if not token.isdecimal():
        raise AwsError("InvalidParameterException", "The specified nextToken is invalid.")
    return int(token)


def _described(query: _Query) -> dict[str, Any]:
    return {
        "queryLanguage": "CWLI",
        "queryId": query.id,
        "queryString": query.text,
        "status": query.status,
        "createTime": int(query.created * 1000),
        "logGroupName": query.groups[0],
        **({"bytesScanned": float(query.answer.scanned_bytes)} if query.answer else {}),
        **({"queryDuration": int((query.ended - query.created) * 1000)} if query.ended is not None else {}),
    }
