"""An endpoint's place in a VPC: subnets in at least two Availability Zones, security groups, and what its role needs for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import Construct

from mme_constructs.acknowledge import acknowledge_wildcards
from mme_constructs.errors import NetworkError
from mme_constructs.stack_of import stack_of

__all__ = ["EndpointNetwork", "PlacedNetwork"]

_DESCRIBE = [
    "ec2:DescribeDhcpOptions",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSubnets",
    "ec2:DescribeVpcs",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointNetwork:
    """The VPC that an endpoint's containers join.

    SageMaker spreads the instances over the subnets' zones and takes two addresses or more per instance. With network isolation the
    containers stay cut off, but the downloads of images and artifacts go through the VPC: it needs gateway or interface endpoints for S3
    and ECR, or a NAT gateway.

    Attributes:
        vpc: the VPC.
        subnets: which subnets. Default: the private ones with a way out, else the isolated ones, as CDK chooses.
        security_groups: 1 to 5 groups. Default: a group of its own that lets nothing in.

    Raises:
        NetworkError: more than five security groups; when placed: fewer than two or more than 16 subnets, or all in one zone.

    Sources: Amazon SageMaker AI, Give SageMaker AI hosted endpoints access to resources in your Amazon VPC; API reference: VpcConfig.
    """

    vpc: ec2.IVpc
    subnets: ec2.SubnetSelection | None = None
    security_groups: Sequence[ec2.ISecurityGroup] = ()

    def __post_init__(self) -> None:
        if len(self.security_groups) > 5:
            raise NetworkError(
                "An endpoint joins too many security groups", value=len(self.security_groups), allowed="1 to 5", fix="Merge their rules"
            )

    def place(self, scope: Construct) -> PlacedNetwork:
        """Choose the subnets and make the security group below ``scope``; raises `NetworkError`."""
        chosen = self.vpc.select_subnets() if self.subnets is None else _select(self.vpc, self.subnets)
        zones = set(chosen.availability_zones)
        if len(chosen.subnet_ids) < 2 or len(zones) < 2:
            raise NetworkError(
                "An endpoint needs subnets in two Availability Zones, for one instance too",
                value=f"{len(chosen.subnet_ids)} subnets in {len(zones)} zones",
                allowed="2 to 16 subnets in at least 2 zones",
                fix="Select more subnets, or give the VPC max_azs=2 or more",
            )
        if len(chosen.subnet_ids) > 16:
            raise NetworkError(
                "An endpoint cannot join so many subnets",
                value=len(chosen.subnet_ids),
                allowed="2 to 16 subnets in at least 2 zones",
                fix="Select fewer",
            )
        groups = list(self.security_groups) or [
            ec2.SecurityGroup(
                scope,
                "SecurityGroup",
                vpc=self.vpc,
                description="Instances of a SageMaker endpoint: nothing comes in, requests arrive through SageMaker.",
                allow_all_outbound=True,
            )
        ]
        return PlacedNetwork(
            vpc=self.vpc,
            subnet_ids=tuple(chosen.subnet_ids),
            security_group_ids=tuple(group.security_group_id for group in groups),
            connections=ec2.Connections(security_groups=groups),
        )


@dataclass(frozen=True, slots=True)
class PlacedNetwork:
    """The subnets and security groups of one endpoint.

    Attributes:
        vpc: the VPC.
        subnet_ids: at least two.
        security_group_ids: one to five.
        connections: opens ways to and from the instances.
    """

    vpc: ec2.IVpc
    subnet_ids: tuple[str, ...]
    security_group_ids: tuple[str, ...]
    connections: ec2.Connections

    def grant_interfaces(self, role: iam.Role) -> None:
        """Let ``role`` attach the instances to the subnets.

        Source: Amazon SageMaker AI, Give SageMaker AI hosted endpoints access to resources in your Amazon VPC. Interfaces can be made in
        these subnets and groups only, and permitted or deleted in this VPC only; describing them has no resource.
        """
        stack = stack_of(role)
        interfaces = stack.format_arn(service="ec2", resource="network-interface", resource_name="*")
        role.add_to_policy(
            iam.PolicyStatement(
                actions=["ec2:CreateNetworkInterface"],
                resources=[
                    interfaces,
                    *(stack.format_arn(service="ec2", resource="subnet", resource_name=name) for name in self.subnet_ids),
                    *(stack.format_arn(service="ec2", resource="security-group", resource_name=name) for name in self.security_group_ids),
                ],
            )
        )
        role.add_to_policy(
            iam.PolicyStatement(
                actions=[
                    "ec2:CreateNetworkInterfacePermission",
                    "ec2:DeleteNetworkInterface",
                    "ec2:DeleteNetworkInterfacePermission",
                ],
                resources=[interfaces],
                conditions={"ArnEquals": {"ec2:Vpc": self.vpc.vpc_arn}},
            )
        )
        role.add_to_policy(iam.PolicyStatement(actions=_DESCRIBE, resources=["*"]))
        acknowledge_wildcards(
            role,
            {
                ":network-interface/*": "SageMaker names the interfaces; they lie in the endpoint's subnets and VPC.",
                "*": "Describing interfaces and subnets has no resource (Service Authorization Reference: Amazon EC2).",
            },
        )


def _select(vpc: ec2.IVpc, selection: ec2.SubnetSelection) -> ec2.SelectedSubnets:
    return vpc.select_subnets(
        availability_zones=selection.availability_zones,
        one_per_az=selection.one_per_az,
        subnet_filters=selection.subnet_filters,
        subnet_group_name=selection.subnet_group_name,
        subnets=selection.subnets,
        subnet_type=selection.subnet_type,
    )
