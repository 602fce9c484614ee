"""Requests whose answer comes later (``Prefer: respond-async``, RFC 7240): kept, run in the background, and answered when asked for.

What is kept of one lies below the tenant's part of ``results/``: the request, the note that it was begun, and the answer. Each is written
once and never over, so an event that comes twice runs the model once. Loaded only for such requests.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from typing import Any, Protocol

from mme_facts.grammar import GrammarError, check_result_id, check_tenant_id
from mme_tenancy.clock import Clock
from mme_tenancy.errors import InvocationTimeoutError, ResourceNotFoundError
from mme_tenancy.invocation_path import Tenancy

__all__ = ["EVENT_KEY", "Deferred", "Results", "accepted_headers", "poll_headers", "unknown_result", "wants_later"]

EVENT_KEY = "mme_deferred"
"""The one key of the function's own events. API Gateway's events have a fixed set of keys, of which this is none."""
RESPOND_ASYNC = "respond-async"
_KEPT_SECONDS = 86_400
_POLL_SECONDS = 2
_PREFERENCE = re.compile(r'(?:[^,"]|"(?:[^"\\]|\\.)*")+')
_TOKEN = re.compile(r"\s*([^\s;=]+)")


class Results(Protocol):
    """Where requests and answers are kept, with the rights of the tenant."""

    def put(self, tenant: str, result: str, part: str, content: bytes) -> bool:
        """Write what is not there yet; false if it is."""
        ...

    def get(self, tenant: str, result: str, part: str) -> bytes | None:
        """What is there; ``None``: nothing is."""
        ...


def wants_later(values: Iterable[str]) -> bool:
    """Whether one of the ``Prefer`` headers holds ``respond-async``."""
    tokens = (_TOKEN.match(part) for value in values for part in _PREFERENCE.findall(value))
    return any(token is not None and token[1].lower() == RESPOND_ASYNC for token in tokens)


class Deferred:
    """Requests whose answer comes later.

    Args:
        results: where they are kept.
        start: sends the function an event of its own.
        clock: time.
        seconds: after how long an answer will not come any more.
        tenancy: acts as the tenant. Default: nobody does, the calls have the rights of the process.
    """

    def __init__(
        self, results: Results, start: Callable[[Mapping[str, Any]], None], clock: Clock, *, seconds: float, tenancy: Tenancy | None = None
    ) -> None:
        self._results, self._start, self._clock, self._seconds, self._tenancy = results, start, clock, seconds, tenancy

    def accept(self, tenant: str, request: Mapping[str, Any], body: bytes, *, deadline: float) -> str:
        """Keep a request and have it run; its id, which nobody can guess.

        Args:
            tenant: whose request it is.
            request: what `begin` gives back.
            body: the request's body.
            deadline: when the caller wants to know, on the monotonic clock.
        """
        result = os.urandom(16).hex()
        kept = {"accepted_at": self._clock.time(), "request": dict(request), "body": base64.b64encode(body).decode()}
        with self._acting_as(tenant, deadline):
            self._results.put(tenant, result, "request", json.dumps(kept).encode())
        self._start({EVENT_KEY: {"tenant": tenant, "result": result}})
        return result

    def begin(self, tenant: str, result: str, *, deadline: float) -> tuple[dict[str, Any], bytes] | None:
        """The request and its body, given once; ``None`` for a second event and for a request that is too old."""
        with self._acting_as(tenant, deadline):
            kept = self._kept(tenant, result, "request")
            if kept is None or self._clock.time() - kept["accepted_at"] > self._seconds:
                return None
            note = json.dumps({"accepted_at": kept["accepted_at"]}).encode()
            if not self._results.put(tenant, result, "begun", note):
                return None
        return {**kept["request"], "accepted_at": kept["accepted_at"]}, base64.b64decode(kept["body"])

    def finish(self, tenant: str, result: str, answer: Mapping[str, Any], *, accepted_at: float, deadline: float) -> None:
        """Keep the answer, unless there is one."""
        with self._acting_as(tenant, deadline):
            self._results.put(tenant, result, "", json.dumps({"accepted_at": accepted_at, "answer": dict(answer)}).encode())

    def answer(self, tenant: str, result: str, *, deadline: float) -> dict[str, Any] | None:
        """The answer as it was kept; ``None`` while it is on its way.

        Raises:
            ResourceNotFoundError: there is no such request of this tenant, or it is more than a day old.
            InvocationTimeoutError: the answer will not come any more.
        """
        try:
            check_tenant_id(tenant)
            check_result_id(result)
        except GrammarError as error:
            raise unknown_result() from error
        with self._acting_as(tenant, deadline):
            found = self._kept(tenant, result, "")
            kept = self._kept(tenant, result, "request") if found is None else found
            if kept is None:
                raise unknown_result()
            if found is None and self._clock.time() - kept["accepted_at"] > self._seconds:
                # It may have come meanwhile.
                found = self._kept(tenant, result, "")
                if found is None:
                    raise InvocationTimeoutError("the request was accepted, but its answer did not come in time: send it again")
        if found is None:
            return None
        answer: dict[str, Any] = found["answer"]
        return answer

    def _kept(self, tenant: str, result: str, part: str) -> dict[str, Any] | None:
        content = self._results.get(tenant, result, part)
        if content is None:
            return None
        kept: dict[str, Any] = json.loads(content)
        return kept if self._clock.time() - kept["accepted_at"] <= _KEPT_SECONDS else None

    def _acting_as(self, tenant: str, deadline: float) -> Any:
        return nullcontext() if self._tenancy is None else self._tenancy.acting_as(tenant, deadline=deadline)


def accepted_headers(result: str) -> dict[str, str]:
    """Headers of the answer to a request that was accepted. The location is relative, so it is right below every stage and domain."""
    return {"Location": f"../../results/{result}", "Preference-Applied": RESPOND_ASYNC, **poll_headers()}


def poll_headers() -> dict[str, str]:
    """Headers of an answer that says to ask again."""
    return {"Retry-After": str(_POLL_SECONDS)}


def unknown_result() -> ResourceNotFoundError:
    """The error for an id that is not there, whatever the reason."""
    return ResourceNotFoundError("there is no such result: ids are those of the tenant's own requests, and results are kept for a day")
