"""Endpoint metrics: what they say is what the callers of a fleet saw."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from mme_facts.metrics import COMPONENT_METRICS, DEDICATED_ENDPOINT_METRICS, ENDPOINT_METRICS, metric
from mme_fleet import (
    Download,
    Downloaded,
    Event,
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
    Reply,
    Request,
    Step,
    Tick,
    Unload,
    Unloaded,
    ZoneLost,
)
from mme_local.clock import CloudClock
from mme_local.cloudwatch.statistics import parse_statistic
from mme_local.cloudwatch.store import Metric, MetricStore
from mme_local.metrics.facts import ComponentFacts, InstanceUse, VariantFacts
from mme_local.metrics.observation import Minute
from mme_local.metrics.publisher import EndpointMetrics
from mme_local.sagemaker.resources import FleetOwner

FLEET = "shared-1"
ON_SHARED = {"EndpointName": "shared", "VariantName": "AllTraffic"}
MODEL_BYTES = 100


@dataclass
class Sink:
    """Keeps what is put, every sample by itself."""

    samples: dict[tuple[str, tuple[tuple[str, str], ...]], list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    sums: Counter[str] = field(default_factory=Counter)

    def put(self, namespace, name, dimensions, values, *, unit="None", timestamp, counts=None, resolution=60):
        metric(namespace, name).check_dimensions(dimensions)
        metric(namespace, name).check_unit(unit)
        assert timestamp % resolution == 0
        for value, count in zip(values, counts or itertools.repeat(1.0), strict=False):
            self.samples[name, tuple(sorted(dimensions.items()))] += [(timestamp, value)] * int(count)

    def put_samples(self, of, samples, *, unit="None", timestamp):
        """Without percentiles every sample is the average."""
        values = samples.weights if samples.weights is not None else {samples.total / samples.count: samples.count}
        dimensions = dict(of.dimensions)
        self.sums[of.name] += samples.total
        self.put(of.namespace, of.name, dimensions, list(values), unit=unit, timestamp=timestamp, counts=list(values.values()))

    def of(self, name: str, dimensions: dict[str, str] = ON_SHARED) -> list[float]:
        return [value for _, value in self.samples[name, tuple(sorted(dimensions.items()))]]

    def names(self, dimensions: dict[str, str] = ON_SHARED) -> set[str]:
        return {name for name, of in self.samples if of == tuple(sorted(dimensions.items()))}


@dataclass
class VirtualFleet:
    """A fleet whose servers take scripted times, in virtual seconds; the observer is told every step."""

    observe: Callable[[str, Step], None]
    name: str = FLEET
    memory_bytes: int = 5 * MODEL_BYTES
    load_seconds: float = 1.0
    statuses: dict[str, int | None] = field(default_factory=dict)
    failures: dict[str, LoadFailure] = field(default_factory=dict)
    replies: dict[int, Reply] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.fleet = Fleet(FleetSettings(model_overhead_bytes=0, load_wait_seconds=30.0))
        self.now = 0.0
        self._due: list[tuple[float, int, Event]] = []
        self._numbers = itertools.count()
        self._ids = itertools.count(1)

    def up(self, instance: str) -> None:
        self.tell(InstanceUp(instance, self.memory_bytes, 100 * MODEL_BYTES))

    def request(self, model: str) -> int:
        number = next(self._ids)
        self.tell(Request(number, model))
        return number

    def tell(self, event: Event) -> None:
        actions = self.fleet.on(event, self.now)
        self.observe(self.name, Step(self.now, event, actions))
        for action in actions:
            self._execute(action)

    def _execute(self, action: Any) -> None:
        match action:
            case Download(instance, model):
                kind = self.failures.get(model)
                self._later(0.25, Downloaded(instance, model, MODEL_BYTES) if kind is None else LoadFailed(instance, model, kind, 507))
            case Load(instance, model):
                self._later(self.load_seconds, Loaded(instance, model))
            case Unload(instance, model):
                self._later(0.125, Unloaded(instance, model))
            case Forward(request, _instance, model, _cold):
                self._later(0.5, Replied(request, self.statuses.get(model, 200)))
            case Reply(request, _error):
                self.replies[request] = action

    def _later(self, seconds: float, event: Event) -> None:
        heapq.heappush(self._due, (self.now + seconds, next(self._numbers), event))

    def run(self, seconds: float = 1000.0) -> None:
        """Let virtual time pass, and everything that is due happen."""
        end = self.now + seconds
        while True:
            deadline = self.fleet.next_deadline()
            due = self._due[0][0] if self._due else end + 1
            if min(due, deadline or due) > end:
                self.now = end
                return
            if deadline is not None and deadline <= due:
                self.now = deadline
                self.tell(Tick())
            else:
                self.now, _, event = heapq.heappop(self._due)
                self.tell(event)


class Uses:
    """Stands in for the meter: every instance uses one and a half cores and half of its memory."""

    def measure(self, fleets):
        return {
            fleet["name"]: [InstanceUse(fleet["name"], instance["id"], 1.5, 256, 512) for instance in fleet["instances"]]
            for fleet in fleets
        }


@dataclass
class Stage:
    sink: Sink
    clock: CloudClock
    metrics: EndpointMetrics
    fleet: VirtualFleet
    variants: list[VariantFacts]
    running: list[VirtualFleet]

    def minute(self) -> None:
        """Go to the next minute and publish the last one."""
        self.clock.jump(60.0 - self.clock.time() % 60.0 + 0.01)
        asyncio.run(self.metrics.publish())


def owner_of(variant: VariantFacts) -> Callable[[str], FleetOwner | None]:
    """All fleets are those of the variant, or of its only component."""
    component = variant.components[0].name if variant.components else None
    return lambda _fleet: FleetOwner(variant.endpoint, variant.variant, component, variant.instance_type)


def make_stage(*variants: VariantFacts) -> Stage:
    async def made() -> CloudClock:
        return CloudClock()

    clock, sink, running = asyncio.run(made()), Sink(), []
    clock.jump(60.0 - clock.time() % 60.0 + 0.01)
    current = list(variants) or [VariantFacts("shared", "AllTraffic", "ml.g5.xlarge", 1)]

    def status():
        return [{"name": each.name, "instances": [{"id": one.instance} for one in each.fleet.snapshot().instances]} for each in running]

    metrics = EndpointMetrics(
        sink,
        clock,
        variants=lambda: current,
        owner=owner_of(current[0]),
        use=status,
        names=lambda: [each.name for each in running],
        meter=Uses(),
    )
    fleet = VirtualFleet(metrics)
    running.append(fleet)
    return Stage(sink, clock, metrics, fleet, current, running)


@pytest.fixture
def stage() -> Stage:
    return make_stage()


def test_the_metrics_of_a_run_are_what_the_callers_saw(stage):
    chance = random.Random(7)
    for instance in ("i-1", "i-2"):
        stage.fleet.up(instance)
    asked = 400
    for _ in range(asked):
        stage.fleet.request(f"m-{min(int(chance.expovariate(0.3)), 20)}")
        stage.fleet.run(chance.random())
    stage.fleet.run()
    stage.minute()
    snapshot, sink = stage.fleet.fleet.snapshot(), stage.sink
    assert sum(sink.of("Invocations")) == asked == snapshot.requests
    assert sum(sink.of("InvocationsPerInstance")) == pytest.approx(asked / 2)
    hits = sink.of("ModelCacheHit")
    assert (sum(hits), len(hits)) == (snapshot.hits, asked)
    assert 0 < snapshot.hits < asked, "a run with hits and misses"
    assert sink.of("ModelLoadingTime") == pytest.approx([1e6] * snapshot.cold_loads)
    assert sink.of("ModelUnloadingTime") == pytest.approx([0.125e6] * snapshot.evictions)
    assert snapshot.evictions > 0
    assert len(sink.of("ModelLoadingWaitTime")) == asked - snapshot.hits
    assert all(wait == float(f"{wait:.3g}") for wait in sink.of("ModelLoadingWaitTime")), "three digits are kept"
    assert sink.of("ModelLatency") == pytest.approx([0.5e6] * asked)
    assert sink.sums["OverheadLatency"] == pytest.approx(sink.sums["ModelLoadingWaitTime"])
    assert sorted(sink.of("LoadedModelCount")) == sorted(len(instance.models) for instance in snapshot.instances)
    assert sum(sink.of("Invocation4XXErrors") + sink.of("Invocation5XXErrors")) == 0


def test_every_metric_of_a_multi_model_endpoint_is_published(stage):
    stage.fleet.up("i-1")
    for number in range(7):
        stage.fleet.request(f"m-{number}")
        stage.fleet.run()
    stage.minute()
    assert stage.sink.names() == set(ENDPOINT_METRICS)


def test_types_without_gpus_have_no_gpu_metrics():
    stage = make_stage(VariantFacts("shared", "AllTraffic", "ml.m5.xlarge", 1))
    stage.fleet.up("i-1")
    stage.minute()
    assert {"CPUUtilization", "MemoryUtilization"} <= stage.sink.names()
    assert not any("GPU" in name for name in stage.sink.names())


def test_a_single_model_has_no_metrics_of_loads():
    stage = make_stage(VariantFacts("shared", "AllTraffic", "ml.m5.xlarge", 1, multi_model=False))
    stage.fleet.tell(InstanceUp("i-1", 500, 500, resident=(("m", 100),)))
    stage.fleet.request("m")
    stage.fleet.run()
    stage.minute()
    assert stage.sink.of("Invocations") == [1.0]
    assert not stage.sink.names() & {"ModelCacheHit", "LoadedModelCount", "ModelLoadingTime", "ModelLoadingWaitTime"}


def test_while_traffic_shifts_both_fleets_count(stage):
    other = VirtualFleet(stage.metrics, name="shared-2")
    stage.running.append(other)
    for fleet in (stage.fleet, other):
        fleet.up("i-1")
        fleet.request("m")
    stage.minute()
    assert sum(stage.sink.of("Invocations")) == 2
    assert len(stage.sink.of("LoadedModelCount")) == len(stage.sink.of("CPUUtilization")) == 2
    assert stage.sink.of("ConcurrentRequestsPerModel")[:2] == [1.0, 1.0]


def test_a_minute_without_requests_has_zeros_and_levels(stage):
    stage.fleet.up("i-1")
    stage.minute()
    assert stage.sink.of("Invocations") == [0.0]
    assert stage.sink.of("InvocationsPerInstance") == [0.0]
    assert stage.sink.of("LoadedModelCount") == [0.0]
    assert set(stage.sink.of("ConcurrentRequestsPerModel")) == {0.0}
    assert not stage.sink.names() & {"ModelCacheHit", "ModelLatency", "Invocation4XXErrors", "ModelLoadingTime"}


def test_cpu_is_summed_over_cores_and_memory_is_a_share(stage):
    stage.fleet.up("i-1")
    stage.minute()
    assert stage.sink.of("CPUUtilization") == [150.0]
    assert stage.sink.of("MemoryUtilization") == [50.0]


def test_minutes_that_a_jump_skipped_are_filled(stage):
    stage.fleet.up("i-1")
    stage.clock.jump(5 * 60.0)
    asyncio.run(stage.metrics.publish())
    assert stage.sink.of("Invocations") == [0.0] * 5


@pytest.mark.parametrize(
    ("status", "failure", "answer", "client", "server", "model"),
    [
        (200, None, None, 0, 0, 0),
        (400, None, 424, 1, 0, 1),
        (503, None, 424, 0, 1, 1),
        (0, None, 424, 0, 1, 1),
        (None, None, 503, 0, 1, 1),
        (200, LoadFailure.MISSING, 400, 1, 0, 0),
        (200, LoadFailure.UNAVAILABLE, 503, 0, 1, 0),
        (200, LoadFailure.BROKEN, 424, 0, 1, 1),
    ],
)
def test_errors_are_counted_by_who_made_them(stage, status, failure, answer, client, server, model):
    stage.fleet.up("i-1")
    stage.fleet.statuses["m"] = status
    if failure is not None:
        stage.fleet.failures["m"] = failure
    number = stage.fleet.request("m")
    stage.fleet.run()
    stage.minute()
    error = stage.fleet.replies[number].error
    assert (error.status if error else None) == answer
    counted = [stage.sink.of(f"Invocation{kind}") for kind in ("4XXErrors", "5XXErrors", "ModelErrors")]
    assert counted == [[client], [server], [model]]


def test_a_million_requests_leave_few_values(stage):
    # As many latencies as a busy minute has, each its own; what the fleet does with them is tested above.
    latencies = np.sort(np.random.default_rng(11).lognormal(10.0, 1.0, 1_000_000)).tolist()
    minute = Minute()
    for latency in latencies:
        minute.model_latency.add_rounded(latency)
        minute.overhead_latency.add_rounded(latency)
    store = MetricStore(stage.clock.time)
    metrics = EndpointMetrics(store, stage.clock, variants=list, owner=lambda _fleet: None, use=list, names=list)
    metrics._publish_requests(stage.clock.time() // 60 * 60, ON_SHARED, minute, "InvocationsPerInstance")
    wanted = ["SampleCount", "Sum", "Minimum", "Maximum", "p50", "p99"]
    values = {}
    for name in ("ModelLatency", "OverheadLatency"):
        begin = stage.clock.time() // 60 * 60
        (kept,) = store.samples(Metric.of("AWS/SageMaker", name, ON_SHARED), start=begin, end=begin + 60, period=60).values()
        values[name] = kept
        exact = [parse_statistic(statistic).of(kept) for statistic in wanted[:4]]
        assert exact == pytest.approx([1e6, sum(latencies), latencies[0], latencies[-1]], rel=1e-12)
    assert values["OverheadLatency"].weights is None
    assert len(values["ModelLatency"].weights) < 900 * 8
    percentiles = [parse_statistic(statistic).of(values["ModelLatency"]) for statistic in wanted[4:]]
    assert percentiles == pytest.approx([latencies[500_000], latencies[990_000]], rel=0.005)


def test_what_fails_where_no_fleet_sees_it_is_counted(stage):
    for instance in ("i-1", "i-2"):
        stage.fleet.up(instance)
    stage.fleet.request("m")
    stage.fleet.run()
    stage.metrics.failed("shared", "AllTraffic", None, 400, by_model=False, answered=False)
    stage.metrics.failed("shared", "AllTraffic", None, 418, by_model=True, answered=False)
    stage.metrics.failed("shared", "AllTraffic", None, 500, by_model=True, answered=True)
    stage.minute()
    assert stage.sink.of("Invocations") == [1.0] * 3
    assert stage.sink.of("InvocationsPerInstance") == [0.5] * 3
    counted = [sorted(stage.sink.of(f"Invocation{kind}")) for kind in ("4XXErrors", "5XXErrors", "ModelErrors")]
    assert counted == [[0, 1, 1], [0, 0, 1], [0, 1, 1]]
    stage.minute()
    assert stage.sink.of("Invocations")[3:] == [0.0]


def test_an_error_that_is_told_a_minute_late_counts_alone(stage):
    stage.fleet.up("i-1")
    stage.metrics.failed("shared", "AllTraffic", None, 500, by_model=True, answered=True)
    stage.minute()
    assert stage.sink.of("Invocation5XXErrors") == [1.0]


def test_a_model_that_is_not_ready_is_a_4xx_and_a_wait(stage):
    stage.fleet.load_seconds = 45.0
    stage.fleet.up("i-1")
    number = stage.fleet.request("m")
    stage.fleet.run(40)
    stage.minute()
    assert stage.fleet.replies[number].error.status == 429
    assert stage.sink.of("Invocation4XXErrors") == [1.0]
    assert stage.sink.of("ModelLoadingWaitTime") == pytest.approx([30e6])
    assert "ModelLatency" not in stage.sink.names(), "the container was never asked"


def test_concurrency_is_the_peak_of_each_instance_in_ten_seconds(stage):
    stage.fleet.up("i-1")
    stage.fleet.request("m")
    stage.fleet.run()
    for _ in range(3):
        stage.fleet.request("m")
    stage.clock.jump(11.0)
    asyncio.run(stage.metrics.publish())
    assert stage.sink.of("ConcurrentRequestsPerModel")[0] == 3.0
    stage.clock.jump(10.0)
    asyncio.run(stage.metrics.publish())
    assert stage.sink.of("ConcurrentRequestsPerModel")[1] == 3.0, "they are still being answered"
    stage.fleet.run()
    stage.clock.jump(20.0)
    asyncio.run(stage.metrics.publish())
    assert stage.sink.of("ConcurrentRequestsPerModel")[-1] == 0.0


def test_a_lost_or_draining_instance_counts_no_longer(stage):
    for instance in ("i-1", "i-2", "i-3"):
        stage.fleet.up(instance)
    stage.fleet.tell(InstanceLost("i-1"))
    stage.fleet.tell(InstanceDraining("i-2"))
    stage.fleet.request("m")
    stage.minute()
    assert stage.sink.of("InvocationsPerInstance") == [1.0]
    assert stage.sink.of("LoadedModelCount") == [0.0]


def test_a_lost_zone_takes_its_instances_out_of_the_count(stage):
    for number, zone in enumerate(("a", "a", "b")):
        stage.fleet.tell(InstanceUp(f"i-{number}", 500, 500, zone=zone))
    stage.fleet.tell(ZoneLost("a"))
    stage.fleet.request("m")
    stage.minute()
    assert stage.sink.of("InvocationsPerInstance") == [1.0]


def test_models_that_an_instance_comes_up_with_are_loaded(stage):
    stage.fleet.tell(InstanceUp("i-1", 500, 500, resident=(("m", 100),)))
    stage.fleet.request("m")
    stage.minute()
    assert stage.sink.of("LoadedModelCount") == [1.0]
    stage.fleet.run()
    stage.minute()
    assert stage.sink.of("ModelCacheHit") == [1.0]


def test_a_wait_in_the_queue_of_a_loaded_model_is_a_hit_and_part_of_its_latency(stage):
    stage.fleet.fleet = Fleet(FleetSettings(model_overhead_bytes=0, workers_per_model=1, model_queue_size=5))
    stage.fleet.up("i-1")
    stage.fleet.request("m")
    stage.fleet.run()
    stage.minute()
    for _ in range(2):
        stage.fleet.request("m")
    stage.fleet.run()
    stage.minute()
    assert stage.sink.of("ModelCacheHit") == [0.0, 1.0, 1.0]
    assert stage.sink.of("ModelLatency") == pytest.approx([0.5e6, 0.5e6, 1.0e6])
    assert len(stage.sink.of("ModelLoadingWaitTime")) == 1


def test_the_last_requests_of_a_replaced_fleet_are_not_lost(stage):
    stage.fleet.up("i-1")
    stage.minute()
    stage.fleet.request("m")
    stage.fleet.run()
    stage.fleet.tell(InstanceDraining("i-1"))
    new = VirtualFleet(stage.metrics, name="shared-2")
    new.up("i-1")
    new.request("m")
    stage.running[:] = [new]
    stage.minute()
    assert Counter(stage.sink.of("Invocations")) == {0.0: 1, 1.0: 2}


def test_a_deleted_endpoint_says_its_last_and_then_nothing(stage):
    stage.fleet.up("i-1")
    stage.minute()
    stage.fleet.request("m")
    stage.running.clear()
    stage.variants.clear()
    stage.minute()
    before = len(stage.sink.of("Invocations"))
    stage.minute()
    assert sum(stage.sink.of("Invocations")) == 1
    assert len(stage.sink.of("Invocations")) == before


HOST = {"EndpointName": "dedicated", "VariantName": "AllTraffic"}
ACME = {"InferenceComponentName": "acme"}


class TestComponents:
    def stage(self, copies: int = 2) -> Stage:
        component = ComponentFacts("acme", copies, cpu_cores=2.0, memory_bytes=1024, accelerators=1.0)
        host = VariantFacts("dedicated", "AllTraffic", "ml.g5.xlarge", 2, hosts_components=True, components=[component])
        return make_stage(host)

    def test_every_metric_of_a_component_and_its_host_is_published(self):
        stage = self.stage()
        for copy in ("c-1", "c-2"):
            stage.fleet.up(copy)
        stage.fleet.request("m")
        stage.fleet.run()
        stage.metrics.refused("acme")
        stage.minute()
        assert stage.sink.names(ACME) == set(COMPONENT_METRICS)
        assert set(DEDICATED_ENDPOINT_METRICS) <= stage.sink.names(HOST)
        assert not stage.sink.names(HOST) & {"ModelCacheHit", "LoadedModelCount", "ModelLoadingTime"}

    def test_shares_are_of_instances_for_the_variant_and_of_copies_for_the_component(self):
        stage = self.stage()
        stage.fleet.up("c-1")
        for _ in range(4):
            stage.fleet.request("m")
        stage.minute()
        assert sum(stage.sink.of("InvocationsPerInstance", HOST)) == pytest.approx(2.0)
        assert sum(stage.sink.of("InvocationsPerCopy", ACME)) == pytest.approx(4.0)

    def test_utilization_is_relative_to_what_is_reserved(self):
        stage = self.stage()
        for copy in ("c-1", "c-2"):
            stage.fleet.up(copy)
        stage.minute()
        assert stage.sink.of("CPUUtilizationNormalized", ACME) == [75.0, 75.0]
        assert stage.sink.of("MemoryUtilizationNormalized", ACME) == [25.0, 25.0]
        assert stage.sink.of("CPUUtilization", HOST) == [150.0, 150.0], "two copies with 1.5 cores on two instances"
        assert stage.sink.of("CPUUtilizationNormalized", HOST) == [37.5, 37.5]
        assert stage.sink.of("CPUReservation", HOST) == [50.0, 50.0]
        assert stage.sink.of("GPUReservation", HOST) == [100.0, 100.0]

    def test_refused_invocations_of_a_component_without_copies_are_counted(self):
        stage = self.stage(copies=0)
        stage.minute()
        assert "NoCapacityInvocationFailures" not in stage.sink.names(ACME)
        for _ in range(3):
            stage.metrics.refused("acme")
        stage.minute()
        assert stage.sink.of("NoCapacityInvocationFailures", ACME) == [1.0] * 3
        stage.minute()
        assert len(stage.sink.of("NoCapacityInvocationFailures", ACME)) == 3


def test_an_instance_without_a_process_counts_a_core_for_what_it_works_on(stage):
    class Unmeasured:
        def measure(self, fleets):
            return {fleet["name"]: [InstanceUse(fleet["name"], one["id"], None, 0, 1) for one in fleet["instances"]] for fleet in fleets}

    stage.metrics._meter = Unmeasured()
    stage.fleet.up("i-1")
    stage.fleet.request("m")
    stage.fleet.run()
    stage.minute()
    assert stage.sink.of("CPUUtilization") == pytest.approx([100 * 1.5 / 60]), "a load of a second and half a second of answering"
    assert stage.sink.of("GPUUtilization") == pytest.approx([100 * 1.5 / 60])
