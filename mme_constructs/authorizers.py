"""Who may call the tenant API, where tokens take the place of IAM signatures."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import aws_cdk as cdk
from aws_cdk import aws_apigateway as apigateway

from mme_constructs.errors import AuthorizerError
from mme_facts.environment import Callers, CallerSource

if TYPE_CHECKING:
    from aws_cdk import aws_cognito as cognito
    from aws_cdk import aws_lambda as lambda_
    from constructs import Construct

__all__ = ["CognitoAuthorizer", "LambdaAuthorizer"]

_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
_MAX_CACHE_SECONDS = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class CognitoAuthorizer:
    """Callers send a token of a Cognito user pool: ``Authorization: Bearer <token>``.

    API Gateway verifies signature, expiry and issuer, and the functions compare the tenant in the token with the tenant in the path.
    Users must not be able to write what decides that: an app client that may write ``tenant_claim`` is refused where it is known.

    Attributes:
        user_pools: pools whose users call. Members of ``admin_group`` of any of them are platform administrators.
        clients: app clients whose tokens count; tokens of the pools' other applications are refused.
        tenant_claim: the claim that holds the tenant's id. Default ``custom:tenant``, a custom attribute of the user, in ID tokens.
            A claim that a pre token generation trigger adds may have any name.
        admin_group: the group whose members are platform administrators, without a comma. Default ``platform-admin``.
        scopes: OAuth scopes, one of which the token must have. With scopes callers send access tokens, which carry a tenant only if a pre
            token generation trigger adds it. Default: none; callers send ID tokens.

    Raises:
        AuthorizerError: nobody or anybody could call, or an app client may write the claim.

    Sources: Amazon API Gateway, Integrate a REST API with an Amazon Cognito user pool; Amazon Cognito, Working with user attributes
    (attribute permissions and scopes).
    """

    user_pools: Sequence[cognito.IUserPool]
    clients: Sequence[cognito.IUserPoolClient]
    tenant_claim: str = "custom:tenant"
    admin_group: str = "platform-admin"
    scopes: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not self.user_pools or not self.clients:
            raise AuthorizerError(
                "Nobody's token would count",
                value={"user_pools": len(self.user_pools), "clients": len(self.clients)},
                allowed="at least one user pool and one app client of it",
                fix="Pass both",
            )
        if not self.tenant_claim or self.tenant_claim == "cognito:groups":
            raise AuthorizerError(
                "The claim cannot tell one tenant",
                value=self.tenant_claim,
                allowed="a claim that holds one tenant's id",
                fix="Use 'custom:tenant', or a claim that a pre token generation trigger adds",
            )
        if not self.admin_group or "," in self.admin_group:
            raise AuthorizerError(
                "API Gateway joins the names of groups by commas, so this group could not be told from others",
                value=self.admin_group,
                allowed="a group's name without a comma",
                fix="Rename the group",
            )
        for client in self.clients:
            _check_client(client, self.tenant_claim)

    def callers(self) -> Callers:
        """How the functions know their callers."""
        return Callers(
            CallerSource.COGNITO,
            self.tenant_claim,
            self.admin_group,
            tuple(client.user_pool_client_id for client in self.clients),
            access_tokens=bool(self.scopes),
        )

    def method_options(self, scope: Construct) -> apigateway.MethodOptions:
        """Make the authorizer in ``scope``; what every method gets."""
        authorizer = apigateway.CognitoUserPoolsAuthorizer(
            scope, "Authorizer", cognito_user_pools=list(self.user_pools), results_cache_ttl=cdk.Duration.seconds(0)
        )
        if not self.scopes:
            # Of ID tokens API Gateway itself looks at the audience; the functions do so for both kinds.
            cfn_authorizer = authorizer.node.default_child
            assert isinstance(cfn_authorizer, apigateway.CfnAuthorizer)
            clients = "|".join(client.user_pool_client_id for client in self.clients)
            cfn_authorizer.identity_validation_expression = f"^({clients})$"
        return apigateway.MethodOptions(
            authorizer=authorizer,
            authorization_type=apigateway.AuthorizationType.COGNITO,
            authorization_scopes=list(self.scopes) or None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LambdaAuthorizer:
    """A function of yours says who calls: it answers a policy and a ``context`` that names the tenant or the role.

    It answers ``{"principalId": ..., "policyDocument": ..., "context": {"tenant": "acme"}}`` or, for platform administrators,
    ``"context": {"role": "platform-admin"}``. The functions compare the tenant with the path, so the policy may allow the whole API, and
    has to while answers are cached: one answer then serves the caller's calls to every path. Neither the context nor ``principalId``,
    which is logged, may hold a credential.

    Attributes:
        function: the function.
        kind: ``request``, it gets the request; ``token``, it gets one header only, as ``authorizationToken``. Default ``request``.
        headers: the headers that tell callers apart: without them API Gateway answers 401 by itself, and answers are cached by them.
            Default: ``Authorization``.
        cache_seconds: how long an answer is used again, 0 to 3,600. A caller who is shut out stays in for as long. Default 300.
        tenant_key: key of the context that holds the tenant's id. Default ``tenant``.
        role_key: key of the context that holds the role, ``platform-admin`` or ``tenant``; without it a caller is a tenant. Default
            ``role``.

    Raises:
        AuthorizerError: a setting is one that API Gateway refuses, or that cannot tell callers apart.

    Source: Amazon API Gateway, Use API Gateway Lambda authorizers.
    """

    function: lambda_.IFunction
    kind: Literal["request", "token"] = "request"
    headers: Sequence[str] = ("Authorization",)
    cache_seconds: int = 300
    tenant_key: str = "tenant"
    role_key: str = "role"

    def __post_init__(self) -> None:
        if self.kind not in ("request", "token"):
            raise AuthorizerError("No such kind of authorizer", value=self.kind, allowed="request or token", fix="Use one of them")
        if not self.headers or (self.kind == "token" and len(self.headers) > 1) or not all(map(_HEADER.fullmatch, self.headers)):
            raise AuthorizerError(
                "The headers cannot tell callers apart",
                value=list(self.headers),
                allowed="names of headers; exactly one for the kind 'token'",
                fix="Name the headers that the function looks at",
            )
        if not 0 <= self.cache_seconds <= _MAX_CACHE_SECONDS:
            raise AuthorizerError(
                "API Gateway keeps no answer for that long",
                value=self.cache_seconds,
                allowed=f"0 to {_MAX_CACHE_SECONDS:,} seconds",
                fix="Change cache_seconds",
            )
        if not self.tenant_key or not self.role_key or self.tenant_key == self.role_key:
            raise AuthorizerError(
                "Tenant and role could not be told apart",
                value=[self.tenant_key, self.role_key],
                allowed="two different keys",
                fix="Change tenant_key or role_key",
            )

    def callers(self) -> Callers:
        """How the functions know their callers."""
        return Callers(CallerSource.LAMBDA, self.tenant_key, self.role_key, header=self.headers[0])

    def method_options(self, scope: Construct) -> apigateway.MethodOptions:
        """Make the authorizer in ``scope``; what every method gets."""
        sources = [apigateway.IdentitySource.header(name) for name in self.headers]
        ttl = cdk.Duration.seconds(self.cache_seconds)
        authorizer: apigateway.IAuthorizer = (
            apigateway.TokenAuthorizer(scope, "Authorizer", handler=self.function, identity_source=sources[0], results_cache_ttl=ttl)
            if self.kind == "token"
            else apigateway.RequestAuthorizer(scope, "Authorizer", handler=self.function, identity_sources=sources, results_cache_ttl=ttl)
        )
        return apigateway.MethodOptions(authorizer=authorizer, authorization_type=apigateway.AuthorizationType.CUSTOM)


def _check_client(client: cognito.IUserPoolClient, claim: str) -> None:
    """Refuse an app client whose users may write the attribute that says whose they are, as far as it is known here."""
    from aws_cdk import aws_cognito as cognito

    cfn_client = client.node.default_child
    if not isinstance(cfn_client, cognito.CfnUserPoolClient) or not claim.startswith("custom:"):
        return
    # Without a list, clients may write every attribute that can be changed.
    written = cfn_client.write_attributes
    if written is None or claim in written:
        raise AuthorizerError(
            "Users could make themselves another tenant's: the app client may write the attribute",
            value=client.node.path,
            allowed=f"app clients whose write attributes are listed, without {claim}",
            fix="Pass write_attributes to the client, such as cognito.ClientAttributes().with_standard_attributes(email=True)",
        )
