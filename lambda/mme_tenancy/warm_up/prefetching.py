"""One minute of prefetch: learn from new heat, choose what is due, remember it, and only then call.

Who writes what is remembered first calls; everybody else has lost the minute. A process that is cut off in between loses a minute's calls
and nothing else: what was not learned is learned by the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Protocol

from mme_facts.grammar import ArtifactName, HeatKey
from mme_tenancy.clock import Clock
from mme_tenancy.heat import HeatError, HeatReader, PoolHeat
from mme_tenancy.warm_up.plan import FleetShape
from mme_tenancy.warm_up.prefetch import Prefetch, PrefetchError, PrefetchSettings
from mme_tenancy.warm_up.sources import Candidates

__all__ = ["NamedCandidates", "Prefetched", "PrefetchStates", "Prefetching", "PrefetchingRules"]

_Name = tuple[str, str]


class PrefetchStates(Protocol):
    """Where it is kept what is remembered of each pool."""

    def get(self, pool: str) -> tuple[bytes, str] | None:
        """What is remembered, and its revision; ``None``: nothing yet."""
        ...

    def put(self, pool: str, content: bytes, revision: str | None) -> bool:
        """Write it in place of this revision, or of nothing (``None``); ``False`` if there is another one now."""
        ...


class NamedCandidates(Protocol):
    """`mme_tenancy.warm_up.sources.HeatCandidates`, as far as prefetch needs it."""

    def named(self, names: Sequence[_Name], endpoint: str) -> Candidates:
        """The models of these names that are routed to an endpoint."""
        ...


@dataclass(frozen=True, slots=True)
class PrefetchingRules:
    """How much is read for one minute.

    Attributes:
        lookback_seconds: a pool of which nothing is remembered learns from so much heat.
        recent_seconds: no older heat is listed where nothing older is missing.
        windows: of heat, at most, the oldest first; what is left is for the next minutes.
        threads: reads at the same time.
        sizes: models that are looked up, at most.
        size_seconds: a model is looked up again after this time: it may have a new version, or be routed elsewhere.
    """

    lookback_seconds: int = 86_400
    recent_seconds: int = 3600
    windows: int = 360
    threads: int = 8
    sizes: int = 500
    size_seconds: float = 21_600.0


@dataclass(frozen=True, slots=True)
class Prefetched:
    """What a minute came to.

    Attributes:
        windows: of heat that were learned from.
        models: that are remembered.
        due: those that were called.
        expected_loads: of them, those that are probably not loaded yet.
        used: models loaded in earlier minutes whose use is known now.
        wasted: models loaded in earlier minutes of which it is known now that they were loaded in vain.
        overtaken: whether another process was faster, and nothing was called.
        problems: what could not be read.
    """

    windows: int
    models: int
    due: int = 0
    expected_loads: int = 0
    used: int = 0
    wasted: int = 0
    overtaken: bool = False
    problems: tuple[str, ...] = ()

    def document(self) -> dict[str, object]:
        """As JSON can hold it."""
        return asdict(self) | {"problems": list(self.problems)}


class Prefetching:
    """Prefetch of pools, minute by minute.

    Args:
        heat: where heat lies.
        states: where it is kept what is remembered.
        source: finds how much memory models take.
        clock: time.
        settings: how uses are predicted.
        rules: how much is read.
    """

    def __init__(
        self,
        heat: HeatReader,
        states: PrefetchStates,
        source: NamedCandidates,
        clock: Clock,
        *,
        settings: PrefetchSettings | None = None,
        rules: PrefetchingRules | None = None,
    ) -> None:
        self._heat, self._states, self._source, self._clock = heat, states, source, clock
        self._settings, self._rules = settings or PrefetchSettings(), rules or PrefetchingRules()

    def tick(self, pool: str, endpoint: str, fleet: FleetShape, warm: Callable[[Sequence[_Name]], object]) -> Prefetched:
        """Do what is due for a pool.

        Args:
            pool: whose heat tells of the endpoint.
            endpoint: the endpoint's name.
            fleet: its fleet.
            warm: calls models with their sample payloads, in this order, those of them that are routed there.
        """
        stored = self._states.get(pool)
        problems: list[str] = []
        keys = self._windows(pool, self._rules.recent_seconds)
        longest = max((key.seconds for key in keys), default=0)
        if longest > self._settings.most_lag_seconds:
            return Prefetched(0, 0, problems=(f"heat has windows of {longest} s: nothing is predicted from such long ones",))
        prefetch = self._restored(stored, keys, problems)
        if (prefetch.observed_until or 0) < self._clock.time() - self._rules.recent_seconds:
            keys = self._windows(pool, self._rules.lookback_seconds)
        windows = self._learn(prefetch, keys, problems)
        self._look_up(prefetch, endpoint, problems)
        due = prefetch.due(self._clock.time(), fleet)
        if not windows and not due:
            return Prefetched(0, len(prefetch), problems=tuple(problems))
        if not self._states.put(pool, prefetch.dump(), None if stored is None else stored[1]):
            return Prefetched(windows, len(prefetch), overtaken=True, problems=tuple(problems))
        if due:
            warm([_name(each.model) for each in due])
        loads = sum(not each.loaded for each in due)
        return Prefetched(windows, len(prefetch), len(due), loads, prefetch.used, prefetch.wasted, problems=tuple(problems))

    def _windows(self, pool: str, seconds: int) -> Sequence[HeatKey]:
        """The windows of the last so many seconds, oldest first."""
        return self._heat.windows(pool, since=int(self._clock.time()) - seconds)

    def _restored(self, stored: tuple[bytes, str] | None, keys: Sequence[HeatKey], problems: list[str]) -> Prefetch:
        """What is remembered, in slots as long as the windows of heat are now."""
        settings = replace(self._settings, slot_seconds=keys[-1].seconds) if keys else self._settings
        if stored is not None:
            try:
                return Prefetch.load(stored[0], settings)
            except PrefetchError as error:
                problems.append(f"{error}; it begins anew")
        return Prefetch(settings)

    def _learn(self, prefetch: Prefetch, keys: Sequence[HeatKey], problems: list[str]) -> int:
        known = prefetch.observed_until or 0
        fresh = [key for key in keys if key.start >= known][: self._rules.windows]
        learned = 0
        with ThreadPoolExecutor(self._rules.threads, thread_name_prefix="prefetch") as threads:
            for key, heat in zip(fresh, threads.map(self._window, fresh), strict=True):
                if isinstance(heat, PoolHeat):
                    used = (f"{row.tenant}/{row.model}" for row in heat.rows if row.counts.requests)
                    learned += prefetch.observe(key.start, key.seconds, used)
                elif heat is not None:
                    problems.append(str(heat))
        return learned

    def _window(self, key: HeatKey) -> PoolHeat | HeatError | None:
        try:
            found = self._heat.get(key)
        except HeatError as error:
            return error
        return None if found is None else found[0]

    def _look_up(self, prefetch: Prefetch, endpoint: str, problems: list[str]) -> None:
        now = self._clock.time()
        names = prefetch.unsized(now, after_seconds=self._rules.size_seconds, most=self._rules.sizes)
        if not names:
            return
        found = self._source.named([_name(name) for name in names], endpoint)
        problems += found.problems
        # What was not found cannot be called, unless it could just not be read.
        sizes = {} if found.problems else dict.fromkeys(names, 0)
        prefetch.size(sizes | _sizes(found), now)


def _sizes(found: Candidates) -> dict[str, int]:
    """Memory of each model that can be called; of several versions the largest is meant."""
    sizes: dict[str, int] = {}
    for one in found.candidates:
        if one.sample and not one.retired and not one.dedicated:
            artifact = ArtifactName.parse(one.target_model)
            name = f"{artifact.tenant}/{artifact.model}"
            sizes[name] = max(one.bytes, sizes.get(name, 0))
    return sizes


def _name(model: str) -> _Name:
    tenant, _, name = model.partition("/")
    return tenant, name
