"""How a member's content is checked piece by piece, and parsers that ask for the bytes they want."""

from __future__ import annotations

from collections.abc import Generator
from typing import Protocol

__all__ = ["MAX_STEPS", "Content", "ContentFault", "Parser", "Pull", "too_fine"]

MAX_STEPS = 30_000_000
"""Greatest number of parts that are looked at one by one; a file of more would hold the function up, and no model is so fine."""

Parser = Generator[int, bytes, None]
"""A generator that yields ``n`` to be sent the next ``n`` bytes, or ``-n`` to be sent ``b""`` once ``n`` bytes are skipped."""


_WINDOW_BYTES = 1 << 16


class ContentFault(Exception):  # noqa: N818 - a fault of the file, turned into a finding; not an error of ours
    """A file is not what it claims to be; the text is what was found.

    Attributes:
        detail: what was found.
        rule: the broken rule, if it is another one than the file's format.
    """

    def __init__(self, detail: str, rule: str | None = None) -> None:
        super().__init__(detail)
        self.detail, self.rule = detail, rule


def too_fine() -> ContentFault:
    """The fault of a file that has more than `MAX_STEPS` parts."""
    return ContentFault(f"it has more than {MAX_STEPS} parts")


class Content(Protocol):
    """Takes a member's content."""

    def feed(self, data: memoryview) -> None:
        """Take the next bytes; raises `ContentFault`."""
        ...

    def close(self) -> None:
        """There are no more bytes; raises `ContentFault` if that is too early."""
        ...


class Pull:
    """Drives a parser with pieces of any size; holds no more than the parser asks for at once.

    Args:
        parser: asks for bounded amounts only.
    """

    def __init__(self, parser: Parser) -> None:
        self._parser = parser
        self._buffer = bytearray()
        self._wanted = 0
        self._skip = 0
        self._done = False
        self._steps = 0
        try:
            asked = next(parser)
        except StopIteration:
            self._done, asked = True, 0
        self._wanted, self._skip = max(asked, 0), max(-asked, 0)
        if not self._done and not asked:
            self._serve(0, b"")

    def feed(self, data: memoryview) -> None:
        """Take the next bytes; raises `ContentFault`."""
        position, end = 0, len(data)
        while position < end:
            if self._done:
                raise ContentFault("there is data behind its end")
            if self._skip:
                step = min(self._skip, end - position)
                self._skip -= step
                position += step
                if not self._skip:
                    self._serve(0, b"")
            elif not self._buffer and self._wanted <= min(end - position, _WINDOW_BYTES):
                position += self._serve(self._wanted, bytes(data[position : position + _WINDOW_BYTES]))
            else:
                step = min(self._wanted - len(self._buffer), end - position)
                self._buffer += data[position : position + step]
                position += step
                if len(self._buffer) == self._wanted:
                    got = bytes(self._buffer)
                    self._buffer.clear()
                    self._serve(self._wanted, got)

    def close(self) -> None:
        """There are no more bytes; raises `ContentFault` if the parser wants more."""
        if not self._done:
            raise ContentFault("it ends too early")

    def _serve(self, asked: int, window: bytes) -> int:
        """Give the parser what it asks for as long as that lies in the window; returns how much of it was used up."""
        send, steps, position, end = self._parser.send, self._steps, 0, len(window)
        try:
            while (stop := position + abs(asked)) <= end:
                got = window[position:stop] if asked > 0 else b""
                position = stop
                steps += 1
                if steps > MAX_STEPS:
                    raise too_fine()
                asked = send(got)
        except StopIteration:
            self._done, asked = True, 0
        self._steps = steps
        self._wanted, self._skip = max(asked, 0), max(-asked, 0)
        return position
