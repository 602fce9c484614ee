"""What tenants see: the API, admission of their models, their access."""

from __future__ import annotations

from collections.abc import Sequence

import aws_cdk as cdk
from constructs import Construct

from mme_constructs import (
    FunctionSettings,
    LogSettings,
    ModelAdmission,
    ModelArtifactStore,
    ModelPool,
    PlatformAdmin,
    TenantAccess,
    TenantApi,
    TenantRegistry,
)
from mme_constructs.acknowledge import acknowledge
from stacks.decisions import INLINE_POLICIES, NO_FIREWALL
from stacks.lifetime import Lifetime

__all__ = ["TenancyStack"]


class TenancyStack(cdk.Stack):
    """API, admission, the tenants' role and the platform administrator's.

    The functions reserve their concurrency, so that neither a wave of uploads nor one busy tenant can take the account's other functions
    down. Together 220 executions: the account's quota must be at least 320 (new accounts start with 10 and get 1,000 on request).
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002 - CDK's name for it
        *,
        store: ModelArtifactStore,
        registry: TenantRegistry,
        pools: Sequence[ModelPool],
        lifetime: Lifetime,
        env: cdk.Environment | None = None,
    ) -> None:
        super().__init__(scope, id, env=env, description="mme-constructs: tenant API, admission, access")
        log_settings = LogSettings(removal_policy=lifetime.removal_policy)
        api = TenantApi(
            self,
            "Api",
            store=store,
            registry=registry,
            pools=pools,
            onboarding_settings=FunctionSettings(reserved_concurrency=50),
            invocation_settings=FunctionSettings(reserved_concurrency=150),
            log_settings=log_settings,
            account_logging=True,
            account_logging_removal_policy=lifetime.removal_policy,
        )
        ModelAdmission(
            self,
            "Admission",
            store=store,
            registry=registry,
            pools=pools,
            settings=FunctionSettings(memory_mb=1769, timeout_seconds=900, reserved_concurrency=20),
            log_settings=log_settings,
        )
        admin = PlatformAdmin(self, "PlatformAdmin", api=api)
        access = TenantAccess(self, "TenantAccess", api=api, trusted=[admin.role])
        admin.allow_tenant_sessions(access)
        cdk.CfnOutput(self, "ApiUrl", value=api.url, description="Tenant API")
        cdk.CfnOutput(self, "TenantAccessRoleArn", value=access.role.role_arn, description="Role of tenants' sessions")
        cdk.CfnOutput(self, "PlatformAdminRoleArn", value=admin.role.role_arn, description="Role of the platform's administrators")
        acknowledge(
            self,
            {
                **INLINE_POLICIES,
                "AwsSolutions-APIG3": NO_FIREWALL,
                "NIST.800.53.R5-APIGWAssociatedWithWAF": NO_FIREWALL,
                "NIST.800.53.R5-CloudWatchLogGroupEncrypted": "Encrypted with a key of AWS; logs hold ids and timings, no payloads.",
                "NIST.800.53.R5-LambdaInsideVPC": "The functions call AWS APIs with their roles; nothing they need is in a VPC.",
            },
        )
