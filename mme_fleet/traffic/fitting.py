"""Settings whose traffic is like a given trace: how the presets were made, and how to make one's own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from operator import itemgetter

import numpy as np

from mme_fleet.traffic.distributions import Lognormal, Mixture
from mme_fleet.traffic.generator import generate
from mme_fleet.traffic.settings import Bursts, Diurnal, Periodic, Sessions, TrafficSettings
from mme_fleet.traffic.shape import TraceShape, shape_of
from mme_fleet.traffic.trace import Floats, Integers, Trace

__all__ = ["fit", "fit_mixture"]

_DAY = 86_400.0
_ROUNDS_OF_EM = 200
_LEAST_SIGMA = 0.15  # of all: values that many have (a count of 1) must not draw a part for themselves
_PARTS_OF_POPULARITY = 4
_TRIALS = (1, 2)
_START = np.array([4.0, 1.0, 15.0, 1.5, 0.2, 2.0, 1800.0, 0.2, 0.5])
_LEAST = np.array([1.0, 0.0, 0.1, 0.0, 0.0, 0.2, 60.0, 0.0, 0.0])
_MOST = np.array([200.0, 2.5, 3600.0, 3.0, 0.9, 24.0, 14_400.0, 0.9, 1.0])


def fit(
    trace: Trace,
    *,
    seed: int = 1,
    rounds: int = 150,
    periodic: Periodic | None = None,
    start: TrafficSettings | None = None,
) -> TrafficSettings:
    """Fit settings to a trace.

    Directly: numbers of models, tenants and requests; mixtures of lognormal distributions for popularity (four), memory, load and service
    times (two); the first harmonic of the hours of the day. By search, from a fixed start and in ``rounds`` seeded steps that get smaller:
    sessions, bursts and the shares of periodic and of aligned models, so that `TraceShape.distance` between the trace and two generated
    ones gets small. Tenants are taken to be equal, in one time zone and there all the time.

    It takes twice ``rounds`` generations of a trace of that size: fit to a part of a large one.

    Args:
        trace: the trace; models without any request are left out.
        seed: of the search.
        rounds: its steps.
        periodic: how periodic models run; the shares in it are replaced. As ``start`` has it by default, or `Periodic`.
        start: whose sessions, bursts and periodic models the search starts from, in smaller steps than without.
    """
    trace = trace.only(trace.requests_per_model > 0)
    target = shape_of(trace)
    population = trace.population
    service = trace.service_seconds if trace.service_seconds is not None else population.service_seconds
    settings = TrafficSettings(
        models=len(population),
        requests=len(trace),
        days=trace.duration_seconds / _DAY,
        tenants=len(np.unique(population.tenant)),
        popularity=fit_mixture(trace.requests_per_model, _PARTS_OF_POPULARITY),
        diurnal=_diurnal(target),
        periodic=periodic or (start.periodic if start else Periodic(0.0)),
        memory_bytes=fit_mixture(population.memory_bytes),
        load_seconds=fit_mixture(population.load_seconds),
        service_seconds=fit_mixture(service),
    )
    return _search(settings, target, np.random.default_rng(seed), rounds, start)


def fit_mixture(values: Sequence[float] | Floats | Integers, parts: int = 2) -> Mixture | Lognormal:
    """Lognormal distributions for values, by expectation and maximisation on their logarithms; one for values that are all equal.

    Values of 0 or less are left out; the mixture is cut at the smallest and the greatest value.

    Raises:
        ValueError: no value is above 0.
    """
    given = np.asarray(values, np.float64)
    logs = np.log(given[given > 0])
    if not len(logs):
        raise ValueError("no value is above 0: a lognormal distribution needs one at least")
    if logs.min() == logs.max():
        return Lognormal(_digits(math.exp(logs[0])), 0.0)
    starts = (np.quantile(logs, (np.arange(parts) + 0.5) / parts), np.linspace(logs.min(), logs.max(), parts + 2)[1:-1])
    _, weights, means, sigmas = max((_maximise(logs, start) for start in starts), key=itemgetter(0))
    least, most = math.exp(logs.min()), math.exp(logs.max())
    return Mixture(
        tuple(
            (
                _digits(weight),
                Lognormal(
                    _digits(min(max(math.exp(mean), least), most)), _digits(sigma), _digits(least, down=True), _digits(most, up=True)
                ),
            )
            for weight, mean, sigma in zip(weights.tolist(), means.tolist(), sigmas.tolist(), strict=True)
        )
    )


def _maximise(logs: Floats, means: Floats) -> tuple[float, Floats, Floats, Floats]:
    """Expectation and maximisation from these means: likelihood, weights, means and sigmas."""
    sigmas = np.full(len(means), logs.std())
    weights = np.full(len(means), 1 / len(means))
    least_sigma = _LEAST_SIGMA * logs.std()
    likelihood = -math.inf
    for _ in range(_ROUNDS_OF_EM):
        densities = weights / sigmas * np.exp(-0.5 * ((logs[:, None] - means) / sigmas) ** 2) + 1e-300
        total = densities.sum(axis=1, keepdims=True)
        likelihood = float(np.log(total).mean())
        belongs = densities / total
        mass = np.maximum(belongs.sum(axis=0), 1e-9)
        weights = mass / len(logs)
        means = belongs.T @ logs / mass
        sigmas = np.maximum(np.sqrt((belongs * (logs[:, None] - means) ** 2).sum(axis=0) / mass), least_sigma)
    return likelihood, weights, means, sigmas


def _diurnal(target: TraceShape) -> Diurnal:
    hours = (np.arange(24) + 0.5) / 24
    harmonic = complex((np.array(target.hourly) * np.exp(2j * np.pi * hours)).sum())
    return Diurnal(_digits(min(1.0, 2 * abs(harmonic))), _digits(float(np.angle(harmonic)) / (2 * np.pi) * 24 % 24, down=True))


def _search(
    settings: TrafficSettings, target: TraceShape, random: np.random.Generator, rounds: int, start: TrafficSettings | None
) -> TrafficSettings:
    best_at, first_step = (_START, 0.5) if start is None else (_place(start), 0.2)
    best, best_distance = settings, math.inf
    for number in range(rounds):
        step = first_step * 0.05 ** (number / max(1, rounds - 1))
        at = best_at if number == 0 else np.clip(best_at * np.exp(step * random.standard_normal(len(best_at))), _LEAST, _MOST)
        candidate = _with(settings, at)
        distance = sum(target.distance(shape_of(generate(candidate, trial, each_request=False))) for trial in _TRIALS)
        if distance < best_distance:
            best, best_at, best_distance = candidate, np.maximum(at, 0.01), distance
    return best


def _place(settings: TrafficSettings) -> Floats:
    """Where settings of an earlier fit stand in the search; raises `TypeError` for others."""
    requests, gap, bursts = settings.sessions.requests, settings.sessions.gap_seconds, settings.bursts
    if not isinstance(requests, Lognormal) or not isinstance(gap, Lognormal) or not isinstance(bursts.seconds, Lognormal):
        raise TypeError("start has sessions or bursts that are not Lognormal: start from settings that were fitted, or from none")
    shares = (bursts.share, bursts.per_tenant_per_day, bursts.seconds.median, settings.periodic.share, settings.periodic.aligned_share)
    return np.maximum((requests.median, requests.sigma, gap.median, gap.sigma, *shares), 0.01)


def _with(settings: TrafficSettings, at: Floats) -> TrafficSettings:
    requests, requests_sigma, gap, gap_sigma, share, bursts, seconds, periodic, aligned = (_digits(value) for value in at.tolist())
    return replace(
        settings,
        sessions=Sessions(Lognormal(requests, requests_sigma), Lognormal(gap, gap_sigma)),
        bursts=Bursts(share, bursts, Lognormal(seconds, 1.0)),
        periodic=replace(settings.periodic, share=periodic, aligned_share=aligned),
    )


def _digits(value: float, *, down: bool = False, up: bool = False) -> float:
    """Three significant digits."""
    if value == 0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - 2)
    rounded = math.floor(value / unit) if down else math.ceil(value / unit) if up else round(value / unit)
    return float(f"{rounded * unit:.6g}")
