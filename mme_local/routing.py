"""The gateway's ASGI application: our services and the emulator on one port.

A request goes where the scope of its signature says: ``sagemaker``, ``application-autoscaling`` and ``monitoring`` to our code, the rest
to the emulator. Unsigned requests go by target and path, to be refused by the service they mean.
"""

from __future__ import annotations

import json
import logging
import re
import uuid
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qs

from mme_facts.limits import INVOKE_BODY_BYTES
from mme_local.administration import Administration, is_loopback, serves
from mme_local.autoscaling.responses import OPERATIONS as AUTOSCALING_OPERATIONS
from mme_local.autoscaling.responses import AutoScalingApi
from mme_local.call_counts import CallCounts, operation_of
from mme_local.cloudwatch.protocols import TARGET, protocol_of, refusal
from mme_local.cloudwatch.responses import MonitoringApi
from mme_local.emulator import (
    AccessDeniedError,
    BodyTooLargeError,
    Request,
    claimed_access_key_id,
    is_root_key,
    is_service_session,
    read_request,
)
from mme_local.faults import Faults
from mme_local.sagemaker.responses import OPERATIONS as SAGEMAKER_OPERATIONS
from mme_local.sagemaker.responses import ControlPlane
from mme_local.sagemaker.runtime import Runtime, too_large
from mme_local.wire import AwsError, Reply, StreamReply, error_reply, json_reply, send_reply, send_stream

__all__ = ["Gateway"]

logger = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

_CONTROL_BODY_BYTES = 1 << 20
_SIGNED_SERVICE = re.compile(r"Credential=[^/,]+/\d{8}/[^/]+/([^/]+)/aws4_request")
_PLAIN_CLAIM = re.compile(rb"AWS4-HMAC-SHA256 Credential=([A-Z0-9]+)/\d{8}/[^/,\s]+/([^/,\s]+)/aws4_request,")
_OURS = {b"sagemaker": "sagemaker", b"application-autoscaling": "application-autoscaling"}
_INVOCATION = re.compile(r"/endpoints/([^/]+)/invocations(-response-stream)?")
_PATHS_OF_USERS = ("/_aws/", "/restapis/", "/oauth2/", "/_ministack/")
_HOSTS_OF_USERS = (".execute-api.", ".lambda-url.")
_TARGETS = {"SageMaker": "sagemaker", "AnyScaleFrontendService": "application-autoscaling", TARGET: "monitoring"}


class Gateway:
    """The application.

    Args:
        emulator: the emulator's ASGI application.
        control_plane: SageMaker's control plane.
        runtime: SageMaker's runtime.
        autoscaling: Application Auto Scaling.
        monitoring: CloudWatch.
        administration: status, reset and fault control.
        faults: what shall go wrong.
        calls: counts what is called.
    """

    def __init__(
        self,
        emulator: Application,
        *,
        control_plane: ControlPlane,
        runtime: Runtime,
        autoscaling: AutoScalingApi,
        monitoring: MonitoringApi,
        administration: Administration,
        faults: Faults,
        calls: CallCounts,
    ) -> None:
        self._emulator, self._control_plane, self._runtime = emulator, control_plane, runtime
        self._autoscaling, self._monitoring = autoscaling, monitoring
        self._administration, self._faults, self._calls = administration, faults, calls

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection's request."""
        if scope["type"] != "http":
            await self._emulator(scope, receive, send)
            return
        if is_loopback(scope):
            # Policies that demand TLS (the CDK bootstrap bucket's, our own) are met: nothing leaves this machine.
            scope["scheme"] = "https"
        if (ours := _plainly_ours(scope)) is not None:
            self._calls.add(ours, operation_of(ours, scope["method"], scope["path"], _target(scope), {}))
            await self._answer(ours, scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if serves(scope["path"]):
            await self._administration(scope, headers, receive, send)
            return
        query = parse_qs(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
        service = _service(scope, headers, query)
        if service:
            self._count(service, scope, headers, query)
        if is_root_key(claimed_access_key_id(headers, query)) or _foreign_authorization(scope, headers):
            # The emulator lets its root keys and unknown kinds of authorization through without any check.
            unknown = "The security token included in the request is invalid."
            await send_reply(
                send, _denied(AccessDeniedError("UnrecognizedClientException", unknown, authenticated=False), service, headers)
            )
        elif service in ("sagemaker", "application-autoscaling"):
            await self._answer(service, scope, receive, send)
        elif service == "monitoring":
            await send_reply(send, await self._monitor(scope, receive))
        else:
            await self._emulator(scope, receive, send)

    def _count(self, service: str, scope: Scope, headers: MutableMapping[str, str], query: MutableMapping[str, list[str]]) -> None:
        if service == "lambda" and scope["path"].endswith("/invocations"):
            return  # its execution counts
        by_service = service == "s3" and is_service_session(claimed_access_key_id(headers, query))
        self._calls.add(service, operation_of(service, scope["method"], scope["path"], headers, query), by_service=by_service)

    async def _answer(self, service: str, scope: Scope, receive: Receive, send: Send) -> None:
        reply = await self._serve(service, scope, receive)
        if isinstance(reply, StreamReply):
            await send_stream(receive, send, reply)
        else:
            await send_reply(send, reply)

    async def _serve(self, service: str, scope: Scope, receive: Receive) -> Reply | StreamReply:
        invocation = _INVOCATION.fullmatch(scope["path"]) if service == "sagemaker" and scope["method"] == "POST" else None
        try:
            try:
                limit = INVOKE_BODY_BYTES if invocation else _CONTROL_BODY_BYTES
                request = await read_request(scope, receive, body_limit_bytes=limit)
            except BodyTooLargeError:
                raise (too_large() if invocation else _control_too_large()) from None
            if invocation:
                if invocation[2]:
                    return await self._runtime.stream(request, invocation[1])
                return await self._runtime.invoke(request, invocation[1])
            return json_reply(self._control(service, request))
        except AwsError as error:
            return error_reply(error)
        except AccessDeniedError as error:
            status = 403 if invocation else 400
            return error_reply(AwsError(error.code, error.message, status))
        except Exception:
            logger.exception("%s %s", scope["method"], scope["path"])
            return error_reply(AwsError("InternalFailure", "The local cloud failed; its log tells why.", 500))

    async def _monitor(self, scope: Scope, receive: Receive) -> Reply:
        try:
            request = await read_request(scope, receive, body_limit_bytes=_CONTROL_BODY_BYTES)
        except BodyTooLargeError:
            return error_reply(_control_too_large())
        try:
            return self._monitoring.reply(request)
        except Exception:
            logger.exception("%s %s", scope["method"], scope["path"])
            return refusal(protocol_of(request), AwsError("InternalServiceFault", "The local cloud failed; its log tells why.", 500))

    def _control(self, service: str, request: Request) -> dict[str, Any]:
        prefix, _, operation = request.headers.get("x-amz-target", "").partition(".")
        operations = SAGEMAKER_OPERATIONS if service == "sagemaker" else AUTOSCALING_OPERATIONS
        if _TARGETS.get(prefix) != service or operation not in operations:
            raise AwsError(
                "UnknownOperationException", f"The local cloud does not serve {request.headers.get('x-amz-target') or request.path}."
            )
        self._faults.control_call(service, operation)
        try:
            parameters = json.loads(request.body or b"{}")
        except ValueError as error:
            raise AwsError("SerializationException", f"The body is not JSON: {error}") from None
        if service == "sagemaker":
            return self._control_plane.serve(request, operation, parameters)
        return self._autoscaling.serve(request, operation, parameters)


def _control_too_large() -> AwsError:
    return AwsError("RequestEntityTooLarge", f"The body has more than {_CONTROL_BODY_BYTES} bytes.", 413)


def _plainly_ours(scope: Scope) -> str | None:
    """The service of a request that one plain Authorization header sends to us: what most requests are, told quickly."""
    claims = [value for name, value in scope["headers"] if name == b"authorization"]
    match = _PLAIN_CLAIM.match(claims[0]) if len(claims) == 1 else None
    if match is None or match[2] not in _OURS or is_root_key(match[1].decode()) or serves(scope["path"]):
        return None
    return _OURS[match[2]]


def _target(scope: Scope) -> dict[str, str]:
    targets = [value.decode("latin-1") for name, value in scope["headers"] if name == b"x-amz-target"]
    return {"x-amz-target": targets[0]} if targets else {}


def _service(scope: Scope, headers: MutableMapping[str, str], query: MutableMapping[str, list[str]]) -> str:
    if match := _SIGNED_SERVICE.search(headers.get("authorization", "")):
        return match[1]
    credential = query.get("X-Amz-Credential", [""])[0].split("/")
    if len(credential) == 5:
        return credential[3]
    if _INVOCATION.fullmatch(scope["path"]):
        return "sagemaker"
    if scope["path"].startswith(f"/service/{TARGET}/"):
        return "monitoring"
    return _TARGETS.get(headers.get("x-amz-target", "").partition(".")[0], "")


def _foreign_authorization(scope: Scope, headers: MutableMapping[str, str]) -> bool:
    """An Authorization header that is no AWS signature, on an AWS API. A user's own APIs know their own kinds of it."""
    authorization = headers.get("authorization", "")
    if not authorization or authorization.startswith("AWS"):
        return False
    return not (scope["path"].startswith(_PATHS_OF_USERS) or any(part in headers.get("host", "") for part in _HOSTS_OF_USERS))


def _denied(error: AccessDeniedError, service: str, headers: MutableMapping[str, str]) -> Reply:
    from ministack.core.iam_actions import access_denied_response

    status, reply_headers, body = access_denied_response(
        service, "", "", str(uuid.uuid4()), error_code=error.code, message=error.message, headers=dict(headers)
    )
    return status, reply_headers, body
