"""Pickles, plain or as joblib compresses them: told by their first and last bytes, never loaded."""

from __future__ import annotations

from mme_tenancy.formats.content import ContentFault

__all__ = ["Pickle"]

_COMPRESSED = (b"\x78", b"\x1f\x8b", b"BZ", b"\xfd7zXZ", b"\x5d\x00", b"\x04\x22M\x18")
"""zlib, gzip, bz2, xz, lzma, lz4: joblib/compressor.py."""
_PROTOCOLS = range(2, 6)
_STOP = b"."


class Pickle:
    """The content of a pickle of protocol 2 or newer, or of one that joblib compressed."""

    def __init__(self) -> None:
        self._start = b""
        self._last = b""

    def feed(self, data: memoryview) -> None:
        """Take the next bytes."""
        if len(self._start) < 8:
            self._start += bytes(data[:8])
        self._last = bytes(data[-1:])

    def close(self) -> None:
        """There are no more bytes; raises `ContentFault` unless they can have been a pickle."""
        if self._start.startswith(_COMPRESSED):
            return
        if self._start[:1] != b"\x80" or self._start[1:2] == b"" or self._start[1] not in _PROTOCOLS:
            raise ContentFault("the file is neither a pickle of protocol 2 to 5 nor one that joblib compressed")
        if self._last != _STOP:
            raise ContentFault("the pickle ends too early")
