"""What the gateway's HTTP server promises: raw requests over a socket, as no client library would send them."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from contextlib import closing, suppress

import pytest

from mme_local.http_server import HEAD_BYTES, new_event_loop, serve
from mme_local.wire import StreamReply, send_stream

HEALTH = b"GET /_ministack/health HTTP/1.1\r\nHost: 127.0.0.1\r\n"


class Connection:
    """A connection on which a test says what it likes."""

    def __init__(self, port):
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._file = self._socket.makefile("rb")

    def send(self, data):
        self._socket.sendall(data)

    def read(self, size):
        return self._file.read(size)

    def answer(self):
        """Status, headers and body of one answer."""
        status = int(self._file.readline().split()[1])
        headers = {}
        while (line := self._file.readline().strip()) != b"":
            name, _, value = line.partition(b":")
            headers.setdefault(name.decode().lower(), []).append(value.strip().decode())
        return status, headers, self._file.read(int(headers.get("content-length", ["0"])[0]))

    def close(self):
        self._file.close()
        self._socket.close()


@pytest.fixture
def connection(module_cloud):
    with closing(Connection(int(module_cloud.endpoint_url.rpartition(":")[2]))) as opened:
        yield opened


def test_a_connection_serves_more_than_a_thousand_requests(connection):
    for _ in range(1200):
        connection.send(HEALTH + b"\r\n")
        assert connection.answer()[0] == 200


def test_pipelined_requests_are_answered_in_turn(connection):
    connection.send((HEALTH + b"\r\n") * 2 + HEALTH.replace(b"_ministack/health", b"_mme/nothing") + b"\r\n")
    assert [connection.answer()[0] for _ in range(3)] == [200, 200, 404]


def test_a_client_that_asks_before_it_sends_is_told_to_go_on(connection):
    connection.send(b"PUT /b/k HTTP/1.1\r\nHost: 127.0.0.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
    assert connection.read(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
    connection.send(b"ok")
    assert connection.answer()[0] in (403, 404)


def test_headers_without_an_end_are_refused(connection):
    connection.send(HEALTH)
    with suppress(ConnectionError):
        for _ in range(2 * HEAD_BYTES // 1024):
            connection.send(b"X-More: " + b"x" * 1016)
    assert connection.answer()[0] == 431


def test_a_head_that_is_too_long_is_answered_with_431(connection):
    connection.send(HEALTH + b"X-More: " + b"x" * HEAD_BYTES)
    assert connection.answer()[0] == 431
    assert connection.read(1) == b""


def test_a_long_body_is_no_long_head(connection):
    body = b"x" * (4 * HEAD_BYTES)
    connection.send(b"POST /_mme/nothing HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    assert connection.answer()[0] == 404
    connection.send(HEALTH + b"\r\n")
    assert connection.answer()[0] == 200


@pytest.mark.parametrize(
    "request_", [b"no http at all\r\n\r\n", b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n", b"GET / HTTP/1.1\r\nBad Name: 1\r\n\r\n"]
)
def test_what_is_no_http_is_refused(connection, request_):
    connection.send(request_)
    assert connection.answer()[0] in (400, 403)


def test_a_caller_cannot_say_that_somebody_else_calls(connection):
    connection.send(b"GET /_mme/status HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Forwarded-For: 10.1.2.3\r\nX-Forwarded-Proto: http\r\n\r\n")
    status, _, body = connection.answer()
    assert (status, "endpoints" in json.loads(body)) == (200, True)


def test_answers_name_no_server(connection):
    connection.send(HEALTH + b"\r\n")
    _, headers, _ = connection.answer()
    assert "server" not in headers
    assert len(headers["date"]) == 1


def test_a_web_socket_of_no_api_is_refused(connection):
    connection.send(
        b"GET /nothing HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    assert connection.answer()[0] == 403


def test_a_caller_who_leaves_a_stream_ends_what_it_comes_from():
    async def scenario():
        closed = asyncio.Event()

        async def parts():
            yield b"first"
            await asyncio.Event().wait()  # the source has no more to send, and does not end

        async def close():
            closed.set()

        async def application(scope, receive, send):
            if scope["type"] == "lifespan":
                for stage in ("startup", "shutdown"):
                    await receive()
                    await send({"type": f"lifespan.{stage}.complete"})
                return
            while (await receive()).get("more_body"):
                pass
            await send_stream(receive, send, StreamReply(200, {"Content-Type": "text/plain"}, parts(), close))

        stop = asyncio.Event()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            serving = asyncio.create_task(serve(application, listener, stop))
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            writer.write(b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n\r\nok")
            await reader.readuntil(b"first")
            assert not closed.is_set()
            writer.close()
            async with asyncio.timeout(10):
                await closed.wait()
            stop.set()
            await serving

    loop = new_event_loop()
    try:
        loop.run_until_complete(scenario())
    finally:
        loop.close()


def test_the_loops_time_is_exact_and_goes_on_while_callbacks_run():
    loop = new_event_loop()
    try:
        seen = []

        def look():
            before = time.monotonic()
            seen.extend((before, loop.time(), time.monotonic()))

        loop.run_until_complete(_call(look))
        assert seen == sorted(seen)
    finally:
        loop.close()


async def _call(function):
    function()
