from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from mme_tenancy.registry import Change
from mme_tenancy.route_changes import PARTS, RouteChanges, changed_parts, part_of
from mme_tenancy.routes import Model, Route
from mme_tenancy.stale_cache import Freshness, StaleCache
from mme_tenancy.tenants import Tenant
from mme_tenancy.versions import DigestClaim

NOW, LATER = "2026-01-01T00:00:00.000Z", "2026-01-02T00:00:00.000Z"
ROUTE = Route("shared", "AllTraffic", "v1-0123456789ab", "acme/churn/v1-0123456789ab.tar.gz")
TENANT = Tenant("acme", NOW, NOW)
MODEL = Model("acme", "churn", 1, NOW, NOW)
SERVED = replace(MODEL, route=ROUTE)
FRESHNESS = Freshness()


class Counters:
    def __init__(self):
        self.values, self.reads, self.error = [0] * PARTS, 0, None

    def __call__(self):
        self.reads += 1
        if self.error is not None:
            raise self.error
        return list(self.values)


@pytest.fixture
def counters():
    return Counters()


@pytest.fixture
def background():
    return []


@pytest.fixture
def watch(counters, clock, background):
    return RouteChanges(counters, clock, freshness=FRESHNESS, background=background.append)


@pytest.mark.parametrize(
    "change",
    [
        Change(SERVED, SERVED.reroute(replace(ROUTE, version="v2-0123456789ab"), LATER)),
        Change(SERVED, SERVED.reroute(None, LATER)),
        Change(SERVED, SERVED.delete(LATER, retiring_below=None)),
        Change(TENANT, TENANT.delete(LATER)),
        Change(TENANT, replace(TENANT, quotas=replace(TENANT.quotas, requests_per_second=1), rev=2)),
    ],
)
def test_what_invocations_may_have_kept_is_counted(change):
    assert changed_parts([change]) == (part_of("acme"),)


@pytest.mark.parametrize(
    "change",
    [
        Change(None, TENANT),
        Change(None, MODEL),
        Change(MODEL, MODEL.count_up(LATER)),
        Change(MODEL, MODEL.reroute(ROUTE, LATER)),
        Change(SERVED, SERVED.count_up(LATER)),
        Change(None, DigestClaim("acme", "churn", "0" * 64, 1)),
    ],
)
def test_onboarding_counts_nothing(change):
    assert changed_parts([change]) == ()


def test_a_part_is_counted_once_in_a_transaction():
    assert changed_parts([Change(TENANT, TENANT.delete(LATER)), Change(SERVED, SERVED.reroute(None, LATER))]) == (part_of("acme"),)


def test_a_tenants_part_is_the_same_in_every_process():
    assert [part_of(tenant) for tenant in ("acme", "globex")] == [62, 58]


def test_counters_are_read_behind_the_callers_back_once_a_second(watch, counters, clock, background):
    assert watch.current(clock.monotonic()) is None
    background.pop()()
    assert watch.current(clock.monotonic()) == (0,) * PARTS
    clock.sleep(1)
    counters.values[3] = 1
    assert [watch.current(clock.monotonic())[3] for _ in range(2)] == [0, 0]
    assert len(background) == 1
    background.pop()()
    assert (watch.current(clock.monotonic())[3], counters.reads) == (1, 2)


def test_a_process_that_was_frozen_reads_before_it_answers(watch, counters, clock, background):
    watch.current(clock.monotonic())
    background.pop()()
    clock.sleep(600)
    counters.values[3] = 1
    assert (watch.current(clock.monotonic())[3], background, counters.reads) == (1, [], 2)


def test_counters_that_cannot_be_read_are_not_asked_for_by_each_request(watch, counters, clock, background, caplog):
    watch.current(clock.monotonic())
    background.pop()()
    counters.error = OSError("denied")
    clock.sleep(2)
    assert [watch.current(clock.monotonic()) for _ in range(5)] == [None] * 5
    assert counters.reads == 2
    assert "denied" in caplog.text
    clock.sleep(1)
    counters.error = None
    assert watch.current(clock.monotonic()) is not None


def test_the_rest_grows_to_a_minute(watch, counters, clock, background):
    counters.error = OSError("denied")
    for _ in range(1000):
        watch.current(clock.monotonic())
        while background:
            background.pop()()
        clock.sleep(1)
    assert 20 <= counters.reads <= 23


def test_threads_that_are_shut_down_leave_the_counters_unknown(counters, clock):
    def refuse(_function):
        raise RuntimeError

    watch = RouteChanges(counters, clock, freshness=FRESHNESS, background=refuse)
    assert [watch.current(clock.monotonic()) for _ in range(2)] == [None, None]


def test_a_watched_value_is_not_read_again_until_its_counter_moves(counters, watch, clock, background):
    reads = []
    cache = StaleCache(
        lambda key: reads.append(key) or len(reads),
        clock,
        freshness=FRESHNESS,
        entries=3,
        keep=bool,
        background=background.append,
        watch=watch,
        part=lambda _key: 3,
    )
    watch.current(clock.monotonic())
    background.pop()()
    assert cache.get("a") == 1
    for _ in range(29):
        clock.sleep(1)
        assert cache.get("a") == 1
        while background:
            background.pop()()
    counters.values[4] += 1
    clock.sleep(2)
    assert cache.get("a") == 1
    counters.values[3] += 1
    clock.sleep(2)
    assert [cache.get("a"), cache.get("a"), reads] == [2, 2, ["a", "a"]]


def test_many_callers_that_miss_one_key_read_it_once(clock):
    asked, go_on, reads = threading.Barrier(9), threading.Event(), []

    def read(key):
        reads.append(key)
        assert go_on.wait(10)
        return "one"

    cache = StaleCache(read, clock, freshness=FRESHNESS, entries=3, keep=bool, background=lambda _function: None)
    answers = []

    def caller():
        asked.wait(10)
        answers.append(cache.get("a"))

    threads = [threading.Thread(target=caller) for _ in range(8)]
    for thread in threads:
        thread.start()
    asked.wait(10)
    go_on.set()
    for thread in threads:
        thread.join(10)
    assert (answers, cache.get("a"), reads) == (["one"] * 8, "one", ["a"])


class Routes(RuleBasedStateMachine):
    """Writers, reads of counters and routes that fail or end late, and time: no route is used longer than the bound after its change."""

    def __init__(self):
        super().__init__()
        self.now, self.pending = 0.0, []
        self.values, self.counters = dict.fromkeys("abc", 0), [0, 0]
        self.since = {key: [0.0] for key in "abc"}
        self.registry_down = self.counters_down = False
        self.interrupt = None
        watch = RouteChanges(self._read_counters, self, freshness=FRESHNESS, background=self.pending.append)
        self.cache = StaleCache(
            self._read,
            self,
            freshness=FRESHNESS,
            entries=2,
            keep=lambda _v: True,
            background=self.pending.append,
            watch=watch,
            part=self._part,
        )

    def monotonic(self):
        return self.now

    @staticmethod
    def _part(key):
        return 0 if key in "ab" else 1

    def _read(self, key):
        if self.registry_down:
            raise OSError("down")
        value = self.values[key]
        self._interrupt()
        return value

    def _read_counters(self):
        if self.counters_down:
            raise OSError("down")
        counters = list(self.counters)
        self._interrupt()
        return counters

    def _interrupt(self):
        """A write that commits after a read, but before its answer arrives."""
        key, self.interrupt = self.interrupt, None
        if key is not None:
            self.write(key)

    @rule(key=st.sampled_from("abc"))
    def write(self, key):
        self.values[key] += 1
        self.since[key].append(self.now)
        self.counters[self._part(key)] += 1

    @rule(key=st.sampled_from("abc"))
    def write_twice_counted(self, key):
        """A transaction whose counter went up again changes nothing for the worse."""
        self.write(key)
        self.counters[self._part(key)] += 1

    @rule(key=st.sampled_from("abc"))
    def write_during_the_next_read(self, key):
        self.interrupt = key

    @rule(seconds=st.sampled_from([0.0, 0.4, 0.99, 1.0, 1.5, 2.0, 40.0]))
    def wait(self, seconds):
        self.now += seconds

    @rule()
    def run_background(self):
        if self.pending:
            self.pending.pop(0)()

    @rule(down=st.booleans())
    def counters_fail(self, down):
        self.counters_down = down

    @rule(key=st.sampled_from("abc"))
    def get(self, key):
        value = self.cache.get(key)
        replaced = self.since[key][value + 1] if value < self.values[key] else self.now
        assert self.now - replaced < FRESHNESS.stale_seconds

    @rule(key=st.sampled_from("abc"))
    def registry_fails_once(self, key):
        """Then what was read before is used, however old, and the next read is right again."""
        self.registry_down = True
        with suppress(OSError):
            self.cache.get(key)
        self.registry_down = False

    @invariant()
    def bounded(self):
        assert len(self.cache) <= 2


Routes.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_no_interleaving_serves_a_route_longer_than_the_bound = Routes.TestCase


def test_counters_that_hang_are_given_up_and_read_once_for_all_who_wait(clock):
    go, reads = threading.Event(), []

    def read():
        reads.append(None)
        if len(reads) > 1:
            go.wait(30)
        return (len(reads),) * 64

    watch = RouteChanges(read, clock, freshness=FRESHNESS, background=lambda call: call())
    watch.current(clock.monotonic())
    clock.sleep(FRESHNESS.stale_seconds)
    assert [watch.current(clock.monotonic()), watch.current(clock.monotonic())] == [None, None]
    assert len(reads) == 2
    go.set()
    assert watch.current(clock.monotonic())[0] == 2
