"""What a tenant's session may do: its own paths of the API, and where it is let in its own uploads, models and components."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from constructs import Construct

from mme_constructs.acknowledge import acknowledge_wildcards
from mme_constructs.errors import AuthorizerError
from mme_constructs.tenant_rights import TENANT, allow_components, allow_models, opener
from mme_constructs.trust import check_trusted
from mme_facts.grammar import TENANT_TAG, tenant_pattern

if TYPE_CHECKING:
    from mme_constructs.artifact_store import ModelArtifactStore
    from mme_constructs.endpoint_interface import IMultiModelEndpoint
    from mme_constructs.tenant_api import TenantApi
    from mme_constructs.tenant_registry import TenantRegistry
    from mme_constructs.tenant_rights import DedicatedEndpoint

__all__ = ["TenantAccess"]


class TenantAccess(Construct):
    """One role for all tenants: a session of it reaches only what belongs to the tenant in its session tag.

    API Gateway passes no session tags to a function, so the policy confines the tenant, not the code: ``execute-api:Invoke`` on
    ``/tenants/${aws:PrincipalTag/tenant}`` and below, and on the API's own description, ``/openapi.json``. The methods are spelled out,
    because a wildcard there also matches slashes: ``*/tenants/versions/*`` would match
    ``GET/tenants/other/models/tenants/versions/v1-...``. A tenant may delete its models and versions, but not itself;
    where the API asks for keys it may have its own shown and taken back.

    An API with an authorizer takes no signatures: with it, sessions open only what follows. Four more ways are open only where they are
    asked for, to tenants whose applications call AWS themselves:

    - ``registry``: reads of single records of the tenant's own, which `TenantClient` needs beside ``endpoints``.
    - ``store``: S3 uploads below ``incoming/<tenant>/``.
    - ``endpoints``: InvokeEndpoint on these shared endpoints with a TargetModel below ``<tenant>/``; a call without TargetModel is denied.
    - ``dedicated_endpoints``: InvokeEndpoint on these endpoints without TargetModel, for inference components whose resource tag ``tenant``
      equals the session's tag; those of others, and those without the tag, are denied in words. Names decide nothing: a pattern for the
      components of ``acme`` would match those of ``acme-evil``. It rests on SageMaker authorizing such a call for the endpoint and for the
      component, as the Service Authorization Reference lists them.

    Args:
        scope: the parent.
        id: the id below the parent.
        api: the API.
        trusted: who may open sessions: named principals, which must set the tag (and no other) on the session.
        max_session_seconds: 3,600 to 43,200. Default 3,600, also the limit when one role assumes another.
        registry: whose records of their own tenants may read without the API. Default: none.
        store: whose ``incoming/`` tenants may write without a presigned URL. Default: none.
        endpoints: shared endpoints that tenants may invoke without the API. Default: none.
        dedicated_endpoints: endpoints of inference components that tenants may invoke without the API. Default: none.

    Raises:
        TrustError: ``trusted`` is empty, or holds anybody.
        AuthorizerError: the API takes tokens and nothing else is open: sessions would be of no use.

    Sources: AWS IAM, Pass session tags in AWS STS; Amazon API Gateway, Control access for invoking an API; Amazon SageMaker AI,
    Multi-Model Endpoint Security; Service Authorization Reference: Amazon SageMaker.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002 - CDK's name for it
        *,
        api: TenantApi,
        trusted: Sequence[iam.IPrincipal],
        max_session_seconds: int = 3600,
        registry: TenantRegistry | None = None,
        store: ModelArtifactStore | None = None,
        endpoints: Sequence[IMultiModelEndpoint] = (),
        dedicated_endpoints: Sequence[DedicatedEndpoint] = (),
    ) -> None:
        check_trusted(trusted, doing="open a tenant's session")
        if not (api.takes_signatures or registry or store or endpoints or dedicated_endpoints):
            raise AuthorizerError(
                "The API takes tokens, so a tenant's session would open nothing",
                value=type(api.authorizer).__name__,
                allowed="an API with IAM authorization, or something else that sessions open",
                fix="Pass registry, store, endpoints or dedicated_endpoints, or leave TenantAccess out",
            )
        super().__init__(scope, id)
        self.role = iam.Role(
            self,
            "Role",
            assumed_by=iam.CompositePrincipal(*map(opener, trusted)),
            description="A tenant's session: only what belongs to the tenant in the session tag.",
            max_session_duration=cdk.Duration.seconds(max_session_seconds),
        )
        """The role. Assume it with the session tag ``tenant``."""
        if api.takes_signatures:
            self._allow_paths(api)
        if registry is not None:
            registry.grant_read_own_routes(self.role, TENANT)
        if store is not None:
            store.grant_put_incoming(self.role, tenant=TENANT)
        allow_models(self.role, endpoints)
        allow_components(self.role, dedicated_endpoints)

    def _allow_paths(self, api: TenantApi) -> None:
        self.role.add_to_policy(
            iam.PolicyStatement(
                actions=["execute-api:Invoke"],
                resources=[
                    api.arn_for("GET", "/openapi.json"),
                    api.arn_for("GET", f"/tenants/{TENANT}"),
                    api.arn_for("GET", f"/tenants/{tenant_pattern(TENANT)}"),
                    api.arn_for("POST", f"/tenants/{tenant_pattern(TENANT)}"),
                    api.arn_for("DELETE", f"/tenants/{TENANT}/models/*"),
                    *([api.arn_for(method, f"/tenants/{TENANT}/api-key") for method in ("PUT", "DELETE")] if api.asks_for_keys else ()),
                ],
            )
        )
        own = f"/tenants/<aws:PrincipalTag/{TENANT_TAG}>/*"
        models = f"/tenants/<aws:PrincipalTag/{TENANT_TAG}>/models/*"
        acknowledge_wildcards(
            self.role,
            {
                own: "Every path below the tenant's own; the part before the wildcard ends in a slash.",
                models: "Every model and version of the tenant's own may be deleted by it, but not the tenant.",
            },
        )
