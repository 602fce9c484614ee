"""Distributions of sizes, times and popularity, with their parameters in the units of what they describe."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TypeAlias

import numpy as np

from mme_fleet.traffic.trace import Floats, Integers

__all__ = ["Distribution", "LoadBySize", "Lognormal", "Mixture", "Popularity", "Zipf", "check"]


def check(holds: bool, name: str, value: object, allowed: str) -> None:
    """Raise ValueError with the setting's name, the value and what is allowed, unless it holds."""
    if not holds:
        raise ValueError(f"{name} is {value!r}: use {allowed}")


@dataclass(frozen=True, slots=True)
class Lognormal:
    """A lognormal distribution, cut at both ends: what falls outside counts as the nearest bound.

    Attributes:
        median: its median.
        sigma: standard deviation of the natural logarithm; 0 for a constant.
        least: the smallest value.
        most: the greatest value.
    """

    median: float
    sigma: float
    least: float = 0.0
    most: float = math.inf

    def __post_init__(self) -> None:
        check(0 < self.median < math.inf, "median", self.median, "a finite number above 0")
        check(0 <= self.sigma < math.inf, "sigma", self.sigma, "a finite number of 0 or more")
        check(
            0 <= self.least <= self.median <= self.most, "median", self.median, f"a number from least, {self.least}, to most, {self.most}"
        )

    def sample(self, random: np.random.Generator, count: int) -> Floats:
        """Independent values."""
        return self._at(random.standard_normal(count))

    def spread(self, count: int) -> Floats:
        """The middles of ``count`` equal parts of the distribution, greatest first: a sample without chance."""
        return self._at(_normal_quantiles(count)[::-1])

    def _at(self, normal: Floats) -> Floats:
        values: Floats = np.clip(self.median * np.exp(self.sigma * normal), self.least, self.most)
        return values


@dataclass(frozen=True, slots=True)
class Mixture:
    """Lognormal distributions mixed.

    Attributes:
        parts: pairs of a weight and a distribution; weights need not sum to 1.
    """

    parts: tuple[tuple[float, Lognormal], ...]

    def __post_init__(self) -> None:
        check(bool(self.parts), "parts", self.parts, "one part or more")
        for weight, _ in self.parts:
            check(0 < weight < math.inf, "weight", weight, "a finite number above 0")

    def sample(self, random: np.random.Generator, count: int) -> Floats:
        """Independent values."""
        weights = np.array([weight for weight, _ in self.parts])
        part = random.choice(len(self.parts), count, p=weights / weights.sum())
        values = np.empty(count)
        for number, (_, distribution) in enumerate(self.parts):
            chosen = part == number
            values[chosen] = distribution.sample(random, int(chosen.sum()))
        return values

    def spread(self, count: int) -> Floats:
        """A sample without chance, greatest first: every part has its share of the ``count`` values, spread over it."""
        weights = np.cumsum([weight for weight, _ in self.parts])
        ends = [0, *np.rint(weights / weights[-1] * count).astype(np.int64).tolist()]
        spreads = [part.spread(end - start) for (_, part), start, end in zip(self.parts, ends, ends[1:], strict=False)]
        values: Floats = np.sort(np.concatenate(spreads))[::-1]
        return values


@dataclass(frozen=True, slots=True)
class Zipf:
    """The k-th most popular of all has the weight ``1 / k ** exponent``.

    Attributes:
        exponent: 0 for equal weights; real services have 0.6 to 1.2.
    """

    exponent: float

    def __post_init__(self) -> None:
        check(0 <= self.exponent < math.inf, "exponent", self.exponent, "a finite number of 0 or more")

    def spread(self, count: int) -> Floats:
        """The weights, greatest first."""
        weights: Floats = np.arange(1, count + 1, dtype=np.float64) ** -self.exponent
        return weights


@dataclass(frozen=True, slots=True)
class LoadBySize:
    """Load times that grow with the model.

    Attributes:
        fixed_seconds: what every load takes.
        download_bytes_per_second: speed of the download.
        load_bytes_per_second: speed from disk into memory.
        sigma: standard deviation of the logarithm of a factor on it all, one factor a model.
    """

    fixed_seconds: float = 0.3
    download_bytes_per_second: float = 200e6
    load_bytes_per_second: float = 500e6
    sigma: float = 0.0

    def __post_init__(self) -> None:
        check(0 <= self.fixed_seconds < math.inf, "fixed_seconds", self.fixed_seconds, "a finite number of 0 or more")
        for name in ("download_bytes_per_second", "load_bytes_per_second"):
            check(getattr(self, name) > 0, name, getattr(self, name), "a number above 0")
        check(0 <= self.sigma < math.inf, "sigma", self.sigma, "a finite number of 0 or more")

    def sample(self, random: np.random.Generator, memory_bytes: Integers) -> Floats:
        """A load time for each of these sizes."""
        seconds = self.fixed_seconds + memory_bytes / self.download_bytes_per_second + memory_bytes / self.load_bytes_per_second
        return seconds * np.exp(self.sigma * random.standard_normal(len(memory_bytes)))


Distribution: TypeAlias = Lognormal | Mixture
"""Of a size or a time."""
Popularity: TypeAlias = Lognormal | Mixture | Zipf
"""Of models among each other; only ratios count."""


def _normal_quantiles(count: int) -> Floats:
    quantile: Callable[[float], float] = NormalDist().inv_cdf
    levels: Sequence[float] = ((np.arange(count) + 0.5) / count).tolist()
    return np.fromiter(map(quantile, levels), np.float64, count)
