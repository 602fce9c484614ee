"""What generated traffic is like. Every part can be left out; parameters fitted to real traces are in `mme_fleet.traffic.presets`."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from mme_fleet.traffic.distributions import Distribution, LoadBySize, Lognormal, Popularity, Zipf, check

__all__ = ["Bursts", "Churn", "Diurnal", "Periodic", "Sessions", "TrafficSettings"]

_MIB = 1_048_576
_ONE_REQUEST = Lognormal(1, 0)
_HALF_A_MINUTE = Lognormal(30, 0)
_HALF_AN_HOUR = Lognormal(1800, 1)
_MEMORY = Lognormal(256 * _MIB, 1, least=_MIB)
_LOAD = LoadBySize()
_SERVICE = Lognormal(0.02, 0.5)
_PAYLOAD = Lognormal(4096, 1)
_ZIPF = Zipf(1.0)


@dataclass(frozen=True, slots=True)
class Diurnal:
    """How the rate of requests changes over day and week.

    Attributes:
        amplitude: the rate is ``1 + amplitude * cos(...)`` times the mean; 0 for none, 1 for a night without requests.
        peak_hour: when it is highest, in hours from midnight; traces start at midnight of a Monday.
        zone_spread_hours: tenants live in different zones: their curves are shifted by a normal number of hours with this
            standard deviation.
        weekend_factor: the rate on the sixth and seventh day, as a share of that on the others.
    """

    amplitude: float = 0.0
    peak_hour: float = 14.0
    zone_spread_hours: float = 0.0
    weekend_factor: float = 1.0

    def __post_init__(self) -> None:
        check(0 <= self.amplitude <= 1, "amplitude", self.amplitude, "0 to 1")
        check(0 <= self.peak_hour < 24, "peak_hour", self.peak_hour, "0 to less than 24")
        check(0 <= self.zone_spread_hours <= 12, "zone_spread_hours", self.zone_spread_hours, "0 to 12")
        check(0 < self.weekend_factor < math.inf, "weekend_factor", self.weekend_factor, "a finite number above 0")


@dataclass(frozen=True, slots=True)
class Sessions:
    """Requests for a model come in groups.

    Attributes:
        requests: mean requests of a session, different from model to model; sizes of a model's sessions are geometric.
        gap_seconds: mean time between two requests of a session, different from model to model; a model's gaps are exponential.
    """

    requests: Distribution = _ONE_REQUEST
    gap_seconds: Distribution = _HALF_A_MINUTE


@dataclass(frozen=True, slots=True)
class Bursts:
    """A tenant's models are used more for a while.

    Attributes:
        share: share of all sessions that come in bursts.
        per_tenant_per_day: mean number of bursts of a tenant.
        seconds: how long they last.
    """

    share: float
    per_tenant_per_day: float = 2.0
    seconds: Distribution = _HALF_AN_HOUR

    def __post_init__(self) -> None:
        check(0 <= self.share <= 1, "share", self.share, "0 to 1")
        check(0 < self.per_tenant_per_day < math.inf, "per_tenant_per_day", self.per_tenant_per_day, "a finite number above 0")


@dataclass(frozen=True, slots=True)
class Periodic:
    """Some models are called by the clock, as cron jobs do.

    A model's requests per run follow from its rate: a model of 1,440 requests a day that runs every 5 minutes gets 5 a run.

    Attributes:
        share: share of the models that are.
        period_seconds: the periods there are; a model gets one that leaves at least one request a run, if there is one.
        most_requests: of the periods it could have, a model gets one with at most so many requests a run, if there is one.
        aligned_share: share of the periodic models whose runs come at multiples of the period from midnight, or from a full hour if the
            period is longer than one; the others have a phase of their own.
        jitter_seconds: a run begins up to so much late.
        run_seconds: its requests are spread over this time.
    """

    share: float
    period_seconds: tuple[float, ...] = (60.0, 300.0, 900.0, 3600.0, 86_400.0)
    most_requests: float = math.inf
    aligned_share: float = 0.0
    jitter_seconds: float = 2.0
    run_seconds: float = 1.0

    def __post_init__(self) -> None:
        check(0 <= self.share <= 1, "share", self.share, "0 to 1")
        check(0 <= self.aligned_share <= 1, "aligned_share", self.aligned_share, "0 to 1")
        check(bool(self.period_seconds), "period_seconds", self.period_seconds, "one period or more")
        for period in self.period_seconds:
            check(0 < period < math.inf, "period_seconds", period, "finite numbers above 0")
        check(self.most_requests >= 1, "most_requests", self.most_requests, "1 or more")
        for name in ("jitter_seconds", "run_seconds"):
            check(0 <= getattr(self, name) < math.inf, name, getattr(self, name), "a finite number of 0 or more")


@dataclass(frozen=True, slots=True)
class Churn:
    """Models come and go.

    Attributes:
        present_share: share of the models that are there at the start; the others appear at random times.
        lifetime_days: mean time that a model stays, from its appearance or the start; times are exponential. ``inf``: it stays.
    """

    present_share: float = 1.0
    lifetime_days: float = math.inf

    def __post_init__(self) -> None:
        check(0 <= self.present_share <= 1, "present_share", self.present_share, "0 to 1")
        check(self.lifetime_days > 0, "lifetime_days", self.lifetime_days, "a number above 0")


@dataclass(frozen=True, slots=True)
class TrafficSettings:
    """Traffic of many tenants' models.

    Attributes:
        models: how many models.
        requests: how many requests, about: sessions are whole, so a trace has some more or fewer.
        days: how long.
        tenants: how many tenants; one a model by default. Every tenant has a model at least.
        tenant_skew: how the further models go to tenants; Zipf's law with exponent 1 by default.
        popularity: how requests go to models; Zipf's law with exponent 1 by default.
        diurnal: day and week; a constant rate by default.
        sessions: groups of requests; single ones by default.
        bursts: busy times of tenants; none by default.
        periodic: models that run by the clock; none by default.
        churn: models that come and go; all stay by default.
        memory_bytes: memory of a model; a median of 256 MiB by default.
        load_seconds: time of a load, by size (the default) or by itself.
        service_seconds: mean time of a model's answers; a median of 20 ms by default.
        service_sigma: standard deviation of the logarithm of the time of single answers around the model's mean.
        payload_bytes: mean size of a model's request bodies, at most what InvokeEndpoint takes.
        payload_sigma: as ``service_sigma``.

    Raises:
        ValueError: a value is out of range; the text names it and what is allowed.
    """

    models: int
    requests: int
    days: float = 1.0
    tenants: int | None = None
    tenant_skew: Zipf = _ZIPF
    popularity: Popularity = _ZIPF
    diurnal: Diurnal = field(default_factory=Diurnal)
    sessions: Sessions = field(default_factory=Sessions)
    bursts: Bursts = field(default_factory=lambda: Bursts(0.0))
    periodic: Periodic = field(default_factory=lambda: Periodic(0.0))
    churn: Churn = field(default_factory=Churn)
    memory_bytes: Distribution = _MEMORY
    load_seconds: LoadBySize | Distribution = _LOAD
    service_seconds: Distribution = _SERVICE
    service_sigma: float = 0.3
    payload_bytes: Distribution = _PAYLOAD
    payload_sigma: float = 0.5

    def __post_init__(self) -> None:
        check(self.models >= 1, "models", self.models, "1 or more")
        check(self.requests >= 0, "requests", self.requests, "0 or more")
        check(0 < self.days < math.inf, "days", self.days, "a finite number above 0")
        check(self.tenants is None or 1 <= self.tenants <= self.models, "tenants", self.tenants, f"1 to models, {self.models}")
        for name in ("service_sigma", "payload_sigma"):
            check(0 <= getattr(self, name) < math.inf, name, getattr(self, name), "a finite number of 0 or more")

    def resized(self, *, models: int, requests: int, days: float | None = None) -> TrafficSettings:
        """The same kind of traffic for another number of models and requests; tenants in proportion."""
        tenants = None if self.tenants is None else min(models, max(1, round(self.tenants * models / self.models)))
        return replace(self, models=models, requests=requests, days=self.days if days is None else days, tenants=tenants)
