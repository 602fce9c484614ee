"""What an endpoint's metrics mean: the shared rules applied to readings. Pure: no AWS call, no clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from mme_cli.doctor_math import Values, evaluate
from mme_facts.instances import InstanceType
from mme_facts.metrics import ENDPOINT_METRICS, Metric
from mme_facts.thresholds import RULES, Rule, Signal

__all__ = ["JUDGED", "Diagnosis", "Finding", "NotJudged", "Query", "Readings", "diagnose", "needed_queries"]

_UPDATING = RULES["stuck-updating"]
JUDGED = tuple(rule for rule in RULES.values() if rule.section != "tenants" and rule is not _UPDATING)
"""The rules over metrics of an endpoint. Whether it is stuck updating is read from its description."""
_ENDED = frozenset({"Failed", "OutOfService", "UpdateRollbackFailed"})
"""Statuses that no waiting changes (API reference: DescribeEndpoint)."""
_WAIT = "long-load-wait"
_RECENT_PERIODS = 2
"""Metrics arrive late by a minute or two: what ended this many periods ago or later is still on."""


@dataclass(frozen=True, slots=True)
class Query:
    """One series to read.

    Attributes:
        metric: of the catalogue.
        statistic: one that it has.
        period_minutes: length of a period.
    """

    metric: Metric
    statistic: str
    period_minutes: int


_DOWNLOAD = Query(ENDPOINT_METRICS["ModelDownloadingTime"], "Average", 5)
_LOAD = Query(ENDPOINT_METRICS["ModelLoadingTime"], "Average", 5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """What was read of one endpoint.

    Attributes:
        endpoint: its name.
        variant: the production variant.
        status: EndpointStatus, such as ``InService``.
        seconds_in_status: how long it has had that status.
        instance: its instance type; ``None`` if it is not known.
        cache_enabled: whether models stay loaded.
        start: begin of the window, epoch seconds, a whole hour.
        end: its end, epoch seconds, a whole minute.
        series: what CloudWatch has; a query without data may be missing.
    """

    endpoint: str
    variant: str
    status: str
    seconds_in_status: float
    instance: InstanceType | None
    cache_enabled: bool
    start: int
    end: int
    series: Mapping[Query, Values] = field(default_factory=dict)

    @property
    def blind(self) -> bool:
        """Whether there is no data at all: then nothing can be said, least of all that all is well."""
        return not any(self.series.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something is the matter.

    Attributes:
        rule: the rule; title, meaning and action are the runbook's.
        now: whether it still is.
        last_seen: end of the last period in which it was, epoch seconds.
        worst: the worst value, as a person reads it.
        limit: the rule's limit, as a person reads it.
        evidence: what else the readings say about it.
    """

    rule: Rule
    now: bool
    last_seen: int
    worst: str
    limit: str
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NotJudged:
    """A rule that could not be applied, and why."""

    rule: Rule
    why: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What the readings mean.

    Attributes:
        findings: what users feel first, then what is on now, then what was.
        not_judged: the rules that could not be applied.
        blind: whether there was no data at all.
    """

    findings: tuple[Finding, ...]
    not_judged: tuple[NotJudged, ...]
    blind: bool

    @property
    def healthy(self) -> bool | None:
        """Whether nothing is the matter; ``None`` if nothing could be judged."""
        if self.findings:
            return False
        return None if self.blind else True


def needed_queries() -> tuple[Query, ...]:
    """Every series that `diagnose` looks at, each once."""
    queries = dict.fromkeys(_query(signal, rule) for rule in JUDGED for signal in rule.signals.values())
    return (*queries, _DOWNLOAD, _LOAD)


def diagnose(readings: Readings) -> Diagnosis:
    """Apply the rules: a finding fires where the alarm of the same rule would have fired in the window."""
    findings, not_judged = list(_updating(readings)), []
    for rule in JUDGED if not readings.blind else ():
        why = _obstacle(rule, readings)
        if why is None:
            findings += _judge(rule, readings)
        elif why:
            not_judged.append(NotJudged(rule, why))
    findings.sort(key=lambda finding: (not (finding.rule.hurts_users and finding.now), not finding.now, not finding.rule.hurts_users))
    return Diagnosis(tuple(findings), tuple(not_judged), readings.blind)


def _query(signal: Signal, rule: Rule) -> Query:
    return Query(signal.metric, signal.statistic, rule.period_minutes)


def _obstacle(rule: Rule, readings: Readings) -> str | None:
    """Why the rule cannot be applied; empty if it does not concern the endpoint, ``None`` if it can."""
    if rule.needs_cache and not readings.cache_enabled:
        return ""
    if rule.needs is not None and readings.instance is None:
        return "the instance type is not known: pass --instance-type"
    if rule.needs == "gpus" and readings.instance is not None and not readings.instance.gpus:
        return ""
    minutes = rule.period_minutes * rule.periods
    if minutes * 60 > readings.end - readings.start:
        return f"it looks at {minutes / 60:g} h: pass --hours {-(-minutes // 60) + 1}"
    if not any(readings.series.get(_query(signal, rule)) for signal in rule.signals.values()):
        return f"no data. {rule.missing_reason}"
    return None


def _judge(rule: Rule, readings: Readings) -> Iterable[Finding]:
    counts = {} if readings.instance is None else {"vcpus": readings.instance.vcpus, "gpus": readings.instance.gpus}
    limit = rule.limit(**counts)
    series = {name: readings.series.get(_query(signal, rule), {}) for name, signal in rule.signals.items()}
    values = evaluate(rule.math(vcpus=counts.get("vcpus", 1)), series)
    step = rule.period_minutes * 60
    times = range(readings.start, readings.end - step + 1, step)
    breaches = [_breaches(rule, values.get(time), limit) for time in times]
    firing = [end for end in range(rule.periods, len(breaches) + 1) if sum(breaches[end - rule.periods : end]) >= rule.breaching_periods]
    if not firing:
        return
    concerned = {times[index] for end in firing for index in range(end - rule.periods, end) if breaches[index]}
    worst = _worst(rule, [values[time] for time in concerned if time in values])
    yield Finding(
        rule=rule,
        now=firing[-1] > len(breaches) - _RECENT_PERIODS,
        last_seen=max(concerned) + step,
        worst=_shown(rule, worst, limit),
        limit=_shown(rule, limit, limit),
        evidence=tuple(_evidence(rule, readings)),
    )


def _breaches(rule: Rule, value: float | None, limit: float) -> bool:
    if value is None:
        return rule.missing == "breaching"
    return value > limit if rule.breach == "above" else value < limit


def _worst(rule: Rule, values: Sequence[float]) -> float | None:
    if not values:
        return None
    return max(values) if rule.breach == "above" else min(values)


def _shown(rule: Rule, value: float | None, limit: float) -> str:
    if value is None:
        return "no data"
    if rule.flag:
        return "yes" if value else "no"
    scale = limit / rule.threshold if rule.scale is not None else 1
    return f"{value / scale / rule.shown_per:.3g}{rule.unit}"


def _updating(readings: Readings) -> Iterable[Finding]:
    late = readings.status != "InService" and readings.seconds_in_status > _UPDATING.limit()
    if late or readings.status in _ENDED:
        yield Finding(
            rule=_UPDATING,
            now=True,
            last_seen=readings.end,
            worst=_shown(_UPDATING, readings.seconds_in_status, _UPDATING.limit()),
            limit=_shown(_UPDATING, _UPDATING.limit(), _UPDATING.limit()),
            evidence=(f"status {readings.status}",),
        )


def _evidence(rule: Rule, readings: Readings) -> Iterable[str]:
    """Long downloads or long loads: the founding question about a long wait."""
    if rule.id != _WAIT:
        return
    download, load = (_mean(readings.series.get(query, {})) for query in (_DOWNLOAD, _LOAD))
    if download is None and load is None:
        return
    verdict = "long downloads" if (download or 0) > (load or 0) else "long loads"
    yield f"mean download {_seconds(download)}, mean load {_seconds(load)}: {verdict}"


def _mean(values: Values) -> float | None:
    return sum(values.values()) / len(values) if values else None


def _seconds(microseconds: float | None) -> str:
    return "none" if microseconds is None else f"{microseconds / 1_000_000:.2g} s"
