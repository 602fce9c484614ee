"""What a tenant's session may do: its own paths of the API, nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from constructs import Construct

from mme_constructs.acknowledge import acknowledge_wildcards
from mme_constructs.errors import TrustError
from mme_facts.grammar import tenant_pattern

if TYPE_CHECKING:
    from mme_constructs.tenant_api import TenantApi

__all__ = ["TENANT_TAG", "TenantAccess"]

TENANT_TAG = "tenant"
"""The session tag that says whose session it is."""

_TENANT = f"${{aws:PrincipalTag/{TENANT_TAG}}}"


class TenantAccess(Construct):
    """One role for all tenants: a session of it reaches only the paths of the tenant in its session tag.

    API Gateway passes no session tags to a function, so the policy confines the tenant, not the code: ``execute-api:Invoke`` on
    ``/tenants/${aws:PrincipalTag/tenant}`` and below. The methods are spelled out, because a wildcard there also matches slashes:
    ``*/tenants/versions/*`` would match ``GET/tenants/other/models/tenants/versions/v1-...``.

    Args:
        scope: the parent.
        id: the id below the parent.
        api: the API.
        trusted: who may open sessions: named principals, which must set the tag (and no other) on the session.
        max_session_seconds: 3,600 to 43,200. Default 3,600, also the limit when one role assumes another.

    Raises:
        TrustError: ``trusted`` is empty, or holds anybody.

    Sources: AWS IAM, Pass session tags in AWS STS; Amazon API Gateway, Control access for invoking an API; Amazon SageMaker AI,
    Multi-Model Endpoint Security.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002 - CDK's name for it
        *,
        api: TenantApi,
        trusted: Sequence[iam.IPrincipal],
        max_session_seconds: int = 3600,
    ) -> None:
        _check_trusted(trusted)
        super().__init__(scope, id)
        conditions = {
            "StringLike": {f"aws:RequestTag/{TENANT_TAG}": "?*"},
            "ForAllValues:StringEquals": {"aws:TagKeys": [TENANT_TAG]},
        }
        self.role = iam.Role(
            self,
            "Role",
            assumed_by=iam.CompositePrincipal(*(iam.SessionTagsPrincipal(principal).with_conditions(conditions) for principal in trusted)),
            description="A tenant's session: only the paths of the tenant in the session tag.",
            max_session_duration=cdk.Duration.seconds(max_session_seconds),
        )
        """The role. Assume it with the session tag ``tenant``."""
        self.role.add_to_policy(
            iam.PolicyStatement(
                actions=["execute-api:Invoke"],
                resources=[
                    api.arn_for("GET", f"/tenants/{_TENANT}"),
                    api.arn_for("GET", f"/tenants/{tenant_pattern(_TENANT)}"),
                    api.arn_for("POST", f"/tenants/{tenant_pattern(_TENANT)}"),
                ],
            )
        )
        own = f"/tenants/<aws:PrincipalTag/{TENANT_TAG}>/*"
        acknowledge_wildcards(self.role, {own: "Every path below the tenant's own; the part before the wildcard ends in a slash."})


def _check_trusted(trusted: Sequence[iam.IPrincipal]) -> None:
    allowed = "named principals, such as a role or iam.ArnPrincipal"
    if not trusted:
        raise TrustError("Nobody could open a tenant's session", value=[], allowed=allowed, fix="Pass the role that signs tenants in")
    for principal in trusted:
        if isinstance(principal, iam.StarPrincipal | iam.AnyPrincipal):
            raise TrustError(
                "Anybody could open a tenant's session", value=type(principal).__name__, allowed=allowed, fix="Name the principals"
            )
