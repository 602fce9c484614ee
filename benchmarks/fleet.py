"""How fast the simulator drives the residency engine."""

from __future__ import annotations

import gc
import random
import statistics
import time
from array import array
from collections.abc import Callable, Iterator
from itertools import accumulate

from benchmarks.figure import Figure
from mme_fleet import Costs, FleetSettings, InstanceSpec, LoadCosts, SimulationResults, Simulator, StickyRouter

__all__ = ["measure"]

_RUNS = 7
_REQUESTS, _MODELS, _INSTANCES = 300_000, 10_000, 10
_REQUESTS_PER_SECOND = 150.0
_SKEW = 1.0
_MEMORY_SHARE = 0.6
_BOUND_REQUESTS_PER_S = 200_000.0
_LEAST_HIT_RATIO = 0.85
_CHUNK = 8192
_SEED = 1


def measure(tell: Callable[[str], object]) -> Iterator[Figure]:
    """The figure of the simulator."""
    workload = _Workload()
    rates, walls = [], []
    gc.collect()
    gc.freeze()  # the workload is not the simulator's
    try:
        for number in range(_RUNS):
            tell(f"simulator, run {number + 1} of {_RUNS}")
            started, wall = time.process_time(), time.perf_counter()
            results = workload.run()
            rates.append(_REQUESTS / (time.process_time() - started))
            walls.append(_REQUESTS / (time.perf_counter() - wall))
    finally:
        gc.unfreeze()
    if results.hit_ratio < _LEAST_HIT_RATIO or results.answered != _REQUESTS or results.loads < _REQUESTS // 50:
        raise RuntimeError(f"the workload is not what the figure is about: hit ratio {results.hit_ratio:.3f}, {results.loads} loads")
    yield Figure(
        "simulator_requests_per_s",
        statistics.median(rates),
        "1/s",
        _BOUND_REQUESTS_PER_S,
        "none: requests per second of processor time on one core",
        {
            "runs": _RUNS,
            "requests": _REQUESTS,
            "models": _MODELS,
            "instances": _INSTANCES,
            "router": "sticky with spill",
            "trace": f"Poisson arrivals, {_REQUESTS_PER_SECOND:g} requests/s, Zipf {_SKEW:g}",
            "memory": f"{_MEMORY_SHARE:g} of all models",
            "loads_at_once": _SETTINGS.load_concurrency,
            "hit_ratio": results.hit_ratio,
            "loads": results.loads,
            "evictions": results.unloads,
            "errors": results.failed,
            "observers": "none",
            "least": min(rates),
            "most": max(rates),
            "wall_median": statistics.median(walls),
        },
        at_least=True,
    )


_SETTINGS = FleetSettings(model_overhead_bytes=50_000_000, load_concurrency=8)


class _Workload:
    """Requests, sizes and times, made before the clock runs."""

    def __init__(self) -> None:
        rng = random.Random(_SEED)  # noqa: S311 - a workload, not a secret
        self._models = [f"tenant-{number % 500}/model-{number}/v1.tar.gz" for number in range(_MODELS)]
        sizes = {model: int(min(4e9, max(5e6, rng.lognormvariate(18.5, 1.0)))) for model in self._models}
        services = {model: rng.uniform(0.005, 0.05) for model in self._models}
        loads = LoadCosts(
            unpacked_bytes=sizes.__getitem__, download_bytes_per_second=200e6, load_bytes_per_second=500e6, load_constant_seconds=0.3
        )
        self._costs = Costs(
            unpacked_bytes=sizes.__getitem__,
            download_seconds=loads.download_seconds,
            load_seconds=loads.load_seconds,
            unload_seconds=dict.fromkeys(self._models, 0.02).__getitem__,
            service_seconds=services.__getitem__,
        )
        memory = int(_MEMORY_SHARE * sum(map(_SETTINGS.memory_bytes, sizes.values()))) // _INSTANCES
        self._instances = [InstanceSpec(memory, 3 * memory, zone) for zone in ("a", "b") * (_INSTANCES // 2)]
        weights = list(accumulate((rank + 1) ** -_SKEW for rank in range(_MODELS)))
        self._asked = array("i", rng.choices(range(_MODELS), cum_weights=weights, k=_REQUESTS))
        self._times = array("d", accumulate(rng.expovariate(_REQUESTS_PER_SECOND) for _ in range(_REQUESTS)))

    def _arrivals(self) -> Iterator[tuple[float, str]]:
        for start in range(0, _REQUESTS, _CHUNK):
            part = slice(start, start + _CHUNK)
            yield from zip(self._times[part].tolist(), map(self._models.__getitem__, self._asked[part]), strict=True)

    def run(self) -> SimulationResults:
        """One simulation, from an empty fleet to the last answer."""
        simulator = Simulator(self._costs, self._instances, settings=_SETTINGS, router=StickyRouter)
        return simulator.run(self._arrivals())
