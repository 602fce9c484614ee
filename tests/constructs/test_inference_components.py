"""The dedicated endpoint and its components."""

from __future__ import annotations

import json

import aws_cdk as cdk
import pytest
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms

from mme_constructs import (
    CapacitySize,
    ComponentScaling,
    ComputeRequirements,
    EndpointNetwork,
    InferenceComponent,
    InferenceComponentEndpoint,
    ModelArtifactStore,
    MultiModelContainer,
    MultiModelEndpoint,
    RollingDeployment,
)
from mme_constructs.errors import (
    AutoScalingError,
    EncryptionError,
    EndpointNameError,
    EndpointSettingsError,
    InferenceComponentError,
    InstanceCountError,
    MetricError,
    TenantError,
)
from mme_facts.grammar import component_name, component_name_prefix
from tests.constructs.iam_evaluation import Request, decide, resolved

XGBOOST = MultiModelContainer.from_framework("xgboost", version="1.7-1")
SMALL = ComputeRequirements(memory_mb=1024, cpus=0.5)
VERSION = "v3-0123456789ab"
ENDPOINT_ARN = "arn:aws:sagemaker:eu-central-1:111122223333:endpoint/dedicated"
ENV = cdk.Environment(account="111122223333", region="eu-central-1")


def _endpoint(stack, **props):
    return InferenceComponentEndpoint(
        stack, "Dedicated", store=ModelArtifactStore(stack, "Store"), **({"endpoint_name": "dedicated"} | props)
    )


def _component(stack, *, endpoint=None, **props):
    endpoint = _endpoint(stack) if endpoint is None else endpoint
    return endpoint.add_component("acme", "ranking", **({"container": XGBOOST, "compute": SMALL, "version": VERSION} | props))


def test_the_variant_has_no_model_and_the_config_carries_the_role(synthesize_stack):
    synthesized = synthesize_stack(_endpoint)
    config = synthesized.only("AWS::SageMaker::EndpointConfig")["Properties"]
    assert config["ProductionVariants"] == [
        {
            "VariantName": "AllTraffic",
            "InstanceType": "ml.m5.xlarge",
            "InitialInstanceCount": 1,
            "ManagedInstanceScaling": {"Status": "ENABLED", "MinInstanceCount": 1, "MaxInstanceCount": 4},
            "RoutingConfig": {"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"},
        }
    ]
    assert "Fn::GetAtt" in config["ExecutionRoleArn"]
    assert config["EnableNetworkIsolation"] is True
    assert not synthesized.resources("AWS::SageMaker::Model")
    endpoint = synthesized.only("AWS::SageMaker::Endpoint")["Properties"]
    assert (endpoint["EndpointName"], endpoint["RetainAllVariantProperties"]) == ("dedicated", True)


def test_the_config_waits_for_the_roles_policy(synthesize_stack):
    synthesized = synthesize_stack(_component)
    wanted = {*synthesized.resources("AWS::IAM::Policy"), *synthesized.resources("AWS::IAM::Role")}
    assert set(synthesized.only("AWS::SageMaker::EndpointConfig")["DependsOn"]) == wanted
    assert wanted <= set(synthesized.only("AWS::SageMaker::InferenceComponent")["DependsOn"])


def test_a_network_stands_on_the_config(synthesize_stack):
    def build(stack):
        vpc = ec2.Vpc.from_vpc_attributes(
            stack, "Vpc", vpc_id="vpc-1", availability_zones=["eu-central-1a", "eu-central-1b"], isolated_subnet_ids=["s-0", "s-1"]
        )
        group = ec2.SecurityGroup.from_security_group_id(stack, "Group", "sg-1")
        _endpoint(stack, network=EndpointNetwork(vpc=vpc, security_groups=[group]), encryption_key=kms.Key(stack, "Key"), volume_size_gb=64)

    synthesized = synthesize_stack(build)
    config = synthesized.only("AWS::SageMaker::EndpointConfig")["Properties"]
    assert config["VpcConfig"] == {"Subnets": ["s-0", "s-1"], "SecurityGroupIds": ["sg-1"]}
    assert "Fn::GetAtt" in config["KmsKeyId"]
    assert config["ProductionVariants"][0]["VolumeSizeInGB"] == 64


def test_a_component_reserves_its_resources_and_is_tagged_with_its_tenant(synthesize_stack):
    synthesized = synthesize_stack(
        lambda stack: _component(stack, copies=2, container_startup_timeout_seconds=120, model_download_timeout_seconds=600), env=ENV
    )
    properties = synthesized.only("AWS::SageMaker::InferenceComponent")["Properties"]
    assert properties["InferenceComponentName"] == component_name("dedicated", "acme", "ranking")
    assert properties["VariantName"] == "AllTraffic"
    assert properties["Tags"] == [{"Key": "tenant", "Value": "acme"}]
    assert properties["RuntimeConfig"] == {"CopyCount": 2}
    specification = properties["Specification"]
    assert specification["ComputeResourceRequirements"] == {"MinMemoryRequiredInMb": 1024, "NumberOfCpuCoresRequired": 0.5}
    assert specification["StartupParameters"] == {
        "ContainerStartupHealthCheckTimeoutInSeconds": 120,
        "ModelDataDownloadTimeoutInSeconds": 600,
    }
    assert specification["Container"]["Image"].endswith("/sagemaker-xgboost:1.7-1")
    assert specification["Container"]["ArtifactUrl"]["Fn::Join"][1][-1] == f"/models/acme/ranking/{VERSION}.tar.gz"


def test_an_image_may_hold_its_model(synthesize_stack):
    container = synthesize_stack(lambda stack: _component(stack, version=None)).only("AWS::SageMaker::InferenceComponent")
    assert "ArtifactUrl" not in container["Properties"]["Specification"]["Container"]


def test_copies_are_replaced_in_batches_and_back_by_an_alarm(synthesize_stack):
    def build(stack):
        alarm = cloudwatch.Alarm.from_alarm_arn(stack, "Slow", "arn:aws:cloudwatch:eu-central-1:111122223333:alarm:slow")
        deployment = RollingDeployment(batch=CapacitySize.of_instances(1), wait_seconds=120, timeout_seconds=3600, alarms=[alarm])
        _component(stack, deployment=deployment)

    synthesized = synthesize_stack(build)
    assert synthesized.only("AWS::SageMaker::InferenceComponent")["Properties"]["DeploymentConfig"] == {
        "RollingUpdatePolicy": {
            "MaximumBatchSize": {"Type": "COPY_COUNT", "Value": 1},
            "WaitIntervalInSeconds": 120,
            "MaximumExecutionTimeoutInSeconds": 3600,
        },
        "AutoRollbackConfiguration": {"Alarms": [{"AlarmName": "slow"}]},
    }
    assert "cloudwatch:DescribeAlarms" in str(synthesized.only("AWS::IAM::Policy"))


def test_names_tell_nothing_about_the_tenant_and_stay_over_versions():
    acme, evil = (component_name("dedicated", tenant, "x") for tenant in ("acme", "acme-evil"))
    prefix = component_name_prefix("dedicated")
    assert acme.startswith(prefix)
    assert evil.startswith(prefix)
    assert acme.removeprefix(prefix)[:4] != evil.removeprefix(prefix)[:4]
    assert "acme" not in evil
    assert len(acme) <= 63
    assert component_name_prefix("other") != prefix


def test_copies_follow_invocations_between_their_bounds(synthesize_stack):
    synthesized = synthesize_stack(lambda stack: _component(stack, scaling=ComponentScaling(max_copies=8)))
    name = component_name("dedicated", "acme", "ranking")
    target = synthesized.only("AWS::ApplicationAutoScaling::ScalableTarget")
    assert target["Properties"] == {
        "ServiceNamespace": "sagemaker",
        "ScalableDimension": "sagemaker:inference-component:DesiredCopyCount",
        "ResourceId": f"inference-component/{name}",
        "MinCapacity": 1,
        "MaxCapacity": 8,
    }
    assert target["DependsOn"] == list(synthesized.resources("AWS::SageMaker::InferenceComponent"))
    policy = synthesized.only("AWS::ApplicationAutoScaling::ScalingPolicy")["Properties"]["TargetTrackingScalingPolicyConfiguration"]
    assert policy["TargetValue"] == 1200
    assert policy["PredefinedMetricSpecification"] == {"PredefinedMetricType": "SageMakerInferenceComponentInvocationsPerCopy"}
    assert not synthesized.resources("AWS::CloudWatch::Alarm")


def test_copies_may_follow_requests_under_way(synthesize_stack):
    synthesized = synthesize_stack(lambda stack: _component(stack, scaling=ComponentScaling(concurrent_requests_per_copy=5)))
    policy = synthesized.only("AWS::ApplicationAutoScaling::ScalingPolicy")["Properties"]["TargetTrackingScalingPolicyConfiguration"]
    assert policy["TargetValue"] == 5
    metric = policy["PredefinedMetricSpecification"]["PredefinedMetricType"]
    assert metric == "SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution"


def test_the_first_failure_brings_an_endpoint_back_from_zero(synthesize_stack):
    def build(stack):
        _component(stack, endpoint=_endpoint(stack, min_instances=0), scaling=ComponentScaling(min_copies=0))

    synthesized = synthesize_stack(build)
    (variant,) = synthesized.only("AWS::SageMaker::EndpointConfig")["Properties"]["ProductionVariants"]
    assert variant["ManagedInstanceScaling"]["MinInstanceCount"] == 0
    assert variant["InitialInstanceCount"] == 1
    alarm = synthesized.only("AWS::CloudWatch::Alarm")["Properties"]
    assert {key: alarm[key] for key in ("Namespace", "MetricName", "Statistic", "Period", "EvaluationPeriods", "Threshold")} == {
        "Namespace": "AWS/SageMaker",
        "MetricName": "NoCapacityInvocationFailures",
        "Statistic": "Sum",
        "Period": 60,
        "EvaluationPeriods": 1,
        "Threshold": 1,
    }
    assert alarm["ComparisonOperator"] == "GreaterThanOrEqualToThreshold"
    assert alarm["Dimensions"] == [{"Name": "InferenceComponentName", "Value": component_name("dedicated", "acme", "ranking")}]
    policy_id = alarm["AlarmActions"][0]["Ref"]
    policy = synthesized.resources("AWS::ApplicationAutoScaling::ScalingPolicy")[policy_id]["Properties"]
    assert policy["StepScalingPolicyConfiguration"] == {
        "AdjustmentType": "ChangeInCapacity",
        "Cooldown": 60,
        "MetricAggregationType": "Maximum",
        "StepAdjustments": [{"MetricIntervalLowerBound": 0, "ScalingAdjustment": 1}],
    }


def test_the_role_writes_logs_of_this_endpoints_components_only(synthesize_stack):
    policy = json.dumps(synthesize_stack(_component, env=ENV).only("AWS::IAM::Policy"))
    assert f"log-group:/aws/sagemaker/InferenceComponents/{component_name_prefix('dedicated')}*" in policy
    assert "InferenceComponents/*" not in policy
    assert "repository/sagemaker-xgboost" in policy


def test_metrics_of_components_and_of_the_endpoint(stack):
    component = _component(stack)
    metric = component.metric("InvocationsPerCopy")
    assert metric.dimensions == {"InferenceComponentName": component.inference_component_name}
    endpoint = stack.node.find_child("Dedicated")
    assert endpoint.metric("CPUUtilizationNormalized").dimensions == {"EndpointName": "dedicated", "VariantName": "AllTraffic"}
    with pytest.raises(MetricError, match="publish no such metric: got 'ModelCacheHit'"):
        endpoint.metric("ModelCacheHit")
    with pytest.raises(MetricError, match="publish no such metric: got 'LoadedModelCount'"):
        component.metric("LoadedModelCount")


@pytest.fixture(scope="module")
def grants(synthesize):
    def build(app):
        stack = cdk.Stack(app, "Test", env=ENV)
        endpoint = _endpoint(stack)
        for name in ("Acme", "Everybody"):
            role = iam.Role(stack, name, assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
            if name == "Acme":
                endpoint.grant_invoke_tenant(role, "acme")
            else:
                endpoint.grant_invoke(role)

    synthesized = synthesize(build)
    values = dict.fromkeys(synthesized.resources("AWS::SageMaker::Endpoint"), "dedicated")
    return {
        name.partition("Default")[0]: resolved(item["Properties"]["PolicyDocument"], values)
        for name, item in synthesized.resources("AWS::IAM::Policy").items()
    }


def _call(owner, *, name=None, **keys):
    name = component_name("dedicated", "acme", "x") if name is None else name
    keys = keys | ({} if owner is None else {"aws:ResourceTag/tenant": owner})
    return Request("sagemaker:InvokeEndpoint", f"arn:aws:sagemaker:eu-central-1:111122223333:inference-component/{name}", keys)


def test_a_tenant_reaches_components_by_their_tag_only(grants):
    requests = {
        "its own": (_call("acme"), True),
        "the endpoint for it": (
            Request("sagemaker:InvokeEndpoint", "arn:aws:sagemaker:eu-central-1:111122223333:endpoint/dedicated"),
            True,
        ),
        "a tenant with the same beginning": (_call("acme-evil"), False),
        "another tenant": (_call("globex"), False),
        "another case": (_call("Acme"), False),
        "nobody's": (_call(None), False),
        "its own on another endpoint": (_call("acme", name=component_name("other", "acme", "x")), False),
    }
    decisions = decide(grants["Acme"], [request for request, _ in requests.values()])
    assert dict(zip(requests, decisions, strict=True)) == {name: expected for name, (_, expected) in requests.items()}


def test_the_grant_for_everybody_stays_on_the_endpoint(grants):
    requests = [_call("acme"), _call("globex"), _call("acme", name=component_name("other", "acme", "x"))]
    assert decide(grants["Everybody"], requests) == [True, True, False]


@pytest.mark.parametrize("tenant", ["Acme", "*", "acme*", "", "../acme"])
def test_rejects_grants_outside_the_grammar(stack, tenant):
    role = iam.Role(stack, "Caller", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
    with pytest.raises(TenantError, match="The tenant cannot be granted"):
        _endpoint(stack).grant_invoke_tenant(role, tenant)


@pytest.mark.parametrize(
    ("props", "error", "text"),
    [
        ({"min_instances": -1}, InstanceCountError, "got '-1 to 4'"),
        ({"min_instances": 0, "max_instances": 0}, InstanceCountError, "max_instances from 1"),
        ({"min_instances": 5}, InstanceCountError, "got '5 to 4'"),
        ({"instance_type": "ml.t2.large"}, AutoScalingError, "Burstable types"),
        ({"endpoint_name": "Dedicated"}, EndpointNameError, "got 'Dedicated'"),
        ({"endpoint_name": cdk.Aws.STACK_NAME}, EndpointNameError, "not known at synthesis"),
        ({"instance_type": "ml.g5.xlarge", "volume_size_gb": 10}, EndpointSettingsError, "get no EBS volume"),
        ({"container_startup_timeout_seconds": 10}, EndpointSettingsError, "60 to 3,600"),
        ({"tags": {"aws:x": "y"}}, EndpointSettingsError, "The tag is not allowed"),
    ],
)
def test_rejects_endpoints_that_are_known_to_fail(stack, props, error, text):
    with pytest.raises(error) as caught:
        _endpoint(stack, **props)
    assert text in str(caught.value)


def test_rejects_a_key_on_instances_with_local_storage(stack):
    with pytest.raises(EncryptionError, match=r"ml\.g5\.xlarge"):
        _endpoint(stack, instance_type="ml.g5.xlarge", encryption_key=kms.Key(stack, "Key"))


@pytest.mark.parametrize(
    ("props", "error", "text"),
    [
        ({"compute": ComputeRequirements(memory_mb=17_180)}, InferenceComponentError, "more memory_mb than an instance has: got 17180"),
        ({"compute": ComputeRequirements(memory_mb=128, cpus=4.5)}, InferenceComponentError, "more cpus than an instance has: got 4.5"),
        ({"compute": ComputeRequirements(memory_mb=128, accelerators=1)}, InferenceComponentError, "more accelerators"),
        ({"copies": -1}, InferenceComponentError, "copies is out of range: got -1"),
        ({"copies": 9, "scaling": ComponentScaling(max_copies=8)}, InferenceComponentError, "got 9; allowed: 1 to 8"),
        ({"scaling": ComponentScaling(min_copies=0)}, AutoScalingError, "got 'min_copies=0 with min_instances=1'"),
        ({"version": "latest"}, TenantError, "The component's version is outside the grammar: got 'latest'"),
        ({"model_download_timeout_seconds": 5}, EndpointSettingsError, "model_download_timeout_seconds is out of range"),
        (
            {"container": MultiModelContainer.from_framework("xgboost", version="1.7-1", environment={f"V{n}": "1" for n in range(17)})},
            InferenceComponentError,
            "too many variables: got 17",
        ),
    ],
)
def test_rejects_components_that_are_known_to_fail(stack, props, error, text):
    endpoint = _endpoint(stack)
    with pytest.raises(error) as caught:
        _component(stack, endpoint=endpoint, **props)
    assert text in str(caught.value)


def test_rejects_an_image_of_another_architecture_or_for_gpus(stack):
    endpoint = _endpoint(stack, instance_type="ml.m6g.xlarge")
    with pytest.raises(InferenceComponentError, match=r"another architecture than ml\.m6g\.xlarge: got 'x86_64'"):
        _component(stack, endpoint=endpoint)
    triton = MultiModelContainer.from_framework("triton", version="24.09")
    with pytest.raises(InferenceComponentError, match="built for GPUs and the instance type has none"):
        _component(stack, endpoint=InferenceComponentEndpoint(stack, "Cpu", store=endpoint.store), container=triton)


def test_rejects_a_component_on_an_endpoint_whose_variants_have_a_model(stack):
    shared = MultiModelEndpoint(stack, "Shared", store=ModelArtifactStore(stack, "Store"), container=XGBOOST)
    with pytest.raises(InferenceComponentError, match="this endpoint's variants have a ModelName: got 'MultiModelEndpoint'"):
        InferenceComponent(stack, "Hot", endpoint=shared, tenant="acme", model="x", container=XGBOOST, compute=SMALL)


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (ComputeRequirements, InferenceComponentError, "must say how much memory each copy reserves: got 'memory_mb=0'"),
        (lambda: ComputeRequirements(memory_mb=127), InferenceComponentError, "128 MB or more"),
        (lambda: ComputeRequirements(memory_mb=512, max_memory_mb=256), InferenceComponentError, "max_memory_mb is below memory_mb"),
        (lambda: ComputeRequirements(memory_mb=512, cpus=0.2), InferenceComponentError, "0.25 or more"),
        (lambda: ComputeRequirements(memory_mb=512, accelerators=0), InferenceComponentError, "1 or more"),
        (lambda: ComponentScaling(min_copies=4, max_copies=4), AutoScalingError, "got '4 to 4'"),
        (lambda: ComponentScaling(min_copies=-1), AutoScalingError, "min_copies from 0"),
        (lambda: ComponentScaling(concurrent_requests_per_copy=0), AutoScalingError, "more than 0"),
        (
            lambda: ComponentScaling(concurrent_requests_per_copy=5, invocations_per_copy_per_minute=5),
            AutoScalingError,
            "Both requests and concurrency",
        ),
        (lambda: ComponentScaling(scale_in_cooldown_seconds=3601), AutoScalingError, "0 to 3,600 seconds"),
    ],
)
def test_rejects_settings_out_of_range(make, error, text):
    with pytest.raises(error) as caught:
        make()
    assert text in str(caught.value)
