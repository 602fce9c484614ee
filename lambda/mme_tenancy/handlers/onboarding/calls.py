"""One call of the onboarding API: its names, body, query and idempotency key; and its answers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from aws_lambda_powertools.event_handler import Response

from mme_facts.grammar import ID_PATTERN, check_model_id, check_tenant_id
from mme_tenancy.clock import Clock
from mme_tenancy.errors import ModelNotFoundError, TenantNotFoundError, UnsupportedMediaTypeError
from mme_tenancy.handlers.http import Event, LambdaContext, body_of, header_of, seconds_left
from mme_tenancy.idempotency import IdempotencyKey, IdempotencyStore, StoredAnswer, idempotent
from mme_tenancy.registry import Registry
from mme_tenancy.routes import Model
from mme_tenancy.shapes import Choice, Obj, Text, Whole, parse_json
from mme_tenancy.tenants import Tenant

__all__ = ["CURSORS", "FLAG", "KEEP_SECONDS", "LIMIT", "PAGE_ITEMS", "Call", "json_answer", "model_of", "tenant_of", "write_cursor"]

KEEP_SECONDS = 86_400
"""How long an answer is given again to the same `Idempotency-Key`, unless it is worthless sooner."""
PAGE_ITEMS, LIMIT = 50, Whole(1, 200)
"""How many items a page has unless the caller says so, and what it may say."""
_NEXT = "the value of 'next' in the answer before"
CURSORS = {
    "models": Text(_NEXT, pattern=rf"models\.{ID_PATTERN}"),
    "versions": Text(_NEXT, pattern=r"versions\.[1-9][0-9]{0,5}"),
}
"""Kind of a list -> its cursors: the last item of the page before. Callers are told to take them as they come."""
FLAG = Choice(("true", "false"))
"""A query parameter that is set or not."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call as a function of ours sees it.

    Attributes:
        event: API Gateway's proxy event.
        store: idempotency keys.
        clock: time.
        context: Lambda's context.
    """

    event: Event
    store: IdempotencyStore
    clock: Clock
    context: LambdaContext

    def deadline(self) -> float:
        """When the answer must be on its way, on the monotonic clock."""
        return self.clock.monotonic() + seconds_left(self.event, self.context, self.clock.wall())

    def body(self) -> bytes:
        """The request's body; raises `InvalidRequestError`."""
        return body_of(self.event)

    def fields(self, shape: Obj, *, optional: bool = False) -> dict[str, Any]:
        """The members of a JSON body, checked, with defaults filled in.

        Args:
            shape: what the body may hold.
            optional: whether no body at all counts as an empty object.

        Raises:
            InvalidRequestError: the body is not what ``shape`` says; the error names the field.
            PayloadTooLargeError: a member is above a limit of its size.
            UnsupportedMediaTypeError: the body is said to be something else than JSON.
        """
        body, media_type = self.body(), header_of(self.event, "Content-Type")
        if body and media_type is not None and media_type.split(";", 1)[0].strip().lower() != "application/json":
            raise UnsupportedMediaTypeError.of_field("Content-Type", media_type, ["application/json"])
        return shape.check("body", parse_json(body or (b"{}" if optional else b"")))

    def limit(self) -> int:
        """How many items a page may have; raises `InvalidRequestError`."""
        text = self._parameter("limit")
        if text is None:
            return PAGE_ITEMS
        return LIMIT.check("limit", int(text) if re.fullmatch("[1-9][0-9]{0,8}", text) else text)

    def flag(self, name: str) -> bool:
        """Whether a query parameter is ``true``; without it ``False``. Raises `InvalidRequestError`."""
        return FLAG.check(name, self._parameter(name) or "false") == "true"

    def cursor(self, kind: str) -> str | None:
        """The item that `write_cursor` wrote of for a list of this kind; raises `InvalidRequestError`."""
        text = self._parameter("cursor")
        return None if text is None else CURSORS[kind].check("cursor", text).partition(".")[2]

    def once(self, tenant: str, request: Mapping[str, object], work: Callable[[], StoredAnswer], *, keep_seconds: int) -> Response[str]:
        """Answer ``work``, or what it answered before to the same ``Idempotency-Key``.

        Args:
            tenant: whose key it is.
            request: what makes two requests the same, as a JSON value.
            work: does it; what it raises frees the key.
            keep_seconds: how long the answer is given again.

        Raises:
            IdempotencyConflictError: the key was used with another request.
            RequestInProgressError: the first request is still running.
            InvalidRequestError: the key is not one.
        """
        key = header_of(self.event, "Idempotency-Key")
        if key is None:
            return _stored(work(), replayed=False)
        route = f"{self.event['httpMethod']} {self.event['resource']}"
        given, replayed = idempotent(
            self.store, IdempotencyKey(tenant, route, key), request, work, clock=self.clock, keep_seconds=keep_seconds
        )
        return _stored(given, replayed=replayed)

    def _parameter(self, name: str) -> str | None:
        parameters: Mapping[str, str] = self.event.get("queryStringParameters") or {}
        return parameters.get(name)


def tenant_of(registry: Registry, tenant: str) -> Tenant:
    """The tenant's record; raises `TenantNotFoundError` or `GrammarError`."""
    record = registry.tenant(check_tenant_id(tenant))
    if record is None:
        raise TenantNotFoundError(tenant)
    return record


def model_of(registry: Registry, tenant: str, model: str) -> Model:
    """The model's record; raises `ModelNotFoundError`, `TenantNotFoundError` or `GrammarError`."""
    check_tenant_id(tenant)
    record = registry.model(tenant, check_model_id(model))
    if record is None:
        tenant_of(registry, tenant)
        raise ModelNotFoundError(tenant, model)
    return record


def json_answer(status: int, document: Mapping[str, object], headers: Mapping[str, str] | None = None) -> Response[str]:
    """An answer with a JSON document."""
    return Response(status, "application/json", json.dumps(document), headers=dict(headers or {}))


def write_cursor(kind: str, last: str) -> str:
    """The cursor behind the item ``last`` of a list of this kind."""
    return CURSORS[kind].check("cursor", f"{kind}.{last}")


def _stored(given: StoredAnswer, *, replayed: bool) -> Response[str]:
    headers = {"Idempotency-Replayed": "true"} if replayed else {}
    return Response(given.status, "application/json", given.body, headers=headers)
