"""Registers our CloudFormation resource types: how each is created, updated, deleted and replaced. Also tells which types there are.

``python -m mme_local.cloudformation.types`` prints all types that a local cloud provisions, one a line.

Which changes replace a resource comes from the registry schemas (``create_only.json``, made by ``python -m tests.local.create_only``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any, Protocol, cast

from mme_local import patches
from mme_local.autoscaling.models import AutoScaling
from mme_local.cloudformation.autoscaling import PolicyProvisioner, TargetProvisioner
from mme_local.cloudformation.monitoring import CompositeAlarmProvisioner, MetricAlarmProvisioner
from mme_local.cloudformation.network import (
    AddressProvisioner,
    FlowLogProvisioner,
    NatGatewayProvisioner,
    SecurityGroupRuleProvisioner,
    VpcEndpointProvisioner,
    VpcProvisioner,
)
from mme_local.cloudformation.sagemaker import (
    EndpointConfigProvisioner,
    EndpointProvisioner,
    InferenceComponentProvisioner,
    ModelProvisioner,
)
from mme_local.cloudwatch.alarms import Alarms
from mme_local.loop import LoopBridge
from mme_local.sagemaker.models import SageMaker

__all__ = ["REPLACING", "register"]

REPLACING: Mapping[str, Sequence[str]] = json.loads(resources.files(__package__).joinpath("create_only.json").read_text("utf-8"))
"""Type -> the properties whose change replaces the resource: the create-only ones of its registry schema."""


class Provisioner(Protocol):
    """What the emulator's engine calls: physical id and attributes come back."""

    def create(self, logical_id: str, properties: Mapping[str, Any], stack: str) -> tuple[str, dict[str, Any]]:
        """Create the resource."""

    def update(self, physical_id: str, old: Mapping[str, Any], new: Mapping[str, Any], stack: str) -> tuple[str, dict[str, Any]]:
        """Change what does not replace it."""

    def delete(self, physical_id: str, properties: Mapping[str, Any]) -> None:
        """Delete it if it is there."""


_TAGGED = (
    "AWS::CloudWatch::Alarm",
    "AWS::CloudWatch::CompositeAlarm",
    "AWS::EC2::EIP",
    "AWS::EC2::FlowLog",
    "AWS::EC2::NatGateway",
    "AWS::SageMaker::Endpoint",
    "AWS::SageMaker::EndpointConfig",
    "AWS::SageMaker::InferenceComponent",
    "AWS::SageMaker::Model",
)


def register(sagemaker: SageMaker, autoscaling: AutoScaling, alarms: Alarms, bridge: LoopBridge) -> None:
    """Add the types to the emulator's CloudFormation engine."""
    ours: dict[str, Provisioner] = {
        "AWS::SageMaker::Model": ModelProvisioner(sagemaker, bridge),
        "AWS::SageMaker::EndpointConfig": EndpointConfigProvisioner(sagemaker, bridge),
        "AWS::SageMaker::Endpoint": EndpointProvisioner(sagemaker, bridge),
        "AWS::SageMaker::InferenceComponent": InferenceComponentProvisioner(sagemaker, bridge),
        "AWS::ApplicationAutoScaling::ScalableTarget": TargetProvisioner(autoscaling, bridge),
        "AWS::ApplicationAutoScaling::ScalingPolicy": PolicyProvisioner(autoscaling, bridge),
    }
    emulated: dict[str, Provisioner] = {
        "AWS::CloudWatch::Alarm": MetricAlarmProvisioner(alarms),
        "AWS::CloudWatch::CompositeAlarm": CompositeAlarmProvisioner(alarms),
        "AWS::EC2::EIP": AddressProvisioner(),
        "AWS::EC2::FlowLog": FlowLogProvisioner(),
        "AWS::EC2::NatGateway": NatGatewayProvisioner(),
        "AWS::EC2::SecurityGroupEgress": SecurityGroupRuleProvisioner(egress=True),
        "AWS::EC2::SecurityGroupIngress": SecurityGroupRuleProvisioner(egress=False),
        "AWS::EC2::VPC": VpcProvisioner(),
        "AWS::EC2::VPCEndpoint": VpcEndpointProvisioner(),
    }
    patches.register_resource_types(
        {name: {"create": it.create, "update": it.update, "delete": it.delete} for name, it in (ours | emulated).items()},
        replacing=REPLACING,
        tagged=_TAGGED,
        waiting=ours,
        with_logical_id=("AWS::EC2::VPC",),
    )


def main() -> None:
    """Print the types, the emulator's and ours."""
    patches.apply()
    # Only the names matter here: nothing is created.
    register(cast(SageMaker, None), cast(AutoScaling, None), cast(Alarms, None), cast(LoopBridge, None))
    print("\n".join(patches.resource_types()))  # noqa: T201 - its output


if __name__ == "__main__":
    main()
