from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from mme_tenancy.stale_cache import Freshness, StaleCache

FRESHNESS = Freshness(2, 30, 300)


class Source:
    """Counts reads; ``values`` are what it says, ``error`` is what it raises instead."""

    def __init__(self):
        self.values, self.reads, self.error = {"a": "one"}, [], None

    def __call__(self, key):
        self.reads.append(key)
        if self.error is not None:
            raise self.error
        return self.values.get(key)


def kept(value):
    return value is not None


@pytest.fixture
def source():
    return Source()


@pytest.fixture
def background():
    return []


@pytest.fixture
def cache(source, clock, background):
    return StaleCache(source, clock, freshness=FRESHNESS, entries=3, keep=kept, background=background.append)


def test_a_fresh_value_is_not_read_again(cache, source, clock):
    assert [cache.get("a"), cache.get("a")] == ["one", "one"]
    clock.sleep(1.9)
    assert cache.get("a") == "one"
    assert source.reads == ["a"]


def test_a_stale_value_is_answered_at_once_and_renewed_once(cache, source, clock, background):
    cache.get("a")
    clock.sleep(2)
    source.values["a"] = "two"
    assert [cache.get("a"), cache.get("a"), len(background)] == ["one", "one", 1]
    background.pop()()
    assert [cache.get("a"), len(background), source.reads] == ["two", 0, ["a", "a"]]


def test_threads_that_are_shut_down_leave_the_value_good_until_it_is_stale(source, clock):
    threads = ThreadPoolExecutor(1)
    cache = StaleCache(source, clock, freshness=FRESHNESS, entries=3, keep=kept, background=threads.submit)
    cache.get("a")
    threads.shutdown()
    source.values["a"] = "two"
    clock.sleep(2)
    assert [cache.get("a"), cache.get("a")] == ["one", "one"]
    clock.sleep(28)
    assert cache.get("a") == "two"


def test_a_value_too_old_is_read_while_the_caller_waits(cache, source, clock, background):
    cache.get("a")
    clock.sleep(30)
    source.values["a"] = "two"
    assert (cache.get("a"), background) == ("two", [])


def test_an_old_value_serves_while_the_source_fails_but_not_for_ever(cache, source, clock, caplog):
    cache.get("a")
    source.error = OSError("down")
    clock.sleep(299)
    assert cache.get("a") == "one"
    assert "what was read 299 s ago is used" in caplog.text
    clock.sleep(1)
    with pytest.raises(OSError, match="down"):
        cache.get("a")


def test_a_renewal_that_fails_is_told_and_tried_again_by_the_next_caller(cache, source, clock, background, caplog):
    cache.get("a")
    clock.sleep(2)
    source.error = OSError("down")
    cache.get("a")
    background.pop()()
    assert "could not be renewed" in caplog.text
    source.error, source.values["a"] = None, "two"
    assert cache.get("a") == "one"
    background.pop()()
    assert cache.get("a") == "two"


def test_a_missing_value_is_not_kept(cache, source):
    assert cache.get("b") is None
    source.values["b"] = "new"
    assert cache.get("b") == "new"


def test_a_value_that_vanished_is_forgotten(cache, source):
    cache.get("a")
    source.values.clear()
    assert [cache.refresh("a"), cache.get("a"), len(cache)] == [None, None, 0]


def test_a_refresh_counts_for_all(cache, source):
    cache.get("a")
    source.values["a"] = "two"
    assert [cache.refresh("a"), cache.get("a")] == ["two", "two"]


def test_the_least_recently_used_value_goes(cache, source):
    source.values = dict.fromkeys("abcd", "x")
    for key in "abcad":
        cache.get(key)
    assert len(cache) == 3
    source.reads.clear()
    for key in "acd":
        cache.get(key)
    assert source.reads == []
    cache.get("b")
    assert source.reads == ["b"]


def test_an_older_answer_never_replaces_a_newer_one(clock):
    began, go_on = threading.Event(), threading.Event()
    answers = iter(["old", "new"])

    def read(_key):
        answer = next(answers)
        if answer == "old":
            began.set()
            assert go_on.wait(10)
        return answer

    cache = StaleCache(read, clock, freshness=FRESHNESS, entries=3, keep=kept, background=lambda _function: None)
    slow = threading.Thread(target=cache.refresh, args=("a",))
    slow.start()
    assert began.wait(10)
    clock.sleep(1)
    cache.refresh("a")
    go_on.set()
    slow.join(10)
    assert cache.get("a") == "new"


@pytest.mark.parametrize("ages", [(-1, 2, 3), (3, 2, 3), (1, 4, 3)])
def test_ages_out_of_order_are_refused(ages):
    with pytest.raises(ValueError, match="not allowed"):
        Freshness(*ages)


def test_a_cache_of_nothing_is_refused(source, clock):
    with pytest.raises(ValueError, match="entries 0"):
        StaleCache(source, clock, freshness=FRESHNESS, entries=0, keep=kept, background=lambda _function: None)


@pytest.fixture
def hung(clock, background):
    """A cache whose source says ``"one"`` once, and after that nothing until ``go`` is set."""
    go, reads = threading.Event(), []

    def read(key):
        reads.append(key)
        if len(reads) > 1:
            go.wait(30)
        return "one" if len(reads) == 1 else "two"

    yield StaleCache(read, clock, freshness=FRESHNESS, entries=3, keep=kept, background=background.append), go
    go.set()


def test_a_source_that_hangs_is_waited_for_until_the_deadline(hung, clock):
    cache, go = hung
    cache.get("other")
    for _ in range(2):
        with pytest.raises(TimeoutError):
            cache.get("a", deadline=clock.monotonic() + 0.05)
    go.set()
    assert cache.get("a", deadline=clock.monotonic() + 30) == "two"


def test_a_source_that_hangs_leaves_the_old_value(hung, clock):
    cache, _go = hung
    cache.get("a", deadline=clock.monotonic() + 30)
    clock.sleep(31)
    assert cache.get("a", deadline=clock.monotonic() + 0.05) == "one"
