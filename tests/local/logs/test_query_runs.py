"""Queries are kept for their callers, but not without bound."""

from __future__ import annotations

import json
import threading
from functools import partial

import pytest

from mme_local.logs import queries
from mme_local.logs.queries import QueryRuns
from mme_local.logs.values import Event
from mme_local.wire import AwsError

NOW = 1_800_000_000


@pytest.fixture
def runs():
    """A group ``g`` with forty events."""
    events = [Event(partial(str, number), NOW * 1000, NOW * 1000, json.dumps({"n": number}), "g", "s", "0") for number in range(40)]
    made = QueryRuns(lambda _group, _start, _end: lambda: events, lambda: float(NOW))
    yield made
    made.close()


def complete(runs, text="fields n"):
    """Run queries one after the other; the id of the last one."""
    given = {"logGroupName": "g", "startTime": NOW - 60, "endTime": NOW + 60, "queryString": text}
    query = runs.serve("StartQuery", given)["queryId"]
    runs._pool.submit(int).result()
    while runs.serve("GetQueryResults", {"queryId": query})["status"] != "Complete":
        runs._pool.submit(int).result()
    return query


def test_the_oldest_answers_are_forgotten_when_their_rows_are_too_many(runs, monkeypatch):
    monkeypatch.setattr(queries, "_KEPT_ROWS", 100)
    first, second, third = (complete(runs) for _ in range(3))
    with pytest.raises(AwsError, match="does not exist"):
        runs.serve("GetQueryResults", {"queryId": first})
    small = complete(runs, "stats count(*) as n")
    for query, rows in ((second, 40), (third, 40), (small, 1)):
        assert len(runs.serve("GetQueryResults", {"queryId": query})["results"]) == rows
    assert len(runs.serve("DescribeQueries", {})["queries"]) == 3


def test_the_newest_answer_stays_whatever_its_size(runs, monkeypatch):
    monkeypatch.setattr(queries, "_KEPT_ROWS", 10)
    complete(runs)
    newest = complete(runs)
    assert len(runs.serve("GetQueryResults", {"queryId": newest})["results"]) == 40
    assert len(runs.serve("DescribeQueries", {})["queries"]) == 1


def test_an_account_runs_thirty_queries_at_once_and_no_more():
    gate = threading.Event()

    def read():
        gate.wait(30)
        return []

    runs = QueryRuns(lambda _group, _start, _end: read, lambda: float(NOW))
    given = {"logGroupName": "g", "startTime": NOW - 60, "endTime": NOW + 60, "queryString": "fields n"}
    try:
        first, *_others = [runs.serve("StartQuery", given)["queryId"] for _ in range(30)]
        with pytest.raises(AwsError, match="30 queries") as refused:
            runs.serve("StartQuery", given)
        assert refused.value.code == "LimitExceededException"
        runs.serve("StopQuery", {"queryId": first})
        runs.serve("StartQuery", given)
    finally:
        gate.set()
        runs.close()
