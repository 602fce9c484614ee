"""Everything that can be made anew: endpoints, API, functions, roles."""

from __future__ import annotations

import aws_cdk as cdk
from constructs import Construct

from mme_constructs import (
    DedicatedSettings,
    FunctionSettings,
    LogSettings,
    ModelArtifactStore,
    MultiTenantInference,
    PlatformFunctions,
    TenantRegistry,
)
from mme_constructs.acknowledge import acknowledge
from stacks.lifetime import Lifetime

__all__ = ["PlatformStack"]


class PlatformStack(cdk.Stack):
    """The platform over the storage stack's bucket and table.

    The functions reserve their concurrency, so that neither a wave of uploads nor one busy tenant can take the account's other functions
    down. Together 223 executions: the account's quota must be at least 323 (new accounts start with 10 and get 1,000 on request).
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002 - CDK's name for it
        *,
        store: ModelArtifactStore,
        registry: TenantRegistry,
        lifetime: Lifetime,
        env: cdk.Environment | None = None,
    ) -> None:
        super().__init__(scope, id, env=env, description="mme-constructs: endpoints, tenant API, admission, access")
        platform = MultiTenantInference(
            self,
            "Platform",
            store=store,
            registry=registry,
            functions=PlatformFunctions(
                onboarding=FunctionSettings(reserved_concurrency=50),
                invocation=FunctionSettings(reserved_concurrency=150),
                admission=FunctionSettings(memory_mb=1769, timeout_seconds=900, reserved_concurrency=15),
                fleet_watch=FunctionSettings(memory_mb=256, timeout_seconds=30, reserved_concurrency=3),
                sweeper=FunctionSettings(memory_mb=512, timeout_seconds=240, reserved_concurrency=1),
                heat=FunctionSettings(memory_mb=512, timeout_seconds=300, reserved_concurrency=1),
                warm_up=FunctionSettings(memory_mb=1769, timeout_seconds=300, reserved_concurrency=3),
            ),
            # It would cost an instance while nothing places models there.
            dedicated=DedicatedSettings(enabled=False),
            log_settings=LogSettings(removal_policy=lifetime.removal_policy),
            account_logging=self.node.try_get_context("account_logging") != "false",
        )
        (pool,), (monitoring,) = platform.pools, platform.monitoring
        cdk.CfnOutput(self, "AlarmTopicArn", value=monitoring.topic.topic_arn, description="Subscribe the people on call to it")
        cdk.CfnOutput(self, "EndpointName", value=pool.endpoint.endpoint_name, description="Shared multi-model endpoint")
        cdk.CfnOutput(self, "ApiUrl", value=platform.api.url, description="Tenant API")
        cdk.CfnOutput(self, "InvocationLogGroup", value=platform.api.invocation.log_group.log_group_name, description="One line a request")
        if platform.warm_up is not None:
            cdk.CfnOutput(
                self, "WarmUpFunction", value=platform.warm_up.function.function_name, description="Warms the pools; see mme warm-up"
            )
        cdk.CfnOutput(self, "TenantAccessRoleArn", value=platform.tenant_access.role.role_arn, description="Role of tenants' sessions")
        cdk.CfnOutput(self, "PlatformAdminRoleArn", value=platform.admin.role.role_arn, description="Role of the platform's administrators")
        acknowledge(self, _DECISIONS)


_ANONYMOUS = "No anonymous caller reaches a function: every method demands a signature, and the stage throttles."
_DECISIONS = {
    "AwsSolutions-APIG3": _ANONYMOUS,
    "NIST.800.53.R5-APIGWAssociatedWithWAF": _ANONYMOUS,
    "NIST.800.53.R5-CloudWatchLogGroupEncrypted": "CloudWatch Logs encrypts with a key of AWS; logs hold ids and timings, no payloads.",
    "NIST.800.53.R5-IAMNoInlinePolicy": "Each policy belongs to one role and ends with it; a managed policy could be attached elsewhere.",
    "NIST.800.53.R5-LambdaInsideVPC": "The functions call AWS APIs only; the private variant puts them into a VPC.",
    "NIST.800.53.R5-SageMakerEndpointConfigurationKMSKeyConfigured": (
        "Volumes hold copies of artifacts, encrypted with a key of AWS; pass encryption_key where a customer-managed key is demanded."
    ),
}
"""What this stack decides, and why a finding is right as it is."""
