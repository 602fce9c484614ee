"""One look of a metric alarm at its metric: the datapoints, what they mean, and how CloudWatch says it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from mme_local.cloudwatch.definitions import MetricDefinition
from mme_local.cloudwatch.judgement import EXTRA_PERIODS, Judgement, State, judge
from mme_local.cloudwatch.store import MetricStore

__all__ = ["Evaluation", "evaluate", "iso"]

_TREATED = {"breaching": "Breaching", "notBreaching": "NonBreaching"}


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What an alarm saw.

    Attributes:
        state: the state that follows; None keeps the current one.
        reason: in CloudWatch's words.
        data: the document of StateReasonData.
    """

    state: State | None
    reason: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Point:
    start: float
    value: float | None
    samples: float


def evaluate(definition: MetricDefinition, store: MetricStore, now: float) -> Evaluation:
    """Look at the last whole periods before ``now``, in scaled epoch seconds.

    Periods of a minute or longer end with the last minute, shorter ones with the last 10 seconds (user guide: Alarm evaluation).
    """
    step = 60 if definition.period >= 60 else 10
    end = math.floor(now / step) * step
    points = _points(definition, store, end)
    breaching = [None if point.value is None else definition.comparison.holds(point.value, definition.threshold) for point in points]
    judgement = judge(breaching, evaluated=definition.evaluated, needed=definition.needed, treatment=definition.treatment)
    used = [points[age] for age in judgement.used]
    state = judgement.state
    if any(point.samples < definition.least_samples for point in used):
        state = None
    return Evaluation(state, _reason(definition, judgement, used, breaching), _data(definition, used, now))


def _points(definition: MetricDefinition, store: MetricStore, end: float) -> list[_Point]:
    """The periods of the evaluation range, newest first."""
    count = definition.evaluated + EXTRA_PERIODS
    begin = end - count * definition.period
    starts = [end - (age + 1) * definition.period for age in range(count)]
    if definition.queries is not None:
        ((series,),) = definition.queries.evaluate(store, begin, end).values()
        return [_Point(start, series.points.get(start), 0.0) for start in starts]
    assert definition.metric is not None
    assert definition.statistic is not None
    found = store.samples(definition.metric, start=begin, end=end, period=definition.period, unit=definition.unit)
    return [
        _Point(start, definition.statistic.of(found[start]), found[start].count) if start in found else _Point(start, None, 0.0)
        for start in starts
    ]


def _reason(definition: MetricDefinition, judgement: Judgement, used: Sequence[_Point], breaching: Sequence[bool | None]) -> str:
    if not used:
        missing = definition.evaluated
        if definition.treatment not in _TREATED:
            return f"Insufficient Data: {_counted(missing, 'datapoint')} {_were(missing)} unknown."
        return (
            f"Threshold Crossed: no datapoints were received for {_counted(missing, 'period')} and "
            f"{_counted(missing, 'missing datapoint')} {_were(missing)} treated as [{_TREATED[definition.treatment]}]."
        )
    alarming = judgement.state == "ALARM"
    shown = [point for point, age in zip(used, judgement.used, strict=True) if breaching[age] is alarming] or list(used)
    moments = ", ".join(f"{point.value} ({datetime.fromtimestamp(point.start, UTC):%d/%m/%y %H:%M:%S})" for point in shown)
    least = definition.needed if alarming else definition.evaluated - definition.needed + 1
    filled = (
        f" and {_counted(judgement.filled, 'missing datapoint')} {_were(judgement.filled)} treated as [{_TREATED[definition.treatment]}]"
        if judgement.filled and definition.treatment in _TREATED
        else ""
    )
    return (
        f"Threshold Crossed: {len(shown)} out of the last {definition.evaluated} datapoint{'s' if definition.evaluated > 1 else ''} "
        f"[{moments}] {_were(len(shown))} {'' if alarming else 'not '}{definition.comparison.words} the threshold ({definition.threshold})"
        f"{filled} (minimum {_counted(least, 'datapoint')} for {'OK -> ALARM' if alarming else 'ALARM -> OK'} transition)."
    )


def _data(definition: MetricDefinition, used: Sequence[_Point], now: float) -> dict[str, Any]:
    oldest_first = list(reversed(used))
    return {
        "version": "1.0",
        "queryDate": iso(now),
        **({"startDate": iso(oldest_first[0].start)} if oldest_first else {}),
        **({"statistic": definition.statistic.name} if definition.statistic else {}),
        **({"unit": definition.unit} if definition.unit else {}),
        "period": definition.period,
        "recentDatapoints": [point.value for point in oldest_first],
        "threshold": definition.threshold,
        "evaluatedDatapoints": [
            {"timestamp": iso(point.start), **({"sampleCount": point.samples} if point.samples else {}), "value": point.value}
            for point in used
        ],
    }


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _were(number: int) -> str:
    return "was" if number == 1 else "were"


def iso(moment: float) -> str:
    """A moment as CloudWatch writes it in JSON: ``2026-11-29T22:18:00.000+0000``."""
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds").replace("+00:00", "+0000")
