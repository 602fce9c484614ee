"""Bounds of a warm-up, and where it turns from one behaviour to another."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

from mme_facts import warm_up as facts

__all__ = ["WarmUpSettings"]

_SHARES = ("failed_share", "loaded_share", "nothing_moved_share")
_NOT_NEGATIVE = ("unknown_load_seconds", "not_ready_seconds", "recovered_points")
_POSITIVE = ("unknown_load_bytes_per_second", "back_off_seconds", "most_back_off_seconds", "queued_factor", "nothing_moved_loads")
_COUNTS = ("attempts", "most_back_offs", "least_failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUpSettings(facts.WarmUpSettings):
    """The bounds that users set (`mme_facts.warm_up.WarmUpSettings`), and constants of the course.

    The defaults are those that did well with all routers that were simulated (``benchmarks/warm_up``).

    Attributes:
        attempts: how often a model is called at most, when it is throttled or not ready.
        not_ready_seconds: a model that was not ready is called again after this time.
        back_off_seconds: after a throttle nothing is called for this time, and twice as long after each further one in succession.
        most_back_off_seconds: but no longer than this.
        most_back_offs: so many of them in succession end the warm-up.
        least_failed: models that must have failed before failures end the warm-up,
        failed_share: and the share of all that were answered by then.
        loaded_share: an answer that takes this share of the model's load time longer than the model's answers do is taken for a load.
        queued_factor: a load that takes so many times its load time has waited behind others: fewer calls at once from then on, down to
            what one instance can do, for the router may bring all to one.
        nothing_moved_loads: when so many loads were to be expected, and
        nothing_moved_share: a smaller share of them than this was seen, nothing has moved, and the warm-up ends. Models that users have
            probably brought back themselves are not among the expected ones; those that were not resident before are loaded anyhow.
        recovered_points: ModelCacheHit that is so near what it was before (percentage points) in two whole minutes ends the warm-up.
        unknown_load_seconds: a load whose time was not measured is taken to last so long,
        unknown_load_bytes_per_second: and longer by the time for its bytes.

    Raises:
        ValueError: a value is out of range.
    """

    attempts: int = 3
    not_ready_seconds: float = 5.0
    back_off_seconds: float = 1.0
    most_back_off_seconds: float = 20.0
    most_back_offs: int = 6
    least_failed: int = 10
    failed_share: float = 0.5
    loaded_share: float = 0.5
    queued_factor: float = 2.0
    nothing_moved_loads: float = 12.0
    nothing_moved_share: float = 0.35
    recovered_points: float = 0.5
    unknown_load_seconds: float = 1.0
    unknown_load_bytes_per_second: float = 140e6

    def __post_init__(self) -> None:
        facts.WarmUpSettings.__post_init__(self)
        for name in _SHARES:
            self._check(name, 0 < getattr(self, name) <= 1, "more than 0, at most 1")
        for name in _NOT_NEGATIVE:
            self._check(name, 0 <= getattr(self, name) < math.inf, "a finite number of 0 or more")
        for name in _POSITIVE:
            self._check(name, 0 < getattr(self, name) < math.inf, "a finite number above 0")
        for name in _COUNTS:
            self._check(name, getattr(self, name) >= 1 and getattr(self, name) % 1 == 0, "a whole number of 1 or more")
        least = self.back_off_seconds
        self._check("most_back_off_seconds", self.most_back_off_seconds >= least, f"back_off_seconds, which is {least}, or more")

    @classmethod
    def of(cls, bounds: facts.WarmUpSettings) -> WarmUpSettings:
        """These bounds, with the defaults for the rest."""
        return cls(**asdict(bounds))

    def calls_per_second(self, requests_per_second: float) -> float:
        """Calls that a warm-up makes in a second at most, while users make so many requests."""
        return max(self.least_calls_per_second, self.traffic_share * requests_per_second)

    def unknown_load(self, size_bytes: int) -> float:
        """Seconds that a load of so many bytes takes, when none was measured."""
        return self.unknown_load_seconds + size_bytes / self.unknown_load_bytes_per_second

    def _check(self, name: str, fits: bool, allowed: str) -> None:
        if not fits:
            raise ValueError(f"{name} is {getattr(self, name)}: use {allowed}")
