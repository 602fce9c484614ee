"""Type-checked only: a user drives the residency engine and writes a router."""

from __future__ import annotations

import random

from mme_fleet import (
    Action,
    Discard,
    Download,
    Downloaded,
    Event,
    Fleet,
    FleetSettings,
    FleetSnapshot,
    FleetView,
    Forward,
    HashRing,
    InstanceDraining,
    InstanceLost,
    InstanceSnapshot,
    InstanceUp,
    InstanceView,
    LeastOutstandingRouter,
    Load,
    Loaded,
    LoadFailed,
    LoadFailure,
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
    Router,
    Step,
    StickyRouter,
    Tick,
    Unload,
    Unloaded,
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
