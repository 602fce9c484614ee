"""What matters of a trace for caches and fleets, in a few numbers that can be compared between traces."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mme_fleet.traffic.trace import Floats, Trace

__all__ = ["TraceShape", "shape_of"]

_MINUTE = 60.0
_HOUR = 3600.0
_DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class TraceShape:
    """The shape of a trace.

    Attributes:
        top_shares: share of the model -> share of all requests that the most popular ones of that share get.
        hourly: requests of each hour of the day, as a share of all; 24 entries.
        peaks: share of the minutes -> share of all requests that come in the busiest minutes of that share.
        reuse: seconds -> share of the requests whose model had been asked for within so long before.
        hits: share of the bytes of all models -> hit ratio of a cache of that size which evicts the least recently used models.
        working_set: seconds -> mean share of the bytes of all models that a window of that length asks for.
    """

    top_shares: dict[float, float]
    hourly: tuple[float, ...]
    peaks: dict[float, float]
    reuse: dict[float, float]
    hits: dict[float, float]
    working_set: dict[float, float]

    def distance(self, other: TraceShape) -> float:
        """Mean absolute difference of `peaks`, `reuse`, `hits` and `working_set`; 0 for equal ones."""
        mine, theirs = (
            np.array([*it.peaks.values(), *it.reuse.values(), *it.hits.values(), *it.working_set.values()]) for it in (self, other)
        )
        return float(np.abs(mine - theirs).mean())


def shape_of(
    trace: Trace,
    *,
    shares: Sequence[float] = (0.01, 0.05, 0.1, 0.2),
    seconds: Sequence[float] = (10, 30, 60, 300, 900, 3600, 14_400, 43_200),
    capacities: Sequence[float] = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5),
    samples: int = 4000,
) -> TraceShape:
    """The shape of a trace with at least one request.

    The working set follows from the times between uses (Denning's average footprint, both ends of the trace counted as uses), hits
    from the bytes used between two uses (stack distances), of requests at even distances.

    Args:
        trace: the trace.
        shares: of models and of minutes.
        seconds: lengths of the windows.
        capacities: shares of the bytes of all models.
        samples: how many requests are looked at for `TraceShape.hits`; so many give an error of ``0.5 / sqrt(samples)`` at most.

    Raises:
        ValueError: there is no request.
    """
    if not len(trace):
        raise ValueError("the trace has no request: a shape needs one at least")
    requests = np.sort(trace.requests_per_model)[::-1]
    running = np.cumsum(requests) / len(trace)
    top = {share: float(running[max(0, round(share * len(requests)) - 1)]) for share in shares}
    minutes = np.bincount((trace.seconds // _MINUTE).astype(np.int64), minlength=math.ceil(trace.duration_seconds / _MINUTE))
    busiest = np.cumsum(np.sort(minutes)[::-1]) / len(trace)
    hours = np.bincount((trace.seconds % _DAY // _HOUR).astype(np.int64), minlength=24) / len(trace)
    order = np.argsort(trace.model, kind="stable")
    model, times = trace.model[order], trace.seconds[order]
    first = np.concatenate([[True], model[1:] != model[:-1]])
    since = np.diff(times, prepend=0.0)
    reuse_times = since[~first]
    weights = trace.population.memory_bytes / trace.population.total_bytes
    last = np.concatenate([first[1:], [True]])
    gaps = np.concatenate([reuse_times, times[first], trace.duration_seconds - times[last]])
    bytes_ = weights[np.concatenate([model[~first], model[first], model[last]])]
    used = float(weights[model[first]].sum())
    return TraceShape(
        top_shares=top,
        hourly=tuple(hours.tolist()),
        peaks={share: float(busiest[max(0, round(share * len(minutes)) - 1)]) for share in shares},
        reuse={float(limit): float((reuse_times <= limit).sum() / len(trace)) for limit in seconds},
        hits=_hits(trace, capacities, samples),
        working_set={float(limit): used - _absent(gaps, bytes_, limit, trace.duration_seconds) for limit in seconds},
    )


def _hits(trace: Trace, capacities: Sequence[float], samples: int) -> dict[float, float]:
    sizes = trace.population.memory_bytes
    positions = np.unique(np.linspace(0, len(trace) - 1, min(samples, len(trace))).astype(np.int64))
    last_use = np.full(len(trace.population), -1)
    needed = np.full(len(positions), np.inf)
    done = 0
    for number, position in enumerate(positions.tolist()):
        last_use[trace.model[done:position]] = np.arange(done, position)  # of several uses the last one counts
        done = position
        model = trace.model[position]
        if last_use[model] >= 0:
            needed[number] = sizes[last_use >= last_use[model]].sum()
    total = trace.population.total_bytes
    return {float(share): float((needed <= share * total).mean()) for share in capacities}


def _absent(gaps: Floats, weights: Floats, window: float, duration: float) -> float:
    """Mean share of the bytes of used models that a window of this length does not ask for."""
    if window >= duration:
        return 0.0
    long = gaps > window
    return float(((gaps[long] - window) * weights[long]).sum() / (duration - window))
