"""The types of SageMaker and its scaling through CloudFormation: made, changed in place, replaced, rolled back, deleted."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from contextlib import closing

import pytest
from botocore.exceptions import WaiterError

from mme_local import InsufficientCapacity, LocalCloud, LocalSettings
from mme_local.dataplane import DataPlaneSettings
from tests.local.conftest import Workbench
from tests.local.sagemaker_double import IMAGE

TRUST = {"Statement": [{"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}]}
READS = {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::artifacts/*"}
DIMENSION = {"ServiceNamespace": "sagemaker", "ScalableDimension": "sagemaker:variant:DesiredInstanceCount"}


def resource(kind, depends_on=None, **properties):
    return {"Type": kind, "Properties": properties, **({"DependsOn": depends_on} if depends_on else {})}


def archive():
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz"):
        pass
    return packed.getvalue()


class Template:
    """An endpoint of inference components with all that belongs to it; ``with_`` gives one that differs."""

    def __init__(self, **values):
        self.values = {
            "tag": "a",
            "instance_type": "ml.m5.xlarge",
            "count": 1,
            "endpoint": "dedicated",
            "memory": 512,
            "copies": 1,
            "component": "acme",
            "maximum": 3,
            "policy": "requests",
            "target_value": 70,
            "variant": "AllTraffic",
            **values,
        }

    def with_(self, **values):
        return Template(**{**self.values, **values})

    def body(self):
        v = self.values
        container = {"Image": IMAGE, "ModelDataUrl": "s3://artifacts/a.tar.gz", "Environment": {"TAG": v["tag"]}}
        policy = {"PolicyName": "read", "PolicyDocument": {"Version": "2012-10-17", "Statement": [READS]}}
        variant = {"VariantName": v["variant"], "InstanceType": v["instance_type"], "InitialInstanceCount": v["count"]}
        tracking = {
            "TargetValue": v["target_value"],
            "PredefinedMetricSpecification": {"PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"},
        }
        role = {"Fn::GetAtt": ["Role", "Arn"]}
        resources = {
            "Role": resource("AWS::IAM::Role", AssumeRolePolicyDocument={"Version": "2012-10-17", **TRUST}, Policies=[policy]),
            "Model": resource("AWS::SageMaker::Model", ExecutionRoleArn=role, PrimaryContainer=container),
            "Config": resource("AWS::SageMaker::EndpointConfig", ExecutionRoleArn=role, ProductionVariants=[variant]),
            "Endpoint": resource(
                "AWS::SageMaker::Endpoint",
                EndpointName=v["endpoint"],
                EndpointConfigName={"Fn::GetAtt": ["Config", "EndpointConfigName"]},
                RetainAllVariantProperties=True,
            ),
            "Target": resource(
                "AWS::ApplicationAutoScaling::ScalableTarget",
                **DIMENSION,
                ResourceId={"Fn::Sub": f"endpoint/${{Endpoint.EndpointName}}/variant/{v['variant']}"},
                MinCapacity=1,
                MaxCapacity=v["maximum"],
            ),
            "Policy": resource(
                "AWS::ApplicationAutoScaling::ScalingPolicy",
                PolicyName=v["policy"],
                PolicyType="TargetTrackingScaling",
                ScalingTargetId={"Ref": "Target"},
                TargetTrackingScalingPolicyConfiguration=tracking,
            ),
        }
        if v["component"]:
            needs = {"MinMemoryRequiredInMb": v["memory"], "NumberOfCpuCoresRequired": 1}
            resources["Component"] = resource(
                "AWS::SageMaker::InferenceComponent",
                InferenceComponentName=v["component"],
                EndpointName={"Fn::GetAtt": ["Endpoint", "EndpointName"]},
                VariantName=v["variant"],
                Specification={"ModelName": {"Fn::GetAtt": ["Model", "ModelName"]}, "ComputeResourceRequirements": needs},
                RuntimeConfig={"CopyCount": v["copies"]},
            )
        return json.dumps({"Resources": resources})


class Stack:
    def __init__(self, bench: Workbench) -> None:
        self.bench, self.cloudformation = bench, bench.client("cloudformation")
        self.sagemaker, self.scaling = bench.client("sagemaker"), bench.client("application-autoscaling")

    def put(self, template: Template, *, update: bool = True) -> str:
        """Create or update; the state in which that ended."""
        call = self.cloudformation.update_stack if update else self.cloudformation.create_stack
        call(StackName="s", TemplateBody=template.body(), Capabilities=["CAPABILITY_IAM"])
        waiter = self.cloudformation.get_waiter("stack_update_complete" if update else "stack_create_complete")
        try:
            waiter.wait(StackName="s", WaiterConfig={"Delay": 0.1, "MaxAttempts": 600})
        except WaiterError:
            self.bench.wait_for(lambda: not self.state().endswith("IN_PROGRESS"), seconds=60)
        return self.state()

    def state(self) -> str:
        return self.cloudformation.describe_stacks(StackName="s")["Stacks"][0]["StackStatus"]

    def reasons(self) -> str:
        events = self.cloudformation.describe_stack_events(StackName="s")["StackEvents"]
        return " ".join(event.get("ResourceStatusReason", "") for event in events if event["ResourceStatus"].endswith("FAILED"))

    def physical(self, logical: str) -> str:
        detail = self.cloudformation.describe_stack_resource(StackName="s", LogicalResourceId=logical)["StackResourceDetail"]
        return detail["PhysicalResourceId"]

    def delete(self) -> None:
        self.cloudformation.delete_stack(StackName="s")
        self.cloudformation.get_waiter("stack_delete_complete").wait(StackName="s", WaiterConfig={"Delay": 0.1, "MaxAttempts": 600})

    def left(self) -> list[object]:
        """What there is of SageMaker and its scaling."""
        listed = [
            self.sagemaker.list_models()["Models"],
            self.sagemaker.list_endpoint_configs()["EndpointConfigs"],
            self.sagemaker.list_endpoints()["Endpoints"],
            self.sagemaker.list_inference_components()["InferenceComponents"],
            self.scaling.describe_scalable_targets(ServiceNamespace="sagemaker")["ScalableTargets"],
            self.scaling.describe_scaling_policies(ServiceNamespace="sagemaker")["ScalingPolicies"],
        ]
        return [item for items in listed for item in items]


@pytest.fixture(scope="module")
def faulty() -> Iterator[LocalCloud]:
    simulated = DataPlaneSettings(servers={"*": "simulated"})
    with LocalCloud(settings=LocalSettings(faults=True, data_plane=simulated)) as cloud:
        yield cloud


@pytest.fixture
def stack(faulty):
    faulty.reset()
    with closing(Workbench(faulty)) as bench:
        bench.client("s3").create_bucket(Bucket="artifacts")
        bench.client("s3").put_object(Bucket="artifacts", Key="a.tar.gz", Body=archive())
        yield Stack(bench)


def test_changes_are_made_in_place_where_the_schemas_allow_it_and_all_goes_with_the_stack(stack):
    first = Template()
    assert stack.put(first, update=False) == "CREATE_COMPLETE", stack.reasons()
    names = {logical: stack.physical(logical) for logical in ("Model", "Config", "Endpoint", "Component", "Target", "Policy")}
    changed = first.with_(tag="b", instance_type="ml.m5.2xlarge", memory=1024, copies=2, maximum=2, target_value=50)
    assert stack.put(changed) == "UPDATE_COMPLETE", stack.reasons()
    now = {logical: stack.physical(logical) for logical in names}
    assert {logical for logical in names if now[logical] != names[logical]} == {"Model", "Config"}, "replaced"
    assert len(stack.sagemaker.list_models()["Models"]) == 1
    assert len(stack.sagemaker.list_endpoint_configs()["EndpointConfigs"]) == 1
    component = stack.sagemaker.describe_inference_component(InferenceComponentName="acme")
    assert component["RuntimeConfig"] == {"DesiredCopyCount": 2, "CurrentCopyCount": 2}
    assert component["Specification"]["ComputeResourceRequirements"]["MinMemoryRequiredInMb"] == 1024
    (target,) = stack.scaling.describe_scalable_targets(ServiceNamespace="sagemaker")["ScalableTargets"]
    (policy,) = stack.scaling.describe_scaling_policies(ServiceNamespace="sagemaker")["ScalingPolicies"]
    assert (target["MaxCapacity"], policy["TargetTrackingScalingPolicyConfiguration"]["TargetValue"]) == (2, 50.0)
    stack.delete()
    assert stack.left() == []


def test_names_replace_an_endpoint_and_what_hangs_on_it(stack):
    first = Template(component=None)
    assert stack.put(first, update=False) == "CREATE_COMPLETE", stack.reasons()
    assert stack.put(first.with_(endpoint="other", policy="by-requests")) == "UPDATE_COMPLETE", stack.reasons()
    assert [item["EndpointName"] for item in stack.sagemaker.list_endpoints()["Endpoints"]] == ["other"]
    (target,) = stack.scaling.describe_scalable_targets(ServiceNamespace="sagemaker")["ScalableTargets"]
    (policy,) = stack.scaling.describe_scaling_policies(ServiceNamespace="sagemaker")["ScalingPolicies"]
    assert target["ResourceId"] == policy["ResourceId"] == "endpoint/other/variant/AllTraffic"
    assert policy["PolicyName"] == "by-requests"
    stack.delete()
    assert stack.left() == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"memory": 99999}, "not enough hardware resources on the instances"),
        ({"instance_type": "ml.m5.large", "memory": 12000}, "not enough hardware resources on the instances"),
        ({"component": "renamed"}, "InferenceComponentName of inference component acme cannot be changed"),
        ({"maximum": 0}, ""),
    ],
    ids=["a component that does not fit", "copies that do not fit new instances", "a component's name", "a target"],
)
def test_an_update_that_fails_rolls_all_of_it_back(stack, change, reason):
    first = Template(memory=6000 if "instance_type" in change else 512)
    assert stack.put(first, update=False) == "CREATE_COMPLETE", stack.reasons()
    before = stack.sagemaker.describe_endpoint(EndpointName="dedicated")
    assert stack.put(first.with_(tag="b", **change)) == "UPDATE_ROLLBACK_COMPLETE"
    assert reason in stack.reasons()
    after = stack.sagemaker.describe_endpoint(EndpointName="dedicated")
    assert (after["EndpointStatus"], after["EndpointConfigName"]) == ("InService", before["EndpointConfigName"])
    component = stack.sagemaker.describe_inference_component(InferenceComponentName="acme")
    assert component["InferenceComponentStatus"] == "InService"
    assert component["RuntimeConfig"]["CurrentCopyCount"] == 1
    model = stack.sagemaker.describe_model(ModelName=component["Specification"]["ModelName"])
    assert model["PrimaryContainer"]["Environment"] == {"TAG": "a"}
    assert len(stack.sagemaker.list_models()["Models"]) == len(stack.sagemaker.list_endpoint_configs()["EndpointConfigs"]) == 1


def test_an_endpoint_without_capacity_keeps_its_old_configuration(stack, faulty):
    first = Template(component=None)
    assert stack.put(first, update=False) == "CREATE_COMPLETE", stack.reasons()
    before = stack.sagemaker.describe_endpoint(EndpointName="dedicated")["EndpointConfigName"]
    with faulty.faults.during(InsufficientCapacity(endpoint="dedicated*")):
        assert stack.put(first.with_(count=2, instance_type="ml.m5.2xlarge")) == "UPDATE_ROLLBACK_COMPLETE"
    assert "InsufficientInstanceCapacity" in stack.reasons()
    assert stack.sagemaker.describe_endpoint(EndpointName="dedicated")["EndpointConfigName"] == before


@pytest.mark.parametrize("values", [{"memory": 99999}, {"count": 99}], ids=["a component that does not fit", "too many instances"])
def test_a_creation_that_fails_leaves_nothing(stack, values):
    assert stack.put(Template(**values), update=False) == "ROLLBACK_COMPLETE"
    assert stack.left() == []
