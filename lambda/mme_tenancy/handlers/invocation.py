"""``POST /tenants/{tenant}/models/{model}/invocations``: body in, body out.

The tenant in the path is the caller's own: IAM authorization confines a caller to its own paths before the function runs, and with
another authorizer the function compares the verified tenant with the path. Import stays light: no event resolver, no validation library.
"""

from __future__ import annotations

import math
import os
import random
import re
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import boto3

from mme_facts.api import (
    LEAST_TIMEOUT_SECONDS,
    OPERATIONS,
    REQUEST_TIMEOUT_HEADER,
    STICKY_KEY_HEADER,
    STICKY_KEY_PATTERN,
    Function,
)
from mme_facts.environment import Callers
from mme_facts.grammar import GrammarError, check_model_id, check_tenant_id
from mme_facts.limits import API_GATEWAY_TIMEOUT_SECONDS, api_binary_body_bytes
from mme_facts.telemetry import LineSettings
from mme_tenancy.aws.clients import dynamodb_client, runtime_client, sts_client
from mme_tenancy.aws.dynamodb import DynamoRegistry
from mme_tenancy.aws.failures import or_unavailable
from mme_tenancy.aws.sagemaker import SageMakerRuntime
from mme_tenancy.aws.tenant_sessions import TenantSessions, assume_tenant
from mme_tenancy.callers import attempt, verified_caller
from mme_tenancy.clock import Clock, SystemClock
from mme_tenancy.errors import (
    AnswerTooLargeError,
    ForbiddenError,
    InternalError,
    InvalidRequestError,
    PayloadTooLargeError,
    TenancyError,
)
from mme_tenancy.handlers.http import Event, LambdaContext, answer, at_cold_start, body_of, header_of, problem_answer
from mme_tenancy.invocation import InvocationRequest, Invoker
from mme_tenancy.invocation_path import InvocationPath, looked_up_in
from mme_tenancy.request_line import RequestLine
from mme_tenancy.settings import InvocationSettings
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
        path: the shared invocation path.
        clock: time.
        line_settings: of the log line.
        callers: how callers are known. Default: by IAM.
        random: numbers in [0, 1): the sticky key of requests that bring none.
        usage_plans: whether a call comes with its tenant's API key.
    """

    path: InvocationPath
    clock: Clock
    line_settings: LineSettings = field(default_factory=LineSettings)
    callers: Callers = field(default_factory=Callers)
    random: Callable[[], float] = random.random
    usage_plans: bool = False

    def __call__(self, event: Event, context: LambdaContext) -> dict[str, Any]:
        """Answer one call and write one log line."""
        line, started = RequestLine(self.clock, self.line_settings), self.clock.monotonic()
        trace = Trace.read(header_of(event, "traceparent"), os.environ.get("_X_AMZN_TRACE_ID") or header_of(event, "X-Amzn-Trace-Id"))
        line.fields["request_id"] = (event.get("requestContext") or {}).get("requestId")
        line.fields |= {"trace_id": trace.id, "xray_trace_id": trace.xray_id, "sampled": trace.sampled}
        try:
            response = self._invoke(event, self._deadline(event, context, started), line, trace)
        except ForbiddenError as error:
            line.fields |= attempt(event, self.callers, error)
            response = _problem(error, line)
        except TenancyError as error:
            if error.__cause__ is not None:
                line.fields["fault"] = repr(error.__cause__)
            response = _problem(error, line)
        except Exception:
            line.fields["exception"] = traceback.format_exc()
            response = _problem(InternalError(), line)
        line.write(response["statusCode"])
        return response

    def _invoke(self, event: Event, deadline: float, line: RequestLine, trace: Trace) -> dict[str, Any]:
        caller = verified_caller(event, self.callers)
        line.fields["caller"] = caller.name
        tenant, model = _names(event)
        caller.check(_ROLES, tenant)
        line.fields |= {"tenant": tenant, "model": model}
        body = body_of(event)
        line.fields["bytes_in"] = len(body)
        if len(body) > _ANSWER_BYTES:
            raise PayloadTooLargeError.of_limit("body", len(body), _ANSWER_BYTES)
        request = InvocationRequest(body, header_of(event, "Content-Type"), header_of(event, "Accept"), traceparent=trace.traceparent)
        key = _sticky_key(event)
        served = self.path.invoke(
            tenant,
            model,
            request,
            deadline=deadline,
            sticky_key=repr(self.random()) if key is None else key,
            began=line.began,
            api_key=_api_key(event) if self.usage_plans else None,
        )
        line.ended(served)
        reply = served.outcome.answer()
        if len(reply.body) > _ANSWER_BYTES:
            raise AnswerTooLargeError(
                f"the model's answer is {len(reply.body)} bytes: at most {_ANSWER_BYTES} bytes fit through the API; ask for less at once"
            )
        headers = {"X-Mme-Version": served.target.version, "X-Mme-Attempts": str(served.outcome.attempts)}
        return answer(200, reply.body, reply.content_type or "application/octet-stream", headers)

    def _deadline(self, event: Event, context: LambdaContext, started: float) -> float:
        """When our answer must be on its way: what is left of the gateway's time, counted from the request's arrival there."""
        arrived_ms = (event.get("requestContext") or {}).get("requestTimeEpoch")
        elapsed = self.clock.wall() - arrived_ms / 1000 if isinstance(arrived_ms, int | float) else 0.0
        elapsed = min(max(elapsed, 0.0), _MAX_START_SECONDS)
        left = API_GATEWAY_TIMEOUT_SECONDS - _GATEWAY_MARGIN_SECONDS - elapsed
        left = min(left, context.get_remaining_time_in_millis() / 1000 - _CONTEXT_MARGIN_SECONDS)
        return started + min(left, _wanted_seconds(event))


def _problem(error: TenancyError, line: RequestLine) -> dict[str, Any]:
    line.failed(error)
    return problem_answer(error)


def _wanted_seconds(event: Event) -> float:
    """How long the caller waits; without end if it does not say."""
    text = header_of(event, REQUEST_TIMEOUT_HEADER)
    if text is None:
        return math.inf
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not (LEAST_TIMEOUT_SECONDS <= seconds < math.inf):
        raise InvalidRequestError.of_field(REQUEST_TIMEOUT_HEADER, text, f"seconds, at least {LEAST_TIMEOUT_SECONDS}")
    return seconds


def _sticky_key(event: Event) -> str | None:
    """What requests that belong together have in common, such as a user's id. It is never logged: it may be personal."""
    key = header_of(event, STICKY_KEY_HEADER)
    if key is not None and not _STICKY_KEY.fullmatch(key):
        raise InvalidRequestError.of_field(STICKY_KEY_HEADER, "(not shown)", "1 to 256 printable ASCII characters, no space at an end")
    return key


def _api_key(event: Event) -> str:
    """Id of the key that API Gateway took the call by; empty, which is nobody's, if it says none."""
    identity = (event.get("requestContext") or {}).get("identity") or {}
    return str(identity.get("apiKeyId") or "")


def _names(event: Event) -> tuple[str, str]:
    path = event.get("pathParameters") or {}
    try:
        return check_tenant_id(path.get("tenant", "")), check_model_id(path.get("model", ""))
    except GrammarError as error:
        raise InvalidRequestError.of_grammar(error) from error


def _tenancy(session: boto3.Session, role_arn: str | None, clock: Clock) -> TenantSessions | None:
    return None if role_arn is None else TenantSessions(assume_tenant(partial(sts_client, session), role_arn), clock)


@at_cold_start
def _application() -> Invocations:
    settings = InvocationSettings.read(os.environ)
    session, clock = boto3.Session(), SystemClock()
    tenancy = _tenancy(session, settings.tenant_role_arn, clock)
    invoking = session if tenancy is None else tenancy.boto3_session(session)
    runtime = SageMakerRuntime(lambda seconds: runtime_client(invoking, seconds))
    runtime.prepare(API_GATEWAY_TIMEOUT_SECONDS - _GATEWAY_MARGIN_SECONDS)
    registry = DynamoRegistry(dynamodb_client(session), settings.table_name)
    path = InvocationPath(
        or_unavailable(looked_up_in(registry)),
        Invoker(runtime, clock, random.random),
        clock,
        background=ThreadPoolExecutor(1).submit,
        tenancy=tenancy,
        changes=registry.changes,
    )
    return Invocations(path, clock, settings.line, settings.callers, usage_plans=settings.usage_plans)


def handler(event: Event, context: LambdaContext) -> dict[str, Any]:
    """The Lambda's entry point."""
    return _application()(event, context)
