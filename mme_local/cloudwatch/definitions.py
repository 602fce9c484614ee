"""What an alarm watches, checked: the documents of PutMetricAlarm and PutCompositeAlarm as values.

Rules: API reference of PutMetricAlarm and PutCompositeAlarm. What the local cloud does not evaluate is refused, never ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import ge, gt, le, lt
from typing import Any, get_args

from mme_local.cloudwatch.judgement import Treatment
from mme_local.cloudwatch.queries import Queries, metric_of, parse_queries
from mme_local.cloudwatch.rules import Rule, RuleError, parse_rule
from mme_local.cloudwatch.statistics import Statistic, parse_statistic
from mme_local.cloudwatch.store import Metric
from mme_local.wire import ValidationError, service_model

__all__ = [
    "ALARM_OPERATIONS",
    "Comparison",
    "CompositeDefinition",
    "MetricDefinition",
    "composite_definition",
    "metric_definition",
]

ALARM_OPERATIONS = ("PutCompositeAlarm", "PutMetricAlarm")

_SHORT_PERIODS = (10, 20, 30)
_DAY_SECONDS, _WEEK_SECONDS = 86400, 7 * 86400
_ACTION = re.compile(r"arn:aws[a-z-]*:(sns|autoscaling|lambda):[a-z0-9-]*:\d*:.+", re.DOTALL)
_UNSUPPORTED = ("EvaluationCriteria", "EvaluationInterval", "EvaluationWindow", "ThresholdMetricId", "WarmUpConfiguration")
_ONE_METRIC = ("MetricName", "Namespace", "Dimensions", "Period", "Statistic", "ExtendedStatistic", "Unit")


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison of a datapoint with the threshold.

    Attributes:
        holds: whether the value on the left breaches the threshold on the right.
        words: how state reasons say it.
    """

    holds: Callable[[float, float], bool]
    words: str


_COMPARISONS: Mapping[str, Comparison] = {
    "GreaterThanThreshold": Comparison(gt, "greater than"),
    "GreaterThanOrEqualToThreshold": Comparison(ge, "greater than or equal to"),
    "LessThanThreshold": Comparison(lt, "less than"),
    "LessThanOrEqualToThreshold": Comparison(le, "less than or equal to"),
}


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    """A metric alarm.

    Attributes:
        name: the alarm's name.
        request: the validated PutMetricAlarm document, with its defaults; without tags.
        metric: what it watches; None when it watches an expression.
        statistic: of each period; None when it watches an expression.
        unit: only samples of this unit count; None for all.
        queries: the metrics and expressions of an alarm on metric math, of which one is returned; else None.
        period: seconds.
        evaluated: N, how many datapoints are evaluated.
        needed: M, how many of them must breach.
        comparison: of a datapoint with the threshold.
        threshold: the limit.
        treatment: what missing datapoints count as.
        least_samples: samples that a period needs for its percentile to count; 0 when any number does.
    """

    name: str
    request: Mapping[str, Any]
    metric: Metric | None
    statistic: Statistic | None
    unit: str | None
    queries: Queries | None
    period: int
    evaluated: int
    needed: int
    comparison: Comparison
    threshold: float
    treatment: Treatment
    least_samples: float


@dataclass(frozen=True, slots=True)
class CompositeDefinition:
    """A composite alarm.

    Attributes:
        name: the alarm's name.
        request: the validated PutCompositeAlarm document, with its defaults; without tags.
        rule: of other alarms' states.
        suppressor: name of the alarm that suppresses its actions, or None.
        wait_seconds: how long actions wait for the suppressor to go to ALARM.
        extension_seconds: how long actions stay suppressed after the suppressor left ALARM.
    """

    name: str
    request: Mapping[str, Any]
    rule: Rule
    suppressor: str | None
    wait_seconds: float
    extension_seconds: float


def metric_definition(request: object, *, from_template: bool = False) -> MetricDefinition:
    """Check a PutMetricAlarm document.

    Raises:
        AwsError: it is invalid, or it asks for what the local cloud does not evaluate.
    """
    given = service_model("cloudwatch", ALARM_OPERATIONS).validated("PutMetricAlarm", request, from_template=from_template)
    _check_common(given)
    if unsupported := [member for member in _UNSUPPORTED if member in given]:
        raise ValidationError(f"The local cloud does not evaluate {', '.join(unsupported)} of alarm {given['AlarmName']}.")
    _require(given, "EvaluationPeriods", "ComparisonOperator", "Threshold")
    if given["ComparisonOperator"] not in _COMPARISONS:
        raise ValidationError(
            f"ComparisonOperator {given['ComparisonOperator']} belongs to anomaly detection, which the local cloud does not have: "
            f"use {', '.join(_COMPARISONS)}."
        )
    queries = _queries(given)
    if queries is None:
        _require(given, "MetricName", "Namespace", "Period")
    statistic = _statistic(given) if queries is None else None
    period = given["Period"] if queries is None else next(iter(queries.periods()))
    evaluated = given["EvaluationPeriods"]
    needed = given.get("DatapointsToAlarm", evaluated)
    if needed > evaluated:
        raise ValidationError(f"DatapointsToAlarm {needed} must be less than or equal to EvaluationPeriods {evaluated}.")
    _check_period(period, evaluated)
    treatment = given.get("TreatMissingData", "missing")
    if treatment not in get_args(Treatment):
        raise ValidationError(f"TreatMissingData {treatment} must be one of {', '.join(get_args(Treatment))}.")
    return MetricDefinition(
        given["AlarmName"],
        _with_defaults(given),
        metric_of(given) if queries is None else None,
        statistic,
        given.get("Unit"),
        queries,
        period,
        evaluated,
        needed,
        _COMPARISONS[given["ComparisonOperator"]],
        float(given["Threshold"]),
        treatment,
        _least_samples(given, statistic),
    )


def composite_definition(request: object, *, from_template: bool = False) -> CompositeDefinition:
    """Check a PutCompositeAlarm document, but for whether the alarms of its rule exist.

    Raises:
        AwsError: it is invalid.
    """
    given = service_model("cloudwatch", ALARM_OPERATIONS).validated("PutCompositeAlarm", request, from_template=from_template)
    _check_common(given, services=("sns", "lambda"))
    try:
        rule = parse_rule(given["AlarmRule"])
    except RuleError as error:
        raise ValidationError(f"AlarmRule must be a valid expression: {error}") from None
    waits = [given.get(member) for member in ("ActionsSuppressorWaitPeriod", "ActionsSuppressorExtensionPeriod")]
    suppressor = given.get("ActionsSuppressor")
    if (suppressor is None) != (waits[0] is None) or (suppressor is None) != (waits[1] is None):
        raise ValidationError(
            "ActionsSuppressor, ActionsSuppressorWaitPeriod and ActionsSuppressorExtensionPeriod must be given together or not at all."
        )
    if any(wait is not None and wait < 0 for wait in waits):
        raise ValidationError("ActionsSuppressorWaitPeriod and ActionsSuppressorExtensionPeriod must not be negative.")
    return CompositeDefinition(
        given["AlarmName"],
        _with_defaults(given),
        rule,
        suppressor.rpartition(":alarm:")[2] if suppressor else None,
        float(waits[0] or 0),
        float(waits[1] or 0),
    )


def _check_period(period: int, evaluated: int) -> None:
    """Check an alarm's period and how far back it looks; raises `ValidationError`."""
    if period not in _SHORT_PERIODS and period % 60:
        raise ValidationError(f"Period {period} must be 10, 20, 30 or a multiple of 60 seconds.")
    longest = _DAY_SECONDS if period < 3600 else _WEEK_SECONDS
    if period * evaluated > longest:
        raise ValidationError(
            f"Metrics cannot be checked across more than {longest // _DAY_SECONDS} day(s): EvaluationPeriods {evaluated} x Period {period} "
            f"must be at most {longest} seconds."
        )


def _check_common(given: Mapping[str, Any], services: Sequence[str] = ("sns", "autoscaling", "lambda")) -> None:
    for member in ("AlarmActions", "OKActions", "InsufficientDataActions"):
        for action in given.get(member, []):
            match = _ACTION.fullmatch(action)
            if match is None or match[1] not in services:
                raise ValidationError(f"{member} {action} is not an action that the local cloud takes: use ARNs of {', '.join(services)}.")
    if any(ord(character) < 32 or ord(character) == 127 for character in given["AlarmName"]):
        raise ValidationError("AlarmName must not contain ASCII control characters.")


def _require(given: Mapping[str, Any], *members: str) -> None:
    if missing := [member for member in members if member not in given]:
        raise ValidationError(f"The parameter{'s' if len(missing) > 1 else ''} {', '.join(missing)} must be given for a metric alarm.")


def _queries(given: Mapping[str, Any]) -> Queries | None:
    """The queries of an alarm on metric math (API reference of PutMetricAlarm: Metrics)."""
    if "Metrics" not in given:
        return None
    if named := [member for member in _ONE_METRIC if member in given]:
        raise ValidationError(f"Metrics list and {', '.join(named)} cannot be specified together for an alarm.")
    queries = parse_queries(given["Metrics"])
    if not queries.returns_one():
        raise ValidationError("Exactly one element of the Metrics list of an alarm should return data, and that must be one time series.")
    if len(periods := queries.periods()) != 1:
        raise ValidationError(f"All metrics of an alarm must have one period, not {sorted(periods) or 'none'}.")
    return queries


def _statistic(given: Mapping[str, Any]) -> Statistic:
    if ("Statistic" in given) == ("ExtendedStatistic" in given):
        raise ValidationError("Exactly one of Statistic and ExtendedStatistic must be specified.")
    name = given.get("Statistic") or given["ExtendedStatistic"]
    try:
        return parse_statistic(name)
    except ValueError as error:
        raise ValidationError(f"The value {name} for parameter ExtendedStatistic is not supported: {error}") from None


def _least_samples(given: Mapping[str, Any], statistic: Statistic | None) -> float:
    """Samples below which a percentile is not significant (user guide: percentile-based alarms and low data samples)."""
    choice = given.get("EvaluateLowSampleCountPercentile")
    if choice not in (None, "evaluate", "ignore"):
        raise ValidationError(f"EvaluateLowSampleCountPercentile {choice} must be evaluate or ignore.")
    percentile = None if statistic is None else statistic.percentile
    if choice is not None and percentile is None:
        raise ValidationError("EvaluateLowSampleCountPercentile is only for alarms on a percentile.")
    if choice != "ignore" or percentile is None:
        return 0.0
    rare = min(percentile, 100.0 - percentile) / 100.0
    return 10.0 / rare if rare else 0.0


def _with_defaults(given: Mapping[str, Any]) -> dict[str, Any]:
    lists: dict[str, list[str]] = {"OKActions": [], "AlarmActions": [], "InsufficientDataActions": []}
    return {"ActionsEnabled": True, **lists, **{member: value for member, value in given.items() if member != "Tags"}}
