"""Speaks to the container for the checks: fresh names, requests whose failures break a rule, and a clean-up."""

from __future__ import annotations

import asyncio
import itertools
import json
import secrets
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import httpx

from mme_local.conformance.subject import Subject

__all__ = ["BrokenRuleError", "Probe", "seen"]

_TEXT_CHARACTERS = 200
_RUN = secrets.token_hex(4)


class BrokenRuleError(Exception):
    """The container breaks the rule; the text says what was seen and what the rule wants."""


def seen(response: httpx.Response) -> str:
    """A request and its answer in words."""
    text = " ".join(response.text.split())[:_TEXT_CHARACTERS]
    return f"{response.request.method} {response.request.url.raw_path.decode()} answered {response.status_code} {text}".rstrip()


def _target(name: str) -> dict[str, str]:
    return {"X-Amzn-SageMaker-Target-Model": name}


class Probe:
    """One run against a container.

    Args:
        subject: the container.
        client: with its address.
    """

    def __init__(self, subject: Subject, client: httpx.AsyncClient) -> None:
        self.subject, self._client = subject, client
        self._run = _RUN + secrets.token_hex(4)
        self._numbers = itertools.count(1)
        self._folders = itertools.cycle(subject.models or [""])
        self._names: dict[str, str] = {}

    def name(self) -> str:
        """A name that no model has: 32 hexadecimal digits, as opaque as the platform's."""
        return f"{self._run}{next(self._numbers):016x}"

    @staticmethod
    def made(name: str) -> bool:
        """Whether a name is one of this process's probes."""
        return _RUN in name

    async def request(
        self, method: str, path: str, *, body: bytes = b"", headers: Mapping[str, str] | None = None, seconds: float | None = None
    ) -> httpx.Response:
        """Send a request; raises `BrokenRuleError` if there is no answer in time."""
        limit = seconds or self.subject.timeout_seconds
        try:
            async with asyncio.timeout(limit):
                return await self._client.request(method, path, content=body or None, headers=headers)
        except TimeoutError:
            raise BrokenRuleError(f"{method} {path} was not answered within {limit:g} s") from None
        except httpx.HTTPError as error:
            raise BrokenRuleError(f"{method} {path} was not answered: {str(error) or type(error).__name__}") from None

    async def ping(self) -> None:
        """The container must be healthy."""
        self.expect(await self.request("GET", "/ping", seconds=self.subject.ping_seconds), 200)

    async def load(self, name: str, folder: str | None = None) -> httpx.Response:
        """``POST /models``, of the next valid folder unless one is given."""
        url = folder or self._names.get(name) or next(self._folders)
        self._names[name] = url
        body = json.dumps({"model_name": name, "url": url}).encode()
        headers = {"Content-Type": "application/json", **_target(name)}
        return await self.request("POST", "/models", body=body, headers=headers)

    async def loaded(self, name: str | None = None) -> str:
        """Load a model; its load must succeed."""
        name = name or self.name()
        self.expect(await self.load(name), 200)
        return name

    def folder(self, name: str) -> str:
        """The folder that a model was loaded from."""
        return self._names[name]

    async def unload(self, name: str) -> httpx.Response:
        """``DELETE /models/NAME``."""
        return await self.request("DELETE", f"/models/{name}", headers=_target(name), seconds=self.subject.unload_seconds)

    async def unloaded(self, name: str) -> None:
        """Unload a model; that must succeed."""
        self.expect(await self.unload(name), 200)

    async def describe(self, name: str) -> httpx.Response:
        """``GET /models/NAME``."""
        return await self.request("GET", f"/models/{name}")

    async def listed(self, limit: int | None = None) -> list[dict[str, Any]]:
        """All pages of ``GET /models``; ``limit`` asks for short ones, where the container knows that."""
        models: list[dict[str, Any]] = []
        options = {} if limit is None else {"limit": str(limit)}
        path, tokens = f"/models?{httpx.QueryParams(options)}".rstrip("?"), set[str]()
        while True:
            response = await self.request("GET", path)
            self.expect(response, 200)
            document = self.document(response)
            page = document.get("models")
            if not isinstance(page, list) or not all(isinstance(entry, dict) for entry in page):
                raise BrokenRuleError(f'{seen(response)}: an object with a list "models" of objects is expected')
            models += page
            token = document.get("nextPageToken")
            if not token:
                return models
            if token in tokens:
                raise BrokenRuleError(f"{seen(response)}: the token {token!r} was given before, the pages never end")
            tokens.add(token)
            path = f"/models?{httpx.QueryParams({**options, 'next_page_token': token})}"

    async def listed_names(self, limit: int | None = None) -> list[str]:
        """The names of all pages."""
        return [str(entry.get("modelName")) for entry in await self.listed(limit)]

    async def invoke(self, name: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> httpx.Response:
        """``POST /models/NAME/invoke``, with the payload unless a body is given; ``headers`` replace or add to the usual ones."""
        sent = {"Content-Type": self.subject.content_type, **_target(name)}
        if self.subject.accept is not None:
            sent["Accept"] = self.subject.accept
        sent.update(headers or {})
        return await self.request(
            "POST", f"/models/{name}/invoke", body=self.subject.payload or b"" if body is None else body, headers=sent
        )

    async def answers(self, name: str) -> None:
        """A loaded model must be known, and answer the payload if there is one."""
        self.expect(await self.describe(name), 200)
        if self.subject.payload is not None:
            self.succeeded(await self.invoke(name))

    async def absent(self, name: str) -> None:
        """A model must not be known."""
        self.expect(await self.describe(name), 404)
        if name in await self.listed_names():
            raise BrokenRuleError(f"GET /models lists {name}, which is not loaded")

    @staticmethod
    def expect(response: httpx.Response, *statuses: int) -> None:
        """The answer must have one of these statuses."""
        if response.status_code not in statuses:
            raise BrokenRuleError(f"{seen(response)}: {' or '.join(map(str, statuses))} is expected")

    @staticmethod
    def succeeded(response: httpx.Response) -> None:
        """The answer must have a status from 200 to 299."""
        if not response.is_success:
            raise BrokenRuleError(f"{seen(response)}: a status from 200 to 299 is expected")

    @staticmethod
    def refused(response: httpx.Response, *excluded: int) -> None:
        """The answer must be an error, and none of these."""
        if response.status_code < httpx.codes.BAD_REQUEST or response.status_code in excluded:
            but = f" other than {' and '.join(map(str, excluded))}" if excluded else ""
            raise BrokenRuleError(f"{seen(response)}: an error{but} is expected")

    @staticmethod
    def document(response: httpx.Response) -> dict[str, Any]:
        """The JSON object in an answer."""
        try:
            document = response.json()
        except ValueError as error:
            raise BrokenRuleError(f"{seen(response)}: valid JSON is expected ({error})") from None
        if not isinstance(document, dict):
            raise BrokenRuleError(f"{seen(response)}: a JSON object is expected")
        return document

    async def clean(self) -> None:
        """Unload whatever the checks have loaded; failures show elsewhere."""
        for name in list(self._names):
            del self._names[name]
            with suppress(BrokenRuleError):
                await self.unload(name)
