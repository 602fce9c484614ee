"""What scales, when, and how it is told: policies, alarms, cooldowns, schedules, bounds, with the real alarms and metric store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from mme_local.autoscaling.activities import Activity
from mme_local.autoscaling.capacity import BusyError, RefusedError
from mme_local.autoscaling.engine import SCALED_TO_MAX, Scaler
from mme_local.autoscaling.models import AutoScaling, Key
from mme_local.clock import CloudClock
from mme_local.cloudwatch.alarms import Alarms
from mme_local.cloudwatch.store import MetricStore
from mme_local.wire import AwsError

KEY = {
    "ServiceNamespace": "sagemaker",
    "ResourceId": "endpoint/shared/variant/AllTraffic",
    "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
}
COPIES = {
    "ServiceNamespace": "sagemaker",
    "ResourceId": "inference-component/acme",
    "ScalableDimension": "sagemaker:inference-component:DesiredCopyCount",
}
TARGET: Key = ("sagemaker", KEY["ResourceId"], KEY["ScalableDimension"])
OF_COPIES: Key = ("sagemaker", COPIES["ResourceId"], COPIES["ScalableDimension"])
ON_VARIANT = {"EndpointName": "shared", "VariantName": "AllTraffic"}


class Fleets:
    """Capacities that change at once, or when they are told to."""

    def __init__(self) -> None:
        self.counts: dict[Key, int] = {TARGET: 2, OF_COPIES: 0}
        self.busy = False
        self.refuses: str | None = None
        self.falls_short: str | None = None
        self.asked: list[int] = []
        self._free = asyncio.Event()
        self._free.set()

    def hold(self) -> None:
        """Changes take until `release`."""
        self._free.clear()

    def release(self) -> None:
        self._free.set()
        self.busy = False

    def desired(self, key: Key) -> int | None:
        return self.counts.get(key)

    def set(self, key: Key, count: int) -> None:
        if self.busy:
            raise BusyError
        if self.refuses is not None:
            raise RefusedError(self.refuses)
        self.asked.append(count)
        self.counts[key] = count

    async def settled(self, key: Key) -> None:
        await self._free.wait()

    def shortfall(self, key: Key, count: int) -> str | None:
        return self.falls_short


class Stage:
    def __init__(self) -> None:
        self.clock = CloudClock()
        self.clock.jump(60.0 - self.clock.time() % 60.0 + 6.0)
        self.store = MetricStore(self.clock.time)
        self.alarms = Alarms(self.store, self.clock, region="us-east-1", account="000000000000")
        self.fleets = Fleets()
        self.events: list[tuple[str, Mapping[str, Any], str]] = []
        self.autoscaling = AutoScaling(
            region="us-east-1",
            account="000000000000",
            variant_exists=lambda endpoint, variant: (endpoint, variant) == ("shared", "AllTraffic"),
            component_exists=lambda name: name == "acme",
            now=self.clock.now,
            alarms=self.alarms,
        )
        self.scaler = Scaler(self.autoscaling, self.fleets, self.alarms, self.clock, self._publish)
        self.alarms.on_action("arn:aws:autoscaling:", self.scaler.on_alarm, repeated=True)

    def _publish(self, detail_type: str, detail: Mapping[str, Any], resources: Sequence[str], *, source: str) -> None:
        self.events.append((detail_type, detail, source))

    @property
    def count(self) -> int:
        return self.fleets.counts[TARGET]

    def register(self, minimum: int = 1, maximum: int = 10, **more: Any) -> None:
        self.autoscaling.register({**KEY, "MinCapacity": minimum, "MaxCapacity": maximum, **more})

    def track(self, target: float = 70.0, name: str = "track", metric: str = "SageMakerVariantInvocationsPerInstance", **more: Any) -> Any:
        configuration = {"TargetValue": target, "PredefinedMetricSpecification": {"PredefinedMetricType": metric}, **more}
        return self.autoscaling.put_policy(
            {**KEY, "PolicyName": name, "PolicyType": "TargetTrackingScaling", "TargetTrackingScalingPolicyConfiguration": configuration}
        )

    def step(self, *steps: Mapping[str, Any], name: str = "step", key: Mapping[str, str] = KEY, **more: Any) -> Any:
        configuration = {"AdjustmentType": "ChangeInCapacity", "StepAdjustments": list(steps), **more}
        return self.autoscaling.put_policy(
            {**key, "PolicyName": name, "PolicyType": "StepScaling", "StepScalingPolicyConfiguration": configuration}
        )

    async def minutes(self, *values: float | None, metric: str = "InvocationsPerInstance") -> None:
        """So many minutes pass, each with a value of a metric; the alarms look after each."""
        for value in values:
            if value is not None:
                self.store.put("AWS/SageMaker", metric, ON_VARIANT, [value], timestamp=self.clock.time())
            self.clock.jump(60.0)
            self.alarms.evaluate()
            await self.quiet()

    async def quiet(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    def activities(self, *, not_scaled: bool = False) -> list[Activity]:
        return self.scaler.activities.of("sagemaker", not_scaled=not_scaled)

    def reasons(self) -> list[dict[str, Any]]:
        return [dict(reason) for activity in self.activities(not_scaled=True) for reason in activity.not_scaled]


def staged(story: Callable[[Stage], Awaitable[None]]) -> Callable[[], None]:
    """A test that is a coroutine on a stage."""

    def test() -> None:
        async def run() -> None:
            stage = Stage()
            stage.scaler.start()
            try:
                await story(stage)
            finally:
                await stage.scaler.stop()

        asyncio.run(run())

    test.__name__ = story.__name__
    return test


class TestTargetTracking:
    @staticmethod
    def test_its_alarms_are_named_and_made_as_aws_does():
        async def story() -> None:
            stage = Stage()
            stage.register()
            policy = stage.track()
            high, low = stage.alarms.describe(prefix="TargetTracking-endpoint/shared/variant/AllTraffic-Alarm")
            assert {alarm["AlarmName"] for alarm in stage.autoscaling.alarms_of(policy)} == {high["AlarmName"], low["AlarmName"]}
            assert high["AlarmName"].startswith("TargetTracking-endpoint/shared/variant/AllTraffic-AlarmHigh-")
            shared = {"MetricName": "InvocationsPerInstance", "Statistic": "Sum", "Period": 60, "AlarmActions": [policy.arn]}
            assert shared.items() <= high.items()
            assert shared.items() <= low.items()
            assert (high["Threshold"], high["EvaluationPeriods"], high["ComparisonOperator"]) == (70.0, 3, "GreaterThanThreshold")
            assert (low["Threshold"], low["EvaluationPeriods"], low["ComparisonOperator"]) == (63.0, 15, "LessThanThreshold")
            stage.track(target=100.0, DisableScaleIn=True)
            (kept,) = stage.alarms.describe()
            assert (kept["AlarmName"], kept["Threshold"]) == (high["AlarmName"], 100.0)
            stage.autoscaling.delete_policy({**KEY, "PolicyName": "track"})
            assert stage.alarms.describe() == []

        asyncio.run(story())

    @staticmethod
    def test_high_resolution_metrics_look_at_ten_seconds():
        async def story() -> None:
            stage = Stage()
            stage.register()
            stage.track(metric="SageMakerVariantConcurrentRequestsPerModelHighResolution")
            high, low = stage.alarms.describe()
            assert {(alarm["Period"], alarm["Statistic"]) for alarm in (high, low)} == {(10, "Maximum")}
            assert (high["EvaluationPeriods"], low["EvaluationPeriods"]) == (3, 90)

        asyncio.run(story())

    @staticmethod
    def test_customized_metrics_and_metric_math_are_watched():
        async def story() -> None:
            stage = Stage()
            stage.register()
            custom = {"Namespace": "/aws/sagemaker/Endpoints", "MetricName": "CPUUtilization", "Statistic": "Average", "Unit": "Percent"}
            dimensions = [{"Name": name, "Value": value} for name, value in ON_VARIANT.items()]
            query = {
                "PolicyName": "custom",
                "PolicyType": "TargetTrackingScaling",
                "TargetTrackingScalingPolicyConfiguration": {
                    "TargetValue": 50.0,
                    "CustomizedMetricSpecification": {**custom, "Dimensions": dimensions},
                },
            }
            stage.autoscaling.put_policy({**KEY, **query})
            high, _low = stage.alarms.describe()
            assert {**custom, "Dimensions": dimensions, "Threshold": 50.0}.items() <= high.items()
            metric = {"Namespace": "/aws/sagemaker/Endpoints", "MetricName": "CPUUtilization", "Dimensions": dimensions}
            metrics = [
                {"Id": "cpu", "MetricStat": {"Metric": metric, "Stat": "Average"}, "ReturnData": False},
                {"Id": "share", "Expression": "cpu / 4", "ReturnData": True},
            ]
            specification = {"TargetValue": 60.0, "CustomizedMetricSpecification": {"Metrics": metrics}}
            stage.autoscaling.put_policy({**KEY, **query, "TargetTrackingScalingPolicyConfiguration": specification})
            for _ in range(3):
                stage.store.put("/aws/sagemaker/Endpoints", "CPUUtilization", ON_VARIANT, [360.0], timestamp=stage.clock.time())
                await stage.minutes(None)
            assert stage.count == 3, "90 per cent of four cores, with a target of 60"

        asyncio.run(story())


@staged
async def test_it_scales_out_in_proportion_after_three_minutes(stage):
    stage.register()
    stage.track()
    await stage.minutes(140.0, 140.0)
    assert stage.count == 2
    await stage.minutes(140.0)
    assert stage.count == 4
    (activity,) = stage.activities()
    assert activity.status == "Successful"
    assert activity.description == "Setting desired instance count to 4."
    assert activity.message == "Successfully set desired instance count to 4. Change successfully fulfilled by sagemaker."
    assert activity.cause.startswith("monitor alarm TargetTracking-endpoint/shared/variant/AllTraffic-AlarmHigh-")
    assert activity.cause.endswith("in state ALARM triggered policy track")


@staged
async def test_the_cooldown_of_a_scale_out_counts_what_was_added(stage):
    stage.register()
    stage.track(ScaleOutCooldown=300)
    await stage.minutes(105.0, 105.0, 105.0)
    assert stage.count == 3
    await stage.minutes(105.0, 105.0)
    assert stage.count == 3, "two instances need a third, and that was added"
    await stage.minutes(280.0)
    assert stage.count == 8, "four times two, the capacity before the first step"
    await stage.minutes(*[105.0] * 3)
    assert stage.count == 8
    await stage.minutes(*[105.0] * 3)
    assert stage.count == 10, "after the cooldown the whole capacity counts, up to the maximum"


@staged
async def test_a_target_that_is_registered_anew_has_no_cooldown(stage):
    for _ in range(2):
        stage.register()
        stage.track(ScaleOutCooldown=3000)
        await stage.minutes(105.0, 105.0, 105.0)
        stage.autoscaling.deregister(KEY)
    assert stage.count == 5, "three instances, that no cooldown counts as two, need half as many again"


@staged
async def test_a_change_that_ends_after_its_target_begins_no_cooldown(stage):
    stage.register()
    stage.track(ScaleOutCooldown=3000)
    stage.fleets.hold()
    await stage.minutes(105.0, 105.0, 105.0)
    stage.autoscaling.deregister(KEY)
    stage.fleets.release()
    await stage.quiet()
    assert [activity.status for activity in stage.activities()] == ["Successful"]
    stage.register()
    stage.track(ScaleOutCooldown=3000)
    await stage.minutes(105.0, 105.0, 105.0)
    assert stage.count == 5


@staged
async def test_a_change_that_waits_is_given_up_with_its_target(stage):
    stage.fleets.busy = True
    stage.fleets.hold()
    stage.register(minimum=4)
    await stage.quiet()
    stage.autoscaling.deregister(KEY)
    stage.fleets.release()
    await stage.quiet()
    (activity,) = stage.activities()
    assert (activity.status, stage.count) == ("Failed", 2)
    assert activity.message == "Failed to set desired instance count to 4. Reason: The scalable target was deregistered."


@staged
async def test_it_scales_in_gradually_after_fifteen_minutes_and_waits_for_its_cooldown(stage):
    stage.fleets.counts[TARGET] = 6
    stage.register(minimum=2)
    stage.track(ScaleInCooldown=600)
    await stage.minutes(*[7.0] * 14)
    assert stage.count == 6
    await stage.minutes(7.0)
    assert stage.count == 4
    await stage.minutes(*[7.0] * 9)
    assert stage.count == 4, "ten minutes of cooldown"
    await stage.minutes(*[7.0] * 2)
    assert stage.count == 3
    await stage.minutes(*[7.0] * 11)
    assert stage.count == 2
    await stage.minutes(*[7.0] * 11)
    assert stage.count == 2
    assert stage.reasons()[0] == {"Code": "AlreadyAtMinCapacity", "MinCapacity": 2}
    assert [activity.description[-2:] for activity in stage.activities()] == ["2.", "3.", "4."]


@staged
async def test_a_scale_out_ends_the_cooldown_of_a_scale_in(stage):
    stage.fleets.counts[TARGET] = 4
    stage.register()
    stage.track(ScaleInCooldown=3600)
    await stage.minutes(*[1.0] * 15)
    assert stage.count == 3
    await stage.minutes(*[140.0] * 3)
    assert stage.count == 6
    await stage.minutes(*[1.0] * 15)
    assert stage.count == 4, "well within the hour"


@staged
async def test_scale_in_can_be_disabled(stage):
    stage.fleets.counts[TARGET] = 4
    stage.register()
    stage.track(DisableScaleIn=True)
    await stage.minutes(*[0.0] * 20)
    assert stage.count == 4
    assert stage.activities(not_scaled=True) == []


@staged
async def test_what_would_flap_is_not_done(stage):
    stage.register()
    stage.track()
    await stage.minutes(*[60.0] * 16)
    assert stage.count == 2
    assert stage.reasons() == [{"Code": "AutoScalingAnticipatedFlapping", "CurrentCapacity": 2}], "told once, not every minute"


@staged
async def test_nothing_happens_without_data(stage):
    stage.register()
    stage.track()
    await stage.minutes(*[None] * 20)
    assert (stage.count, stage.activities(not_scaled=True)) == (2, [])


@staged
async def test_the_maximum_is_kept_and_reaching_it_is_an_event(stage):
    stage.register(maximum=3)
    stage.track()
    await stage.minutes(*[700.0] * 3)
    assert stage.count == 3
    ((detail_type, detail, source),) = stage.events
    assert (detail_type, source) == (SCALED_TO_MAX, "aws.application-autoscaling")
    told = {"newDesiredCapacity": 3, "oldDesiredCapacity": 2, "maxCapacity": 3, "scaledToMax": True, "direction": "scale-out"}
    assert told.items() <= detail.items()
    await stage.minutes(*[700.0] * 8)
    assert len(stage.events) == 1
    assert stage.reasons() == [{"Code": "AlreadyAtMaxCapacity", "MaxCapacity": 3}]


@staged
async def test_scaling_below_the_maximum_is_no_event(stage):
    stage.register()
    stage.track()
    await stage.minutes(*[140.0] * 3)
    assert (stage.count, stage.events) == (4, [])


@staged
async def test_of_several_policies_the_largest_wins(stage):
    stage.register()
    stage.track(name="modest", target=70.0)
    stage.track(name="eager", target=35.0)
    await stage.minutes(*[105.0] * 3)
    assert stage.count == 6
    assert [activity.cause.rpartition(" ")[2] for activity in stage.activities()] == ["eager"]


@staged
async def test_all_target_tracking_policies_must_agree_to_scale_in(stage):
    stage.fleets.counts[TARGET] = 8
    stage.register()
    stage.track(name="calls")
    configuration = {
        "TargetValue": 50.0,
        "CustomizedMetricSpecification": {
            "Namespace": "AWS/SageMaker",
            "MetricName": "ModelLatency",
            "Dimensions": [{"Name": name, "Value": value} for name, value in ON_VARIANT.items()],
            "Statistic": "Average",
        },
    }
    request = {"PolicyType": "TargetTrackingScaling", "TargetTrackingScalingPolicyConfiguration": configuration}
    stage.autoscaling.put_policy({**KEY, "PolicyName": "latency", **request})

    async def minutes(count: int, latency: float) -> None:
        for _ in range(count):
            stage.store.put("AWS/SageMaker", "ModelLatency", ON_VARIANT, [latency], timestamp=stage.clock.time())
            await stage.minutes(7.0)

    await minutes(20, 49.0)
    assert stage.count == 8
    await minutes(15, 25.0)
    assert stage.count == 6, "latency wants half of its surplus of four, calls want more"
    configuration["DisableScaleIn"] = True
    stage.autoscaling.put_policy({**KEY, "PolicyName": "latency", **request})
    await minutes(6, 49.0)
    assert stage.count == 4, "a policy that never scales in has no say"


@staged
async def test_suspended_processes_do_nothing(stage):
    stage.register(SuspendedState={"DynamicScalingOutSuspended": True})
    stage.track(ScaleInCooldown=0)
    await stage.minutes(*[140.0] * 4)
    assert stage.count == 2
    stage.register(SuspendedState={"DynamicScalingOutSuspended": False, "DynamicScalingInSuspended": True})
    await stage.minutes(140.0)
    assert stage.count == 4
    await stage.minutes(*[1.0] * 16)
    assert stage.count == 4
    stage.register(SuspendedState={"DynamicScalingInSuspended": False})
    await stage.minutes(1.0)
    assert stage.count == 3


ALARM = {
    "AlarmName": "too-many",
    "Namespace": "AWS/SageMaker",
    "MetricName": "InvocationsPerInstance",
    "Dimensions": [{"Name": name, "Value": value} for name, value in ON_VARIANT.items()],
    "Statistic": "Sum",
    "Period": 60,
    "EvaluationPeriods": 1,
    "Threshold": 100.0,
    "ComparisonOperator": "GreaterThanThreshold",
}
LADDER = (
    {"MetricIntervalLowerBound": 0.0, "MetricIntervalUpperBound": 100.0, "ScalingAdjustment": 2},
    {"MetricIntervalLowerBound": 100.0, "ScalingAdjustment": 3},
)


@staged
async def test_a_users_alarm_fires_a_step_policy_and_more_is_added_by_a_steeper_step(stage):
    stage.register()
    policy = stage.step(*LADDER, Cooldown=300)
    stage.alarms.put({**ALARM, "AlarmActions": [policy.arn]})
    assert stage.autoscaling.alarms_of(policy) == [{"AlarmName": "too-many", "AlarmARN": stage.alarms.arn("too-many")}]
    await stage.minutes(150.0)
    assert stage.count == 4
    assert stage.activities()[0].cause == "monitor alarm too-many in state ALARM triggered policy step"
    await stage.minutes(150.0)
    assert stage.count == 4
    await stage.minutes(250.0)
    assert stage.count == 5, "three instead of two on top of the first two"
    await stage.minutes(*[150.0] * 6)
    assert stage.count == 7, "the cooldown of the last step is over"


@staged
async def test_a_step_policy_scales_in_although_target_tracking_does_not(stage):
    stage.fleets.counts[TARGET] = 5
    stage.register()
    stage.track()
    policy = stage.step({"MetricIntervalUpperBound": 0.0, "ScalingAdjustment": -2}, name="down")
    stage.alarms.put({**ALARM, "AlarmActions": [policy.arn], "ComparisonOperator": "LessThanThreshold", "Threshold": 70.0})
    await stage.minutes(65.0)
    assert stage.count == 3


@staged
async def test_copies_come_up_from_zero_when_a_request_found_none(stage):
    stage.autoscaling.register({**COPIES, "MinCapacity": 0, "MaxCapacity": 2})
    step = {"MetricIntervalLowerBound": 0.0, "ScalingAdjustment": 1}
    policy = stage.step(step, key=COPIES, MetricAggregationType="Maximum", Cooldown=60)
    watched = {"MetricName": "NoCapacityInvocationFailures", "Dimensions": [{"Name": "InferenceComponentName", "Value": "acme"}]}
    comparison = {"ComparisonOperator": "GreaterThanOrEqualToThreshold", "Threshold": 1.0}
    stage.alarms.put({**ALARM, **watched, **comparison, "AlarmActions": [policy.arn]})
    stage.store.put(
        "AWS/SageMaker", "NoCapacityInvocationFailures", {"InferenceComponentName": "acme"}, [1.0], timestamp=stage.clock.time()
    )
    await stage.minutes(None)
    assert stage.fleets.counts[OF_COPIES] == 1
    assert stage.activities()[0].description == "Setting desired copy count to 1."


@staged
async def test_an_alarm_on_a_policy_that_is_gone_fails_to_act(stage):
    stage.register()
    policy = stage.step(*LADDER)
    stage.alarms.put({**ALARM, "AlarmActions": [policy.arn]})
    stage.autoscaling.delete_policy({**KEY, "PolicyName": "step"})
    await stage.minutes(150.0)
    assert stage.count == 2
    assert [item.summary.partition(" action")[0] for item in stage.alarms.history if item.kind == "Action"] == ["Failed to execute"]


@staged
async def test_registering_brings_the_capacity_between_its_bounds(stage):
    stage.register(minimum=3, maximum=5)
    await stage.quiet()
    assert stage.count == 3
    stage.register(minimum=1, maximum=2)
    await stage.quiet()
    assert stage.count == 2
    assert [activity.cause for activity in stage.activities()] == ["maximum capacity was set to 2", "minimum capacity was set to 3"]


@staged
async def test_a_change_that_sagemaker_refuses_is_a_failed_activity(stage):
    stage.fleets.refuses = "The account-level service limit 'ml.m5.xlarge for endpoint usage' is 2 Instances."
    stage.register()
    stage.track()
    await stage.minutes(*[140.0] * 3)
    (activity,) = stage.activities()
    assert activity.status == "Failed"
    assert activity.message == f"Failed to set desired instance count to 4. Reason: {stage.fleets.refuses}"
    assert activity.ended is not None
    stage.fleets.refuses = None
    await stage.minutes(140.0)
    assert stage.count == 4, "the alarm still stands, and a failed step has no cooldown"


@staged
async def test_a_change_that_is_not_fulfilled_is_a_failed_activity(stage):
    stage.fleets.falls_short = "The endpoint has no capacity."
    stage.register(minimum=4)
    await stage.quiet()
    (activity,) = stage.activities()
    assert (activity.status, activity.message) == (
        "Failed",
        "Failed to set desired instance count to 4. Reason: The endpoint has no capacity.",
    )
    assert stage.events == []


@staged
async def test_a_change_waits_while_the_endpoint_is_updating(stage):
    stage.fleets.busy = True
    stage.fleets.hold()
    stage.register(minimum=3)
    await stage.quiet()
    (activity,) = stage.activities()
    assert (activity.status, stage.fleets.asked) == ("Pending", [])
    stage.register(minimum=4)
    await stage.quiet()
    assert [each.status for each in stage.activities()] == ["Pending", "Overridden"]
    stage.fleets.release()
    await stage.quiet()
    assert (stage.activities()[0].status, stage.fleets.asked) == ("Successful", [4])


@staged
async def test_a_larger_step_follows_one_that_is_in_progress_and_a_scale_in_does_not(stage):
    stage.register()
    stage.track(ScaleOutCooldown=0, ScaleInCooldown=0)
    stage.fleets.hold()
    await stage.minutes(*[140.0] * 3)
    assert [activity.status for activity in stage.activities()] == ["InProgress"]
    assert stage.activities()[0].message == "Successfully set desired instance count to 4. Waiting for change to be fulfilled by sagemaker."
    await stage.minutes(280.0)
    assert len(stage.activities()) == 2, "eight, of which four are on their way"
    stage.fleets.release()
    await stage.quiet()
    assert stage.fleets.asked == [4, 8]
    assert [activity.status for activity in stage.activities()] == ["Successful", "Successful"]


@staged
async def test_a_scheduled_action_sets_bounds_in_its_time_zone(stage):
    stage.register(minimum=1, maximum=4)
    moment = stage.clock.time() + 7200
    local = datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    action = {
        **KEY,
        "ScheduledActionName": "morning",
        "Schedule": f"at({local})",
        "ScalableTargetAction": {"MinCapacity": 3, "MaxCapacity": 6},
    }
    stage.autoscaling.put_scheduled_action(action)
    await stage.quiet()
    stage.clock.jump(7100)
    await stage.quiet()
    assert stage.count == 2
    stage.clock.jump(200)
    await stage.quiet()
    assert stage.count == 3
    target = stage.autoscaling.targets[TARGET]
    assert (target.min_capacity, target.max_capacity) == (3, 6)
    assert [(activity.description, activity.cause) for activity in stage.activities()] == [
        ("Setting desired instance count to 3.", "minimum capacity was set to 3"),
        ("Setting min capacity to 3 and max capacity to 6", "scheduled action name morning was triggered"),
    ]
    stage.fleets.counts[TARGET] = 5
    stage.clock.jump(86400)
    await stage.quiet()
    assert len(stage.activities()) == 2, "at happens once"


@staged
async def test_a_rate_runs_between_its_start_and_its_end(stage):
    stage.register(minimum=1, maximum=9)
    begins = stage.clock.time() + 600
    action = {**KEY, "ScheduledActionName": "often", "Schedule": "rate(5 minutes)", "ScalableTargetAction": {"MinCapacity": 2}}
    stage.autoscaling.put_scheduled_action({**action, "StartTime": begins, "EndTime": begins + 700})
    ran = []
    for _ in range(40):
        stage.clock.jump(60)
        await stage.quiet()
        ran.append(len(stage.activities()))
    assert ran[8] == 0
    assert ran[-1] == 3, "at its start, and five and ten minutes later"


@staged
async def test_scheduled_scaling_can_be_suspended_and_a_bad_bound_fails(stage):
    stage.register(minimum=1, maximum=4, SuspendedState={"ScheduledScalingSuspended": True})
    action = {**KEY, "ScheduledActionName": "hourly", "Schedule": "rate(1 hour)", "ScalableTargetAction": {"MinCapacity": 6}}
    stage.autoscaling.put_scheduled_action(action)
    stage.clock.jump(3700)
    await stage.quiet()
    assert stage.activities() == []
    stage.register(minimum=1, maximum=4, SuspendedState={"ScheduledScalingSuspended": False})
    stage.clock.jump(3600)
    await stage.quiet()
    (activity,) = stage.activities()
    assert activity.status == "Failed"
    assert activity.message == "Failed to set min capacity to 6. Reason: Maximum capacity cannot be less than minimum capacity"


@staged
async def test_a_deleted_or_replaced_action_does_not_run(stage):
    stage.register(minimum=1, maximum=9)
    action = {**KEY, "ScheduledActionName": "hourly", "Schedule": "rate(1 hour)", "ScalableTargetAction": {"MinCapacity": 6}}
    stage.autoscaling.put_scheduled_action(action)
    stage.autoscaling.put_scheduled_action({**action, "Schedule": "rate(1 day)"})
    stage.clock.jump(3700)
    await stage.quiet()
    stage.autoscaling.delete_scheduled_action(action)
    stage.clock.jump(90000)
    await stage.quiet()
    assert (stage.count, stage.activities()) == (2, [])


@staged
async def test_activities_outlive_their_target_and_are_forgotten_after_six_weeks(stage):
    stage.register(minimum=3)
    await stage.quiet()
    stage.autoscaling.deregister(KEY)
    assert len(stage.activities()) == 1
    stage.clock.jump(43 * 86400)
    assert stage.activities() == []


@staged
async def test_a_policy_whose_alarm_cannot_be_made_is_not_there(stage):
    stage.register()
    configuration = {
        "TargetValue": 50.0,
        "CustomizedMetricSpecification": {"Metrics": [{"Id": "e", "Expression": "NO_SUCH_FUNCTION(m)", "ReturnData": True}]},
    }
    with pytest.raises(AwsError):
        stage.autoscaling.put_policy(
            {
                **KEY,
                "PolicyName": "bad",
                "PolicyType": "TargetTrackingScaling",
                "TargetTrackingScalingPolicyConfiguration": configuration,
            }
        )
    assert (stage.autoscaling.policies, stage.alarms.describe()) == ({}, [])
