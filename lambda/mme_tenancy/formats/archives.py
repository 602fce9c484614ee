"""Zip files as PyTorch and skops write them, read from their directory at the end, in bounded memory."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Callable, Generator, Sequence

from mme_tenancy.findings import Findings
from mme_tenancy.formats.code_scan import judge_imports
from mme_tenancy.formats.content import ContentFault, Pull
from mme_tenancy.formats.pickle_walk import PickleWalk, Unclear

__all__ = ["TorchFile", "ZipFile", "skops_model", "torch_archive"]

_TAIL_BYTES = 2 << 20
_START, _ENTRY = b"PK\x03\x04", b"PK\x01\x02"
_MAX_ENTRIES = 10_000
_MAX_RATIO = 100
_LOCAL_HEADER = "<4s5H3L2H"
_ENTRY_OFFSET_AT = 42
_REST_BYTES = 1 << 62


class ZipFile:
    """The content of a zip file.

    Args:
        size_bytes: the file's size.
        judge: gets its entries; may raise `ContentFault`.
        needs: what the file should be, for the text of a fault.
    """

    def __init__(self, size_bytes: int, judge: Callable[[Sequence[zipfile.ZipInfo]], None], needs: str) -> None:
        self._size_bytes = size_bytes
        self._judge = judge
        self._needs = needs
        self._start = b""
        self._tail = bytearray()
        self.directory_at = 0

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
                self.directory_at = archive.start_dir
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
        self._judge(entries)

    def first_offset(self) -> int:
        """Where the directory says that its first entry lies; `zipfile` would mend it silently if something stood in front of the zip."""
        at = self.directory_at - (self._size_bytes - len(self._tail))
        return int(struct.unpack_from("<L", self._tail, at + _ENTRY_OFFSET_AT)[0])


class TorchFile:
    """The content of a file of PyTorch: its directory, and the scan of the pickle in it, which ``torch.save`` writes first.

    Args:
        name: the member's name.
        size_bytes: its size.
        findings: takes the warnings.
        allow_code: whether what ``torch.save`` writes is admitted.
    """

    def __init__(self, name: str, size_bytes: int, findings: Findings, *, allow_code: bool) -> None:
        self._name, self._findings, self._allow_code = name, findings, allow_code
        self._zip = ZipFile(size_bytes, self._judge, "TorchScript or what torch.save writes since PyTorch 1.6")
        self._walk = PickleWalk()
        self._pickle_bytes = 0
        self._fault: ContentFault | None = Unclear("data.pkl is not the first entry of the zip file, as torch.save writes it")
        self._first = Pull(self._follow()) if allow_code else None

    def feed(self, data: memoryview) -> None:
        """Take the next bytes; raises `ContentFault`."""
        self._zip.feed(data)
        if self._first is not None:
            self._first.feed(data)

    def close(self) -> None:
        """There are no more bytes; raises `ContentFault` unless it was a whole file of PyTorch without dangerous imports."""
        self._zip.close()

    def _follow(self) -> Generator[int, bytes, None]:
        """The parser of the zip file's start: a local header, and the pickle behind it."""
        head = struct.unpack(_LOCAL_HEADER, (yield struct.calcsize(_LOCAL_HEADER)))
        method, name_bytes, extra_bytes = head[3], head[9], head[10]
        name = (yield name_bytes) if name_bytes else b""
        if extra_bytes:
            yield -extra_bytes
        if name.endswith(b"/data.pkl") and method == zipfile.ZIP_STORED:
            counted = _Counted()
            self._fault = ContentFault("data.pkl ends too early")
            try:
                yield from counted.count(self._walk.follow())
            except ContentFault as fault:
                self._fault = fault
            else:
                self._fault, self._pickle_bytes = None, counted.total_bytes
        while True:
            yield -_REST_BYTES

    def _judge(self, entries: Sequence[zipfile.ZipInfo]) -> None:
        names = [entry.filename for entry in entries]
        torch_archive(names, allow_code=self._allow_code)
        if is_torch_script(names):
            return
        if self._fault is not None:
            raise self._fault
        first = entries[0]
        if not first.filename.endswith("/data.pkl") or self._zip.first_offset() != 0 or first.file_size != self._pickle_bytes:
            raise Unclear("data.pkl is another one in the zip file's directory than at its start")
        judge_imports(self._name, self._walk.imports, self._findings)


class _Counted:
    """Counts the bytes that a parser asks for."""

    def __init__(self) -> None:
        self.total_bytes = 0

    def count(self, parser: Generator[int, bytes, None]) -> Generator[int, bytes, None]:
        """The same parser."""
        got = b""
        try:
            asked = next(parser)
            while True:
                self.total_bytes += abs(asked)
                got = yield asked
                asked = parser.send(got)
        except StopIteration:
            return


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
    if not is_torch_script(names) and not allow_code:
        raise ContentFault("the file was written by torch.save: a pickle, which runs code when it is loaded", "code-format")


def is_torch_script(names: Sequence[str]) -> bool:
    """Whether ``torch.load`` takes a file with these entries as TorchScript."""
    return any(name.split("/", 1)[1:] == ["constants.pkl"] for name in names)


def skops_model(entries: Sequence[zipfile.ZipInfo]) -> None:
    """Judge the entries of a file of skops."""
    if all(entry.filename != "schema.json" for entry in entries):
        raise ContentFault("the zip file is none that skops wrote: it has no schema.json")
