"""Endpoints in a VPC."""

from __future__ import annotations

import json

import pytest
from aws_cdk import aws_ec2 as ec2

from mme_constructs import EndpointNetwork, ModelArtifactStore, MultiModelContainer, MultiModelEndpoint
from mme_constructs.errors import NetworkError


def _vpc(stack, zones=2):
    return ec2.Vpc.from_vpc_attributes(
        stack,
        "Vpc",
        vpc_id="vpc-1",
        availability_zones=[f"eu-central-1{letter}" for letter in "abc"[:zones]],
        isolated_subnet_ids=[f"subnet-{number}" for number in range(zones)],
    )


def _endpoint(stack, network):
    container = MultiModelContainer.from_framework("xgboost", version="1.7-1")
    return MultiModelEndpoint(stack, "Endpoint", store=ModelArtifactStore(stack, "Store"), container=container, network=network)


def test_the_model_joins_the_subnets_with_a_group_that_lets_nothing_in(synthesize_stack):
    synthesized = synthesize_stack(lambda stack: _endpoint(stack, EndpointNetwork(vpc=_vpc(stack))))
    config = synthesized.only("AWS::SageMaker::Model")["Properties"]["VpcConfig"]
    (group_id,) = synthesized.resources("AWS::EC2::SecurityGroup")
    assert config == {"Subnets": ["subnet-0", "subnet-1"], "SecurityGroupIds": [{"Fn::GetAtt": [group_id, "GroupId"]}]}
    assert "SecurityGroupIngress" not in synthesized.only("AWS::EC2::SecurityGroup")["Properties"]


def test_given_groups_and_subnets_are_used_as_they_are(synthesize_stack):
    def build(stack):
        vpc = _vpc(stack, zones=3)
        groups = [ec2.SecurityGroup.from_security_group_id(stack, f"G{n}", f"sg-{n}") for n in range(5)]
        chosen = ec2.SubnetSelection(subnets=list(vpc.isolated_subnets)[:2])
        _endpoint(stack, EndpointNetwork(vpc=vpc, subnets=chosen, security_groups=groups))

    synthesized = synthesize_stack(build)
    assert synthesized.only("AWS::SageMaker::Model")["Properties"]["VpcConfig"] == {
        "Subnets": ["subnet-0", "subnet-1"],
        "SecurityGroupIds": [f"sg-{n}" for n in range(5)],
    }
    assert not synthesized.resources("AWS::EC2::SecurityGroup")


def test_the_role_makes_interfaces_in_these_subnets_only(synthesize_stack):
    synthesized = synthesize_stack(lambda stack: _endpoint(stack, EndpointNetwork(vpc=_vpc(stack))))
    statements = synthesized.only("AWS::IAM::Policy")["Properties"]["PolicyDocument"]["Statement"]
    (making,) = [item for item in statements if item["Action"] == "ec2:CreateNetworkInterface"]
    text = json.dumps(making["Resource"])
    assert "subnet/subnet-0" in text
    assert "subnet/subnet-1" in text
    assert "subnet/*" not in text
    (changing,) = [item for item in statements if "ec2:DeleteNetworkInterface" in item["Action"]]
    assert "vpc/vpc-1" in json.dumps(changing["Condition"]["ArnEquals"]["ec2:Vpc"])
    (describing,) = [item for item in statements if "ec2:DescribeSubnets" in item["Action"]]
    assert {action for action in describing["Action"] if action.startswith("ec2:") and "Describe" not in action} == set()
    assert describing["Resource"] == "*"


def test_connections_open_ways_to_the_instances(synthesize_stack):
    def build(stack):
        endpoint = _endpoint(stack, EndpointNetwork(vpc=_vpc(stack)))
        endpoint.connections.allow_to(ec2.Peer.ipv4("10.0.0.0/16"), ec2.Port.tcp(443))
        endpoint.connections.allow_from(ec2.Peer.ipv4("10.0.0.0/16"), ec2.Port.tcp(443))

    ingress = synthesize_stack(build).only("AWS::EC2::SecurityGroup")["Properties"]["SecurityGroupIngress"]
    assert [rule["CidrIp"] for rule in ingress] == ["10.0.0.0/16"]


def test_an_endpoint_outside_a_vpc_has_no_connections(stack):
    with pytest.raises(NetworkError, match="in no VPC"):
        _ = _endpoint(stack, None).connections


def test_rejects_subnets_of_one_zone(stack):
    with pytest.raises(NetworkError, match="two Availability Zones, for one instance too: got '1 subnets in 1 zones'"):
        _endpoint(stack, EndpointNetwork(vpc=_vpc(stack, zones=1)))


def test_rejects_two_subnets_in_one_zone(stack):
    vpc = ec2.Vpc.from_vpc_attributes(
        stack, "Vpc", vpc_id="vpc-1", availability_zones=["eu-central-1a"], isolated_subnet_ids=["subnet-0", "subnet-1"]
    )
    with pytest.raises(NetworkError, match="got '2 subnets in 1 zones'"):
        _endpoint(stack, EndpointNetwork(vpc=vpc))


def test_rejects_more_than_sixteen_subnets(stack):
    subnets = [
        ec2.Subnet.from_subnet_attributes(stack, f"S{n}", subnet_id=f"subnet-{n}", availability_zone=f"eu-central-1{'ab'[n % 2]}")
        for n in range(17)
    ]
    with pytest.raises(NetworkError, match="got 17; allowed: 2 to 16"):
        _endpoint(stack, EndpointNetwork(vpc=_vpc(stack), subnets=ec2.SubnetSelection(subnets=subnets)))


def test_rejects_more_than_five_groups(stack):
    groups = [ec2.SecurityGroup.from_security_group_id(stack, f"G{n}", f"sg-{n}") for n in range(6)]
    with pytest.raises(NetworkError, match="got 6; allowed: 1 to 5"):
        EndpointNetwork(vpc=_vpc(stack), security_groups=groups)
