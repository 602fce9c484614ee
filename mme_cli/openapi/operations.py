"""What each call takes and answers, beside what `mme_facts.api` says of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mme_facts.api import PREFER_HEADER, REQUEST_TIMEOUT_HEADER, STICKY_KEY_HEADER

__all__ = ["ANSWERS", "COMMON", "Answer", "Contract"]


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of success.

    Attributes:
        says: when it is given.
        schema: name of its component schema; ``None``: any bytes.
        headers: names of its headers, in `HEADERS`.
        links: operation -> parameter -> where its value is in the answer (a runtime expression).
    """

    says: str
    schema: str | None
    headers: tuple[str, ...] = ()
    links: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Contract:
    """What a call takes and answers.

    Attributes:
        answers: status -> answer of success.
        problems: slugs of the errors that are its own.
        body: name of the component schema of its JSON body; ``None``: it takes none.
        body_optional: whether the body may be left out.
        any_body: whether it takes any bytes of any media type.
        pages: whether it is a list with ``limit`` and ``cursor``.
        headers: request headers -> what they mean.
        flags: query parameters that are set by ``true`` -> what they mean.
        once: whether it honours ``Idempotency-Key``.
    """

    answers: Mapping[int, Answer]
    problems: tuple[str, ...]
    body: str | None = None
    body_optional: bool = False
    any_body: bool = False
    pages: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)
    flags: Mapping[str, str] = field(default_factory=dict)
    once: bool = False


COMMON = ("invalid-request", "unauthenticated", "forbidden", "payload-too-large", "throttled", "internal-error", "timeout")
"""Slugs of errors that every call may answer with; most of them come from API Gateway itself."""
_OF_A_BODY = ("unsupported-media-type",)
_OF_A_KEY = ("idempotency-conflict", "request-in-progress")
_RECORDS = ("unavailable",)
"""Of calls that read records, or write them: the services behind may be busy."""
_TENANT = (*_RECORDS, "tenant-not-found")
_TAKES = ("tenant-deleted", "format-not-allowed", "quota-exceeded")
_MODEL = (*_TENANT, "model-not-found")
_DELETED = ("tenant-deleted",)
_VERSION = (*_MODEL, "version-not-found")

_HERE = {"tenant": "$request.path.tenant", "model": "$request.path.model", "version": "$request.path.version"}


def _here(*names: str) -> dict[str, str]:
    return {name: _HERE[name] for name in names}


_OF_A_TENANT = {name: _here("tenant") for name in ("get_tenant", "list_models")}
_NEW_VERSION = {**_here("tenant", "model"), "version": "$response.body#/version"}
_OF_A_REGISTRATION = {
    "complete_version": _NEW_VERSION,
    "get_version": _NEW_VERSION,
    "get_model": _here("tenant", "model"),
    "list_versions": _here("tenant", "model"),
}

ANSWERS: Mapping[str, Contract] = {
    "put_tenant": Contract(
        {
            201: Answer("The tenant is new.", "Tenant", ("Idempotency-Replayed",), _OF_A_TENANT),
            200: Answer("The tenant was there; this is how it is now.", "Tenant", ("Idempotency-Replayed",), _OF_A_TENANT),
        },
        (*_RECORDS, *_DELETED, "write-conflict", *_OF_A_BODY, *_OF_A_KEY),
        body="TenantSettings",
        body_optional=True,
        once=True,
    ),
    "get_tenant": Contract({200: Answer("The tenant.", "Tenant", links={"list_models": _here("tenant")})}, _TENANT),
    "delete_tenant": Contract(
        {
            200: Answer("All its models are retired.", "DeletedTenant", ("Idempotency-Replayed",), {"get_tenant": _here("tenant")}),
            202: Answer(
                "The tenant is refused everything from now on; models are left, and retired by and by.",
                "DeletedTenant",
                ("Idempotency-Replayed",),
                {"get_tenant": _here("tenant")},
            ),
        },
        (*_TENANT, "write-conflict", *_OF_A_KEY),
        once=True,
    ),
    "put_api_key": Contract(
        {
            201: Answer("The key is new.", "IssuedKey", ("Cache-Control",), {"get_tenant": _here("tenant")}),
            200: Answer("The key.", "IssuedKey", ("Cache-Control",), {"get_tenant": _here("tenant")}),
        },
        (*_TENANT, *_DELETED, "write-conflict"),
    ),
    "delete_api_key": Contract(
        {200: Answer("The tenant, without a key.", "KeylessTenant", links={"get_tenant": _here("tenant")})},
        (*_TENANT, "write-conflict"),
    ),
    "list_models": Contract(
        {200: Answer("A page of models.", "ModelPage")},
        _TENANT,
        pages=True,
    ),
    "get_model": Contract({200: Answer("The model.", "Model", links={"list_versions": _here("tenant", "model")})}, _MODEL),
    "delete_model": Contract(
        {
            200: Answer(
                "All its versions are retired.", "DeletedModel", ("Idempotency-Replayed",), {"get_model": _here("tenant", "model")}
            ),
            202: Answer(
                "The route is gone; versions are left, and retired by and by.",
                "DeletedModel",
                ("Idempotency-Replayed",),
                {"get_model": _here("tenant", "model")},
            ),
        },
        (*_MODEL, "write-conflict", *_OF_A_KEY),
        once=True,
    ),
    "activate_version": Contract(
        {200: Answer("The model with its route.", "Model", ("Idempotency-Replayed",), {"get_model": _here("tenant", "model")})},
        (
            *_VERSION,
            *_DELETED,
            "no-active-version",
            "forbidden-move",
            "write-conflict",
            "not-warmed",
            "model-failed",
            *_OF_A_BODY,
            *_OF_A_KEY,
        ),
        body="Activation",
        once=True,
    ),
    "register_version": Contract(
        {
            201: Answer("The version is new.", "Registered", ("Idempotency-Replayed",), _OF_A_REGISTRATION),
            200: Answer("This artifact was awaited already.", "Registered", ("Idempotency-Replayed",), _OF_A_REGISTRATION),
        },
        (*_TENANT, *_TAKES, "version-exists", "write-conflict", *_OF_A_BODY, *_OF_A_KEY),
        body="Registration",
        once=True,
    ),
    "complete_version": Contract(
        {
            200: Answer(
                "The version as it is now.", "Version", ("Idempotency-Replayed",), {"get_version": _here("tenant", "model", "version")}
            )
        },
        (*_VERSION, *_DELETED, "forbidden-move", "upload-incomplete", "write-conflict", *_OF_A_BODY, *_OF_A_KEY),
        body="Nothing",
        body_optional=True,
        once=True,
    ),
    "list_versions": Contract(
        {200: Answer("A page of versions.", "VersionPage")},
        _MODEL,
        pages=True,
    ),
    "get_version": Contract({200: Answer("The version.", "Version")}, _VERSION),
    "delete_version": Contract(
        {
            200: Answer(
                "The version is retired, or had ended already.",
                "RetiredVersion",
                ("Idempotency-Replayed",),
                {"get_version": _here("tenant", "model", "version")},
            )
        },
        (*_VERSION, "version-active", "write-conflict", *_OF_A_KEY),
        flags={"force": "Whether the active version may be retired, which leaves the model without a route."},
        once=True,
    ),
    "invoke_model": Contract(
        {
            202: Answer("The answer comes later, at `Location`.", "Running", ("Location", "Preference-Applied", "Retry-After")),
            200: Answer(
                "The model's answer, as the model gave it; in base64 to a call without an `Accept` header.",
                None,
                ("X-Mme-Version", "X-Mme-Attempts"),
            ),
        },
        (
            *_MODEL,
            *_DELETED,
            "no-active-version",
            "model-rejected-input",
            "model-failed",
            "answer-too-large",
            "model-loading",
        ),
        any_body=True,
        headers={
            STICKY_KEY_HEADER: "While a canary runs, requests with the same value go to the same version; such as a user's id.",
            PREFER_HEADER: "With `respond-async` among the preferences the answer comes later; others are ignored.",
            REQUEST_TIMEOUT_HEADER: "So many seconds the caller waits; a model that is still being loaded then is answered for with 503.",
        },
    ),
    "get_result": Contract(
        {
            200: Answer("The model's answer, as the invocation would have given it.", None, ("X-Mme-Version", "X-Mme-Attempts")),
            202: Answer("The answer is still to come.", "Running", ("Retry-After",)),
        },
        (
            *_MODEL,
            *_DELETED,
            "not-found",
            "no-active-version",
            "model-rejected-input",
            "model-failed",
            "answer-too-large",
            "model-loading",
        ),
    ),
    "get_openapi": Contract({200: Answer("The document, for this deployment.", "OpenApi")}, ()),
}
"""Operation id -> contract. A test asks for one of every operation of `mme_facts.api`."""
