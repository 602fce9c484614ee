"""The tenants' API alone, with a usage plan for each tier; small enough to be run into."""

import os

import aws_cdk as cdk

from mme_constructs import (
    ModelArtifactStore,
    ModelPool,
    MultiModelEndpoint,
    PlatformAdmin,
    RateLimits,
    TenantAccess,
    TenantApi,
    TenantRegistry,
)

app = cdk.App()
env = cdk.Environment(account=os.environ["CDK_DEFAULT_ACCOUNT"], region=os.environ["CDK_DEFAULT_REGION"])
stack = cdk.Stack(app, "WithUsagePlans", env=env)
shared = MultiModelEndpoint.from_endpoint_attributes(stack, "Shared", endpoint_name="shared")
api = TenantApi(
    stack,
    "Api",
    store=ModelArtifactStore(stack, "Store"),
    registry=TenantRegistry(stack, "Registry"),
    pools=[ModelPool(framework="xgboost", endpoint=shared)],
    usage_plans={
        "standard": RateLimits(requests_per_second=0.001, burst=3),
        "trusted": RateLimits(requests_per_second=1000, burst=1000, quota=5, period="day"),
    },
)
admin = PlatformAdmin(stack, "Admin", api=api)
access = TenantAccess(stack, "Access", api=api, trusted=[admin.role])
admin.allow_tenant_sessions(access)
cdk.CfnOutput(stack, "Url", value=api.url)
cdk.CfnOutput(stack, "AdminRole", value=admin.role.role_arn)
cdk.CfnOutput(stack, "AccessRole", value=access.role.role_arn)
app.synth()
