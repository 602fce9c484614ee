"""The runs of a cell: without and with a warm-up, what could be at best, and how not to do it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from benchmarks.warm_up import knowledge
from benchmarks.warm_up.before import Before, misses_per_minute, perfect_copy
from benchmarks.warm_up.cells import ROUTERS, Change, Fleet
from benchmarks.warm_up.workload import Workload
from mme_cli.simulation.warm_up import WarmUpPolicy
from mme_fleet import FleetChange as SimulatedChange
from mme_fleet import FleetSettings, HashRing, InstanceSpec, LoseInstance, ScaleOut, SimulationPolicy, Simulator, UpdateFleet
from mme_tenancy.warm_up.plan import Step, WarmUpPlan, plan
from mme_tenancy.warm_up.run import FleetReading
from mme_tenancy.warm_up.settings import WarmUpSettings

__all__ = ["BAD", "START_SECONDS", "VARIANTS", "Outcome", "Scene", "Variant", "run"]

START_SECONDS = 5.0
"""From the change to the first call: what the trigger may take at most."""
_LATE_SECONDS = 60.0
_DISK_BYTES = 10**15
_METRIC_DELAY_SECONDS = 60.0
_HEAT_BACK_SECONDS, _BYTES_BACK_SECONDS = 60.0, 120.0
_TRAFFIC_WINDOW_SECONDS = 10.0
_ANY = 1_000_000
_COPIED_MODELS = 100
_BURST, _BETWEEN_BURSTS_SECONDS = 12, 0.2
_MINUTE = 60.0
_WATCHED_SECONDS = 300.0
_RATE_SECONDS = 3600.0


@dataclass(frozen=True, eq=False)
class Scene:
    """A cell at one start."""

    load: Workload
    fleet: Fleet
    change: Change
    start: float
    before: Before


@dataclass(slots=True)
class Outcome:
    """What came of one run.

    Attributes:
        misses: requests that waited for a load or were refused, in each minute after the change.
        requests: all that came.
        failed: requests that got an error.
        calls: of the warm-up, in each ten seconds.
        seconds: from the change to the end of the warm-up.
        least_seconds: its bound, see `WarmUpPlan.least_seconds`, by what it really loaded.
        ended: why it ended.
        loaded: models that it loaded.
        bytes_back: share of the bytes that were resident before the change and are again, two minutes after it.
        heat_back: share of the requests to such models that go to those that are, one minute after it.
    """

    misses: list[int]
    requests: list[int]
    failed: int = 0
    calls: list[int] = field(default_factory=list)
    seconds: float = 0.0
    least_seconds: float = 0.0
    ended: str = ""
    loaded: int = 0
    bytes_back: float = math.nan
    heat_back: float = math.nan


@dataclass(frozen=True, slots=True)
class Variant:
    """A kind of run.

    Attributes:
        minutes: how long it is watched.
        engine: whether it depends on the warm-up's code.
        starts_after: the first call, seconds after the change; ``None``: no warm-up.
        draw: which draw of the traffic comes after the change.
        settings: of the warm-up.
        perfect: nothing is lost by the change.
        unlimited: instances do any number of loads at once, and the warm-up any number of calls.
        clairvoyant: the plan knows what will be asked for.
        copies: in place of a plan, the hottest models in bursts, so that each comes to every instance.
    """

    minutes: int
    engine: bool = True
    starts_after: float | None = START_SECONDS
    draw: int = 0
    settings: WarmUpSettings = field(default_factory=WarmUpSettings)
    perfect: bool = False
    unlimited: bool = False
    clairvoyant: bool = False
    copies: bool = False


VARIANTS: Mapping[str, Variant] = {
    "none": Variant(60, engine=False, starts_after=None),
    "reference": Variant(6, engine=False, starts_after=None, perfect=True),
    "noise": Variant(60, engine=False, starts_after=None, draw=1),
    "warm-up": Variant(60),
    "floor": Variant(6, starts_after=0.0, unlimited=True),
    "clairvoyant": Variant(6, clairvoyant=True),
    "copies": Variant(16, copies=True),
    "late": Variant(6, starts_after=_LATE_SECONDS),
    "unbounded": Variant(6, settings=WarmUpSettings(least_calls_per_second=float(_ANY), in_flight_share=1.0)),
}
BAD = ("copies", "late", "unbounded")


def run(scene: Scene, variant: Variant) -> Outcome:
    """One run of a cell, from the change on."""
    load, fleet, start = scene.load, scene.fleet, scene.start
    specs = [InstanceSpec(scene.before.memory_bytes, _DISK_BYTES, resident=held) for held in scene.before.resident.values()]
    change = _change(scene, perfect=variant.perfect)
    if change is None:
        specs = _copied(scene)
    simulator = Simulator(
        load.costs,
        specs,
        settings=FleetSettings(load_concurrency=None if variant.unlimited else fleet.concurrency),
        router=ROUTERS[fleet.router],
        start=start,
    )
    if change is not None:
        simulator.change(change)
    outcome = Outcome([], [])
    policy = _policy(scene, variant, simulator)
    if policy is not None:
        _watch(scene, outcome, policy, simulator)  # first, so that calls at the end of a window belong to the next one
        policy.begin(simulator)
    end = start + 60.0 * variant.minutes
    results = simulator.run(load.arrivals(start, end, variant.draw), until=end)
    came, _ = load.between(start, end, variant.draw)
    outcome.misses = misses_per_minute([*results.cold_at, *results.refused_at], start, variant.minutes)
    outcome.requests = misses_per_minute(came, start, variant.minutes)
    outcome.failed = results.failed
    if isinstance(policy, WarmUpPolicy) and policy.run is not None:
        _tell(scene, outcome, policy, simulator.now)
    return outcome


# The change.


def _change(scene: Scene, *, perfect: bool) -> SimulatedChange | None:
    """What happens to the fleet; ``None`` for a perfect loss: a fleet without the instance has all."""
    change, memory = scene.change, scene.before.memory_bytes
    if change.new == 0:
        return None if perfect else LoseInstance(list(scene.before.resident)[-1])
    copied = _copied(scene)[-change.new :]
    new = copied if perfect else [InstanceSpec(memory, _DISK_BYTES)] * change.new
    return UpdateFleet(new) if change.update else ScaleOut(new)


def _copied(scene: Scene) -> list[InstanceSpec]:
    held = perfect_copy(scene.load, scene.fleet.router, scene.change, scene.before)
    return [InstanceSpec(scene.before.memory_bytes, _DISK_BYTES, resident=models) for models in held.values()]


# The warm-ups.


def _policy(scene: Scene, variant: Variant, simulator: Simulator) -> SimulationPolicy | None:
    if variant.starts_after is None:
        return None
    begins = scene.start + variant.starts_after
    if variant.copies:
        return _Copies(scene, begins)
    settings = variant.settings
    if variant.unlimited:
        settings = WarmUpSettings(least_calls_per_second=float(_ANY))
    change = knowledge.changed(scene.change, scene.start)
    before, after = knowledge.shapes(scene.fleet, scene.change, scene.before)
    if variant.unlimited:
        after = replace(after, load_slots=_ANY)

    def make(now: float) -> WarmUpPlan:
        made = plan(change, before, after, knowledge.candidates(scene.load, scene.start), settings, now)
        return _knowing(scene, made, simulator, now) if variant.clairvoyant else made

    return WarmUpPolicy(begins, make, settings)


def _knowing(scene: Scene, made: WarmUpPlan, simulator: Simulator, now: float) -> WarmUpPlan:
    """The same plan, if it knew what is missing and what will be asked for."""
    load = scene.load
    missing = set(scene.before.last_used) - _found(scene, simulator)
    steps = []
    for model in knowledge.clairvoyant_order(load, now, missing):
        number = load.number[model]
        seconds = float(load.load_seconds[number])
        steps.append(Step(model, int(load.bytes[number]), seconds, 0.0, float(load.service_seconds[number]), 0.0))
    return replace(made, steps=tuple(steps), moved_share=1.0, touch_after=0, touches=())


class _Copies:
    """The bad idea: each of the hottest models so often at once that it must spread to all instances."""

    def __init__(self, scene: Scene, begins: float) -> None:
        self._scene, self._begins = scene, begins

    def begin(self, simulator: Simulator) -> None:
        """See `mme_fleet.SimulationPolicy`."""
        hottest = sorted(knowledge.candidates(self._scene.load, self._scene.start), key=lambda one: -one.rate)[:_COPIED_MODELS]
        for number, one in enumerate(hottest):
            for _ in range(_BURST * self._scene.change.after):
                simulator.at(self._begins + number * _BETWEEN_BURSTS_SECONDS, partial(simulator.ask, one.target_model))


# What is measured.


def _watch(scene: Scene, outcome: Outcome, policy: SimulationPolicy, simulator: Simulator) -> None:
    """Look at the fleet while it is warmed, and tell the warm-up what metrics would."""
    asked_before = 0

    def count_calls() -> None:
        nonlocal asked_before
        outcome.calls.append(simulator.results.asked - asked_before)
        asked_before = simulator.results.asked

    def read(minute: float) -> None:
        if isinstance(policy, WarmUpPolicy) and policy.run is not None and policy.run.stopping is None:
            policy.run.observed(_reading(scene, simulator, minute), simulator.now)

    for number in range(1, int(_WATCHED_SECONDS / _TRAFFIC_WINDOW_SECONDS) + 1):
        simulator.at(scene.start + number * _TRAFFIC_WINDOW_SECONDS, count_calls)
    for number in range(int(_WATCHED_SECONDS / _MINUTE)):
        minute = scene.start + number * _MINUTE
        simulator.at(minute + _MINUTE + _METRIC_DELAY_SECONDS, partial(read, minute))
    simulator.at(scene.start + _BYTES_BACK_SECONDS, lambda: setattr(outcome, "bytes_back", _back(scene, simulator)[0]))
    simulator.at(scene.start + _HEAT_BACK_SECONDS, lambda: setattr(outcome, "heat_back", _back(scene, simulator)[1]))


def _reading(scene: Scene, simulator: Simulator, minute: float) -> FleetReading:
    """The metrics of a minute."""
    came = max(1, len(scene.load.between(minute, minute + _MINUTE)[0]))
    cold = sum(minute <= at < minute + _MINUTE for at in simulator.results.cold_at)
    before = sum(scene.before.misses) / max(1, sum(scene.before.requests))
    loaded = [sum(entry.state == "loaded" for entry in instance.models) for instance in simulator.snapshot().instances]
    return FleetReading(came / _MINUTE, minute, 1 - cold / came, 1 - before, float(min(loaded)), float(max(loaded)))


def _found(scene: Scene, simulator: Simulator) -> set[str]:
    """The models that are in memory where the router looks for them."""
    instances = [one for one in simulator.snapshot().instances if one.state == "up"]
    home = HashRing(one.instance for one in instances).home if scene.fleet.router == "one home" else None
    return {
        entry.model
        for instance in instances
        for entry in instance.models
        if entry.state == "loaded" and (home is None or home(entry.model) == instance.instance)
    }


def _back(scene: Scene, simulator: Simulator) -> tuple[float, float]:
    """Shares of the bytes, and of the requests, of what was resident before the change."""
    load, found = scene.load, _found(scene, simulator)
    was = np.array([load.number[model] for model in scene.before.last_used])
    here = np.array([model in found for model in scene.before.last_used])
    _, asked = load.between(scene.start - _RATE_SECONDS, scene.start)
    rate = np.bincount(asked, minlength=len(load.models))[was]
    sizes = load.bytes[was]
    return float(sizes[here].sum() / sizes.sum()), float(rate[here].sum() / max(1, rate.sum()))


def _tell(scene: Scene, outcome: Outcome, policy: WarmUpPolicy, now: float) -> None:
    """What the warm-up says of itself."""
    run = policy.run
    assert run is not None
    summary = run.summary(now)
    outcome.seconds = run.started_at + summary.seconds - scene.start
    outcome.ended = f"{summary.end}"
    outcome.loaded = summary.loaded
    sizes = dict(zip((step.target_model for step in run.plan.steps), (step.load_seconds for step in run.plan.steps), strict=True))
    mean = sum(sizes.values()) / max(1, len(sizes))
    loading = summary.loaded * mean / run.plan.in_flight
    outcome.least_seconds = max(loading, summary.calls / run.settings.calls_per_second(run.plan.requests_per_second))
