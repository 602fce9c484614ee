"""Answers that API Gateway makes itself, as problem documents of the error table."""

from __future__ import annotations

import json

from aws_cdk import aws_apigateway as apigateway

from mme_facts.problems import CONTENT_TYPE, PROBLEMS

__all__ = ["add_problem_responses"]


def add_problem_responses(api: apigateway.RestApi) -> None:
    """Let ``api`` answer its own errors as ``application/problem+json``, with the status of the table's row.

    Source: Amazon API Gateway, Gateway response types. ``$context.error.messageString`` is the gateway's message, quoted.
    """
    for type_name, slug in (
        ("BAD_REQUEST_BODY", "invalid-request"),
        ("BAD_REQUEST_PARAMETERS", "invalid-request"),
        ("DEFAULT_4_XX", "invalid-request"),
        ("ACCESS_DENIED", "forbidden"),
        ("EXPIRED_TOKEN", "forbidden"),
        ("INVALID_API_KEY", "forbidden"),
        ("INVALID_SIGNATURE", "forbidden"),
        ("MISSING_AUTHENTICATION_TOKEN", "forbidden"),
        ("UNAUTHORIZED", "forbidden"),
        ("WAF_FILTERED", "forbidden"),
        ("RESOURCE_NOT_FOUND", "not-found"),
        ("REQUEST_TOO_LARGE", "payload-too-large"),
        ("UNSUPPORTED_MEDIA_TYPE", "unsupported-media-type"),
        ("QUOTA_EXCEEDED", "throttled"),
        ("THROTTLED", "throttled"),
        ("INTEGRATION_TIMEOUT", "timeout"),
        ("INTEGRATION_FAILURE", "internal-error"),
        ("DEFAULT_5_XX", "internal-error"),
    ):
        name = "".join(part.title() for part in type_name.split("_"))
        problem = PROBLEMS[slug]
        document = json.dumps({"type": problem.type, "title": problem.title, "status": problem.status, "detail": "DETAIL"})
        api.add_gateway_response(
            f"{name}Response",
            type=getattr(apigateway.ResponseType, type_name),
            status_code=str(problem.status),
            response_headers={"Content-Type": f"'{CONTENT_TYPE}'"},
            # The key selects the template, and application/json is the one chosen for any request; the header tells the true type.
            templates={"application/json": document.replace('"DETAIL"', "$context.error.messageString")},
        )
