"""Registers our CloudFormation resource types: how each is created, updated, deleted and replaced.

Replacement rules: "Update requires: Replacement" in the CloudFormation template reference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from mme_local import patches
from mme_local.autoscaling.models import AutoScaling
from mme_local.cloudformation.autoscaling import PolicyProvisioner, TargetProvisioner
from mme_local.cloudformation.sagemaker import EndpointConfigProvisioner, EndpointProvisioner, ModelProvisioner
from mme_local.loop import LoopBridge
from mme_local.sagemaker.models import SageMaker

__all__ = ["REPLACING", "register"]

REPLACING: Mapping[str, Sequence[str]] = {
    "AWS::SageMaker::Model": (
        "ModelName",
        "Containers",
        "PrimaryContainer",
        "ExecutionRoleArn",
        "EnableNetworkIsolation",
        "InferenceExecutionConfig",
        "VpcConfig",
    ),
    "AWS::SageMaker::EndpointConfig": (
        "EndpointConfigName",
        "ProductionVariants",
        "ShadowProductionVariants",
        "AsyncInferenceConfig",
        "DataCaptureConfig",
        "ExplainerConfig",
        "KmsKeyId",
        "VpcConfig",
        "EnableNetworkIsolation",
        "ExecutionRoleArn",
        "MetricsConfig",
    ),
    "AWS::SageMaker::Endpoint": ("EndpointName",),
    "AWS::ApplicationAutoScaling::ScalableTarget": ("ResourceId", "ScalableDimension", "ServiceNamespace"),
    "AWS::ApplicationAutoScaling::ScalingPolicy": (
        "PolicyName",
        "ResourceId",
        "ScalableDimension",
        "ScalingTargetId",
        "ServiceNamespace",
    ),
}
"""Properties whose change replaces the resource."""


class Provisioner(Protocol):
    """What the emulator's engine calls: physical id and attributes come back."""

    def create(self, logical_id: str, properties: Mapping[str, Any], stack: str) -> tuple[str, dict[str, str]]:
        """Create the resource."""

    def update(self, physical_id: str, old: Mapping[str, Any], new: Mapping[str, Any], stack: str) -> tuple[str, dict[str, str]]:
        """Change what does not replace it."""

    def delete(self, physical_id: str, properties: Mapping[str, Any]) -> None:
        """Delete it if it is there."""


_TAGGED = ("AWS::SageMaker::Model", "AWS::SageMaker::EndpointConfig", "AWS::SageMaker::Endpoint")


def register(sagemaker: SageMaker, autoscaling: AutoScaling, bridge: LoopBridge) -> None:
    """Add the types to the emulator's CloudFormation engine."""
    provisioners: dict[str, Provisioner] = {
        "AWS::SageMaker::Model": ModelProvisioner(sagemaker, bridge),
        "AWS::SageMaker::EndpointConfig": EndpointConfigProvisioner(sagemaker, bridge),
        "AWS::SageMaker::Endpoint": EndpointProvisioner(sagemaker, bridge),
        "AWS::ApplicationAutoScaling::ScalableTarget": TargetProvisioner(autoscaling, bridge),
        "AWS::ApplicationAutoScaling::ScalingPolicy": PolicyProvisioner(autoscaling, bridge),
    }
    patches.register_resource_types(
        {name: {"create": it.create, "update": it.update, "delete": it.delete} for name, it in provisioners.items()},
        REPLACING,
        _TAGGED,
    )
