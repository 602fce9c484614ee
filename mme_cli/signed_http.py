"""HTTP calls of the tenant API: signed with SigV4, or with a token where the API has an authorizer."""

from __future__ import annotations

import json
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import BinaryIO

import botocore.credentials
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import HTTPClientError
from botocore.httpsession import URLLib3Session

from mme_cli.errors import CommandError, NoAnswerError
from mme_local import Credentials

__all__ = ["Answer", "HttpClient", "SignedClient", "TokenClient"]


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer; header names are lower-case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> dict[str, object]:
        """The body as a JSON object."""
        document = json.loads(self.body)
        if not isinstance(document, dict):
            raise CommandError(f"the answer is not a JSON object: {self.body[:200]!r}")
        return document


class HttpClient(ABC):
    """Calls one API as one caller; keeps its connections open; may be used by several threads.

    Args:
        url: the stage's address.
        timeout_seconds: for connecting, and for each read.
        connections: how many are kept open.
    """

    def __init__(self, url: str, timeout_seconds: int = 35, *, connections: int = 16) -> None:
        self._url = url.rstrip("/")
        # Without it a body waits for the acknowledgement of its headers, some 40 ms.
        no_delay = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)]
        self._session = URLLib3Session(timeout=timeout_seconds, max_pool_connections=connections, socket_options=no_delay)  # type: ignore[arg-type]  # the stubs say list[str]

    def call(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Answer:
        """Send one request; raises `NoAnswerError` when no answer comes."""
        request = AWSRequest(method=method, url=f"{self._url}{path}", data=body, headers=dict(headers or {}))
        self._authorize(request)
        return self._send(request)

    @abstractmethod
    def _authorize(self, request: AWSRequest) -> None:
        """Say who calls."""

    def upload(self, method: str, url: str, body: bytes | BinaryIO, headers: Mapping[str, str]) -> Answer:
        """Send a presigned request as it is; raises `NoAnswerError` when no answer comes."""
        return self._send(AWSRequest(method=method, url=url, data=body, headers=dict(headers)))

    def expect(
        self, statuses: tuple[int, ...], method: str, path: str, document: object = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Send a JSON request; raises `CommandError` with the problem's text when the status is another."""
        body = b"" if document is None else json.dumps(document).encode()
        answer = self.call(method, path, body, {"content-type": "application/json", **(headers or {})})
        if answer.status not in statuses:
            raise CommandError(f"{method} {path} answered {answer.status}: {answer.body.decode('utf-8', 'replace')[:500]}")
        return answer

    def _send(self, request: AWSRequest) -> Answer:
        prepared = request.prepare()
        try:
            response = self._session.send(prepared)
        except HTTPClientError as error:
            raise NoAnswerError(f"{prepared.method} {prepared.url.partition('?')[0]} got no answer: {error}") from error
        return Answer(response.status_code, {name.lower(): value for name, value in response.headers.items()}, response.content)


class SignedClient(HttpClient):
    """Calls as one principal, with SigV4: for APIs with IAM authorization.

    Args:
        url: the stage's address.
        keys: the principal's credentials, or what gives those that are valid now.
        region: AWS region of the API.
        timeout_seconds: for connecting, and for each read.
        connections: how many are kept open.
    """

    def __init__(
        self, url: str, keys: Credentials | Callable[[], Credentials], region: str, timeout_seconds: int = 35, *, connections: int = 16
    ) -> None:
        super().__init__(url, timeout_seconds, connections=connections)
        self._keys: Callable[[], Credentials] = keys if callable(keys) else lambda: keys
        self._region = region

    def _authorize(self, request: AWSRequest) -> None:
        keys = self._keys()
        credentials = botocore.credentials.Credentials(keys.access_key_id, keys.secret_access_key, keys.session_token)
        SigV4Auth(credentials, "execute-api", self._region).add_auth(request)


class TokenClient(HttpClient):
    """Calls with a bearer token: for APIs with an authorizer.

    Args:
        url: the stage's address.
        token: the token, without ``Bearer``.
        timeout_seconds: for connecting, and for each read.
        connections: how many are kept open.
    """

    def __init__(self, url: str, token: str, timeout_seconds: int = 35, *, connections: int = 16) -> None:
        super().__init__(url, timeout_seconds, connections=connections)
        self._token = token

    def _authorize(self, request: AWSRequest) -> None:
        request.headers["Authorization"] = f"Bearer {self._token}"
