"""When instances are added and removed."""

from __future__ import annotations

import aws_cdk as cdk
import pytest
from aws_cdk import aws_applicationautoscaling as appscaling

from mme_constructs import (
    CacheScaling,
    CpuScaling,
    InvocationScaling,
    ModelArtifactStore,
    MultiModelContainer,
    MultiModelEndpoint,
    ScheduledScaling,
)
from mme_constructs.errors import AutoScalingError, VariantError

MORNING = ScheduledScaling(name="morning", schedule=appscaling.Schedule.cron(hour="7", minute="0"), min_instances=4, max_instances=8)


def _endpoint(stack, **props):
    container = MultiModelContainer.from_framework("xgboost", version="1.7-1")
    return MultiModelEndpoint(
        stack, "Endpoint", store=ModelArtifactStore(stack, "Store"), container=container, endpoint_name="shared", **props
    )


def _policies(synthesized):
    return {
        item["Properties"]["PolicyName"]: item["Properties"]
        for item in synthesized.resources("AWS::ApplicationAutoScaling::ScalingPolicy").values()
    }


@pytest.mark.parametrize(("instance_type", "target"), [("ml.m5.xlarge", 240), ("ml.c5.4xlarge", 960)])
def test_the_cpu_target_is_multiplied_by_the_vcpus(synthesize_stack, instance_type, target):
    synthesized = synthesize_stack(lambda stack: _endpoint(stack, instance_type=instance_type, scaling=CpuScaling(percent=60)))
    (policy,) = _policies(synthesized).values()
    assert policy["TargetTrackingScalingPolicyConfiguration"] == {
        "TargetValue": target,
        "CustomizedMetricSpecification": {
            "Namespace": "/aws/sagemaker/Endpoints",
            "MetricName": "CPUUtilization",
            "Dimensions": [{"Name": "EndpointName", "Value": "shared"}, {"Name": "VariantName", "Value": "AllTraffic"}],
            "Statistic": "Average",
            "Unit": "Percent",
        },
        "ScaleInCooldown": 600,
        "ScaleOutCooldown": 300,
    }


def test_a_low_hit_ratio_adds_instances_by_an_alarm(synthesize_stack):
    synthesized = synthesize_stack(lambda stack: _endpoint(stack).auto_scale(CacheScaling(smallest_hit_ratio=0.7, minutes=5)))
    policies = _policies(synthesized)
    assert set(policies) == {"InvocationsPerInstance", "ModelCacheHit"}
    assert policies["ModelCacheHit"]["PolicyType"] == "StepScaling"
    assert policies["ModelCacheHit"]["StepScalingPolicyConfiguration"] == {
        "AdjustmentType": "ChangeInCapacity",
        "Cooldown": 600,
        "MetricAggregationType": "Average",
        "StepAdjustments": [{"MetricIntervalUpperBound": 0, "ScalingAdjustment": 1}],
    }
    alarm = synthesized.only("AWS::CloudWatch::Alarm")["Properties"]
    assert (alarm["MetricName"], alarm["Statistic"], alarm["Threshold"], alarm["EvaluationPeriods"]) == ("ModelCacheHit", "Average", 0.7, 5)
    assert alarm["ComparisonOperator"] == "LessThanThreshold"
    assert alarm["TreatMissingData"] == "notBreaching"
    (action,) = alarm["AlarmActions"]
    assert action["Ref"] in synthesized.resources("AWS::ApplicationAutoScaling::ScalingPolicy")


def test_schedules_move_the_bounds_also_of_a_fixed_fleet(synthesize_stack):
    night = ScheduledScaling(
        name="night", schedule=appscaling.Schedule.cron(hour="20", minute="0"), max_instances=2, time_zone="Europe/Berlin"
    )
    synthesized = synthesize_stack(lambda stack: _endpoint(stack, max_instances=2).auto_scale(MORNING, night))
    assert not synthesized.resources("AWS::ApplicationAutoScaling::ScalingPolicy")
    assert synthesized.only("AWS::ApplicationAutoScaling::ScalableTarget")["Properties"]["ScheduledActions"] == [
        {
            "ScheduledActionName": "morning",
            "Schedule": "cron(0 7 * * ? *)",
            "ScalableTargetAction": {"MinCapacity": 4, "MaxCapacity": 8},
        },
        {
            "ScheduledActionName": "night",
            "Schedule": "cron(0 20 * * ? *)",
            "Timezone": "Europe/Berlin",
            "ScalableTargetAction": {"MaxCapacity": 2},
        },
    ]


def test_rejects_the_same_rule_twice(stack):
    endpoint = _endpoint(stack)
    with pytest.raises(AutoScalingError, match="has this rule already: got 'InvocationsPerInstance'"):
        endpoint.auto_scale(InvocationScaling())
    endpoint.auto_scale(MORNING)
    with pytest.raises(AutoScalingError, match="share a name: got 'morning'"):
        endpoint.auto_scale(MORNING)


@pytest.mark.parametrize("rule", [MORNING, CpuScaling(), CacheScaling()], ids=lambda rule: type(rule).__name__)
def test_rejects_every_rule_on_burstable_instances(stack, rule):
    endpoint = _endpoint(stack, instance_type="ml.t2.large", max_instances=2)
    with pytest.raises(AutoScalingError, match="Burstable types cannot be auto scaled"):
        endpoint.auto_scale(rule)


def test_rejects_rules_of_a_fixed_fleet(stack):
    with pytest.raises(AutoScalingError, match="no room to scale: got '2 to 2 instances'"):
        _endpoint(stack, max_instances=2).auto_scale(InvocationScaling())


def test_rejects_rules_of_a_variant_that_does_not_exist(stack):
    with pytest.raises(VariantError, match="no such variant: got 'Elsewhere'; allowed: AllTraffic"):
        _endpoint(stack).auto_scale(CpuScaling(), variant="Elsewhere")


@pytest.mark.parametrize("instance_type", ["ml.m99.large", "a token"])
def test_rejects_a_cpu_target_where_the_vcpus_are_unknown(stack, instance_type):
    value = cdk.CfnParameter(stack, "Type").value_as_string if instance_type == "a token" else instance_type
    with pytest.raises(AutoScalingError, match="vCPUs of the instance type are not known"):
        _endpoint(stack, instance_type=value, scaling=CpuScaling())


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: CpuScaling(percent=0), "above 0 and up to 100"),
        (lambda: CpuScaling(percent=240), "multiplied by the vCPUs"),
        (lambda: CpuScaling(scale_in_cooldown_seconds=4000), "0 to 3,600 seconds"),
        (lambda: CacheScaling(smallest_hit_ratio=1), "above 0 and below 1"),
        (lambda: CacheScaling(minutes=0), "minutes is out of range"),
        (lambda: CacheScaling(add_instances=0), "add_instances is out of range"),
        (lambda: CacheScaling(cooldown_seconds=-1), "0 to 3,600 seconds"),
        (lambda: ScheduledScaling(name="x", schedule=MORNING.schedule), "changes nothing"),
        (lambda: ScheduledScaling(name="x", schedule=MORNING.schedule, min_instances=0), "a minimum from 1"),
        (lambda: ScheduledScaling(name="x", schedule=MORNING.schedule, min_instances=3, max_instances=2), "got '3 to 2'"),
    ],
)
def test_rejects_numbers_that_cannot_work(make, text):
    with pytest.raises(AutoScalingError) as caught:
        make()
    assert text in str(caught.value)
