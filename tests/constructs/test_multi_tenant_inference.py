"""The platform in one construct: good defaults, each part replaceable."""

from __future__ import annotations

import aws_cdk as cdk
import pytest
from aws_cdk import aws_sns as sns
from aws_cdk.assertions import Match, Template

from mme_constructs import (
    CanaryDeployment,
    DedicatedSettings,
    InferenceComponentEndpoint,
    MmeMonitoring,
    ModelArtifactStore,
    ModelPool,
    MultiModelContainer,
    MultiModelEndpoint,
    MultiTenantInference,
    PlatformMonitoring,
    PoolSettings,
    PrivateAccess,
    TenantRegistry,
)
from mme_constructs.errors import NetworkError, PoolError

ENV = cdk.Environment(account="123456789012", region="eu-central-1")


@pytest.fixture
def stack(flags):
    return cdk.Stack(cdk.App(context=flags), "Stack", env=ENV)


def test_without_arguments_it_is_a_whole_platform(stack):
    platform = MultiTenantInference(stack, "Platform")
    template = Template.from_stack(stack)
    template.resource_count_is("AWS::S3::Bucket", 1)
    template.resource_count_is("AWS::DynamoDB::Table", 1)
    template.resource_count_is("AWS::Lambda::Function", 7)
    template.resource_count_is("AWS::ApiGateway::RestApi", 1)
    template.resource_count_is("AWS::CloudWatch::CompositeAlarm", 1)
    template.resource_count_is("AWS::CloudWatch::Dashboard", 1)
    assert [pool.framework for pool in platform.pools] == ["xgboost"]


def test_every_asynchronous_invocation_has_a_queue_for_what_fails_for_good_and_every_queue_an_alarm(stack):
    MultiTenantInference(stack, "Platform")
    template = Template.from_stack(stack).to_json()["Resources"]

    def of_type(resource_type):
        return {name: resource["Properties"] for name, resource in template.items() if resource["Type"] == resource_type}

    called = [target for rule in of_type("AWS::Events::Rule").values() for target in rule["Targets"]]
    assert len(called) == 6
    queues = set()
    for target in called:
        function = of_type("AWS::Lambda::Function")[target["Arn"]["Fn::GetAtt"][0]]
        assert target["DeadLetterConfig"]["Arn"] == function["DeadLetterConfig"]["TargetArn"]
        queues.add(target["DeadLetterConfig"]["Arn"]["Fn::GetAtt"][0])
    (own,) = of_type("AWS::Lambda::EventInvokeConfig").values()
    queues.add(of_type("AWS::Lambda::Function")[own["FunctionName"]["Ref"]]["DeadLetterConfig"]["TargetArn"]["Fn::GetAtt"][0])
    assert queues == set(of_type("AWS::SQS::Queue"))
    watched = [
        dimension["Value"]["Fn::GetAtt"][0]
        for alarm in of_type("AWS::CloudWatch::Alarm").values()
        for dimension in alarm.get("Dimensions", [])
        if dimension["Name"] == "QueueName"
    ]
    assert sorted(watched) == sorted(queues)


def test_given_parts_are_used_and_not_made_again(stack):
    store, registry = ModelArtifactStore(stack, "Store"), TenantRegistry(stack, "Registry")
    container = MultiModelContainer.from_framework("xgboost", version="1.7-1")
    endpoint = MultiModelEndpoint(stack, "Endpoint", store=store, container=container)
    pool = ModelPool(framework="xgboost", endpoint=endpoint)
    topic = sns.Topic(stack, "Topic")
    dedicated = InferenceComponentEndpoint(stack, "Dedicated", store=store)
    platform = MultiTenantInference(
        stack,
        "Platform",
        store=store,
        registry=registry,
        pools=[pool],
        dedicated=dedicated,
        monitoring=PlatformMonitoring(topic=topic),
    )
    template = Template.from_stack(stack)
    for resource_type in ("AWS::S3::Bucket", "AWS::DynamoDB::Table", "AWS::SageMaker::Model", "AWS::SNS::Topic"):
        template.resource_count_is(resource_type, 1)
    template.resource_count_is("AWS::SageMaker::Endpoint", 2)
    assert platform.pools == (pool,)
    assert platform.dedicated is dedicated


def test_the_dedicated_endpoint_costs_nothing_while_no_model_is_dedicated_and_may_be_left_out(stack):
    platform = MultiTenantInference(stack, "Platform", dedicated=DedicatedSettings(enabled=False))
    assert platform.dedicated is None
    MultiTenantInference(stack, "Another")
    Template.from_stack(stack).has_resource_properties(
        "AWS::SageMaker::EndpointConfig",
        {
            "ProductionVariants": [
                Match.object_like({"ManagedInstanceScaling": {"Status": "ENABLED", "MinInstanceCount": 0, "MaxInstanceCount": 4}})
            ]
        },
    )


def test_tenants_sessions_reach_the_services_behind_the_api_only_when_asked(flags):
    def tenants_actions(**options):
        stack = cdk.Stack(cdk.App(context=flags), "Stack", env=ENV)
        role = MultiTenantInference(stack, "Platform", **options).tenant_access.role
        policies = Template.from_stack(stack).find_resources(
            "AWS::IAM::Policy", {"Properties": {"Roles": [{"Ref": stack.get_logical_id(role.node.default_child)}]}}
        )
        statements = [statement for policy in policies.values() for statement in policy["Properties"]["PolicyDocument"]["Statement"]]
        actions = [statement["Action"] for statement in statements]
        return {action for item in actions for action in ([item] if isinstance(item, str) else item)}

    assert tenants_actions() == {"execute-api:Invoke"}
    assert tenants_actions(direct_access=True) >= {"execute-api:Invoke", "s3:PutObject", "sagemaker:InvokeEndpoint"}


def test_every_pool_has_an_endpoint_and_alarms_that_notify_one_topic(stack):
    pools = [
        PoolSettings(container=MultiModelContainer.from_framework("xgboost", version="1.7-1")),
        PoolSettings(
            container=MultiModelContainer.from_framework("sklearn", version="1.2-1"), instance_type="ml.c5.xlarge", min_instances=3
        ),
    ]
    platform = MultiTenantInference(stack, "Platform", pools=pools)
    template = Template.from_stack(stack)
    template.resource_count_is("AWS::SageMaker::Model", 2)
    template.resource_count_is("AWS::CloudWatch::CompositeAlarm", 2)
    template.resource_count_is("AWS::SNS::Topic", 1)
    template.has_resource_properties(
        "AWS::SageMaker::EndpointConfig",
        {"ProductionVariants": [Match.object_like({"InstanceType": "ml.c5.xlarge", "InitialInstanceCount": 3})]},
    )
    assert len(platform.monitoring) == 2


def test_without_monitoring_there_is_no_alarm(stack):
    platform = MultiTenantInference(stack, "Platform", monitoring=PlatformMonitoring(enabled=False))
    template = Template.from_stack(stack)
    for resource_type in ("AWS::CloudWatch::Alarm", "AWS::SNS::Topic", "AWS::KMS::Key"):
        template.resource_count_is(resource_type, 0)
    assert platform.monitoring == ()


def test_with_private_access_functions_pools_and_api_are_in_the_vpc(stack):
    store, registry = ModelArtifactStore(stack, "Store"), TenantRegistry(stack, "Registry")
    access = PrivateAccess(stack, "Access", store=store, registry=registry)
    MultiTenantInference(stack, "Platform", store=store, registry=registry, private_access=access)
    template = Template.from_stack(stack)
    template.all_resources_properties("AWS::Lambda::Function", {"VpcConfig": Match.any_value()})
    template.all_resources_properties("AWS::SageMaker::Model", {"VpcConfig": Match.any_value()})
    template.has_resource_properties("AWS::ApiGateway::RestApi", {"EndpointConfiguration": Match.object_like({"Types": ["PRIVATE"]})})


def test_a_container_that_does_not_tell_its_framework_needs_one_named(stack):
    container = MultiModelContainer.from_image_uri("123456789012.dkr.ecr.eu-central-1.amazonaws.com/own:1")
    with pytest.raises(PoolError, match="does not tell its framework"):
        MultiTenantInference(stack, "Platform", pools=[PoolSettings(container=container)])
    platform = MultiTenantInference(stack, "Named", pools=[PoolSettings(container=container, framework="own")])
    assert platform.pools[0].name == "own"


def test_two_pools_of_one_framework_are_refused(stack):
    pool = PoolSettings(container=MultiModelContainer.from_framework("xgboost", version="1.7-1"))
    with pytest.raises(PoolError, match="share a"):
        MultiTenantInference(stack, "Platform", pools=[pool, PoolSettings(container=pool.container, name="other")])


def test_a_private_network_for_another_store_is_refused(stack):
    access = PrivateAccess(stack, "Access", store=ModelArtifactStore(stack, "Store"))
    with pytest.raises(NetworkError, match="another bucket or table"):
        MultiTenantInference(stack, "Platform", private_access=access)


def test_a_private_network_without_an_api_endpoint_of_its_own_is_refused_instead_of_a_public_api(stack):
    store, registry = ModelArtifactStore(stack, "Store"), TenantRegistry(stack, "Registry")
    access = PrivateAccess(stack, "Access", store=store, registry=registry, already_there=["execute-api"])
    with pytest.raises(NetworkError, match="would be public"):
        MultiTenantInference(stack, "Platform", store=store, registry=registry, private_access=access)


def test_a_failing_or_throttled_api_function_is_alarmed_on_and_an_alarm_may_be_left_out(stack):
    platform = MultiTenantInference(stack, "Platform", monitoring=PlatformMonitoring(overrides={"cpu-low": None}))
    alarms = set(platform.monitoring[0].alarms)
    assert {"function-errors-onboarding", "function-errors-invocation"} <= alarms
    assert sum(name.startswith("function-throttles") for name in alarms) == 3
    assert "cpu-low" not in alarms


def test_an_alarm_of_the_monitoring_may_roll_an_update_back_without_a_circle(stack):
    store = ModelArtifactStore(stack, "Store")
    container = MultiModelContainer.from_framework("xgboost", version="1.7-1")
    endpoint = MultiModelEndpoint(stack, "Endpoint", store=store, container=container, deployment=CanaryDeployment())
    endpoint.add_rollback_alarms(MmeMonitoring(stack, "Monitoring", endpoint=endpoint).alarms["server-errors"])
    Template.from_stack(stack)  # raises where resources depend on each other in a circle
