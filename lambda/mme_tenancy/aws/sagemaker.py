"""The SageMaker runtime: one attempt of InvokeEndpoint, and what its errors are called in the domain."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from botocore.exceptions import (
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    IncompleteReadError,
    ReadTimeoutError,
)
from botocore.exceptions import ConnectionError as BotoConnectionError

from mme_facts.runtime_errors import MODEL_ERROR
from mme_tenancy.invocation import InvocationRequest, ModelReply
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

    def prepare(self, timeout_seconds: float) -> None:
        """Make the client for ``timeout_seconds`` now, so that the first request does not wait for it."""
        self._client(timeout_seconds)

    def invoke(self, target: Target, request: InvocationRequest, timeout_seconds: float) -> ModelReply:
        """Send the request once and wait at most about ``timeout_seconds``; raises `RuntimeFault`."""
        # The one thing of a request that SageMaker hands on to the container as it is (API reference: InvokeEndpoint, CustomAttributes).
        trace = None if request.traceparent is None else f"traceparent={request.traceparent}"
        headers = {"ContentType": request.content_type, "Accept": request.accept, "CustomAttributes": trace}
        arguments: dict[str, Any] = {name: value for name, value in headers.items() if value is not None}
        if target.component is None:
            arguments["TargetModel"] = target.target_model
        else:
            arguments["InferenceComponentName"] = target.component
        try:
            answer = self._client(timeout_seconds).invoke_endpoint(EndpointName=target.endpoint, Body=request.body, **arguments)
            return ModelReply(answer["Body"].read(), answer.get("ContentType"), _memory_bytes(answer.get("CustomAttributes", "")))
        except ClientError as error:
            raise _fault(error) from error
        except ReadTimeoutError as error:
            raise RuntimeFault("ReadTimeout") from error
        except (EndpointConnectionError, ConnectTimeoutError) as error:
            raise RuntimeFault("NotConnected") from error
        except (HTTPClientError, BotoConnectionError, IncompleteReadError) as error:
            raise RuntimeFault("ConnectionLost") from error

    def _client(self, timeout_seconds: float) -> SageMakerRuntimeClient:
        fitting = [seconds for seconds in _TIMEOUTS_SECONDS if seconds <= timeout_seconds + _ROUNDED_SECONDS]
        seconds = fitting[-1] if fitting else _TIMEOUTS_SECONDS[0]
        if seconds not in self._clients:
            self._clients[seconds] = self._make_client(seconds)
        return self._clients[seconds]


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
    message = "" if code == MODEL_ERROR else str(told.get("Message", ""))[:_LOGGED_CHARACTERS]
    return RuntimeFault(code, response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0), response.get("OriginalStatusCode"), message)
