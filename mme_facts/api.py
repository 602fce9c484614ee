"""The tenant API's calls: one table that the construct, the functions and the OpenAPI document are made of."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = [
    "ACTIVATION_SECONDS",
    "KEY_OPERATIONS",
    "LEAST_TIMEOUT_SECONDS",
    "OPERATIONS",
    "PREFER_HEADER",
    "REQUEST_TIMEOUT_HEADER",
    "STICKY_KEY_HEADER",
    "STICKY_KEY_PATTERN",
    "Function",
    "Operation",
    "Role",
]

REQUEST_TIMEOUT_HEADER = "X-Request-Timeout"
"""Header of invocations: so many seconds the caller waits; the gateway's own limit holds besides."""
ACTIVATION_SECONDS = 20
"""An activation waits at most so long for its version to be loaded: the gateway gives a call 29 s, and some of them are for the start of
the function, the records and the way back. What loads longer goes on loading, and the next try finds it."""

LEAST_TIMEOUT_SECONDS = 1
"""The least that a caller may wait: the shortest read timeout that there is a client for."""

PREFER_HEADER = "Prefer"
"""Header of invocations (RFC 7240): with ``respond-async`` the answer comes later."""

STICKY_KEY_HEADER = "X-Mme-Sticky-Key"
"""Header of invocations: while a canary runs, requests with the same value go to the same version."""
STICKY_KEY_PATTERN = "[!-~](?:[ -~]{0,254}[!-~])?"
"""What a whole sticky key matches: 1 to 256 printable ASCII characters without spaces at the ends, which HTTP takes away."""


class Role(StrEnum):
    """Who may call."""

    PLATFORM_ADMIN = "platform-admin"
    TENANT = "tenant"


class Function(StrEnum):
    """Which function answers."""

    ONBOARDING = "onboarding"
    INVOCATION = "invocation"


@dataclass(frozen=True, slots=True)
class Operation:
    """One call.

    Attributes:
        id: stable name of the call, such as ``put_tenant``; also the handler's method.
        method: HTTP method.
        path: below the stage, with names in braces.
        summary: what it does, one sentence.
        function: which function answers.
        roles: who may call it; a tenant only below its own path.
    """

    id: str
    method: str
    path: str
    summary: str
    function: Function = Function.ONBOARDING
    roles: frozenset[Role] = frozenset(Role)


_TENANT = "/tenants/{tenant}"
_MODELS = f"{_TENANT}/models"
_MODEL = f"{_MODELS}/{{model}}"
_VERSIONS = f"{_MODEL}/versions"
_VERSION = f"{_VERSIONS}/{{version}}"
_ADMIN = frozenset({Role.PLATFORM_ADMIN})

OPERATIONS: tuple[Operation, ...] = (
    Operation("get_openapi", "GET", "/openapi.json", "Show the OpenAPI document of this API, as it is deployed."),
    Operation("put_tenant", "PUT", _TENANT, "Create a tenant, or change its settings.", roles=_ADMIN),
    Operation("delete_tenant", "DELETE", _TENANT, "Delete a tenant: retire all its models.", roles=_ADMIN),
    Operation("get_tenant", "GET", _TENANT, "Show a tenant."),
    Operation("list_models", "GET", _MODELS, "List a tenant's models by id."),
    Operation("get_model", "GET", _MODEL, "Show a model and where its requests go."),
    Operation("delete_model", "DELETE", _MODEL, "Delete a model: remove its route, retire its versions."),
    Operation("activate_version", "POST", f"{_MODEL}/activate", "Roll a model forward or back to a version, or run it as a canary."),
    Operation("register_version", "POST", _VERSIONS, "Register a version and get a signed upload for its artifact."),
    Operation("complete_version", "POST", f"{_VERSION}/complete", "Say that a version's artifact is uploaded: puts the parts together."),
    Operation("list_versions", "GET", _VERSIONS, "List a model's versions, newest first."),
    Operation("get_version", "GET", _VERSION, "Show a version: its state, why it was rejected, how long each step took."),
    Operation("delete_version", "DELETE", _VERSION, "Retire a version."),
    Operation("invoke_model", "POST", f"{_MODEL}/invocations", "Invoke a model.", function=Function.INVOCATION),
    Operation(
        "get_result",
        "GET",
        f"{_TENANT}/results/{{result}}",
        "Get the answer of an invocation that was to come later.",
        function=Function.INVOCATION,
    ),
)
"""Every call of the API, in the order of the documentation."""

KEY_OPERATIONS: tuple[Operation, ...] = (
    Operation("put_api_key", "PUT", f"{_TENANT}/api-key", "Show the tenant's API key; make it if there is none."),
    Operation("delete_api_key", "DELETE", f"{_TENANT}/api-key", "Take the tenant's API key back: the next one has another value."),
)
"""Calls that are there, too, where the platform has usage plans."""
