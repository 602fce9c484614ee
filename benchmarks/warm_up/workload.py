"""The traffic of the benchmark: real and generated, thinned, with sizes and times of our own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from mme_fleet import Costs
from mme_fleet.traffic import AZURE_2019, Population, Trace, TrafficSettings, generate, read_azure
from mme_fleet.traffic.names import target_models, tenant_names
from mme_fleet.traffic.trace import Floats, Integers

__all__ = ["TRACES", "Workload", "traces_folder", "workload"]

TRACES = ("azure", "generated")

_KEPT_SHARE = 0.25
"""Of the Azure sample's calls, each drawn by itself: 53 requests/s on average."""
_BUSY_MODELS, _BUSY_REQUESTS_PER_SECOND = 197, 46.0
"""Those of the sample with more than 5,000 calls, which the fitted preset leaves out: 97 % of all calls."""
_MEDIAN_BYTES, _SIGMA, _LEAST_BYTES, _MOST_BYTES = 108e6, 1.0, 5e6, 4e9
_FETCH_BYTES_PER_SECOND, _LOAD_BYTES_PER_SECOND, _LOAD_SECONDS = 200e6, 500e6, 0.3
_LEAST_SERVICE_SECONDS, _MOST_SERVICE_SECONDS = 0.005, 0.05
_CHUNK = 65_536
_SIZES_SEED = 7
_DRAWN_ANEW = 2  # seeds: the traffic, and the same traffic drawn once more


@dataclass(frozen=True, eq=False)
class Workload:
    """A day of requests.

    Attributes:
        name: of the trace.
        models: TargetModels.
        bytes: memory of each.
        load_seconds: of each: a constant and the time for the bytes.
        service_seconds: of each.
        draws: the day, drawn with different seeds: times within the minutes and the choice of the calls that are kept (Azure), everything
            (generated).
    """

    name: str
    models: tuple[str, ...]
    bytes: Integers
    load_seconds: Floats
    service_seconds: Floats
    draws: tuple[Trace, ...]

    @cached_property
    def number(self) -> dict[str, int]:
        """Positions of the models by TargetModel."""
        return {model: position for position, model in enumerate(self.models)}

    @cached_property
    def costs(self) -> Costs:
        """For the simulator. All of a load is one piece of work, so a disk makes no difference."""
        return Costs(
            unpacked_bytes=dict(zip(self.models, self.bytes.tolist(), strict=True)).__getitem__,
            load_seconds=dict(zip(self.models, self.load_seconds.tolist(), strict=True)).__getitem__,
            service_seconds=dict(zip(self.models, self.service_seconds.tolist(), strict=True)).__getitem__,
        )

    def between(self, start: float, end: float, draw: int = 0) -> tuple[Floats, Integers]:
        """Times and models (positions) of the requests from ``start`` to ``end``."""
        trace = self.draws[draw]
        part = slice(*np.searchsorted(trace.seconds, (start, end)).tolist())
        return trace.seconds[part], trace.model[part]

    def arrivals(self, start: float, end: float, draw: int = 0) -> Iterator[tuple[float, str]]:
        """The same for the simulator."""
        seconds, model = self.between(start, end, draw)
        for first in range(0, len(seconds), _CHUNK):
            part = slice(first, first + _CHUNK)
            yield from zip(seconds[part].tolist(), map(self.models.__getitem__, model[part].tolist()), strict=True)


def traces_folder() -> Path:
    """Where the real traces are: in the folder that MME_TRACES names, else beside the checkout."""
    return Path(os.environ.get("MME_TRACES") or Path(__file__).resolve().parents[3] / "shared" / "traces")


def workload(name: str) -> Workload:
    """One of `TRACES`.

    Raises:
        FileNotFoundError: the Azure sample is not there.
    """
    draws = _azure(traces_folder()) if name == "azure" else _generated()
    models = draws[0].population.models
    random = np.random.default_rng(_SIZES_SEED)
    sizes = np.clip(random.lognormal(np.log(_MEDIAN_BYTES), _SIGMA, len(models)), _LEAST_BYTES, _MOST_BYTES).astype(np.int64)
    return Workload(
        name=name,
        models=tuple(models),
        bytes=sizes,
        load_seconds=_LOAD_SECONDS + sizes / _FETCH_BYTES_PER_SECOND + sizes / _LOAD_BYTES_PER_SECOND,
        service_seconds=random.uniform(_LEAST_SERVICE_SECONDS, _MOST_SERVICE_SECONDS, len(models)),
        draws=draws,
    )


def _azure(folder: Path) -> tuple[Trace, ...]:
    if not folder.is_dir():
        raise FileNotFoundError(f"there are no traces in {folder}: set MME_TRACES to the folder of the Azure sample, or leave 'azure' out")
    sample = read_azure(folder)
    draws = []
    for seed in range(1, _DRAWN_ANEW + 1):
        kept = np.random.default_rng(seed).binomial(sample.calls, _KEPT_SHARE).astype(np.int32)
        draws.append(replace(sample, calls=kept).trace(seed))
    return tuple(draws)


def _generated() -> tuple[Trace, ...]:
    """The preset that is fitted to the Azure sample, and busy models in the place of those that it leaves out.

    The second draw is the first one with each request moved a little: another seed would have other popular models.
    """
    quiet = generate(AZURE_2019, 1, each_request=False)
    settings = TrafficSettings(
        models=_BUSY_MODELS, requests=int(_BUSY_REQUESTS_PER_SECOND * quiet.duration_seconds), diurnal=AZURE_2019.diurnal
    )
    trace = _together(quiet, generate(settings, 2, each_request=False))
    moved = np.clip(trace.seconds + np.random.default_rng(2).uniform(-30, 30, len(trace)), 0, trace.duration_seconds)
    order = np.argsort(moved)
    return trace, replace(trace, seconds=moved[order], model=trace.model[order])


def _together(quiet: Trace, busy: Trace) -> Trace:
    """One trace of both: the models of the first, then those of the second."""
    first, second = quiet.population, busy.population
    tenant = np.concatenate([first.tenant, second.tenant + len(first.tenants)])
    arrays = {
        name: np.concatenate([getattr(first, name), getattr(second, name)])
        for name in ("memory_bytes", "load_seconds", "service_seconds", "payload_bytes", "born", "gone")
    }
    population = Population(
        models=target_models(tenant), tenants=tenant_names(len(first.tenants) + len(second.tenants)), tenant=tenant, **arrays
    )
    seconds = np.concatenate([quiet.seconds, busy.seconds])
    model = np.concatenate([quiet.model, busy.model + len(first)])
    order = np.argsort(seconds, kind="stable")
    return Trace(population, seconds[order], model[order], quiet.duration_seconds)
