"""An answer of a server whose body is read as it comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack

from mme_local.dataplane.http_client import HttpClient, HttpError, HttpStream
from mme_local.dataplane.interface import StreamFailed

__all__ = ["AnswerStream", "Chunks", "no_chunks", "open_stream"]


class AnswerStream:
    """An answer whose headers are there, on a connection of its own until `close`.

    Args:
        answer: of the client.
        held: ends the connection's use.
        deadline: when the answer must have ended, in the event loop's time.
    """

    def __init__(self, answer: HttpStream, held: AsyncExitStack, deadline: float) -> None:
        self.status, self.content_type, self.custom_attributes = answer.status, answer.content_type, answer.custom_attributes
        self._parts, self._held, self._deadline = answer.chunks(), held, deadline

    async def next(self) -> bytes | None:
        """The next part, ``None`` at the end; raises `StreamFailed` if there is neither."""
        try:
            async with asyncio.timeout_at(self._deadline):
                return await anext(self._parts, None)
        except TimeoutError:
            raise StreamFailed(
                "ModelInvocationTimeExceeded",
                "The model failed to finish sending the inference response within the timeout period allowed by Amazon SageMaker.",
            ) from None
        except HttpError as error:
            raise StreamFailed(
                "StreamBroken", f"The TCP connection between the client and the model was reset or closed ({error})."
            ) from None

    async def read(self) -> bytes:
        """All that is left; the stream is closed after that. Raises `HttpError` if it breaks off."""
        async with self._held:
            return b"".join([part async for part in self._parts])

    async def close(self) -> None:
        """Give the connection up."""
        await self._held.aclose()


async def open_stream(
    client: HttpClient, path: str, headers: Sequence[tuple[bytes, bytes]], body: bytes, timeout_seconds: float
) -> AnswerStream:
    """Send a request and return when the answer's headers are there. The errors are those of `HttpClient.request`."""
    deadline = asyncio.get_running_loop().time() + timeout_seconds
    async with AsyncExitStack() as stack:
        answer = await stack.enter_async_context(client.stream("POST", path, headers=headers, body=body))
        return AnswerStream(answer, stack.pop_all(), deadline)
    raise AssertionError("unreachable")


class Chunks:
    """The parts of an answer for the caller; an asynchronous iterator that may be closed before its end.

    Args:
        stream: the answer.
        ended: called once, with whether the answer came to its end.
    """

    def __init__(self, stream: AnswerStream, ended: Callable[[bool], None]) -> None:
        self._stream, self._ended, self._open = stream, ended, True

    def __aiter__(self) -> Chunks:
        return self

    async def __anext__(self) -> bytes:
        if not self._open:
            raise StopAsyncIteration
        try:
            part = await self._stream.next()
        except BaseException:
            await self._end(complete=False)
            raise
        if part is None:
            await self._end(complete=True)
            raise StopAsyncIteration
        return part

    async def aclose(self) -> None:
        """Stop reading."""
        await self._end(complete=False)

    async def _end(self, *, complete: bool) -> None:
        if self._open:
            self._open = False
            try:
                await self._stream.close()
            finally:
                self._ended(complete)


async def no_chunks() -> AsyncIterator[bytes]:
    """The body of a refused invocation."""
    parts: tuple[bytes, ...] = ()
    for part in parts:
        yield part
