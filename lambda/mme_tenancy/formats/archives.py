"""Zip files as PyTorch and skops write them, read from their directory at the end, in bounded memory."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Sequence

from mme_tenancy.formats.content import ContentFault

__all__ = ["ZipFile", "skops_model", "torch_archive"]

_TAIL_BYTES = 2 << 20
_START, _ENTRY = b"PK\x03\x04", b"PK\x01\x02"
_MAX_ENTRIES = 10_000
_MAX_RATIO = 100


class ZipFile:
    """The content of a zip file.

    Args:
        size_bytes: the file's size.
        judge: gets the names of its entries; may raise `ContentFault`.
        needs: what the file should be, for the text of a fault.
    """

    def __init__(self, size_bytes: int, judge: Callable[[Sequence[str]], None], needs: str) -> None:
        self._size_bytes = size_bytes
        self._judge = judge
        self._needs = needs
        self._start = b""
        self._tail = bytearray()

    def feed(self, data: memoryview) -> None:
        """Take the next bytes; raises `ContentFault`."""
        if len(self._start) < len(_START):
            self._start += bytes(data[: len(_START) - len(self._start)])
            if not _START.startswith(self._start):
                raise ContentFault(f"the file is not {self._needs}, which is a zip file")
        self._tail += data
        if len(self._tail) > 2 * _TAIL_BYTES:
            del self._tail[:-_TAIL_BYTES]

    def close(self) -> None:
        """There are no more bytes; raises `ContentFault` unless it was a whole zip file of the right entries."""
        if self._tail.count(_ENTRY) > _MAX_ENTRIES:
            raise ContentFault(f"the zip file has more than {_MAX_ENTRIES} entries")
        try:
            with zipfile.ZipFile(_TailFile(self._size_bytes, bytes(self._tail))) as archive:
                entries = archive.infolist()
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
            raise ContentFault(f"the file is not {self._needs}: its zip directory cannot be read") from error
        if sum(entry.file_size for entry in entries) > max(_TAIL_BYTES, _MAX_RATIO * self._size_bytes):
            raise ContentFault(f"the zip file unpacks to more than {_MAX_RATIO} times its size")
        names = [entry.filename for entry in entries]
        for name in names:
            if name.startswith("/") or "\\" in name or ".." in name.split("/"):
                raise ContentFault(f"the zip file has the entry {name[:80]!r}, which leaves its folder")
        if len(set(names)) < len(names):
            raise ContentFault("the zip file has two entries of the same name")
        self._judge(names)


class _TailFile(io.RawIOBase):
    """A file of which only the end is held."""

    def __init__(self, size_bytes: int, tail: bytes) -> None:
        self._size_bytes, self._tail, self._position = size_bytes, tail, 0

    def seekable(self) -> bool:
        """It is."""
        return True

    def readable(self) -> bool:
        """It is, at its end."""
        return True

    def tell(self) -> int:
        """The position."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move; raises `OSError` in front of the start."""
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size_bytes}[whence]
        if self._position < 0:
            raise OSError("in front of the start")
        return self._position

    def read(self, size: int = -1) -> bytes:
        """Read; raises `OSError` where the file is not held."""
        start = self._position - (self._size_bytes - len(self._tail))
        if start < 0:
            raise OSError("the directory is larger than what is held")
        data = self._tail[start:] if size < 0 else self._tail[start : start + size]
        self._position += len(data)
        return data


def torch_archive(names: Sequence[str], *, allow_code: bool) -> None:
    """Judge the entries of a file of PyTorch: TorchScript, or what ``torch.save`` writes, which is a pickle.

    A TorchScript file has ``constants.pkl``; that is how ``torch.load`` tells the two apart (torch/serialization.py).
    """
    tops = {name.split("/", 1)[0] for name in names}
    inner = {name.split("/", 1)[1] for name in names if "/" in name}
    if len(tops) != 1 or not {"data.pkl", "version"} <= inner:
        raise ContentFault("the zip file is none that PyTorch wrote: it needs one folder with data.pkl and version")
    if "constants.pkl" not in inner and not allow_code:
        raise ContentFault("the file was written by torch.save: a pickle, which runs code when it is loaded", "code-format")


def skops_model(names: Sequence[str]) -> None:
    """Judge the entries of a file of skops."""
    if "schema.json" not in names:
        raise ContentFault("the zip file is none that skops wrote: it has no schema.json")
