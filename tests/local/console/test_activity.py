"""The counters are those of the fleet, an update keeps them, and the feed tells what happened."""

import random

import pytest

from mme_fleet import (
    Download,
    Downloaded,
    Fleet,
    FleetSettings,
    Forward,
    InstanceDraining,
    InstanceLost,
    InstanceUp,
    Load,
    Loaded,
    LoadFailed,
    LoadFailure,
    Replied,
    Request,
    Step,
    Unload,
    Unloaded,
    ZoneLost,
)
from mme_local.console.activity import Activity, Counters, tenant_of
from mme_local.console.feed import Feed


class Driver:
    """A fleet whose loads are done at once, observed."""

    def __init__(self, activity, name, instances=1, memory=10, zones="a", cache=True):
        self.activity, self.name, self.now, self.requests = activity, name, 0.0, 0
        self.fleet = Fleet(FleetSettings(model_overhead_bytes=0, cache_enabled=cache))
        self.failing = set()
        for number in range(instances):
            self.tell(InstanceUp(f"v-{number + 1}", memory, 1000, zone=zones[number % len(zones)]))

    def tell(self, event):
        self.now += 0.25
        actions = self.fleet.on(event, self.now)
        self.activity(self.name, Step(self.now, event, actions))
        for action in actions:
            if isinstance(action, Download):
                self.tell(Downloaded(action.instance, action.model, 4))
            elif isinstance(action, Load):
                failure = LoadFailed(action.instance, action.model, LoadFailure.BROKEN, 500, "it is broken")
                self.tell(failure if action.model in self.failing else Loaded(action.instance, action.model))
            elif isinstance(action, Unload):
                self.tell(Unloaded(action.instance, action.model))
            elif isinstance(action, Forward):
                self.tell(Replied(action.request, 200))

    def invoke(self, model):
        self.requests += 1
        self.tell(Request(self.requests, model))


@pytest.fixture
def feed():
    return Feed(lambda: 0.0, capacity=100_000)


@pytest.fixture
def activity(feed):
    return Activity(feed, lambda _endpoint: 1, lambda: 100.0)


def kinds(feed):
    return [item["type"] for item in feed.after(0, 100_000)[2]]


@pytest.mark.parametrize(("model", "tenant"), [("acme/iris/v1.tar.gz", "acme"), ("m.tar.gz", "-"), ("a/b", "a"), ("", "-")])
def test_the_tenant_is_the_first_segment(model, tenant):
    assert tenant_of(model) == tenant


def test_the_counters_are_those_of_the_fleet(activity):
    driver, numbers = Driver(activity, "shared.1.v", instances=2), random.Random(5)
    driver.failing = {"t3/m0"}
    for _ in range(500):
        driver.invoke(f"t{numbers.randrange(4)}/m{numbers.randrange(3)}")
    counters, snapshot = activity.counters("shared"), driver.fleet.snapshot()
    assert (counters.requests, counters.hits) == (snapshot.requests, snapshot.hits)
    assert (counters.cold_loads, counters.evictions) == (snapshot.cold_loads, snapshot.evictions)
    assert counters.loads_by_model == snapshot.loads_by_model
    assert counters.failed_loads == counters.errors == counters.errors_by_code["ModelError"] > 0
    assert sum(tenant.requests for tenant in counters.tenants.values()) == 500
    assert sum(tenant.hits for tenant in counters.tenants.values()) == counters.hits
    assert counters.tenants["t3"].errors == counters.errors
    (second,) = activity.seconds()
    assert (second.requests, second.loads, second.evictions) == (500, counters.cold_loads, counters.evictions)


def test_an_update_keeps_the_counters_and_another_endpoint_of_the_name_begins_anew(feed):
    births = {"shared": 1}
    activity = Activity(feed, births.__getitem__, lambda: 100.0)
    Driver(activity, "shared.1.v").invoke("a/m")
    Driver(activity, "shared.2.v").invoke("a/m")
    assert activity.counters("shared").requests == 2
    births["shared"] = 2
    Driver(activity, "shared.1.v").invoke("a/m")
    assert activity.counters("shared").requests == 1
    activity.forget({})
    assert activity.counters("shared").requests == 0


def test_the_feed_tells_the_way_of_a_model(activity, feed):
    driver = Driver(activity, "shared.1.v")
    for model in ("a/1", "a/2", "a/3", "a/1"):
        driver.invoke(model)
    told = kinds(feed)
    assert told == ["instance-up", "load", "loaded", "load", "loaded", "load", "evicted", "loaded", "evicted", "load", "loaded"]
    loads = [item for item in feed.after(0, 100)[2] if item["type"] == "load"]
    assert [item["from_disk"] for item in loads] == [False, False, False, True]
    loaded = next(item for item in feed.after(0, 100)[2] if item["type"] == "loaded")
    assert (loaded["endpoint"], loaded["fleet"], loaded["instance"], loaded["model"]) == ("shared", "shared.1.v", "v-1", "a/1")
    assert loaded["seconds"] == 0.5


def test_a_hit_is_no_item_of_its_own(activity, feed):
    driver = Driver(activity, "shared.1.v")
    driver.invoke("a/1")
    before = feed.last
    for _ in range(50):
        driver.invoke("a/1")
    assert feed.last == before


def test_failures_name_their_reason(activity, feed):
    driver = Driver(activity, "shared.1.v")
    driver.failing = {"a/1"}
    driver.invoke("a/1")
    failed, error = (next(item for item in feed.after(0, 100)[2] if item["type"] == kind) for kind in ("load-failed", "error"))
    assert (failed["reason"], failed["message"]) == ("broken", "it is broken")
    assert (error["code"], error["status"], error["model"]) == ("ModelError", 424, "a/1")


def test_only_a_running_instance_can_be_lost(activity, feed):
    driver = Driver(activity, "shared.1.v", instances=2)
    driver.tell(InstanceLost("v-1"))
    driver.tell(InstanceLost("v-1"))
    driver.tell(InstanceDraining("v-2"))
    driver.tell(InstanceLost("v-2"))
    assert kinds(feed) == ["instance-up", "instance-up", "instance-lost", "instance-draining", "instance-gone"]
    assert activity.counters("shared").instances_lost == 1


def test_a_lost_zone_loses_its_instances(activity, feed):
    driver = Driver(activity, "shared.1.v", instances=4, zones="ab")
    driver.tell(ZoneLost("a"))
    lost = [item["instance"] for item in feed.after(0, 100)[2] if item["type"] == "instance-lost"]
    assert lost == ["v-1", "v-3"]


def test_nothing_is_kept_of_requests_that_were_answered(activity):
    driver = Driver(activity, "shared.1.v")
    for number in range(200):
        driver.invoke(f"a/{number % 5}")
    assert activity._under_way == {}
    assert activity._loading == {}


def test_without_a_cache_models_are_unloaded_and_none_is_evicted(feed):
    activity = Activity(feed, lambda _endpoint: 1, lambda: 100.0, caches=lambda fleet: fleet != "shared.1.v")
    driver = Driver(activity, "shared.1.v", cache=False)
    for number in range(6):
        driver.invoke(f"a/{number}")
    assert driver.fleet.snapshot().evictions == activity.counters("shared").evictions == activity.seconds()[-1].evictions == 0
    assert kinds(feed).count("unloaded") == 6
    assert "evicted" not in kinds(feed)


def test_a_new_endpoint_ends_the_memory_of_those_that_are_gone(feed):
    births = {"first": 1, "kept": 1, "second": 1}
    activity = Activity(feed, births.get, lambda: 100.0)
    for name in ("first", "kept"):
        Driver(activity, f"{name}.1.v").invoke("a/m")
    del births["first"]
    Driver(activity, "second.1.v").invoke("a/m")
    assert set(activity._counters) == {"kept", "second"}
    assert {fleet for fleet, _ in activity._up} == {"kept.1.v", "second.1.v"}
    assert {endpoint for endpoint, _ in activity._unpacked} == {"kept", "second"}


def test_tenants_beyond_the_busiest_are_summed():
    counters = Counters()
    for number in range(10_000):
        counters.tenant(f"t{number}").requests += 1
        counters.tenant("busy").requests += 1
        assert len(counters.tenants) <= 2000
    assert counters.tenants["busy"].requests == 10_000
    assert counters.others.requests + sum(tenant.requests for tenant in counters.tenants.values()) == 20_000


def test_seconds_are_counted_apart_and_bounded(feed):
    clock = [100.0]
    activity = Activity(feed, lambda _endpoint: 1, lambda: clock[0])
    driver = Driver(activity, "shared.1.v")
    for second in range(300):
        clock[0] = 100.0 + second
        driver.invoke("a/1")
    assert [entry.requests for entry in activity.seconds()] == [1] * 120
    assert activity.seconds()[-1].number == 399
