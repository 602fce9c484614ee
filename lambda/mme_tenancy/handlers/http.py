"""What the two API functions share: reading API Gateway's proxy events, and answers. The standard library only."""

from __future__ import annotations

import base64
import binascii
import gc
import json
import os
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Protocol, TypeVar

from mme_facts.limits import API_GATEWAY_TIMEOUT_SECONDS
from mme_facts.problems import CONTENT_TYPE
from mme_tenancy.errors import InvalidRequestError, TenancyError

__all__ = [
    "CONTEXT_MARGIN_SECONDS",
    "GATEWAY_SECONDS",
    "Event",
    "LambdaContext",
    "answer",
    "at_cold_start",
    "body_of",
    "header_of",
    "problem_answer",
    "problem_headers",
    "seconds_left",
]

GATEWAY_SECONDS = API_GATEWAY_TIMEOUT_SECONDS - 2.0
"""A call has this time: the rest is for the way back, so that our answer arrives before API Gateway cuts."""
CONTEXT_MARGIN_SECONDS = 0.5
"""Left of a function's time for its end."""
_MAX_START_SECONDS = 10.0
"""The gateway's clock is believed up to this: a function starts in less, so more is a wrong clock."""

Event = Mapping[str, Any]
"""A proxy event of a REST API, or any other event of a function."""
_T = TypeVar("_T")


class LambdaContext(Protocol):
    """What is used of Lambda's context object."""

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds until the function is stopped."""
        ...


def at_cold_start(build: Callable[[], _T]) -> Callable[[], _T]:
    """Run ``build`` once: on import inside Lambda, whose start-up phase has the full CPU, and on first use elsewhere.

    Inside Lambda the collector of cycles rests meanwhile, and what is there afterwards is left out of its rounds: botocore's
    descriptions of services are hundreds of thousands of objects that stay for good.
    """
    once = cache(build)
    if "AWS_LAMBDA_FUNCTION_NAME" in os.environ:
        gc.disable()
        try:
            once()
        finally:
            gc.freeze()
            gc.enable()
    return once


def body_of(event: Event) -> bytes:
    """The request's body; raises `InvalidRequestError`."""
    body = event.get("body") or ""
    if not event.get("isBase64Encoded"):
        return str(body).encode("utf-8", "surrogatepass")
    try:
        return base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidRequestError("the body is not readable", field="body", allowed="any bytes") from error


def header_of(event: Event, name: str) -> str | None:
    """One header, whatever its case; the last one if it was sent more than once."""
    for got, value in (event.get("headers") or {}).items():
        if got.lower() == name.lower():
            return str(value)
    return None


def problem_headers(error: TenancyError) -> dict[str, str]:
    """Headers of an error beside its content type."""
    headers = {} if error.retry_after_seconds is None else {"Retry-After": str(error.retry_after_seconds)}
    if error.problem.status == 405 and isinstance(error.allowed, list):
        headers["Allow"] = ", ".join(map(str, error.allowed))
    return headers


def seconds_left(event: Event, context: LambdaContext, wall: float) -> float:
    """Seconds until our answer must be on its way: what is left of the gateway's time, counted from the request's arrival there.

    Args:
        event: the proxy event.
        context: Lambda's context.
        wall: seconds since 1970, by the machine's own clock.
    """
    arrived_ms = (event.get("requestContext") or {}).get("requestTimeEpoch")
    elapsed = wall - arrived_ms / 1000 if isinstance(arrived_ms, int | float) else 0.0
    left = GATEWAY_SECONDS - min(max(elapsed, 0.0), _MAX_START_SECONDS)
    return min(left, context.get_remaining_time_in_millis() / 1000 - CONTEXT_MARGIN_SECONDS)


def answer(status: int, body: bytes, content_type: str, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
    """A proxy answer with a binary body."""
    return {
        "statusCode": status,
        "headers": {"Content-Type": content_type, **(headers or {})},
        "body": base64.b64encode(body).decode(),
        "isBase64Encoded": True,
    }


def problem_answer(error: TenancyError) -> dict[str, Any]:
    """A proxy answer for an error."""
    return {
        "statusCode": error.problem.status,
        "headers": {"Content-Type": CONTENT_TYPE, **problem_headers(error)},
        "body": json.dumps(error.document()),
        "isBase64Encoded": False,
    }
