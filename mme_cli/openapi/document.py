"""Puts the OpenAPI 3.1 document together."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mme_tenancy
from mme_cli.openapi.operations import ANSWERS, COMMON, Answer, Contract
from mme_cli.openapi.records import Schema, Schemas
from mme_facts.admission import ARTIFACT_BYTES
from mme_facts.api import (
    KEY_OPERATIONS,
    LEAST_TIMEOUT_SECONDS,
    OPERATIONS,
    PREFER_HEADER,
    REQUEST_TIMEOUT_HEADER,
    STICKY_KEY_HEADER,
    STICKY_KEY_PATTERN,
    Operation,
)
from mme_facts.grammar import ID_PATTERN, RESULT_PATTERN, VERSION_PATTERN
from mme_facts.limits import api_binary_body_bytes
from mme_facts.problems import CONTENT_TYPE, PROBLEMS, TYPE_PREFIX
from mme_tenancy.api_keys import IssuedKey
from mme_tenancy.artifacts import Upload, UploadPart
from mme_tenancy.bodies import request_shapes
from mme_tenancy.formats.frameworks import FRAMEWORKS
from mme_tenancy.handlers.onboarding.calls import CURSORS, FLAG, LIMIT, PAGE_ITEMS
from mme_tenancy.idempotency import KEY
from mme_tenancy.registration import Registered
from mme_tenancy.retirement import CACHED_COPIES
from mme_tenancy.routes import Canary, Model, Route
from mme_tenancy.tenants import Tenant, Tier, Usage
from mme_tenancy.uploads import PART_BYTES
from mme_tenancy.versions import Reason, Sample, State, Version

__all__ = ["DOCUMENT", "build", "text_of"]

DOCUMENT = Path(mme_tenancy.__file__).parent / "openapi.json"
"""The committed document: it is part of the functions' code."""

_NOW, _LATER = "2026-11-29T12:00:00.000Z", "2026-11-29T12:01:30.250Z"
_SHA256 = "0123456789abcdef" * 4
_VERSION_ID = f"v1-{_SHA256[:12]}"
_CANARY_ID = f"v2-{_SHA256[4:16]}"
_ROW = "5.1,3.5,1.4,0.2"
_BINARY: Schema = {"contentMediaType": "application/octet-stream"}

_NAMES: Mapping[str, Schema] = {
    "tenant": {"description": "Id of the tenant.", "schema": {"type": "string", "pattern": f"^{ID_PATTERN}$"}, "example": "acme"},
    "model": {"description": "Id of the model.", "schema": {"type": "string", "pattern": f"^{ID_PATTERN}$"}, "example": "iris"},
    "result": {
        "description": "Id of the answer.",
        "schema": {"type": "string", "pattern": f"^{RESULT_PATTERN}$"},
        "example": "0123456789abcdef" * 2,
    },
    "version": {
        "description": "Id of the version: its number and the first digits of the artifact's SHA-256.",
        "schema": {"type": "string", "pattern": f"^{VERSION_PATTERN}$"},
        "example": _VERSION_ID,
    },
}

_HEADERS: Mapping[str, Schema] = {
    "Retry-After": {"description": "When trying again makes sense, in seconds.", "schema": {"type": "integer", "minimum": 0}},
    "Idempotency-Replayed": {
        "description": "There if the answer is the first one to this `Idempotency-Key`, given again.",
        "schema": {"type": "string", "enum": ["true"]},
    },
    "Cache-Control": {"description": "`no-store`: the answer holds a secret.", "schema": {"type": "string"}},
    "Location": {"description": "Where the answer will be, relative to this call's address.", "schema": {"type": "string"}},
    "Preference-Applied": {"description": "`respond-async`: the answer comes later.", "schema": {"type": "string"}},
    "X-Mme-Version": {"description": "Id of the version that answered.", "schema": {"type": "string"}},
    "X-Mme-Attempts": {"description": "How often the endpoint was asked.", "schema": {"type": "integer", "minimum": 1}},
}

_HEADER_SCHEMAS: Mapping[str, Schema] = {
    STICKY_KEY_HEADER: {"type": "string", "pattern": f"^(?:{STICKY_KEY_PATTERN})$"},
    PREFER_HEADER: {"type": "string"},
    REQUEST_TIMEOUT_HEADER: {"type": "number", "minimum": LEAST_TIMEOUT_SECONDS},
}
"""Headers of requests that are a call's own."""

_RETRIED = {409, 429, 503}
"""Statuses with ``Retry-After`` where it is known."""

_TOLD: Mapping[str, Schema] = {
    "Version.version": {"type": "string", "pattern": f"^{VERSION_PATTERN}$", "description": "its id"},
    "Version.active": {"type": "boolean", "description": "whether the model's requests go to it"},
    "Model.active_version": {
        "type": ["string", "null"],
        "pattern": f"^{VERSION_PATTERN}$",
        "description": "id of the version that its requests go to; `null` until one became active",
    },
    "Model.canary": {
        "anyOf": [{"$ref": "#/components/schemas/Canary"}, {"type": "null"}],
        "description": "a second version that gets a part of the requests, if there is one",
    },
    "Model.retiring": {"type": "boolean", "description": "whether versions of the deleted model are still to be retired"},
    "Tenant.retiring": {"type": "boolean", "description": "whether models of the deleted tenant are still to be retired"},
    "Registered.tenant": {"type": "string", "pattern": f"^{ID_PATTERN}$", "description": "tenant id"},
    "Registered.model": {"type": "string", "pattern": f"^{ID_PATTERN}$", "description": "model id"},
    "Registered.version": {"type": "string", "pattern": f"^{VERSION_PATTERN}$", "description": "id of the version"},
    "Registered.state": {"type": "string", "enum": [State.AWAITING_UPLOAD.value], "description": "where it is in the state machine"},
}
"""Members of answers that are not fields of their record."""


def build() -> Schema:
    """The document, as it is for a deployment that serves everything."""
    schemas = _schemas()
    paths: dict[str, Schema] = {}
    responses: dict[str, Schema] = {}
    for operation in (*OPERATIONS, *KEY_OPERATIONS):
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, ANSWERS[operation.id], responses)
    return {
        "openapi": "3.1.1",
        "info": {
            "title": "Tenant API",
            "version": version("mme-constructs").partition("+")[0],
            "summary": "Tenants bring models and invoke them.",
            "description": _DESCRIPTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/v1", "description": "The stage; a deployment's own document names its address."}],
        "security": [{"sigv4": []}],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.items())),
            "responses": dict(sorted(responses.items())),
            "headers": dict(_HEADERS),
            "securitySchemes": _SECURITY,
        },
    }


def text_of(document: Mapping[str, object]) -> str:
    """The document as the file holds it."""
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


_DESCRIPTION = f"""Every error is a problem document (RFC 9457) with a stable `type` below `{TYPE_PREFIX}`; errors about a field
name it, with the value got and what is allowed.

Calls are signed with AWS Signature Version 4 for `execute-api`, unless the platform's operator chose tokens. A tenant reaches only paths
below its own `/tenants/<tenant>`; anything else, also paths and methods that do not exist, is answered with 403 by API Gateway itself.

`Idempotency-Key` on a call that changes something gives the first answer again for the same request, and 409 for another one.

Lists come in pages: `next` is there while there are more items, and is the `cursor` of the next page."""

_SECURITY: Mapping[str, Schema] = {
    "sigv4": {
        "type": "apiKey",
        "name": "Authorization",
        "in": "header",
        "description": "AWS Signature Version 4, service `execute-api`. The caller needs `execute-api:Invoke` on the method and path.",
        "x-amazon-apigateway-authtype": "awsSigv4",
    },
}


def _schemas() -> dict[str, Schema]:
    reason = Reason("parent-path", "the path has '..'", "pack from inside the folder (tar -C folder ...)", "../model")
    warning = Reason("ignored-code", "a multi-model endpoint ignores it", "remove it", "code/inference.py")
    version = Version(
        tenant="acme",
        model="iris",
        number=1,
        sha256=_SHA256,
        size_bytes=48_213,
        framework="xgboost",
        pool="shared",
        sample=Sample("text/csv", _ROW.encode()),
        state=State.REJECTED,
        created_at=_NOW,
        updated_at=_LATER,
        notes="trained on November's data",
        reasons=(reason,),
        warnings=(warning,),
        timings={"inspect": 0.4},
    )
    headers = {"content-length": "48213", "x-amz-checksum-sha256": "ASNFZ4mrze8BI0VniavN7wEjRWeJq83vASNFZ4mrze8="}
    address = f"https://bucket.s3.amazonaws.com/incoming/acme/iris/{_VERSION_ID}.tar.gz"
    parts = (UploadPart(1, 0, PART_BYTES, f"{address}?partNumber=1&uploadId=...", {"Content-Length": str(PART_BYTES)}, uploaded=False),)
    in_parts, upload = Upload("PUT", None, {}, _LATER, parts), Upload("PUT", f"{address}?X-Amz-Signature=...", headers, _LATER)
    route = Route("shared", "AllTraffic", _VERSION_ID, f"acme/iris/{_VERSION_ID}.tar.gz")
    canary = Canary("shared", "AllTraffic", _CANARY_ID, f"acme/iris/{_CANARY_ID}.tar.gz", 10)
    model = Model("acme", "iris", 2, _NOW, _LATER, replace(route, canary=canary))
    schemas = Schemas(_TOLD)
    schemas.of(Tenant("acme", _NOW, _NOW))
    schemas.components["KeylessTenant"] = dict(schemas.components["Tenant"])
    schemas.of(IssuedKey("acme", Tier.STANDARD, "a1b2c3d4e5", "(a secret of 20 characters or more)"))
    schemas.components["DeletedTenant"] = _with_note(schemas.components["Tenant"])
    _tell_usage(schemas, Usage("acme", 3, 144_639))
    schemas.of(in_parts)
    schemas.of(Registered(replace(version, state=State.AWAITING_UPLOAD), upload, created=True))
    schemas.components["ModelPage"] = _page("models", schemas.of(model))
    schemas.components["VersionPage"] = _page("versions", schemas.of(version))
    schemas.of(canary)
    for name, record in (("DeletedModel", "Model"), ("RetiredVersion", "Version")):
        schemas.components[name] = _with_note(schemas.components[record])
    schemas.components["OpenApi"] = {"type": "object", "required": ["openapi", "info", "paths"], "description": "An OpenAPI 3.1 document."}
    schemas.components["Running"] = _RUNNING
    schemas.components["Problem"] = _PROBLEM
    bodies = request_shapes(max_artifact_bytes=ARTIFACT_BYTES, frameworks=FRAMEWORKS)
    return {**schemas.components, **{name: shape.schema() for name, shape in bodies.items()}}


def _tell_usage(schemas: Schemas, usage: Usage) -> None:
    """A tenant is shown with its usage, which is a record of its own."""
    tenant, told = schemas.components["Tenant"], {**schemas.of(usage), "description": "what it uses of its quotas now"}
    tenant["properties"]["usage"] = told
    tenant["required"].append("usage")
    for shown in tenant["examples"]:
        shown["usage"] = usage.document()


def _with_note(schema: Schema) -> Schema:
    """The schema of a record that is not wanted any more: with what becomes of the copies that instances hold."""
    (example,) = schema["examples"]
    says = {"type": "string", "description": "when the copies vanish that instances hold"}
    return {
        **schema,
        "properties": {**schema["properties"], "cached_copies": says},
        "required": [*schema["required"], "cached_copies"],
        "examples": [{**example, "cached_copies": CACHED_COPIES}],
    }


_RUNNING: Schema = {
    "type": "object",
    "description": "A request whose answer is still to come.",
    "required": ["state"],
    "properties": {"state": {"type": "string", "enum": ["running"], "description": "how far it is"}},
}


_PROBLEM: Schema = {
    "type": "object",
    "description": "What went wrong (RFC 9457).",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "enum": [problem.type for problem in PROBLEMS.values()], "description": "which problem it is, stable"},
        "title": {"type": "string", "description": "what it is, the same for every occurrence"},
        "status": {"type": "integer", "description": "the HTTP status"},
        "detail": {"type": ["string", "null"], "description": "one sentence about this occurrence; `null` where API Gateway says nothing"},
        "field": {"type": "string", "description": "which input is meant, such as `sample.body`"},
        "value": {"description": "the value got; long ones are cut"},
        "allowed": {
            "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
            "description": "what is allowed instead, in words or as a list",
        },
    },
}


def _page(member: str, item: Schema) -> Schema:
    return {
        "type": "object",
        "required": [member],
        "properties": {
            member: {"type": "array", "items": item, "maxItems": LIMIT.greatest},
            "next": {"type": "string", "description": "the `cursor` of the next page; not there on the last one"},
        },
    }


def _operation(operation: Operation, contract: Contract, responses: dict[str, Schema]) -> Schema:
    names = [part.strip("{}") for part in operation.path.split("/") if part.startswith("{")]
    told: Schema = {
        "operationId": operation.id,
        "summary": operation.summary,
        "tags": [_tag(operation)],
        "x-mme-roles": sorted(operation.roles),
        "parameters": [{"name": name, "in": "path", "required": True, **_NAMES[name]} for name in names],
    }
    if contract.pages:
        told["parameters"] += [
            {
                "name": "limit",
                "in": "query",
                "description": "Greatest length of the page.",
                "schema": {**LIMIT.schema(), "default": PAGE_ITEMS},
            },
            {
                "name": "cursor",
                "in": "query",
                "description": "Where the page begins: `next` of the page before.",
                "schema": CURSORS[_tag(operation)].schema(),
            },
        ]
    for flag, meaning in contract.flags.items():
        told["parameters"].append({"name": flag, "in": "query", "description": meaning, "schema": {**FLAG.schema(), "default": "false"}})
    for header, meaning in contract.headers.items():
        told["parameters"].append({"name": header, "in": "header", "description": meaning, "schema": _HEADER_SCHEMAS[header]})
    if contract.once:
        says = "Any text that names this request: the same request with the same key is done once."
        told["parameters"].append({"name": KEY_HEADER, "in": "header", "description": says, "schema": KEY.schema()})
    if contract.body is not None:
        reference = {"$ref": f"#/components/schemas/{contract.body}"}
        told["requestBody"] = {"required": not contract.body_optional, "content": {"application/json": {"schema": reference}}}
    if contract.any_body:
        told["requestBody"] = {
            "required": False,
            "description": f"The request to the model, at most {api_binary_body_bytes()} bytes, in whatever media type the model takes.",
            "content": {"text/csv": {"schema": {"type": "string"}, "example": _ROW}, "*/*": {"schema": _BINARY}},
        }
    told["responses"] = {str(status): _answer(answer) for status, answer in sorted(contract.answers.items())}
    by_status: dict[int, list[str]] = {}
    for slug in sorted({*COMMON, *contract.problems}):
        by_status.setdefault(PROBLEMS[slug].status, []).append(slug)
    for status, slugs in sorted(by_status.items()):
        name = ".".join(slugs)
        responses.setdefault(name, _refusal(status, slugs))
        told["responses"][str(status)] = {"$ref": f"#/components/responses/{name}"}
    return told


KEY_HEADER = "Idempotency-Key"


def _tag(operation: Operation) -> str:
    named = [part for part in operation.path.split("/") if part and not part.startswith("{")]
    return (
        named[-1]
        if named[-1] in ("tenants", "models", "versions", "invocations")
        else next((part for part in reversed(named[:-1]) if part in ("tenants", "models", "versions")), "document")
    )


def _answer(answer: Answer) -> Schema:
    schema = _BINARY if answer.schema is None else {"$ref": f"#/components/schemas/{answer.schema}"}
    told: Schema = {
        "description": answer.says,
        "content": {"*/*" if answer.schema is None else "application/json": {"schema": schema}},
    }
    if answer.headers:
        told["headers"] = {name: {"$ref": f"#/components/headers/{name}"} for name in answer.headers}
    if answer.links:
        told["links"] = {name: {"operationId": name, "parameters": dict(values)} for name, values in answer.links.items()}
    return told


def _refusal(status: int, slugs: list[str]) -> Schema:
    types = [PROBLEMS[slug].type for slug in slugs]
    narrowed: Schema = {"properties": {"type": {"enum": types}, "status": {"const": status}}}
    told: Schema = {
        "description": "; ".join(PROBLEMS[slug].title for slug in slugs) + ".",
        "content": {
            CONTENT_TYPE: {
                "schema": {"allOf": [{"$ref": "#/components/schemas/Problem"}, narrowed]},
                "examples": {slug: {"value": _example(slug)} for slug in slugs},
            }
        },
    }
    if status in _RETRIED:
        told["headers"] = {"Retry-After": {"$ref": "#/components/headers/Retry-After"}}
    return told


def _example(slug: str) -> dict[str, Any]:
    problem = PROBLEMS[slug]
    return {"type": problem.type, "title": problem.title, "status": problem.status, "detail": _DETAILS.get(slug, problem.title)}


_DETAILS: Mapping[str, str] = {
    "invalid-request": "framework 'caffe' is not allowed: use xgboost, sklearn",
    "forbidden": "these credentials do not allow this call",
    "tenant-not-found": "tenant 'acme' does not exist: create it with PUT /tenants/acme",
    "model-not-found": "tenant 'acme' has no model 'iris': register a version of it first",
    "version-not-found": f"model 'iris' has no version '{_VERSION_ID}'",
    "payload-too-large": "size_bytes is 2000000000 bytes: at most 1073741824 bytes are allowed",
    "throttled": "Too Many Requests",
    "timeout": "Endpoint request timed out",
}
