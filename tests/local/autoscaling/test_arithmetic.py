"""How much a policy scales: tables of cases with known answers, most of them from the user guide."""

from __future__ import annotations

import pytest

from mme_local.autoscaling.arithmetic import aggregated, stepped, tracked_in, tracked_out

LADDER = [
    {"MetricIntervalLowerBound": 0.0, "MetricIntervalUpperBound": 10.0, "ScalingAdjustment": 0},
    {"MetricIntervalLowerBound": 10.0, "MetricIntervalUpperBound": 20.0, "ScalingAdjustment": 10},
    {"MetricIntervalLowerBound": 20.0, "ScalingAdjustment": 30},
]
DOWN = [
    {"MetricIntervalLowerBound": -10.0, "MetricIntervalUpperBound": 0.0, "ScalingAdjustment": 0},
    {"MetricIntervalLowerBound": -20.0, "MetricIntervalUpperBound": -10.0, "ScalingAdjustment": -10},
    {"MetricIntervalUpperBound": -20.0, "ScalingAdjustment": -30},
]


def steps(kind, *adjustments, **more):
    return {"AdjustmentType": kind, "StepAdjustments": list(adjustments), **more}


def percent(adjustment, **more):
    return steps("PercentChangeInCapacity", {"MetricIntervalLowerBound": 0.0, "ScalingAdjustment": adjustment}, **more)


@pytest.mark.parametrize(
    ("breach", "wanted"),
    [(0.0, 10), (9.9, 10), (10.0, 11), (19.9, 11), (20.0, 13), (1000.0, 13), (-1.0, None)],
)
def test_the_lower_bound_of_a_step_above_the_threshold_belongs_to_it(breach, wanted):
    assert stepped(steps("PercentChangeInCapacity", *LADDER), 10, breach) == wanted


@pytest.mark.parametrize(("breach", "wanted"), [(0.0, 10), (-9.9, 10), (-10.0, 9), (-19.9, 9), (-20.0, 7), (5.0, None)])
def test_the_upper_bound_of_a_step_below_the_threshold_belongs_to_it(breach, wanted):
    assert stepped(steps("PercentChangeInCapacity", *DOWN), 10, breach) == wanted


@pytest.mark.parametrize(
    ("current", "adjustment", "more", "wanted"),
    [
        (10, 12, {}, 11),  # 1.2 is 1
        (10, 5, {}, 11),  # 0.5 is 1
        (10, -5, {}, 9),  # -0.5 is -1
        (10, -67, {}, 4),  # -6.7 is -6
        (4, 25, {"MinAdjustmentMagnitude": 2}, 6),
        (4, -25, {"MinAdjustmentMagnitude": 2}, 2),
        (3, 100, {"MinAdjustmentMagnitude": 2}, 6),
        (0, 50, {}, 0),
        (10, 0, {}, 10),
        (1, -100, {}, 0),
    ],
)
def test_percentages_are_rounded_towards_zero_but_never_to_nothing(current, adjustment, more, wanted):
    assert stepped(percent(adjustment, **more), current, 1.0) == wanted


def test_other_kinds_of_adjustments():
    step = {"MetricIntervalLowerBound": 0.0, "ScalingAdjustment": 3}
    assert stepped(steps("ChangeInCapacity", step), 2, 1.0) == 5
    assert stepped(steps("ExactCapacity", step), 7, 1.0) == 3
    assert stepped(steps("ChangeInCapacity", {"MetricIntervalLowerBound": 0.0, "ScalingAdjustment": -9}), 2, 1.0) == 0


@pytest.mark.parametrize(
    ("current", "value", "target", "wanted"),
    [(2, 140.0, 70.0, 4), (2, 71.0, 70.0, 3), (1, 700.0, 70.0, 10), (3, 70.0, 70.0, 3), (0, 500.0, 70.0, 0), (10, 7.0 * 1.1, 7.0, 11)],
)
def test_target_tracking_scales_out_in_proportion(current, value, target, wanted):
    assert tracked_out(current, value, target) == wanted


@pytest.mark.parametrize(
    ("current", "value", "wanted"),
    [(10, 0.0, 5), (5, 0.0, 3), (2, 0.0, 1), (1, 0.0, 0), (4, 35.0, 3), (2, 40.0, 2), (8, 60.0, 7)],
)
def test_target_tracking_scales_in_gradually_and_never_below_what_the_target_needs(current, value, wanted):
    assert tracked_in(current, value, 70.0) == wanted


@pytest.mark.parametrize(("kind", "wanted"), [("Average", 2.0), ("Minimum", 1.0), ("Maximum", 3.0)])
def test_datapoints_are_aggregated(kind, wanted):
    assert aggregated([1.0, 3.0, 2.0], kind) == wanted
