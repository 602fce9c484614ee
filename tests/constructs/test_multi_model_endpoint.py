from __future__ import annotations

import aws_cdk as cdk
import pytest
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms

from mme_constructs import InvocationScaling, ModelArtifactStore, MultiModelContainer, MultiModelEndpoint
from mme_constructs.errors import (
    AutoScalingError,
    ConfigurationError,
    EncryptionError,
    EndpointNameError,
    InstanceCountError,
    MetricError,
    TenantError,
)
from mme_facts.metrics import ENDPOINT_METRICS


def _endpoint(stack, **props):
    container = props.pop("container", None) or MultiModelContainer.from_framework("xgboost", version="1.7-1")
    return MultiModelEndpoint(stack, "Endpoint", store=ModelArtifactStore(stack, "Store"), container=container, **props)


def _role_grant(stack):
    return iam.Role(stack, "Caller", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))


def _logical_id(synthesized, resource_type):
    (name,) = synthesized.resources(resource_type)
    return name


def test_the_model_serves_the_prefix_as_multi_model_without_network(synthesize_stack):
    synthesized = synthesize_stack(_endpoint)
    properties = synthesized.only("AWS::SageMaker::Model")["Properties"]
    container = properties["PrimaryContainer"]
    assert container["Mode"] == "MultiModel"
    assert container["ModelDataUrl"]["Fn::Join"][1][-1] == "/models/"
    assert "Environment" not in container
    assert properties["EnableNetworkIsolation"] is True


def test_model_and_config_have_no_physical_names(synthesize_stack):
    synthesized = synthesize_stack(_endpoint)
    assert "ModelName" not in synthesized.only("AWS::SageMaker::Model")["Properties"]
    assert "EndpointConfigName" not in synthesized.only("AWS::SageMaker::EndpointConfig")["Properties"]


def test_the_model_waits_for_the_roles_policy(synthesize_stack):
    synthesized = synthesize_stack(_endpoint)
    assert set(synthesized.only("AWS::SageMaker::Model")["DependsOn"]) == {
        *synthesized.resources("AWS::IAM::Policy"),
        *synthesized.resources("AWS::IAM::Role"),
    }


def test_one_variant_with_two_instances_by_default(synthesize_stack):
    synthesized = synthesize_stack(_endpoint)
    properties = synthesized.only("AWS::SageMaker::EndpointConfig")["Properties"]
    assert properties["ProductionVariants"] == [
        {
            "VariantName": "AllTraffic",
            "ModelName": {"Fn::GetAtt": [_logical_id(synthesized, "AWS::SageMaker::Model"), "ModelName"]},
            "InstanceType": "ml.m5.xlarge",
            "InitialInstanceCount": 2,
            "InitialVariantWeight": 1,
        }
    ]
    assert "KmsKeyId" not in properties


def test_the_endpoint_keeps_its_scaled_size_and_a_lower_case_name(synthesize_stack):
    properties = synthesize_stack(_endpoint).only("AWS::SageMaker::Endpoint")["Properties"]
    assert properties["RetainAllVariantProperties"] is True
    assert properties["EndpointName"] == properties["EndpointName"].lower()
    assert len(properties["EndpointName"]) <= 63


def test_a_given_name_is_kept(synthesize_stack):
    synthesized = synthesize_stack(lambda stack: _endpoint(stack, endpoint_name="tenants-a"))
    assert synthesized.only("AWS::SageMaker::Endpoint")["Properties"]["EndpointName"] == "tenants-a"


def test_auto_scaling_tracks_invocations_per_instance(synthesize_stack):
    synthesized = synthesize_stack(lambda stack: _endpoint(stack, max_instances=7))
    target = synthesized.only("AWS::ApplicationAutoScaling::ScalableTarget")["Properties"]
    endpoint = {"Fn::GetAtt": [_logical_id(synthesized, "AWS::SageMaker::Endpoint"), "EndpointName"]}
    assert target == {
        "ServiceNamespace": "sagemaker",
        "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
        "ResourceId": {"Fn::Join": ["", ["endpoint/", endpoint, "/variant/AllTraffic"]]},
        "MinCapacity": 2,
        "MaxCapacity": 7,
    }
    policy = synthesized.only("AWS::ApplicationAutoScaling::ScalingPolicy")["Properties"]
    assert policy["PolicyType"] == "TargetTrackingScaling"
    assert policy["TargetTrackingScalingPolicyConfiguration"] == {
        "PredefinedMetricSpecification": {"PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"},
        "TargetValue": 1200,
        "ScaleInCooldown": 600,
        "ScaleOutCooldown": 300,
    }


def test_a_fixed_size_is_not_auto_scaled(synthesize_stack):
    synthesized = synthesize_stack(lambda stack: _endpoint(stack, min_instances=3, max_instances=3))
    assert not synthesized.resources("AWS::ApplicationAutoScaling::ScalableTarget")


def test_the_execution_role_reaches_its_prefix_its_image_its_logs_and_metrics_only(synthesize_stack):
    synthesized = synthesize_stack(
        lambda stack: _endpoint(stack, endpoint_name="shared"), env=cdk.Environment(account="111122223333", region="eu-central-1")
    )
    statements = synthesized.only("AWS::IAM::Policy")["Properties"]["PolicyDocument"]["Statement"]
    actions = {action for item in statements for action in ([item["Action"]] if isinstance(item["Action"], str) else item["Action"])}
    assert actions == {
        "s3:GetObject",
        "s3:ListBucket",
        "ecr:GetAuthorizationToken",
        "ecr:BatchCheckLayerAvailability",
        "ecr:GetDownloadUrlForLayer",
        "ecr:BatchGetImage",
        "logs:CreateLogGroup",
        "logs:CreateLogStream",
        "logs:DescribeLogStreams",
        "logs:PutLogEvents",
        "cloudwatch:PutMetricData",
    }
    by_action = {(item["Action"] if isinstance(item["Action"], str) else item["Action"][0]): item for item in statements}
    assert by_action["cloudwatch:PutMetricData"]["Condition"] == {
        "StringEquals": {"cloudwatch:namespace": ["/aws/sagemaker/Endpoints", "AWS/SageMaker"]}
    }
    assert by_action["logs:CreateLogGroup"]["Resource"] == [
        "arn:aws:logs:eu-central-1:111122223333:log-group:/aws/sagemaker/Endpoints/shared",
        "arn:aws:logs:eu-central-1:111122223333:log-group:/aws/sagemaker/Endpoints/shared:log-stream:*",
    ]
    assert by_action["ecr:BatchCheckLayerAvailability"]["Resource"] == (
        "arn:aws:ecr:eu-central-1:492215442770:repository/sagemaker-xgboost"
    )
    assert [action for action, item in by_action.items() if item["Resource"] == "*"] == [
        "ecr:GetAuthorizationToken",
        "cloudwatch:PutMetricData",
    ]


def test_a_key_encrypts_the_volumes(synthesize_stack):
    synthesized = synthesize_stack(lambda stack: _endpoint(stack, encryption_key=kms.Key(stack, "Key")))
    assert "Fn::GetAtt" in synthesized.only("AWS::SageMaker::EndpointConfig")["Properties"]["KmsKeyId"]


def test_the_containers_variables_reach_the_model(synthesize_stack):
    container = MultiModelContainer.from_framework("xgboost", version="1.7-1", environment={"SAGEMAKER_NUM_MODEL_WORKERS": "2"})
    properties = synthesize_stack(lambda stack: _endpoint(stack, container=container)).only("AWS::SageMaker::Model")["Properties"]
    assert properties["PrimaryContainer"]["Environment"] == {"SAGEMAKER_NUM_MODEL_WORKERS": "2"}


@pytest.mark.parametrize(
    ("props", "error", "text"),
    [
        ({"min_instances": 0}, InstanceCountError, "cannot scale to zero: got 0"),
        ({"min_instances": 3, "max_instances": 2}, InstanceCountError, "max_instances is below min_instances: got 2; allowed: 3 or more"),
        ({"endpoint_name": "A-Name"}, EndpointNameError, "got 'A-Name'"),
        ({"endpoint_name": "a" * 64}, EndpointNameError, "1 to 63 lower-case"),
        ({"endpoint_name": "a-"}, EndpointNameError, "got 'a-'"),
        ({"instance_type": "m5.xlarge"}, ConfigurationError, "Not an instance type: got 'm5.xlarge'"),
        ({"instance_type": "ml.t2.large"}, AutoScalingError, "Burstable types cannot be auto scaled: got 'ml.t2.large'"),
    ],
)
def test_rejects_what_is_known_to_fail(stack, props, error, text):
    with pytest.raises(error) as caught:
        _endpoint(stack, **props)
    assert text in str(caught.value)


def test_rejects_a_key_on_instances_with_local_storage(stack):
    with pytest.raises(EncryptionError, match=r"local NVMe storage.*got 'ml\.g5\.xlarge'"):
        _endpoint(stack, instance_type="ml.g5.xlarge", encryption_key=kms.Key(stack, "Key"))


def test_burstable_instances_of_a_fixed_size_pass(synthesize_stack):
    synthesized = synthesize_stack(lambda stack: _endpoint(stack, instance_type="ml.t2.large", max_instances=2))
    assert not synthesized.resources("AWS::ApplicationAutoScaling::ScalingPolicy")


def test_checks_leave_tokens_alone(synthesize_stack):
    def build(stack):
        _endpoint(
            stack,
            endpoint_name=cdk.CfnParameter(stack, "Name").value_as_string,
            instance_type=cdk.CfnParameter(stack, "Type").value_as_string,
        )

    synthesized = synthesize_stack(build)
    assert synthesized.only("AWS::SageMaker::Endpoint")["Properties"]["EndpointName"] == {"Ref": "Name"}


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"invocations_per_instance_per_minute": 0}, "more than 0"),
        ({"scale_in_cooldown_seconds": -1}, "scale_in_cooldown_seconds is out of range: got -1"),
        ({"scale_out_cooldown_seconds": 3601}, "0 to 3,600 seconds"),
    ],
)
def test_rejects_scaling_that_cannot_work(settings, text):
    with pytest.raises(AutoScalingError) as caught:
        InvocationScaling(**settings)
    assert text in str(caught.value)


def test_one_tenant_is_granted_by_a_pattern_that_ends_its_literal_part_with_a_slash(synthesize_stack):
    synthesized = synthesize_stack(lambda stack: _endpoint(stack).grant_invoke_tenant(_role_grant(stack), "acme"))
    (policy,) = [item for name, item in synthesized.resources("AWS::IAM::Policy").items() if name.startswith("Caller")]
    (statement,) = policy["Properties"]["PolicyDocument"]["Statement"]
    assert statement["Action"] == "sagemaker:InvokeEndpoint"
    assert statement["Condition"] == {"StringLike": {"sagemaker:TargetModel": ["acme/*"]}}


@pytest.mark.parametrize("tenant", ["Acme", "acme/*", "*", "", "../acme", "acme*"])
def test_rejects_a_tenant_outside_the_grammar(stack, tenant):
    endpoint = _endpoint(stack)
    with pytest.raises(TenantError, match="The tenant cannot be granted"):
        endpoint.grant_invoke_tenant(_role_grant(stack), tenant)


def test_granting_everything_names_the_one_endpoint(synthesize_stack):
    def build(stack):
        MultiModelEndpoint.from_endpoint_attributes(stack, "There", endpoint_name="elsewhere").grant_invoke(_role_grant(stack))

    synthesized = synthesize_stack(build, env=cdk.Environment(account="111122223333", region="eu-central-1"))
    (statement,) = synthesized.only("AWS::IAM::Policy")["Properties"]["PolicyDocument"]["Statement"]
    assert statement["Resource"] == "arn:aws:sagemaker:eu-central-1:111122223333:endpoint/elsewhere"
    assert "Condition" not in statement


@pytest.mark.parametrize("name", sorted(ENDPOINT_METRICS))
def test_every_metric_of_the_catalogue_is_offered_with_its_official_name(stack, name):
    endpoint = MultiModelEndpoint.from_endpoint_attributes(stack, "There", endpoint_name="elsewhere")
    metric = endpoint.metric(name)
    assert (metric.namespace, metric.metric_name) == (ENDPOINT_METRICS[name].namespace, name)
    assert metric.dimensions == {"EndpointName": "elsewhere", "VariantName": "AllTraffic"}
    assert metric.statistic == ENDPOINT_METRICS[name].statistics[0]


@pytest.mark.parametrize(
    ("method", "name", "statistic"),
    [
        ("metric_invocations", "Invocations", "Sum"),
        ("metric_invocations_per_instance", "InvocationsPerInstance", "Sum"),
        ("metric_invocation_4xx_errors", "Invocation4XXErrors", "Sum"),
        ("metric_invocation_5xx_errors", "Invocation5XXErrors", "Sum"),
        ("metric_model_latency", "ModelLatency", "p99"),
        ("metric_model_cache_hit", "ModelCacheHit", "Average"),
        ("metric_model_loading_wait_time", "ModelLoadingWaitTime", "Maximum"),
        ("metric_model_unloads", "ModelUnloadingTime", "SampleCount"),
        ("metric_loaded_model_count", "LoadedModelCount", "Average"),
        ("metric_cpu_utilization", "CPUUtilization", "Average"),
        ("metric_memory_utilization", "MemoryUtilization", "Average"),
        ("metric_disk_utilization", "DiskUtilization", "Average"),
        ("metric_invocation_model_errors", "InvocationModelErrors", "Sum"),
        ("metric_overhead_latency", "OverheadLatency", "Average"),
        ("metric_model_downloading_time", "ModelDownloadingTime", "Average"),
        ("metric_model_loading_time", "ModelLoadingTime", "Average"),
        ("metric_gpu_utilization", "GPUUtilization", "Average"),
        ("metric_gpu_memory_utilization", "GPUMemoryUtilization", "Average"),
    ],
)
def test_named_metrics_carry_name_and_statistic(stack, method, name, statistic):
    metric = getattr(MultiModelEndpoint.from_endpoint_attributes(stack, "There", endpoint_name="elsewhere"), method)()
    assert (metric.metric_name, metric.statistic) == (name, statistic)


@pytest.mark.parametrize(
    ("name", "options", "text"),
    [
        ("CacheHits", {}, "publish no such metric: got 'CacheHits'"),
        ("ModelCacheHit", {"statistic": "p99"}, "got 'p99'; allowed: Average, Sum, SampleCount"),
        ("ModelLatency", {"statistic": "pfoo"}, "percentiles"),
        ("Invocations", {"period_minutes": 0}, "whole minutes from 1"),
    ],
)
def test_rejects_metrics_that_the_service_does_not_publish(stack, name, options, text):
    endpoint = MultiModelEndpoint.from_endpoint_attributes(stack, "There", endpoint_name="elsewhere")
    with pytest.raises(MetricError) as caught:
        endpoint.metric(name, **options)
    assert text in str(caught.value)
