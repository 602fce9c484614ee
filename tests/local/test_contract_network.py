"""Resource types of EC2 and CloudWatch through real stacks: attributes, replacement, refusals, complete deletion."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from botocore.exceptions import WaiterError

VPC = {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": "10.1.0.0/16", "EnableDnsSupport": True, "EnableDnsHostnames": True}}


def get(name, attribute):
    return {"Fn::GetAtt": [name, attribute]}


def ref(name):
    return {"Ref": name}


def resource(kind, **properties):
    return {"Type": kind, "Properties": properties}


def subnet(zone, cidr):
    return resource("AWS::EC2::Subnet", VpcId=ref("Vpc"), CidrBlock=cidr, AvailabilityZone=zone)


def network(**further):
    """A VPC with two subnets and a security group."""
    group = resource("AWS::EC2::SecurityGroup", VpcId=ref("Vpc"), GroupDescription="clients", SecurityGroupEgress=[])
    return {"Vpc": VPC, "A": subnet("us-east-1a", "10.1.0.0/24"), "B": subnet("us-east-1b", "10.1.1.0/24"), "Group": group, **further}


def endpoint(service="sagemaker.runtime", subnets=("A", "B"), **properties):
    return resource(
        "AWS::EC2::VPCEndpoint",
        VpcId=ref("Vpc"),
        ServiceName=f"com.amazonaws.us-east-1.{service}",
        VpcEndpointType="Interface",
        SubnetIds=[ref(name) for name in subnets],
        SecurityGroupIds=[ref("Group")],
        PrivateDnsEnabled=True,
        **properties,
    )


def alarm(name=None, **properties):
    given = {"MetricName": "m", "Namespace": "n", "Period": 60, "Statistic": "Sum"} if "Metrics" not in properties else {}
    named = {"AlarmName": name} if name else {}
    return resource(
        "AWS::CloudWatch::Alarm",
        **named,
        **given,
        ComparisonOperator="GreaterThanThreshold",
        Threshold=1,
        EvaluationPeriods=1,
        TreatMissingData=properties.pop("TreatMissingData", "ignore"),
        **properties,
    )


EXPRESSION = [
    {"Id": "rate", "Expression": "hits / all", "Label": "rate"},
    *(
        {"Id": name, "ReturnData": False, "MetricStat": {"Metric": {"Namespace": "n", "MetricName": name}, "Period": 60, "Stat": "Sum"}}
        for name in ("hits", "all")
    ),
]


@pytest.fixture
def stack(bench):
    """Puts a stack of resources and returns its outputs; a stack that fails raises with the reasons."""
    cloudformation = bench.client("cloudformation")

    def put(resources, outputs=None, *, update=False, delete=False):
        if delete:
            cloudformation.delete_stack(StackName="s")
            waiter = "stack_delete_complete"
        else:
            template = {"Resources": resources}
            if outputs:
                template["Outputs"] = {name: {"Value": value} for name, value in outputs.items()}
            call = cloudformation.update_stack if update else cloudformation.create_stack
            call(StackName="s", TemplateBody=json.dumps(template), Capabilities=["CAPABILITY_IAM"])
            waiter = "stack_update_complete" if update else "stack_create_complete"
        try:
            cloudformation.get_waiter(waiter).wait(StackName="s", WaiterConfig={"Delay": 0.1, "MaxAttempts": 200})
        except WaiterError:
            events = cloudformation.describe_stack_events(StackName="s")["StackEvents"]
            raise AssertionError(" ".join(event.get("ResourceStatusReason", "") for event in events)) from None
        if delete:
            return {}
        (described,) = cloudformation.describe_stacks(StackName="s")["Stacks"]
        return {output["OutputKey"]: output["OutputValue"] for output in described.get("Outputs", [])}

    return put


class TestNetwork:
    def test_a_vpc_tells_its_range_and_endpoints_their_names(self, bench, stack):
        outputs = stack(
            network(Endpoint=endpoint()),
            {
                "Cidr": get("Vpc", "CidrBlock"),
                "Dns": {"Fn::Select": [0, get("Endpoint", "DnsEntries")]},
                "Interfaces": {"Fn::Join": [",", get("Endpoint", "NetworkInterfaceIds")]},
            },
        )
        assert outputs["Cidr"] == "10.1.0.0/16"
        assert outputs["Dns"].startswith("Z7HUB22UULQXV:vpce-")
        assert len(outputs["Interfaces"].split(",")) == 2
        (described,) = bench.client("ec2").describe_vpc_endpoints()["VpcEndpoints"]
        assert described["ServiceName"] == "com.amazonaws.us-east-1.sagemaker.runtime"

    def test_rules_flow_logs_addresses_and_gateways_come_and_go(self, bench, stack):
        ec2 = bench.client("ec2")
        role = bench.service_role("vpc-flow-logs.amazonaws.com")
        given = network(
            In=resource(
                "AWS::EC2::SecurityGroupIngress",
                GroupId=get("Group", "GroupId"),
                IpProtocol="tcp",
                FromPort=443,
                ToPort=443,
                SourceSecurityGroupId=get("Group", "GroupId"),
            ),
            Out=resource(
                "AWS::EC2::SecurityGroupEgress",
                GroupId=get("Group", "GroupId"),
                IpProtocol="tcp",
                FromPort=443,
                ToPort=443,
                CidrIp=get("Vpc", "CidrBlock"),
            ),
            Logs=resource("AWS::Logs::LogGroup", LogGroupName="flows"),
            Flow=resource(
                "AWS::EC2::FlowLog",
                ResourceId=ref("Vpc"),
                ResourceType="VPC",
                TrafficType="ALL",
                LogGroupName=ref("Logs"),
                DeliverLogsPermissionArn=role,
            ),
            Address=resource("AWS::EC2::EIP", Domain="vpc"),
            Nat=resource("AWS::EC2::NatGateway", SubnetId=ref("A"), AllocationId=get("Address", "AllocationId")),
        )
        outputs = stack(given, {"Rule": ref("In"), "Flow": ref("Flow"), "Nat": ref("Nat"), "Address": ref("Address")})
        assert [outputs[name].partition("-")[0] for name in ("Rule", "Flow", "Nat")] == ["sgr", "fl", "nat"]
        assert outputs["Address"] in {item["PublicIp"] for item in ec2.describe_addresses()["Addresses"]}
        (group,) = ec2.describe_security_groups(Filters=[{"Name": "group-name", "Values": ["s-Group"]}])["SecurityGroups"]
        assert [rule["FromPort"] for rule in group["IpPermissions"]] == [443]
        given["In"]["Properties"] |= {"FromPort": 8443, "ToPort": 8443}
        changed = stack(given, {"Rule": ref("In")}, update=True)
        assert changed["Rule"] != outputs["Rule"]
        (group,) = ec2.describe_security_groups(GroupIds=[group["GroupId"]])["SecurityGroups"]
        assert [rule["FromPort"] for rule in group["IpPermissions"]] == [8443], "the replaced rule is gone"
        stack({}, delete=True)
        assert ec2.describe_flow_logs()["FlowLogs"] == []
        assert ec2.describe_addresses()["Addresses"] == []
        assert ec2.describe_nat_gateways()["NatGateways"] == []

    @pytest.mark.parametrize(
        ("further", "text"),
        [
            ({"E": endpoint(subnets=("A", "A2")), "A2": subnet("us-east-1a", "10.1.2.0/24")}, "DuplicateSubnetsInSameZone"),
            (
                {"E": endpoint(), "F": {**endpoint(), "DependsOn": "E"}},
                "conflicting DNS domain for com.amazonaws.us-east-1.sagemaker.runtime",
            ),
            ({"Vpc": {**VPC, "Properties": {"CidrBlock": "10.1.0.0/16"}}, "E": endpoint()}, "enableDnsSupport and enableDnsHostnames"),
            ({"E": endpoint() | {"Properties": {**endpoint()["Properties"], "VpcId": "vpc-0"}}}, "vpc ID 'vpc-0' does not exist"),
            ({"R": resource("AWS::EC2::SecurityGroupIngress", GroupId="sg-0", IpProtocol="-1")}, "'sg-0' does not exist"),
            ({"L": resource("AWS::EC2::FlowLog", ResourceId="vpc-0", ResourceType="VPC")}, "'vpc-0' of the flow log does not exist"),
            (
                {"L": resource("AWS::EC2::FlowLog", ResourceId=ref("Vpc"), ResourceType="VPC", LogGroupName="g")},
                "DeliverLogsPermissionArn is required",
            ),
            ({"N": resource("AWS::EC2::NatGateway", SubnetId=ref("A"), AllocationId="eipalloc-0")}, "'eipalloc-0' does not exist"),
        ],
    )
    def test_what_ec2_refuses_fails_the_stack(self, stack, further, text):
        with pytest.raises(AssertionError, match=text):
            stack(network(**further))


class TestAlarms:
    def test_a_composite_alarm_follows_its_children_and_goes_before_them(self, bench, stack):
        cloudwatch = bench.client("cloudwatch")
        rule = {"Fn::Join": ["", ['ALARM("', ref("Child"), '")']]}
        composite = resource("AWS::CloudWatch::CompositeAlarm", AlarmRule=rule, AlarmActions=[ref("Topic")], AlarmDescription="users")
        given = {"Child": alarm(), "Users": composite, "Topic": resource("AWS::SNS::Topic")}
        outputs = stack(given, {"Name": ref("Users"), "Arn": get("Users", "Arn"), "Child": ref("Child")})
        assert outputs["Arn"].endswith(f":alarm:{outputs['Name']}")

        def state():
            found = cloudwatch.describe_alarms(AlarmNames=[outputs["Name"]], AlarmTypes=["CompositeAlarm"])["CompositeAlarms"]
            return [item["StateValue"] for item in found]

        cloudwatch.set_alarm_state(AlarmName=outputs["Child"], StateValue="ALARM", StateReason="test")
        assert state() == ["ALARM"]
        composite["Properties"]["AlarmDescription"] = "changed"
        stack(given, {"Name": ref("Users")}, update=True)
        (described,) = cloudwatch.describe_alarms(AlarmTypes=["CompositeAlarm"])["CompositeAlarms"]
        assert (described["AlarmName"], described["AlarmDescription"]) == (outputs["Name"], "changed")
        stack({}, delete=True)
        assert cloudwatch.describe_alarms(AlarmTypes=["CompositeAlarm", "MetricAlarm"])["CompositeAlarms"] == []

    def test_an_alarm_on_an_expression_is_evaluated(self, bench, stack):
        cloudwatch = bench.client("cloudwatch")
        moment = datetime.now(UTC) - timedelta(minutes=1)
        hits = [{"MetricName": "hits", "Value": 100.0, "Timestamp": moment}, {"MetricName": "all", "Value": 1.0, "Timestamp": moment}]
        cloudwatch.put_metric_data(Namespace="n", MetricData=hits)
        outputs = stack({"Rate": alarm(Metrics=EXPRESSION)}, {"Name": ref("Rate")})
        (described,) = cloudwatch.describe_alarms(AlarmNames=[outputs["Name"]])["MetricAlarms"]
        assert described["StateValue"] == "ALARM"
        assert [query["Id"] for query in described["Metrics"]] == ["rate", "hits", "all"]
        stack({}, delete=True)
        assert cloudwatch.describe_alarms()["MetricAlarms"] == []

    def test_an_alarm_with_a_new_name_is_another_one_and_keeps_its_state_otherwise(self, bench, stack):
        cloudwatch = bench.client("cloudwatch")
        stack({"A": alarm("first", Tags=[{"Key": "team", "Value": "a"}])})
        cloudwatch.set_alarm_state(AlarmName="first", StateValue="ALARM", StateReason="test")
        outputs = stack(
            {"A": alarm("first", AlarmDescription="more", Tags=[{"Key": "team", "Value": "b"}])}, {"Arn": get("A", "Arn")}, update=True
        )
        (described,) = cloudwatch.describe_alarms()["MetricAlarms"]
        assert (described["StateValue"], described["AlarmDescription"]) == ("ALARM", "more")
        assert {"Key": "team", "Value": "b"} in cloudwatch.list_tags_for_resource(ResourceARN=outputs["Arn"])["Tags"]
        stack({"A": alarm("second")}, update=True)
        (described,) = cloudwatch.describe_alarms()["MetricAlarms"]
        assert (described["AlarmName"], described["StateValue"]) == ("second", "INSUFFICIENT_DATA")

    @pytest.mark.parametrize(
        ("given", "text"),
        [
            ({"C": resource("AWS::CloudWatch::CompositeAlarm", AlarmRule='ALARM("none")')}, "none.*do not exist"),
            ({"C": resource("AWS::CloudWatch::CompositeAlarm", AlarmRule="ALARM(")}, "(?i)alarm"),
            ({"C": resource("AWS::CloudWatch::CompositeAlarm")}, "'alarmRule' failed to satisfy constraint"),
            ({"A": alarm(Metrics=EXPRESSION, Namespace="n")}, "cannot be specified together"),
            ({"A": alarm(Metrics=EXPRESSION[1:])}, "should return data"),
            ({"A": alarm(Metrics=[{"Expression": "1"}])}, "'metrics.1.member.id' failed to satisfy constraint"),
            ({"A": alarm(Nonsense=1)}, "unsupported property Nonsense"),
            ({"A": alarm(Dimension=[])}, "unsupported property Dimension"),
            ({"A": alarm(TreatMissingData="sometimes")}, "TreatMissingData sometimes"),
        ],
    )
    def test_what_cloudwatch_refuses_fails_the_stack(self, stack, given, text):
        with pytest.raises(AssertionError, match=text):
            stack(given)


class TestRepositories:
    def test_an_image_that_is_not_there_is_not_found(self, bench):
        ecr = bench.client("ecr")
        ecr.create_repository(repositoryName="images")
        with pytest.raises(ecr.exceptions.ImageNotFoundException):
            ecr.describe_images(repositoryName="images", imageIds=[{"imageTag": "none"}])
        assert ecr.describe_images(repositoryName="images")["imageDetails"] == []

    def test_describing_one_repository_is_authorized_on_it_alone(self, bench):
        admin = bench.client("ecr")
        for name in ("mine", "other"):
            admin.create_repository(repositoryName=name)
        arn = f"arn:aws:ecr:us-east-1:{bench.cloud.account}:repository/mine"
        ecr = bench.client("ecr", bench.user({"Effect": "Allow", "Action": "ecr:DescribeRepositories", "Resource": arn}))
        assert len(ecr.describe_repositories(repositoryNames=["mine"])["repositories"]) == 1
        for names in (["other"], ["mine", "other"]):
            with pytest.raises(ecr.exceptions.ClientError, match="not authorized"):
                ecr.describe_repositories(repositoryNames=names)
        with pytest.raises(ecr.exceptions.ClientError, match="not authorized"):
            ecr.describe_repositories()
