"""The feed: numbered, bounded, and honest about what a slow reader missed."""

import json

import pytest

from mme_local.console.feed import Feed


@pytest.fixture
def feed():
    return Feed(lambda: 12.34567, capacity=3)


def numbers(items):
    return [item["n"] for item in items]


def test_a_reader_gets_what_came_after_its_last_item(feed):
    for n in (1, 2, 3):
        feed.put("step", n=n)
    last, missed, items = feed.after(1, 10)
    assert (last, missed, numbers(items)) == (3, 0, [2, 3])
    assert items[0] == {"type": "step", "time": 12.346, "n": 2}
    assert feed.after(last, 10) == (3, 0, [])


def test_a_reader_that_is_too_slow_is_told_how_many_it_missed(feed):
    for n in range(1, 9):
        feed.put("step", n=n)
    assert feed.after(2, 10)[:2] == (8, 3)
    assert numbers(feed.after(2, 10)[2]) == [6, 7, 8]
    assert feed.after(5, 10)[1] == 0


def test_a_reader_may_take_a_few_at_a_time(feed):
    for n in (1, 2, 3):
        feed.put("step", n=n)
    last, _, items = feed.after(0, 2)
    assert (last, numbers(items)) == (2, [1, 2])
    assert numbers(feed.after(last, 2)[2]) == [3]


def test_a_number_of_an_earlier_run_counts_as_none(feed):
    feed.put("step", n=1)
    last, missed, items = feed.after(4711, 10)
    assert (last, missed, numbers(items)) == (1, 0, [1])


def test_it_keeps_no_more_than_its_capacity(feed):
    for n in range(1000):
        feed.put("step", n=n)
    assert len(json.dumps(feed.after(0, 10_000)[2])) < 200
    assert feed.last == 1000
