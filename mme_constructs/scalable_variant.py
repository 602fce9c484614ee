"""A variant as Application Auto Scaling sees it: one scalable target, its policies and scheduled actions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import aws_applicationautoscaling as appscaling
from constructs import Construct

from mme_constructs.errors import AutoScalingError
from mme_constructs.stack_of import is_token
from mme_facts import instances

if TYPE_CHECKING:
    from mme_constructs.scaling import ScalingRule

__all__ = ["ScalableVariant"]

_Policy = appscaling.CfnScalingPolicy


class ScalableVariant:
    """One variant as Application Auto Scaling sees it.

    Args:
        scope: the endpoint.
        suffix: what the ids of the variant's resources end in.
        endpoint_name: the endpoint's name, as a reference to it.
        metric_name: the endpoint's name as metrics carry it, as text if it is known.
        variant_name: the variant.
        instance_type: its type, such as ``ml.m5.xlarge``.
        smallest: fewest instances.
        greatest: most instances.
    """

    def __init__(
        self,
        scope: Construct,
        suffix: str,
        *,
        endpoint_name: str,
        metric_name: str,
        variant_name: str,
        instance_type: str,
        smallest: int,
        greatest: int,
    ) -> None:
        self.scope, self.suffix, self.instance_type = scope, suffix, instance_type
        self.smallest, self.greatest = smallest, greatest
        self.dimensions = {"EndpointName": metric_name, "VariantName": variant_name}
        self._resource_id = f"endpoint/{endpoint_name}/variant/{variant_name}"
        self._target: appscaling.CfnScalableTarget | None = None
        self._actions: list[appscaling.CfnScalableTarget.ScheduledActionProperty] = []

    def add(self, rule: ScalingRule) -> None:
        """Apply a rule; raises `AutoScalingError` if it cannot work for this variant or is there already."""
        if not is_token(self.instance_type) and instances.is_burstable(self.instance_type):
            raise AutoScalingError(
                "Burstable types cannot be auto scaled",
                value=self.instance_type,
                allowed="other types, or max_instances equal to min_instances",
                fix="Choose another type",
            )
        rule.add_to(self)

    @property
    def target(self) -> appscaling.CfnScalableTarget:
        """The scalable target, made when the first rule asks for it."""
        if self._target is None:
            self._target = appscaling.CfnScalableTarget(
                self.scope,
                f"ScalableTarget{self.suffix}",
                service_namespace="sagemaker",
                scalable_dimension="sagemaker:variant:DesiredInstanceCount",
                resource_id=self._resource_id,
                min_capacity=self.smallest,
                max_capacity=self.greatest,
            )
        return self._target

    def add_policy(
        self,
        id: str,  # noqa: A002 - CDK's name for it
        name: str,
        *,
        tracking: _Policy.TargetTrackingScalingPolicyConfigurationProperty | None = None,
        stepping: _Policy.StepScalingPolicyConfigurationProperty | None = None,
    ) -> _Policy:
        """Add a policy, of target tracking or of steps; raises `AutoScalingError` if there is no room or the id is there already."""
        if self.greatest <= self.smallest:
            raise AutoScalingError(
                "There is no room to scale",
                value=f"{self.smallest} to {self.greatest} instances",
                allowed="max_instances above min_instances",
                fix="Raise max_instances",
            )
        path = f"{id}{self.suffix}"
        if self.scope.node.try_find_child(path) is not None:
            raise AutoScalingError(
                "The variant has this rule already", value=name, allowed="one rule of each kind", fix="Pass one with the settings you want"
            )
        return _Policy(
            self.scope,
            path,
            policy_name=name,
            policy_type="StepScaling" if tracking is None else "TargetTrackingScaling",
            scaling_target_id=self.target.ref,
            target_tracking_scaling_policy_configuration=tracking,
            step_scaling_policy_configuration=stepping,
        )

    def add_scheduled_action(self, action: appscaling.CfnScalableTarget.ScheduledActionProperty) -> None:
        """Add a scheduled change of the bounds; raises `AutoScalingError` if one with its name is there already."""
        if action.scheduled_action_name in {known.scheduled_action_name for known in self._actions}:
            raise AutoScalingError(
                "Two scheduled rules share a name", value=action.scheduled_action_name, allowed="one rule per name", fix="Rename one"
            )
        self._actions.append(action)
        self.target.scheduled_actions = list(self._actions)
