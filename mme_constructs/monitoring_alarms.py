"""From the shared rules to CloudWatch alarms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from aws_cdk import aws_cloudwatch as cloudwatch

from mme_constructs.errors import AlarmError
from mme_constructs.monitoring_metrics import MetricSource
from mme_facts.instances import InstanceType
from mme_facts.thresholds import RULES, Breach, Missing, Page, Rule

__all__ = ["COMPARISONS", "AlarmSettings", "check_window", "description", "rule_metric", "rule_of", "tuned"]

COMPARISONS: Mapping[Breach, cloudwatch.ComparisonOperator] = {
    "above": cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
    "below": cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD,
}
_DAY_MINUTES = 24 * 60
_WEEK_MINUTES = 7 * _DAY_MINUTES


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmSettings:
    """What one alarm does differently from its rule in `mme_facts.thresholds`; ``None`` keeps the rule's.

    Attributes:
        threshold: in the unit of the runbook page: percent (of one vCPU's whole, whatever their number), seconds, minutes or a count.
        period_minutes: length of a period, whole minutes: the metrics have one value a minute.
        periods: how many periods are looked at.
        breaching_periods: how many of them must breach, at most ``periods``.
        missing: what a period without data counts as: ``notBreaching``, ``breaching``, ``ignore`` or ``missing``.

    Raises:
        AlarmError: a number that CloudWatch refuses (API reference: PutMetricAlarm).
    """

    threshold: float | None = None
    period_minutes: int | None = None
    periods: int | None = None
    breaching_periods: int | None = None
    missing: Missing | None = None

    def __post_init__(self) -> None:
        for name in ("period_minutes", "periods", "breaching_periods"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int) and value >= 1):
                raise AlarmError(f"{name} is no whole number from 1", value=value, allowed="1, 2, 3, ...", fix="Change it")


def rule_of(rule_id: str) -> Rule:
    """The rule with this id; raises `AlarmError`."""
    if rule_id not in RULES:
        raise AlarmError("There is no such alarm", value=rule_id, allowed=", ".join(RULES), fix="Use one of these")
    return RULES[rule_id]


def tuned(rule: Rule, settings: AlarmSettings) -> Rule:
    """The rule with the settings applied; raises `AlarmError` where they do not fit it or CloudWatch's limits."""
    if rule.flag and settings.threshold is not None:
        raise AlarmError(
            f"{rule.id} has no threshold of its own",
            value=settings.threshold,
            allowed="None",
            fix="Leave it out, or add an alarm with add_alarm",
        )
    _check_threshold(rule, settings.threshold)
    periods = rule.periods if settings.periods is None else settings.periods
    breaching = settings.breaching_periods
    if breaching is None:
        breaching = min(rule.breaching_periods, periods) if settings.periods is None else periods
    result = replace(
        rule,
        threshold=rule.threshold if settings.threshold is None else settings.threshold * rule.shown_per,
        period_minutes=rule.period_minutes if settings.period_minutes is None else settings.period_minutes,
        periods=periods,
        breaching_periods=breaching,
        missing=rule.missing if settings.missing is None else settings.missing,
    )
    check_window(result.period_minutes, result.periods, result.breaching_periods)
    return result


def _check_threshold(rule: Rule, threshold: float | None) -> None:
    greatest = rule.greatest_threshold
    if threshold is not None and (threshold < 0 or (greatest is not None and threshold > greatest)):
        raise AlarmError(
            f"The threshold of {rule.id} is never or always crossed",
            value=threshold,
            allowed=f"0 to {greatest:g}{rule.unit}" if greatest is not None else "0 or more",
            fix="Use the unit of its runbook page",
        )


def check_window(period_minutes: int, periods: int, breaching_periods: int) -> None:
    """Raise `AlarmError` when CloudWatch would refuse the window (API reference: PutMetricAlarm)."""
    if breaching_periods > periods:
        raise AlarmError(
            "More periods must breach than are looked at",
            value=breaching_periods,
            allowed=f"1 to {periods}",
            fix="Change breaching_periods",
        )
    longest = _WEEK_MINUTES if period_minutes >= 60 else _DAY_MINUTES
    if period_minutes * periods > longest:
        raise AlarmError(
            "The alarm looks back too far",
            value=f"{periods} periods of {period_minutes} min",
            allowed=f"{longest} min together",
            fix="Use fewer periods, or periods of an hour or more for up to seven days",
        )


def rule_metric(rule: Rule, source: MetricSource, instance: InstanceType | None) -> dict[str, Any]:
    """What the rule's alarm looks at, as arguments of an L1 alarm."""
    signals = {
        name: source.metric(signal.metric, signal.statistic, period_minutes=rule.period_minutes) for name, signal in rule.signals.items()
    }
    if rule.expression in signals:
        return signals[rule.expression].alone()
    expression = cloudwatch.CfnAlarm.MetricDataQueryProperty(
        id="result",
        expression=rule.math(vcpus=1 if instance is None else instance.vcpus),
        label=rule.measured,
        return_data=True,
    )
    return {"metrics": [expression, *(used.signal(name) for name, used in signals.items())]}


def description(page: Page, when: str, runbook: str) -> str:
    """The alarm's text: what is the matter, when it fires, what to do, where to read on; at most 1,024 characters (PutMetricAlarm)."""
    return f"{page.title}. Fires when: {when}. First: {page.action} Runbook: {runbook}"
