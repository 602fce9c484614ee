"""The role that runs the platform: creates tenants, opens tenants' sessions, reaches every path."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import aws_iam as iam
from constructs import Construct

from mme_constructs.acknowledge import acknowledge_wildcards
from mme_constructs.trust import check_trusted

if TYPE_CHECKING:
    from mme_constructs.tenant_access import TenantAccess
    from mme_constructs.tenant_api import TenantApi

__all__ = ["PlatformAdmin"]


class PlatformAdmin(Construct):
    """A role that may call every path of the API and open a session for any tenant.

    An API with an authorizer takes no signatures: there, administrators are who the authorizer says, and this role only opens sessions.

    Args:
        scope: the parent.
        id: the id below the parent.
        api: the API.
        trusted: who may assume it. Default: the account, that is, principals of the account whose own policies allow it.

    Raises:
        TrustError: ``trusted`` is anybody.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002 - CDK's name for it
        *,
        api: TenantApi,
        trusted: iam.IPrincipal | None = None,
    ) -> None:
        if trusted is not None:
            check_trusted([trusted], doing="run the platform")
        super().__init__(scope, id)
        self.role = iam.Role(
            self,
            "Role",
            assumed_by=iam.AccountRootPrincipal() if trusted is None else trusted,
            description="Runs the platform: creates tenants, opens tenants' sessions, reaches every path of the API."
            if api.takes_signatures
            else "Opens tenants' sessions.",
        )
        """The role."""
        if not api.takes_signatures:
            return
        self.role.add_to_policy(iam.PolicyStatement(actions=["execute-api:Invoke"], resources=[api.arn_for("*", "/*")]))
        acknowledge_wildcards(self.role, {"/*/*": "The administrator of the platform reaches every method and path of this one API."})

    def allow_tenant_sessions(self, access: TenantAccess) -> None:
        """Let the role open tenants' sessions; ``access`` must name the role among its trusted principals."""
        self.role.add_to_policy(iam.PolicyStatement(actions=["sts:AssumeRole", "sts:TagSession"], resources=[access.role.role_arn]))
