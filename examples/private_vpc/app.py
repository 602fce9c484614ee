"""The platform without a way to the internet: a VPC of its own, VPC endpoints, functions and endpoint inside it, a private API."""

import aws_cdk as cdk
from aws_cdk import aws_s3 as s3
from decisions import DECISIONS

from mme_constructs import (
    EndpointNetwork,
    ModelArtifactStore,
    ModelPool,
    MultiModelContainer,
    MultiModelEndpoint,
    PrivateAccess,
    TenantApi,
    TenantRegistry,
)
from mme_constructs.acknowledge import acknowledge

app = cdk.App()
stack = cdk.Stack(app, "PrivateMme")
logs = s3.Bucket(stack, "AccessLogs", enforce_ssl=True, block_public_access=s3.BlockPublicAccess.BLOCK_ALL)
store = ModelArtifactStore(stack, "Store", access_logs_bucket=logs)
registry = TenantRegistry(stack, "Registry")
access = PrivateAccess(stack, "Access", store=store, registry=registry)
access.vpc.add_flow_log("FlowLog")
endpoint = MultiModelEndpoint(
    stack,
    "Endpoint",
    store=store,
    container=MultiModelContainer.from_framework("xgboost", version="1.7-1"),
    network=EndpointNetwork(vpc=access.vpc, subnets=access.subnet_selection, security_groups=[access.clients]),
)
endpoint.node.add_dependency(access.downloads)
access.allow_invoke(endpoint)
TenantApi(
    stack,
    "Api",
    store=store,
    registry=registry,
    pools=[ModelPool(framework="xgboost", endpoint=endpoint)],
    onboarding_settings=access.function_settings(),
    invocation_settings=access.function_settings(),
    private_endpoint=access.execute_api,
)
acknowledge(stack, DECISIONS)
app.synth()
