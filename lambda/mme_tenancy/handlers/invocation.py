"""``POST /tenants/{tenant}/models/{model}/invocations``: body in, body out.

The tenant in the path is the caller's own: IAM authorization confines a caller to its own paths before the function runs, and with
another authorizer the function compares the verified tenant with the path. Import stays light: no event resolver, no validation library.
"""

from __future__ import annotations

import os
import random
import re
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import boto3

from mme_facts.api import OPERATIONS, STICKY_KEY_HEADER, STICKY_KEY_PATTERN, Function
from mme_facts.environment import Callers
from mme_facts.grammar import GrammarError, check_model_id, check_tenant_id
from mme_facts.limits import API_GATEWAY_TIMEOUT_SECONDS, api_binary_body_bytes
from mme_facts.telemetry import LineSettings
from mme_tenancy.aws.clients import dynamodb_client, runtime_client
from mme_tenancy.aws.dynamodb import DynamoRegistry
from mme_tenancy.aws.sagemaker import SageMakerRuntime
from mme_tenancy.callers import attempt, verified_caller
from mme_tenancy.clock import Clock, SystemClock
from mme_tenancy.errors import (
    AnswerTooLargeError,
    ForbiddenError,
    InternalError,
    InvalidRequestError,
    ModelNotFoundError,
    NoActiveVersionError,
    PayloadTooLargeError,
    TenancyError,
    TenantNotFoundError,
)
from mme_tenancy.handlers.http import Event, LambdaContext, answer, at_cold_start, body_of, header_of, problem_answer
from mme_tenancy.invocation import InvocationRequest, Invoker
from mme_tenancy.registry import Registry, model_key, tenant_key
from mme_tenancy.retries import Failure
from mme_tenancy.routes import Route
from mme_tenancy.settings import InvocationSettings
from mme_tenancy.telemetry import invocation_line, write_line
from mme_tenancy.tracing import Trace

__all__ = ["Invocations", "LambdaContext", "handler"]

_GATEWAY_MARGIN_SECONDS = 2.0
"""Left for the way back, so that our answer arrives before API Gateway cuts."""
_CONTEXT_MARGIN_SECONDS = 0.5
_MAX_START_SECONDS = 10.0
"""The gateway's clock is believed up to this: a function starts in less, so more is a wrong clock."""
_STICKY_KEY = re.compile(STICKY_KEY_PATTERN)
_ANSWER_BYTES = api_binary_body_bytes()
(_ROLES,) = (operation.roles for operation in OPERATIONS if operation.function is Function.INVOCATION)


@dataclass(frozen=True, slots=True)
class Invocations:
    """The function, wired.

    Args:
        registry: where the route is.
        invoker: the shared invocation path.
        clock: time.
        line_settings: of the log line.
        callers: how callers are known. Default: by IAM.
        random: numbers in [0, 1): the sticky key of requests that bring none.
    """

    registry: Registry
    invoker: Invoker
    clock: Clock
    line_settings: LineSettings = field(default_factory=LineSettings)
    callers: Callers = field(default_factory=Callers)
    random: Callable[[], float] = random.random

    def __call__(self, event: Event, context: LambdaContext) -> dict[str, Any]:
        """Answer one call and write one log line."""
        started = self.clock.monotonic()
        trace = Trace.read(header_of(event, "traceparent"), os.environ.get("_X_AMZN_TRACE_ID") or header_of(event, "X-Amzn-Trace-Id"))
        line: dict[str, object] = {"request_id": (event.get("requestContext") or {}).get("requestId")}
        line |= {"trace_id": trace.id, "xray_trace_id": trace.xray_id, "sampled": trace.sampled}
        try:
            response = self._invoke(event, self._deadline(event, context, started), line, trace)
        except ForbiddenError as error:
            line |= attempt(event, self.callers, error)
            response = self._problem(error, line)
        except TenancyError as error:
            response = self._problem(error, line)
        except Exception:
            line["exception"] = traceback.format_exc()
            response = self._problem(InternalError(), line)
        status = response["statusCode"]
        latency_ms = round((self.clock.monotonic() - started) * 1000, 1)
        line |= {"status": status, "failed": int(status >= 500), "latency_ms": latency_ms}
        write_line(invocation_line(line, epoch_seconds=self.clock.time(), settings=self.line_settings))
        return response

    def _invoke(self, event: Event, deadline: float, line: dict[str, object], trace: Trace) -> dict[str, Any]:
        caller = verified_caller(event, self.callers)
        line["caller"] = caller.name
        tenant, model = _names(event)
        caller.check(_ROLES, tenant)
        line |= {"tenant": tenant, "model": model}
        body = body_of(event)
        line["bytes_in"] = len(body)
        if len(body) > _ANSWER_BYTES:
            raise PayloadTooLargeError.of_limit("body", len(body), _ANSWER_BYTES)
        request = InvocationRequest(body, header_of(event, "Content-Type"), header_of(event, "Accept"), traceparent=trace.traceparent)
        request.check()
        key = _sticky_key(event)
        route = self._route(tenant, model)
        target = route.choose(repr(self.random()) if key is None else key)
        line |= {"version": target.version, "endpoint": target.endpoint, "placement": "shared"}
        line |= {"canary": None if route.canary is None else int(target == route.canary.target)}
        line |= {"attempts": 0, "retries": 0, "cold": 0, "throttled": 0}
        outcome = self.invoker.invoke(target, request, deadline=deadline)
        line |= {"attempts": outcome.attempts, "retries": outcome.attempts - 1, "cold": int(outcome.cold)}
        line |= {"waited_ms": round(outcome.waited_seconds * 1000), "throttled": int(outcome.failure is Failure.THROTTLED)}
        line["model_latency_ms"] = None if outcome.model_seconds is None else round(outcome.model_seconds * 1000, 1)
        line |= {"failure": outcome.failure and outcome.failure.value, "fault": outcome.fault}
        reply = outcome.answer()
        line["bytes_out"] = len(reply.body)
        if len(reply.body) > _ANSWER_BYTES:
            raise AnswerTooLargeError(
                f"the model's answer is {len(reply.body)} bytes: at most {_ANSWER_BYTES} bytes fit through the API; ask for less at once"
            )
        headers = {"X-Mme-Version": target.version, "X-Mme-Attempts": str(outcome.attempts)}
        return answer(200, reply.body, reply.content_type or "application/octet-stream", headers)

    def _route(self, tenant: str, model: str) -> Route:
        owner, record = self.registry.read(tenant_key(tenant), model_key(tenant, model))
        if owner is None:
            raise TenantNotFoundError(tenant)
        owner.check_open()
        if record is None or record.retired_at is not None:
            raise ModelNotFoundError(tenant, model)
        if record.route is None:
            raise NoActiveVersionError(model)
        return record.route

    def _deadline(self, event: Event, context: LambdaContext, started: float) -> float:
        """When our answer must be on its way: what is left of the gateway's time, counted from the request's arrival there."""
        arrived_ms = (event.get("requestContext") or {}).get("requestTimeEpoch")
        elapsed = self.clock.wall() - arrived_ms / 1000 if isinstance(arrived_ms, int | float) else 0.0
        elapsed = min(max(elapsed, 0.0), _MAX_START_SECONDS)
        left = API_GATEWAY_TIMEOUT_SECONDS - _GATEWAY_MARGIN_SECONDS - elapsed
        return started + min(left, context.get_remaining_time_in_millis() / 1000 - _CONTEXT_MARGIN_SECONDS)

    def _problem(self, error: TenancyError, line: dict[str, object]) -> dict[str, Any]:
        line["problem"] = error.problem.slug
        return problem_answer(error)


def _sticky_key(event: Event) -> str | None:
    """What requests that belong together have in common, such as a user's id. It is never logged: it may be personal."""
    key = header_of(event, STICKY_KEY_HEADER)
    if key is not None and not _STICKY_KEY.fullmatch(key):
        raise InvalidRequestError.of_field(STICKY_KEY_HEADER, "(not shown)", "1 to 256 printable ASCII characters, no space at an end")
    return key


def _names(event: Event) -> tuple[str, str]:
    path = event.get("pathParameters") or {}
    try:
        return check_tenant_id(path.get("tenant", "")), check_model_id(path.get("model", ""))
    except GrammarError as error:
        raise InvalidRequestError.of_grammar(error) from error


@at_cold_start
def _application() -> Invocations:
    settings = InvocationSettings.read(os.environ)
    session, clock = boto3.Session(), SystemClock()
    runtime = SageMakerRuntime(lambda seconds: runtime_client(session, seconds))
    # A request that waited for this start has less time left, and so another client.
    for seconds in (0.0, _GATEWAY_MARGIN_SECONDS):
        runtime.prepare(API_GATEWAY_TIMEOUT_SECONDS - _GATEWAY_MARGIN_SECONDS - seconds)
    registry = DynamoRegistry(dynamodb_client(session), settings.table_name)
    return Invocations(registry, Invoker(runtime, clock, random.random), clock, settings.line, settings.callers)


def handler(event: Event, context: LambdaContext) -> dict[str, Any]:
    """The Lambda's entry point."""
    return _application()(event, context)
