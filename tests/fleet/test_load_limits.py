"""How many loads an instance does at once, how many requests a model's workers take, and ModelCacheSetting Disabled."""

import pytest

from mme_fleet import (
    Discard,
    Download,
    Downloaded,
    FleetSettings,
    Forward,
    InstanceLost,
    Load,
    Loaded,
    LoadFailed,
    LoadFailure,
    Replied,
    Reply,
    Tick,
    Unload,
    Unloaded,
)
from tests.fleet.driver import OVERHEAD, WAIT_SECONDS, Driver, error_of

# The number of loads at once.


def test_a_load_beyond_the_limit_waits_for_its_turn():
    driver = Driver(load_concurrency=2)
    assert driver.request("a")[1] == (Download("i", "a"),)
    assert driver.request("b")[1] == (Download("i", "b"),)
    assert driver.request("c")[1] == ()
    assert {model.model: model.state for model in driver.instance().models} == {"a": "downloading", "b": "downloading", "c": "waiting"}
    assert driver.on(Downloaded("i", "a", 20)) == (Load("i", "a"),), "a load counts until it is in memory"
    assert driver.on(Loaded("i", "a")) == (Forward(1, "i", "a", cold=True), Download("i", "c"))


def test_loads_begin_in_the_order_in_which_they_were_asked_for():
    driver = Driver(load_concurrency=1)
    driver.request("a")
    for model in ("b", "c", "d"):
        driver.request(model)
    assert driver.on(LoadFailed("i", "a", LoadFailure.MISSING))[-1] == Download("i", "b")
    assert driver.on(LoadFailed("i", "b", LoadFailure.MISSING))[-1] == Download("i", "c")


def test_the_limit_counts_for_every_instance_alone():
    driver = Driver("i", "j", load_concurrency=1)
    assert [driver.request(model)[1] for model in ("a", "b")] == [(Download("i", "a"),), (Download("j", "b"),)]


def test_a_model_on_disk_waits_for_its_turn_too():
    driver = Driver(load_concurrency=1, memory=30)
    driver.serve("a")
    driver.serve("b")
    driver.request("c")
    assert driver.request("a")[1] == ()
    assert driver.on(Downloaded("i", "c", 20)) == (Unload("i", "b"),)
    assert driver.on(Unloaded("i", "b")) == (Load("i", "c"),)
    assert driver.on(Loaded("i", "c")) == (Forward(3, "i", "c", cold=True),)
    assert driver.on(Replied(3, 200)) == (Reply(3), Unload("i", "c"))
    assert driver.on(Unloaded("i", "c")) == (Load("i", "a"),)


def test_a_load_that_nobody_waits_for_any_more_is_dropped_at_its_turn():
    driver = Driver(load_concurrency=1)
    driver.request("a")
    driver.request("b")
    driver.now += WAIT_SECONDS
    assert len(driver.on(Tick())) == 2
    driver.request("c")
    assert driver.on(LoadFailed("i", "a", LoadFailure.MISSING)) == (Download("i", "c"),)
    assert [model.model for model in driver.instance().models] == ["c"]
    assert driver.request("b")[1] == ()
    assert driver.instance().models[-1].state == "waiting"


def test_a_request_that_comes_before_the_turn_keeps_the_place():
    driver = Driver(load_concurrency=1)
    for model in ("a", "b", "c"):
        driver.request(model)
    driver.now += WAIT_SECONDS
    driver.on(Tick())
    driver.request("c")
    driver.request("b")
    assert driver.on(LoadFailed("i", "a", LoadFailure.MISSING)) == (Download("i", "b"),)


def test_a_load_that_is_tried_again_keeps_its_turn():
    driver = Driver(load_concurrency=1)
    driver.serve("a")
    driver.request("b")
    driver.request("c")
    driver.on(Downloaded("i", "b", 20))
    assert driver.on(LoadFailed("i", "b", LoadFailure.OUT_OF_MEMORY, 507)) == (Unload("i", "a"),)
    assert driver.on(Unloaded("i", "a")) == (Load("i", "b"),)


def test_a_load_refused_for_its_size_lets_the_next_one_begin():
    driver = Driver(load_concurrency=1)
    driver.request("huge")
    driver.request("b")
    actions = driver.on(Downloaded("i", "huge", 85))
    assert error_of(actions).original_status == 507
    assert actions[-1] == Download("i", "b")


def test_the_artifact_of_a_model_that_waits_for_its_turn_may_leave_the_disk():
    driver = Driver(load_concurrency=1, memory=30, disk=40)
    driver.serve("a")
    driver.serve("b")
    driver.request("c")
    driver.request("a")
    assert driver.on(Downloaded("i", "c", 20)) == (Discard("i", "a"), Unload("i", "b"))
    driver.on(Unloaded("i", "b"))
    assert driver.on(LoadFailed("i", "c", LoadFailure.BROKEN))[-1] == Download("i", "a")


def test_a_lost_instance_forgets_its_turns():
    driver = Driver("i", "j", load_concurrency=1)
    for model in ("a", "b", "c"):
        driver.request(model)
    assert driver.on(InstanceLost("i")) == (), "both wait for the one that j is downloading"
    driver.up("i")
    assert driver.request("d")[1] == (Download("i", "d"),)


def test_without_cache_the_limit_is_raised_by_the_factor():
    settings = FleetSettings(load_concurrency=3, uncached_load_factor=4)
    assert settings.loads_at_once == 3
    assert FleetSettings(load_concurrency=3, uncached_load_factor=4, cache_enabled=False).loads_at_once == 12
    assert FleetSettings(cache_enabled=False, uncached_load_factor=4).loads_at_once is None
    driver = Driver(load_concurrency=1, uncached_load_factor=2, cache_enabled=False)
    assert [len(driver.request(model)[1]) for model in ("a", "b", "c")] == [1, 1, 0]


# Workers and their queue.


def test_a_model_takes_the_overhead_of_every_worker():
    driver = Driver(workers_per_model=3)
    driver.serve("a")
    assert driver.instance().memory_bytes == 20 + 3 * OVERHEAD


def test_workers_that_share_nothing_take_the_artifact_each():
    assert FleetSettings(OVERHEAD, workers_per_model=3, workers_share_artifact=False).memory_bytes(20) == 3 * (20 + OVERHEAD)


def test_without_a_queue_everything_is_forwarded_to_the_server():
    driver = Driver()
    driver.serve("a")
    assert all(driver.request("a")[1] for _ in range(200))


def test_each_worker_gets_one_request_and_the_queue_keeps_its_order():
    driver = Driver(workers_per_model=2, model_queue_size=5)
    driver.serve("a")
    assert [driver.request("a")[1] for _ in range(4)] == [(Forward(2, "i", "a", cold=False),), (Forward(3, "i", "a", cold=False),), (), ()]
    assert driver.on(Replied(3, 200)) == (Reply(3), Forward(4, "i", "a", cold=False))
    assert driver.on(Replied(2, 200)) == (Reply(2), Forward(5, "i", "a", cold=False))
    assert driver.on(Replied(4, 200)) == (Reply(4),)
    snapshot = driver.fleet.snapshot()
    assert (snapshot.requests, snapshot.hits) == (5, 4)


def test_a_full_queue_answers_as_the_container_does():
    driver = Driver(model_queue_size=1)
    driver.serve("a")
    driver.request("a")
    driver.request("a")
    error = error_of(driver.request("a")[1])
    assert (error.code, error.status, error.original_status) == ("ModelError", 424, 503)
    assert driver.fleet.snapshot().hits == 2, "a refused request is no hit"


def test_the_queue_is_bounded_while_the_model_loads():
    driver = Driver(model_queue_size=1)
    driver.request("a")
    driver.request("a")
    assert error_of(driver.request("a")[1]).original_status == 503
    driver.on(Downloaded("i", "a", 20))
    assert driver.on(Loaded("i", "a")) == (Forward(1, "i", "a", cold=True),)
    assert driver.on(Replied(1, 200)) == (Reply(1), Forward(2, "i", "a", cold=True))


def test_models_have_queues_of_their_own():
    driver = Driver(model_queue_size=0)
    driver.serve("a")
    driver.serve("b")
    driver.request("a")
    assert driver.request("b")[1] == (Forward(4, "i", "b", cold=False),)


def test_a_request_that_waits_too_long_for_a_worker_times_out():
    driver = Driver(model_queue_size=1)
    driver.serve("a")
    driver.request("a")
    driver.request("a")
    assert driver.fleet.next_deadline() == pytest.approx(driver.now + WAIT_SECONDS)
    driver.now += WAIT_SECONDS
    error = error_of(driver.on(Tick()))
    assert (error.code, error.original_status) == ("ModelError", 0)
    assert driver.on(Replied(2, 200)) == (Reply(2),), "nobody waits any more"


def test_a_model_whose_queue_is_not_empty_is_not_evicted():
    driver = Driver(memory=30, model_queue_size=1)
    driver.serve("a")
    driver.request("a")
    driver.request("a")
    driver.request("b")
    driver.on(Downloaded("i", "b", 20))
    assert driver.on(Replied(2, 200)) == (Reply(2), Forward(3, "i", "a", cold=False))
    assert driver.on(Replied(3, 200)) == (Reply(3), Unload("i", "a"))


def test_requests_in_a_lost_instances_queue_go_elsewhere():
    driver = Driver("i", "j", model_queue_size=5)
    driver.serve("a")
    flying, _ = driver.request("a")
    queued, _ = driver.request("a")
    actions = driver.on(InstanceLost("i"))
    assert error_of(actions).status == 503
    assert [action.request for action in actions if isinstance(action, Reply)] == [flying]
    assert actions[-1] == Download("j", "a")
    driver.on(Downloaded("j", "a", 20))
    assert driver.on(Loaded("j", "a")) == (Forward(queued, "j", "a", cold=True),)


# ModelCacheSetting Disabled.


def test_without_cache_a_model_leaves_memory_and_disk_after_its_answer():
    driver = Driver(cache_enabled=False)
    driver.request("a")
    driver.on(Downloaded("i", "a", 20))
    driver.on(Loaded("i", "a"))
    assert driver.on(Replied(1, 200)) == (Reply(1), Unload("i", "a"))
    assert driver.on(Unloaded("i", "a")) == (Discard("i", "a"),)
    assert driver.request("a")[1] == (Download("i", "a"),)
    assert driver.fleet.snapshot().evictions == 0, "it did not leave to make room"


def test_without_cache_requests_that_overlap_share_the_model():
    driver = Driver(cache_enabled=False)
    driver.request("a")
    driver.on(Downloaded("i", "a", 20))
    driver.on(Loaded("i", "a"))
    assert driver.request("a")[1] == (Forward(2, "i", "a", cold=False),)
    assert driver.on(Replied(1, 200)) == (Reply(1),)
    assert driver.on(Replied(2, 500))[-1] == Unload("i", "a")


def test_without_cache_a_model_that_is_on_its_way_out_is_fetched_again_after_that():
    driver = Driver(cache_enabled=False)
    driver.request("a")
    driver.on(Downloaded("i", "a", 20))
    driver.on(Loaded("i", "a"))
    driver.on(Replied(1, 200))
    assert driver.request("a")[1] == ()
    assert driver.on(Unloaded("i", "a")) == (Discard("i", "a"), Download("i", "a"))


def test_without_cache_a_failed_load_leaves_nothing_on_disk():
    driver = Driver(cache_enabled=False, load_attempts=1)
    driver.request("a")
    driver.on(Downloaded("i", "a", 20))
    assert driver.on(LoadFailed("i", "a", LoadFailure.OUT_OF_MEMORY, 507))[0] == Discard("i", "a")
