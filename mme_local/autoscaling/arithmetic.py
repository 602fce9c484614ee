"""How many instances or copies a policy wants: pure arithmetic of step scaling and target tracking.

Sources: Application Auto Scaling User Guide, "How step scaling works" and "How target tracking scaling works".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["aggregated", "stepped", "tracked_in", "tracked_out"]

_NEARLY = 1e-9
"""Relative slack against a capacity too many from rounding in the metric."""


def aggregated(values: Sequence[float], kind: str) -> float:
    """The datapoints of an alarm as one number; ``kind`` is Average, Minimum or Maximum (MetricAggregationType)."""
    if kind == "Minimum":
        return min(values)
    if kind == "Maximum":
        return max(values)
    return sum(values) / len(values)


def stepped(configuration: Mapping[str, Any], current: int, breach: float) -> int | None:
    """The capacity that a step scaling policy wants.

    Args:
        configuration: StepScalingPolicyConfiguration.
        current: the capacity that it adjusts.
        breach: the metric less the alarm's threshold.

    Returns:
        The capacity, below 0 never; ``None`` when no step is for this breach.
    """
    for step in configuration["StepAdjustments"]:
        if _holds(step, breach):
            return max(0, _adjusted(configuration, current, step["ScalingAdjustment"]))
    return None


def _holds(step: Mapping[str, Any], breach: float) -> bool:
    """Above the threshold the lower bound belongs to a step, below it the upper one."""
    lower = step.get("MetricIntervalLowerBound", -math.inf)
    upper = step.get("MetricIntervalUpperBound", math.inf)
    if breach >= 0 and lower <= breach < upper:
        return True
    return bool(breach <= 0 and lower < breach <= upper)


def _adjusted(configuration: Mapping[str, Any], current: int, adjustment: int) -> int:
    kind = configuration["AdjustmentType"]
    if kind == "ExactCapacity":
        return adjustment
    if kind == "ChangeInCapacity":
        return current + adjustment
    change = current * adjustment / 100
    # At least one, and towards zero beyond that.
    whole = math.copysign(max(1, math.floor(abs(change) + _NEARLY)), change) if change else 0
    if whole:
        whole = math.copysign(max(abs(whole), configuration.get("MinAdjustmentMagnitude", 0)), whole)
    return current + int(whole)


def tracked_out(current: int, value: float, target: float) -> int:
    """The capacity that brings a metric down to its target: in proportion, rounded up."""
    return math.ceil(current * value / target * (1 - _NEARLY))


def tracked_in(current: int, value: float, target: float) -> int:
    """The capacity after a gradual step down: half of what is too much, at least one, and never below what the target needs.

    AWS says only that target tracking scales in more gradually than out; that it is half is this emulation's choice.
    """
    surplus = current - tracked_out(current, value, target)
    return current - max(1, surplus // 2) if surplus > 0 else current
