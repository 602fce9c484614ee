"""Refreshes ``mme_local/cloudformation/create_only.json`` from the registry schemas that cfn-lint ships.

``python -m tests.local.create_only`` writes the file; a test compares the two.
"""

from __future__ import annotations

import json
from pathlib import Path

from cfnlint.schema import PROVIDER_SCHEMA_MANAGER

import mme_local.cloudformation

FILE = Path(mme_local.cloudformation.__file__).with_name("create_only.json")
REGION = "us-east-1"
TYPES = (
    "AWS::ApplicationAutoScaling::ScalableTarget",
    "AWS::ApplicationAutoScaling::ScalingPolicy",
    "AWS::CloudWatch::Alarm",
    "AWS::CloudWatch::CompositeAlarm",
    "AWS::EC2::EIP",
    "AWS::EC2::FlowLog",
    "AWS::EC2::NatGateway",
    "AWS::EC2::SecurityGroupEgress",
    "AWS::EC2::SecurityGroupIngress",
    "AWS::EC2::SubnetRouteTableAssociation",
    "AWS::EC2::VPCEndpoint",
    "AWS::SageMaker::Endpoint",
    "AWS::SageMaker::EndpointConfig",
    "AWS::SageMaker::InferenceComponent",
    "AWS::SageMaker::Model",
)
"""The types whose replacement we decide."""


def create_only() -> dict[str, list[str]]:
    """Type -> its create-only properties. Parts of properties are left out: the emulator's engine compares whole ones."""
    schemas = {name: PROVIDER_SCHEMA_MANAGER.get_resource_schema(REGION, name).schema for name in TYPES}
    return {
        name: sorted(pointer.split("/")[2] for pointer in schema.get("createOnlyProperties", []) if pointer.count("/") == 2)
        for name, schema in schemas.items()
    }


def text() -> str:
    """The file as it should be."""
    return json.dumps(create_only(), indent=2) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), "utf-8")
