"""Queries are started a few at a time, polled, and given up at the deadline."""

from __future__ import annotations

import pytest

from mme_tenancy.log_queries import QueriesBusyError, Query, QueryAnswer, QueryFailedError, run_queries

ANSWER = QueryAnswer(({"requests": "1"},))


class Service:
    """Answers each query after so many polls, or fails."""

    def __init__(self, *script, most=99):
        self.script, self.most = list(script), most
        self.running, self.stopped, self.started, self.greatest = {}, [], [], 0

    def start(self, query):
        entry = self.script[len(self.started)]
        if isinstance(entry, QueryFailedError):
            self.started.append(query)
            raise entry
        if len(self.running) >= self.most:
            raise QueriesBusyError("LimitExceededException")
        self.started.append(query)
        self.running[query.text] = entry
        self.greatest = max(self.greatest, len(self.running))
        return query.text

    def poll(self, query_id):
        self.running[query_id] -= 1
        if self.running[query_id] >= 0:
            return None
        del self.running[query_id]
        return ANSWER

    def stop(self, query_id):
        self.stopped.append(query_id)


def queries(count):
    return [Query(str(number), 0, 60) for number in range(count)]


def run(service, clock, count, *, seconds=60.0, at_once=2):
    return run_queries(service, queries(count), clock=clock, deadline=clock.monotonic() + seconds, at_once=at_once)


def test_all_are_answered_some_at_a_time(clock):
    service = Service(3, 0, 5, 1)
    assert run(service, clock, 4) == [ANSWER] * 4
    assert service.greatest == 2
    assert max(clock.slept) <= 2.0


def test_none_are_no_work(clock):
    assert run(Service(), clock, 0) == []
    assert clock.slept == []


def test_one_that_fails_keeps_no_other_from_its_answer(clock):
    failure = QueryFailedError("malformed")
    assert run(Service(0, failure, 0), clock, 3) == [ANSWER, failure, ANSWER]


def test_one_that_ends_badly_has_failed(clock):
    service = Service(0, 0)
    answered = service.poll

    def poll(query_id):
        if query_id == "0":
            raise QueryFailedError("ended as Timeout")
        return answered(query_id)

    service.poll = poll
    first, second = run(service, clock, 2)
    assert isinstance(first, QueryFailedError)
    assert second == ANSWER


def test_at_the_accounts_limit_those_that_run_go_on_and_no_other_is_tried(clock):
    service = Service(2, 2, 2, most=1)
    first, second, third = run(service, clock, 3)
    assert first == ANSWER
    assert isinstance(second, QueriesBusyError)
    assert isinstance(third, QueriesBusyError)
    assert len(service.started) == 1


def test_at_the_deadline_what_runs_is_stopped_and_what_waits_is_not_started(clock):
    service = Service(1000, 1000, 0)
    first, second, third = run(service, clock, 3, seconds=10)
    assert isinstance(first, QueryFailedError)
    assert isinstance(second, QueryFailedError)
    assert isinstance(third, QueriesBusyError)
    assert service.stopped == ["0", "1"]
    assert sum(clock.slept) == pytest.approx(10)


def test_without_time_nothing_is_started(clock):
    service = Service(0)
    assert isinstance(run(service, clock, 1, seconds=-1)[0], QueriesBusyError)
    assert service.started == []
