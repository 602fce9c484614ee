"""JSON of any size, checked to its last byte while a token at most is held.

Runs of numbers in arrays, which are most of a model, are checked in blocks by the standard library's parser.
``NaN`` and infinities count as numbers, as XGBoost writes them.
"""

from __future__ import annotations

import json
import re

from mme_tenancy.formats.content import MAX_STEPS, ContentFault, too_fine
from mme_tenancy.formats.outline import MAX_DEPTH, Outline

__all__ = ["JsonStream"]

_TOKEN_BYTES = 1 << 20
_BACKSLASH = 0x5C
_RUN_BYTES = 1 << 16
_SPACE = re.compile(rb"[ \t\r\n]*")
_RUN = re.compile(rb"[-+0-9.eENaInfity, \t\r\n]{2,%d}" % _RUN_BYTES)
_SCALAR = re.compile(rb"[-+.0-9A-Za-z]+")
_VALUE, _FIRST_VALUE, _KEY, _FIRST_KEY, _COLON, _AFTER, _END = range(7)


class JsonStream:
    """Takes the text of one JSON object.

    Args:
        outline: gets the upper keys.
    """

    def __init__(self, outline: Outline) -> None:
        self._outline = outline
        self._buffer = b""
        self._scanned = 0
        self._steps = 0
        self._expect = _VALUE
        self._open = b""
        self._paths: list[tuple[str, ...] | None] = []
        self._path: tuple[str, ...] | None = ()

    def feed(self, data: memoryview) -> None:
        """Take the next bytes; raises `ContentFault`."""
        self._buffer += data
        self._read(last=False)
        if len(self._buffer) > _TOKEN_BYTES:
            raise ContentFault(f"a string or number longer than {_TOKEN_BYTES} bytes")

    def close(self) -> None:
        """There are no more bytes; raises `ContentFault` if that is too early."""
        self._read(last=True)
        if self._expect != _END:
            raise ContentFault("it ends too early")

    def _read(self, *, last: bool) -> None:
        text, position = self._buffer, 0
        while (position := self._after_space(text, position)) < len(text):
            if self._expect == _END:
                raise ContentFault("there is data behind its end")
            self._steps += 1
            if self._steps > MAX_STEPS:
                raise too_fine()
            step = self._token(text, position, last=last)
            if not step:
                break
            position = step
        self._buffer = text[position:]

    @staticmethod
    def _after_space(text: bytes, position: int) -> int:
        match = _SPACE.match(text, position)
        return match.end() if match else position

    def _token(self, text: bytes, position: int, *, last: bool) -> int:
        """Read one token; returns its end, or 0 if there is only a part of it."""
        first, expect = text[position : position + 1], self._expect
        if first == b'"' and expect in {_KEY, _FIRST_KEY, _VALUE, _FIRST_VALUE}:
            return self._string(text, position)
        if (first == b"}" and expect in {_FIRST_KEY, _AFTER}) or (first == b"]" and expect in {_FIRST_VALUE, _AFTER}):
            self._close_container(first)
            return position + 1
        if first == b":" and expect == _COLON:
            self._expect = _VALUE
            return position + 1
        if first == b"," and expect == _AFTER:
            self._expect = _KEY if self._open[-1:] == b"{" else _VALUE
            return position + 1
        if expect in {_VALUE, _FIRST_VALUE}:
            if first in {b"{", b"["}:
                self._open_container(first)
                return position + 1
            if self._open:
                return self._numbers(text, position) or self._scalar(text, position, last=last)
        raise ContentFault(f"{first.decode('latin-1')!r} stands where JSON does not allow it")

    def _open_container(self, bracket: bytes) -> None:
        if len(self._open) >= MAX_DEPTH:
            raise ContentFault(f"it is nested deeper than {MAX_DEPTH} levels")
        if not self._open and bracket != b"{":
            raise ContentFault("it does not start with an object")
        self._open += bracket
        self._paths.append(self._path if bracket == b"{" else None)
        self._expect = _FIRST_KEY if bracket == b"{" else _FIRST_VALUE
        self._path = None

    def _close_container(self, bracket: bytes) -> None:
        if self._open[-1:] != (b"{" if bracket == b"}" else b"["):
            raise ContentFault("its brackets do not match")
        self._open = self._open[:-1]
        self._paths.pop()
        self._value_is_over()

    def _value_is_over(self) -> None:
        self._expect = _AFTER if self._open else _END

    def _string(self, text: bytes, position: int) -> int:
        end = position + self._scanned
        while True:
            end = text.find(b'"', end + 1)
            if end < 0:
                self._scanned = len(text) - 1 - position
                return 0
            plain = end - 1
            while plain > position and text[plain] == _BACKSLASH:
                plain -= 1
            if (end - 1 - plain) % 2 == 0:
                break
        self._scanned = 0
        before = text[position + 1 : end]
        if b"\\" in before or not before.isascii() or not before.decode().isprintable():
            _load(text[position : end + 1])
        if self._expect in {_KEY, _FIRST_KEY}:
            self._path = self._outline.enter(self._paths[-1], before)
            self._expect = _COLON
        else:
            self._value_is_over()
        return end + 1

    def _numbers(self, text: bytes, position: int) -> int:
        """Numbers and their commas in an array, up to the last comma; 0 if there is no comma."""
        if self._open[-1:] != b"[" or (run := _RUN.match(text, position)) is None:
            return 0
        comma = run[0].rfind(b",")
        if comma < 0:
            return 0
        _load(b"[" + run[0][:comma] + b"]")
        if not run[0][:comma].strip():
            raise ContentFault("',' stands where JSON does not allow it")
        self._expect = _VALUE
        return position + comma + 1

    def _scalar(self, text: bytes, position: int, *, last: bool) -> int:
        match = _SCALAR.match(text, position)
        if match is None:
            raise ContentFault(f"{text[position : position + 1].decode('latin-1')!r} stands where JSON does not allow it")
        if match.end() == len(text) and not last:
            return 0
        if len(match[0]) > _RUN_BYTES:
            raise ContentFault(f"a number longer than {_RUN_BYTES} bytes")
        _load(match[0])
        self._value_is_over()
        return match.end()


def _load(text: bytes) -> None:
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ContentFault("it is not JSON") from error
