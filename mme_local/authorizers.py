# ruff: noqa: SLF001 - reaching into the pinned emulator is what this module is for
"""Authorizers of REST APIs, where the emulator lets more pass than API Gateway does. Part of `mme_local.patches`.

The emulator itself verifies the signature of a user pool's token by the pool's public keys, its issuer and its time claims, and asks
Lambda authorizers and caches their answers.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["apply", "refusal_of_token"]

logger = logging.getLogger(__name__)

FunctionAllows = Callable[[str, str, str, str, str], bool]
"""Function, service, source ARN, account, region -> whether the function's policy lets the service invoke it for the source."""


def apply(function_allows: FunctionAllows) -> None:
    """Patch the emulator in this process."""
    _verify_the_rest_of_a_token()
    _join_lists_in_claims()
    _check_what_users_write()
    _evaluate_the_whole_policy()
    _ask_functions_policies(function_allows)
    _apply_resource_policies()


def refusal_of_token(header: object, claims: Mapping[str, Any], *, scopes: Sequence[str], audience: str) -> str | None:
    """Why a token whose signature, issuer and times hold is refused nevertheless; None if it is not.

    Args:
        header: its JOSE header.
        claims: its claims.
        scopes: those that the method asks for, any of which an access token must have. Without any, an ID token is asked for.
        audience: the authorizer's validation expression, which the whole ``aud`` of an ID token must match; empty: any.

    Sources: Amazon API Gateway, Integrate a REST API with an Amazon Cognito user pool; AWS CloudFormation, AWS::ApiGateway::Authorizer
    (IdentityValidationExpression).
    """
    if not isinstance(header, Mapping) or header.get("alg") != "RS256":
        return "it is not signed with RS256"
    if not isinstance(claims.get("exp"), int):
        return "it does not expire"
    wanted = "access" if scopes else "id"
    if claims.get("token_use") != wanted:
        return f"it is no {wanted} token"
    if audience and not scopes and not re.fullmatch(audience, str(claims.get("aud", ""))):
        return "it is meant for another audience"
    return None


def _verify_the_rest_of_a_token() -> None:
    """A user pool's token is refused unless `refusal_of_token` has nothing against it and its pool is still there.

    Reason: the emulator takes access and even refresh tokens where API Gateway asks for ID tokens, tokens for any audience, and, from
    its cache of keys, those of pools that were deleted.
    """
    from ministack.services import apigateway, apigateway_v1, cognito

    validate = apigateway_v1._validate_cognito_authorizer

    def unauthorized(why: str) -> tuple[None, Any]:
        logger.info("a token is refused: %s", why)
        return None, apigateway_v1._gw_error("UNAUTHORIZED", "Unauthorized")

    async def verified(authorizer: Any, method: Any, headers: Any, query: Any, stage: Any) -> tuple[Any, Any]:
        try:
            claims, error = await validate(authorizer, method, headers, query, stage)
        except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as failure:
            return unauthorized(f"it cannot be read ({type(failure).__name__})")
        if error is not None:
            return claims, error
        token = apigateway_v1._cognito_token_from_request(authorizer, headers, query, stage)
        header = json.loads(apigateway._b64url_decode(token.partition(".")[0]))
        scopes = method.get("authorizationScopes") or ()
        refusal = refusal_of_token(header, claims, scopes=scopes, audience=authorizer.get("identityValidationExpression") or "")
        pool = claims["iss"].rpartition("/")[2]
        if refusal is None and all(pool != there for there, _ in cognito._all_pools()):
            refusal = "its user pool is gone"
        return (claims, None) if refusal is None else unauthorized(refusal)

    apigateway_v1._validate_cognito_authorizer = verified


def _join_lists_in_claims() -> None:
    """Claims that are lists, such as ``cognito:groups``, reach the function joined by commas.

    Reason: the emulator writes them as HTTP APIs do, in brackets.
    """
    from ministack.services import apigateway_v1

    stringify = apigateway_v1._stringify_claims

    def joined(claims: Mapping[str, Any]) -> Any:
        return stringify({name: ",".join(map(str, value)) if isinstance(value, list) else value for name, value in (claims or {}).items()})

    apigateway_v1._stringify_claims = joined


def _check_what_users_write() -> None:
    """Users write, at sign-up and later, only attributes that their app client may write, and never again what cannot change.

    Reason: the emulator lets them write every attribute, so a user could choose whose tenant it is, where Cognito refuses (Amazon Cognito,
    Working with user attributes).
    """
    from ministack.core.responses import error_response_json
    from ministack.services import cognito

    def checked(operation: Callable[[Any], Any], client_of: Callable[[Mapping[str, Any]], str], *, later: bool) -> Callable[[Any], Any]:
        def check(data: Mapping[str, Any]) -> Any:
            client_id = client_of(data)
            pool = next((pool for _, pool in cognito._all_pools() if client_id in pool["_clients"]), None)
            names = [attribute.get("Name") for attribute in data.get("UserAttributes") or []]
            if pool is not None and not set(names) <= _writable(pool, client_id, names, later=later):
                return error_response_json("NotAuthorizedException", "A client attempted to write unauthorized attribute", 400)
            return operation(data)

        return check

    def client_of_token(data: Mapping[str, Any]) -> str:
        return str(cognito._token_claims(data.get("AccessToken", "")).get("client_id"))

    cognito._sign_up = checked(cognito._sign_up, lambda data: str(data.get("ClientId")), later=False)
    cognito._update_user_attributes = checked(cognito._update_user_attributes, client_of_token, later=True)


def _writable(pool: Mapping[str, Any], client_id: str, names: Sequence[Any], *, later: bool) -> set[Any]:
    allowed = set(pool["_clients"][client_id].get("WriteAttributes") or names)
    fixed = {row["Name"] for row in pool.get("SchemaAttributes") or () if row.get("Mutable") is False}
    return allowed - fixed if later else allowed


def _evaluate_the_whole_policy() -> None:
    """The policy of a Lambda authorizer is evaluated as IAM does, for ``execute-api:Invoke``.

    Reason: the emulator looks at effects and resources only, so a policy for another action or under a condition would allow. Statements
    without an action or a resource, which IAM refuses, do nothing.
    """
    from ministack.core import iam_evaluator
    from ministack.services import apigateway_v1

    def evaluate(policy: Any, method_arn: str) -> str:
        context = iam_evaluator.EvalContext("*", "Anonymous", "", "execute-api:Invoke", method_arn, method_arn.split(":")[3])
        statements = [
            statement
            for statement in iam_evaluator.parse_policy_document(policy)
            if (statement.actions or statement.not_actions) and (statement.resources or statement.not_resources)
        ]
        decision = iam_evaluator.evaluate(context, [statements]).decision
        return str(decision) if decision in ("Allow", "Deny") else "NoMatch"

    apigateway_v1._evaluate_policy = evaluate


def _ask_functions_policies(function_allows: FunctionAllows) -> None:
    """API Gateway invokes a Lambda authorizer only if the function's resource policy lets it.

    Reason: the emulator never asks. An authorizer with a role of its own (``AuthorizerCredentials``) is not checked.
    """
    from ministack.services import apigateway_v1

    invoke = apigateway_v1._invoke_authorizer_lambda

    async def checked(authorizer: Any, event: Any, account: str, region: str) -> Any:
        function = apigateway_v1._extract_lambda_ref_from_integration_uri(authorizer.get("authorizerUri", ""))
        source = f"{event['methodArn'].partition('/')[0]}/authorizers/{authorizer['id']}"
        if not authorizer.get("authorizerCredentials") and not function_allows(
            function, "apigateway.amazonaws.com", source, account, region
        ):
            logger.warning("API Gateway may not invoke the authorizer %s: its resource policy does not allow it", function)
            return None
        return await invoke(authorizer, event, account, region)

    apigateway_v1._invoke_authorizer_lambda = checked


def _apply_resource_policies() -> None:
    """An API's resource policy holds with authorizers, too: a Lambda authorizer lifts no denial, a user pool's token needs an allowance.

    Reason: the emulator asks it for IAM and open methods only (Amazon API Gateway, How API Gateway resource policies affect
    authorization workflow).
    """
    from ministack.services import apigateway_v1

    authorize = apigateway_v1._authorize_request_v1

    async def with_policy(api: Any, stage_name: Any, method_object: Any, method: str, path: str, *rest: Any) -> Any:
        kind = (method_object.get("authorizationType") or "NONE").upper()
        account, region = rest[-2:]
        refusal = (
            apigateway_v1._anonymous_policy_error(api, stage_name, method, path, account, region)
            if kind in ("COGNITO_USER_POOLS", "CUSTOM")
            else None
        )
        if kind == "CUSTOM" and refusal is not None and "explicit deny" in refusal.message:
            return refusal, None
        error, context = await authorize(api, stage_name, method_object, method, path, *rest)
        return (refusal, None) if kind == "COGNITO_USER_POOLS" and error is None and refusal is not None else (error, context)

    apigateway_v1._authorize_request_v1 = with_policy
