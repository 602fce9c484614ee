from __future__ import annotations

import json

import aws_cdk as cdk
import pytest
from aws_cdk import aws_ec2 as ec2
from cdk_nag import AwsSolutionsChecks, NIST80053R5Checks

from mme_constructs import (
    FunctionSettings,
    ModelArtifactStore,
    ModelPool,
    MultiModelEndpoint,
    PrivateAccess,
    PrivateService,
    TenantApi,
    TenantRegistry,
)
from mme_constructs.acknowledge import acknowledge
from mme_constructs.errors import EndpointPolicyError, FunctionError, NetworkError

ZONES = ("eu-central-1a", "eu-central-1b", "eu-central-1c")


def _private(stack, *, registry=True, invoke=True, **props):
    store = ModelArtifactStore(stack, "Store")
    private = PrivateAccess(stack, "Private", store=store, registry=TenantRegistry(stack, "Registry") if registry else None, **props)
    if invoke:
        private.allow_invoke(MultiModelEndpoint.from_endpoint_attributes(stack, "Shared", endpoint_name="shared"))
    return private


def _given_vpc(stack, zones=2, route_tables=True):
    return ec2.Vpc.from_vpc_attributes(
        stack,
        "Vpc",
        vpc_id="vpc-1234",
        availability_zones=list(ZONES[:zones]),
        isolated_subnet_ids=[f"subnet-{zone[-1]}" for zone in ZONES[:zones]],
        isolated_subnet_route_table_ids=[f"rtb-{zone[-1]}" for zone in ZONES[:zones]] if route_tables else None,
    )


def _services(synthesized):
    named = {}
    for item in synthesized.resources("AWS::EC2::VPCEndpoint").values():
        name = item["Properties"]["ServiceName"]
        text = name if isinstance(name, str) else "".join(part if isinstance(part, str) else "REGION" for part in name["Fn::Join"][1])
        named[text.split(".", 3)[3]] = item["Properties"]
    return named


@pytest.fixture(scope="module")
def private(synthesize):
    def build(app):
        _private(cdk.Stack(app, "Test", env=cdk.Environment(account="111122223333", region="eu-central-1")))

    return synthesize(build)


def test_the_vpc_has_no_way_to_the_internet(private):
    types = {resource["Type"] for resource in private.templates["Test"]["Resources"].values()}
    assert not types & {"AWS::EC2::InternetGateway", "AWS::EC2::NatGateway", "AWS::EC2::Route", "AWS::EC2::EIP"}
    assert {item["Properties"]["MapPublicIpOnLaunch"] for item in private.resources("AWS::EC2::Subnet").values()} == {False}


def test_two_zones_by_default_with_room_for_instances(private):
    subnets = [item["Properties"] for item in private.resources("AWS::EC2::Subnet").values()]
    assert [subnet["AvailabilityZone"] for subnet in subnets] == [{"Fn::Select": [index, {"Fn::GetAZs": ""}]} for index in (0, 1)]
    assert [subnet["CidrBlock"] for subnet in subnets] == ["10.0.0.0/20", "10.0.16.0/20"]


def test_no_custom_resource_comes_with_it(private):
    types = {resource["Type"] for resource in private.templates["Test"]["Resources"].values()}
    assert not [name for name in types if name.startswith("Custom::") or name == "AWS::Lambda::Function"]


def test_every_service_of_the_platform_has_an_endpoint_with_private_dns_in_every_zone(private):
    services = _services(private)
    interfaces = {
        "sagemaker.runtime",
        "sagemaker.api",
        "logs",
        "sts",
        "events",
        "execute-api",
        "monitoring",
        "ecr.api",
        "ecr.dkr",
    }
    assert set(services) == interfaces | {"s3", "dynamodb"}
    subnets = set(private.resources("AWS::EC2::Subnet"))
    for name in interfaces:
        assert services[name]["VpcEndpointType"] == "Interface"
        assert services[name]["PrivateDnsEnabled"] is True
        assert {subnet["Ref"] for subnet in services[name]["SubnetIds"]} == subnets
    tables = set(private.resources("AWS::EC2::RouteTable"))
    for name in ("s3", "dynamodb"):
        assert services[name]["VpcEndpointType"] == "Gateway"
        assert {table["Ref"] for table in services[name]["RouteTableIds"]} == tables


def test_every_endpoint_has_a_policy(private):
    assert [name for name, properties in _services(private).items() if "PolicyDocument" not in properties] == []


def test_endpoints_admit_https_from_the_named_clients_only(private):
    (rule,) = [item["Properties"] for item in private.resources("AWS::EC2::SecurityGroupIngress").values()]
    assert (rule["IpProtocol"], rule["FromPort"], rule["ToPort"]) == ("tcp", 443, 443)
    assert rule["SourceSecurityGroupId"]["Fn::GetAtt"][0].startswith("PrivateClients")
    assert rule["GroupId"]["Fn::GetAtt"][0].startswith("PrivateEndpoints")
    assert not any("SecurityGroupIngress" in item["Properties"] for item in private.resources("AWS::EC2::SecurityGroup").values())


def test_a_named_client_reaches_the_endpoints_from_its_own_stack(synthesize):
    def build(app):
        below = cdk.Stack(app, "Below")
        private = _private(below)
        above = cdk.Stack(app, "Above")
        group = ec2.SecurityGroup(above, "Application", vpc=private.vpc, allow_all_outbound=False)
        private.add_client(group, subnets=private.subnets)

    above = synthesize(build).templates["Above"]["Resources"]
    rules = [item["Properties"] for item in above.values() if item["Type"] == "AWS::EC2::SecurityGroupIngress"]
    assert [rule["SourceSecurityGroupId"]["Fn::GetAtt"][0][:11] for rule in rules] == ["Application"]


def test_rejects_a_client_in_a_zone_without_an_endpoint(stack):
    private = _private(stack, vpc=_given_vpc(stack))
    group = ec2.SecurityGroup(stack, "Application", vpc=private.vpc)
    far = ec2.Subnet.from_subnet_attributes(stack, "Far", subnet_id="subnet-c", availability_zone=ZONES[2])
    with pytest.raises(NetworkError, match=r"a zone without an endpoint.*got 'eu-central-1c'; allowed: eu-central-1a, eu-central-1b"):
        private.add_client(group, subnets=[far])
    near = ec2.Subnet.from_subnet_attributes(stack, "Near", subnet_id="subnet-x", availability_zone=ZONES[0])
    private.add_client(group, subnets=[near])


def test_rejects_a_client_in_a_third_zone_that_only_deployment_names(stack):
    private = _private(stack)
    group = ec2.SecurityGroup(stack, "Application", vpc=private.vpc)
    third = cdk.Fn.select(2, cdk.Fn.get_azs())
    far = ec2.Subnet.from_subnet_attributes(stack, "Far", subnet_id="subnet-c", availability_zone=third)
    with pytest.raises(NetworkError, match="a zone without an endpoint"):
        private.add_client(group, subnets=[far])


def test_a_given_vpc_gets_endpoints_in_its_isolated_subnets(synthesize_stack):
    synthesized = synthesize_stack(lambda stack: _private(stack, vpc=_given_vpc(stack)))
    assert not synthesized.resources("AWS::EC2::VPC")
    services = _services(synthesized)
    assert services["sagemaker.runtime"]["SubnetIds"] == ["subnet-a", "subnet-b"]
    assert services["s3"]["RouteTableIds"] == ["rtb-a", "rtb-b"]


def test_two_subnets_of_one_zone_get_one_interface(synthesize_stack):
    def build(stack):
        subnets = [
            ec2.Subnet.from_subnet_attributes(stack, name, subnet_id=name, availability_zone=zone, route_table_id=f"rtb-{name}")
            for name, zone in (("one", ZONES[0]), ("two", ZONES[0]), ("three", ZONES[1]))
        ]
        _private(stack, vpc=_given_vpc(stack), subnets=ec2.SubnetSelection(subnets=subnets))

    services = _services(synthesize_stack(build))
    assert services["logs"]["SubnetIds"] == ["one", "three"]
    assert services["s3"]["RouteTableIds"] == ["rtb-one", "rtb-two", "rtb-three"]


def test_what_the_given_vpc_has_is_not_made_again(synthesize_stack):
    def build(stack):
        private = _private(stack, vpc=_given_vpc(stack), already_there=[PrivateService.S3, "sts"])
        assert private.s3 is None

    assert not {"s3", "sts"} & set(_services(synthesize_stack(build)))


def test_without_images_and_registry_their_endpoints_are_left_out(synthesize_stack):
    synthesized = synthesize_stack(lambda stack: _private(stack, registry=False, pull_images=False))
    services = _services(synthesized)
    assert not {"ecr.api", "ecr.dkr", "dynamodb"} & set(services)
    assert "starport" not in json.dumps(services["s3"]["PolicyDocument"])


def test_zones_can_be_counted_or_named(synthesize_stack):
    counted = synthesize_stack(lambda stack: _private(stack, zones=3))
    assert len(counted.resources("AWS::EC2::Subnet")) == 3
    env = cdk.Environment(account="111122223333", region="eu-central-1")
    named = synthesize_stack(lambda stack: _private(stack, zones=ZONES[1:]), env=env)
    assert {item["Properties"]["AvailabilityZone"] for item in named.resources("AWS::EC2::Subnet").values()} == set(ZONES[1:])


@pytest.mark.parametrize("zones", [1, 7, ["eu-central-1a"], ["eu-central-1a", "eu-central-1a"]])
def test_rejects_less_than_two_zones_more_than_six_and_one_zone_twice(stack, zones):
    with pytest.raises(NetworkError, match="two Availability Zones or more"):
        _private(stack, zones=zones)


@pytest.mark.parametrize("cidr", ["10.0.0.0/20", "10.0.0.0/15", "10.0.0.1/16", "fd00::/16", "ten"])
def test_rejects_a_range_without_room_for_two_subnets(stack, cidr):
    with pytest.raises(NetworkError, match=f"no room for 2 subnets.*got '{cidr}'; allowed: an IPv4 range from /16 to /19"):
        _private(stack, cidr=cidr)


@pytest.mark.parametrize(("cidr", "zones"), [("10.0.0.0/19", 2), ("10.0.0.0/18", 3), ("10.0.0.0/17", 6)])
def test_the_smallest_range_holds_its_subnets(synthesize_stack, cidr, zones):
    assert len(synthesize_stack(lambda stack: _private(stack, cidr=cidr, zones=zones)).resources("AWS::EC2::Subnet")) == zones


def test_rejects_a_given_vpc_in_one_zone_or_without_isolated_subnets(stack):
    with pytest.raises(NetworkError, match="got '1 subnets in 1 zones'"):
        _private(stack, vpc=_given_vpc(stack, zones=1))
    bare = ec2.Vpc.from_vpc_attributes(stack, "Bare", vpc_id="vpc-1", availability_zones=list(ZONES))
    with pytest.raises(NetworkError, match="got '0 subnets in 0 zones'"):
        PrivateAccess(stack, "Other", store=ModelArtifactStore(stack, "OtherStore"), vpc=bare)


def test_rejects_a_given_vpc_whose_route_tables_are_unknown(stack):
    with pytest.raises(NetworkError, match="route table"):
        _private(stack, vpc=_given_vpc(stack, route_tables=False))


def test_rejects_settings_that_belong_to_the_other_kind_of_vpc(stack):
    with pytest.raises(NetworkError, match=r"keeps its zones and addresses: got '10\.1.0.0/16'"):
        _private(stack, vpc=_given_vpc(stack), cidr="10.1.0.0/16")
    with pytest.raises(NetworkError, match="Subnets belong to a VPC"):
        PrivateAccess(stack, "Other", store=ModelArtifactStore(stack, "OtherStore"), subnets=ec2.SubnetSelection(one_per_az=True))
    with pytest.raises(NetworkError, match="no such service: got 'sqs'"):
        PrivateAccess(stack, "Third", store=ModelArtifactStore(stack, "ThirdStore"), already_there=["sqs"])


class TestFips:
    def test_sagemakers_endpoints_are_the_fips_variants_without_a_policy(self, synthesize_stack):
        env = cdk.Environment(account="111122223333", region="us-gov-west-1")
        services = _services(synthesize_stack(lambda stack: _private(stack, invoke=False, fips=True), env=env))
        assert {"sagemaker.runtime-fips", "sagemaker.api-fips"} <= set(services)
        assert not {"sagemaker.runtime", "sagemaker.api"} & set(services)
        assert "PolicyDocument" not in services["sagemaker.runtime-fips"]
        assert "PolicyDocument" in services["logs"]

    def test_rejects_a_policy(self, stack):
        with pytest.raises(EndpointPolicyError, match="takes no endpoint policy"):
            _private(stack, fips=True)

    def test_rejects_regions_without_it(self, flags):
        stack = cdk.Stack(cdk.App(context=flags), "Test", env=cdk.Environment(account="111122223333", region="eu-central-1"))
        with pytest.raises(NetworkError, match="no FIPS endpoint in this region: got 'eu-central-1'"):
            _private(stack, fips=True)

    def test_functions_are_told_the_endpoints_name(self, flags):
        stack = cdk.Stack(cdk.App(context=flags), "Test", env=cdk.Environment(account="111122223333", region="us-east-1"))
        settings = _private(stack, invoke=False, fips=True).function_settings(FunctionSettings(environment={"A": "b"}))
        address = settings.environment["AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME"]
        assert stack.resolve(address) == {"Fn::Join": ["", ["https://runtime-fips.sagemaker.us-east-1.", {"Ref": "AWS::URLSuffix"}]]}
        assert settings.environment["A"] == "b"


def test_fails_when_nothing_may_be_invoked(synthesize_stack):
    with pytest.raises(RuntimeError, match="Nothing may be invoked through the VPC endpoint"):
        synthesize_stack(lambda stack: _private(stack, invoke=False))


def test_rejects_a_policy_for_an_endpoint_that_was_there(stack):
    with pytest.raises(EndpointPolicyError, match="was there before and keeps its policy"):
        _private(stack, vpc=_given_vpc(stack), already_there=["sagemaker.runtime"])


def test_rejects_tokens_through_an_endpoint_that_was_there(stack):
    private = _private(stack, vpc=_given_vpc(stack), already_there=["execute-api"])
    with pytest.raises(EndpointPolicyError, match="private APIs was there before and keeps its policy"):
        private.allow_tokens()


def test_what_downloads_through_the_vpc_waits_for_its_endpoints(synthesize_stack):
    def build(stack):
        private = _private(stack)
        waiting = cdk.CfnResource(stack, "Waiting", type="AWS::SNS::Topic")
        waiting.node.add_dependency(private.downloads)

    (waiting,) = [item for name, item in synthesize_stack(build).resources("AWS::SNS::Topic").items() if name == "Waiting"]
    assert [name.removeprefix("Private").rstrip("0123456789ABCDEF") for name in waiting["DependsOn"]] == ["EcrApi", "EcrDkr", "Logs", "S"]


@pytest.fixture(scope="module")
def placed(synthesize):
    def build(app):
        stack = cdk.Stack(app, "Test", env=cdk.Environment(account="111122223333", region="eu-central-1"))
        private = _private(stack)
        store, registry = stack.node.find_child("Store"), stack.node.find_child("Registry")
        pools = [ModelPool(framework="xgboost", endpoint=stack.node.find_child("Shared"))]
        settings = private.function_settings(FunctionSettings(memory_mb=2048))
        TenantApi(
            stack,
            "Api",
            store=store,
            registry=registry,
            pools=pools,
            private_endpoint=private.execute_api,
            onboarding_settings=settings,
            invocation_settings=settings,
        )
        private.vpc.add_flow_log("FlowLog")
        decided = "Left to the stack that is under test here."
        acknowledge(
            stack,
            dict.fromkeys(
                (
                    "NIST.800.53.R5-IAMNoInlinePolicy",
                    "AwsSolutions-S1",
                    "AwsSolutions-APIG3",
                    "NIST.800.53.R5-APIGWAssociatedWithWAF",
                    "NIST.800.53.R5-CloudWatchLogGroupEncrypted",
                    "NIST.800.53.R5-DynamoDBInBackupPlan",
                    "NIST.800.53.R5-S3BucketLoggingEnabled",
                    "NIST.800.53.R5-S3BucketReplicationEnabled",
                    "NIST.800.53.R5-S3DefaultEncryptionKMS",
                    "NIST.800.53.R5-LambdaConcurrency",
                ),
                decided,
            ),
        )
        cdk.Validations.of(app).add_plugins(AwsSolutionsChecks(app, verbose=True), NIST80053R5Checks(app, verbose=True))

    return synthesize(build)


class TestPlacedHere:
    def test_functions_join_the_clients_group_in_the_private_subnets(self, placed):
        for function in placed.resources("AWS::Lambda::Function").values():
            config = function["Properties"]["VpcConfig"]
            assert [group["Fn::GetAtt"][0][:14] for group in config["SecurityGroupIds"]] == ["PrivateClients"]
            assert len(config["SubnetIds"]) == 2
            assert function["Properties"]["MemorySize"] == 2048

    def test_their_roles_may_attach_them_without_a_managed_policy(self, placed):
        roles = {function["Properties"]["Role"]["Fn::GetAtt"][0] for function in placed.resources("AWS::Lambda::Function").values()}
        attaching = set()
        for policy in placed.resources("AWS::IAM::Policy").values():
            allowed = [item["Action"] for item in policy["Properties"]["PolicyDocument"]["Statement"] if isinstance(item["Action"], list)]
            if {"ec2:CreateNetworkInterface", "ec2:DeleteNetworkInterface"} <= {action for actions in allowed for action in actions}:
                attaching |= {role["Ref"] for role in policy["Properties"]["Roles"]}
        assert attaching == roles
        assert not [role for role in placed.resources("AWS::IAM::Role").values() if "ManagedPolicyArns" in role["Properties"]]

    def test_the_api_is_private(self, placed):
        properties = placed.only("AWS::ApiGateway::RestApi")["Properties"]
        assert properties["EndpointConfiguration"]["Types"] == ["PRIVATE"]
        assert [item["Ref"][:17] for item in properties["EndpointConfiguration"]["VpcEndpointIds"]] == ["PrivateExecuteApi"]

    def test_the_rule_packs_leave_only_decisions_of_the_stack(self, placed):
        """The fixture synthesized: a finding that nobody acknowledged would have failed it."""
        report = json.loads((placed.folder / "validation-report.json").read_text("utf-8"))
        assert [plugin["violations"] for plugin in report["pluginReports"]] == [[], []]


def test_rejects_subnets_of_no_vpc():
    with pytest.raises(FunctionError, match="belong to a VPC"):
        FunctionSettings(subnets=ec2.SubnetSelection(one_per_az=True))
