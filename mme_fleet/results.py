"""What came of a simulation."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from mme_fleet.events import ReplyError

__all__ = ["RequestAnswer", "SimulationResults"]


def _numbers() -> array[float]:
    return array("d")


@dataclass(slots=True)
class SimulationResults:
    """Counts and times of one run. Only the callers' requests count, not those that a policy asked, unless it is said.

    Attributes:
        requests: that came.
        hits: of them, those that were forwarded without waiting for a load.
        errors: those that failed, by error code and the container's status (``None`` but for ``ModelError``).
        latencies: seconds from arrival to answer of each that succeeded, in the order of the answers.
        cold_at: when those came that waited for a load and were forwarded, in the order of being forwarded.
        waits: seconds that each of these waited.
        refused_at: when those came that got an error and were never forwarded, in the order of the answers.
        asked: requests of policies.
        downloads: begun by all instances, for callers and policies.
        loads: completed by them.
        unloads: begun by them: evictions, and without cache those of models that have answered.
        ended_at: virtual time of the run's end.
    """

    requests: int = 0
    hits: int = 0
    errors: Counter[tuple[str, int | None]] = field(default_factory=Counter)
    latencies: array[float] = field(default_factory=_numbers)
    cold_at: array[float] = field(default_factory=_numbers)
    waits: array[float] = field(default_factory=_numbers)
    refused_at: array[float] = field(default_factory=_numbers)
    asked: int = 0
    downloads: int = 0
    loads: int = 0
    unloads: int = 0
    ended_at: float = 0.0

    @property
    def hit_ratio(self) -> float:
        """Hits per request; 1 without requests."""
        return self.hits / self.requests if self.requests else 1.0

    @property
    def failed(self) -> int:
        """Requests that got an error."""
        return self.errors.total()

    @property
    def answered(self) -> int:
        """Requests that got any answer."""
        return len(self.latencies) + self.errors.total()

    def latency(self, share: float) -> float:
        """The latency that this share of the successful requests did not exceed, in seconds, such as ``latency(0.99)``."""
        return quantile(self.latencies, share)

    def wait(self, share: float) -> float:
        """The same of the waits for loads."""
        return quantile(self.waits, share)


@dataclass(frozen=True, slots=True)
class RequestAnswer:
    """What a policy hears of a request that it asked.

    Attributes:
        model: which was asked for.
        seconds: from asking to the answer.
        cold: whether it waited for a load.
        instance: which answered; ``None`` if the request was forwarded to none.
        error: why it failed, if it did.
    """

    model: str
    seconds: float
    cold: bool
    instance: str | None
    error: ReplyError | None


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed.

    Raises:
        ValueError: there are no values, or the share is not above 0 and at most 1.
    """
    if not values:
        raise ValueError("there are no values: a run without such requests has no quantiles")
    if not 0 < share <= 1:
        raise ValueError(f"the share is {share}: use more than 0, at most 1")
    ordered = sorted(values)
    return ordered[math.ceil(share * len(ordered)) - 1]
