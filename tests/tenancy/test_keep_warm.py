"""Which of the models that are to stay loaded are called, and when."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mme_facts.grammar import HeatKey
from mme_facts.own_events import warm_up_event
from mme_tenancy.handlers.warm_up import keeping_warm
from mme_tenancy.heat import Counts, HeatError, ModelHeat, PoolHeat
from mme_tenancy.testing_heat import MemoryHeat
from mme_tenancy.warm_up.keep_warm import KeepWarm, quiet
from tests.tenancy.warm_up_world import ENDPOINT, World, sagemaker_event

IRIS, WINE = ("acme", "iris"), ("globex", "wine")
MODELS = ["acme/iris", "globex/wine"]
WINDOW = 300


def window(end, *asked, pool="shared", requests=1):
    rows = tuple(ModelHeat(tenant, model, "v1-0123456789ab", Counts(requests=requests)) for tenant, model in asked)
    return PoolHeat(HeatKey(pool, int(end) // WINDOW * WINDOW - WINDOW, WINDOW), ("endpoint-a",), rows)


def no_trouble(_endpoint, _message, error):
    raise error


@pytest.fixture
def tick(clock):
    """Ticks once; the models that were called."""

    def tick(keep_warm, endpoint="endpoint-a"):
        called = []
        count = keep_warm.tick("shared", endpoint, called.extend)
        assert count == len(called)
        return called

    return tick


def test_each_model_is_called_at_once_and_then_every_five_minutes(clock, tick):
    keep_warm = KeepWarm(MODELS, MemoryHeat(), clock, no_trouble)
    called = []
    for _minute in range(11):
        called.append(tick(keep_warm))
        clock.sleep(60)
    assert called == [[IRIS, WINE], [], [], [], [], [IRIS, WINE], [], [], [], [], [IRIS, WINE]]


def test_a_late_tick_only_moves_the_next_ones(clock, tick):
    keep_warm = KeepWarm(MODELS[:1], MemoryHeat(), clock, no_trouble)
    tick(keep_warm)
    clock.sleep(299)
    assert tick(keep_warm) == []
    clock.sleep(3600)
    assert tick(keep_warm) == [IRIS]
    assert tick(keep_warm) == [], "the same tick twice"


def test_what_users_asked_for_in_the_newest_window_is_left_to_them(clock, tick):
    keep_warm = KeepWarm(MODELS, MemoryHeat(window(clock.time() - WINDOW, WINE), window(clock.time(), IRIS)), clock, no_trouble)
    assert tick(keep_warm) == [WINE], "the window before is too long ago"


def test_an_old_window_or_that_of_another_pool_says_nothing(clock, tick):
    heat = MemoryHeat(window(clock.time() - 4 * WINDOW, IRIS), window(clock.time(), WINE, pool="other"))
    assert tick(KeepWarm(MODELS, heat, clock, no_trouble)) == [IRIS, WINE]


def test_heat_that_cannot_be_read_forgets_no_model(clock, tick):
    class Broken(MemoryHeat):
        def windows(self, pool, *, since):
            raise OSError("S3 is out of reach")

    told = []
    assert tick(KeepWarm(MODELS, Broken(), clock, lambda *trouble: told.append(trouble))) == [IRIS, WINE]
    damaged = MemoryHeat(window(clock.time(), IRIS))
    damaged.objects = {key: (b"no gzip", revision) for key, (_, revision) in damaged.objects.items()}
    assert tick(KeepWarm(MODELS, damaged, clock, lambda *trouble: told.append(trouble))) == [IRIS, WINE]
    assert [(endpoint, type(error)) for endpoint, _, error in told] == [("endpoint-a", OSError), ("endpoint-a", HeatError)]


def test_a_call_that_fails_is_not_made_every_minute(clock):
    keep_warm = KeepWarm(MODELS, MemoryHeat(), clock, no_trouble)

    def fail(_names):
        raise RuntimeError("throttled")

    with pytest.raises(RuntimeError):
        keep_warm.tick("shared", "endpoint-a", fail)
    assert keep_warm.tick("shared", "endpoint-a", fail) == 0


def test_endpoints_are_looked_after_each_for_itself(clock, tick):
    keep_warm = KeepWarm(MODELS[:1], MemoryHeat(), clock, no_trouble)
    assert tick(keep_warm) == [IRIS]
    assert tick(keep_warm, "endpoint-b") == [IRIS]


def test_nothing_is_read_where_nothing_is_due(clock, tick):
    class Unread(MemoryHeat):
        def windows(self, pool, *, since):
            raise AssertionError("nothing is due")

    assert tick(KeepWarm([], Unread(), clock, no_trouble)) == []


def test_a_row_without_requests_is_no_traffic():
    assert quiet([IRIS, WINE], window(6000, IRIS, requests=0)) == [IRIS, WINE]
    assert quiet([IRIS, WINE], None) == [IRIS, WINE]
    assert quiet([IRIS], window(6000, IRIS)) == []


class TestTheFunction:
    """The warm-up function with models to keep warm, in memory."""

    @pytest.fixture
    def world(self, make_version, clock):
        return World(make_version, clock=clock)

    @pytest.fixture
    def send(self, world):
        """Sends events to one process of the function; the calls for models to keep warm."""
        kept = KeepWarm(MODELS, MemoryHeat(), world.clock, no_trouble)
        warmed = []

        def warm(target, names, why, _stop_at):
            warmed.append((target.endpoint, tuple(names), why))
            if send.fails:
                raise OSError("the registry is out of reach")

        function = replace(world.function(), chores=(keeping_warm(kept, warm),))

        def send(*events):
            warmed.clear()
            for event in events:
                function(event, Context())
            return list(warmed)

        send.fails = False
        return send

    def test_the_schedule_alone_has_them_called(self, send):
        assert send(sagemaker_event(), warm_up_event(ENDPOINT)) == []
        assert send({}, {}) == [(ENDPOINT, (IRIS, WINE), "keep-warm")]

    def test_while_the_fleet_is_warmed_they_wait(self, send, world):
        send(sagemaker_event())
        world.scales_to(6)
        assert send({}) == [], "this minute's work is the warm-up"
        assert world.record.warm_up.summary["warmed"] == 8
        assert send({}) == [(ENDPOINT, (IRIS, WINE), "keep-warm")]

    def test_what_fails_is_told_and_hurts_no_warm_up(self, send, world):
        send(sagemaker_event())
        send.fails = True
        with pytest.raises(OSError, match="out of reach"):
            send({})
        world.scales_to(6)
        send({})
        assert world.record.warm_up.summary["warmed"] == 8


class Context:
    """Lambda's context with all the time there is."""

    def get_remaining_time_in_millis(self):
        return 300_000
