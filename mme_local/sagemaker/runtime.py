"""The SageMaker runtime: InvokeEndpoint and InvokeEndpointWithResponseStream."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Protocol

from mme_facts import runtime_errors
from mme_facts.limits import INVOKE_BODY_BYTES
from mme_local.dataplane.interface import DataPlaneError, InvokeReply, InvokeRequest, InvokeStream, StreamFailed, UnknownFleet
from mme_local.emulator import Request, authorize
from mme_local.eventstream import CONTENT_TYPE, frame
from mme_local.faults import Faults
from mme_local.sagemaker.models import SageMaker
from mme_local.sagemaker.resources import Endpoint, InferenceComponent, Run
from mme_local.wire import AwsError, Reply, StreamReply, ValidationError, service_model

__all__ = ["COLD_HEADER", "INSTANCE_HEADER", "OPERATIONS", "Runtime", "too_large"]

INSTANCE_HEADER = "x-amzn-mme-local-instance"
"""Local only: the instance that answered."""
COLD_HEADER = "x-amzn-mme-local-cold"
"""Local only: whether the request waited for its model."""

OPERATIONS = ("InvokeEndpoint", "InvokeEndpointWithResponseStream")
"""The operations of the runtime that are served."""

_SERVING = ("InService", "Updating", "SystemUpdating", "RollingBack", "UpdateRollbackFailed")
_COMPONENT, _TARGET_MODEL = "x-amzn-sagemaker-inference-component", "x-amzn-sagemaker-target-model"
_PART = {":event-type": "PayloadPart", ":content-type": "application/octet-stream", ":message-type": "event"}
_PART_BYTES = 16 * 1024
_TOO_LARGE_STATUS = 500
_CONTAINER = "primary"
"""What AWS calls a container without a name of its own in the text of ModelError."""


@dataclass(frozen=True, slots=True)
class _Call:
    """What is asked of which fleet, on behalf of whom."""

    request: InvokeRequest
    run: Run
    endpoint: Endpoint
    variant: str


class Failures(Protocol):
    """`mme_local.metrics.publisher.EndpointMetrics`, as far as it is told of what no fleet sees."""

    def failed(self, endpoint: str, variant: str, component: str | None, status: int, *, by_model: bool, answered: bool) -> None:
        """Count an invocation that failed."""


class Runtime:
    """Serves invocations.

    Args:
        sagemaker: the endpoints.
        faults: what shall go wrong; nothing by default.
        failures: counts the invocations that fail before a fleet has them, or after it has answered.
    """

    def __init__(self, sagemaker: SageMaker, faults: Faults | None = None, failures: Failures | None = None) -> None:
        self._sagemaker, self._faults, self._failures = sagemaker, faults or Faults(), failures

    async def invoke(self, request: Request, endpoint_name: str) -> Reply:
        """Answer one InvokeEndpoint.

        Raises:
            AwsError: a modelled error of the runtime.
            AccessDeniedError: the caller may not invoke the endpoint, or not with this TargetModel.
        """
        call = await self._routed(request, endpoint_name, "InvokeEndpoint")
        try:
            reply = await self._sagemaker.hosting.ask(call.run, call.request)
        except UnknownFleet:
            raise _gone(call) from None
        if reply.error is None and len(reply.body) > INVOKE_BODY_BYTES:
            text = f"The response of the model has {len(reply.body)} bytes: at most {INVOKE_BODY_BYTES} are allowed.".encode()
            reply = replace(reply, status=424, body=text, error="ModelError", original_status=_TOO_LARGE_STATUS)
            self._count(reply, call.endpoint, call.variant, request.headers.get(_COMPONENT), answered=True)
        if reply.error is not None:
            raise self._error(reply, call.endpoint)
        headers = _headers(reply, call)
        headers["Content-Type"] = reply.content_type or "application/octet-stream"
        return reply.status, headers, reply.body

    async def stream(self, request: Request, endpoint_name: str) -> StreamReply:
        """Answer one InvokeEndpointWithResponseStream, which multi-model endpoints do not have.

        Raises:
            AwsError: a modelled error of the runtime.
            AccessDeniedError: the caller may not invoke the endpoint.
        """
        call = await self._routed(request, endpoint_name, "InvokeEndpointWithResponseStream")
        try:
            answer = await self._sagemaker.hosting.open_stream(call.run, call.request)
        except UnknownFleet:
            raise _gone(call) from None
        if answer.error is not None:
            await answer.aclose()
            raise self._error(answer, call.endpoint)
        headers = _headers(answer, call)
        headers["Content-Type"] = CONTENT_TYPE
        headers["X-Amzn-SageMaker-Content-Type"] = answer.content_type or "application/octet-stream"
        return StreamReply(answer.status, headers, _events(answer), answer.aclose)

    async def _routed(self, request: Request, endpoint_name: str, operation: str) -> _Call:
        """What is asked of which fleet; raises what InvokeEndpoint refuses before it reaches a container."""
        component_name, target_model = request.headers.get(_COMPONENT), request.headers.get(_TARGET_MODEL)
        self._authorize(request, endpoint_name, component_name, target_model)
        given = _parameters(request, endpoint_name, operation)
        if "SessionId" in given:
            raise AwsError(
                "ValidationError", "SessionId: the local cloud serves no sessions, because its containers open none. Leave it out."
            )
        endpoint = self._serving(endpoint_name)
        component = self._component(endpoint, component_name, given)
        if component is None:
            self._check_target(endpoint, given, operation)
        if (failed := await self._faults.invoke(endpoint.name, target_model or component_name or "")) is not None:
            name = component.variant_name if component is not None else given.get("TargetVariant", endpoint.variants[0].name)
            self._count(failed, endpoint, name, component_name, answered=False)
            raise self._error(failed, endpoint)
        asking = InvokeRequest(
            body=request.body,
            target_model=target_model,
            content_type=given.get("ContentType"),
            accept=given.get("Accept"),
            custom_attributes=given.get("CustomAttributes"),
        )
        if component is not None:
            return _Call(asking, self._sagemaker.components.run_for_request(component), endpoint, component.variant_name)
        variant = self._sagemaker.hosting.choose(endpoint, given.get("TargetVariant"))
        assert variant.run is not None, "the endpoint serves models"
        return _Call(asking, variant.run, endpoint, variant.name)

    def _count(self, reply: InvokeReply, endpoint: Endpoint, variant: str, component: str | None, *, answered: bool) -> None:
        if self._failures is not None:
            by_model = reply.error == runtime_errors.MODEL_ERROR
            status = reply.original_status if by_model and reply.original_status is not None else reply.status
            self._failures.failed(endpoint.name, variant, component, status, by_model=by_model, answered=answered)

    def _authorize(self, request: Request, endpoint_name: str, component: str | None, target_model: str | None) -> None:
        """The streaming operation asks for the same action (API reference: InvokeEndpointWithResponseStream)."""
        context = {} if target_model is None else {"sagemaker:TargetModel": target_model}
        # The action names both kinds of resources; a caller needs the one that it names (Service Authorization Reference).
        arn_of = self._sagemaker.arn
        arn = arn_of("endpoint", endpoint_name) if component is None else arn_of("inference-component", component)
        authorize(request, "sagemaker:InvokeEndpoint", arn, {**context, **self._sagemaker.tag_context(arn)})

    def _serving(self, name: str) -> Endpoint:
        endpoint = self._sagemaker.endpoints.get(name)
        if endpoint is None or not endpoint.variants or endpoint.status not in _SERVING:
            raise AwsError("ValidationError", f"Endpoint {name} of account {self._sagemaker.account} not found.")
        return endpoint

    def _component(self, endpoint: Endpoint, name: str | None, given: Mapping[str, Any]) -> InferenceComponent | None:
        """The component that is named; ``None`` for an endpoint of models."""
        if name is None:
            if endpoint.hosts_components:
                raise AwsError(
                    "ValidationError",
                    "Inference Component Name header is required for endpoints to which you plan to deploy inference components. Please "
                    "include Inference Component Name header or consider using SageMaker models.",
                )
            return None
        if not endpoint.hosts_components:
            raise AwsError(
                "ValidationError",
                "Inference Component Name header is not allowed for endpoints to which you do not plan to deploy inference components. "
                "Please remove Inference Component Name header or consider using inference components.",
            )
        component = self._sagemaker.components.by_name.get(name)
        if component is None or component.endpoint_name != endpoint.name:
            raise AwsError("ValidationError", f"Inference Component {name} not found for endpoint {endpoint.name}.")
        for member in ("TargetModel", "TargetContainerHostname"):
            if member in given:
                raise AwsError("ValidationError", f"{member} is not allowed when invoking the inference component {name}.")
        if given.get("TargetVariant", component.variant_name) != component.variant_name:
            raise AwsError("ValidationError", f"Inference Component {name} is not on variant {given['TargetVariant']}.")
        return component

    def _check_target(self, endpoint: Endpoint, given: Mapping[str, Any], operation: str) -> None:
        target_model, name = given.get("TargetModel"), given.get("TargetVariant")
        variant = endpoint.variants[0] if name is None else endpoint.variant(name)
        if variant is None:
            raise AwsError("ValidationError", f"Variant {name} not found for endpoint {endpoint.name}.")
        if variant.single_model:
            if target_model is not None:
                raise AwsError(
                    "ValidationError",
                    f"Endpoint {endpoint.name} is not a multi-model endpoint and does not support target model header {target_model}.",
                )
        elif operation != "InvokeEndpoint":
            raise AwsError("ValidationError", f"Endpoint {endpoint.name} is a multi-model endpoint: it has no response streaming.")
        elif target_model is None:
            raise AwsError("ValidationError", f"Endpoint {endpoint.name} is a multi-model endpoint: invoking it requires TargetModel.")
        if "TargetContainerHostname" in given:
            kind = "" if variant.single_model else "multi-model "
            raise AwsError("ValidationError", f"TargetContainerHostname is not allowed when invoking the {kind}endpoint {endpoint.name}.")

    def _error(self, reply: InvokeReply | InvokeStream, endpoint: Endpoint) -> AwsError:
        """The error of a refused invocation: the one place where the text of ModelError is made."""
        assert reply.error is not None
        message = reply.message or ""
        if reply.error != "ModelError":
            return AwsError(reply.error, message, reply.status)
        log_group = f"/aws/sagemaker/Endpoints/{endpoint.name}"
        region, account = self._sagemaker.region, self._sagemaker.account
        original = reply.body.decode("utf-8", "replace") or message
        status = 500 if reply.original_status is None else reply.original_status
        return AwsError(
            "ModelError",
            f"Received {'client' if 400 <= status < 500 else 'server'} error ({status}) from {_CONTAINER} with message "
            f'"{original}". See https://{region}.console.aws.amazon.com/cloudwatch/home?region={region}'
            f"#logEventViewer:group={log_group} in account {account} for more information.",
            reply.status,
            OriginalStatusCode=status,
            OriginalMessage=original,
            LogStreamArn=f"arn:aws:logs:{region}:{account}:log-group:{log_group}",
        )


def _gone(call: _Call) -> AwsError:
    """The fleet went while the request was on its way: the endpoint is being deleted."""
    return AwsError("ServiceUnavailable", f"Endpoint {call.endpoint.name} is unavailable: its instances are being stopped.", 503)


def _parameters(request: Request, endpoint_name: str, operation: str) -> Mapping[str, Any]:
    """The members of a request but its body, which come in headers, validated by the service's model."""
    members = service_model("sagemaker-runtime", OPERATIONS).header_members(operation)
    given = tuple((member, request.headers[header]) for header, member in members.items() if header in request.headers)
    if operation != "InvokeEndpoint" and _TARGET_MODEL in request.headers:
        raise AwsError("ValidationError", f"{operation} does not support TargetModel.")
    return _validated(operation, endpoint_name, given)


@lru_cache(1024)
def _validated(operation: str, endpoint_name: str, given: tuple[tuple[str, str], ...]) -> Mapping[str, Any]:
    """Requests resemble each other: what was right once is not checked again."""
    request = {**dict(given), "EndpointName": endpoint_name, "Body": ""}
    try:
        return service_model("sagemaker-runtime", OPERATIONS).validated(operation, request)
    except ValidationError as error:
        raise AwsError("ValidationError", error.message) from None


def _headers(reply: InvokeReply | InvokeStream, call: _Call) -> dict[str, str]:
    headers = {"x-Amzn-Invoked-Production-Variant": call.variant, COLD_HEADER: "true" if reply.cold else "false"}
    if reply.instance is not None:
        headers[INSTANCE_HEADER] = reply.instance
    told = call.request.custom_attributes if reply.custom_attributes is None else reply.custom_attributes
    if told is not None:
        headers["X-Amzn-SageMaker-Custom-Attributes"] = told
    return headers


async def _events(answer: InvokeStream) -> AsyncGenerator[bytes, None]:
    """An answer as events; what breaks off is told by the modelled exceptions of the stream."""
    try:
        async for chunk in answer.chunks:
            for start in range(0, len(chunk), _PART_BYTES):
                yield frame(_PART, chunk[start : start + _PART_BYTES])
    except StreamFailed as error:
        yield _exception("ModelStreamError", Message=str(error), ErrorCode=error.code)
    except DataPlaneError as error:
        yield _exception("InternalStreamFailure", Message=str(error))


def _exception(name: str, **members: str) -> bytes:
    headers = {":exception-type": name, ":content-type": "application/json", ":message-type": "exception"}
    return frame(headers, json.dumps(members).encode())


def too_large() -> AwsError:
    """The body exceeds the limit of InvokeEndpoint."""
    return AwsError("RequestEntityTooLargeException", f"HTTP content length exceeded {INVOKE_BODY_BYTES} bytes.", 413)
