"""The onboarding API: tenants, models and versions."""

from __future__ import annotations

import base64
import binascii
import json
import os
import random
from collections.abc import Callable, Mapping
from typing import Any

import boto3
from aws_lambda_powertools.event_handler import APIGatewayRestResolver, Response

from mme_facts.grammar import GrammarError, VersionId, check_model_id, check_tenant_id
from mme_facts.problems import CONTENT_TYPE
from mme_tenancy.aws.clients import dynamodb_client, s3_client
from mme_tenancy.aws.dynamodb import DynamoIdempotencyStore, DynamoRegistry
from mme_tenancy.aws.s3 import S3UploadSigner
from mme_tenancy.clock import Clock, SystemClock, timestamp
from mme_tenancy.errors import (
    InternalError,
    InvalidRequestError,
    MethodNotAllowedError,
    ModelNotFoundError,
    ResourceNotFoundError,
    TenancyError,
    TenantNotFoundError,
    VersionNotFoundError,
    WriteConflictError,
)
from mme_tenancy.handlers.http import Event, at_cold_start, body_of, caller_of, header_of, problem_headers
from mme_tenancy.handlers.invocation import LambdaContext
from mme_tenancy.handlers.log import service_logger
from mme_tenancy.idempotency import IdempotencyKey, IdempotencyStore, StoredAnswer, idempotent
from mme_tenancy.registration import UPLOAD_SECONDS, Registrar, parse_object, parse_registration
from mme_tenancy.registry import Change, Registry
from mme_tenancy.routes import Model
from mme_tenancy.settings import OnboardingSettings
from mme_tenancy.tenants import Tenant

__all__ = ["Onboarding", "handler"]

_METHODS = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")
_PAGE_ITEMS, _MAX_PAGE_ITEMS = 50, 200
_VERSIONS_ROUTE = "/tenants/{tenant}/models/{model}/versions"

logger = service_logger("onboarding")


class Onboarding:
    """The function, wired.

    Args:
        registry: tenants, models and versions.
        registrar: registers versions.
        store: idempotency keys.
        max_artifact_bytes: greatest admissible artifact.
        clock: time.
    """

    def __init__(self, registry: Registry, registrar: Registrar, store: IdempotencyStore, max_artifact_bytes: int, clock: Clock) -> None:
        self._registry = registry
        self._registrar = registrar
        self._store = store
        self._max_artifact_bytes = max_artifact_bytes
        self._clock = clock
        self._resolver = APIGatewayRestResolver()
        self._add_routes()
        self._resolver.exception_handler(Exception)(_unexpected)
        self._resolver.exception_handler(GrammarError)(lambda error: _problem(InvalidRequestError.of_grammar(error)))
        self._resolver.exception_handler(TenancyError)(_problem)
        self._resolver.not_found(lambda _error: _problem(ResourceNotFoundError("the path is not part of this API")))

    def __call__(self, event: Event, context: LambdaContext) -> dict[str, Any]:
        """Answer one call and write one log line."""
        started = self._clock.monotonic()
        response = self._resolver.resolve(dict(event), context)  # type: ignore[arg-type] # Powertools wants its own class
        logger.info(
            "call",
            extra={
                "method": event.get("httpMethod"),
                "route": event.get("resource"),
                "names": event.get("pathParameters"),
                "status": response["statusCode"],
                "latency_ms": round((self._clock.monotonic() - started) * 1000, 1),
                "caller": caller_of(event),
                "request_id": (event.get("requestContext") or {}).get("requestId"),
            },
        )
        return response

    def _add_routes(self) -> None:
        tenant, models = "/tenants/<tenant>", "/tenants/<tenant>/models"
        versions = f"{models}/<model>/versions"
        routes: dict[str, dict[str, Callable[..., Response[str]]]] = {
            tenant: {"PUT": self.put_tenant, "GET": self.get_tenant},
            models: {"GET": self.list_models},
            f"{models}/<model>": {"GET": self.get_model},
            versions: {"POST": self.register, "GET": self.list_versions},
            f"{versions}/<version>": {"GET": self.get_version},
        }
        for rule, methods in routes.items():
            for method, function in methods.items():
                self._resolver.route(rule, method)(function)
            self._resolver.route(rule, [method for method in _METHODS if method not in methods])(_not_allowed(sorted(methods)))

    def put_tenant(self, tenant: str) -> Response[str]:
        """Create a tenant; 200 if it exists."""
        check_tenant_id(tenant)
        parse_object(self._body() or b"{}", ())
        now = timestamp(self._clock.time())
        created = Tenant(tenant, now, now)
        try:
            self._registry.write(Change(None, created))
        except WriteConflictError:
            return _json(200, self._tenant(tenant).document())
        return _json(201, created.document())

    def get_tenant(self, tenant: str) -> Response[str]:
        """Show a tenant."""
        return _json(200, self._tenant(tenant).document())

    def list_models(self, tenant: str) -> Response[str]:
        """List a tenant's models by id."""
        self._tenant(tenant)
        cursor = self._cursor("models")
        try:
            after = None if cursor is None else check_model_id(cursor)
        except GrammarError as error:
            raise _bad_cursor() from error
        page = self._registry.models(tenant, limit=self._limit(), after=after)
        document: dict[str, object] = {"models": [model.document() for model in page.items]}
        if page.more and page.items:
            document["next"] = _write_cursor("models", page.items[-1].model)
        return _json(200, document)

    def get_model(self, tenant: str, model: str) -> Response[str]:
        """Show a model."""
        return _json(200, self._model(tenant, model).document())

    def register(self, tenant: str, model: str) -> Response[str]:
        """Register a version: 201, or 200 if the same artifact is awaited already; both with a signed upload."""
        check_tenant_id(tenant)
        check_model_id(model)
        body = self._body()
        registration = parse_registration(body, max_artifact_bytes=self._max_artifact_bytes, frameworks=self._registrar.frameworks)

        def register() -> StoredAnswer:
            registered = self._registrar.register(tenant, model, registration)
            return StoredAnswer(201 if registered.created else 200, json.dumps(registered.document()))

        key = header_of(self._resolver.current_event.raw_event, "Idempotency-Key")
        if key is None:
            return _stored(register(), replayed=False)
        given, replayed = idempotent(
            self._store,
            IdempotencyKey(tenant, f"POST {_VERSIONS_ROUTE}", key),
            {"model": model, "body": json.loads(body)},
            register,
            clock=self._clock,
            # Not longer than the signed upload in the answer is of use.
            keep_seconds=UPLOAD_SECONDS,
        )
        return _stored(given, replayed=replayed)

    def list_versions(self, tenant: str, model: str) -> Response[str]:
        """List a model's versions, newest first."""
        self._model(tenant, model)
        cursor = self._cursor("versions")
        if cursor is not None and not (cursor.isascii() and cursor.isdigit() and len(cursor) <= 6):
            raise _bad_cursor()
        page = self._registry.versions(tenant, model, limit=self._limit(), before=None if cursor is None else int(cursor))
        document: dict[str, object] = {"versions": [version.document() for version in page.items]}
        if page.more and page.items:
            document["next"] = _write_cursor("versions", str(page.items[-1].number))
        return _json(200, document)

    def get_version(self, tenant: str, model: str, version: str) -> Response[str]:
        """Show a version: its state, why it was rejected, how long each step took."""
        wanted = VersionId.parse(version)
        self._model(tenant, model)
        record = self._registry.version(tenant, model, wanted.number)
        if record is None or record.id != wanted:
            raise VersionNotFoundError(model, version)
        return _json(200, record.document())

    def _tenant(self, tenant: str) -> Tenant:
        record = self._registry.tenant(check_tenant_id(tenant))
        if record is None:
            raise TenantNotFoundError(tenant)
        return record

    def _model(self, tenant: str, model: str) -> Model:
        check_tenant_id(tenant)
        record = self._registry.model(tenant, check_model_id(model))
        if record is None:
            self._tenant(tenant)
            raise ModelNotFoundError(tenant, model)
        return record

    def _body(self) -> bytes:
        return body_of(self._resolver.current_event.raw_event)

    def _parameter(self, name: str) -> str | None:
        parameters: Mapping[str, str] = self._resolver.current_event.raw_event.get("queryStringParameters") or {}
        return parameters.get(name)

    def _limit(self) -> int:
        text = self._parameter("limit")
        if text is None:
            return _PAGE_ITEMS
        if not (text.isascii() and text.isdigit() and len(text) <= 4 and 1 <= int(text) <= _MAX_PAGE_ITEMS):
            raise InvalidRequestError.of_field("limit", text, f"a whole number from 1 to {_MAX_PAGE_ITEMS}")
        return int(text)

    def _cursor(self, kind: str) -> str | None:
        text = self._parameter("cursor")
        return None if text is None else _read_cursor(kind, text)


def _write_cursor(kind: str, last: str) -> str:
    return base64.urlsafe_b64encode(f"{kind}:{last}".encode()).decode().rstrip("=")


def _read_cursor(kind: str, text: str) -> str:
    try:
        got, last = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True).decode("ascii").split(":", 1)
    except (binascii.Error, ValueError) as error:
        raise _bad_cursor() from error
    if got != kind:
        raise _bad_cursor()
    return last


def _bad_cursor() -> InvalidRequestError:
    return InvalidRequestError("the cursor is not one of this list", field="cursor", allowed="the value of 'next' in the answer before")


def _json(status: int, document: Mapping[str, object], headers: Mapping[str, str] | None = None) -> Response[str]:
    return Response(status, "application/json", json.dumps(document), headers=dict(headers or {}))


def _stored(given: StoredAnswer, *, replayed: bool) -> Response[str]:
    headers = {"Idempotency-Replayed": "true"} if replayed else {}
    return Response(given.status, "application/json", given.body, headers=headers)


def _problem(error: TenancyError) -> Response[str]:
    return Response(error.problem.status, CONTENT_TYPE, json.dumps(error.document()), headers=problem_headers(error))


def _unexpected(error: Exception) -> Response[str]:
    logger.exception("unexpected", exc_info=error)
    return _problem(InternalError())


def _not_allowed(methods: list[str]) -> Callable[..., Response[str]]:
    def refuse(**_names: str) -> Response[str]:
        raise MethodNotAllowedError(f"the path knows {', '.join(methods)} only", allowed=methods)

    return refuse


@at_cold_start
def _application() -> Onboarding:
    settings = OnboardingSettings.read(os.environ)
    session, clock = boto3.Session(), SystemClock()
    client = dynamodb_client(session)
    registry = DynamoRegistry(client, settings.table_name)
    signer = S3UploadSigner(s3_client(session), settings.bucket_name, clock)
    registrar = Registrar(registry, signer, settings.pools, clock, random.random)
    return Onboarding(registry, registrar, DynamoIdempotencyStore(client, settings.table_name), settings.max_artifact_bytes, clock)


def handler(event: Event, context: LambdaContext) -> dict[str, Any]:
    """The Lambda's entry point."""
    return _application()(event, context)
