# ruff: noqa: SLF001 - reaching into the pinned emulator is what this module is for
"""Limits of Lambda and API Gateway that the emulator lets pass: sizes, waits, memory. Part of `mme_local.patches`."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from mme_facts.limits import (
    API_GATEWAY_BODY_BYTES,
    API_GATEWAY_TIMEOUT_SECONDS,
    LAMBDA_ASYNCHRONOUS_EVENT_BYTES,
    LAMBDA_EVENT_BYTES,
)
from mme_local.memory_watch import MIB, MemoryWatch

__all__ = ["apply"]

_FAILED = "Internal server error"
_WORKER_DIED = "Worker process died"
_EXITED = re.compile(r"RequestId: \S+ Error: Runtime exited with error: .+")
_waiting: set[asyncio.Future[Any]] = set()


def apply() -> None:
    """Patch the emulator in this process."""
    _limit_api_calls()
    _limit_api_bodies()
    _limit_invocations()
    _limit_memory()


def _limit_api_calls() -> None:
    """An API's function gets an event of at most 6 MB, answers with at most 6 MB, and any integration within its timeout.

    A function that fails, is throttled, or answers something else than a proxy answer is an error of the gateway's own.

    Reason: the emulator carries any size and waits for ever, so bodies and waits that fail on AWS would pass
    (AWS Lambda quotas; Amazon API Gateway quotas: integration timeout); and it shows callers the exception of a function
    (Amazon API Gateway, Handle Lambda errors: "Internal server error", 502, or 500 if the function could not be invoked).
    """
    from ministack.services import apigateway_v1

    call_function, shape = apigateway_v1._call_lambda_raw, apigateway_v1._lambda_proxy_response

    def shape_proxy_answers(result: Any) -> Any:
        if result.get("throttle"):
            raise _RefusedError("API_CONFIGURATION_ERROR", _FAILED)
        if result.get("error") or not _is_proxy_answer(result.get("body")):
            raise _RefusedError("DEFAULT_5XX", _FAILED)
        return shape(result)

    async def sized_call(reference: str, event: Any, **scope: Any) -> Any:
        if _json_bytes(event) > LAMBDA_EVENT_BYTES:
            raise _RefusedError("REQUEST_TOO_LARGE", "Request Too Long")
        return await call_function(reference, event, **scope)

    def limited(invoke: Callable[..., Any]) -> Callable[..., Any]:
        async def invoke_limited(integration: Any, *rest: Any, **scope: Any) -> Any:
            # The function goes on when the gateway stops waiting, as on AWS: the task is not cancelled.
            task = asyncio.ensure_future(invoke(integration, *rest, **scope))
            _waiting.add(task)
            task.add_done_callback(_waiting.discard)
            timeout_seconds = int(integration.get("timeoutInMillis") or API_GATEWAY_TIMEOUT_SECONDS * 1000) / 1000
            done, _pending = await asyncio.wait({task}, timeout=timeout_seconds)
            if not done:
                return apigateway_v1._gw_error("INTEGRATION_TIMEOUT", "Endpoint request timed out")
            try:
                answer = task.result()
            except _RefusedError as error:
                kind, message = error.args
                if kind == "DEFAULT_5XX" and not _customized(kind, rest):
                    return 502, {"Content-Type": "application/json"}, json.dumps({"message": message}).encode()
                return apigateway_v1._gw_error(kind, message)
            if isinstance(answer, tuple) and isinstance(answer[2], bytes) and len(answer[2]) > API_GATEWAY_BODY_BYTES:
                return apigateway_v1._gw_error("INTEGRATION_FAILURE", _FAILED)
            return answer

        return invoke_limited

    def _customized(kind: str, call: Any) -> bool:
        api_id, _stage_name, stage = call[:3]
        return kind in (apigateway_v1._deployed_gateway_responses.get(api_id, {}).get(stage.get("deploymentId")) or {})

    apigateway_v1._call_lambda_raw, apigateway_v1._lambda_proxy_response = sized_call, shape_proxy_answers
    for name in ("_invoke_lambda_proxy_v1", "_invoke_lambda_custom_v1", "_invoke_http_proxy_v1", "_invoke_sqs_v1"):
        setattr(apigateway_v1, name, limited(getattr(apigateway_v1, name)))


def _limit_api_bodies() -> None:
    """A REST API takes bodies of at most 10 MB, whatever its integration.

    Reason: the emulator carries any size (Amazon API Gateway quotas: payload size).
    """
    from ministack.services import apigateway_v1

    check = apigateway_v1._check_request_validation

    def check_with_size(method: Any, api_id: str, request: Any, headers: Any, body: bytes, query: Any) -> Any:
        if len(body or b"") > API_GATEWAY_BODY_BYTES:
            return apigateway_v1._gw_error("REQUEST_TOO_LARGE", f"HTTP content length exceeded {API_GATEWAY_BODY_BYTES} bytes.")
        return check(method, api_id, request, headers, body, query)

    apigateway_v1._check_request_validation = check_with_size


class _RefusedError(Exception):
    """Gateway response type and message of a call beyond Lambda's limits, or to a function that failed."""


def _is_proxy_answer(answer: Any) -> bool:
    if isinstance(answer, str | bytes):
        try:
            answer = json.loads(answer)
        except ValueError:
            return False
    return isinstance(answer, dict) and str(answer.get("statusCode")).isdigit()


def _json_bytes(document: Any) -> int:
    """Size of a document; exact only near the limit, where its body alone is large."""
    body = document.get("body") if isinstance(document, dict) else document
    if not isinstance(body, str) or len(body) < LAMBDA_EVENT_BYTES // 8:
        return 0
    return len(json.dumps(document, ensure_ascii=False).encode())


def _limit_invocations() -> None:
    """Invoke takes events of at most 6 MB (1 MB for asynchronous ones), and functions answer with at most 6 MB.

    Reason: the emulator carries any size (AWS Lambda quotas).
    """
    from ministack.core.responses import error_response_json
    from ministack.services import lambda_svc

    invoke = lambda_svc._invoke
    execute = lambda_svc._execute_function_warm

    async def sized_invoke(name: str, event: Any, headers: Any, *rest: Any, **options: Any) -> Any:
        asynchronous = (headers.get("x-amz-invocation-type") or "") == "Event"
        limit = LAMBDA_ASYNCHRONOUS_EVENT_BYTES if asynchronous else LAMBDA_EVENT_BYTES
        size = headers.get("content-length") or len(json.dumps(event, ensure_ascii=False).encode())
        if int(size) > limit:
            text = f"Request must be smaller than {limit} bytes for the InvokeFunction operation"
            return error_response_json("RequestTooLargeException", text, 413)
        return await invoke(name, event, headers, *rest, **options)

    def sized_execute(function: Any, event: Any, request_id: str) -> Any:
        result = execute(function, event, request_id)
        body = result.get("body")
        if result.get("error"):
            return result
        size = len((body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)).encode())
        if size <= LAMBDA_EVENT_BYTES:
            return result
        text = f"Response payload size ({size} bytes) exceeded maximum allowed payload size ({LAMBDA_EVENT_BYTES} bytes)."
        return {**result, "body": {"errorType": "Function.ResponseSizeTooLarge", "errorMessage": text}, "error": True}

    lambda_svc._invoke = sized_invoke
    lambda_svc._execute_function_warm = sized_execute


def _limit_memory() -> None:
    """A function's process that takes more memory than the function has is killed; one that ends is told as Lambda tells it.

    Reason: the emulator lets functions take what they like, reports the memory of other processes as theirs, and tells every end of
    a runtime alike (Lambda developer guide, "Troubleshoot execution issues": Runtime exited).
    """
    from ministack.core import lambda_runtime
    from ministack.services import lambda_svc

    watch = MemoryWatch()
    processes: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
    peaks: dict[str, int] = {}
    spawn, invoke = lambda_runtime.Worker._spawn, lambda_runtime.Worker.invoke
    execute = lambda_svc._execute_function_warm

    def spawn_noted(worker: Any) -> None:
        try:
            spawn(worker)
        finally:
            processes[worker] = worker._proc

    def invoke_watched(worker: Any, event: Any, request_id: str, **options: Any) -> Any:
        limit_bytes = int(worker.config.get("MemorySize", 128)) * MIB
        response: dict[str, Any]
        with watch.over(lambda: worker._proc, limit_bytes) as seen:
            try:
                response = invoke(worker, event, request_id, **options)
            except RuntimeError:
                if not seen.killed:
                    raise
                response = {"status": "error", "error": _WORKER_DIED, "cold_start": True, "log": ""}
        peaks[worker.config.get("FunctionArn", "")] = seen.peak_bytes
        if seen.killed or response.get("error") == _WORKER_DIED:
            how = "signal: killed" if seen.killed else _how(processes.get(worker))
            response = {**response, "status": "error", "error": f"RequestId: {request_id} Error: Runtime exited with error: {how}"}
        return response

    def execute_and_name(function: Any, event: Any, request_id: str) -> Any:
        result = execute(function, event, request_id)
        body = result.get("body")
        if result.get("error") and isinstance(body, dict) and _EXITED.fullmatch(str(body.get("errorMessage"))):
            body["errorType"] = "Runtime.ExitError"
        return result

    def peak_of(function: Any) -> int:
        config = function.get("config") or function
        return -(-peaks.get(config.get("FunctionArn", ""), 0) // MIB)

    lambda_runtime.Worker._spawn, lambda_runtime.Worker.invoke = spawn_noted, invoke_watched
    lambda_svc._execute_function_warm = execute_and_name
    lambda_svc._probe_peak_memory_mb = peak_of


def _how(process: Any) -> str:
    """How a process ended, in Lambda's words."""
    status = process.returncode if process is not None and process.returncode is not None else 1
    return f"exit status {status}" if status >= 0 else f"signal: {(signal.strsignal(-status) or str(-status)).lower()}"
