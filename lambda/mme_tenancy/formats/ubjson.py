"""Universal Binary JSON as XGBoost writes it (``Booster.save_model("model.ubj")``); the format: ubjson.org, draft 12."""

from __future__ import annotations

from collections.abc import Generator

from mme_tenancy.formats.content import ContentFault, Parser
from mme_tenancy.formats.outline import MAX_DEPTH, Outline

__all__ = ["ubjson"]

_SIZES = {b"Z": 0, b"T": 0, b"F": 0, b"i": 1, b"U": 1, b"C": 1, b"I": 2, b"l": 4, b"d": 4, b"L": 8, b"D": 8}
_INTEGERS = frozenset({b"i", b"U", b"I", b"l", b"L"})
_MAX_BYTES = 1 << 50
_KEY_BYTES = 1024


def ubjson(outline: Outline) -> Parser:
    """One object with everything in it, to its last byte; raises `ContentFault`."""
    marker = yield 1
    if marker != b"{":
        raise ContentFault("it does not start with an object")
    yield from _object(outline, (), 1)


def _object(outline: Outline, path: tuple[str, ...] | None, depth: int) -> Parser:
    while (marker := (yield 1)) != b"}":
        size = yield from _length(marker)
        if size > _KEY_BYTES:
            raise ContentFault(f"a key of {size} bytes")
        key = (yield size) if size else b""
        yield from _value((yield 1), outline, outline.enter(path, key), depth)


def _array(outline: Outline, depth: int) -> Parser:
    marker = yield 1
    if marker == b"$":
        kind = yield 1
        if kind not in _SIZES or (yield 1) != b"#":
            raise ContentFault(f"an array of the type {_shown(kind)}")
        count = yield from _length((yield 1))
        yield -_SIZES[kind] * count
    elif marker == b"#":
        for _ in range((yield from _length((yield 1)))):
            yield from _value((yield 1), outline, None, depth)
    else:
        while marker != b"]":
            yield from _value(marker, outline, None, depth)
            marker = yield 1


def _value(marker: bytes, outline: Outline, path: tuple[str, ...] | None, depth: int) -> Parser:
    if marker in _SIZES:
        yield -_SIZES[marker]
    elif marker == b"S":
        yield -(yield from _length((yield 1)))
    elif marker not in {b"{", b"["}:
        raise ContentFault(f"a value of the type {_shown(marker)}")
    elif depth >= MAX_DEPTH:
        raise ContentFault(f"it is nested deeper than {MAX_DEPTH} levels")
    elif marker == b"{":
        yield from _object(outline, path, depth + 1)
    else:
        yield from _array(outline, depth + 1)


def _length(marker: bytes) -> Generator[int, bytes, int]:
    if marker not in _INTEGERS:
        raise ContentFault(f"a length of the type {_shown(marker)}")
    length = int.from_bytes((yield _SIZES[marker]), "big", signed=marker != b"U")
    if not 0 <= length <= _MAX_BYTES:
        raise ContentFault(f"a length of {length}")
    return length


def _shown(marker: bytes) -> str:
    return repr(marker.decode("latin-1"))
