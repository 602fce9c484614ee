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
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any

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
from mme_facts.limits import api_binary_body_bytes
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
from mme_tenancy.handlers.http import (
    CONTEXT_MARGIN_SECONDS,
    GATEWAY_SECONDS,
    Event,
    LambdaContext,
    answer,
    at_cold_start,
    body_of,
    header_of,
    problem_answer,
    seconds_left,
)
from mme_tenancy.invocation import InvocationRequest, Invoker
from mme_tenancy.invocation_path import InvocationPath, looked_up_in
from mme_tenancy.request_line import RequestLine
from mme_tenancy.settings import InvocationSettings
from mme_tenancy.tracing import Trace

if TYPE_CHECKING:
    from mme_tenancy.deferred import Deferred

__all__ = ["Invocations", "LambdaContext", "handler"]

_KEEPING_SECONDS = 5.0
"""Left of a background run for keeping its answer."""
_OWN_EVENT = "mme_deferred"
_STICKY_KEY = re.compile(STICKY_KEY_PATTERN)
_ANSWER_BYTES = api_binary_body_bytes()
_ROLES = next(operation.roles for operation in OPERATIONS if operation.function is Function.INVOCATION)


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
        deferred: makes, at first use, what answers later. Default: every request is answered at once.
    """

    path: InvocationPath
    clock: Clock
    line_settings: LineSettings = field(default_factory=LineSettings)
    callers: Callers = field(default_factory=Callers)
    random: Callable[[], float] = random.random
    usage_plans: bool = False
    deferred: Callable[[], Deferred] | None = None

    def __call__(self, event: Event, context: LambdaContext) -> dict[str, Any]:
        """Answer one call and write one log line; the calls around a request that is answered later have one between them."""
        if _OWN_EVENT in event and self.deferred is not None:
            return self._run(event[_OWN_EVENT], context, self.deferred())
        line, started = RequestLine(self.clock, self.line_settings), self.clock.monotonic()
        trace = Trace.read(header_of(event, "traceparent"), os.environ.get("_X_AMZN_TRACE_ID") or header_of(event, "X-Amzn-Trace-Id"))
        line.fields["request_id"] = (event.get("requestContext") or {}).get("requestId")
        line.fields |= {"trace_id": trace.id, "xray_trace_id": trace.xray_id, "sampled": trace.sampled}
        response = self._answered(lambda: self._invoke(event, self._deadline(event, context, started), line, trace), line, event)
        if not line.told_elsewhere:
            line.write(response["statusCode"])
        return response

    def _answered(self, answer: Callable[[], dict[str, Any]], line: RequestLine, event: Event) -> dict[str, Any]:
        try:
            return answer()
        except ForbiddenError as error:
            line.fields |= attempt(event, self.callers, error)
            return _problem(error, line)
        except TenancyError as error:
            if error.__cause__ is not None:
                line.fields["fault"] = repr(error.__cause__)
            return _problem(error, line)
        except Exception:
            line.fields["exception"] = traceback.format_exc()
            return _problem(InternalError(), line)

    def _invoke(self, event: Event, deadline: float, line: RequestLine, trace: Trace) -> dict[str, Any]:
        if event.get("httpMethod") == "GET":
            return self._result(event, deadline, line)
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
        api_key = _api_key(event) if self.usage_plans else None
        if self.deferred is not None and header_of(event, "Prefer") is not None and _wants_later(event):
            request.check()
            kept = {
                "model": model,
                "content_type": request.content_type,
                "accept": request.accept,
                "traceparent": trace.traceparent,
                "sticky_key": key,
                "api_key": api_key,
                "seconds": header_of(event, REQUEST_TIMEOUT_HEADER),
                "line": {name: line.fields.get(name) for name in ("request_id", "trace_id", "xray_trace_id", "sampled", "caller")},
            }
            return _accept(self.deferred(), tenant, kept, body, deadline, line)
        return self._serve(tenant, model, request, deadline, key, api_key, line)

    def _serve(
        self,
        tenant: str,
        model: str,
        request: InvocationRequest,
        deadline: float,
        key: str | None,
        api_key: str | None,
        line: RequestLine,
    ) -> dict[str, Any]:
        served = self.path.invoke(
            tenant,
            model,
            request,
            deadline=deadline,
            sticky_key=repr(self.random()) if key is None else key,
            began=line.began,
            api_key=api_key,
        )
        line.ended(served)
        reply = served.outcome.answer()
        if len(reply.body) > _ANSWER_BYTES:
            raise AnswerTooLargeError(
                f"the model's answer is {len(reply.body)} bytes: at most {_ANSWER_BYTES} bytes fit through the API; ask for less at once"
            )
        headers = {"X-Mme-Version": served.target.version, "X-Mme-Attempts": str(served.outcome.attempts)}
        return answer(200, reply.body, reply.content_type or "application/octet-stream", headers)

    def _run(self, told: Mapping[str, str], context: LambdaContext, deferred: Deferred) -> dict[str, Any]:
        """Run a request in the background and keep its answer; what fails before it begins fails the event, which Lambda sends again."""
        line, tenant, result = RequestLine(self.clock, self.line_settings), told["tenant"], told["result"]
        ends = self.clock.monotonic() + context.get_remaining_time_in_millis() / 1000 - CONTEXT_MARGIN_SECONDS
        deadline = ends - _KEEPING_SECONDS
        begun = deferred.begin(tenant, result, deadline=deadline)
        if begun is None:
            return {}
        kept, body = begun
        if kept["seconds"] is not None:
            deadline = min(deadline, self.clock.monotonic() + float(kept["seconds"]))
        line.fields |= {**kept["line"], "tenant": tenant, "model": kept["model"], "bytes_in": len(body)}
        request = InvocationRequest(body, kept["content_type"], kept["accept"], traceparent=kept["traceparent"])
        serve = partial(self._serve, tenant, kept["model"], request, deadline, kept["sticky_key"], kept["api_key"], line)
        response = self._answered(serve, line, {})
        line.write(response["statusCode"])
        deferred.finish(tenant, result, response, accepted_at=kept["accepted_at"], deadline=ends)
        return {}

    def _result(self, event: Event, deadline: float, line: RequestLine) -> dict[str, Any]:
        """The answer of a request that was to be answered later."""
        from mme_tenancy.deferred import poll_headers, unknown_result

        caller = verified_caller(event, self.callers)
        line.fields["caller"] = caller.name
        names = event.get("pathParameters") or {}
        tenant = str(names.get("tenant", ""))
        caller.check(_ROLES, tenant)
        if self.deferred is None:
            raise unknown_result()
        found = self.deferred().answer(tenant, str(names.get("result", "")), deadline=deadline)
        line.told_elsewhere = True
        return answer(202, b'{"state":"running"}', "application/json", poll_headers()) if found is None else found

    def _deadline(self, event: Event, context: LambdaContext, started: float) -> float:
        """When our answer must be on its way."""
        return started + min(seconds_left(event, context, self.clock.wall()), _wanted_seconds(event))


def _wants_later(event: Event) -> bool:
    from mme_tenancy.deferred import wants_later

    many = event.get("multiValueHeaders") or {name: [value] for name, value in (event.get("headers") or {}).items()}
    return wants_later(str(value) for name, values in many.items() if name.lower() == "prefer" for value in values or ())


def _accept(deferred: Deferred, tenant: str, kept: Mapping[str, Any], body: bytes, deadline: float, line: RequestLine) -> dict[str, Any]:
    from mme_tenancy.deferred import accepted_headers

    result = deferred.accept(tenant, kept, body, deadline=deadline)
    line.told_elsewhere = True
    return answer(202, b'{"state":"running"}', "application/json", accepted_headers(result))


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


def _deferred(
    session: boto3.Session, acting: boto3.Session, settings: InvocationSettings, tenancy: TenantSessions | None, clock: Clock
) -> Deferred:
    """Made at the first request that is answered later: few are."""
    import json

    from mme_tenancy.aws.clients import lambda_client, s3_client
    from mme_tenancy.aws.results import S3Results
    from mme_tenancy.deferred import Deferred

    client, name = lambda_client(session), os.environ["AWS_LAMBDA_FUNCTION_NAME"]

    def start(event: Mapping[str, Any]) -> None:
        client.invoke(FunctionName=name, InvocationType="Event", Payload=json.dumps(event).encode())

    results = S3Results(s3_client(acting, read_timeout_seconds=5), settings.bucket_name)
    return Deferred(results, or_unavailable(start), clock, seconds=settings.result_seconds, tenancy=tenancy)


@at_cold_start
def _application() -> Invocations:
    settings = InvocationSettings.read(os.environ)
    session, clock = boto3.Session(), SystemClock()
    tenancy = _tenancy(session, settings.tenant_role_arn, clock)
    invoking = session if tenancy is None else tenancy.boto3_session(session)
    runtime = SageMakerRuntime(lambda seconds: runtime_client(invoking, seconds))
    runtime.prepare(GATEWAY_SECONDS)
    registry = DynamoRegistry(dynamodb_client(session), settings.table_name)
    path = InvocationPath(
        or_unavailable(looked_up_in(registry)),
        Invoker(runtime, clock, random.random),
        clock,
        background=ThreadPoolExecutor(1).submit,
        tenancy=tenancy,
        changes=registry.changes,
    )
    deferred = cache(partial(_deferred, session, invoking, settings, tenancy, clock)) if settings.result_seconds else None
    return Invocations(path, clock, settings.line, settings.callers, usage_plans=settings.usage_plans, deferred=deferred)


def handler(event: Event, context: LambdaContext) -> dict[str, Any]:
    """The Lambda's entry point."""
    return _application()(event, context)
