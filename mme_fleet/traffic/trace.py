"""Requests as arrays: which models there are, and when each was asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["Floats", "Integers", "Population", "Trace"]

Floats: TypeAlias = npt.NDArray[np.floating[Any]]
Integers: TypeAlias = npt.NDArray[np.integer[Any]]

_CHUNK = 65_536


@dataclass(frozen=True, eq=False)
class Population:
    """The models of a trace, one entry each in every array; a model's number is its position.

    Attributes:
        models: TargetModels, all different.
        tenants: names of the tenants, all different.
        tenant: position in ``tenants`` of the model's owner.
        memory_bytes: what it takes in a container's memory (and unpacked on disk).
        load_seconds: how long its download and load take together, on an instance that has nothing else to do.
        service_seconds: the mean time in which the container answers one request.
        payload_bytes: the mean size of a request's body.
        born: when it appears, in the seconds of the trace; it gets no request before.
        gone: when it is taken away; ``inf`` if it stays.

    Raises:
        ValueError: lengths differ, a name comes twice, a value is out of range.
    """

    models: Sequence[str]
    tenants: Sequence[str]
    tenant: Integers
    memory_bytes: Integers
    load_seconds: Floats
    service_seconds: Floats
    payload_bytes: Integers
    born: Floats
    gone: Floats

    def __post_init__(self) -> None:
        self._take("tenant", np.int64, 0)
        self._take("memory_bytes", np.int64, 1)
        self._take("payload_bytes", np.int64, 0)
        self._take("load_seconds", np.float64, 0)
        self._take("service_seconds", np.float64, 0)
        self._take("born", np.float64, -np.inf)
        self._take("gone", np.float64, -np.inf)
        for name in ("models", "tenants"):
            names = tuple(getattr(self, name))
            object.__setattr__(self, name, names)
            if len(set(names)) != len(names):
                seen: set[str] = set()
                twice = next(entry for entry in names if entry in seen or seen.add(entry))  # type: ignore[func-returns-value]
                raise ValueError(f"{name} has {twice!r} twice: use every name once")
        if len(self.tenant) and self.tenant.max() >= len(self.tenants):
            raise ValueError(f"tenant has {self.tenant.max()}, but there are {len(self.tenants)} tenants: use their positions")
        if (self.gone < self.born).any():
            raise ValueError("a model is gone before it is born: gone must not be less than born")

    def _take(self, name: str, kind: type[np.generic], least: float) -> None:
        values = _frozen(getattr(self, name), kind, name)
        object.__setattr__(self, name, values)
        if len(values) != len(self.models):
            raise ValueError(f"{name} has {len(values)} entries for {len(self.models)} models: give one each")
        if len(values) and not values.min() >= least:  # not "<": this refuses NaN, too
            raise ValueError(f"{name} has {values.min()}: use {least} or more")

    def __len__(self) -> int:
        return len(self.models)

    @property
    def total_bytes(self) -> int:
        """Memory that all models would take together."""
        return int(self.memory_bytes.sum())

    def sizes(self) -> dict[str, int]:
        """TargetModel -> bytes of memory."""
        return dict(zip(self.models, self.memory_bytes.tolist(), strict=True))

    def loads(self) -> dict[str, float]:
        """TargetModel -> seconds of download and load."""
        return dict(zip(self.models, self.load_seconds.tolist(), strict=True))

    def of_tenants(self, per_model: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Sums of a quantity of every model (requests, bytes) per tenant."""
        return np.bincount(self.tenant, weights=per_model, minlength=len(self.tenants)).astype(per_model.dtype)

    def select(self, keep: npt.NDArray[Any]) -> Population:
        """Only these models (positions, or a mask), numbered anew; the tenants stay."""
        kept = np.arange(len(self))[keep]
        arrays = {
            name: getattr(self, name)[kept]
            for name in ("tenant", "memory_bytes", "load_seconds", "service_seconds", "payload_bytes", "born", "gone")
        }
        return replace(self, models=[self.models[position] for position in kept.tolist()], **arrays)


@dataclass(frozen=True, eq=False)
class Trace:
    """Requests in the order of time, one entry each in every array.

    Attributes:
        population: the models.
        seconds: when they come, ascending, from the trace's start.
        model: which model they ask for: position in the population.
        duration_seconds: how long the trace lasts; no request comes later.
        payload_bytes: size of each body; ``None``: the model's mean.
        service_seconds: how long the container answers each; ``None``: the model's mean.

    Raises:
        ValueError: lengths differ, times go back or end late, a model does not exist, the duration is not above 0.
    """

    population: Population
    seconds: Floats
    model: Integers
    duration_seconds: float
    payload_bytes: Integers | None = None
    service_seconds: Floats | None = None

    def __post_init__(self) -> None:
        seconds = _frozen(self.seconds, np.float64, "seconds")
        model = _frozen(self.model, np.int32, "model")
        object.__setattr__(self, "seconds", seconds)
        object.__setattr__(self, "model", model)
        object.__setattr__(self, "duration_seconds", float(self.duration_seconds))
        if not 0 < self.duration_seconds < np.inf:
            raise ValueError(f"duration_seconds is {self.duration_seconds}: use a finite number above 0")
        _check_length("model", model, len(seconds))
        if len(seconds):
            if not (seconds[1:] >= seconds[:-1]).all():
                late = int(np.argmin(seconds[1:] >= seconds[:-1])) + 1
                raise ValueError(f"seconds go back at request {late}, from {seconds[late - 1]} to {seconds[late]}: sort by time")
            if not (seconds[0] >= 0 and seconds[-1] <= self.duration_seconds):
                raise ValueError(f"seconds run from {seconds[0]} to {seconds[-1]}: use 0 to duration_seconds, {self.duration_seconds}")
            if model.min() < 0 or model.max() >= len(self.population):
                raise ValueError(f"model has {model.min()} to {model.max()}: use positions of the {len(self.population)} models")
        if self.payload_bytes is not None:
            object.__setattr__(self, "payload_bytes", _frozen(self.payload_bytes, np.int32, "payload_bytes"))
            _check_length("payload_bytes", self.payload_bytes, len(seconds))
        if self.service_seconds is not None:
            object.__setattr__(self, "service_seconds", _frozen(self.service_seconds, np.float32, "service_seconds"))
            _check_length("service_seconds", self.service_seconds, len(seconds))

    def __len__(self) -> int:
        return len(self.seconds)

    def arrivals(self) -> Iterator[tuple[float, str]]:
        """Time and TargetModel of every request, as Python values: what a simulator or a load generator takes."""
        names = self.population.models
        for start in range(0, len(self), _CHUNK):
            seconds = self.seconds[start : start + _CHUNK].tolist()
            yield from zip(seconds, map(names.__getitem__, self.model[start : start + _CHUNK].tolist()), strict=True)

    @cached_property
    def requests_per_model(self) -> Integers:
        """How often each model is asked for."""
        return _frozen(np.bincount(self.model, minlength=len(self.population)), np.int64, "requests_per_model")

    def windows(self, seconds: float) -> Integers:
        """Requests of each model in each window of ``seconds`` from the start: ``[window, model]``; the last window may be shorter.

        The array is dense: windows x models x 4 bytes.
        """
        if not seconds > 0:
            raise ValueError(f"a window lasts {seconds} seconds: use more than 0")
        count = max(1, int(np.ceil(self.duration_seconds / seconds)))
        window = np.minimum((self.seconds / seconds).astype(np.int64), count - 1)
        table = np.bincount(window * len(self.population) + self.model, minlength=count * len(self.population))
        return table.astype(np.int32).reshape(count, len(self.population))

    def between(self, start: float, end: float) -> Trace:
        """The requests from ``start`` (included) to ``end`` (excluded), with times counted from ``start``; all models stay."""
        if not 0 <= start < min(end, self.duration_seconds):
            raise ValueError(f"between {start} and {end}: use 0 <= start < end, and start before the trace's end, {self.duration_seconds}")
        part = slice(*np.searchsorted(self.seconds, (start, end)).tolist())
        population = replace(self.population, born=self.population.born - start, gone=self.population.gone - start)
        return replace(
            self,
            population=population,
            seconds=self.seconds[part] - start,
            model=self.model[part],
            duration_seconds=min(end, self.duration_seconds) - start,
            payload_bytes=None if self.payload_bytes is None else self.payload_bytes[part],
            service_seconds=None if self.service_seconds is None else self.service_seconds[part],
        )

    def only(self, keep: npt.NDArray[np.bool_]) -> Trace:
        """The requests of the models in the mask ``keep``; the others leave the population, too."""
        if keep.dtype != np.bool_ or len(keep) != len(self.population):
            raise ValueError(f"keep has {len(keep)} entries of {keep.dtype} for {len(self.population)} models: give one bool each")
        number = np.cumsum(keep) - 1
        stay = keep[self.model]
        return replace(
            self,
            population=self.population.select(keep),
            seconds=self.seconds[stay],
            model=number[self.model[stay]],
            payload_bytes=None if self.payload_bytes is None else self.payload_bytes[stay],
            service_seconds=None if self.service_seconds is None else self.service_seconds[stay],
        )


def _frozen(values: Any, kind: type[np.generic], name: str) -> npt.NDArray[Any]:
    """The values as a read-only array of one dimension, without a copy where they are one of that kind already."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"{name} has {array.ndim} dimensions: use one")
    array = array.astype(kind, copy=False).view()
    array.flags.writeable = False
    return array


def _check_length(name: str, values: Any, length: int) -> None:
    if len(values) != length:
        raise ValueError(f"{name} has {len(values)} entries for {length} requests: give one each")
