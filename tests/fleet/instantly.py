"""One instance whose downloads, loads, unloads and answers take no time: the fleet is a cache then; and that cache, written apart."""

from dataclasses import dataclass

import numba
import numpy as np

from mme_fleet import Costs, InstanceSpec, OneHomeRouter, Simulator


@dataclass(frozen=True)
class Counts:
    requests: int
    hits: int
    loads: int
    evictions: int

    @property
    def hit_ratio(self) -> float:
        return self.hits / self.requests


def fleet_counts(trace, memory_bytes):
    """What the simulator counts over a trace that runs through `mme_fleet.Fleet`: one instance, every model's one home."""
    instance = InstanceSpec(memory_bytes, disk_bytes=trace.population.total_bytes)
    simulator = Simulator(Costs(unpacked_bytes=trace.population.sizes().__getitem__), [instance], router=OneHomeRouter)
    results = simulator.run(trace.arrivals())
    assert results.failed == 0
    return Counts(results.requests, results.hits, results.loads, results.unloads)


def lru_counts(trace, memory_bytes):
    """The same from least recently used eviction by bytes over arrays. Models that never fit are not loaded."""
    hits, loads, evictions = _lru(trace.model, trace.population.memory_bytes, memory_bytes)
    return Counts(len(trace), int(hits), int(loads), int(evictions))


@numba.njit
def _lru(model, size, budget):
    end = len(size)  # a ring through all residents; behind its end comes the least recently used
    before, after = np.full(end + 1, end), np.full(end + 1, end)
    resident = np.zeros(end, np.bool_)
    used = hits = loads = evictions = 0
    for m in model:
        if resident[m]:
            hits += 1
            after[before[m]], before[after[m]] = after[m], before[m]
        elif size[m] <= budget:
            loads += 1
            while used + size[m] > budget:
                oldest = after[end]
                after[end], before[after[oldest]] = after[oldest], end
                resident[oldest] = False
                used -= size[oldest]
                evictions += 1
            resident[m] = True
            used += size[m]
        else:
            continue
        newest = before[end]
        after[newest], before[m], after[m], before[end] = m, newest, end, m
    return hits, loads, evictions
