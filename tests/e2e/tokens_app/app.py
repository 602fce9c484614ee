"""Two deployments whose callers come with tokens: the platform with a user pool, and the API alone with a Lambda authorizer."""

import os
from pathlib import Path

import aws_cdk as cdk
from aws_cdk import aws_cognito as cognito
from aws_cdk import aws_lambda as lambda_

from mme_constructs import (
    CognitoAuthorizer,
    DedicatedSettings,
    LambdaAuthorizer,
    ModelArtifactStore,
    ModelPool,
    MultiModelContainer,
    MultiModelEndpoint,
    MultiTenantInference,
    PlatformMonitoring,
    PoolSettings,
    TenantApi,
    TenantRegistry,
)

GOES = cdk.RemovalPolicy.DESTROY


def with_user_pool(stack: cdk.Stack) -> None:
    users = cognito.UserPool(stack, "Users", custom_attributes={"tenant": cognito.StringAttribute()}, removal_policy=GOES)
    users.add_group("Admins", group_name="platform-admin")
    writable = cognito.ClientAttributes().with_standard_attributes(email=True)
    client = users.add_client("App", auth_flows=cognito.AuthFlow(user_password=True), write_attributes=writable)
    other = users.add_client("Other", auth_flows=cognito.AuthFlow(user_password=True), write_attributes=writable)
    xgboost = MultiModelContainer.from_framework("xgboost", version="1.7-1")
    platform = MultiTenantInference(
        stack,
        "Platform",
        pools=[PoolSettings(container=xgboost, min_instances=1, max_instances=1)],
        dedicated=DedicatedSettings(enabled=False),
        monitoring=PlatformMonitoring(enabled=False),
        authorizer=CognitoAuthorizer(user_pools=[users], clients=[client]),
    )
    cdk.CfnOutput(stack, "CognitoUrl", value=platform.api.url)
    cdk.CfnOutput(stack, "UserPoolId", value=users.user_pool_id)
    cdk.CfnOutput(stack, "ClientId", value=client.user_pool_client_id)
    cdk.CfnOutput(stack, "OtherClientId", value=other.user_pool_client_id)


def with_lambda(stack: cdk.Stack) -> None:
    function = lambda_.Function(
        stack,
        "WhoCalls",
        runtime=lambda_.Runtime.PYTHON_3_13,
        handler="index.handler",
        code=lambda_.Code.from_asset(str(Path(__file__).parent / "who_calls")),
        environment={"SECRET": stack.node.get_context("secret")},
    )
    shared = MultiModelEndpoint.from_endpoint_attributes(stack, "Shared", endpoint_name="shared")
    api = TenantApi(
        stack,
        "Api",
        store=ModelArtifactStore(stack, "Store"),
        registry=TenantRegistry(stack, "Registry"),
        pools=[ModelPool(framework="xgboost", endpoint=shared)],
        authorizer=LambdaAuthorizer(function=function, cache_seconds=60),
    )
    cdk.CfnOutput(stack, "LambdaUrl", value=api.url)


app = cdk.App()
env = cdk.Environment(account=os.environ["CDK_DEFAULT_ACCOUNT"], region=os.environ["CDK_DEFAULT_REGION"])
with_user_pool(cdk.Stack(app, "WithUserPool", env=env))
with_lambda(cdk.Stack(app, "WithLambda", env=env))
app.synth()
