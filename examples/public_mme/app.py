"""A multi-model endpoint with the tenants' API, in ten lines (beside what the stack decides about the rule packs' findings)."""

import aws_cdk as cdk
from decisions import DECISIONS

from mme_constructs import ModelArtifactStore, ModelPool, MultiModelContainer, MultiModelEndpoint, TenantApi, TenantRegistry
from mme_constructs.acknowledge import acknowledge

app = cdk.App()
stack = cdk.Stack(app, "PublicMme")
store, registry = ModelArtifactStore(stack, "Store"), TenantRegistry(stack, "Registry")
container = MultiModelContainer.from_framework("xgboost", version="1.7-1")
endpoint = MultiModelEndpoint(stack, "Endpoint", store=store, container=container)
TenantApi(stack, "Api", store=store, registry=registry, pools=[ModelPool(framework="xgboost", endpoint=endpoint)])
acknowledge(stack, DECISIONS)
app.synth()
