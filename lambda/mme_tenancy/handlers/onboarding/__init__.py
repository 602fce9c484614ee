"""The onboarding API: tenants, models and versions. One module a resource; `mme_facts.api` says which call goes where."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import boto3
from aws_lambda_powertools.event_handler import APIGatewayRestResolver, Response

from mme_facts.api import KEY_OPERATIONS, OPERATIONS, Function, Operation, Role
from mme_facts.environment import Callers
from mme_facts.grammar import GrammarError, VersionId, check_model_id, check_tenant_id
from mme_facts.problems import CONTENT_TYPE
from mme_tenancy.activation import Activator
from mme_tenancy.aws.api_keys import GatewayApiKeys
from mme_tenancy.aws.clients import apigateway_client, dynamodb_client, events_client, runtime_client, s3_client
from mme_tenancy.aws.dynamodb import DynamoRegistry
from mme_tenancy.aws.failures import is_passing
from mme_tenancy.aws.idempotency import DynamoIdempotencyStore
from mme_tenancy.aws.sagemaker import SageMakerRuntime
from mme_tenancy.aws.sweeping import EventAdmissions
from mme_tenancy.aws.uploads import S3UploadSigner
from mme_tenancy.callers import attempt, known_caller, verified_caller
from mme_tenancy.clock import Clock, SystemClock
from mme_tenancy.errors import (
    ForbiddenError,
    InternalError,
    InvalidRequestError,
    MethodNotAllowedError,
    ResourceNotFoundError,
    TenancyError,
    UnavailableError,
)
from mme_tenancy.handlers.http import Event, at_cold_start, problem_headers
from mme_tenancy.handlers.invocation import LambdaContext
from mme_tenancy.handlers.log import service_logger
from mme_tenancy.handlers.onboarding.api_keys import ApiKeyCalls, KeysOf
from mme_tenancy.handlers.onboarding.calls import Call
from mme_tenancy.handlers.onboarding.document import DocumentCalls
from mme_tenancy.handlers.onboarding.models import ModelCalls
from mme_tenancy.handlers.onboarding.retirements import RetirementCalls
from mme_tenancy.handlers.onboarding.tenants import TenantCalls
from mme_tenancy.handlers.onboarding.versions import VersionCalls
from mme_tenancy.idempotency import IdempotencyStore
from mme_tenancy.invocation import Invoker, Outcome
from mme_tenancy.registration import Registrar
from mme_tenancy.registry import Registry
from mme_tenancy.retirement import Retirer
from mme_tenancy.routes import Target
from mme_tenancy.settings import OnboardingSettings
from mme_tenancy.versions import Version
from mme_tenancy.warming import SampleCaller

__all__ = ["Onboarding", "handler"]

_METHODS = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")

logger = service_logger("onboarding")


class Onboarding:
    """The function, wired.

    Args:
        registry: tenants, models and versions.
        registrar: registers versions.
        activator: changes routes.
        retirer: retires what is not wanted any more.
        store: idempotency keys.
        max_artifact_bytes: greatest admissible artifact.
        clock: time.
        callers: how callers are known. Default: by IAM.
        keys_of: the tenants' keys at the gateway. Default: the platform has no usage plans.
    """

    def __init__(
        self,
        registry: Registry,
        registrar: Registrar,
        activator: Activator,
        retirer: Retirer,
        store: IdempotencyStore,
        max_artifact_bytes: int,
        clock: Clock,
        callers: Callers | None = None,
        keys_of: KeysOf | None = None,
    ) -> None:
        keys = ApiKeyCalls(registry, keys_of)
        self._callers = Callers() if callers is None else callers
        self._resources = (
            DocumentCalls(max_artifact_bytes, registrar.frameworks, self._callers, usage_plans=keys_of is not None),
            TenantCalls(registry, registrar.frameworks, keys),
            keys,
            ModelCalls(registry, activator),
            VersionCalls(registry, registrar, max_artifact_bytes),
            RetirementCalls(retirer, keys),
        )
        self._store = store
        self._clock = clock
        self._resolver = APIGatewayRestResolver()
        self._add_routes()
        self._resolver.exception_handler(Exception)(_unexpected)
        self._resolver.exception_handler(GrammarError)(lambda error: _problem(InvalidRequestError.of_grammar(error)))
        self._resolver.exception_handler(TenancyError)(_problem)
        self._resolver.not_found(lambda _error: _problem(self._unmatched()))

    def __call__(self, event: Event, context: LambdaContext) -> dict[str, Any]:
        """Answer one call and write one log line."""
        started = self._clock.monotonic()
        response = self._resolver.resolve(dict(event), context)  # type: ignore[arg-type] # Powertools wants its own class
        caller = known_caller(event, self._callers)
        logger.info(
            "call",
            extra={
                "method": event.get("httpMethod"),
                "route": event.get("resource"),
                "names": event.get("pathParameters"),
                "status": response["statusCode"],
                "latency_ms": round((self._clock.monotonic() - started) * 1000, 1),
                "caller": None if caller is None else caller.name,
                "request_id": (event.get("requestContext") or {}).get("requestId"),
            },
        )
        return response

    def _add_routes(self) -> None:
        methods: dict[str, list[str]] = {}
        for operation in (*OPERATIONS, *KEY_OPERATIONS):
            if operation.function is Function.ONBOARDING:
                rule = operation.path.replace("{", "<").replace("}", ">")
                methods.setdefault(rule, []).append(operation.method)
                self._resolver.route(rule, operation.method)(self._answer(operation))
        for rule, known in methods.items():
            self._resolver.route(rule, [method for method in _METHODS if method not in known])(self._not_allowed(sorted(known)))

    def _answer(self, operation: Operation) -> Callable[..., Response[str]]:
        (resource,) = (resource for resource in self._resources if hasattr(resource, operation.id))
        method: Callable[..., Response[str]] = getattr(resource, operation.id)

        def answer(**names: str) -> Response[str]:
            self._admit(operation.roles, names)
            context: LambdaContext = self._resolver.lambda_context
            return method(Call(self._resolver.current_event.raw_event, self._store, self._clock, context), **names)

        return answer

    def _unmatched(self) -> TenancyError:
        """Why the path is none of ours: API Gateway lets any text stand for a name, the resolver only some characters."""
        names: Mapping[str, str] = self._resolver.current_event.raw_event.get("pathParameters") or {}
        try:
            self._admit(frozenset(Role), names)
            for name, check in (("tenant", check_tenant_id), ("model", check_model_id), ("version", VersionId.parse)):
                if name in names:
                    check(names[name])
        except ForbiddenError as error:
            return error
        except GrammarError as error:
            return InvalidRequestError.of_grammar(error)
        return ResourceNotFoundError("the path is not part of this API")

    def _not_allowed(self, methods: list[str]) -> Callable[..., Response[str]]:
        def refuse(**names: str) -> Response[str]:
            self._admit(frozenset(Role), names)
            raise MethodNotAllowedError(f"the path knows {', '.join(methods)} only", allowed=methods)

        return refuse

    def _admit(self, roles: frozenset[Role], names: Mapping[str, str]) -> None:
        """Refuse and log a call that is not for its caller. ``names`` are the very ones that the call is answered for."""
        event = self._resolver.current_event.raw_event
        try:
            verified_caller(event, self._callers).check(roles, names.get("tenant"))
        except ForbiddenError as error:
            logger.warning("refused", extra={**attempt(event, self._callers, error), "method": event.get("httpMethod"), "names": names})
            raise


def _problem(error: TenancyError) -> Response[str]:
    return Response(error.problem.status, CONTENT_TYPE, json.dumps(error.document()), headers=problem_headers(error))


def _unexpected(error: Exception) -> Response[str]:
    logger.exception("unexpected", exc_info=error)
    if is_passing(error):
        return _problem(UnavailableError("the service cannot answer at the moment: try again", retry_after_seconds=2))
    return _problem(InternalError())


def _tell_warmed(version: Version, target: Target, outcome: Outcome) -> None:
    told = {
        "tenant": version.tenant,
        "model": version.model,
        "version": str(version.id),
        "endpoint": target.endpoint,
        "attempts": outcome.attempts,
        "cold": outcome.cold,
        "failure": outcome.failure,
        "fault": outcome.fault,
    }
    if outcome.reply is None:
        logger.warning("not warmed", extra=told)
    else:
        logger.info("warmed", extra=told)


@at_cold_start
def _application() -> Onboarding:
    settings = OnboardingSettings.read(os.environ)
    session, clock = boto3.Session(), SystemClock()
    client = dynamodb_client(session)
    registry = DynamoRegistry(client, settings.table_name)
    signer = S3UploadSigner(s3_client(session), settings.bucket_name, clock)
    admissions = EventAdmissions(events_client(session), settings.bucket_name)
    registrar = Registrar(registry, signer, settings.pools, clock, random.random, admissions)
    # Made by the first activation that needs it: a client of the runtime takes a part of a second.
    runtime = SageMakerRuntime(lambda seconds: runtime_client(session, seconds))
    warmer = SampleCaller(Invoker(runtime, clock, random.random), _tell_warmed)
    activator = Activator(registry, settings.pools, clock, random.random, warmer)
    retirer = Retirer(registry, clock, random.random, grace_seconds=settings.retired_seconds)
    store = DynamoIdempotencyStore(client, settings.table_name)
    keys_of = cache(partial(GatewayApiKeys, partial(apigateway_client, session))) if settings.usage_plans else None
    return Onboarding(registry, registrar, activator, retirer, store, settings.max_artifact_bytes, clock, settings.callers, keys_of)


def handler(event: Event, context: LambdaContext) -> dict[str, Any]:
    """The Lambda's entry point."""
    return _application()(event, context)
