"""A pool that grows under load, what collects its heat and what warms it."""

import os

import aws_cdk as cdk
from aws_cdk import aws_logs as logs

from mme_constructs import (
    HeatCollector,
    HeatSettings,
    InvocationScaling,
    ModelArtifactStore,
    ModelPool,
    MultiModelContainer,
    MultiModelEndpoint,
    TenantRegistry,
    WarmUp,
    WarmUpSettings,
)

app = cdk.App()
account, region = os.environ["CDK_DEFAULT_ACCOUNT"], os.environ["CDK_DEFAULT_REGION"]
stack = cdk.Stack(app, "Growing", env=cdk.Environment(account=account, region=region))
lines = logs.LogGroup(stack, "LinesOfUsers", retention=logs.RetentionDays.ONE_DAY, removal_policy=cdk.RemovalPolicy.DESTROY)
store, registry = ModelArtifactStore(stack, "Store"), TenantRegistry(stack, "Registry")
endpoint = MultiModelEndpoint(
    stack,
    "Endpoint",
    store=store,
    container=MultiModelContainer.from_image_uri(f"{account}.dkr.ecr.{region}.amazonaws.com/slow-loading:1", framework="xgboost"),
    instance_type="ml.m5.xlarge",
    min_instances=2,
    max_instances=3,
    scaling=InvocationScaling(invocations_per_instance_per_minute=float(app.node.get_context("target"))),
)
pools = [ModelPool(framework="xgboost", endpoint=endpoint)]
HeatCollector(stack, "Heat", log_group=lines, store=store, pools=pools, settings=HeatSettings(window_minutes=1, delay_seconds=40))
warm_up = WarmUp(
    stack,
    "WarmUp",
    store=store,
    registry=registry,
    pools=pools,
    settings=WarmUpSettings(memory_bytes=int(app.node.get_context("memory")), load_slots=int(app.node.get_context("slots"))),
)
for name, value in {
    "BucketName": store.bucket.bucket_name,
    "EndpointName": endpoint.endpoint_name,
    "Lines": lines.log_group_name,
    "TableName": registry.table.table_name,
    "WarmUpLogGroup": warm_up.log_group.log_group_name,
}.items():
    cdk.CfnOutput(stack, name, value=value)
app.synth()
