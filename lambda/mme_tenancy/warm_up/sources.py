"""What a warm-up may choose from: the models that heat knows, with what the registry knows of them.

Heat is read from the newest window back, and no further than until what was found fills the fleet: the first call of a warm-up waits for
it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Protocol, TypeVar

from mme_facts.grammar import ArtifactName, HeatKey
from mme_tenancy.clock import Clock
from mme_tenancy.heat import HeatRange, HeatReader, PoolHeat
from mme_tenancy.routes import Model, Route
from mme_tenancy.versions import State, Version
from mme_tenancy.warm_up.plan import Candidate

__all__ = ["Candidates", "HeatCandidates", "SourceRules", "VersionOutline", "WarmUpRecords", "probable_last_use", "probable_rate"]

_T = TypeVar("_T")
_R = TypeVar("_R")
_Name = tuple[str, str]
_INVOKED = frozenset({State.READY, State.ACTIVE})


def probable_last_use(end: float, seconds: float, requests: int) -> float:
    """When a model was last used that had so many requests in its newest window.

    Of n requests at random moments the last is expected then; it tells the models of one window apart.

    Args:
        end: of the window, epoch seconds.
        seconds: its length.
        requests: 1 or more.
    """
    return end - seconds / (requests + 1)


def probable_rate(recent: int, recent_seconds: float, requests: int, seconds: float) -> float:
    """Requests a second that users make of a model: those of the recent time if there are any, else those of all the time.

    Args:
        recent: requests of the recent time.
        recent_seconds: how long that is.
        requests: all requests.
        seconds: in how long.
    """
    return recent / recent_seconds if recent else requests / max(seconds, 1)


@dataclass(frozen=True, slots=True)
class VersionOutline:
    """A version without its sample payload, which is most of its record.

    Attributes:
        state: where it is in the state machine.
        size_bytes: size of the artifact.
        memory_bytes: what it takes in the container, where the container reports it.
        load_seconds: how long the first invocation took, which loads and answers; ``None`` if that was not measured.
        sample: whether it has a sample payload.
    """

    state: State
    size_bytes: int
    memory_bytes: int | None
    load_seconds: float | None
    sample: bool


class WarmUpRecords(Protocol):
    """Many records of the registry at once; those that are not there are left out."""

    def models(self, names: Sequence[_Name]) -> Mapping[_Name, Model]:
        """Models by tenant and model."""
        ...

    def outlines(self, names: Sequence[ArtifactName]) -> Mapping[ArtifactName, VersionOutline]:
        """Versions without their payloads."""
        ...

    def versions(self, names: Sequence[ArtifactName]) -> Mapping[ArtifactName, Version]:
        """Versions with all they have."""
        ...


@dataclass(frozen=True, slots=True)
class SourceRules:
    """How much is read.

    Attributes:
        lookback_seconds: older heat says nothing about what is loaded.
        recent_seconds: the rate of a model that is used in this newest part is counted here, that of all others over all that was read.
        seconds: after this time nothing more is read, whatever was found by then.
        batch: records of one read, at most 100.
        threads: reads at the same time.
    """

    lookback_seconds: int = 86_400
    recent_seconds: int = 3600
    seconds: float = 2.0
    batch: int = 100
    threads: int = 8


@dataclass(frozen=True, slots=True)
class Candidates:
    """What was found.

    Attributes:
        candidates: last used first, as moments of the machine's clock.
        windows: how many windows of heat were read.
        newest: end of the newest of them, epoch seconds; ``None`` if there is none.
        unknown: models with heat that have no record or no route any more, and versions without a record.
        elsewhere: those whose route leads to another shared endpoint.
        problems: what could not be read and is missing in it.
    """

    candidates: tuple[Candidate, ...]
    windows: int
    newest: int | None
    unknown: int = 0
    elsewhere: int = 0
    problems: tuple[str, ...] = ()


@dataclass(slots=True)
class _Use:
    """A model's use in the windows read so far, newest first."""

    last_used: float
    recent: int = 0
    requests: int = 0
    service_seconds: float = math.inf


class HeatCandidates:
    """Reads candidates.

    Args:
        heat: where heat lies.
        records: the registry.
        clock: time.
        scale: seconds of the heat's clock a real second, above 1 under a local cloud whose clock runs faster.
        rules: how much is read.
    """

    def __init__(
        self, heat: HeatReader, records: WarmUpRecords, clock: Clock, *, scale: float = 1.0, rules: SourceRules | None = None
    ) -> None:
        self._heat, self._records, self._clock, self._scale = heat, records, clock, scale
        self._rules = rules or SourceRules()

    def read(self, pool: str, endpoint: str, *, enough_bytes: float) -> Candidates:
        """The models of a pool that are routed to an endpoint and were used lately.

        A window or a record that cannot be read is missing in the answer, which says so. If nothing was found because of that, the error
        is raised.

        Args:
            pool: whose heat.
            endpoint: where the routes lead.
            enough_bytes: heat further back is not read once the models that were found take so much memory.
        """
        return _Reading(self._heat, self._records, self._clock, self._scale, self._rules, endpoint).read(pool, enough_bytes)

    def named(self, names: Sequence[_Name], endpoint: str) -> Candidates:
        """The models of these names, in their order, as if all were used alike just now: for a short list that somebody chose."""
        reading = _Reading(self._heat, self._records, self._clock, self._scale, self._rules, endpoint)
        return reading.named(list(dict.fromkeys(names)))


class _Reading:
    """One read, and what it found so far."""

    def __init__(self, heat: HeatReader, records: WarmUpRecords, clock: Clock, scale: float, rules: SourceRules, endpoint: str) -> None:
        self._heat, self._records, self._clock, self._scale, self._rules, self._endpoint = heat, records, clock, scale, rules, endpoint
        self._use: dict[_Name, _Use] = {}
        self._seconds = Counter[str]()
        self._models: dict[_Name, Model | None] = {}
        self._outlines: dict[ArtifactName, VersionOutline] = {}
        self._problems: list[str] = []
        self._first_error: Exception | None = None

    def read(self, pool: str, enough_bytes: float) -> Candidates:
        now = self._clock.time()
        until = self._clock.monotonic() + self._rules.seconds
        keys = sorted(self._heat.windows(pool, since=int(now) - self._rules.lookback_seconds), key=lambda key: -key.end)
        newest = keys[0].end if keys else None
        windows, left_bytes = 0, enough_bytes
        with ThreadPoolExecutor(self._rules.threads, thread_name_prefix="warm-up-source") as threads:
            for part in self._parts(keys):
                heats = [heat for heat in self._each(threads, self._window, part) if heat is not None]
                windows += len(heats)
                left_bytes = self._look_up(threads, self._count(heats, newest or 0), left_bytes, until)
                if left_bytes <= 0 or self._clock.monotonic() >= until:
                    break
        if left_bytes > 0 and self._clock.monotonic() >= until:
            self._problems.append("not all heat and records were read: there was no time")
        return self._candidates(windows, newest, list(self._models))

    def named(self, names: list[_Name]) -> Candidates:
        now = self._clock.time()
        self._use = {name: _Use(now, recent=1) for name in names}
        self._seconds["recent"] = self._rules.recent_seconds
        with ThreadPoolExecutor(self._rules.threads, thread_name_prefix="warm-up-source") as threads:
            self._look_up(threads, names, math.inf, math.inf)
        return self._candidates(0, None, names)

    def _parts(self, keys: Sequence[HeatKey]) -> Iterator[list[HeatKey]]:
        """Windows newest first, in parts of about the recent time each."""
        rest = iter(keys)
        while first := next(rest, None):
            more = max(1, self._rules.recent_seconds // first.seconds) - 1
            yield [first, *islice(rest, more)]

    def _window(self, key: HeatKey) -> PoolHeat | None:
        found = self._heat.get(key)
        return None if found is None else found[0]

    def _each(self, threads: ThreadPoolExecutor, read: Callable[[_T], _R], parts: Iterable[_T]) -> Iterator[_R]:
        """``read`` of each part, those that failed left out and told of."""
        for future in [threads.submit(read, part) for part in parts]:
            try:
                yield future.result()
            except Exception as error:
                self._first_error = self._first_error or error
                self._problems.append(f"{type(error).__name__}: {error}")

    def _count(self, heats: Sequence[PoolHeat], newest: int) -> list[_Name]:
        """Count the requests of windows, newest first; the models that were not seen before, last used first."""
        fresh: list[_Name] = []
        for heat in heats:
            key = heat.key
            recent = key.start >= newest - self._rules.recent_seconds
            self._seconds["all"] += key.seconds
            self._seconds["recent"] += key.seconds * recent
            counts = HeatRange(key.start, key.end, (heat,)).by_model()
            for name, seen in sorted(counts.items(), key=lambda item: -item[1].requests):
                if not seen.requests:
                    continue
                if name not in self._use:
                    self._use[name] = _Use(probable_last_use(key.end, key.seconds, seen.requests))
                    fresh.append(name)
                use = self._use[name]
                use.requests += seen.requests
                use.recent += seen.requests * recent
                if seen.served_ms:
                    # The least of all windows: those that waited for a load are among what is counted.
                    use.service_seconds = min(use.service_seconds, seen.served_ms / seen.requests / 1000)
        return fresh

    def _look_up(self, threads: ThreadPoolExecutor, names: Sequence[_Name], wanted_bytes: float, until: float) -> float:
        """Read the records of models and of the versions that get their requests, the first ones first.

        Returns how many bytes are still wanted: no more records are read once there are enough, or the time is over. Some always are.
        """
        for some in _batches(names, self._rules.batch * self._rules.threads):
            models: dict[_Name, Model | None] = dict.fromkeys(some)
            for answer in self._each(threads, self._records.models, _batches(some, self._rules.batch)):
                models |= answer
            routes = [model.route for model in models.values() if model is not None]
            versions = [name for route in routes for name in _routed(route)]
            outlines: dict[ArtifactName, VersionOutline] = {}
            for found in self._each(threads, self._records.outlines, _batches(versions, self._rules.batch)):
                outlines |= found
            self._models |= models
            self._outlines |= outlines
            here = [name for route in routes if _is_here(route, self._endpoint) for name in _routed(route)]
            wanted_bytes -= sum(_memory_bytes(outlines[name]) for name in here if name in outlines)
            if wanted_bytes <= 0 or self._clock.monotonic() >= until:
                break
        return wanted_bytes

    def _candidates(self, windows: int, newest: int | None, names: Iterable[_Name]) -> Candidates:
        found: list[Candidate] = []
        unknown = elsewhere = 0
        for name in names:
            model = self._models[name]
            if model is None or model.route is None:
                unknown += 1
                continue
            mine = list(self._of_route(model.route, self._use[name]))
            elsewhere += not mine
            unknown += mine.count(None)
            found += filter(None, mine)
        if self._first_error is not None and not found:
            raise self._first_error
        return Candidates(tuple(found), windows, newest, unknown, elsewhere, tuple(dict.fromkeys(self._problems)))

    def _of_route(self, route: Route, use: _Use) -> Iterator[Candidate | None]:
        """The versions that a route leads to on the endpoint; a dedicated one is told of, wherever its component is."""
        canary = route.canary
        share = canary.percent / 100 if canary is not None else 0.0
        if route.endpoint == self._endpoint or route.component is not None:
            yield self._candidate(route.target_model, 1 - share, use, dedicated=route.component is not None)
        if canary is not None and canary.endpoint == self._endpoint:
            yield self._candidate(canary.target_model, share, use, dedicated=False)

    def _candidate(self, target_model: str, share: float, use: _Use, *, dedicated: bool) -> Candidate | None:
        outline = self._outlines.get(ArtifactName.parse(target_model))
        if outline is None:
            return None
        service = use.service_seconds if use.service_seconds < math.inf else 0.0
        first = outline.load_seconds
        return Candidate(
            target_model=target_model,
            bytes=_memory_bytes(outline),
            load_seconds=None if first is None else max(0.0, first - service),
            rate=self._rate(use) * share,
            last_used=self._real(use.last_used),
            service_seconds=service,
            sample=outline.sample,
            retired=outline.state not in _INVOKED,
            dedicated=dedicated,
        )

    def _real(self, moment: float) -> float:
        """A moment of the heat's clock as one of the machine's."""
        return self._clock.wall() - (self._clock.time() - moment) / self._scale

    def _rate(self, use: _Use) -> float:
        """Requests a real second."""
        return self._scale * probable_rate(use.recent, self._seconds["recent"], use.requests, self._seconds["all"])


def _memory_bytes(outline: VersionOutline) -> int:
    """What the container reported, else the artifact's size: it is packed, but what is loaded of it is not all of it."""
    return outline.memory_bytes or outline.size_bytes


def _is_here(route: Route | None, endpoint: str) -> bool:
    return route is not None and route.component is None and route.endpoint == endpoint


def _routed(route: Route | None) -> Iterator[ArtifactName]:
    if route is not None:
        yield ArtifactName.parse(route.target_model)
        if route.canary is not None:
            yield ArtifactName.parse(route.canary.target_model)


def _batches(names: Sequence[_T], size: int) -> Iterator[Sequence[_T]]:
    for start in range(0, len(names), size):
        yield names[start : start + size]
