"""The gateway's HTTP server: uvicorn on uvloop, with what a local cloud needs of it set, and its event loop."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import uvicorn
import uvloop
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["HEAD_BYTES", "new_event_loop", "serve"]

HEAD_BYTES = 32 * 1024
"""A request whose line and headers do not end within so many bytes is refused; AWS's own limits lie below (API Gateway: 10,240 bytes)."""

_KEEP_ALIVE_SECONDS = 75
_GRACEFUL_SECONDS = 1


async def serve(application: Any, listener: socket.socket, stop: asyncio.Event) -> None:
    """Serve an ASGI application on a listening socket until ``stop`` is set; requests under way then have a second to end.

    Args:
        application: what to serve; it hears of start and end by its lifespan.
        listener: the socket; closed at the end.
        stop: ends the server.
    """
    config = uvicorn.Config(
        application,
        http=_Protocol,
        ws="wsproto",
        lifespan="on",
        interface="asgi3",
        log_config=None,
        access_log=False,
        # Nobody stands in front: who calls, and how, is what the connection says and not a header of the caller.
        proxy_headers=False,
        # The emulator names and dates its answers itself, as AWS's services do.
        server_header=False,
        date_header=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=_GRACEFUL_SECONDS,
        # Who calls is kept in context variables: nothing of a request may be seen by the next one of its connection.
        reset_contextvars=True,
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve([listener]), name="http server")
    stopping = asyncio.create_task(stop.wait(), name="stop")
    try:
        await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
        server.should_exit = True
        await serving
    finally:
        stopping.cancel()


class _Server(uvicorn.Server):
    """Leaves signals to the gateway."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


class _Protocol(HttpToolsProtocol):
    """Refuses requests whose line and headers have no end."""

    _head_bytes = 0
    _in_head = True

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._in_head and self._head_bytes > HEAD_BYTES and not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            self.transport.close()

    def on_headers_complete(self) -> None:
        self._head_bytes, self._in_head = 0, False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_head = True
        super().on_message_complete()


class _Loop(uvloop.Loop):
    """A uvloop whose time is exact: its own stands still while callbacks run and counts whole milliseconds."""

    def time(self) -> float:
        return time.monotonic()


def new_event_loop() -> asyncio.AbstractEventLoop:
    """The gateway's event loop."""
    return _Loop()
