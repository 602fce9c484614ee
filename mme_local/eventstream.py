"""The binary frames of AWS's event streams (``application/vnd.amazon.eventstream``), written; botocore reads them."""

from __future__ import annotations

import struct
from binascii import crc32
from collections.abc import Mapping

__all__ = ["CONTENT_TYPE", "frame"]

CONTENT_TYPE = "application/vnd.amazon.eventstream"
"""The media type of a stream of frames."""

_TEXT = 7
_PRELUDE_BYTES = 12
_CHECKSUM_BYTES = 4


def frame(headers: Mapping[str, str], payload: bytes) -> bytes:
    """One message: prelude with lengths and their checksum, text headers, payload, checksum of it all.

    Args:
        headers: such as ``:message-type`` and ``:event-type``.
        payload: the message's body.
    """
    packed = b"".join(
        struct.pack("!B", len(name)) + name.encode() + struct.pack("!BH", _TEXT, len(value.encode())) + value.encode()
        for name, value in headers.items()
    )
    lengths = struct.pack("!II", _PRELUDE_BYTES + len(packed) + len(payload) + _CHECKSUM_BYTES, len(packed))
    message = lengths + struct.pack("!I", crc32(lengths)) + packed + payload
    return message + struct.pack("!I", crc32(message))
