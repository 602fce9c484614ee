"""The simulator: times, errors, fleet changes, policies, and that observers change nothing."""

import math
import random
from array import array

import pytest

from mme_fleet import (
    Costs,
    Download,
    Fleet,
    FleetSettings,
    InstanceDraining,
    InstanceSpec,
    LeastOutstandingRouter,
    LoadCosts,
    LoadFailure,
    LoseInstance,
    LoseZone,
    OneHomeRouter,
    RandomRouter,
    Release,
    Request,
    ScaleIn,
    ScaleOut,
    SimulationResults,
    Simulator,
    Step,
    StickyRouter,
    UpdateFleet,
    replay,
)

MANY = 10**9
INSTANCE = InstanceSpec(100, MANY)


def constant(value):
    return lambda _model: value


COSTS = Costs(
    unpacked_bytes=constant(20),
    download_seconds=constant(2.0),
    load_seconds=constant(1.0),
    unload_seconds=constant(0.5),
    service_seconds=constant(0.25),
)


def simulator(count: int = 1, costs: Costs = COSTS, **arguments) -> Simulator:
    return Simulator(costs, [INSTANCE] * count, **arguments)


def with_costs(**changes) -> Costs:
    given = {name: getattr(COSTS, name) for name in COSTS.__dataclass_fields__}
    return Costs(**{**given, **changes})


def models_of(sim: Simulator) -> dict[str, set[str]]:
    return {entry.instance: {model.model for model in entry.models if model.state == "loaded"} for entry in sim.snapshot().instances}


# Times.


def test_a_cold_request_takes_download_load_and_answer_and_a_hit_only_the_answer():
    results = simulator().run([(0.0, "m"), (10.0, "m")])
    assert results.latencies == array("d", [3.25, 0.25])
    assert (results.requests, results.hits, results.downloads, results.loads, results.unloads) == (2, 1, 1, 1, 0)
    assert results.waits == array("d", [3.0])
    assert results.cold_at == array("d", [0.0])
    assert results.ended_at == 10.25


def test_a_reload_from_disk_needs_no_download():
    sim = Simulator(COSTS, [InstanceSpec(20, MANY)])
    sim.run([(0.0, "a"), (10.0, "b")])
    results = sim.run([(20.0, "a")])
    assert (results.downloads, results.loads, results.unloads) == (0, 1, 1)
    assert results.latencies == array("d", [0.5 + 1.0 + 0.25])


def test_a_run_begins_where_the_last_one_ended():
    sim = simulator()
    sim.run([(0.0, "m")], until=100.0)
    assert sim.now == 100.0
    results = sim.run([(100.0, "m")])
    assert (results.requests, results.hits, results.latencies) == (1, 1, array("d", [0.25]))
    with pytest.raises(ValueError, match="comes at 5"):
        sim.run([(5.0, "m")])


@pytest.mark.parametrize("at", [0.5, math.inf, math.nan])
def test_requests_must_ascend_in_time(at):
    with pytest.raises(ValueError, match="ascend"):
        simulator().run([(1.0, "m"), (at, "m")])


@pytest.mark.parametrize("queue", [None, 10])
def test_one_worker_answers_one_request_at_a_time(queue):
    sim = simulator(settings=FleetSettings(model_queue_size=queue))
    sim.run([(0.0, "m")])
    results = sim.run([(10.0, "m")] * 3)
    assert results.latencies == array("d", [0.25, 0.5, 0.75])
    assert results.hits == 3


@pytest.mark.parametrize("queue", [None, 10])
def test_two_workers_answer_two(queue):
    sim = simulator(settings=FleetSettings(workers_per_model=2, model_queue_size=queue))
    sim.run([(0.0, "m")])
    assert sim.run([(10.0, "m")] * 4).latencies == array("d", [0.25, 0.25, 0.5, 0.5])


def test_models_do_not_wait_for_each_other():
    sim = simulator()
    sim.run([(0.0, "a"), (0.0, "b")])
    assert sim.run([(10.0, "a"), (10.0, "b")]).latencies == array("d", [0.25, 0.25])


def test_the_number_of_loads_at_once_delays_the_others():
    results = simulator(settings=FleetSettings(load_concurrency=1)).run([(0.0, "a"), (0.0, "b")])
    assert results.waits == array("d", [3.0, 6.0])


def test_without_cache_every_request_loads():
    results = simulator(settings=FleetSettings(cache_enabled=False)).run([(0.0, "m"), (10.0, "m"), (20.0, "m")])
    assert (results.hits, results.downloads, results.loads, results.unloads) == (0, 3, 3, 3)


def test_load_costs_grow_with_the_artifact():
    loads = LoadCosts(
        unpacked_bytes=constant(1000),
        download_bytes_per_second=100,
        load_bytes_per_second=500,
        download_latency_seconds=0.5,
        archive_ratio=0.5,
        load_constant_seconds=0.25,
    )
    assert (loads.download_seconds("m"), loads.load_seconds("m")) == (5.5, 2.25)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("download_bytes_per_second", 0),
        ("load_bytes_per_second", -1),
        ("archive_ratio", 0),
        ("download_latency_seconds", -1),
        ("load_constant_seconds", -1),
    ],
)
def test_load_costs_out_of_range_are_refused(name, value):
    with pytest.raises(ValueError, match=name):
        LoadCosts(**{"unpacked_bytes": constant(1), "download_bytes_per_second": 1, "load_bytes_per_second": 1, name: value})


# Errors.


def test_an_answer_that_takes_too_long_is_an_error_and_its_worker_stays_busy():
    sim = simulator(costs=with_costs(service_seconds=constant(4.0), invoke_timeout_seconds=3.0))
    results = sim.run([(0.0, "m"), (10.0, "m"), (13.5, "m")])
    assert results.errors == {("ModelError", 0): 3}
    assert results.ended_at == 16.5
    with pytest.raises(ValueError, match="invoke_timeout_seconds"):
        with_costs(invoke_timeout_seconds=0)


def test_a_model_that_is_loaded_again_has_new_workers():
    seconds = iter([100.0, 0.25, 0.25])
    sim = Simulator(with_costs(service_seconds=lambda _model: next(seconds), invoke_timeout_seconds=3.0), [InstanceSpec(20, MANY)])
    results = sim.run([(0.0, "a"), (10.0, "b"), (20.0, "a")])
    assert results.errors == {("ModelError", 0): 1}
    assert results.latencies[-1] == 0.5 + 1.0 + 0.25


def test_a_load_that_outlasts_the_wait_is_not_ready_and_goes_on():
    sim = simulator(settings=FleetSettings(load_wait_seconds=2.5))
    results = sim.run([(0.0, "m"), (5.0, "m")])
    assert results.errors == {("ModelNotReadyException", None): 1}
    assert (results.hits, results.answered, results.failed) == (1, 2, 1)


def test_a_full_queue_refuses():
    sim = simulator(settings=FleetSettings(model_queue_size=1))
    sim.run([(0.0, "m")])
    results = sim.run([(10.0, "m")] * 5)
    assert results.errors == {("ModelError", 503): 3}
    assert results.hits == 2


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (LoadFailure.MISSING, ("ValidationError", None)),
        (LoadFailure.DENIED, ("ValidationError", None)),
        (LoadFailure.UNAVAILABLE, ("ServiceUnavailable", None)),
        (LoadFailure.BROKEN, ("ModelError", 500)),
        (LoadFailure.OUT_OF_MEMORY, ("ModelError", 507)),
    ],
)
def test_models_that_cannot_be_had_fail_as_the_costs_say(failure, expected):
    results = simulator(costs=with_costs(failures={"bad": failure})).run([(0.0, "bad"), (0.0, "good")])
    assert results.errors == {expected: 1}
    assert len(results.latencies) == 1


def test_a_measured_size_counts():
    sim = simulator(costs=with_costs(measured_bytes=constant(70)))
    assert sim.run([(0.0, "a"), (10.0, "b")]).unloads == 1


# Fleet changes.


def test_a_new_instance_is_empty_and_takes_new_models():
    sim = simulator()
    sim.run([(0.0, "a"), (5.0, "a"), (10.0, "b")], [(7.0, ScaleOut([INSTANCE]))])
    assert models_of(sim) == {"instance-1": {"a"}, "instance-2": {"b"}}


def test_the_newest_instances_are_drained():
    steps: list[Step] = []
    sim = simulator(3, observers=[lambda _fleet, step: steps.append(step)])
    results = sim.run([(0.0, "a"), (0.0, "b"), (0.0, "c"), (3.1, "c")], [(3.2, ScaleIn(2))])
    assert models_of(sim) == {"instance-1": {"a"}}
    assert len(results.latencies) == 4, "what they were answering is answered"
    released = [action for step in steps for action in step.actions if isinstance(action, Release)]
    assert released == [Release("instance-2"), Release("instance-3")]


def test_more_instances_than_there_are_cannot_go():
    with pytest.raises(ValueError, match="3 instances are to go, but 2"):
        simulator(2).change(ScaleIn(3))
    with pytest.raises(ValueError, match="count is 0"):
        ScaleIn(0)


def test_instances_come_up_with_what_they_are_told_and_lose_it_with_their_memory():
    specs = [InstanceSpec(45, MANY, resident=("a", "b"))]
    sim = Simulator(COSTS, specs, router=OneHomeRouter)
    assert models_of(sim) == {"instance-1": {"a", "b"}}
    results = sim.run([(0.0, "b"), (1.0, "c")])
    assert (results.hits, results.loads) == (1, 1)
    assert models_of(sim) == {"instance-1": {"b", "c"}}, "the first of them is the least recently used"
    sim.change(LoseInstance("instance-1", 5.0))
    assert sim.run([], until=sim.now + 10.0).requests == 0
    assert models_of(sim) == {"instance-1": set()}
    sim = Simulator(COSTS, specs)
    sim.change(UpdateFleet())
    assert models_of(sim) == {"instance-2": set()}, "a new fleet is empty"
    sim.change(UpdateFleet([InstanceSpec(100, MANY, resident=("a",))]))
    assert models_of(sim) == {"instance-3": {"a"}}


def test_a_model_that_an_instance_comes_up_with_takes_the_memory_that_a_load_of_it_would():
    settings = FleetSettings(model_overhead_bytes=3)
    specs = [InstanceSpec(100, MANY, resident=("a",))]
    assert Simulator(COSTS, specs, settings=settings).snapshot().instances[0].memory_bytes == 23
    measured = with_costs(measured_bytes=constant(31))
    assert Simulator(measured, specs, settings=settings).snapshot().instances[0].memory_bytes == 31


@pytest.mark.parametrize("observers", [(), (lambda _fleet, _step: None,)], ids=["unobserved", "observed"])
def test_requests_that_are_refused_without_being_forwarded_are_known_by_when_they_came(observers):
    costs = with_costs(failures={"gone": LoadFailure.MISSING}, service_seconds=constant(9.0), invoke_timeout_seconds=3.0)
    sim = simulator(costs=costs, observers=observers, settings=FleetSettings(load_wait_seconds=2.5))
    results = sim.run([(1.0, "gone"), (1.5, "gone"), (2.0, "slow"), (2.25, "slow")])
    assert sorted(results.refused_at) == [1.0, 1.5, 2.0, 2.25], "those that waited too long for a load are refused, too"
    late = sim.run([(10.0, "slow")])
    assert (late.failed, late.hits) == (1, 1)
    assert not late.refused_at, "it was forwarded, and its answer came too late"


def test_what_has_happened_so_far_is_known_during_a_run():
    sim = simulator()
    seen: list[list[float]] = []
    sim.at(4.0, lambda: seen.append(list(sim.results.cold_at)))
    results = sim.run([(0.5, "a"), (3.9, "b"), (5.0, "c")])
    assert seen == [[0.5]]
    assert sim.results is results


def test_the_loss_of_an_instance_fails_its_hits_and_moves_its_waiting_requests():
    sim = simulator(2)
    results = sim.run([(0.0, "a"), (10.0, "a"), (10.0, "c")], [(10.1, LoseInstance("instance-1"))])
    assert results.errors == {("ServiceUnavailable", None): 1}
    assert results.latencies[-1] == 3.25
    assert [entry.instance for entry in sim.snapshot().instances] == ["instance-2"], "it does not return"


@pytest.mark.parametrize(("kept", "downloads"), [(True, 1), (False, 2)])
def test_a_lost_instance_returns_with_empty_memory(kept, downloads):
    sim = simulator()
    results = sim.run([(0.0, "a"), (20.0, "a")], [(10.0, LoseInstance("instance-1", 5.0, disk_kept=kept))])
    assert (results.hits, results.loads, results.downloads) == (0, 2, downloads)


def test_work_of_an_earlier_life_is_not_reported():
    sim = simulator()
    results = sim.run([(0.0, "a"), (1.9, "a")], [(1.0, LoseInstance("instance-1", 0.5))])
    assert results.errors == {("ServiceUnavailable", None): 1}
    assert results.latencies[0] == pytest.approx(3.25)


def test_only_an_instance_in_service_can_be_lost():
    with pytest.raises(ValueError, match="instance-2"):
        simulator().change(LoseInstance("instance-2"))


def test_a_zone_goes_and_returns_as_a_whole():
    specs = [InstanceSpec(100, MANY, zone) for zone in ("a", "b", "a")]
    sim = Simulator(COSTS, specs)
    sim.run([(0.0, "x"), (0.0, "y"), (0.0, "z")])
    results = sim.run([(10.0, "x"), (15.0, "x"), (30.0, "z")], [(10.1, LoseZone("a", 10.0))])
    assert results.errors == {("ServiceUnavailable", None): 1}
    assert [entry.state for entry in sim.snapshot().instances] == ["up", "up", "up"]
    assert models_of(sim)["instance-2"] == {"x", "y"}


def test_a_zone_that_does_not_return_is_forgotten():
    sim = Simulator(COSTS, [InstanceSpec(100, MANY, zone) for zone in ("a", "b")])
    sim.run([(0.0, "x")], [(10.0, LoseZone("a"))], until=20.0)
    assert [entry.instance for entry in sim.snapshot().instances] == ["instance-2"]


def test_an_update_puts_an_empty_fleet_in_place_and_the_old_one_answers_what_it_has():
    steps: list[tuple[str, Step]] = []
    sim = simulator(2, observers=[lambda fleet, step: steps.append((fleet, step))])
    results = sim.run([(0.0, "a"), (9.9, "a"), (9.9, "late"), (20.0, "a")], [(10.0, UpdateFleet())], until=500.0)
    assert results.failed == 0
    assert results.hits == 1
    assert sim.fleet_name == "fleet-2"
    assert models_of(sim) == {"instance-3": {"a"}, "instance-4": set()}
    ended = [action.instance for fleet, step in steps for action in step.actions if isinstance(action, Release) and fleet == "fleet-1"]
    assert ended == ["instance-1", "instance-2"]


def test_an_update_may_change_everything():
    sim = simulator(2)
    update = UpdateFleet([INSTANCE], FleetSettings(cache_enabled=False), LeastOutstandingRouter)
    results = sim.run([(10.0, "a"), (20.0, "a")], [(1.0, update)])
    assert (results.hits, len(sim.snapshot().instances)) == (0, 1)


def test_a_lost_instance_of_a_replaced_fleet_does_not_return_after_its_end():
    sim = simulator()
    sim.run([(300.0, "a")], [(1.0, LoseInstance("instance-1", 200.0)), (2.0, UpdateFleet([INSTANCE]))], until=400.0)
    assert [entry.instance for entry in sim.snapshot().instances] == ["instance-2"]


# Policies and observers.


class Keeper:
    """Asks for a model every ten seconds, twenty times, and has a zone fail."""

    def __init__(self) -> None:
        self.answers = []
        self.left = 20

    def begin(self, simulator: Simulator) -> None:
        self.simulator = simulator
        simulator.every(10.0, self.tick)
        simulator.at(55.0, lambda: simulator.change(LoseZone("", 1.0)))

    def tick(self) -> None:
        if self.left:
            self.left -= 1
            self.simulator.ask("kept", self.answers.append)
            self.simulator.ask("nobody listens")


def test_a_policy_asks_for_models_and_its_requests_are_counted_apart():
    keeper = Keeper()
    sim = simulator(policies=[keeper])
    results = sim.run([(25.0, "kept"), (64.0, "kept")], until=300.0)
    assert (results.requests, results.hits, results.asked) == (2, 2, 40)
    assert len(keeper.answers) == 20
    assert [(answer.seconds, answer.cold) for answer in keeper.answers[:2]] == [(3.25, True), (0.25, False)]
    assert keeper.answers[5].cold, "the zone had failed"
    assert {answer.instance for answer in keeper.answers} == {"instance-1"}
    assert len(results.latencies) == 2


def test_a_policy_hears_of_failures():
    answers = []
    sim = simulator(costs=with_costs(failures={"bad": LoadFailure.MISSING}))
    sim.at(1.0, lambda: sim.ask("bad", answers.append))
    results = sim.run([(5.0, "m")])
    assert (answers[0].model, answers[0].instance, answers[0].error.code) == ("bad", None, "ValidationError")
    assert results.failed == 0


def test_times_that_are_over_or_not_positive_are_refused():
    sim = simulator(start=10.0)
    with pytest.raises(ValueError, match="is over"):
        sim.at(9.0, print)
    with pytest.raises(ValueError, match="positive"):
        sim.every(0, print)
    with pytest.raises(ValueError, match="is over"):
        sim.run([], [(1.0, ScaleIn(1))])
    with pytest.raises(ValueError, match="until is inf"):
        sim.run([], until=math.inf)


def test_an_observer_sees_everything_or_nothing():
    sim = simulator()
    steps: list[Step] = []
    sim.at(1.0, lambda: sim.observe(lambda _fleet, step: steps.append(step)))
    with pytest.raises(RuntimeError, match="under way"):
        sim.run([(2.0, "m")])


def test_a_quantile_of_nothing_is_refused():
    results = SimulationResults()
    assert results.hit_ratio == 1.0
    with pytest.raises(ValueError, match="no values"):
        results.latency(0.5)
    results.latencies.extend([3.0, 1.0, 2.0, 4.0])
    assert [results.latency(share) for share in (0.01, 0.25, 0.5, 0.75, 1)] == [1.0, 1.0, 2.0, 3.0, 4.0]
    with pytest.raises(ValueError, match="more than 0"):
        results.latency(0)
    with pytest.raises(ValueError, match="no values"):
        results.wait(0.5)


# The same with and without observers, and again.


SETTINGS = [
    FleetSettings(model_overhead_bytes=5, load_wait_seconds=6.0, load_concurrency=2, load_attempts=2),
    FleetSettings(load_wait_seconds=4.0, workers_per_model=2, model_queue_size=2, model_overhead_bytes=2),
    FleetSettings(cache_enabled=False, load_concurrency=1, uncached_load_factor=3, workers_per_model=2),
]
ROUTERS = {
    "sticky": lambda: StickyRouter(spill_outstanding=2),
    "least outstanding": LeastOutstandingRouter,
    "one home": OneHomeRouter,
    "random": lambda: RandomRouter(random.Random(7)),
}


def scenario(seed: int, settings: FleetSettings, router, observers=()) -> SimulationResults:
    """A small fleet, always short of something, to which everything happens."""
    rng = random.Random(seed)
    models = [f"m{number}" for number in range(14)]
    sizes = {model: rng.randint(5, 40) for model in models}
    timing = random.Random(seed)
    costs = Costs(
        unpacked_bytes=sizes.__getitem__,
        download_seconds=lambda _model: timing.choice([0.0, 0.5, 2.0, 8.0]),
        load_seconds=lambda model: sizes[model] / 20,
        unload_seconds=lambda _model: timing.random(),
        service_seconds=lambda _model: timing.choice([0.01, 0.3, 1.0, 5.0]),
        measured_bytes=(lambda model: sizes[model] + 5) if seed % 2 else None,
        failures={"m12": LoadFailure.OUT_OF_MEMORY, "m13": LoadFailure.MISSING},
        invoke_timeout_seconds=4.5,
    )
    specs = [InstanceSpec(100, 160, zone) for zone in ("a", "b", "c")]
    at, requests = 0.0, []
    for _ in range(1500):
        at += rng.expovariate(12)
        requests.append((at, rng.choices(models, range(14, 0, -1))[0]))
    changes = [
        (10.0, LoseZone("b", 3.0)),
        (20.0, ScaleOut(specs)),
        (35.0, LoseInstance("instance-1", 0.2, disk_kept=True)),
        (50.0, ScaleIn(3)),
        (70.0, UpdateFleet()),
        (80.0, LoseZone("a")),
    ]
    return Simulator(costs, specs, settings=settings, router=router, observers=observers).run(requests, changes, until=400.0)


@pytest.mark.parametrize("router", ROUTERS.values(), ids=ROUTERS)
@pytest.mark.parametrize("settings", SETTINGS, ids=["limits", "queues", "no cache"])
@pytest.mark.parametrize("seed", [1, 2])
def test_observers_change_nothing_and_what_they_see_can_be_replayed(seed, settings, router):
    steps: dict[str, list[Step]] = {}
    seen = scenario(seed, settings, router, [lambda fleet, step: steps.setdefault(fleet, []).append(step)])
    assert seen == scenario(seed, settings, router)
    assert seen.answered == seen.requests == 1500
    assert sum(isinstance(step.event, Request) for recorded in steps.values() for step in recorded) == 1500
    for recorded in steps.values():
        assert replay(recorded, Fleet(settings, router())) == len(recorded)
    assert any(isinstance(step.event, InstanceDraining) for step in steps["fleet-1"])
    assert any(isinstance(action, Download) for step in steps["fleet-2"] for action in step.actions)
