"""``/openapi.json``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from aws_lambda_powertools.event_handler import Response

import mme_tenancy
from mme_facts.api import KEY_OPERATIONS, OPERATIONS, Function
from mme_facts.environment import Callers, CallerSource
from mme_facts.usage_plans import API_KEY_HEADER
from mme_tenancy.bodies import request_shapes
from mme_tenancy.handlers.http import Event
from mme_tenancy.handlers.onboarding.calls import Call, json_answer

__all__ = ["DocumentCalls"]

_FILE = Path(mme_tenancy.__file__).with_name("openapi.json")
(_PATH,) = (operation.path for operation in OPERATIONS if operation.id == "get_openapi")


class DocumentCalls:
    """The OpenAPI document: the committed one, with this deployment's limits, frameworks, address and way to know callers.

    Args:
        max_artifact_bytes: greatest admissible artifact.
        frameworks: what the platform serves.
        callers: how callers are known.
        usage_plans: whether tenants have API keys.
    """

    def __init__(self, max_artifact_bytes: int, frameworks: Sequence[str], callers: Callers, *, usage_plans: bool = False) -> None:
        self._document = cache(lambda: _document(max_artifact_bytes, frameworks, callers, usage_plans=usage_plans))

    def get_openapi(self, call: Call) -> Response[str]:
        """Show the document."""
        address = _address(call.event)
        document = self._document()
        return json_answer(200, {**document, "servers": [{"url": address}]} if address else document)


def _document(max_artifact_bytes: int, frameworks: Sequence[str], callers: Callers, *, usage_plans: bool) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(_FILE.read_text("utf-8"))
    shapes = request_shapes(max_artifact_bytes=max_artifact_bytes, frameworks=frameworks)
    document["components"]["schemas"] |= {name: shape.schema() for name, shape in shapes.items()}
    if callers.source is not CallerSource.IAM:
        document["components"]["securitySchemes"] = {"token": _scheme(callers)}
        document["security"] = [{"token": []}]
    if usage_plans:
        _ask_for_key(document)
    else:
        for operation in KEY_OPERATIONS:
            document["paths"].pop(operation.path, None)
    return document


def _ask_for_key(document: dict[str, Any]) -> None:
    """Invocations ask for the tenant's key beside what every call asks for."""
    schemes = document["components"]["securitySchemes"]
    schemes["key"] = {"type": "apiKey", "name": API_KEY_HEADER, "in": "header", "description": "The tenant's API key: whose plan counts."}
    for operation in OPERATIONS:
        if operation.function is Function.INVOCATION:
            document["paths"][operation.path][operation.method.lower()]["security"] = [each | {"key": []} for each in document["security"]]


def _scheme(callers: Callers) -> dict[str, str]:
    if callers.source is CallerSource.COGNITO:
        kind = "access" if callers.access_tokens else "ID"
        return {"type": "http", "scheme": "bearer", "bearerFormat": "JWT", "description": f"The {kind} token of the platform's user pool."}
    return {"type": "apiKey", "name": callers.header, "in": "header", "description": "What the platform's authorizer asks for."}


def _address(event: Event) -> str | None:
    """The API's address as the caller knows it: with the stage, or with the base path of a domain name of its own."""
    context = event.get("requestContext") or {}
    host, path = context.get("domainName"), str(context.get("path") or "")
    return f"https://{host}{path.removesuffix(_PATH)}" if host and path.endswith(_PATH) else None
