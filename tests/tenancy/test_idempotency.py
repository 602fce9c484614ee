from __future__ import annotations

import pytest

from mme_tenancy.errors import IdempotencyConflictError, InvalidRequestError, RequestInProgressError
from mme_tenancy.idempotency import IdempotencyKey, StoredAnswer, idempotent
from mme_tenancy.testing import MemoryIdempotencyStore

KEY = IdempotencyKey("acme", "POST /versions", "key-1")
REQUEST = {"model": "iris", "body": {"a": 1}}


@pytest.fixture
def store():
    return MemoryIdempotencyStore()


@pytest.fixture
def ask(store, clock):
    def ask(answer, key=KEY, request=REQUEST):
        return idempotent(store, key, request, answer, clock=clock, keep_seconds=3600)

    return ask


def never():
    raise AssertionError("the work was done twice")


def test_the_same_request_gets_the_first_answer_again(ask):
    first = StoredAnswer(201, '{"version": "v1"}')
    assert ask(lambda: first) == (first, False)
    assert ask(never) == (first, True)
    assert ask(never, request={"body": {"a": 1}, "model": "iris"}) == (first, True)


def test_another_request_with_the_same_key_is_a_conflict(ask):
    ask(lambda: StoredAnswer(201, "{}"))
    with pytest.raises(IdempotencyConflictError, match="another request") as caught:
        ask(never, request={"model": "iris", "body": {"a": 2}})
    assert (caught.value.field, caught.value.value) == ("Idempotency-Key", "key-1")


@pytest.mark.parametrize("other", [IdempotencyKey("other", KEY.route, KEY.key), IdempotencyKey("acme", "PUT /x", KEY.key)])
def test_a_key_counts_only_for_its_tenant_and_route(ask, other):
    ask(lambda: StoredAnswer(201, "first"))
    assert ask(lambda: StoredAnswer(201, "second"), key=other) == (StoredAnswer(201, "second"), False)


def test_a_request_that_still_runs_refuses_the_second_one(ask):
    def work():
        with pytest.raises(RequestInProgressError) as caught:
            ask(never)
        assert caught.value.retry_after_seconds == 1
        return StoredAnswer(201, "{}")

    assert ask(work) == (StoredAnswer(201, "{}"), False)


def test_another_request_while_the_first_runs_is_a_conflict(ask):
    def work():
        with pytest.raises(IdempotencyConflictError):
            ask(never, request="other")
        return StoredAnswer(201, "{}")

    ask(work)


def test_a_failed_request_frees_its_key(ask):
    with pytest.raises(LookupError):
        ask(lambda: {}["missing"])
    assert ask(lambda: StoredAnswer(201, "second")) == (StoredAnswer(201, "second"), False)


def test_a_request_that_crashed_is_taken_over_when_its_lease_ends(ask, store, clock):
    with pytest.raises(RequestInProgressError):
        ask(lambda: ask(never))
    store.records.clear()

    def crash():
        store.remove = lambda key, record: None  # the function is killed: nothing is cleaned up
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ask(crash)
    with pytest.raises(RequestInProgressError):
        ask(never)
    clock.sleep(31)
    assert ask(lambda: StoredAnswer(201, "taken over")) == (StoredAnswer(201, "taken over"), False)
    assert ask(never) == (StoredAnswer(201, "taken over"), True)


def test_two_that_take_over_at_once_do_the_work_once(ask, store, clock):
    store.remove = lambda key, record: None
    with pytest.raises(LookupError):
        ask(lambda: {}["missing"])
    clock.sleep(31)
    put, other = store.put, []

    def put_while_another_does(key, before, after):
        if before is not None and not other:
            other.append("began")
            assert idempotent(store, KEY, REQUEST, lambda: StoredAnswer(201, "other"), clock=clock, keep_seconds=60)[1] is False
        return put(key, before, after)

    store.put = put_while_another_does
    with pytest.raises(RequestInProgressError):
        ask(never)


def test_an_answer_is_forgotten_with_its_upload(ask, clock):
    ask(lambda: StoredAnswer(201, "first"))
    clock.sleep(3601)
    assert ask(lambda: StoredAnswer(200, "second")) == (StoredAnswer(200, "second"), False)
    assert ask(never) == (StoredAnswer(200, "second"), True)


@pytest.mark.parametrize("key", ["", "a b", "x" * 256, "é", "a\n"])
def test_a_key_outside_visible_ascii_is_refused(key):
    with pytest.raises(InvalidRequestError, match="visible ASCII"):
        IdempotencyKey("acme", "POST /versions", key)
