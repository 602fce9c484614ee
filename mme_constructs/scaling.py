"""When a variant's instances are added and removed.

Only measures of load that fall as instances are added may be tracked: requests per instance and CPU. The cache hit ratio is none of them,
so `CacheScaling` steps on an alarm instead. All rules of a variant work together: Application Auto Scaling adds instances if one of them
asks for it and removes them if all tracking rules agree.

Sources: Amazon SageMaker AI, Set Auto Scaling Policies for Multi-Model Endpoint Deployments; Load test your auto scaling configuration.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from aws_cdk import aws_applicationautoscaling as appscaling
from aws_cdk import aws_cloudwatch as cloudwatch

from mme_constructs.errors import AutoScalingError
from mme_constructs.scalable_variant import ScalableVariant
from mme_constructs.stack_of import is_token
from mme_facts import instances
from mme_facts.metrics import ENDPOINT_METRICS

__all__ = ["CacheScaling", "CpuScaling", "InvocationScaling", "ScalingRule", "ScheduledScaling", "check_cooldown"]

_Policy = appscaling.CfnScalingPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class InvocationScaling:
    """Target tracking on ``SageMakerVariantInvocationsPerInstance``, the metric that AWS recommends for multi-model endpoints.

    Attributes:
        invocations_per_instance_per_minute: the target. Measure the rate one instance sustains and set rate per second x 0.5 x 60 (Amazon
            SageMaker AI, Load test your auto scaling configuration). Default 1,200: 40 a second with that factor.
        scale_in_cooldown_seconds: rest after removing an instance. Default 600.
        scale_out_cooldown_seconds: rest after adding one. Default 300 (both: Set Auto Scaling Policies for Multi-Model Endpoint
            Deployments).

    Raises:
        AutoScalingError: a number is out of range.
    """

    invocations_per_instance_per_minute: float = 1200
    scale_in_cooldown_seconds: int = 600
    scale_out_cooldown_seconds: int = 300

    def __post_init__(self) -> None:
        if self.invocations_per_instance_per_minute <= 0:
            raise AutoScalingError(
                "The target of auto scaling cannot be met",
                value=self.invocations_per_instance_per_minute,
                allowed="more than 0 a minute",
                fix="Measure one instance",
            )
        _check_cooldowns(self)

    def add_to(self, variant: ScalableVariant) -> None:
        """Add the policy to a variant."""
        variant.add_policy(
            "ScalingPolicy",
            "InvocationsPerInstance",
            tracking=_Policy.TargetTrackingScalingPolicyConfigurationProperty(
                target_value=self.invocations_per_instance_per_minute,
                predefined_metric_specification=_Policy.PredefinedMetricSpecificationProperty(
                    predefined_metric_type="SageMakerVariantInvocationsPerInstance"
                ),
                scale_in_cooldown=self.scale_in_cooldown_seconds,
                scale_out_cooldown=self.scale_out_cooldown_seconds,
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuScaling:
    """Target tracking on the instances' average CPU.

    ``CPUUtilization`` of an endpoint is summed over the cores, 0 to 100 times their number; the target is multiplied by the type's vCPUs.

    Attributes:
        percent: of all vCPUs together, above 0 and up to 100. Default 60: between the 50 and 80 % of a well-sized fleet.
        scale_in_cooldown_seconds: rest after removing an instance. Default 600.
        scale_out_cooldown_seconds: rest after adding one. Default 300.

    Raises:
        AutoScalingError: a number is out of range.
    """

    percent: float = 60
    scale_in_cooldown_seconds: int = 600
    scale_out_cooldown_seconds: int = 300

    def __post_init__(self) -> None:
        if not 0 < self.percent <= 100:
            raise AutoScalingError(
                "The CPU target is out of range",
                value=self.percent,
                allowed="above 0 and up to 100 % of all vCPUs together",
                fix="Use 60; it is multiplied by the vCPUs",
            )
        _check_cooldowns(self)

    def add_to(self, variant: ScalableVariant) -> None:
        """Add the policy to a variant; raises `AutoScalingError` if the instance type's vCPUs are not known."""
        metric = ENDPOINT_METRICS["CPUUtilization"]
        variant.add_policy(
            "CpuScalingPolicy",
            "CpuUtilization",
            tracking=_Policy.TargetTrackingScalingPolicyConfigurationProperty(
                target_value=self.percent * _vcpus(variant.instance_type),
                customized_metric_specification=_Policy.CustomizedMetricSpecificationProperty(
                    namespace=metric.namespace,
                    metric_name=metric.name,
                    dimensions=[_Policy.MetricDimensionProperty(name=name, value=value) for name, value in variant.dimensions.items()],
                    statistic="Average",
                    unit=metric.unit,
                ),
                scale_in_cooldown=self.scale_in_cooldown_seconds,
                scale_out_cooldown=self.scale_out_cooldown_seconds,
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheScaling:
    """Adds instances while the cache hit ratio is low: more memory for models, whatever the load.

    It never removes instances; combine it with `InvocationScaling` or `CpuScaling`, which then must not find the fleet idle at its
    usual size, or they take back what this adds.

    Attributes:
        smallest_hit_ratio: hits per request below which instances are added, above 0 and below 1. Default 0.8.
        minutes: how many minutes in a row, from 1. Default 10: a cold start or an update must not trip it.
        add_instances: how many at a time, from 1. Default 1.
        cooldown_seconds: rest after adding. Default 600: the new instance must fill before the ratio says anything.

    Raises:
        AutoScalingError: a number is out of range.
    """

    smallest_hit_ratio: float = 0.8
    minutes: int = 10
    add_instances: int = 1
    cooldown_seconds: int = 600

    def __post_init__(self) -> None:
        if not 0 < self.smallest_hit_ratio < 1:
            raise AutoScalingError(
                "The hit ratio is out of range", value=self.smallest_hit_ratio, allowed="above 0 and below 1", fix="Use 0.8"
            )
        for name in ("minutes", "add_instances"):
            if getattr(self, name) < 1:
                raise AutoScalingError(f"{name} is out of range", value=getattr(self, name), allowed="1 or more", fix="Use 1 or more")
        check_cooldown("cooldown_seconds", self.cooldown_seconds)

    def add_to(self, variant: ScalableVariant) -> None:
        """Add policy and alarm to a variant."""
        policy = variant.add_policy(
            "CacheScalingPolicy",
            "ModelCacheHit",
            stepping=_Policy.StepScalingPolicyConfigurationProperty(
                adjustment_type="ChangeInCapacity",
                cooldown=self.cooldown_seconds,
                metric_aggregation_type="Average",
                step_adjustments=[_Policy.StepAdjustmentProperty(metric_interval_upper_bound=0, scaling_adjustment=self.add_instances)],
            ),
        )
        metric = ENDPOINT_METRICS["ModelCacheHit"]
        cloudwatch.CfnAlarm(
            variant.scope,
            f"CacheScalingAlarm{variant.suffix}",
            alarm_description="Too few requests find their model loaded; adds instances.",
            namespace=metric.namespace,
            metric_name=metric.name,
            dimensions=[cloudwatch.CfnAlarm.DimensionProperty(name=name, value=value) for name, value in variant.dimensions.items()],
            statistic="Average",
            period=60,
            evaluation_periods=self.minutes,
            comparison_operator="LessThanThreshold",
            threshold=self.smallest_hit_ratio,
            treat_missing_data="notBreaching",
            alarm_actions=[policy.ref],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledScaling:
    """Moves the bounds of the instance count at set times, for load that is known beforehand.

    Attributes:
        name: of the rule, unique per variant, 1 to 256 characters.
        schedule: when, such as ``appscaling.Schedule.cron(hour="7", minute="0", week_day="MON-FRI")``.
        min_instances: the new minimum, from 1. Default: unchanged.
        max_instances: the new maximum. Default: unchanged.
        time_zone: IANA name such as ``Europe/Berlin``. Default UTC.

    Raises:
        AutoScalingError: neither bound is given, or they do not fit.
    """

    name: str
    schedule: appscaling.Schedule
    min_instances: int | None = None
    max_instances: int | None = None
    time_zone: str | None = None

    def __post_init__(self) -> None:
        smallest, greatest = self.min_instances, self.max_instances
        if smallest is None and greatest is None:
            raise AutoScalingError(
                "The schedule changes nothing", value=self.name, allowed="min_instances, max_instances or both", fix="Pass one"
            )
        if (smallest is not None and smallest < 1) or (greatest is not None and greatest < (smallest or 1)):
            raise AutoScalingError(
                "The scheduled bounds do not fit",
                value=f"{smallest} to {greatest}",
                allowed="a minimum from 1 and a maximum not below it",
                fix="Swap or raise them",
            )

    def add_to(self, variant: ScalableVariant) -> None:
        """Add the action to a variant."""
        variant.add_scheduled_action(
            appscaling.CfnScalableTarget.ScheduledActionProperty(
                scheduled_action_name=self.name,
                schedule=self.schedule.expression_string,
                timezone=self.time_zone,
                scalable_target_action=appscaling.CfnScalableTarget.ScalableTargetActionProperty(
                    min_capacity=self.min_instances, max_capacity=self.max_instances
                ),
            )
        )


ScalingRule: TypeAlias = InvocationScaling | CpuScaling | CacheScaling | ScheduledScaling
"""One rule of a variant's auto scaling."""


def _vcpus(instance_type: str) -> int:
    if not is_token(instance_type):
        try:
            return instances.instance(instance_type).vcpus
        except instances.InstanceTypeError as error:
            reason = str(error)
    else:
        reason = "it is a token"
    raise AutoScalingError(
        f"The vCPUs of the instance type are not known ({reason})",
        value="a token" if is_token(instance_type) else instance_type,
        allowed="a literal type of the catalogue",
        fix="Use such a type, or InvocationScaling",
    )


def _check_cooldowns(rule: InvocationScaling | CpuScaling) -> None:
    for name in ("scale_in_cooldown_seconds", "scale_out_cooldown_seconds"):
        check_cooldown(name, getattr(rule, name))


def check_cooldown(name: str, seconds: int) -> None:
    """Refuse a cooldown outside 0 to 3,600 seconds; raises `AutoScalingError`."""
    if not 0 <= seconds <= 3600:
        raise AutoScalingError(f"{name} is out of range", value=seconds, allowed="0 to 3,600 seconds", fix="Use 600 in and 300 out")
