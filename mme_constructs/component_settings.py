"""What an inference component reserves and how its copies are scaled."""

from __future__ import annotations

from dataclasses import dataclass

from aws_cdk import aws_sagemaker as sagemaker

from mme_constructs.capacity_size import CapacitySize
from mme_constructs.deployment import RollingDeployment
from mme_constructs.errors import AutoScalingError, InferenceComponentError
from mme_constructs.scaling import check_cooldown

__all__ = ["ComponentScaling", "ComputeRequirements", "render_rolling"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeRequirements:
    """What each copy of a component reserves on its instance.

    Attributes:
        memory_mb: memory that is reserved, MB, from 128. Always needed: SageMaker places copies by it.
        max_memory_mb: memory that a copy may use. Default: what the instance has left.
        cpus: vCPUs that are reserved, from 0.25. Default: none are.
        accelerators: GPUs that are reserved, from 1. Default: none.

    Raises:
        InferenceComponentError: a number is missing or out of range.

    Source: API reference: InferenceComponentComputeResourceRequirements.
    """

    memory_mb: int = 0
    max_memory_mb: int | None = None
    cpus: float | None = None
    accelerators: int | None = None

    def __post_init__(self) -> None:
        if self.memory_mb < 128:
            raise InferenceComponentError(
                "An inference component must say how much memory each copy reserves",
                value=f"memory_mb={self.memory_mb}",
                allowed="128 MB or more",
                fix="Set memory_mb to the loaded model's size and some slack",
            )
        if self.max_memory_mb is not None and self.max_memory_mb < self.memory_mb:
            raise InferenceComponentError(
                "max_memory_mb is below memory_mb", value=self.max_memory_mb, allowed=f"{self.memory_mb} or more", fix="Raise it"
            )
        if self.cpus is not None and self.cpus < 0.25:
            raise InferenceComponentError(
                "Too small a part of a vCPU is reserved", value=self.cpus, allowed="0.25 or more", fix="Use 0.25, or leave cpus out"
            )
        if self.accelerators is not None and self.accelerators < 1:
            raise InferenceComponentError(
                "accelerators is out of range", value=self.accelerators, allowed="1 or more", fix="Leave accelerators out"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentScaling:
    """When copies of a component are added and removed.

    Attributes:
        min_copies: fewest. Default 1. 0 scales to zero: the endpoint's ``min_instances`` must be 0, and after a pause requests fail for
            minutes until an instance and a copy are there again.
        max_copies: most, above ``min_copies``. Default 4.
        invocations_per_copy_per_minute: target of requests. Default 1,200, unless ``concurrent_requests_per_copy`` is given.
        concurrent_requests_per_copy: target of requests under way, collected every ten seconds. Default: requests are tracked.
        scale_in_cooldown_seconds: rest after removing a copy. Default 600.
        scale_out_cooldown_seconds: rest after adding one. Default 300.

    Raises:
        AutoScalingError: the bounds do not fit, a target is out of range, or both targets are given.

    Sources: Amazon SageMaker AI, Define a scaling policy; Scale an endpoint to zero instances.
    """

    min_copies: int = 1
    max_copies: int = 4
    invocations_per_copy_per_minute: float | None = None
    concurrent_requests_per_copy: float | None = None
    scale_in_cooldown_seconds: int = 600
    scale_out_cooldown_seconds: int = 300

    def __post_init__(self) -> None:
        if self.min_copies < 0 or self.max_copies <= self.min_copies:
            raise AutoScalingError(
                "The bounds of the copies do not fit",
                value=f"{self.min_copies} to {self.max_copies}",
                allowed="min_copies from 0 and max_copies above it",
                fix="Leave scaling out for a fixed number of copies",
            )
        targets = (self.invocations_per_copy_per_minute, self.concurrent_requests_per_copy)
        if None not in targets:
            raise AutoScalingError(
                "Both requests and concurrency are tracked", value=targets, allowed="one of them", fix="Leave one of the targets out"
            )
        if self.target <= 0:
            raise AutoScalingError(
                "The target of auto scaling cannot be met", value=self.target, allowed="more than 0", fix="Measure one copy"
            )
        for name in ("scale_in_cooldown_seconds", "scale_out_cooldown_seconds"):
            check_cooldown(name, getattr(self, name))

    @property
    def target(self) -> float:
        """The tracked metric's target."""
        if self.concurrent_requests_per_copy is not None:
            return self.concurrent_requests_per_copy
        return 1200 if self.invocations_per_copy_per_minute is None else self.invocations_per_copy_per_minute

    @property
    def metric(self) -> str:
        """The tracked metric, as Application Auto Scaling names it."""
        if self.concurrent_requests_per_copy is not None:
            return "SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution"
        return "SageMakerInferenceComponentInvocationsPerCopy"


def render_rolling(deployment: RollingDeployment) -> sagemaker.CfnInferenceComponent.InferenceComponentDeploymentConfigProperty:
    """How a component's copies are replaced: sizes count copies (API reference: InferenceComponentRollingUpdatePolicy)."""
    cfn = sagemaker.CfnInferenceComponent

    def size(given: CapacitySize) -> sagemaker.CfnInferenceComponent.InferenceComponentCapacitySizeProperty:
        return cfn.InferenceComponentCapacitySizeProperty(type="CAPACITY_PERCENT" if given.in_percent else "COPY_COUNT", value=given.value)

    return cfn.InferenceComponentDeploymentConfigProperty(
        rolling_update_policy=cfn.InferenceComponentRollingUpdatePolicyProperty(
            maximum_batch_size=size(deployment.batch),
            rollback_maximum_batch_size=None if deployment.rollback_batch is None else size(deployment.rollback_batch),
            wait_interval_in_seconds=deployment.wait_seconds,
            maximum_execution_timeout_in_seconds=deployment.timeout_seconds,
        ),
        auto_rollback_configuration=None
        if not deployment.alarms
        else cfn.AutoRollbackConfigurationProperty(alarms=[cfn.AlarmProperty(alarm_name=alarm.alarm_name) for alarm in deployment.alarms]),
    )
