"""Which models are probably used next: a histogram of idle times for each, and the calls that follow from it. Values only.

As in "Serverless in the Wild" (Shahrad et al., USENIX ATC 2020) the time from one use of a model to the next is counted, to the minute, and
a model whose own counts say little is judged by those of all. What is made of the histograms differs: there, two percentiles bound a window
in which an application is kept, as if memory were free. Here memory is what is scarce, so each minute the models compete for a share of it
by the probability of a use in what is left of the minute or in the next. The winners are called: one that is not loaded is loaded shortly
before its use, and one that is loaded becomes the last that the fleet evicts.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from mme_facts.warm_up import PREFETCH_WINDOW_SECONDS
from mme_tenancy.warm_up.plan import FleetShape

__all__ = ["Due", "Prefetch", "PrefetchError", "PrefetchSettings"]

SCHEMA = 1
_SMALL = 0.005
"""Of a use: what is added to the count of each idle time of all models, so that nothing is impossible that was not seen yet."""


class PrefetchError(Exception):
    """What was stored is not what `Prefetch.dump` wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefetchSettings:
    """How uses are predicted, and how much is done about it.

    The defaults were tuned on the first half of a day of the Azure trace, and hold on the second (``benchmarks/prefetch.py``).

    Attributes:
        slot_seconds: idle times are counted in these; heat's windows must be as long.
        memory_share: of the fleet's memory, what the models that are called may take together; the rest is for those that come unforeseen.
        load_probability: a model that is probably not loaded is called only if its use is at least so probable.
        keep_probability: one that probably is loaded is called no more when its use is less probable than this.
        recent_seconds: a model that was used so lately is taken to be loaded, as is one that was called last time.
        prior_uses: so many idle times of its own count as much as those of all models together.
        awaited_seconds: a model that was loaded and not used until so long after its last call was loaded in vain.
        most_lag_seconds: nothing is predicted from heat that ended longer ago.
        most_calls: calls in one slot, at most; those of the most probable models.
        most_models: so many are remembered, those that were used last.
        most_idle_seconds: a model that was not used for so long is forgotten. Default: a week.
        most_bins: different idle times that are remembered of a model.
        most_uses: with more idle times than this all counts of a model are halved, so that it follows a change of habits.

    Raises:
        ValueError: a value is out of range.
    """

    slot_seconds: int = PREFETCH_WINDOW_SECONDS
    memory_share: float = 0.5
    load_probability: float = 0.8
    keep_probability: float = 0.01
    recent_seconds: float = 600.0
    prior_uses: float = 2.0
    awaited_seconds: float = 600.0
    most_lag_seconds: float = 900.0
    most_calls: int = 600
    most_models: int = 10_000
    most_idle_seconds: float = 604_800.0
    most_bins: int = 64
    most_uses: int = 512

    def __post_init__(self) -> None:
        for name in ("memory_share", "load_probability"):
            self._check(name, 0 < getattr(self, name) <= 1, "more than 0, at most 1")
        self._check("keep_probability", 0 <= self.keep_probability <= self.load_probability, "0 to load_probability")
        for name in ("slot_seconds", "most_calls", "most_models", "most_bins"):
            self._check(name, getattr(self, name) >= 1 and getattr(self, name) % 1 == 0, "a whole number of 1 or more")
        for name in ("most_lag_seconds", "most_idle_seconds"):
            self._check(name, self.slot_seconds <= getattr(self, name) < math.inf, f"slot_seconds, which is {self.slot_seconds}, or more")
        # Halving then leaves every model a count: with fewer uses than this each bin might hold one.
        self._check("most_uses", self.most_uses >= 2 * self.most_bins, f"twice most_bins, which is {self.most_bins}, or more")
        self._check("prior_uses", 0 < self.prior_uses < math.inf, "a finite number above 0")
        for name in ("recent_seconds", "awaited_seconds"):
            self._check(name, 0 <= getattr(self, name) < math.inf, "a finite number of 0 or more")

    def _check(self, name: str, fits: bool, allowed: str) -> None:
        if not fits:
            raise ValueError(f"{name} is {getattr(self, name)}: use {allowed}")


@dataclass(frozen=True, slots=True)
class Due:
    """A model to call now.

    Attributes:
        model: ``<tenant>/<model>``.
        bytes: memory that it takes.
        probability: of a use in this slot, from now on, or in the next one.
        loaded: whether it is probably loaded already; the call then keeps it from being evicted.
    """

    model: str
    bytes: int
    probability: float
    loaded: bool


@dataclass(slots=True)
class _Model:
    """What is known of one model; slots count from the epoch.

    Attributes:
        last: the slot of its last use.
        bytes: memory that it takes; 0: it cannot be called; ``None``: not known.
        sized: the slot in which that was found out.
        idle: idle time in slots -> how often, in the order in which they first came.
        uses: sum of these counts.
    """

    last: int
    bytes: int | None = None
    sized: int = 0
    idle: dict[int, int] = field(default_factory=dict)
    uses: int = 0


class Prefetch:
    """The models of one pool: observe each window of heat, ask what is due. The same calls in the same order give the same answers.

    A model that several versions answer for counts once. Neither what is due nor what is stored grows beyond the settings' bounds.

    Args:
        settings: how uses are predicted.
    """

    def __init__(self, settings: PrefetchSettings | None = None) -> None:
        self._settings = settings or PrefetchSettings()
        self._models: dict[str, _Model] = {}
        self._all: dict[int, int] = {}  # the sum of all models' histograms
        self._observed: int | None = None  # the first slot that is not observed
        self._unbroken = 0  # since this slot all were observed
        self._called_in = 0  # the newest slot in which calls were made,
        self._called: frozenset[str] = frozenset()  # and of which models
        self._awaited: dict[str, tuple[int, int]] = {}  # loaded, and not used yet: the slots of the load and of the last call
        self.used = 0
        """Of the models that were loaded, those whose use was observed; counted since this object was made."""
        self.wasted = 0
        """Of the models that were loaded, those that were not used in time; counted since this object was made."""

    def __len__(self) -> int:
        return len(self._models)

    @property
    def observed_until(self) -> int | None:
        """End of the newest window that was observed, epoch seconds; ``None``: there was none."""
        return None if self._observed is None else self._observed * self._settings.slot_seconds

    def observe(self, start: int, seconds: int, used: Iterable[str]) -> bool:
        """Count a window of heat; ``False``: it is no newer than what was observed, or not a slot long, and nothing was counted.

        Idle times over windows that are missing are not counted, because the model may have been used in them.

        Args:
            start: of the window, epoch seconds.
            seconds: its length.
            used: the models with requests in it, ``<tenant>/<model>``.
        """
        slot, odd = divmod(start, self._settings.slot_seconds)
        if odd or seconds != self._settings.slot_seconds or (self._observed is not None and slot < self._observed):
            return False
        if slot != self._observed:
            self._unbroken = slot
        self._observed = slot + 1
        names = dict.fromkeys(used)
        self._judge(slot, names)
        for name in names:
            known = self._models.get(name)
            if known is None:
                self._models[name] = _Model(slot)
                continue
            if known.last >= self._unbroken:
                self._count(known, slot - known.last)
            known.last = slot
        self._forget(slot)
        return True

    def unsized(self, now: float, *, after_seconds: float, most: int) -> list[str]:
        """Models whose memory is not known, or was found out longer ago than ``after_seconds``; at most ``most``, those used last."""
        oldest = (now - after_seconds) / self._settings.slot_seconds
        names = [name for name, known in self._models.items() if known.bytes is None or known.sized < oldest]
        return sorted(names, key=lambda name: (-self._models[name].last, name))[:most]

    def size(self, sizes: Mapping[str, int], now: float) -> None:
        """Tell how much memory models take; 0 for those that cannot be called. Models that are not remembered are passed over."""
        slot = int(now // self._settings.slot_seconds)
        for name, size_bytes in sizes.items():
            known = self._models.get(name)
            if known is not None:
                known.bytes, known.sized = size_bytes, slot

    def due(self, now: float, fleet: FleetShape) -> tuple[Due, ...]:
        """What to call now, in this order, and remember that it was called. A second time in a slot: nothing.

        First come the models that are probably to be loaded, the most probable first; then those that are kept, the most probable last, so
        that it is evicted last.

        Args:
            now: epoch seconds.
            fleet: its memory.
        """
        slot = int(now // self._settings.slot_seconds)
        if self._observed is None or slot <= self._called_in or slot - self._observed > self._slots(self._settings.most_lag_seconds):
            return ()
        return self.choose(slot, fleet, self.probabilities(now))

    def probabilities(self, now: float) -> dict[str, float]:
        """For each model, how probable a use is in what is left of the slot of ``now``, or in the next, after all that was observed.

        Both count, because calls may come at any moment of a slot: a use at the beginning of the next one must be prepared in this one.
        """
        slot, seconds = divmod(now, self._settings.slot_seconds)
        if self._observed is None or slot < self._observed:
            return {}
        return _Predictor(self._settings, self._all, self._observed, int(slot), 1 - seconds / self._settings.slot_seconds).of(self._models)

    def choose(self, slot: int, fleet: FleetShape, probabilities: Mapping[str, float]) -> tuple[Due, ...]:
        """As `due`, in this slot and from these probabilities.

        The models compete by their probability over the square root of their bytes: between the number of uses and the bytes that are
        served from memory, since a large model also takes longer to load.
        """
        # Calls come once in a slot, but now and then at the end of one and then at the beginning of the next but one.
        called, self._called, self._called_in = self._called if slot <= self._called_in + 2 else frozenset(), frozenset(), slot
        if self._fits(fleet):
            return ()
        offers = sorted(self._offers(called, fleet, probabilities), key=lambda due: (-due.probability / math.sqrt(due.bytes), due.model))
        taken = accumulate(due.bytes for due in offers)
        budget = self._settings.memory_share * fleet.total_bytes
        chosen = [due for due, used_bytes in zip(offers, taken, strict=True) if used_bytes <= budget][: self._settings.most_calls]
        self._called = frozenset(due.model for due in chosen)
        for each in chosen:
            self._await(each, slot)
        return (*(due for due in chosen if not due.loaded), *(due for due in reversed(chosen) if due.loaded))

    def _offers(self, called: frozenset[str], fleet: FleetShape, probabilities: Mapping[str, float]) -> Iterator[Due]:
        recent = (self._observed or 0) - self._slots(self._settings.recent_seconds)
        for name, probability in probabilities.items():
            known = self._models[name]
            if not known.bytes or known.bytes > fleet.memory_bytes:
                continue
            loaded = name in called or known.last >= recent
            if probability >= (self._settings.keep_probability if loaded else self._settings.load_probability):
                yield Due(name, known.bytes, probability, loaded)

    def _fits(self, fleet: FleetShape) -> bool:
        """Whether all that is remembered fits the share together: nothing is evicted then, so nothing has to be done."""
        return sum(known.bytes or 0 for known in self._models.values()) <= self._settings.memory_share * fleet.total_bytes

    def _slots(self, seconds: float) -> float:
        return seconds / self._settings.slot_seconds

    # What came of the loads.

    def _await(self, due: Due, slot: int) -> None:
        awaited = self._awaited.get(due.model)
        if not due.loaded:
            self.wasted += awaited is not None  # it was loaded before, and is probably gone again
            self._awaited[due.model] = (slot, slot)
        elif awaited is not None:
            self._awaited[due.model] = (awaited[0], slot)

    def _judge(self, slot: int, used: Mapping[str, object]) -> None:
        """Which loads were good for something, by what is observed of a slot. Nobody knows of those before slots that are missing."""
        most = self._slots(self._settings.awaited_seconds)
        for name, (loaded, called) in list(self._awaited.items()):
            if loaded < self._unbroken:
                del self._awaited[name]
            elif name in used and slot >= loaded:
                del self._awaited[name]
                self.used += 1
            elif slot - called >= most:
                del self._awaited[name]
                self.wasted += 1

    # The histograms.

    def _count(self, known: _Model, idle: int) -> None:
        known.idle[idle] = known.idle.get(idle, 0) + 1
        known.uses += 1
        self._add(idle, 1)
        if len(known.idle) > self._settings.most_bins:
            rarest = min(known.idle, key=known.idle.__getitem__)  # of equal ones the first, which is the oldest
            count = known.idle.pop(rarest)
            known.uses -= count
            self._add(rarest, -count)
        if known.uses > self._settings.most_uses:
            for each, count in known.idle.items():
                self._add(each, count // 2 - count)
            known.idle = {each: count // 2 for each, count in known.idle.items() if count > 1}
            known.uses = sum(known.idle.values())

    def _add(self, idle: int, count: int) -> None:
        total = self._all.get(idle, 0) + count
        if total:
            self._all[idle] = total
        else:
            del self._all[idle]

    def _forget(self, slot: int) -> None:
        most = self._slots(self._settings.most_idle_seconds)
        gone = [name for name, known in self._models.items() if slot - known.last > most]
        over = len(self._models) - len(gone) - self._settings.most_models
        if over > 0:
            left = self._models.keys() - set(gone)
            gone += sorted(left, key=lambda name: (self._models[name].last, name))[:over]
        for name in gone:
            for idle, count in self._models.pop(name).idle.items():
                self._add(idle, -count)

    # As one object.

    def dump(self) -> bytes:
        """The state as gzip of JSON; the same state gives the same bytes."""
        document = {
            "schema": SCHEMA,
            "slot_seconds": self._settings.slot_seconds,
            "observed": self._observed,
            "unbroken": self._unbroken,
            "called_in": self._called_in,
            "called": sorted(self._called),
            "awaited": self._awaited,
            "models": {name: [known.last, known.bytes, known.sized, list(known.idle.items())] for name, known in self._models.items()},
        }
        return gzip.compress(json.dumps(document, separators=(",", ":")).encode(), compresslevel=6, mtime=0)

    @classmethod
    def load(cls, content: bytes, settings: PrefetchSettings | None = None) -> Prefetch:
        """Read what `dump` wrote; with another length of slots it begins anew.

        Raises:
            PrefetchError: it is something else, or of another schema.
        """
        made = cls(settings)
        try:
            document = json.loads(gzip.decompress(content))
            if document["schema"] != SCHEMA:
                raise PrefetchError(f"the state of prefetch has schema {document['schema']!r}: this version reads {SCHEMA}")
            if document["slot_seconds"] == made._settings.slot_seconds:
                made._restore(document)
        except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise PrefetchError(f"the state of prefetch is not readable ({error!r})") from error
        return made

    def _restore(self, document: Mapping[str, Any]) -> None:
        self._observed, self._unbroken = document["observed"], document["unbroken"]
        self._called_in, self._called = document["called_in"], frozenset(document["called"])
        self._awaited = {name: (loaded, called) for name, (loaded, called) in document["awaited"].items()}
        for name, (last, size_bytes, sized, idle) in document["models"].items():
            histogram: dict[int, int] = dict(idle)
            self._models[name] = _Model(last, size_bytes, sized, histogram, sum(histogram.values()))
            for slots, count in histogram.items():
                self._add(slots, count)


class _Predictor:
    """Probabilities of a use in what is left of a slot, a share ``left`` of it, or in the next one.

    A model's uses are taken for a renewal process: how probable its next use is depends on how long it has been idle. That is the hazard of
    its histogram, its uses after exactly this idle time over those after at least it, to which the hazard of all models together is added
    as if it were some more uses. Between the newest heat and the slot lie slots of which nothing is known yet: the model may have been used
    in each of them, and then began anew.
    """

    def __init__(self, settings: PrefetchSettings, everybody: Mapping[int, int], observed: int, slot: int, left: float) -> None:
        self._prior, self._observed, self._left = settings.prior_uses, observed, left
        self._steps = slot - observed + 2
        longest = max(everybody, default=0)
        counts = [everybody.get(idle, 0) for idle in range(longest + 1)]
        least = list(accumulate(reversed(counts)))
        self._hazards = [(count + _SMALL) / (more + 1) for count, more in zip(counts, reversed(least), strict=True)]

    def of(self, models: Mapping[str, _Model]) -> dict[str, float]:
        return {name: self._probability(known) for name, known in models.items()}

    def _probability(self, known: _Model) -> float:
        first = self._hazard_line(known, self._observed - known.last, self._steps)
        again = _densities(self._hazard_line(known, 1, self._steps - 1))
        used: list[float] = []
        for step, density in enumerate(_densities(first)):
            used.append(min(1.0, density + sum(used[earlier] * again[step - earlier - 1] for earlier in range(step))))
        return 1 - (1 - self._left * used[-2]) * (1 - used[-1])

    def _hazard_line(self, known: _Model, idle: int, steps: int) -> list[float]:
        """The hazards after ``idle`` slots and each of the following."""
        left = sum(count for each, count in known.idle.items() if each >= idle)
        line = []
        for after in range(idle, idle + steps):
            everybody = self._hazards[after] if after < len(self._hazards) else _SMALL
            count = known.idle.get(after, 0)
            line.append((self._prior * everybody + count) / (self._prior + left))
            left -= count
        return line


def _densities(hazards: Sequence[float]) -> list[float]:
    """The probability that the next use comes after exactly so many slots, from the hazards."""
    densities, left = [], 1.0
    for hazard in hazards:
        densities.append(left * hazard)
        left *= 1 - hazard
    return densities
