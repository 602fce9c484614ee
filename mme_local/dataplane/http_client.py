"""A lean keep-alive HTTP/1.1 client for one server on loopback: what the gateway adds to an invocation is mostly this.

It adds no headers of its own but Host and Content-Length, so a container sees the caller's headers and not those of a library. Nothing is
sent twice: whether a request whose connection broke has had an effect is for the caller to judge.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import cast

import httptools

__all__ = ["ConnectFailed", "ConnectionBroken", "HttpClient", "HttpError", "HttpResponse", "HttpStream"]

Headers = Sequence[tuple[bytes, bytes]]

_CUSTOM_ATTRIBUTES = b"x-amzn-sagemaker-custom-attributes"
_CONNECT_SECONDS = 5.0
_IDLE_CONNECTIONS = 64
_IDLE_SECONDS = 60.0
_STREAM_HIGH_BYTES = 256 * 1024
"""A streamed answer of which so much waits to be read stops being received."""
_COPIED_BYTES = 64 * 1024
"""A body up to this size goes out in one piece with its headers."""
_FORBIDDEN = re.compile(rb"[\r\n\0]")


class HttpError(Exception):
    """No whole answer came."""


class ConnectFailed(HttpError):  # noqa: N818 - the name says what happened
    """The server takes no connections."""


class ConnectionBroken(HttpError):  # noqa: N818 - the name says what happened
    """The connection ended or timed out before the whole answer was there, or what came is no HTTP answer."""


class HttpResponse:
    """An answer.

    Attributes:
        status: HTTP status.
        headers: names in lower case and values, in the server's order.
        body: the whole body.
    """

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, headers: Headers, body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    @property
    def content_type(self) -> str | None:
        """The Content-Type, if there is one."""
        return _value(self.headers, b"content-type")

    @property
    def custom_attributes(self) -> str | None:
        """What a container tells whoever invoked it, if it does."""
        return _value(self.headers, _CUSTOM_ATTRIBUTES)

    @property
    def text(self) -> str:
        """The body as text; bytes that are no UTF-8 are replaced."""
        return self.body.decode("utf-8", "replace")


class HttpStream:
    """An answer whose body is read as it comes.

    Attributes:
        status: HTTP status.
        headers: names in lower case and values, in the server's order.
    """

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection
        self.status, self.headers = connection.status, connection.headers

    @property
    def content_type(self) -> str | None:
        """The Content-Type, if there is one."""
        return _value(self.headers, b"content-type")

    @property
    def custom_attributes(self) -> str | None:
        """What a container tells whoever invoked it, if it does."""
        return _value(self.headers, _CUSTOM_ATTRIBUTES)

    async def chunks(self) -> AsyncIterator[bytes]:
        """The parts of the body as they arrive; raises `ConnectionBroken` when it breaks off."""
        while (part := await self._connection.next_part()) is not None:
            yield part


class HttpClient:
    """Requests to one server, each on a connection of its own, which is kept for later ones.

    It lives on one event loop. A cancelled request closes its connection.

    Args:
        port: of 127.0.0.1.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._host = f"Host: 127.0.0.1:{port}\r\n".encode()
        self._idle: deque[_Connection] = deque()
        self._open: set[_Connection] = set()
        self._closed = False

    @property
    def idle(self) -> int:
        """Number of open connections that wait for a request."""
        return sum(connection.reusable for connection in self._idle)

    async def request(
        self, method: str, path: str, *, headers: Headers = (), body: bytes = b"", timeout_seconds: float | None = None
    ) -> HttpResponse:
        """Send a request and return the whole answer.

        Args:
            method: HTTP method.
            path: with its query, already encoded.
            headers: names and values, sent as they are.
            body: of the request.
            timeout_seconds: from the sending until the whole answer is there; no limit by default.

        Raises:
            TimeoutError: the answer took longer.
            ConnectFailed: the server takes no connections.
            ConnectionBroken: there is no whole answer.
            ValueError: a header would end its line.
        """
        head = self._head(method, path, headers, body)
        connection = self._reuse() or await self._connect()
        try:
            return await connection.exchange(head, body, timeout_seconds)
        finally:
            self._release(connection)

    @asynccontextmanager
    async def stream(self, method: str, path: str, *, headers: Headers = (), body: bytes = b"") -> AsyncIterator[HttpStream]:
        """Send a request; the block gets the answer when its headers are there, and reads its body part by part.

        A block that leaves before the end closes the connection. Arguments and errors are those of `request`.
        """
        head = self._head(method, path, headers, body)
        connection = self._reuse() or await self._connect()
        try:
            await connection.begin(head, body)
            yield HttpStream(connection)
        finally:
            self._release(connection)

    def close(self) -> None:
        """Close every connection; requests under way end with `ConnectionBroken`, later ones with `ConnectFailed`."""
        self._closed = True
        self._idle.clear()
        for connection in list(self._open):
            connection.abort("the client was closed")
        self._open.clear()

    def _head(self, method: str, path: str, headers: Headers, body: bytes) -> bytes:
        lines = [f"{method} {path} HTTP/1.1\r\n".encode("ascii"), self._host]
        for name, value in headers:
            if _FORBIDDEN.search(value):
                raise ValueError(f"header {name!r} has a line break or NUL in its value {value!r}: remove it")
            lines += (name, b": ", value, b"\r\n")
        if body or method == "POST":
            lines.append(b"Content-Length: %d\r\n" % len(body))
        lines.append(b"\r\n")
        return b"".join(lines)

    def _reuse(self) -> _Connection | None:
        """The connection used last, if one is still good; old ones go."""
        idle = self._idle
        while idle:
            connection = idle.pop()
            if connection.reusable:
                if idle and not idle[0].reusable:
                    self._drop(idle.popleft())
                return connection
            self._drop(connection)
        return None

    async def _connect(self) -> _Connection:
        self._check_open()
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                _transport, connection = await loop.create_connection(lambda: _Connection(loop), "127.0.0.1", self._port)
        except TimeoutError:
            raise ConnectionBroken(f"port {self._port} did not answer a connection within {_CONNECT_SECONDS:g} s") from None
        except OSError as error:
            raise ConnectFailed(f"port {self._port} takes no connections: {error}") from None
        self._open.add(connection)
        try:
            self._check_open()
        except ConnectFailed:
            self._drop(connection)
            raise
        return connection

    def _check_open(self) -> None:
        if self._closed:
            raise ConnectFailed("the client is closed")

    def _release(self, connection: _Connection) -> None:
        """Keep the connection for the next request, or close it when its answer is not whole or the server wants it closed."""
        if connection.reusable and len(self._idle) < _IDLE_CONNECTIONS and not self._closed:
            self._idle.append(connection)
        else:
            self._drop(connection)

    def _drop(self, connection: _Connection) -> None:
        self._open.discard(connection)
        connection.abort("the connection is closed")


class _Connection(asyncio.Protocol):
    """One connection with one request at a time; the parser calls the ``on_`` methods."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: asyncio.Transport
        self._parser = httptools.HttpResponseParser(self)
        self._answered: asyncio.Future[HttpResponse] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._error: HttpError | None = None
        self._parts: deque[bytes] = deque()
        self._size = 0
        self._keep = True
        self._streamed = False
        self._paused = False
        self._unasked = False
        self._used = loop.time()
        self.complete = True
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []

    @property
    def reusable(self) -> bool:
        """Whether it can take another request: it is open, nothing is under way on it, and it was used not long ago."""
        return self._keep and self.complete and not self._transport.is_closing() and self._loop.time() < self._used + _IDLE_SECONDS

    async def exchange(self, head: bytes, body: bytes, timeout_seconds: float | None) -> HttpResponse:
        """Send a request; returns the whole answer or raises `TimeoutError`."""
        answered: asyncio.Future[HttpResponse] = self._loop.create_future()
        self._answered = answered
        self._send(head, body, streamed=False)
        if timeout_seconds is None:
            return await answered
        timer = self._loop.call_later(timeout_seconds, _expire, answered)
        try:
            return await answered
        finally:
            timer.cancel()

    async def begin(self, head: bytes, body: bytes) -> None:
        """Send a request; returns when the headers of the answer are there."""
        started: asyncio.Future[None] = self._loop.create_future()
        self._waiter = started
        self._send(head, body, streamed=True)
        await started

    def _send(self, head: bytes, body: bytes, *, streamed: bool) -> None:
        self.status, self.headers = 0, []
        self._parts.clear()
        self._size, self.complete, self._streamed = 0, False, streamed
        if self._transport.is_closing():  # it was closed before anything could be sent: nobody would tell
            self._fail("the connection ended before the request was sent")
            return
        if len(body) <= _COPIED_BYTES:
            self._transport.write(head + body)
        else:
            self._transport.write(head)
            self._transport.write(body)

    async def next_part(self) -> bytes | None:
        """The next part of a streamed body, ``None`` after the last."""
        while not self._parts:
            if self._error is not None:
                raise self._error
            if self.complete:
                return None
            self._waiter = self._loop.create_future()
            await self._waiter
        part = self._parts.popleft()
        self._size -= len(part)
        if self._paused and self._size < _STREAM_HIGH_BYTES:
            self._paused = False
            self._transport.resume_reading()
        return part

    def abort(self, reason: str) -> None:
        """Close at once; who waits gets `ConnectionBroken`."""
        self._transport.abort()
        if not self.complete:
            self._fail(reason)

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(f"the answer is no HTTP: {error}")

    def eof_received(self) -> None:
        """See `asyncio.Protocol`: the end of a body without a length is the end of the connection."""
        if not self.complete and self.status and not self._keep and self._no_length():
            self._finish()
        else:
            self._keep = False

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._keep = False
        if not self.complete:
            self._fail(f"the connection ended before the whole answer was there{f' ({exc})' if exc else ''}")

    # httptools.HttpResponseParser

    def on_message_begin(self) -> None:
        """See `httptools.HttpResponseParser`."""
        if self.complete:  # what the server says unasked must not become the answer to the next request
            self._keep, self._unasked = False, True

    def on_header(self, name: bytes, value: bytes) -> None:
        """See `httptools.HttpResponseParser`."""
        if not self._unasked:
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """See `httptools.HttpResponseParser`."""
        if self._unasked:
            return
        status = self._parser.get_status_code()
        if status < 200:  # an interim answer, which no request of ours asks for
            self.headers = []
            return
        self.status = status
        self._keep = self._parser.should_keep_alive()
        if self._streamed:
            self._wake()

    def on_body(self, part: bytes) -> None:
        """See `httptools.HttpResponseParser`."""
        if self._unasked:
            return
        self._parts.append(part)
        if self._streamed:
            self._size += len(part)
            if self._size >= _STREAM_HIGH_BYTES and not self._paused:
                self._paused = True
                self._transport.pause_reading()
            self._wake()

    def on_message_complete(self) -> None:
        """See `httptools.HttpResponseParser`."""
        if self.status and not self.complete:
            self._finish()

    def _no_length(self) -> bool:
        return not any(name in (b"content-length", b"transfer-encoding") for name, _ in self.headers)

    def _finish(self) -> None:
        self.complete = True
        self._used = self._loop.time()
        if self._streamed:
            self._wake()
        elif self._answered is not None and not self._answered.done():
            parts = self._parts
            self._answered.set_result(HttpResponse(self.status, self.headers, parts[0] if len(parts) == 1 else b"".join(parts)))

    def _fail(self, reason: str) -> None:
        self._error = ConnectionBroken(reason)
        self._keep, self.complete = False, True
        if self._streamed and self.status:
            self._wake()  # `next_part` gives what has come before it raises
            return
        waiter = self._waiter if self._streamed else self._answered
        if waiter is not None and not waiter.done():
            waiter.set_exception(self._error)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _expire(answered: asyncio.Future[HttpResponse]) -> None:
    if not answered.done():
        answered.set_exception(TimeoutError())


def _value(headers: Headers, wanted: bytes) -> str | None:
    for name, value in headers:
        if name == wanted:
            return value.decode("latin-1")
    return None
