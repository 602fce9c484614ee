"""Publishes the metrics of endpoints every scaled minute, as SageMaker does (facts of each metric: `mme_facts.metrics`).

Requests are counted by the fleets' steps and nowhere else. Where AWS documents no detail, this is what is published:

- ``Invocations``, ``InvocationsPerInstance`` and ``InvocationsPerCopy`` are 0 in a minute without requests; metrics of what did
  not happen (loads, latencies, errors, cache hits) have no data then.
- ``ModelCacheHit`` has a sample for every request that an instance took, ``ModelLoadingWaitTime`` one for each that waited.
- The wait for a load is part of ``OverheadLatency``: ``ModelLatency`` begins when the container is asked.
- ``Invocation4XXErrors`` and ``Invocation5XXErrors`` count the container's statuses and the service's own (a 429 for a model
  that is not ready is one of the former); an invocation that timed out counts in the latter.
- Of latencies and other times three significant digits are kept: percentiles are right within half a percent. Counts, sums, averages
  and extremes are exact. ``OverheadLatency`` has no percentiles.
- The ``Concurrent...`` metrics have the greatest number of each instance, or copy, in every ten seconds.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol

from mme_facts.instances import InstanceType, InstanceTypeError, instance
from mme_facts.metrics import COMPONENT_NAMESPACE, INSTANCE_NAMESPACE, INVOCATION_NAMESPACE, metric
from mme_fleet import Step
from mme_local.clock import CloudClock
from mme_local.cloudwatch.statistics import Samples
from mme_local.cloudwatch.store import Metric, MetricStore
from mme_local.metrics.facts import ComponentFacts, InstanceUse, Owner, VariantFacts
from mme_local.metrics.observation import FleetObservation, Minute
from mme_local.metrics.processes import ProcessMeter

__all__ = ["EndpointMetrics"]

logger = logging.getLogger(__name__)

_MINUTE, _WINDOW = 60.0, 10.0
_MOST_MINUTES = 180
"""Minutes without any request that are filled with zeros at once, after a jump of the clock."""
_PAUSE_SECONDS = 0.05
"""Real seconds between two publications, however fast the clock runs."""
_MEASURED_SECONDS = 1.0
"""Real seconds for which a measurement of the processes is used again."""
_UNKNOWN_TYPE = InstanceType("unknown", 2, 8192, 0, 0, 0, "x86_64", 0, burstable=False)


_Happened = tuple[dict[tuple[str, str], Minute], dict[str, Minute]]
"""What happened in a minute, by endpoint and variant, and by component."""


class EndpointMetrics:
    """A `mme_local.dataplane.StepObserver`. It lives on the event loop.

    Args:
        sink: takes the data points.
        clock: the cloud's clock.
        variants: the production variants of all endpoints.
        owner: whose a fleet is, as soon as it runs; ``None`` for an unknown one.
        use: `mme_local.dataplane.DataPlane.use`.
        names: `mme_local.dataplane.DataPlane.names`.
        meter: measures processes.
    """

    def __init__(
        self,
        sink: MetricStore,
        clock: CloudClock,
        *,
        variants: Callable[[], Sequence[VariantFacts]],
        owner: Callable[[str], Owner | None],
        use: Callable[[], Sequence[Mapping[str, Any]]],
        names: Callable[[], Sequence[str]],
        meter: ProcessMeter | None = None,
    ) -> None:
        self._sink, self._clock, self._variants, self._owner, self._use, self._names = sink, clock, variants, owner, use, names
        self._meter = meter or ProcessMeter()
        self._observed: dict[str, FleetObservation] = {}
        self._owners: dict[str, Owner] = {}
        self._no_capacity: dict[str, int] = {}
        self._failed: dict[tuple[str, str, str | None], dict[float, Minute]] = {}
        self._uses: dict[str, list[InstanceUse]] = {}
        self._measured_at = float("-inf")
        self._published = clock.time() // _MINUTE * _MINUTE
        self._windows_published = clock.time() // _WINDOW * _WINDOW
        self._task: asyncio.Task[None] | None = None

    def __call__(self, fleet: str, step: Step) -> None:
        """Take one step of a fleet."""
        observation = self._observed.get(fleet)
        if observation is None:
            observation = self._observed[fleet] = FleetObservation(fleet)
            self._adopt(fleet)
        observation.take(step, self._clock.time())

    def refused(self, component: str) -> None:
        """Count an invocation of an inference component that has no copy, so no fleet that could see the request."""
        self._no_capacity[component] = self._no_capacity.get(component, 0) + 1

    def failed(self, endpoint: str, variant: str, component: str | None, status: int, *, by_model: bool, answered: bool) -> None:
        """Count an invocation that failed where no fleet saw it: a fault before it was routed, an answer that is too large.

        Args:
            endpoint: name of the endpoint.
            variant: name of the variant.
            component: name of the inference component, if one was invoked.
            status: the container's HTTP status or, without one, the service's own.
            by_model: whether it is an error of the container.
            answered: whether a fleet had the request and counted it as answered.
        """
        minute = self._failed.setdefault((endpoint, variant, component), {}).setdefault(self._clock.time() // _MINUTE * _MINUTE, Minute())
        minute.fail(status, by_model=by_model)
        if answered:
            return
        minute.requests += 1
        minute.answered += 1
        fleets = [
            name
            for name, owner in self._owners.items()
            if (owner.endpoint, owner.variant, owner.component) == (endpoint, variant, component)
        ]
        if instances := sum(len(self._observed[fleet].loaded) for fleet in fleets if fleet in self._observed):
            minute.shares[1 / instances] += 1

    def start(self) -> None:
        """Publish from now on, in the background."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="endpoint metrics")

    async def stop(self) -> None:
        """Publish no more."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def clear(self) -> None:
        """Forget what was seen."""
        self._observed.clear()
        self._owners.clear()
        self._no_capacity.clear()
        self._failed.clear()
        self._uses.clear()

    async def _run(self) -> None:
        while True:
            await self._clock.sleep_until(self._windows_published + _WINDOW)
            await asyncio.sleep(_PAUSE_SECONDS)
            try:
                await self.publish()
            except Exception:
                # The next minute has another chance; a cloud without metrics still serves.
                logger.exception("metrics could not be published")

    async def publish(self) -> None:
        """Publish the ten seconds and minutes that are over."""
        now = self._clock.time()
        # The clock may have been put back.
        self._windows_published = min(self._windows_published, now // _WINDOW * _WINDOW)
        self._published = min(self._published, now // _MINUTE * _MINUTE)
        for fleet in self._observed:
            self._adopt(fleet)
        windows = _ended(self._windows_published, now, _WINDOW)
        minutes = _ended(self._published, now, _MINUTE)
        if windows:
            self._publish_windows(windows)
            self._windows_published = windows[-1] + _WINDOW
        if not minutes:
            return
        # Requests first: alarms look soon after the minute, and a measurement takes its time.
        happened = [(moment, self._publish_minute(moment)) for moment in minutes]
        self._published = minutes[-1] + _MINUTE
        await self._measure()
        for moment, seen in happened:
            self._publish_uses(moment, seen)
        running = set(self._names())
        for name in [name for name, observation in self._observed.items() if name not in running and not observation.minutes]:
            del self._observed[name]
            self._owners.pop(name, None)

    def _adopt(self, fleet: str) -> None:
        """Remember whose a fleet is: one of an update or a deletion still has something to say when it is gone."""
        if fleet not in self._owners and (owner := self._owner(fleet)) is not None:
            self._owners[fleet] = owner

    def _fleets_of(self, variant: VariantFacts, component: str | None = None) -> list[str]:
        """The fleets of a variant's own model, or of a component's copies: two while an update shifts traffic."""
        return [
            fleet
            for fleet in self._observed
            if (owner := self._owners.get(fleet)) is not None
            and (owner.endpoint, owner.variant, owner.component) == (variant.endpoint, variant.variant, component)
        ]

    def _uses_of(self, fleets: Sequence[str]) -> list[InstanceUse]:
        """What the instances in service use."""
        return [use for fleet in fleets for use in self._uses.get(fleet, ()) if use.instance in self._observed[fleet].loaded]

    async def _measure(self) -> None:
        if time.monotonic() - self._measured_at < _MEASURED_SECONDS:
            return
        self._uses = await asyncio.to_thread(self._meter.measure, list(self._use()))
        self._measured_at = time.monotonic()

    # Ten seconds.

    def _publish_windows(self, windows: Sequence[float]) -> None:
        for variant in self._variants():
            self._publish_peaks(self._fleets_of(variant), windows, "ConcurrentRequestsPerModel", variant.dimensions)
            for component in variant.components:
                self._publish_peaks(self._fleets_of(variant, component.name), windows, "ConcurrentRequestsPerCopy", _of(component))

        for observation in self._observed.values():
            for moment in [moment for moment in observation.peaks if moment <= windows[-1]]:
                del observation.peaks[moment]

    def _publish_peaks(self, fleets: Sequence[str], windows: Sequence[float], name: str, dimensions: Mapping[str, str]) -> None:
        for moment in windows:
            values = [
                float(max(level, self._observed[fleet].peaks.get(moment, {}).get(each, 0)))
                for fleet in fleets
                for each, level in self._observed[fleet].levels().items()
            ]
            if values:
                self._sink.put(INVOCATION_NAMESPACE, name, dimensions, values, timestamp=moment, resolution=int(_WINDOW))

    # Minutes.

    def _publish_minute(self, moment: float) -> _Happened:
        """Publish what the steps say about a minute, and return it by variant and by component."""
        of_variants: dict[tuple[str, str], Minute] = {}
        of_components: dict[str, Minute] = {}
        for name, observation in self._observed.items():
            minutes = [at for at in observation.minutes if at <= moment]
            owner = self._owners.get(name)
            for at in minutes:
                seen = observation.minutes.pop(at)
                if owner is None:
                    continue
                of_variants.setdefault((owner.endpoint, owner.variant), Minute()).add(seen)
                if owner.component is not None:
                    of_components.setdefault(owner.component, Minute()).add(seen)
        for (endpoint, variant_name, component_name), of_minutes in list(self._failed.items()):
            for at in [at for at in of_minutes if at <= moment]:
                seen = of_minutes.pop(at)
                of_variants.setdefault((endpoint, variant_name), Minute()).add(seen)
                if component_name is not None:
                    of_components.setdefault(component_name, Minute()).add(seen)
            if not of_minutes:
                del self._failed[endpoint, variant_name, component_name]
        current = {(variant.endpoint, variant.variant): variant for variant in self._variants()}
        for key, variant in current.items():
            self._publish_variant(moment, variant, of_variants.get(key, Minute()))
            for component in variant.components:
                self._publish_component(moment, component, of_components.get(component.name, Minute()))
        for key in of_variants.keys() - current.keys():
            dimensions = {"EndpointName": key[0], "VariantName": key[1]}
            self._publish_requests(moment, dimensions, of_variants[key], "InvocationsPerInstance")
            self._publish_loads(moment, dimensions, of_variants[key])
        return of_variants, of_components

    def _publish_uses(self, moment: float, happened: _Happened) -> None:
        """Publish what the instances and copies use."""
        of_variants, of_components = happened
        for variant in self._variants():
            self._publish_instances(moment, variant, of_variants.get((variant.endpoint, variant.variant), Minute()))
            for component in variant.components:
                self._publish_copies(moment, component, of_components.get(component.name, Minute()), variant)

    def _publish_variant(self, moment: float, variant: VariantFacts, seen: Minute) -> None:
        if variant.hosts_components:
            # The shares of its fleets are those of the components' copies.
            of_instances = Counter({1 / variant.instances: seen.requests}) if variant.instances and seen.requests else Counter()
            seen = replace(seen, shares=of_instances)
        elif variant.multi_model:
            self._publish_loads(moment, variant.dimensions, seen)
        self._publish_requests(moment, variant.dimensions, seen, "InvocationsPerInstance")

    def _publish_requests(self, moment: float, dimensions: Mapping[str, str], seen: Minute, per: str) -> None:
        put = self._putter(INVOCATION_NAMESPACE, dimensions, moment)
        put("Invocations", [1.0] if seen.requests else [0.0], [float(seen.requests or 1)])
        shares = seen.shares or {0.0: 1}
        put(per, list(shares), [float(count) for count in shares.values()])
        for name, errors in (
            ("Invocation4XXErrors", seen.client_errors),
            ("Invocation5XXErrors", seen.server_errors),
            ("InvocationModelErrors", seen.model_errors),
        ):
            put(name, *_flags(errors, seen.answered - errors))
        self._put_times(dimensions, moment, {"ModelLatency": seen.model_latency, "OverheadLatency": seen.overhead_latency})

    def _publish_loads(self, moment: float, dimensions: Mapping[str, str], seen: Minute) -> None:
        self._putter(INVOCATION_NAMESPACE, dimensions, moment)("ModelCacheHit", *_flags(seen.cache_hits, seen.cache_misses))
        times = {
            "ModelLoadingWaitTime": seen.loading_wait,
            "ModelDownloadingTime": seen.downloading,
            "ModelLoadingTime": seen.loading,
            "ModelUnloadingTime": seen.unloading,
        }
        self._put_times(dimensions, moment, times)

    def _publish_instances(self, moment: float, variant: VariantFacts, seen: Minute) -> None:
        put = self._putter(INSTANCE_NAMESPACE, variant.dimensions, moment)
        kind = _type_of(variant.instance_type)
        if variant.hosts_components:
            self._publish_hosts(put, variant, kind, seen)
            return
        fleets = self._fleets_of(variant)
        observations = [self._observed[fleet] for fleet in fleets]
        uses = self._uses_of(fleets)
        cores = [self._cores(use, seen, kind.vcpus) for use in uses]
        memory = [_share(use.memory_bytes, use.memory_budget_bytes) for use in uses]
        if variant.multi_model:
            put("LoadedModelCount", [float(len(models)) for each in observations for models in each.loaded.values()])
        put("CPUUtilization", [100.0 * each for each in cores])
        put("MemoryUtilization", memory)
        disks = [(used, each.disk_budget_bytes[name]) for each in observations for name, used in each.disk_bytes.items()]
        put("DiskUtilization", [_share(used, budget) for used, budget in disks])
        if kind.gpus:
            put("GPUUtilization", [min(100.0 * self._busy(use, seen), 100.0 * kind.gpus) for use in uses])
            put("GPUMemoryUtilization", [each * kind.gpus for each in memory])

    def _publish_hosts(self, put: _Put, variant: VariantFacts, kind: InstanceType, seen: Minute) -> None:
        """An endpoint of inference components: the use of all copies, spread over its instances, and what is reserved."""
        if not variant.instances:
            return
        uses = [use for component in variant.components for use in self._uses_of(self._fleets_of(variant, component.name))]
        cores = min(sum(self._cores(use, seen, kind.vcpus) for use in uses) / variant.instances, kind.vcpus)
        busy = min(sum(self._busy(use, seen) for use in uses) / variant.instances, kind.gpus)
        total_memory = variant.instances * kind.memory_mib * 1024 * 1024
        memory = _share(sum(use.memory_bytes for use in uses), total_memory)
        copies = [(component, component.copies) for component in variant.components]
        reserved_cores = sum((component.cpu_cores or 0.0) * count for component, count in copies)
        each = float(variant.instances)
        put("CPUUtilization", [100.0 * cores], [each])
        put("CPUUtilizationNormalized", [_share(cores, kind.vcpus)], [each])
        put("MemoryUtilization", [memory], [each])
        put("CPUReservation", [_share(reserved_cores, kind.vcpus * variant.instances)], [each])
        put("MemoryReservation", [_share(sum(component.memory_bytes * count for component, count in copies), total_memory)], [each])
        if kind.gpus:
            accelerators = sum(component.accelerators * count for component, count in copies)
            put("GPUUtilization", [100.0 * busy], [each])
            put("GPUUtilizationNormalized", [_share(busy, kind.gpus)], [each])
            put("GPUMemoryUtilization", [memory * kind.gpus], [each])
            put("GPUMemoryUtilizationNormalized", [memory], [each])
            put("GPUReservation", [_share(accelerators, kind.gpus * variant.instances)], [each])

    def _publish_component(self, moment: float, component: ComponentFacts, seen: Minute) -> None:
        self._publish_requests(moment, _of(component), seen, "InvocationsPerCopy")
        if refused := seen.no_capacity + self._no_capacity.pop(component.name, 0):
            self._putter(INVOCATION_NAMESPACE, _of(component), moment)("NoCapacityInvocationFailures", [1.0], [float(refused)])

    def _publish_copies(self, moment: float, component: ComponentFacts, seen: Minute, variant: VariantFacts) -> None:
        uses = self._uses_of(self._fleets_of(variant, component.name))
        kind = _type_of(variant.instance_type)
        put = self._putter(COMPONENT_NAMESPACE, _of(component), moment)
        cores = [self._cores(use, seen, kind.vcpus) for use in uses]
        memory = [_share(use.memory_bytes, component.memory_bytes) for use in uses]
        put("CPUUtilizationNormalized", [_share(each, component.cpu_cores or kind.vcpus) for each in cores])
        put("MemoryUtilizationNormalized", memory)
        if kind.gpus:
            put("GPUUtilizationNormalized", [_share(self._busy(use, seen), component.accelerators or kind.gpus) for use in uses])
            put("GPUMemoryUtilizationNormalized", memory)

    def _cores(self, use: InstanceUse, seen: Minute, most: int) -> float:
        """Cores in use: measured, or, without a process to measure, as if every request and load took one."""
        return min(self._busy(use, seen) if use.cores is None else use.cores, float(most))

    def _busy(self, use: InstanceUse, seen: Minute) -> float:
        return seen.busy_seconds[use.fleet, use.instance] / (_MINUTE / self._clock.scale)

    def _put_times(self, dimensions: Mapping[str, str], moment: float, times: Mapping[str, Samples]) -> None:
        for name, samples in times.items():
            if samples.count:
                unit = metric(INVOCATION_NAMESPACE, name).unit
                self._sink.put_samples(Metric.of(INVOCATION_NAMESPACE, name, dimensions), samples, unit=unit, timestamp=moment)

    def _putter(self, namespace: str, dimensions: Mapping[str, str], moment: float) -> _Put:
        def put(name: str, values: Sequence[float], counts: Sequence[float] | None = None) -> None:
            if values:
                unit = metric(namespace, name).unit
                self._sink.put(namespace, name, dimensions, values, unit=unit, timestamp=moment, counts=counts)

        return put


class _Put(Protocol):
    def __call__(self, name: str, values: Sequence[float], counts: Sequence[float] | None = None) -> None: ...


def _ended(since: float, now: float, length: float) -> list[float]:
    """The beginnings of the periods that have ended, oldest first; the newest ones if they are too many."""
    count = int((now - since) // length)
    return [since + length * number for number in range(max(0, count - int(_MOST_MINUTES * _MINUTE / length)), count)]


def _flags(ones: int, zeros: int) -> tuple[list[float], list[float]]:
    """Samples of 1 and 0, as values with their counts; an error may be told in the minute after the answer."""
    pairs = [(value, float(count)) for value, count in ((1.0, ones), (0.0, zeros)) if count > 0]
    return [value for value, _ in pairs], [count for _, count in pairs]


def _share(used: float, budget: float) -> float:
    """Percent, at most 100."""
    return min(100.0, 100.0 * used / budget) if budget else 0.0


def _of(component: ComponentFacts) -> dict[str, str]:
    return {"InferenceComponentName": component.name}


def _type_of(name: str) -> InstanceType:
    try:
        return instance(name)
    except InstanceTypeError:
        return _UNKNOWN_TYPE
