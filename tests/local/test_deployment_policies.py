"""Deployment policies: which moves they are, and what is refused."""

from __future__ import annotations

import pytest

from mme_local.sagemaker.policies import ALL_AT_ONCE, Move, Policy, component_policy, endpoint_policy
from mme_local.wire import AwsError

OLD, NEW = {"AllTraffic": 4}, {"AllTraffic": 4}


def size(value, kind="CAPACITY_PERCENT"):
    return {"Type": kind, "Value": value}


def blue_green(kind="ALL_AT_ONCE", wait=10, **values):
    routing = {"Type": kind, "WaitIntervalInSeconds": wait}
    policy = {name: values.pop(name) for name in ("TerminationWaitInSeconds", "MaximumExecutionTimeoutInSeconds") if name in values}
    return {"BlueGreenUpdatePolicy": {"TrafficRoutingConfiguration": {**routing, **values}, **policy}}


def rolling(batch, wait=10, **values):
    return {"RollingUpdatePolicy": {"MaximumBatchSize": batch, "WaitIntervalInSeconds": wait, **values}}


def alarms(*names):
    return {"AutoRollbackConfiguration": {"Alarms": [{"AlarmName": name} for name in names]}}


def test_no_policy_is_all_at_once_without_a_wait():
    assert endpoint_policy(None, OLD, {"Other": 2}) == endpoint_policy({}, OLD, NEW) == ALL_AT_ONCE
    assert endpoint_policy(alarms("a", "b"), OLD, {"Other": 2}).alarms == ("a", "b")


def test_all_at_once_bakes_and_waits_before_the_old_fleet_goes():
    given = blue_green(wait=30, TerminationWaitInSeconds=60, MaximumExecutionTimeoutInSeconds=600)
    assert endpoint_policy({**given, **alarms("a")}, OLD, NEW) == Policy((Move(None, 1.0, 30),), 60, 600, ("a",))


@pytest.mark.parametrize(("canary", "share"), [(size(25), 0.25), (size(1, "INSTANCE_COUNT"), 0.25), (size(50), 0.5)])
def test_a_canary_bakes_twice(canary, share):
    policy = endpoint_policy(blue_green("CANARY", CanarySize=canary), OLD, NEW)
    assert policy.moves == (Move(None, share, 10), Move(None, 1.0, 10))


@pytest.mark.parametrize(
    ("step", "shares"),
    [
        (size(25), [0.25, 0.5, 0.75, 1.0]),
        (size(40), [0.4, 0.8, 1.0]),
        (size(2, "INSTANCE_COUNT"), [0.5, 1.0]),
        (size(10), [n / 10 for n in range(1, 11)]),
    ],
)
def test_linear_steps_end_with_all_the_traffic(step, shares):
    policy = endpoint_policy(blue_green("LINEAR", LinearStepSize=step), OLD, NEW)
    assert [move.traffic for move in policy.moves] == pytest.approx(shares)


def test_rolling_brings_a_batch_and_ends_as_many():
    policy = endpoint_policy(rolling(size(1, "INSTANCE_COUNT"), RollbackMaximumBatchSize=size(50)), OLD, NEW)
    assert [(move.new, move.old) for move in policy.moves] == [(1, 3), (2, 2), (3, 1), (4, 0)]
    assert [move.traffic for move in policy.moves] == pytest.approx([1 / 5, 2 / 5, 3 / 5, 1.0])
    assert policy.rollback_batch == 2


@pytest.mark.parametrize(("old", "new"), [(4, 6), (6, 4), (1, 3), (3, 1), (5, 5)])
@pytest.mark.parametrize("batch", [size(50), size(34)])
def test_rolling_never_has_less_than_the_smaller_fleet(old, new, batch):
    policy = endpoint_policy(rolling(batch), {"A": old}, {"A": new})
    kept = old
    for move in policy.moves:
        assert move.new + kept >= min(old, new)
        kept = move.old
    assert (policy.moves[-1].new, policy.moves[-1].old, policy.moves[-1].traffic) == (new, 0, 1.0)


def test_components_roll_one_copy_at_a_time_without_a_policy():
    assert [(move.new, move.old) for move in component_policy(None, 3).moves] == [(1, 2), (2, 1), (3, 0)]
    assert component_policy(rolling(size(50)), 4).moves[0].new == 2
    assert component_policy(rolling(size(50)), 0) == ALL_AT_ONCE


@pytest.mark.parametrize(
    ("given", "old", "new", "text"),
    [
        ({**blue_green(), **rolling(size(50))}, OLD, NEW, "give one of them"),
        (blue_green(), OLD, {"Other": 4}, "needs the same variant names"),
        (rolling(size(50)), {"A": 2, "B": 2}, {"A": 2, "B": 2}, "several production variants"),
        (rolling(size(60)), OLD, NEW, r"60% of 4 instances: 5% to 50% are allowed"),
        (rolling(size(3, "INSTANCE_COUNT")), OLD, NEW, "75% of 4 instances"),
        (rolling(size(4)), OLD, NEW, "4% of 4 instances"),
        (blue_green("CANARY"), OLD, NEW, "needs CanarySize, and has none"),
        (blue_green("CANARY", CanarySize=size(51)), OLD, NEW, "0% to 50% are allowed"),
        (blue_green("LINEAR", CanarySize=size(10)), OLD, NEW, "needs LinearStepSize, and has CanarySize"),
        (blue_green("LINEAR", LinearStepSize=size(5)), OLD, NEW, "10% to 50% are allowed"),
        (blue_green("ALL_AT_ONCE", CanarySize=size(5)), OLD, NEW, "needs no size, and has CanarySize"),
        (
            blue_green("CANARY", wait=400, CanarySize=size(10), MaximumExecutionTimeoutInSeconds=800),
            OLD,
            NEW,
            "must be larger than all waits together, 800 seconds",
        ),
        (rolling(size(50), wait=300, MaximumExecutionTimeoutInSeconds=600), OLD, NEW, "must be larger than all waits"),
    ],
)
def test_what_does_not_fit_is_refused(given, old, new, text):
    with pytest.raises(AwsError, match=text) as caught:
        endpoint_policy(given, old, new)
    assert caught.value.code == "ValidationException"
