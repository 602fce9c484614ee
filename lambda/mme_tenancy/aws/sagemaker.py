"""The SageMaker runtime: one attempt of InvokeEndpoint, and what its errors are called in the domain."""

from __future__ import annotations

import re
import threading
from bisect import bisect_right
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from botocore.eventstream import ParserError as EventParserError
from botocore.exceptions import (
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    IncompleteReadError,
    ReadTimeoutError,
)
from botocore.exceptions import ConnectionError as BotoConnectionError
from botocore.response import StreamingBody
from urllib3.exceptions import HTTPError as TransportError
from urllib3.exceptions import ReadTimeoutError as TransportTimeoutError

from mme_facts.runtime_errors import MODEL_ERROR, MODEL_STREAM_ERROR
from mme_tenancy.invocation import InvocationRequest, ModelReply, ModelStream
from mme_tenancy.retries import RuntimeFault
from mme_tenancy.routes import Target

if TYPE_CHECKING:
    from mypy_boto3_sagemaker_runtime import SageMakerRuntimeClient

__all__ = ["SageMakerRuntime"]

_TIMEOUTS_SECONDS = (0.2, 0.5, 1, 1.5, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 30, 40, 50, 60, 70)
"""botocore knows no timeout per call, so there is one client for each of these; 70 s covers the 60 s that a container may take, and the
least is the time without which no attempt begins."""
_ROUNDED_SECONDS = 0.05
"""So much a timeout may be rounded up: a caller who waits 5 s has 4.999 s left when the request is sent."""

_ERRORS = (ClientError, HTTPClientError, BotoConnectionError, IncompleteReadError)
_STREAM_ERRORS = (*_ERRORS, TransportError, EventParserError, OSError)
"""botocore hands on what its transport raises while it reads a stream, and what is cut in the middle is no event."""
_LOGGED_CHARACTERS = 300
_MEMORY = re.compile(r"(?:^|[,;\s])mme-memory-bytes=(\d{1,15})(?:$|[,;\s])")


class SageMakerRuntime:
    """`mme_tenancy.invocation.Runtime` by InvokeEndpoint.

    Args:
        client: makes the client for a read timeout in seconds; called once for each timeout in use.
    """

    def __init__(self, client: Callable[[float], SageMakerRuntimeClient]) -> None:
        self._make_client = client
        self._clients: dict[float, SageMakerRuntimeClient] = {}
        self._making = threading.Lock()

    def prepare(self, timeout_seconds: float) -> None:
        """Make the client for ``timeout_seconds`` now, so that the first request does not wait for it."""
        self._client(timeout_seconds)

    def invoke(self, target: Target, request: InvocationRequest, timeout_seconds: float) -> ModelReply:
        """Send the request once and wait at most about ``timeout_seconds``; raises `RuntimeFault`."""
        arguments = _arguments(request)
        if target.component is None:
            arguments["TargetModel"] = target.target_model
        else:
            arguments["InferenceComponentName"] = target.component
        try:
            answer = self._client(timeout_seconds).invoke_endpoint(EndpointName=target.endpoint, Body=request.body, **arguments)
            return ModelReply(answer["Body"].read(), answer.get("ContentType"), _memory_bytes(answer.get("CustomAttributes", "")))
        except _ERRORS as error:
            raise _fault_of(error) from error

    def stream(self, target: Target, request: InvocationRequest, timeout_seconds: float) -> ModelStream:
        """Send the request to a component once and wait at most about ``timeout_seconds`` for the first part; raises `RuntimeFault`."""
        if target.component is None:
            raise ValueError(f"{target.target_model} is served by a shared endpoint, which streams nothing: stream from a component")
        try:
            answer = self._client(timeout_seconds).invoke_endpoint_with_response_stream(
                EndpointName=target.endpoint, InferenceComponentName=target.component, Body=request.body, **_arguments(request)
            )
        except _ERRORS as error:
            raise _fault_of(error) from error
        parts = _Parts(answer["Body"])
        try:
            first = parts.next(timeout_seconds) or b""
        except RuntimeFault:
            parts.close()
            raise
        return ModelStream(first, answer.get("ContentType"), more=parts.next, close=parts.close)

    def _client(self, timeout_seconds: float) -> SageMakerRuntimeClient:
        seconds = _TIMEOUTS_SECONDS[max(bisect_right(_TIMEOUTS_SECONDS, timeout_seconds + _ROUNDED_SECONDS) - 1, 0)]
        if seconds not in self._clients:
            # Clients are safe for threads, but a session does not make them in several at once (boto3: Session reference).
            with self._making:
                if seconds not in self._clients:
                    self._clients[seconds] = self._make_client(seconds)
        return self._clients[seconds]


class _Parts:
    """The parts of an event stream that hold something."""

    def __init__(self, events: Any) -> None:
        self._events, self._iterator = events, iter(events)
        # botocore's own way to a response's socket; event streams have none.
        self._body = StreamingBody(events._raw_stream, 0)  # noqa: SLF001

    def next(self, timeout_seconds: float) -> bytes | None:
        """The next part, ``None`` at the end; raises `RuntimeFault`."""
        with suppress(AttributeError):
            # A response that has been read whole has no socket any more.
            self._body.set_socket_timeout(max(timeout_seconds, 0.001))
        try:
            for event in self._iterator:
                part: bytes = event.get("PayloadPart", {}).get("Bytes", b"")
                if part:
                    return part
        except _STREAM_ERRORS as error:
            raise _fault_of(error) from error
        return None

    def close(self) -> None:
        """Give the connection up unless all was read."""
        self._events.close()


def _arguments(request: InvocationRequest) -> dict[str, Any]:
    # The one thing of a request that SageMaker hands on to the container as it is (API reference: InvokeEndpoint, CustomAttributes).
    told = {"traceparent": request.traceparent, "mme-warm-up": request.warm_up}
    attributes = ",".join(f"{name}={value}" for name, value in told.items() if value is not None)
    headers = {"ContentType": request.content_type, "Accept": request.accept, "CustomAttributes": attributes or None}
    return {name: value for name, value in headers.items() if value is not None}


def _fault_of(error: Exception) -> RuntimeFault:
    match error:
        case ClientError():
            return _fault(error)
        case ReadTimeoutError() | TransportTimeoutError():
            return RuntimeFault("ReadTimeout")
        case EndpointConnectionError() | ConnectTimeoutError():
            return RuntimeFault("NotConnected")
    return RuntimeFault("ConnectionLost")


def _memory_bytes(custom_attributes: str) -> int | None:
    """What a container says about the model's memory: ``mme-memory-bytes=<number>`` among its custom attributes.

    SageMaker hands them on as they are (API reference: InvokeEndpoint, CustomAttributes); nothing else of a container reaches the caller.
    """
    found = _MEMORY.search(custom_attributes)
    return int(found[1]) if found else None


def _fault(error: ClientError) -> RuntimeFault:
    response: Any = error.response
    told = response.get("Error", {})
    code = told.get("Code", "")
    # The message of a ModelError quotes the container, which may quote the payload.
    message = "" if code in (MODEL_ERROR, MODEL_STREAM_ERROR) else str(told.get("Message", ""))[:_LOGGED_CHARACTERS]
    return RuntimeFault(code, response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0), response.get("OriginalStatusCode"), message)
