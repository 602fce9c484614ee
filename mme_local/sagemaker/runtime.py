"""The SageMaker runtime: InvokeEndpoint."""

from __future__ import annotations

import re

from mme_facts.limits import INVOKE_BODY_BYTES, TARGET_MODEL_CHARACTERS
from mme_local.dataplane.interface import InvokeReply, InvokeRequest
from mme_local.emulator import Request, authorize
from mme_local.faults import Faults
from mme_local.sagemaker.models import SageMaker
from mme_local.sagemaker.resources import Endpoint, Variant
from mme_local.wire import AwsError, Reply

__all__ = ["COLD_HEADER", "INSTANCE_HEADER", "Runtime"]

INSTANCE_HEADER = "x-amzn-mme-local-instance"
"""Local only: the instance that answered."""
COLD_HEADER = "x-amzn-mme-local-cold"
"""Local only: whether the request waited for its model."""

_TARGET_MODEL = re.compile(r"\S[ -~]*")
_CUSTOM_ATTRIBUTES_CHARACTERS = 1024
_COMPONENT = "x-amzn-sagemaker-inference-component"
_NOT_IMPLEMENTED = 501
_SERVING = ("InService", "Updating", "SystemUpdating", "RollingBack")


class Runtime:
    """Serves InvokeEndpoint.

    Args:
        sagemaker: the endpoints.
        faults: what shall go wrong; nothing by default.
    """

    def __init__(self, sagemaker: SageMaker, faults: Faults | None = None) -> None:
        self._sagemaker, self._faults = sagemaker, faults or Faults()

    async def invoke(self, request: Request, endpoint_name: str) -> Reply:
        """Answer one InvokeEndpoint.

        Raises:
            AwsError: a modelled error of the runtime.
            AccessDeniedError: the caller may not invoke the endpoint, or not with this TargetModel.
        """
        target_model = request.headers.get("x-amzn-sagemaker-target-model")
        if (component := request.headers.get(_COMPONENT)) is not None:
            # The action names both kinds of resources; a caller needs the one that it names (Service Authorization Reference).
            component_arn = self._sagemaker.arn("inference-component", component)
            authorize(request, "sagemaker:InvokeEndpoint", component_arn, self._sagemaker.tag_context(component_arn))
            raise self._component_error(self._serving(endpoint_name), component)
        context = {} if target_model is None else {"sagemaker:TargetModel": target_model}
        arn = self._sagemaker.arn("endpoint", endpoint_name)
        authorize(request, "sagemaker:InvokeEndpoint", arn, {**context, **self._sagemaker.tag_context(arn)})
        endpoint = self._serving(endpoint_name)
        _check(request, endpoint, target_model)
        if (failed := await self._faults.invoke(endpoint.name, target_model or "")) is not None:
            raise self._error(failed, endpoint, endpoint.variants[0].name)
        custom_attributes = request.headers.get("x-amzn-sagemaker-custom-attributes")
        variant, reply = await self._sagemaker.invoke(
            endpoint,
            InvokeRequest(
                body=request.body,
                target_model=target_model,
                content_type=request.headers.get("content-type"),
                accept=request.headers.get("accept"),
                custom_attributes=custom_attributes,
            ),
            request.headers.get("x-amzn-sagemaker-target-variant"),
        )
        if reply.error is not None:
            raise self._error(reply, endpoint, variant.name)
        return _answer(reply, variant, custom_attributes)

    def _serving(self, name: str) -> Endpoint:
        endpoint = self._sagemaker.endpoints.get(name)
        if endpoint is None or not endpoint.variants or endpoint.status not in _SERVING:
            raise AwsError("ValidationError", f"Endpoint {name} of account {self._sagemaker.account} not found.")
        return endpoint

    def _component_error(self, endpoint: Endpoint, name: str) -> AwsError:
        component = self._sagemaker.components.by_name.get(name)
        if component is None or component.endpoint_name != endpoint.name:
            return AwsError("ValidationError", f"Inference Component {name} not found for endpoint {endpoint.name}.")
        text = f"The local cloud records inference components and runs none: {name} answers nothing.".encode()
        refusal = InvokeReply(424, text, "text/plain", None, cold=False, error="ModelError", original_status=_NOT_IMPLEMENTED)
        return self._error(refusal, endpoint, component.variant_name)

    def _error(self, reply: InvokeReply, endpoint: Endpoint, variant_name: str) -> AwsError:
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
            f"Received {'client' if 400 <= status < 500 else 'server'} error ({status}) from {variant_name} with message "
            f'"{original}". See https://{region}.console.aws.amazon.com/cloudwatch/home?region={region}'
            f"#logEventViewer:group={log_group} in account {account} for more information.",
            reply.status,
            OriginalStatusCode=status,
            OriginalMessage=original,
            LogStreamArn=f"arn:aws:logs:{region}:{account}:log-group:{log_group}",
        )


def _check(request: Request, endpoint: Endpoint, target_model: str | None) -> None:
    if len(request.body) > INVOKE_BODY_BYTES:
        raise too_large()
    if endpoint.hosts_components:
        raise AwsError(
            "ValidationError",
            "Inference Component Name header is required for endpoints to which you plan to deploy inference components. Please include "
            "Inference Component Name header or consider using SageMaker models.",
        )
    if target_model is None:
        raise AwsError("ValidationError", f"Endpoint {endpoint.name} is a multi-model endpoint: invoking it requires TargetModel.")
    if len(target_model) > TARGET_MODEL_CHARACTERS or not _TARGET_MODEL.fullmatch(target_model):
        raise AwsError(
            "ValidationError",
            f"1 validation error detected: Value '{target_model}' at 'targetModel' failed to satisfy constraint: Member must have "
            rf"length less than or equal to {TARGET_MODEL_CHARACTERS} and satisfy regular expression pattern: \A\S[\p{{Print}}]*\z",
        )
    variant = request.headers.get("x-amzn-sagemaker-target-variant")
    if variant is not None and endpoint.variant(variant) is None:
        raise AwsError("ValidationError", f"Variant {variant} not found for endpoint {endpoint.name}.")
    if "x-amzn-sagemaker-target-container-hostname" in request.headers:
        raise AwsError("ValidationError", f"TargetContainerHostname is not allowed when invoking the multi-model endpoint {endpoint.name}.")
    if len(request.headers.get("x-amzn-sagemaker-custom-attributes", "")) > _CUSTOM_ATTRIBUTES_CHARACTERS:
        raise AwsError("ValidationError", f"CustomAttributes is longer than {_CUSTOM_ATTRIBUTES_CHARACTERS} characters.")


def too_large() -> AwsError:
    """The body exceeds the limit of InvokeEndpoint."""
    return AwsError("RequestEntityTooLargeException", f"HTTP content length exceeded {INVOKE_BODY_BYTES} bytes.", 413)


def _answer(reply: InvokeReply, variant: Variant, custom_attributes: str | None) -> Reply:
    headers = {
        "Content-Type": reply.content_type or "application/octet-stream",
        "x-Amzn-Invoked-Production-Variant": variant.name,
        COLD_HEADER: "true" if reply.cold else "false",
    }
    if reply.instance is not None:
        headers[INSTANCE_HEADER] = reply.instance
    if custom_attributes is not None:
        headers["X-Amzn-SageMaker-Custom-Attributes"] = custom_attributes
    return reply.status, headers, reply.body
