"""The residency engine's rules, one by one."""

import pytest

from mme_fleet import (
    Discard,
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
    Recorder,
    Release,
    ReplayMismatchError,
    Replied,
    Reply,
    Request,
    Step,
    Tick,
    Unload,
    Unloaded,
    replay,
)
from tests.fleet.driver import Driver, error_of


def test_a_first_request_downloads_loads_and_is_forwarded_as_cold():
    driver = Driver()
    assert driver.request("m") == (1, (Download("i", "m"),))
    assert driver.on(Downloaded("i", "m", 20)) == (Load("i", "m"),)
    assert driver.on(Loaded("i", "m")) == (Forward(1, "i", "m", cold=True),)
    assert driver.on(Replied(1, 200)) == (Reply(1),)


def test_a_request_for_a_resident_model_is_a_hit():
    driver = Driver()
    driver.serve("m")
    assert driver.request("m") == (2, (Forward(2, "i", "m", cold=False),))
    snapshot = driver.fleet.snapshot()
    assert (snapshot.requests, snapshot.hits, snapshot.cold_loads) == (2, 1, 1)


def test_requests_for_one_model_share_its_load():
    driver = Driver()
    driver.request("m")
    assert driver.request("m") == (2, ())
    driver.on(Downloaded("i", "m", 20))
    assert driver.on(Loaded("i", "m")) == (Forward(1, "i", "m", cold=True), Forward(2, "i", "m", cold=True))


def test_the_least_recently_used_model_is_evicted():
    driver = Driver()
    for model in ("a", "b", "c", "a"):
        driver.serve(model)
    driver.request("d")
    assert driver.on(Downloaded("i", "d", 20)) == (Unload("i", "b"),)
    assert driver.resident() == ["c", "a"]


def test_memory_of_an_evicted_model_counts_until_it_is_unloaded():
    driver = Driver()
    for model in ("a", "b", "c"):
        driver.serve(model)
    number, _ = driver.request("d")
    driver.on(Downloaded("i", "d", 20))
    assert driver.fleet.snapshot().instances[0].memory_bytes == 90
    assert driver.on(Unloaded("i", "a")) == (Load("i", "d"),)
    assert driver.on(Loaded("i", "d")) == (Forward(number, "i", "d", cold=True),)


def test_a_model_that_answers_a_request_is_not_evicted():
    driver = Driver()
    for model in ("a", "b", "c"):
        driver.serve(model)
    driver.request("a")
    driver.request("b")
    driver.request("d")
    assert driver.on(Downloaded("i", "d", 20)) == (Unload("i", "c"),)


def test_a_load_waits_while_nothing_can_be_evicted():
    driver = Driver(memory=30)
    driver.serve("a")
    busy, _ = driver.request("a")
    driver.request("b")
    assert driver.on(Downloaded("i", "b", 20)) == ()
    assert driver.on(Replied(busy, 200)) == (Reply(busy), Unload("i", "a"))
    assert driver.on(Unloaded("i", "a")) == (Load("i", "b"),)


def test_loads_get_memory_in_the_order_in_which_they_asked():
    driver = Driver(memory=60)
    driver.serve("a")
    driver.request("a")
    driver.request("large")
    assert driver.on(Downloaded("i", "large", 45)) == ()
    driver.request("small")
    assert driver.on(Downloaded("i", "small", 5)) == (), "a small model must not starve a large one"


def test_a_model_larger_than_the_budget_is_refused_at_once():
    driver = Driver()
    driver.serve("a")
    driver.request("huge")
    actions = driver.on(Downloaded("i", "huge", 85))
    assert (error_of(actions).code, error_of(actions).status, error_of(actions).original_status) == ("ModelError", 424, 507)
    assert "95" in error_of(actions).message
    assert Discard("i", "huge") in actions
    assert driver.resident() == ["a"]


def test_an_evicted_model_is_loaded_from_disk_without_a_download():
    driver = Driver(memory=30)
    driver.serve("a")
    driver.serve("b")
    _, actions = driver.request("a")
    assert actions == (Unload("i", "b"),)
    assert driver.on(Unloaded("i", "b")) == (Load("i", "a"),)


def test_the_disk_discards_what_left_memory_first():
    driver = Driver(memory=30, disk=60)
    for model in ("a", "b", "c"):
        driver.serve(model)
    driver.request("d")
    assert driver.on(Downloaded("i", "d", 20)) == (Discard("i", "a"), Unload("i", "c"))
    assert driver.fleet.snapshot().instances[0].disk_bytes == 60


def test_an_artifact_that_is_being_loaded_again_stays_on_disk():
    driver = Driver(memory=60, disk=60)
    for model in ("a", "b", "c"):
        driver.serve(model)
    assert driver.resident() == ["b", "c"]
    driver.request("c")
    assert driver.request("a")[1] == (Unload("i", "b"),)
    assert driver.on(Unloaded("i", "b")) == (Load("i", "a"),)
    driver.request("d")
    assert driver.on(Downloaded("i", "d", 20))[0] == Discard("i", "b"), "it left memory after a, which memory needs again"


def test_an_artifact_that_waits_to_be_loaded_again_stays_on_disk():
    driver = Driver(memory=60, disk=60)
    driver.serve("a")
    driver.serve("b")
    driver.request("b")
    driver.request("c")
    assert driver.on(Downloaded("i", "c", 20)) == (Unload("i", "a"),)
    driver.request("a")
    assert driver.on(Unloaded("i", "a")) == (Load("i", "c"),)
    driver.request("d")
    actions = driver.on(Downloaded("i", "d", 20))
    assert error_of(actions).code == "ServiceUnavailable", "b and c are in memory, and a waits for memory"
    assert Discard("i", "a") not in actions


def test_a_download_fails_when_memory_needs_everything_on_the_disk():
    driver = Driver(disk=50)
    driver.serve("a")
    driver.serve("b")
    driver.request("c")
    actions = driver.on(Downloaded("i", "c", 20))
    assert error_of(actions).code == "ServiceUnavailable"
    assert Discard("i", "c") in actions
    assert driver.resident() == ["a", "b"]


def test_a_measured_size_replaces_the_accounted_one_and_evicts_what_no_longer_fits():
    driver = Driver()
    driver.serve("a")
    driver.serve("b")
    number, _ = driver.request("c")
    driver.on(Downloaded("i", "c", 20))
    assert driver.on(Loaded("i", "c", measured_bytes=40)) == (Forward(number, "i", "c", cold=True), Unload("i", "a"))


def test_a_load_out_of_memory_evicts_and_is_tried_again():
    driver = Driver()
    driver.serve("a")
    driver.serve("b")
    number, _ = driver.request("c")
    driver.on(Downloaded("i", "c", 20))
    assert driver.on(LoadFailed("i", "c", LoadFailure.OUT_OF_MEMORY, 507)) == (Unload("i", "a"),)
    assert driver.on(Unloaded("i", "a")) == (Load("i", "c"),)
    assert driver.on(Loaded("i", "c")) == (Forward(number, "i", "c", cold=True),)


def test_a_load_out_of_memory_waits_for_a_busy_model_to_become_idle():
    driver = Driver()
    driver.serve("a")
    busy, _ = driver.request("a")
    driver.request("c")
    driver.on(Downloaded("i", "c", 20))
    assert driver.on(LoadFailed("i", "c", LoadFailure.OUT_OF_MEMORY, 507)) == ()
    assert driver.on(Replied(busy, 200)) == (Reply(busy), Unload("i", "a"))


def test_loads_out_of_memory_end_after_the_allowed_attempts():
    driver = Driver(load_attempts=2)
    for model in ("a", "b"):
        driver.serve(model)
    driver.request("c")
    driver.on(Downloaded("i", "c", 20))
    driver.on(LoadFailed("i", "c", LoadFailure.OUT_OF_MEMORY, 507))
    driver.on(Unloaded("i", "a"))
    actions = driver.on(LoadFailed("i", "c", LoadFailure.OUT_OF_MEMORY, 507))
    assert (error_of(actions).code, error_of(actions).original_status) == ("ModelError", 507)
    assert driver.resident() == ["b"], "the last attempt must not cost another model"


def test_a_load_out_of_memory_fails_when_there_is_nothing_to_evict():
    driver = Driver()
    driver.request("c")
    driver.on(Downloaded("i", "c", 20))
    assert error_of(driver.on(LoadFailed("i", "c", LoadFailure.OUT_OF_MEMORY, 507))).original_status == 507


@pytest.mark.parametrize(
    ("kind", "status", "expected"),
    [
        (LoadFailure.MISSING, None, ("ValidationError", 400, None)),
        (LoadFailure.DENIED, None, ("ValidationError", 400, None)),
        (LoadFailure.BROKEN, 500, ("ModelError", 424, 500)),
        (LoadFailure.BROKEN, 404, ("ModelError", 424, 404)),
        (LoadFailure.UNAVAILABLE, None, ("ServiceUnavailable", 503, None)),
    ],
)
def test_a_failed_load_answers_everyone_who_waited_and_leaves_nothing_resident(kind, status, expected):
    driver = Driver()
    driver.request("m")
    driver.request("m")
    driver.on(Downloaded("i", "m", 20))
    actions = driver.on(LoadFailed("i", "m", kind, status, "why"))
    replies = [action for action in actions if isinstance(action, Reply)]
    assert [reply.request for reply in replies] == [1, 2]
    assert {(reply.error.code, reply.error.status, reply.error.original_status) for reply in replies} == {expected}
    assert "why" in replies[0].error.message
    snapshot = driver.fleet.snapshot().instances[0]
    assert (snapshot.models, snapshot.memory_bytes) == ((), 0)


def test_a_request_after_a_failed_load_tries_again_with_a_fresh_copy():
    driver = Driver()
    driver.request("m")
    driver.on(Downloaded("i", "m", 20))
    assert Discard("i", "m") in driver.on(LoadFailed("i", "m", LoadFailure.BROKEN, 500))
    assert driver.request("m")[1] == (Download("i", "m"),)


def test_a_failed_load_lets_the_next_one_in_the_queue_go():
    driver = Driver(memory=30)
    for model in ("a", "b"):
        driver.request(model)
        driver.on(Downloaded("i", model, 20))
    assert Load("i", "b") in driver.on(LoadFailed("i", "a", LoadFailure.BROKEN, 500))


def test_a_load_that_outlasts_the_wait_answers_not_ready_and_goes_on():
    driver = Driver()
    driver.request("m")
    deadline = driver.fleet.next_deadline()
    assert deadline == pytest.approx(5.002)
    assert driver.fleet.on(Tick(), deadline - 0.001) == ()
    actions = driver.fleet.on(Tick(), deadline)
    assert (error_of(actions).code, error_of(actions).status) == ("ModelNotReadyException", 429)
    assert driver.fleet.next_deadline() is None
    driver.now = deadline
    assert driver.on(Downloaded("i", "m", 20)) == (Load("i", "m"),)
    assert driver.on(Loaded("i", "m")) == ()
    assert driver.request("m") == (2, (Forward(2, "i", "m", cold=False),))


def test_a_forwarded_request_has_no_deadline():
    driver = Driver()
    driver.request("m")
    driver.on(Downloaded("i", "m", 20))
    driver.on(Loaded("i", "m"))
    assert driver.fleet.next_deadline() is None
    assert driver.fleet.on(Tick(), 100.0) == ()


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (500, ("ModelError", 424, 500)),
        (400, ("ModelError", 424, 400)),
        (503, ("ModelError", 424, 503)),
        (0, ("ModelError", 424, 0)),
        (None, ("ServiceUnavailable", 503, None)),
    ],
)
def test_what_the_container_answers_becomes_the_modelled_error(status, expected):
    driver = Driver()
    driver.serve("m")
    number, _ = driver.request("m")
    error = error_of(driver.on(Replied(number, status)))
    assert (error.code, error.status, error.original_status) == expected


def test_a_request_goes_to_the_holder_with_fewest_outstanding_requests():
    driver = Driver("i", "j")
    driver.serve("m")
    driver.on(InstanceLost("i"))
    driver.serve("m", "j")
    driver.up("i")
    driver.request("other")
    assert driver.request("m")[1][0].instance == "j"


def test_a_request_waits_where_its_model_is_being_loaded():
    driver = Driver("i", "j")
    assert driver.request("m")[1] == (Download("i", "m"),)
    assert driver.request("m")[1] == ()


def test_a_new_model_goes_to_the_instance_with_most_free_memory():
    driver = Driver("i", "j")
    driver.serve("a", "i")
    assert driver.request("b")[1] == (Download("j", "b"),)


def test_a_loss_fails_the_requests_in_flight_and_moves_those_that_wait():
    driver = Driver("i", "j")
    driver.serve("a", "i")
    flying, _ = driver.request("a")
    driver.serve("large", "j", size=40)
    waiting, actions = driver.request("b")
    assert actions == (Download("i", "b"),)
    actions = driver.on(InstanceLost("i"))
    assert error_of(actions).status == 503
    assert [action.request for action in actions if isinstance(action, Reply)] == [flying]
    assert Download("j", "b") in actions
    assert driver.resident("i") == []
    assert driver.on(Downloaded("i", "b", 20)) == (), "what a lost instance still says is ignored"
    assert driver.on(Replied(flying, 200)) == ()
    driver.on(Downloaded("j", "b", 20))
    assert driver.on(Loaded("j", "b")) == (Forward(waiting, "j", "b", cold=True),)


def test_a_moved_request_keeps_its_deadline():
    driver = Driver("i", "j")
    driver.request("m")
    deadline = driver.fleet.next_deadline()
    driver.now = 3.0
    driver.on(InstanceLost("i"))
    assert driver.fleet.next_deadline() == deadline


def test_without_instances_requests_get_service_unavailable():
    driver = Driver()
    driver.request("m")
    assert error_of(driver.on(InstanceLost("i"))).status == 503
    assert error_of(driver.request("m")[1]).code == "ServiceUnavailable"


@pytest.mark.parametrize(("disk_kept", "expected"), [(True, Load("i", "m")), (False, Download("i", "m"))])
def test_an_instance_comes_back_with_empty_memory(disk_kept, expected):
    driver = Driver()
    driver.serve("m")
    driver.on(InstanceLost("i"))
    driver.up("i", disk_kept=disk_kept)
    assert driver.resident() == []
    assert driver.request("m")[1] == (expected,)


def test_an_instance_comes_up_with_the_model_of_its_container_in_memory():
    driver = Driver("j")
    driver.on(InstanceUp("i", 90, 1000, resident=(("m", 30),)))
    assert driver.request("m") == (1, (Forward(1, "i", "m", cold=False),))
    snapshot = driver.fleet.snapshot()
    assert (snapshot.hits, snapshot.cold_loads, snapshot.instances[1].memory_bytes) == (1, 0, 30)
    driver.on(InstanceLost("i"))
    assert driver.resident("i") == []
    assert driver.request("m") == (2, (Download("j", "m"),)), "nothing of it is left after the loss"


def test_a_draining_instance_is_released_after_its_last_answer():
    driver = Driver("i", "j")
    driver.serve("a", "i")
    flying, _ = driver.request("a")
    driver.request("slow")
    assert driver.on(InstanceDraining("i")) == ()
    assert driver.request("a")[1] == (Download("j", "a"),)
    assert driver.on(Replied(flying, 200)) == (Reply(flying), Release("i"))
    assert [instance.instance for instance in driver.fleet.snapshot().instances] == ["j"]


def test_requests_that_wait_on_a_draining_instance_move():
    driver = Driver("i", "j")
    driver.request("m")
    assert driver.on(InstanceDraining("i")) == (Download("j", "m"), Release("i"))
    assert driver.on(Downloaded("i", "m", 20)) == ()


def test_a_draining_instance_that_is_lost_is_released():
    driver = Driver("i", "j")
    driver.serve("a", "i")
    driver.request("a")
    driver.on(InstanceDraining("i"))
    actions = driver.on(InstanceLost("i"))
    assert error_of(actions).status == 503
    assert actions[-1] == Release("i")


def test_a_model_that_is_being_unloaded_is_loaded_again_after_that():
    driver = Driver(memory=30)
    driver.serve("a")
    driver.request("b")
    assert driver.on(Downloaded("i", "b", 20)) == (Unload("i", "a"),)
    driver.request("a")
    assert driver.on(Unloaded("i", "a")) == (Load("i", "b"),)


def test_request_ids_are_used_once():
    driver = Driver()
    driver.on(Request(7, "m"))
    with pytest.raises(ValueError, match="7"):
        driver.on(Request(7, "m"))


def test_an_instance_that_is_up_cannot_come_up():
    driver = Driver()
    with pytest.raises(ValueError, match="up"):
        driver.up("i")


def test_the_snapshot_counts_by_instance_and_by_model():
    driver = Driver(memory=30)
    assert [driver.serve(model) for model in ("a", "b", "a", "a")] == [0, 1, 1, 0]
    snapshot = driver.fleet.snapshot()
    (instance,) = snapshot.instances
    assert snapshot.loads_by_model == {"a": 2, "b": 1}
    assert (snapshot.requests, snapshot.hits, snapshot.cold_loads, snapshot.evictions) == (4, 1, 3, 2)
    assert (instance.requests, instance.loads, instance.evictions) == (4, 3, 2)
    assert set(instance.on_disk) == {"a", "b"}


def test_replay_names_the_first_step_that_differs():
    recorder = Recorder(Fleet())
    recorder.on(InstanceUp("i", 100, 100), 0.0)
    recorder.on(Request(1, "m"), 1.0)
    assert replay(recorder.steps, Fleet()) == 2
    first, second = recorder.steps
    with pytest.raises(ReplayMismatchError, match="step 2"):
        replay((first, Step(second.now, second.event, ())), Fleet())


@pytest.mark.parametrize(
    "wrong",
    [
        {"model_overhead_bytes": -1},
        {"load_wait_seconds": -1},
        {"model_queue_size": -1},
        {"load_attempts": 0},
        {"load_concurrency": 0},
        {"uncached_load_factor": 0},
        {"workers_per_model": 0},
    ],
)
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        FleetSettings(**wrong)
