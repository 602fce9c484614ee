"""Type-checked only: a user drives the residency engine, writes a router, and simulates with a policy and an observer."""

from __future__ import annotations

import random

from mme_fleet import (
    Action,
    Costs,
    Discard,
    Download,
    Downloaded,
    Event,
    Fleet,
    FleetChange,
    FleetSettings,
    FleetSnapshot,
    FleetView,
    Forward,
    HashRing,
    InstanceDraining,
    InstanceLost,
    InstanceSnapshot,
    InstanceSpec,
    InstanceUp,
    InstanceView,
    LeastOutstandingRouter,
    Load,
    LoadCosts,
    Loaded,
    LoadFailed,
    LoadFailure,
    LoseInstance,
    LoseZone,
    ModelSnapshot,
    OneHomeRouter,
    RandomRouter,
    Recorder,
    Release,
    ReplayMismatchError,
    Replied,
    Reply,
    ReplyError,
    Request,
    RequestAnswer,
    Router,
    ScaleIn,
    ScaleOut,
    SimulationPolicy,
    SimulationResults,
    Simulator,
    Step,
    StepObserver,
    StickyRouter,
    Tick,
    Unload,
    Unloaded,
    UpdateFleet,
    ZoneLost,
    replay,
)


class FirstInstance:
    """A user's router."""

    def route(self, model: str, fleet: FleetView) -> InstanceView:
        holders = [instance.id for instance in fleet.holders(model)]
        return next(instance for instance in fleet.instances if not holders or instance.id in holders)


def event_for(action: Action) -> Event | None:
    if isinstance(action, Download):
        return Downloaded(action.instance, action.model, 10)
    if isinstance(action, Load):
        return Loaded(action.instance, action.model)
    if isinstance(action, Unload):
        return Unloaded(action.instance, action.model)
    if isinstance(action, Forward):
        return Replied(action.request, 200)
    if isinstance(action, Reply):
        error: ReplyError | None = action.error
        assert error is None
    assert isinstance(action, Discard | Release | Reply)
    return None


def drive(router: Router) -> FleetSnapshot:
    settings = FleetSettings(model_overhead_bytes=1, load_wait_seconds=30, load_concurrency=2, workers_per_model=2, model_queue_size=100)
    fleet = Fleet(settings, router)
    assert settings.memory_bytes(10) == 12
    recorder = Recorder(fleet)
    actions: tuple[Action, ...] = recorder.on(InstanceUp("i-1", 100, 100), 0.0)
    for event in (
        Request(1, "acme/iris"),
        LoadFailed("i-1", "acme/iris", LoadFailure.MISSING),
        Tick(),
        InstanceDraining("i-1"),
        InstanceLost("i-1"),
        ZoneLost("us-east-1a"),
    ):
        actions += recorder.on(event, 1.0)
    steps: list[Step] = list(recorder.steps)
    try:
        replay(steps, Fleet(FleetSettings(), StickyRouter()))
    except ReplayMismatchError as error:
        raise SystemExit(str(error)) from error
    snapshot = fleet.snapshot()
    instance: InstanceSnapshot = snapshot.instances[0]
    models: tuple[ModelSnapshot, ...] = instance.models
    assert len(models) <= len(actions)
    return snapshot


ROUTERS: list[Router] = [
    FirstInstance(),
    StickyRouter(spill_outstanding=5),
    LeastOutstandingRouter(),
    OneHomeRouter(),
    RandomRouter(random.Random(1)),
]
HOME: str = HashRing(["i-1", "i-2"]).home("acme/iris")
RESULTS: list[FleetSnapshot] = [drive(router) for router in ROUTERS]


class WarmUp:
    """A user's policy: asks for a model again until it is warm."""

    def begin(self, simulator: Simulator) -> None:
        self.simulator = simulator
        simulator.every(60.0, lambda: simulator.ask("acme/iris", self.answered))
        simulator.at(1.0, lambda: simulator.change(ScaleIn()))
        simulator.observe(self.observe)

    def answered(self, answer: RequestAnswer) -> None:
        if answer.error is not None or answer.cold:
            self.simulator.ask(answer.model)

    def observe(self, fleet: str, step: Step) -> None:
        assert fleet == self.simulator.fleet_name
        assert step.now == self.simulator.now


def observe(fleet: str, step: Step) -> None:
    assert fleet
    assert step.actions is not None


def simulate(policy: SimulationPolicy, observer: StepObserver) -> SimulationResults:
    sizes = {"acme/iris": 10}
    loads = LoadCosts(unpacked_bytes=sizes.__getitem__, download_bytes_per_second=1e8, load_bytes_per_second=5e8)
    costs = Costs(
        unpacked_bytes=sizes.__getitem__,
        download_seconds=loads.download_seconds,
        load_seconds=loads.load_seconds,
        failures={"acme/broken": LoadFailure.BROKEN},
    )
    instance = InstanceSpec(100, 1000, "us-east-1a", resident=["acme/iris"])
    simulator = Simulator(costs, [instance], router=OneHomeRouter, policies=[policy], observers=[observer])
    changes: list[tuple[float, FleetChange]] = [
        (1.0, ScaleOut([instance])),
        (2.0, LoseInstance("instance-1", 60.0)),
        (3.0, LoseZone("us-east-1a")),
        (4.0, UpdateFleet([instance])),
    ]
    results = simulator.run([(0.0, "acme/iris")], changes, until=60.0)
    assert simulator.results is results
    assert not results.refused_at
    assert results.latency(0.99) >= results.wait(0.5) * results.hit_ratio
    return results


SIMULATED: SimulationResults = simulate(WarmUp(), observe)
