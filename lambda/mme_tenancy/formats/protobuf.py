"""The wire format of protocol buffers, walked along a table of the messages that matter.

Every length is checked against the message around it, so that a file is read to its last byte or refused. The format:
protobuf.dev, "Encoding".
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass

from mme_tenancy.formats.content import ContentFault, Parser

__all__ = ["BYTES", "VARINT", "Field", "Messages", "protobuf"]

VARINT, BYTES = 0, 2
"""Wire types."""
_FIXED_BYTES = {1: 8, 5: 4}
_MAX_DEPTH = 32
_MAX_VARINT_BYTES = 10


@dataclass(frozen=True, slots=True)
class Field:
    """A field that is looked at.

    Attributes:
        name: what is noted when it is there.
        wire: its wire type.
        message: the message in it, of the same table.
        keep_bytes: greatest length of a value that is handed on; longer ones are refused. 0: the value is skipped.
    """

    name: str
    wire: int = BYTES
    message: str | None = None
    keep_bytes: int = 0


Messages = Mapping[str, Mapping[int, Field]]
"""Fields by number, by message."""


def protobuf(messages: Messages, message: str, size_bytes: int, seen: Callable[[str, bytes], None]) -> Parser:
    """Walk one message of ``size_bytes``.

    Args:
        messages: the table.
        message: the outermost message's name.
        size_bytes: its length.
        seen: told ``message.field`` and the kept value of each field of the table, in the order of the file; a message comes
            before what is in it. May raise `ContentFault`.
    """
    yield from _message(messages, message, size_bytes, seen, 1)


def _message(messages: Messages, name: str, left: int, seen: Callable[[str, bytes], None], depth: int) -> Parser:
    if depth > _MAX_DEPTH:
        raise ContentFault(f"it is nested deeper than {_MAX_DEPTH} levels")
    fields = messages[name]
    while left:
        key, left = yield from _varint(left)
        number, wire = key >> 3, key & 7
        field = fields.get(number)
        if not number or (wire not in {VARINT, BYTES} and wire not in _FIXED_BYTES):
            raise ContentFault(f"a field {number} of the wire type {wire}")
        if field is not None and field.wire != wire:
            raise ContentFault(f"{name}.{field.name} has the wire type {wire}")
        if wire == VARINT:
            value, left = yield from _varint(left)
            if field is not None:
                seen(f"{name}.{field.name}", b"%d" % value)
            continue
        length = _FIXED_BYTES.get(wire, 0)
        if wire == BYTES:
            length, left = yield from _varint(left)
        if length > left:
            raise ContentFault(f"field {number} of {name} is longer than what is around it")
        left -= length
        if field is None:
            yield -length
        elif field.message is not None:
            seen(f"{name}.{field.name}", b"")
            yield from _message(messages, field.message, length, seen, depth + 1)
        elif length > field.keep_bytes > 0:
            raise ContentFault(f"{name}.{field.name} is longer than {field.keep_bytes} bytes")
        elif field.keep_bytes and length:
            seen(f"{name}.{field.name}", (yield length))
        else:
            yield -length
            seen(f"{name}.{field.name}", b"")


def _varint(left: int) -> Generator[int, bytes, tuple[int, int]]:
    """Read a number; returns it and what is left of the message."""
    value = 0
    for place in range(min(_MAX_VARINT_BYTES, left)):
        byte = (yield 1)[0]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value, left - place - 1
    raise ContentFault("a number does not end")
