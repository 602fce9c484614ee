"""Answers that API Gateway makes itself, as problem documents of the error table."""

from __future__ import annotations

import json

from aws_cdk import aws_apigateway as apigateway

from mme_facts.problems import CONTENT_TYPE, PROBLEMS

__all__ = ["add_problem_responses"]

_Type = apigateway.ResponseType


def add_problem_responses(api: apigateway.RestApi) -> None:
    """Let ``api`` answer its own errors as ``application/problem+json``, with the status of the table's row.

    Source: Amazon API Gateway, Gateway response types. ``$context.error.messageString`` is the gateway's message, quoted.
    """
    for response_type, slug in (
        (_Type.BAD_REQUEST_BODY, "invalid-request"),
        (_Type.BAD_REQUEST_PARAMETERS, "invalid-request"),
        (_Type.DEFAULT_4_XX, "invalid-request"),
        (_Type.ACCESS_DENIED, "forbidden"),
        (_Type.EXPIRED_TOKEN, "forbidden"),
        (_Type.INVALID_API_KEY, "forbidden"),
        (_Type.INVALID_SIGNATURE, "forbidden"),
        (_Type.MISSING_AUTHENTICATION_TOKEN, "forbidden"),
        (_Type.UNAUTHORIZED, "forbidden"),
        (_Type.WAF_FILTERED, "forbidden"),
        (_Type.RESOURCE_NOT_FOUND, "not-found"),
        (_Type.REQUEST_TOO_LARGE, "payload-too-large"),
        (_Type.UNSUPPORTED_MEDIA_TYPE, "unsupported-media-type"),
        (_Type.QUOTA_EXCEEDED, "throttled"),
        (_Type.THROTTLED, "throttled"),
        (_Type.INTEGRATION_TIMEOUT, "timeout"),
        (_Type.INTEGRATION_FAILURE, "internal-error"),
        (_Type.DEFAULT_5_XX, "internal-error"),
    ):
        name = "".join(part.title() for part in response_type.response_type.split("_"))
        problem = PROBLEMS[slug]
        document = json.dumps({"type": problem.type, "title": problem.title, "status": problem.status, "detail": "DETAIL"})
        api.add_gateway_response(
            f"{name}Response",
            type=response_type,
            status_code=str(problem.status),
            response_headers={"Content-Type": f"'{CONTENT_TYPE}'"},
            # The key selects the template, and application/json is the one chosen for any request; the header tells the true type.
            templates={"application/json": document.replace('"DETAIL"', "$context.error.messageString")},
        )
