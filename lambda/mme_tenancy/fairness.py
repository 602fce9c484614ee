"""Fairness inside one process: what a tenant may send, hold and load at a time, and a rest for models that keep failing.

The limits hold in one process, not for the whole platform: N processes of an application admit up to N times as much. A container
of a function takes one request at a time, so there they hold hardly anybody: the gateway's usage plans limit a tenant as a whole.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from mme_tenancy.clock import Clock
from mme_tenancy.errors import ModelFailedError, ModelLoadingError, TenancyError, ThrottledError

__all__ = ["Breaker", "Fairness", "Limits", "Turn"]

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")
_REMEMBERED = 20_000
"""Tenants, and models, that are remembered; the least recently used is forgotten, which only ever favours it."""
_BURST_SECONDS = 1.0
"""So much of a tenant's rate may come at once."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one tenant may do in this process.

    Attributes:
        requests_per_second: sustained rate; a second's worth may come at once, at least one request.
        in_flight: requests under way at the same time.
        cold_loads: models at the same time that are being loaded on its behalf, or may be: those not known to be in memory.
    """

    requests_per_second: float
    in_flight: int = 64
    cold_loads: int = 8

    def __post_init__(self) -> None:
        for name in ("requests_per_second", "in_flight", "cold_loads"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} {getattr(self, name)!r} is not allowed: use a number above 0")


@dataclass(frozen=True, slots=True)
class Breaker:
    """When a model that keeps failing is left alone.

    Attributes:
        failures: so many in a row open the circuit.
        rest_seconds: so long it stays open the first time; doubled each time the trial after it fails.
        max_rest_seconds: the longest rest.
    """

    failures: int = 5
    rest_seconds: float = 2.0
    max_rest_seconds: float = 60.0

    def rest(self, opened: int) -> float:
        """How long the circuit stays open when it opens for the time number ``opened`` (from 0) in a row, in seconds."""
        return min(self.rest_seconds * 2.0 ** min(opened, 30), self.max_rest_seconds)


@dataclass(slots=True)
class _Account:
    """A tenant's: tokens as of ``counted_at``, requests under way, and how many requests hold each model that may be cold."""

    tokens: float
    counted_at: float
    in_flight: int
    cold: dict[str, int]


@dataclass(slots=True)
class _Health:
    """A model's: since when it is known to be in memory, failures in a row, and the circuit's state."""

    warm_at: float | None = None
    failures: int = 0
    opened: int = 0
    open_until: float = 0.0
    on_trial: bool = False


class _Recent(Generic[_K, _V]):
    """A bounded dictionary that makes what is missing; what `keep` names is not forgotten."""

    def __init__(self, make: Callable[[], _V], keep: Callable[[_V], bool]) -> None:
        self._make, self._keep = make, keep
        self._values: OrderedDict[_K, _V] = OrderedDict()

    def __getitem__(self, key: _K) -> _V:
        value = self._values.get(key)
        if value is None:
            value = self._values[key] = self._make()
            self._forget()
        self._values.move_to_end(key)
        return value

    def _forget(self) -> None:
        for _ in range(len(self._values) - _REMEMBERED):
            key, value = self._values.popitem(last=False)
            if self._keep(value):
                self._values[key] = value


class Turn:
    """One request's turn: tells `Fairness` how it ended.

    Attributes:
        cold: whether the model was not known to be in memory when the turn began.
        trial: whether it is the one request that tries the model after a rest.
    """

    def __init__(self, *, cold: bool, trial: bool = False) -> None:
        self.cold, self.trial = cold, trial
        self.answered = False
        self.blamed = False

    def answer(self) -> None:
        """The model answered, be it that it refused the input: it is in memory and well."""
        self.answered = True

    def blame(self) -> None:
        """The model failed by its own fault."""
        self.blamed = True


class Fairness:
    """Admits requests by the limits of their tenant and the health of their model; safe for threads.

    Args:
        clock: time.
        breaker: when a failing model is left alone.
        warm_seconds: so long after its last answer a model counts as in memory.
    """

    def __init__(self, clock: Clock, *, breaker: Breaker | None = None, warm_seconds: float = 300.0) -> None:
        self._clock = clock
        self._breaker = Breaker() if breaker is None else breaker
        self._warm_seconds = warm_seconds
        self._lock = threading.Lock()
        self._accounts: _Recent[str, _Account] = _Recent(
            lambda: _Account(math.inf, clock.monotonic(), 0, {}), lambda account: account.in_flight > 0
        )
        self._health: _Recent[tuple[str, str], _Health] = _Recent(_Health, lambda health: health.on_trial)

    @contextmanager
    def turn(self, tenant: str, target_model: str, limits: Limits, *, resident: bool = False) -> Iterator[Turn]:
        """A request's turn: taken now or refused, given back at the end.

        Args:
            tenant: its id.
            target_model: what is invoked.
            limits: the tenant's limits.
            resident: whether it is always in memory, as a component of its own is: its requests never wait for a load.

        Raises:
            ThrottledError: the tenant sends too fast or holds too many requests (429, with a time to try again).
            ModelLoadingError: too many models are being loaded for the tenant (503, with a time to try again).
            ModelFailedError: the model kept failing and rests (502, with a time to try again).
        """
        with self._lock:
            account, health = self._accounts[tenant], self._health[tenant, target_model]
            turn = self._begin(account, health, target_model, limits, resident)
        try:
            yield turn
        finally:
            with self._lock:
                self._end(account, health, target_model, turn)

    def _begin(self, account: _Account, health: _Health, target_model: str, limits: Limits, resident: bool) -> Turn:
        now = self._clock.monotonic()
        burst = max(limits.requests_per_second * _BURST_SECONDS, 1.0)
        account.tokens = min(account.tokens + (now - account.counted_at) * limits.requests_per_second, burst)
        account.counted_at = now
        cold = not resident and (health.warm_at is None or now - health.warm_at >= self._warm_seconds)
        refused = self._refusal(account, health, target_model, limits, now, cold=cold)
        if refused is not None:
            raise refused
        account.tokens -= 1.0
        account.in_flight += 1
        health.on_trial = trial = health.open_until > 0.0
        if cold:
            account.cold[target_model] = account.cold.get(target_model, 0) + 1
        return Turn(cold=cold, trial=trial)

    def _refusal(
        self, account: _Account, health: _Health, target_model: str, limits: Limits, now: float, *, cold: bool
    ) -> TenancyError | None:
        if account.tokens < 1.0:
            return ThrottledError(
                f"the tenant sends more than its {limits.requests_per_second:g} requests a second: slow down",
                retry_after_seconds=math.ceil((1.0 - account.tokens) / limits.requests_per_second),
            )
        if account.in_flight >= limits.in_flight:
            return ThrottledError(f"{limits.in_flight} requests of the tenant are under way already: wait for one", retry_after_seconds=1)
        if now < health.open_until or (health.open_until > 0.0 and health.on_trial):
            rest = max(health.open_until - now, 1.0)
            return ModelFailedError("the model kept failing and is given a rest: try again later", retry_after_seconds=math.ceil(rest))
        if cold and target_model not in account.cold and len(account.cold) >= limits.cold_loads:
            return ModelLoadingError(
                f"{limits.cold_loads} models of the tenant are being loaded already: try again in a few seconds", retry_after_seconds=2
            )
        return None

    def _end(self, account: _Account, health: _Health, target_model: str, turn: Turn) -> None:
        now = self._clock.monotonic()
        account.in_flight -= 1
        if turn.cold:
            account.cold[target_model] -= 1
            if not account.cold[target_model]:
                del account.cold[target_model]
        if turn.answered:
            health.warm_at, health.failures, health.opened, health.open_until, health.on_trial = now, 0, 0, 0.0, False
        elif health.open_until > 0.0 and not turn.trial:
            pass  # It began before the circuit opened: its failure says nothing about the model after the rest.
        elif turn.blamed:
            health.failures += 1
            if turn.trial or health.failures >= self._breaker.failures:
                health.open_until = now + self._breaker.rest(health.opened)
                health.opened, health.failures, health.on_trial = health.opened + 1, 0, False
        else:
            health.on_trial = False
