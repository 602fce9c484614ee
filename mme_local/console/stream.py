"""``GET /_mme/stream``: the feed as server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from mme_local.console.activity import Activity
from mme_local.console.feed import Feed

__all__ = ["Stream"]

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

_READERS = 32
_ITEMS = 500
"""Items of one message: what a reader that does not read costs at most."""
_INTERVAL_SECONDS = 0.15
"""What happens within it comes in one message."""
_HEARTBEAT_SECONDS = 10.0
_STUCK_SECONDS = 30.0
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
]


class Stream:
    """Serves readers. Each message is one event of server-sent events:

    ``{"missed": 0, "items": [...], "seconds": [...]}``, its id the number of its last item. A reader that takes nothing for
    30 s is disconnected; it holds no more than one message meanwhile.

    Args:
        feed: where the items come from.
        activity: where the counts of the seconds come from.
    """  # noqa: D415

    def __init__(self, feed: Feed, activity: Activity) -> None:
        self._feed, self._activity = feed, activity
        self._ended = asyncio.Event()
        self.readers = 0

    @property
    def full(self) -> bool:
        """Whether there are as many readers as may be."""
        return self.readers >= _READERS

    def end(self) -> None:
        """Let all readers go."""
        self._ended.set()

    async def serve(self, after: int | None, receive: Receive, send: Send) -> None:
        """Serve one reader until it leaves.

        Args:
            after: the number of the last item that it has; ``None`` for what comes from now on.
            receive: of the connection.
            send: of the connection.
        """
        number = self._feed.last if after is None else after
        self.readers += 1
        leaving = [asyncio.create_task(_gone(receive)), asyncio.create_task(self._ended.wait())]
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            await self._follow(number, leaving, send)
            if not leaving[0].done():
                await send({"type": "http.response.body", "body": b""})
        except TimeoutError:
            return  # it takes nothing
        finally:
            self.readers -= 1
            for task in leaving:
                task.cancel()

    async def _follow(self, number: int, leaving: list[asyncio.Task[Any]], send: Send) -> None:
        loop = asyncio.get_running_loop()
        second = self._activity.seconds()[-1].number - 1
        sent_at = loop.time() - _HEARTBEAT_SECONDS  # a first sign of life at once: the browser knows that it is connected
        while not any(task.done() for task in leaving):
            number, missed, items = self._feed.after(number, _ITEMS)
            seconds = [entry for entry in self._activity.seconds()[:-1] if entry.number > second]
            if items or missed or seconds:
                second = seconds[-1].number if seconds else second
                message = {"missed": missed, "items": items, "seconds": [entry.document() for entry in seconds]}
                data = f"id: {number}\ndata: {json.dumps(message, separators=(',', ':'))}\n\n"
            elif loop.time() - sent_at >= _HEARTBEAT_SECONDS:
                data = ": still here\n\n"
            else:
                await asyncio.wait(leaving, timeout=_INTERVAL_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                continue
            async with asyncio.timeout(_STUCK_SECONDS):
                await send({"type": "http.response.body", "body": data.encode(), "more_body": True})
            sent_at = loop.time()
            if len(items) < _ITEMS:
                await asyncio.wait(leaving, timeout=_INTERVAL_SECONDS, return_when=asyncio.FIRST_COMPLETED)


async def _gone(receive: Receive) -> None:
    with suppress(asyncio.CancelledError):
        while (await receive())["type"] != "http.disconnect":
            continue
