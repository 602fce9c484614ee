"""Prefetch on the tail of the Azure trace: which share of the misses it avoids that need not be, on equal memory.

The rule of `mme_tenancy.warm_up.prefetch` runs against the residency engine. Its settings were tuned on the first half of the day; the
figures are of the second. A miss is compulsory when it is the day's first use of a model: nobody could have known.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from benchmarks.figure import Figure
from benchmarks.warm_up.workload import traces_folder
from mme_fleet import Costs, Forward, InstanceSpec, OneHomeRouter, Request, RequestAnswer, Simulator, Step, Unload
from mme_fleet.traffic import Trace, read_azure
from mme_tenancy.warm_up.plan import FleetShape
from mme_tenancy.warm_up.prefetch import Prefetch, PrefetchSettings

__all__ = ["Day", "Hottest", "Outcome", "Predicted", "Predictions", "Rule", "Windows", "measure", "run"]

_MINUTE, _HALF_DAY = 60, 43_200
_LAG_MINUTES = 3
"""So old is the newest heat when calls are chosen: the collector waits two minutes, and each of the two functions comes once a minute."""
_PHASES = (10, 30, 50)
"""Nobody knows when in a minute a schedule of one minute comes."""
_SEED = 1
_SHARES = (0.05, 0.1, 0.2)
_MAIN = 0.1
_BOUNDS = {0.05: 0.05, 0.1: 0.25, 0.2: 0.25}
_MOST_WASTED = 0.6


class Day:
    """A trace as prefetch sees it.

    Args:
        trace: the requests.
        lag_minutes: between the end of the newest window of heat and the minute that calls are chosen for.
    """

    def __init__(self, trace: Trace, *, lag_minutes: int = _LAG_MINUTES) -> None:
        self.trace, self._lag = trace, lag_minutes
        names, minute = trace.population.models, (trace.seconds // _MINUTE).astype(np.int64)
        self.minutes = int(trace.duration_seconds // _MINUTE)
        self._counts: list[dict[str, int]] = [{} for _ in range(self.minutes)]
        pairs, counts = np.unique(np.stack([minute, trace.model]), axis=1, return_counts=True)
        for (at, model), count in zip(pairs.T.tolist(), counts.tolist(), strict=True):
            self._counts[at][names[model]] = count
        self.sizes = trace.population.sizes()

    def seen(self, minute: int) -> Mapping[str, int]:
        """Requests by model in the window of heat that comes just before the calls for ``minute``."""
        window = minute - self._lag - 1
        return self._counts[window] if window >= 0 else {}

    def window(self, minute: int) -> int:
        """That window."""
        return minute - self._lag - 1


class Rule(Protocol):
    """Says which models are called in each minute, ascending."""

    def calls(self, minute: int) -> Sequence[str]:
        """The models, in the order of the calls."""


class Predictions:
    """The probabilities of every minute of a day, made once: they do not depend on the fleet.

    Args:
        day: the day.
        settings: of the rule.
        phase_seconds: when in each minute calls are made.
    """

    def __init__(self, day: Day, settings: PrefetchSettings, phase_seconds: int) -> None:
        self.day, self.settings, self.phase_seconds = day, settings, phase_seconds
        prefetch = Prefetch(settings)
        self.by_minute: list[dict[str, float]] = []
        for minute in range(day.minutes):
            _observe(prefetch, day, minute)
            self.by_minute.append(prefetch.probabilities(minute * _MINUTE + phase_seconds))


class Predicted:
    """The product's rule.

    Args:
        predictions: of the day.
        memory_bytes: of the fleet, one instance.
        guess: replaces the probabilities, for a rule that knows nothing.
    """

    def __init__(
        self, predictions: Predictions, memory_bytes: int, guess: Callable[[dict[str, float]], dict[str, float]] | None = None
    ) -> None:
        self._predictions, self._guess = predictions, guess
        self._fleet = FleetShape(instances=1, memory_bytes=memory_bytes, load_slots=1)
        self._prefetch = Prefetch(predictions.settings)

    def calls(self, minute: int) -> list[str]:
        """See `Rule`."""
        _observe(self._prefetch, self._predictions.day, minute)
        probabilities = self._predictions.by_minute[minute]
        if self._guess is not None:
            probabilities = self._guess(probabilities)
        return [due.model for due in self._prefetch.choose(minute, self._fleet, probabilities)]


class Hottest:
    """A bad rule: the models with most requests so far, as many as fit the same share of memory, whether they are used next or not."""

    def __init__(self, day: Day, memory_bytes: int, share: float) -> None:
        self._day, self._budget = day, share * memory_bytes
        self._requests: dict[str, int] = defaultdict(int)

    def calls(self, minute: int) -> list[str]:
        """See `Rule`."""
        for model, count in self._day.seen(minute).items():
            self._requests[model] += count
        chosen, left = [], self._budget
        for model in sorted(self._requests, key=self._requests.__getitem__, reverse=True):
            left -= self._day.sizes[model]
            if left < 0:
                break
            chosen.append(model)
        return chosen[::-1]


class Windows:
    """The rule of the paper that the histograms come from, to compare with: each model is loaded once, before the head of its idle times.

    "Serverless in the Wild", section 4.2: the head is the 5th percentile of the idle times to the minute up to four hours, less a tenth;
    a histogram of few idle times, of many beyond it, or of bins that vary little (coefficient of variation up to 2) is not representative,
    and its model is left to the cache. So is how long a model is kept: the paper unloads it after the 99th percentile, a cache when others
    need the memory.
    """

    _BINS, _LEAST, _CV, _HEAD = 240, 5, 2.0, 0.05

    def __init__(self, day: Day) -> None:
        self._day = day
        self._bins: dict[str, list[int]] = defaultdict(lambda: [0] * self._BINS)
        self._beyond: dict[str, int] = defaultdict(int)
        self._last: dict[str, int] = {}
        self._due: dict[str, int] = {}

    def calls(self, minute: int) -> list[str]:
        """See `Rule`."""
        at = self._day.window(minute)
        for model in self._day.seen(minute):
            if model in self._last:
                idle = at - self._last[model]
                if idle < self._BINS:
                    self._bins[model][idle] += 1
                else:
                    self._beyond[model] += 1
            self._last[model] = at
            self._due[model] = at + self._head(model)
        return [model for model, due in self._due.items() if due == minute]

    def _head(self, model: str) -> int:
        bins = np.array(self._bins[model])
        total = int(bins.sum())
        if total < self._LEAST or self._beyond[model] > total or bins.std() <= self._CV * bins.mean():
            return 0
        return int(0.9 * np.argmax(bins.cumsum() >= self._HEAD * total))


@dataclass(slots=True)
class Outcome:
    """What happened in one half of the day.

    Attributes:
        requests: of users.
        misses: of them, those that found their model not in memory and had had a request before.
        compulsory: those that had not.
        calls: of the rule.
        loads: of them, those that loaded a model.
        wasted: such loads whose model was evicted before any user asked for it.
    """

    requests: int = 0
    misses: int = 0
    compulsory: int = 0
    calls: int = 0
    loads: int = 0
    wasted: int = 0

    @property
    def wasted_share(self) -> float:
        """Of the loads; 0 without any."""
        return self.wasted / self.loads if self.loads else 0.0


class _Run:
    """A rule as a policy of the simulator, and the observer that counts."""

    def __init__(self, rule: Rule | None, phase_seconds: int, minutes: int) -> None:
        self._rule, self._phase, self._minutes = rule, phase_seconds, minutes
        self.halves = (Outcome(), Outcome())
        self._known: set[str] = set()
        self._unused: set[str] = set()
        self._asking = False

    def begin(self, simulator: Simulator) -> None:
        """See `mme_fleet.SimulationPolicy`."""
        self._simulator = simulator
        simulator.observe(self._observe)
        if self._rule is not None:
            simulator.at(self._phase, self._minute)

    def _now(self) -> Outcome:
        return self.halves[self._simulator.now >= _HALF_DAY]

    def _minute(self) -> None:
        assert self._rule is not None
        minute = int(self._simulator.now // _MINUTE)
        if minute + 1 < self._minutes:
            self._simulator.at(self._simulator.now + _MINUTE, self._minute)
        self._ask(iter(self._rule.calls(minute)))

    def _ask(self, calls: Iterator[str]) -> None:
        """One call after the other."""
        model = next(calls, None)
        if model is None:
            return

        def answered(answer: RequestAnswer) -> None:
            if answer.error is None and answer.cold:
                self._now().loads += 1
                self._unused.add(answer.model)
            self._ask(calls)

        self._now().calls += 1
        self._asking = True
        self._simulator.ask(model, answered)
        self._asking = False

    def _observe(self, fleet: str, step: Step) -> None:  # noqa: ARG002 - there is one
        now = self._now()
        if isinstance(step.event, Request) and not self._asking:
            self._user(step.event.model, step, now)
        for action in step.actions:
            if isinstance(action, Unload) and action.model in self._unused:
                self._unused.discard(action.model)
                now.wasted += 1

    def _user(self, model: str, step: Step, now: Outcome) -> None:
        now.requests += 1
        hit = any(isinstance(action, Forward) and not action.cold for action in step.actions)
        if not hit:
            known = model in self._known
            now.misses += known
            now.compulsory += not known
        self._known.add(model)
        self._unused.discard(model)


def run(trace: Trace, memory_bytes: int, rule: Rule | None, phase_seconds: int = 0) -> tuple[Outcome, Outcome]:
    """Both halves of a day on one instance whose loads take no time: the engine is a cache then.

    Args:
        trace: the requests.
        memory_bytes: of the instance.
        rule: what is called; ``None``: nothing.
        phase_seconds: when in each minute.
    """
    policy = _Run(rule, phase_seconds, int(trace.duration_seconds // _MINUTE))
    instance = InstanceSpec(memory_bytes, disk_bytes=trace.population.total_bytes)
    costs = Costs(unpacked_bytes=trace.population.sizes().__getitem__)
    results = Simulator(costs, [instance], router=OneHomeRouter, policies=[policy]).run(trace.arrivals())
    if results.failed:
        raise RuntimeError(f"{results.failed} requests failed: {results.errors}")
    return policy.halves


def _observe(prefetch: Prefetch, day: Day, minute: int) -> None:
    if (window := day.window(minute)) >= 0:
        used = day.seen(minute)
        prefetch.observe(window * _MINUTE, _MINUTE, used)
        prefetch.size({model: day.sizes[model] for model in used}, minute * _MINUTE)


def measure(tell: Callable[[str], object]) -> Iterator[Figure]:
    """The figures of prefetch; none where the trace is not."""
    folder = traces_folder()
    if not folder.is_dir():
        tell(f"prefetch: skipped, there are no traces in {folder}: set MME_TRACES to their folder")
        return
    trace = read_azure(folder).tail().trace(_SEED)
    day, found = Day(trace), {share: _Found(trace, share) for share in _SHARES}
    for phase in _PHASES:
        tell(f"prefetch: called {phase} s after the beginning of each minute")
        predictions = Predictions(day, PrefetchSettings(), phase)
        for one in found.values():
            one.add(predictions)
    yield from _figures(found, _comparisons(predictions, found[_MAIN], tell), trace)


class _Found:
    """What a share of memory showed: without prefetch, and with it in each phase."""

    def __init__(self, trace: Trace, share: float) -> None:
        self.trace, self.memory_bytes = trace, int(share * trace.population.total_bytes)
        self.without = run(trace, self.memory_bytes, None)
        self.by_phase: list[tuple[Outcome, Outcome]] = []

    def add(self, predictions: Predictions) -> None:
        """Another phase."""
        rule = Predicted(predictions, self.memory_bytes)
        self.by_phase.append(run(self.trace, self.memory_bytes, rule, predictions.phase_seconds))

    def avoided(self, halves: tuple[Outcome, Outcome], half: int = 1) -> float:
        """The share of the misses."""
        return 1 - halves[half].misses / self.without[half].misses

    def least_avoided(self, half: int = 1) -> float:
        """In the worst phase."""
        return min(self.avoided(halves, half) for halves in self.by_phase)

    @property
    def most_wasted(self) -> float:
        """In the worst phase."""
        return max(halves[1].wasted_share for halves in self.by_phase)


def _comparisons(predictions: Predictions, main: _Found, tell: Callable[[str], object]) -> dict[str, float]:
    """The shares that other rules avoid; the bad ones must miss the bound."""
    memory_bytes, settings, rng = main.memory_bytes, predictions.settings, random.Random(_SEED)  # noqa: S311 - a workload, not a secret

    def shuffled(probabilities: dict[str, float]) -> dict[str, float]:
        values = list(probabilities.values())
        rng.shuffle(values)
        return dict(zip(probabilities, values, strict=True))

    rules: dict[str, Rule] = {
        "hottest": Hottest(predictions.day, memory_bytes, settings.memory_share),
        "random": Predicted(predictions, memory_bytes, shuffled),
        "windows": Windows(predictions.day),
    }
    shares = {}
    for name, rule in rules.items():
        tell(f"prefetch: the {name} rule")
        # At the beginning of each minute, which is the best moment for a rule that does not know when it is called.
        shares[name] = main.avoided(run(main.trace, memory_bytes, rule))
        if name != "windows" and shares[name] >= _BOUNDS[_MAIN]:
            raise RuntimeError(f"the {name} rule avoids {shares[name]:.3f}: the bound {_BOUNDS[_MAIN]} does not tell good from bad")
    return shares


def _figures(found: Mapping[float, _Found], others: Mapping[str, float], trace: Trace) -> Iterator[Figure]:
    about = {
        "trace": f"Azure 2019, tail: {len(trace.population)} functions, {len(trace)} requests",
        "router": "one instance",
        "half": "second; tuned on the first",
        "lag_minutes": _LAG_MINUTES,
        "phases": f"called {', '.join(map(str, _PHASES))} s after the beginning of each minute; the worst of them",
        "seed": _SEED,
    }
    for share, one in sorted(found.items(), key=lambda item: item[0] != _MAIN):
        name = "prefetch_avoided_share" if share == _MAIN else f"prefetch_avoided_share_{share * 100:g}_percent"
        conditions = about | {
            "memory": f"{share:g} of all bytes",
            "misses": one.without[1].misses,
            "compulsory": one.without[1].compulsory,
            "calls_a_minute": max(halves[1].calls for halves in one.by_phase) / (_HALF_DAY / _MINUTE),
            "loads": max(halves[1].loads for halves in one.by_phase),
            "wasted_share": one.most_wasted,
            "first_half": one.least_avoided(0),
        }
        if share == _MAIN:
            conditions |= {f"{rule}_rule": value for rule, value in others.items()}
        yield Figure(name, one.least_avoided(), "ratio", _BOUNDS[share], "the same fleet without prefetch", conditions, at_least=True)
    by_memory = {f"memory_{share:g}": one.most_wasted for share, one in found.items()}
    yield Figure("prefetch_wasted_share_max", max(by_memory.values()), "ratio", _MOST_WASTED, "all loads of prefetch", about | by_memory)
