"""What a function may invoke: nothing by itself, only as the tenant of the request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from aws_cdk import aws_iam as iam
from constructs import Construct

from mme_constructs.tenant_rights import allow_components, allow_models, opener
from mme_facts.grammar import TENANT_TAG

if TYPE_CHECKING:
    from mme_constructs.endpoint_interface import IMultiModelEndpoint
    from mme_constructs.tenant_function import TenantFunction
    from mme_constructs.tenant_rights import DedicatedEndpoint

__all__ = ["TenantIsolation"]


class TenantIsolation(Construct):
    """A role that a function assumes anew for each tenant; a session of it reaches that tenant's models only.

    The function's own role holds no right to invoke. It opens a session that carries the tenant as session tag, and the role's policy
    lets it invoke only below ``<tenant>/`` on shared endpoints, and only components whose tag names the tenant on dedicated ones. So
    even a routing mistake in the function's code cannot reach another tenant's model.

    Sessions last an hour, the limit when one role assumes another, and are kept by the function: STS is called once an hour for each tenant
    and container of the function.

    Args:
        scope: the parent.
        id: the id below the parent.
        function: what acts as tenants.
        endpoints: the shared endpoints.
        dedicated_endpoints: the endpoints of inference components. Default: none.

    Sources: AWS IAM, Pass session tags in AWS STS, and Roles terms and concepts (role chaining).
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002 - CDK's name for it
        *,
        function: TenantFunction,
        endpoints: Sequence[IMultiModelEndpoint],
        dedicated_endpoints: Sequence[DedicatedEndpoint] = (),
    ) -> None:
        super().__init__(scope, id)
        self.role = iam.Role(
            self,
            "Role",
            assumed_by=opener(function.role),
            description="What the invocation function may do for the tenant in its session tag: invoke that tenant's models.",
        )
        """The role. The function assumes it with the session tag ``tenant``."""
        allow_models(self.role, endpoints)
        allow_components(self.role, dedicated_endpoints)
        function.role.add_to_principal_policy(
            iam.PolicyStatement(
                actions=["sts:AssumeRole", "sts:TagSession"],
                resources=[self.role.role_arn],
                conditions={"StringLike": {f"aws:RequestTag/{TENANT_TAG}": "?*"}},
            )
        )
