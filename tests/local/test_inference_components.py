"""An endpoint of inference components from a template, and what the API answers of them."""

from __future__ import annotations

import json

import pytest
from botocore.exceptions import ClientError

from tests.local.test_endpoint_for_real import IMAGE, artifact

TRUST = {"Statement": [{"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}]}
CONTAINER = {"Image": IMAGE, "ArtifactUrl": "s3://components/a.tar.gz"}
READS = {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::components/*"}
POLICY = {"PolicyName": "read", "PolicyDocument": {"Version": "2012-10-17", "Statement": [READS]}}
NEEDS = {"ComputeResourceRequirements": {"MinMemoryRequiredInMb": 256}, "Container": CONTAINER}
ARN = "arn:aws:sagemaker:us-east-1:000000000000"


def resource(kind, **properties):
    return {"Type": kind, "Properties": properties}


def template(copies=1, memory=256, schedule="cron(0 7 * * ? *)", minimum=0):
    dimension = {"ServiceNamespace": "sagemaker", "ScalableDimension": "sagemaker:inference-component:DesiredCopyCount"}
    steps = {
        "AdjustmentType": "ChangeInCapacity",
        "Cooldown": 60,
        "MetricAggregationType": "Maximum",
        "StepAdjustments": [{"MetricIntervalLowerBound": 0, "ScalingAdjustment": 1}],
    }
    variant = {
        "VariantName": "AllTraffic",
        "InstanceType": "ml.m5.xlarge",
        "InitialInstanceCount": 1,
        "ManagedInstanceScaling": {"Status": "ENABLED", "MinInstanceCount": 0, "MaxInstanceCount": 2},
        "RoutingConfig": {"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"},
        "VolumeSizeInGB": 30,
    }
    action = {
        "ScheduledActionName": "morning",
        "Schedule": schedule,
        "ScalableTargetAction": {"MinCapacity": "1"},
        "Timezone": "Europe/Berlin",
    }
    return {
        "Resources": {
            "Role": resource("AWS::IAM::Role", AssumeRolePolicyDocument={"Version": "2012-10-17", **TRUST}, Policies=[POLICY]),
            "Config": resource(
                "AWS::SageMaker::EndpointConfig",
                ExecutionRoleArn={"Fn::GetAtt": ["Role", "Arn"]},
                ProductionVariants=[variant],
                EnableNetworkIsolation=False,
                VpcConfig={"SecurityGroupIds": ["sg-1"], "Subnets": ["subnet-1", "subnet-2"]},
            ),
            "Endpoint": resource(
                "AWS::SageMaker::Endpoint", EndpointName="dedicated", EndpointConfigName={"Fn::GetAtt": ["Config", "EndpointConfigName"]}
            ),
            "Component": resource(
                "AWS::SageMaker::InferenceComponent",
                InferenceComponentName="acme",
                EndpointName={"Fn::GetAtt": ["Endpoint", "EndpointName"]},
                VariantName="AllTraffic",
                Specification={
                    "Container": CONTAINER,
                    "ComputeResourceRequirements": {"MinMemoryRequiredInMb": str(memory), "NumberOfCpuCoresRequired": 0.5},
                },
                RuntimeConfig={"CopyCount": copies},
                Tags=[{"Key": "tenant", "Value": "acme"}],
            ),
            "Target": {
                **resource(
                    "AWS::ApplicationAutoScaling::ScalableTarget",
                    **dimension,
                    ResourceId="inference-component/acme",
                    MinCapacity=minimum,
                    MaxCapacity=2,
                    ScheduledActions=[action],
                    Tags=[{"Key": "copies", "Value": str(copies)}],
                ),
                "DependsOn": "Component",
            },
            "Wake": resource(
                "AWS::ApplicationAutoScaling::ScalingPolicy",
                PolicyName="wake",
                PolicyType="StepScaling",
                ScalingTargetId={"Ref": "Target"},
                StepScalingPolicyConfiguration=steps,
            ),
            "Asleep": resource(
                "AWS::CloudWatch::Alarm",
                Namespace="AWS/SageMaker",
                MetricName="NoCapacityInvocationFailures",
                Dimensions=[{"Name": "InferenceComponentName", "Value": "acme"}],
                Period=10,
                Statistic="Sum",
                ComparisonOperator="GreaterThanOrEqualToThreshold",
                Threshold=1,
                EvaluationPeriods=1,
                AlarmActions=[{"Ref": "Wake"}],
            ),
        },
        "Outputs": {
            "Ref": {"Value": {"Ref": "Component"}},
            "Arn": {"Value": {"Fn::GetAtt": ["Component", "InferenceComponentArn"]}},
            "Copies": {"Value": {"Fn::GetAtt": ["Component", "RuntimeConfig.DesiredCopyCount"]}},
        },
    }


class Stack:
    def __init__(self, bench):
        self.bench, self.cloudformation = bench, bench.client("cloudformation")

    def put(self, document, *, update=False):
        call = self.cloudformation.update_stack if update else self.cloudformation.create_stack
        call(StackName="s", TemplateBody=json.dumps(document), Capabilities=["CAPABILITY_IAM"])
        self.settle("stack_update_complete" if update else "stack_create_complete")
        (stack,) = self.cloudformation.describe_stacks(StackName="s")["Stacks"]
        return {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}

    def settle(self, waiter):
        self.cloudformation.get_waiter(waiter).wait(StackName="s", WaiterConfig={"Delay": 0.1, "MaxAttempts": 300})


@pytest.fixture(scope="module")
def packed():
    return artifact()[0]


@pytest.fixture
def stack(bench, packed):
    bench.client("s3").create_bucket(Bucket="components")
    bench.client("s3").put_object(Bucket="components", Key="a.tar.gz", Body=packed)
    return Stack(bench)


def in_service(bench, name):
    def status():
        return bench.document("DescribeInferenceComponent", InferenceComponentName=name)["InferenceComponentStatus"] == "InService"

    bench.wait_for(status)


def refusal(call):
    with pytest.raises(ClientError) as caught:
        call()
    return caught.value.response


def test_a_template_makes_changes_and_removes_it_all(bench, stack):
    outputs = stack.put(template())
    assert outputs == {"Ref": f"{ARN}:inference-component/acme", "Arn": f"{ARN}:inference-component/acme", "Copies": "1"}
    described = bench.document("DescribeInferenceComponent", InferenceComponentName="acme")
    assert described["Specification"]["ComputeResourceRequirements"]["MinMemoryRequiredInMb"] == 256
    assert described["Specification"]["Container"]["DeployedImage"]["SpecifiedImage"] == IMAGE
    (variant,) = bench.document("DescribeEndpoint", EndpointName="dedicated")["ProductionVariants"]
    assert variant["ManagedInstanceScaling"]["MinInstanceCount"] == 0
    assert "DeployedImages" not in variant
    (status,) = bench.cloud.status()["endpoints"]
    (copy,) = [one["fleet"] for one in status["instances"]]
    assert (status["name"], status["status"], copy, status["requests"]) == ("dedicated", "InService", "dedicated.1.AllTraffic.acme", 0)
    assert status["components"] == [{"name": "acme", "variant": "AllTraffic", "status": "InService", "copies": 1}]
    scaling = bench.client("application-autoscaling")
    (target,) = scaling.describe_scalable_targets(ServiceNamespace="sagemaker")["ScalableTargets"]
    (action,) = scaling.describe_scheduled_actions(ServiceNamespace="sagemaker")["ScheduledActions"]
    assert (target["MinCapacity"], action["ScalableTargetAction"], action["Timezone"]) == (0, {"MinCapacity": 1}, "Europe/Berlin")

    assert scaling.list_tags_for_resource(ResourceARN=target["ScalableTargetARN"])["Tags"] == {"copies": "1"}
    changed = template(copies=2, memory=512, schedule="rate(1 day)", minimum=1)
    del changed["Resources"]["Asleep"]
    assert stack.put(changed, update=True)["Copies"] == "2"
    described = bench.document("DescribeInferenceComponent", InferenceComponentName="acme")
    assert described["Specification"]["ComputeResourceRequirements"]["MinMemoryRequiredInMb"] == 512
    (action,) = scaling.describe_scheduled_actions(ServiceNamespace="sagemaker")["ScheduledActions"]
    assert action["Schedule"] == "rate(1 day)"
    assert scaling.list_tags_for_resource(ResourceARN=target["ScalableTargetARN"])["Tags"] == {"copies": "2"}
    without = template(copies=2, memory=512, minimum=1)
    del without["Resources"]["Asleep"]
    without["Resources"]["Target"]["Properties"]["ScheduledActions"] = []
    stack.put(without, update=True)
    assert scaling.describe_scheduled_actions(ServiceNamespace="sagemaker")["ScheduledActions"] == []

    stack.cloudformation.delete_stack(StackName="s")
    stack.settle("stack_delete_complete")
    assert bench.cloud.status()["endpoints"] == []
    assert bench.document("ListInferenceComponents")["InferenceComponents"] == []
    assert scaling.describe_scalable_targets(ServiceNamespace="sagemaker")["ScalableTargets"] == []


def test_a_bad_scheduled_action_leaves_no_target(bench, stack):
    with pytest.raises(Exception, match="ROLLBACK_COMPLETE"):
        stack.put(template(schedule="every morning"))
    scaling = bench.client("application-autoscaling")
    assert scaling.describe_scalable_targets(ServiceNamespace="sagemaker")["ScalableTargets"] == []
    assert bench.cloud.status()["endpoints"] == []


def test_a_copy_count_is_left_alone_by_an_update_of_something_else(bench, stack):
    stack.put(template())
    bench.document("UpdateInferenceComponentRuntimeConfig", InferenceComponentName="acme", DesiredRuntimeConfig={"CopyCount": 0})
    in_service(bench, "acme")
    stack.put(template(memory=512), update=True)
    assert bench.document("DescribeInferenceComponent", InferenceComponentName="acme")["RuntimeConfig"]["DesiredCopyCount"] == 0


def test_answers_of_the_api_have_the_shapes_of_the_service(bench, stack):
    stack.put(template())
    given = {"EndpointName": "dedicated", "Specification": NEEDS, "RuntimeConfig": {"CopyCount": 1}}
    bench.document("CreateInferenceComponent", InferenceComponentName="other", **given)
    in_service(bench, "other")
    listed = bench.document("ListInferenceComponents", SortBy="Name", SortOrder="Ascending", EndpointNameEquals="dedicated", MaxResults=1)
    assert [item["InferenceComponentName"] for item in listed["InferenceComponents"]] == ["acme"]
    assert "NextToken" in listed
    assert bench.document("ListInferenceComponents", NameContains="OTHER")["InferenceComponents"][0]["VariantName"] == "AllTraffic"
    policy = {"RollingUpdatePolicy": {"MaximumBatchSize": {"Type": "COPY_COUNT", "Value": 1}, "WaitIntervalInSeconds": 0}}
    wanted = {"RuntimeConfig": {"CopyCount": 1}, "DeploymentConfig": policy}
    bench.document("UpdateInferenceComponent", InferenceComponentName="other", **wanted)
    in_service(bench, "other")
    assert bench.document("DescribeInferenceComponent", InferenceComponentName="other")["LastDeploymentConfig"] == policy
    bench.document("AddTags", ResourceArn=f"{ARN}:inference-component/other", Tags=[{"Key": "a", "Value": "b"}])
    bench.document("DeleteInferenceComponent", InferenceComponentName="other")
    bench.wait_for(lambda: not bench.document("ListInferenceComponents", NameContains="other")["InferenceComponents"])
    sagemaker = bench.client("sagemaker")
    bad = {**given, "VariantName": "none"}
    for call, text in (
        (lambda: sagemaker.describe_inference_component(InferenceComponentName="other"), "Could not find inference component"),
        (lambda: sagemaker.create_inference_component(InferenceComponentName="x", **bad), "Could not find variant"),
        (lambda: sagemaker.delete_endpoint(EndpointName="dedicated"), "has inference components"),
    ):
        error = refusal(call)["Error"]
        assert (error["Code"], text in error["Message"]) == ("ValidationException", True), error
