"""Traffic from settings and a seed. Arrays throughout: ten million requests take seconds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mme_facts.limits import INVOKE_BODY_BYTES
from mme_fleet.traffic.distributions import LoadBySize
from mme_fleet.traffic.names import target_models, tenant_names
from mme_fleet.traffic.settings import Diurnal, TrafficSettings
from mme_fleet.traffic.trace import Floats, Integers, Population, Trace

__all__ = ["generate"]

_DAY = 86_400.0
_HOUR = 3600.0
_STEP = 300.0  # of the table that stands for the curve of day and week
_MOST_ZONES_HOURS = 12.0


def generate(settings: TrafficSettings, seed: int, *, each_request: bool = True) -> Trace:
    """Generate a trace: the same settings and seed always give the same one, with one version of numpy.

    Popularity has no chance in it: the models' expected requests are the quantiles of ``settings.popularity``, dealt to the models at
    random. So two seeds differ in who is popular and when, not in how skewed the traffic is.

    Args:
        settings: what it is like.
        seed: 0 or more.
        each_request: draw payload and service time of each request; without it they are the models' means, in less time and memory.
    """
    random = np.random.default_rng(seed)
    population = _population(settings, random)
    expected = _expected_requests(settings, population, random)
    curve = _Curve(settings, population, random)
    periodic = _choose_periodic(settings, random)
    parts = (
        _session_requests(settings, population, np.where(periodic, 0.0, expected), curve, random),
        _periodic_requests(settings, population, np.where(periodic, expected, 0.0), random),
    )
    seconds = np.concatenate([part[0] for part in parts])
    model = np.concatenate([part[1] for part in parts])
    order = np.argsort(seconds)
    seconds, model = seconds[order], model[order]
    payload_bytes = service_seconds = None
    if each_request:
        payload = _around(population.payload_bytes[model], settings.payload_sigma, random)
        payload_bytes = np.minimum(payload, INVOKE_BODY_BYTES).astype(np.int32)
        service_seconds = _around(population.service_seconds[model], settings.service_sigma, random)
    return Trace(population, seconds, model, settings.days * _DAY, payload_bytes, service_seconds)


def _population(settings: TrafficSettings, random: np.random.Generator) -> Population:
    count, end = settings.models, settings.days * _DAY
    tenants = settings.tenants or count
    weights = settings.tenant_skew.spread(tenants)
    further = random.choice(tenants, count - tenants, p=weights / weights.sum())
    tenant = np.concatenate([np.arange(tenants), further])
    random.shuffle(tenant)
    memory_bytes = np.maximum(1, np.rint(settings.memory_bytes.sample(random, count))).astype(np.int64)
    load = settings.load_seconds
    load_seconds = load.sample(random, memory_bytes) if isinstance(load, LoadBySize) else load.sample(random, count)
    born = np.where(random.random(count) < settings.churn.present_share, 0.0, random.random(count) * end)
    return Population(
        models=target_models(tenant),
        tenants=tenant_names(tenants),
        tenant=tenant,
        memory_bytes=memory_bytes,
        load_seconds=load_seconds,
        service_seconds=settings.service_seconds.sample(random, count),
        payload_bytes=np.minimum(np.rint(settings.payload_bytes.sample(random, count)), INVOKE_BODY_BYTES).astype(np.int64),
        born=born,
        gone=born + random.standard_exponential(count) * settings.churn.lifetime_days * _DAY,
    )


def _expected_requests(settings: TrafficSettings, population: Population, random: np.random.Generator) -> Floats:
    """Of every model in its time; together they are ``settings.requests``."""
    weights = random.permutation(settings.popularity.spread(settings.models))
    weights = weights * _alive_seconds(settings, population)
    expected: Floats = weights * (settings.requests / weights.sum())
    return expected


def _alive_seconds(settings: TrafficSettings, population: Population) -> Floats:
    alive: Floats = np.minimum(population.gone, settings.days * _DAY) - population.born
    return alive


def _choose_periodic(settings: TrafficSettings, random: np.random.Generator) -> npt.NDArray[np.bool_]:
    chosen = np.zeros(settings.models, np.bool_)
    chosen[random.permutation(settings.models)[: round(settings.models * settings.periodic.share)]] = True
    return chosen


class _Curve:
    """The rate over day and week as its integral, and for each tenant how far its clock is ahead."""

    def __init__(self, settings: TrafficSettings, population: Population, random: np.random.Generator) -> None:
        diurnal, margin = settings.diurnal, _MOST_ZONES_HOURS * _HOUR
        ahead = diurnal.zone_spread_hours * _HOUR * random.standard_normal(len(population.tenants))
        self._ahead = np.clip(ahead, -margin, margin)[population.tenant]
        self._end = settings.days * _DAY
        self._at = np.arange(-margin, self._end + margin + _STEP, _STEP)
        self._integral = np.concatenate([[0.0], np.cumsum(_rate(diurnal, self._at[:-1] + _STEP / 2))])

    def draw(self, model: Integers, population: Population, random: np.random.Generator) -> Floats:
        """Times for these models, in their lives, as dense as the curve is high."""
        ahead = self._ahead
        first = np.interp(population.born + ahead, self._at, self._integral)
        last = np.interp(np.minimum(population.gone, self._end) + ahead, self._at, self._integral)
        level = first[model] + random.random(len(model)) * (last - first)[model]
        times: Floats = np.interp(level, self._integral, self._at) - ahead[model]
        return times


def _rate(diurnal: Diurnal, seconds: Floats) -> Floats:
    rate = 1 + diurnal.amplitude * np.cos(2 * np.pi * (seconds / _DAY - diurnal.peak_hour / 24))
    weekend = np.floor(seconds / _DAY) % 7 >= 5
    weighted: Floats = np.where(weekend, diurnal.weekend_factor, 1.0) * rate
    return weighted


def _session_requests(
    settings: TrafficSettings, population: Population, expected: Floats, curve: _Curve, random: np.random.Generator
) -> tuple[Floats, Integers]:
    mean_requests = np.clip(settings.sessions.requests.sample(random, settings.models), 1.0, np.maximum(expected, 1.0))
    mean_gaps = settings.sessions.gap_seconds.sample(random, settings.models)
    model = np.repeat(np.arange(settings.models), _whole(expected / mean_requests, random))
    starts = curve.draw(model, population, random)
    if settings.bursts.share > 0:
        _move_into_bursts(settings, population, model, starts, curve, random)
    sizes = random.geometric(1 / mean_requests[model])
    request_session = np.repeat(np.arange(len(model)), sizes)
    request_model = model[request_session]
    gaps = random.standard_exponential(len(request_session)) * mean_gaps[request_model]
    firsts = np.cumsum(sizes) - sizes
    gaps[firsts] = 0.0
    since = np.cumsum(gaps)
    since -= since[firsts][request_session]
    return _wrap(settings, population, request_model, starts[request_session] + since), request_model


def _move_into_bursts(
    settings: TrafficSettings,
    population: Population,
    model: Integers,
    starts: Floats,
    curve: _Curve,
    random: np.random.Generator,
) -> None:
    """Give a share of the sessions a new start, in a burst of their tenant."""
    bursts = _Bursts.draw(settings, population, curve, random)
    tenant = population.tenant[model]
    moved = np.nonzero((random.random(len(model)) < settings.bursts.share) & (bursts.count[tenant] > 0))[0]
    tenant = tenant[moved]
    chosen = bursts.first[tenant] + (random.random(len(moved)) * bursts.count[tenant]).astype(np.int64)
    times = bursts.start[chosen] + random.random(len(moved)) * bursts.seconds[chosen]
    starts[moved] = _wrap(settings, population, model[moved], times)


@dataclass(frozen=True, eq=False)
class _Bursts:
    """Those of tenant ``t`` are ``count[t]`` ones from ``first[t]``."""

    first: Integers
    count: Integers
    start: Floats
    seconds: Floats

    @classmethod
    def draw(cls, settings: TrafficSettings, population: Population, curve: _Curve, random: np.random.Generator) -> _Bursts:
        count = random.poisson(settings.bursts.per_tenant_per_day * settings.days, len(population.tenants))
        # A burst comes when a model of its tenant is there and its tenant is awake: drawn as a session of that model.
        one_model = np.empty(len(population.tenants), np.int64)
        one_model[population.tenant] = np.arange(settings.models)
        model = np.repeat(one_model, count)
        return cls(
            np.cumsum(count) - count, count, curve.draw(model, population, random), settings.bursts.seconds.sample(random, len(model))
        )


def _periodic_requests(
    settings: TrafficSettings, population: Population, expected: Floats, random: np.random.Generator
) -> tuple[Floats, Integers]:
    rules = settings.periodic
    periods = np.sort(np.array(rules.period_seconds))
    alive = _alive_seconds(settings, population)
    models = np.nonzero(expected > 0)[0]
    per_second = np.maximum(expected[models] / np.maximum(alive[models], 1e-9), 1e-300)
    shortest = np.minimum(np.searchsorted(periods, 1 / per_second), len(periods) - 1)
    longest = np.maximum(np.searchsorted(periods, rules.most_requests / per_second, side="right") - 1, shortest)
    period = periods[shortest + (random.random(len(models)) * (longest - shortest + 1)).astype(np.int64)]
    runs = np.maximum(1, np.floor(alive[models] / period)).astype(np.int64)
    run_model = np.repeat(np.arange(len(models)), runs)
    number = np.arange(len(run_model)) - np.repeat(np.cumsum(runs) - runs, runs)
    born = population.born[models]
    aligned = random.random(len(models)) < rules.aligned_share
    phase = random.random(len(models)) * period
    round_phase = np.floor(phase / _HOUR) * _HOUR  # 0 for periods of an hour at most
    first = np.where(aligned, np.ceil((born - round_phase) / period) * period + round_phase, born + phase)
    start = first[run_model] + number * period[run_model]
    start += random.random(len(run_model)) * rules.jitter_seconds
    requests = _whole((expected[models] / runs)[run_model], random)
    request_run = np.repeat(np.arange(len(run_model)), requests)
    request_model = models[run_model[request_run]]
    times = start[request_run] + random.random(len(request_run)) * rules.run_seconds
    return _wrap(settings, population, request_model, times), request_model


def _wrap(settings: TrafficSettings, population: Population, model: Integers, times: Floats) -> Floats:
    """What would come after a model's end comes as much after its start, so that a trace neither fills nor runs dry at its ends."""
    born = population.born[model]
    alive = np.maximum(_alive_seconds(settings, population), 1e-9)[model]
    wrapped: Floats = np.minimum(born + np.mod(times - born, alive), settings.days * _DAY)
    return wrapped


def _whole(mean: Floats, random: np.random.Generator) -> Integers:
    """Whole numbers with these means, as near to them as can be."""
    return np.floor(mean + random.random(len(mean))).astype(np.int64)


def _around(means: Floats | Integers, sigma: float, random: np.random.Generator) -> Floats:
    """Lognormal values with these means."""
    if sigma == 0:
        return means.astype(np.float64)
    factor = random.standard_normal(len(means), dtype=np.float32)
    factor *= sigma
    factor -= sigma * sigma / 2
    np.exp(factor, out=factor)
    values: Floats = means * factor
    return values
