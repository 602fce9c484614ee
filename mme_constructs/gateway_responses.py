"""Answers that API Gateway makes itself, as problem documents of the error table."""

from __future__ import annotations

import json
from collections.abc import Mapping

from aws_cdk import aws_apigateway as apigateway

from mme_facts.problems import CONTENT_TYPE, PROBLEMS

__all__ = ["add_problem_responses"]

_SLUGS: Mapping[str, str] = {
    "BAD_REQUEST_BODY": "invalid-request",
    "BAD_REQUEST_PARAMETERS": "invalid-request",
    "ACCESS_DENIED": "forbidden",
    "EXPIRED_TOKEN": "forbidden",
    "INVALID_API_KEY": "forbidden",
    "INVALID_SIGNATURE": "forbidden",
    "MISSING_AUTHENTICATION_TOKEN": "forbidden",
    "UNAUTHORIZED": "unauthenticated",
    "WAF_FILTERED": "forbidden",
    "DEFAULT_4XX": "forbidden",
    "RESOURCE_NOT_FOUND": "not-found",
    "REQUEST_TOO_LARGE": "payload-too-large",
    "UNSUPPORTED_MEDIA_TYPE": "unsupported-media-type",
    "QUOTA_EXCEEDED": "throttled",
    "THROTTLED": "throttled",
    "INTEGRATION_TIMEOUT": "timeout",
    "INTEGRATION_FAILURE": "internal-error",
    "DEFAULT_5XX": "internal-error",
}
"""Gateway response type -> row of the error table.

``DEFAULT_4XX`` is what no other type says: an access key that does not exist, a session token that is none, an ``Authorization`` header
that cannot be read. ``DEFAULT_5XX`` is a function that failed or may not be called.
"""
_HEADERS: Mapping[str, Mapping[str, str]] = {
    "THROTTLED": {"Retry-After": "1"},
    "UNAUTHORIZED": {"WWW-Authenticate": "Bearer"},  # RFC 9110 asks for it with every 401
}
"""Gateway response type -> more headers. A used-up quota has no ``Retry-After``: when it begins anew is the usage plan's affair."""
_DETAILS: Mapping[str, str] = {"ACCESS_DENIED": "these credentials do not allow this call"}
"""Gateway response type -> text in place of the gateway's, which names the account, the caller's role and the API."""


def add_problem_responses(api: apigateway.RestApi) -> None:
    """Let ``api`` answer its own errors as ``application/problem+json``, with the status of the table's row.

    Source: Amazon API Gateway, Gateway response types. ``$context.error.messageString`` is the gateway's message, quoted; it is
    not passed on where it names what is behind the API.
    """
    api_id = api.rest_api_id
    texts = {response_type: _template(response_type) for response_type in _SLUGS}
    responses = [
        apigateway.CfnGatewayResponse(
            api,
            "".join(part.title() for part in response_type.split("_")) + "Response",
            rest_api_id=api_id,
            response_type=response_type,
            status_code=str(PROBLEMS[_SLUGS[response_type]].status),
            response_parameters=_headers(response_type),
            # The key selects the template, and application/json is the one chosen for any request; the header tells the true type.
            response_templates={"application/json": text},
        )
        for response_type, text in texts.items()
    ]
    if (deployment := api.latest_deployment) is not None:
        # A stage shows them from its next deployment on: another text makes another deployment.
        deployment.node.add_dependency(*responses)
        deployment.add_to_logical_id([[response_type, text, _headers(response_type)] for response_type, text in texts.items()])


def _headers(response_type: str) -> dict[str, str]:
    headers = {"Content-Type": CONTENT_TYPE, **_HEADERS.get(response_type, {})}
    return {f"gatewayresponse.header.{name}": f"'{value}'" for name, value in headers.items()}


def _template(response_type: str) -> str:
    problem, detail = PROBLEMS[_SLUGS[response_type]], _DETAILS.get(response_type, "DETAIL")
    document = json.dumps({"type": problem.type, "title": problem.title, "status": problem.status, "detail": detail})
    return document.replace('"DETAIL"', "$context.error.messageString")
