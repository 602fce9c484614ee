"""A client of the onboarding API: tenants, models, versions, uploads. For the command line and for other tools.

It tries again what may be tried again, within a deadline, and leaves the waiting in between to the caller's event, so that a program
that is told to stop does. Every call that changes something is safe to repeat: registration goes by the artifact's digest, the others
carry an ``Idempotency-Key`` that stays the same from try to try.
"""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from threading import Event
from typing import Any, BinaryIO, Protocol
from urllib.parse import quote, urlencode

from mme_cli.errors import CommandError, NoAnswerError
from mme_cli.signed_http import Answer
from mme_facts.problems import CONTENT_TYPE, TYPE_PREFIX

__all__ = ["ApiError", "Http", "OnboardingClient", "Retries", "StoppedError"]

_PAGE = 200
_TRANSIENT_STATUSES = frozenset({429, 500, 502, 503, 504})
_TRANSIENT_PROBLEMS = frozenset({"write-conflict", "request-in-progress"})
_SHOWN_CHARACTERS = 300


class ApiError(CommandError):
    """The API refused a call, or kept failing.

    Attributes:
        status: HTTP status.
        problem: last part of the problem's type, such as ``version-exists``; empty if the answer was no problem document.
        document: the problem document, or an empty one.
    """

    def __init__(self, call: str, answer: Answer) -> None:
        self.status = answer.status
        self.document: Mapping[str, Any] = _problem_of(answer)
        self.problem = str(self.document.get("type", "")).removeprefix(TYPE_PREFIX)
        text = self.document.get("detail") or answer.body.decode("utf-8", "replace")[:_SHOWN_CHARACTERS] or "without a body"
        super().__init__(f"{call} answered {self.status}: {text}")


class StoppedError(CommandError):
    """The caller wants to stop."""

    def __init__(self) -> None:
        super().__init__("stopped")


def _problem_of(answer: Answer) -> Mapping[str, Any]:
    if not answer.headers.get("content-type", "").startswith(CONTENT_TYPE):
        return {}
    try:
        document = json.loads(answer.body)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


class Http(Protocol):
    """What sends requests: `mme_cli.signed_http.HttpClient`. Raises `NoAnswerError` when no answer comes."""

    def call(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Answer:
        """Send a request to the API."""
        ...

    def upload(self, method: str, url: str, body: bytes | BinaryIO, headers: Mapping[str, str]) -> Answer:
        """Send a presigned request as it is."""
        ...


@dataclass(frozen=True, slots=True)
class Retries:
    """How often and how long a call is tried.

    Attributes:
        deadline_seconds: no try begins later than this after the first.
        first_wait_seconds: the wait after the first failure; it doubles, and a random part of up to half of it is left out.
        greatest_wait_seconds: greatest such wait. A longer ``Retry-After`` of the answer is kept to.
        stop: ends the waiting.
        monotonic: clock.
        random: numbers in [0, 1).
    """

    deadline_seconds: float = 120.0
    first_wait_seconds: float = 0.2
    greatest_wait_seconds: float = 10.0
    stop: Event = field(default_factory=Event)
    monotonic: Callable[[], float] = time.monotonic
    random: Callable[[], float] = random.random

    def run(self, send: Callable[[], Answer], transient: Callable[[Answer], bool]) -> Answer:
        """The first answer that is not transient, or the last one when the time is up.

        Raises:
            NoAnswerError: there was none when the time was up.
            StoppedError: `stop` was set meanwhile.
        """
        started, wait = self.monotonic(), self.first_wait_seconds
        while True:
            if self.stop.is_set():
                raise StoppedError
            answer: Answer | None = None
            error: NoAnswerError | None = None
            try:
                answer = send()
            except NoAnswerError as no_answer:
                error = no_answer
            if answer is not None and not transient(answer):
                return answer
            pause = max(wait * (1 - self.random() / 2), 0.0 if answer is None else retry_after_seconds(answer, time.time()))
            if self.monotonic() + pause - started > self.deadline_seconds:
                if answer is None:
                    assert error is not None
                    raise error
                return answer
            if self.stop.wait(pause):
                raise StoppedError
            wait = min(wait * 2, self.greatest_wait_seconds)


def retry_after_seconds(answer: Answer, now: float) -> float:
    """What the answer's ``Retry-After`` says, seconds or a date (RFC 9110, 10.2.3); 0 without one or with nonsense."""
    text = answer.headers.get("retry-after", "")
    if text.isdecimal():
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now)
    except ValueError:
        return 0.0


class OnboardingClient:
    """Calls the API as one principal. Documents are the API's own; may be used by several threads.

    Every method raises `ApiError` when the API refuses or keeps failing, `NoAnswerError` when no answer comes in time, and
    `StoppedError` when ``retries.stop`` is set.

    Args:
        http: sends the requests, signed.
        retries: how they are tried again.
    """

    def __init__(self, http: Http, retries: Retries | None = None) -> None:
        self.http = http
        self.retries = Retries() if retries is None else retries

    def tenant(self, tenant: str) -> dict[str, Any]:
        """A tenant with its quotas and what it uses."""
        return self._get(_path("tenants", tenant))

    def put_tenant(self, tenant: str, settings: Mapping[str, object] | None = None) -> dict[str, Any]:
        """Create a tenant, or change what ``settings`` names."""
        return self._change("PUT", _path("tenants", tenant), {} if settings is None else settings)

    def delete_tenant(self, tenant: str) -> dict[str, Any]:
        """Delete a tenant and retire its models, to the end."""
        return self._until_done(_path("tenants", tenant))

    def api_key(self, tenant: str) -> dict[str, Any]:
        """A tenant's API key with its value, made if there is none; of platforms with usage plans."""
        return self._send("PUT", _path("tenants", tenant, "api-key"), None).json()

    def revoke_api_key(self, tenant: str) -> dict[str, Any]:
        """Take a tenant's API key back; the tenant as it is then."""
        return self._change("DELETE", _path("tenants", tenant, "api-key"), None)

    def models(self, tenant: str) -> Iterator[dict[str, Any]]:
        """A tenant's models by id, page by page."""
        return self._pages(_path("tenants", tenant, "models"), "models")

    def model(self, tenant: str, model: str) -> dict[str, Any]:
        """A model and its route."""
        return self._get(_path("tenants", tenant, "models", model))

    def delete_model(self, tenant: str, model: str) -> dict[str, Any]:
        """Take a model's route away and retire its versions, to the end."""
        return self._until_done(_path("tenants", tenant, "models", model))

    def activate(self, tenant: str, model: str, version: str, canary_percent: float | None = None, *, warm: bool = True) -> dict[str, Any]:
        """Send all requests of a model to a version, or a percentage of them; the model as it is then.

        The version is loaded first; one that loads longer than a call may take is asked for again until the deadline. Without ``warm``
        requests go to it at once.
        """
        body: dict[str, object] = {"version": version} if warm else {"version": version, "warm": False}
        if canary_percent is not None:
            body["canary"] = {"percent": canary_percent}
        return self._change("POST", _path("tenants", tenant, "models", model, "activate"), body)

    def versions(self, tenant: str, model: str) -> Iterator[dict[str, Any]]:
        """A model's versions, newest first, page by page."""
        return self._pages(_path("tenants", tenant, "models", model, "versions"), "versions")

    def version(self, tenant: str, model: str, version: str) -> dict[str, Any]:
        """A version: state, reasons, timings."""
        return self._get(_path("tenants", tenant, "models", model, "versions", version))

    def register(self, tenant: str, model: str, registration: Mapping[str, object]) -> dict[str, Any]:
        """Register a version; the answer has its id and where the artifact goes.

        No idempotency key: the same artifact finds the same version, and the answer is always one with addresses that are valid now.
        """
        answer = self._send("POST", _path("tenants", tenant, "models", model, "versions"), registration)
        return answer.json()

    def complete(self, tenant: str, model: str, version: str) -> dict[str, Any]:
        """Say that everything is uploaded; the version as it is then. It may be said again."""
        answer = self._send("POST", _path("tenants", tenant, "models", model, "versions", version, "complete"), {})
        return answer.json()

    def delete_version(self, tenant: str, model: str, version: str, *, force: bool = False) -> dict[str, Any]:
        """Retire a version; ``force``: also the active one, so that the model has no route then."""
        path = _path("tenants", tenant, "models", model, "versions", version)
        return self._change("DELETE", f"{path}?force=true" if force else path, None)

    def _get(self, path: str) -> dict[str, Any]:
        return self._send("GET", path, None).json()

    def _pages(self, path: str, member: str) -> Iterator[dict[str, Any]]:
        query: dict[str, object] = {"limit": _PAGE}
        while True:
            page = self._get(f"{path}?{urlencode(query)}")
            yield from page[member]
            if "next" not in page:
                return
            query["cursor"] = page["next"]

    def _change(self, method: str, path: str, body: Mapping[str, object] | None) -> dict[str, Any]:
        return self._send(method, path, body, {"idempotency-key": str(uuid.uuid4())}).json()

    def _until_done(self, path: str) -> dict[str, Any]:
        """Repeat a DELETE while it says that some is left."""
        while True:
            answer = self._send("DELETE", path, None, {"idempotency-key": str(uuid.uuid4())})
            if answer.status != 202:
                return answer.json()

    def _send(self, method: str, path: str, body: Mapping[str, object] | None, headers: Mapping[str, str] | None = None) -> Answer:
        sent = b"" if body is None else json.dumps(body).encode()
        kind = {} if body is None else {"content-type": "application/json"}
        answer = self.retries.run(lambda: self.http.call(method, path, sent, {**kind, **(headers or {})}), _is_transient)
        if answer.status >= 300:
            raise ApiError(f"{method} {path.partition('?')[0]}", answer)
        return answer


def _path(*parts: str) -> str:
    return "".join(f"/{quote(part, safe='')}" for part in parts)


def _is_transient(answer: Answer) -> bool:
    if answer.status in _TRANSIENT_STATUSES:
        return True
    return answer.status == 409 and str(_problem_of(answer).get("type", "")).removeprefix(TYPE_PREFIX) in _TRANSIENT_PROBLEMS
