"""What the runs of a cell say, and whether it holds its bounds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.warm_up.cells import CHANGES, Cell
from benchmarks.warm_up.runs import BEFORE
from benchmarks.warm_up.variants import BAD, START_SECONDS, VARIANTS

__all__ = ["BOUNDS", "CellResult", "Measured", "bad_variants", "judge"]

BOUNDS: Mapping[str, str] = {
    "after_first_minute": ">= 80 % of the extra cold requests of minutes 1 to 5 avoided",
    "five_minutes": ">= 35 % of those of all five minutes avoided (25 % after a loss, with one home)",
    "of_clairvoyant": ">= 75 % of what a clairvoyant plan avoids",
    "harm_mean": "<= +0.1 points of misses in any later window, mean of the starts",
    "harm_worst": "<= the noise's 95th percentile + 0.2 points, worst start and window",
    "traffic": "calls <= 25 % of users' requests, or 20/s",
    "done": "done within 3 minutes",
    "time": "within 1.5 times the bound of bandwidth, concurrency and calls",
    "bytes_back": ">= 85 % of the resident bytes are back 2 minutes after an update",
    "heat_back": ">= 98 % of the heat is back 1 minute after an update",
}
"""What is judged."""

_LEAST_EXTRA = 30.0
_AFTER_FIRST_MINUTE, _FIVE_MINUTES, _AFTER_LOSS = 0.8, 0.35, 0.25
_OF_CLAIRVOYANT = 0.75
_HARM_WINDOWS = ((5, 15), (15, 30), (30, 60))
_HARM_MEAN, _HARM_WORST, _NOISE_SHARE = 0.1, 0.2, 95
_OVERLOADED = 0.05
_TRAFFIC_SHARE, _CALLS_PER_SECOND, _TRAFFIC_WINDOW_SECONDS = 0.25, 20.0, 10.0
_DONE_SECONDS, _TIMES_BOUND = 180.0, 1.5
_BYTES_BACK, _HEAT_BACK = 0.85, 0.98


@dataclass(frozen=True, eq=False)
class Measured:
    """All outcomes of a cell: variant -> one for each start."""

    cell: Cell
    outcomes: Mapping[str, Sequence[Mapping[str, Any]]]

    def table(self, variant: str, what: str) -> npt.NDArray[np.float64]:
        """``misses`` or ``requests``: ``[start, minute]``."""
        return np.array([outcome[what] for outcome in self.outcomes[variant]], np.float64)

    def ratio(self, variant: str) -> npt.NDArray[np.float64]:
        """Mean miss ratio in every minute, in percent."""
        percent: npt.NDArray[np.float64] = (
            100 * self.table(variant, "misses").sum(0) / np.maximum(1, self.table(variant, "requests").sum(0))
        )
        return percent

    def added(self, variant: str, first: int, last: int) -> float:
        """Cold requests a run beyond those of a perfect copy of all caches, from one minute to another."""
        more = self.table(variant, "misses")[:, first:last] - self.table("reference", "misses")[:, first:last]
        return float(more.sum(1).mean())

    def reduction(self, variant: str, first: int, last: int) -> float:
        """The share of them that a variant avoids."""
        none = self.added("none", first, last)
        return 1 - self.added(variant, first, last) / none if none > 0 else math.nan

    def harm(self, variant: str, first: int, last: int) -> npt.NDArray[np.float64]:
        """Points of the miss ratio above that without a warm-up, for each start."""
        return self._points(variant, first, last) - self._points("none", first, last)

    def _points(self, variant: str, first: int, last: int) -> npt.NDArray[np.float64]:
        points: npt.NDArray[np.float64] = (
            100 * self.table(variant, "misses")[:, first:last].sum(1) / np.maximum(1, self.table(variant, "requests")[:, first:last].sum(1))
        )
        return points

    @property
    def before(self) -> float:
        """Miss ratio before the change."""
        return float(self.table(BEFORE, "misses").sum() / max(1.0, self.table(BEFORE, "requests").sum()))

    def mean(self, variant: str, what: str) -> float:
        """Mean of a value over the starts."""
        return float(np.mean([outcome[what] for outcome in self.outcomes[variant]]))

    def traffic(self, variant: str) -> float:
        """Calls in the busiest ten seconds, as a share of what is allowed then."""
        greatest = 0.0
        for outcome in self.outcomes[variant]:
            for number, calls in enumerate(outcome["calls"]):
                minute = min(int(number * _TRAFFIC_WINDOW_SECONDS // 60), len(outcome["requests"]) - 1)
                allowed = max(_CALLS_PER_SECOND, _TRAFFIC_SHARE * outcome["requests"][minute] / 60) * _TRAFFIC_WINDOW_SECONDS
                greatest = max(greatest, calls / allowed)
        return greatest


@dataclass(slots=True)
class CellResult:
    """A row of the table.

    Attributes:
        cell: which.
        before: miss ratio before the change.
        overloaded: it is too high to judge the cell.
        extra: cold requests a run because of the change, without a warm-up: in all five minutes, in minutes 1 to 5.
        reduction: share of the former that the warm-up, the floor and the clairvoyant plan avoid.
        later: the same of the latter.
        harm: mean points in each later window.
        harm_worst: the worst start and window.
        noise: what is allowed there by the noise.
        traffic: calls in the busiest ten seconds, as a share of what is allowed.
        seconds: from the change to the end of the warm-up, the slowest start.
        times_bound: its time as a multiple of its bound.
        bytes_back: share of the bytes.
        heat_back: share of the heat.
        judged: bounds that the cell is judged by -> whether it holds them.
    """

    cell: Cell
    before: float
    overloaded: bool
    extra: tuple[float, float]
    reduction: Mapping[str, float]
    later: Mapping[str, float]
    harm: Sequence[float]
    harm_worst: float
    noise: float
    traffic: float
    seconds: float
    times_bound: float
    bytes_back: float
    heat_back: float
    judged: dict[str, bool] = field(default_factory=dict)

    @property
    def missed(self) -> list[str]:
        """Bounds that it misses."""
        return [name for name, holds in self.judged.items() if not holds]


def judge(measured: Measured, variant: str = "warm-up") -> CellResult:
    """What a cell has come to."""
    minutes = VARIANTS[variant].minutes
    windows = [window for window in _HARM_WINDOWS if window[1] <= minutes]
    harms = [measured.harm(variant, *window) for window in windows]
    noises = [np.percentile(np.abs(measured.harm("noise", *window)), _NOISE_SHARE) for window in windows]
    beyond = [float(harm.max() - noise) for harm, noise in zip(harms, noises, strict=True)]
    worst = int(np.argmax(beyond)) if beyond else 0
    names = (variant, "floor", "clairvoyant")
    outcomes = measured.outcomes[variant]
    least = sum(outcome["least_seconds"] for outcome in outcomes)
    running = sum(max(0.0, outcome["seconds"] - START_SECONDS) for outcome in outcomes)
    result = CellResult(
        cell=measured.cell,
        before=measured.before,
        overloaded=measured.before > _OVERLOADED,
        extra=(measured.added("none", 0, 5), measured.added("none", 1, 5)),
        reduction={name: measured.reduction(name, 0, 5) for name in names},
        later={name: measured.reduction(name, 1, 5) for name in names},
        harm=[float(harm.mean()) for harm in harms],
        harm_worst=float(harms[worst].max()) if harms else math.nan,
        noise=float(noises[worst]) if harms else math.nan,
        traffic=measured.traffic(variant),
        seconds=max(outcome["seconds"] for outcome in outcomes),
        times_bound=running / least if least else math.nan,
        bytes_back=measured.mean(variant, "bytes_back"),
        heat_back=measured.mean(variant, "heat_back"),
    )
    if not result.overloaded:
        result.judged = dict(_judged(result, variant))
    return result


def _judged(result: CellResult, variant: str) -> Iterator[tuple[str, bool]]:
    cell, change = result.cell, CHANGES[result.cell.change]
    if result.extra[1] >= _LEAST_EXTRA:
        yield "after_first_minute", result.later[variant] >= _AFTER_FIRST_MINUTE
    if result.extra[0] >= _LEAST_EXTRA:
        if change.new:
            yield "five_minutes", result.reduction[variant] >= _FIVE_MINUTES
        elif cell.fleet.router == "one home":
            yield "five_minutes", result.reduction[variant] >= _AFTER_LOSS
        yield "of_clairvoyant", result.reduction[variant] >= _OF_CLAIRVOYANT * result.reduction["clairvoyant"]
    if result.harm:
        yield "harm_mean", max(result.harm) <= _HARM_MEAN
        yield "harm_worst", result.harm_worst <= result.noise + _HARM_WORST
    yield "traffic", result.traffic <= 1.0
    if not math.isnan(result.times_bound):
        yield "done", result.seconds - START_SECONDS <= _DONE_SECONDS
        yield "time", result.times_bound <= _TIMES_BOUND
    if change.update:
        yield "bytes_back", result.bytes_back >= _BYTES_BACK
        yield "heat_back", result.heat_back >= _HEAT_BACK


def bad_variants(measured: Sequence[Measured]) -> dict[str, dict[str, int]]:
    """Bad variant -> bound -> cells that miss it."""
    missed: dict[str, dict[str, int]] = {name: {} for name in BAD}
    for one in measured:
        for name in BAD:
            for bound in judge(one, name).missed:
                missed[name][bound] = missed[name].get(bound, 0) + 1
    return missed
