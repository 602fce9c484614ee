"""A push parser for tar archives: feed unpacked bytes in pieces of any size, get members and views of their content.

It never holds a member's content. It is stricter than unpackers are, so that there is one reading of an archive that
passes: headers with extensions are bounded before they are read, sparse files and unknown types end the walk, and nothing
may follow the end mark. The format: POSIX.1-2017 pax (interchange formats) and the GNU tar manual (basic tar format).
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["ArchiveFault", "Member", "TarWalk"]

_BLOCK_BYTES = 512
_MAX_MEMBER_BYTES = 1 << 50
_MAX_GLOBAL_HEADERS = 16
_PAX_LENGTH = re.compile(rb"([1-9][0-9]{0,6}) ")
_KINDS = {
    tarfile.REGTYPE: "file",
    tarfile.AREGTYPE: "file",
    tarfile.DIRTYPE: "folder",
    tarfile.LNKTYPE: "hard link",
    tarfile.SYMTYPE: "symbolic link",
    tarfile.CHRTYPE: "character device",
    tarfile.BLKTYPE: "block device",
    tarfile.FIFOTYPE: "fifo",
}
_MAGIC, _PREFIX = slice(257, 263), slice(345, 500)
"""Where a header keeps its format's name, and POSIX ustar the first part of a long name."""
_NAMING = frozenset({"pax header", "GNU long name"})
_EXTENSIONS = {
    tarfile.XHDTYPE: "pax header",
    tarfile.SOLARIS_XHDTYPE: "pax header",
    tarfile.XGLTYPE: "global pax header",
    tarfile.GNUTYPE_LONGNAME: "GNU long name",
    tarfile.GNUTYPE_LONGLINK: "GNU long link",
}


class ArchiveFault(Exception):  # noqa: N818 - a fault of the archive, turned into a finding; not an error of ours
    """The archive cannot be read any further.

    Attributes:
        rule: the broken rule's short name (`mme_tenancy.findings.RULES`).
        detail: what was found.
        member: the member it is about, or the last one before the place.
    """

    def __init__(self, rule: str, detail: str, member: str | None = None) -> None:
        super().__init__(detail)
        self.rule, self.detail, self.member = rule, detail, member


@dataclass(frozen=True, slots=True)
class Member:
    """One member's header.

    Attributes:
        name: its name as written; bytes that are not UTF-8 are surrogates.
        kind: ``file``, ``folder``, ``symbolic link``, ``hard link``, ``fifo``, ``character device`` or ``block device``.
        size_bytes: size of its content.
        mode: its permission bits.
    """

    name: str
    kind: str
    size_bytes: int
    mode: int


class TarWalk:
    """The parser.

    Args:
        extension_bytes: greatest size of an extension header (pax records, GNU long names); a greater one is refused
            before any of it is kept.
    """

    def __init__(self, extension_bytes: int) -> None:
        self._extension_bytes = extension_bytes
        self._buffer = bytearray()
        self._wanted = _BLOCK_BYTES
        self._content = 0
        self._padding = 0
        self._zero_blocks = 0
        self._extension: tuple[str, int] | None = None
        self._global_headers = 0
        self._overrides: dict[str, str] = {}
        self._seen_extensions: set[str] = set()
        self.last_name: str | None = None
        """The member that was read last."""

    def feed(self, data: bytes) -> Iterator[Member | memoryview]:
        """Take the next unpacked bytes: yields each member whose header is complete, and what there is of its content.

        Must be consumed; raises `ArchiveFault`.
        """
        view = memoryview(data)
        position, end = 0, len(data)
        while position < end:
            if self._zero_blocks >= 2:
                if data.count(0, position) != end - position:
                    raise ArchiveFault("tar-end", "there is data behind the end of the archive")
                break
            if self._content:
                step = min(self._content, end - position)
                self._content -= step
                yield view[position : position + step]
                position += step
                continue
            if self._padding:
                step = min(self._padding, end - position)
                self._padding -= step
                position += step
                continue
            step = min(self._wanted - len(self._buffer), end - position)
            self._buffer += data[position : position + step]
            position += step
            if len(self._buffer) == self._wanted:
                block = bytes(self._buffer)
                self._buffer.clear()
                self._wanted = _BLOCK_BYTES
                if self._extension is not None:
                    self._read_extension(block)
                elif (member := self._read_header(block)) is not None:
                    yield member

    def close(self) -> None:
        """There are no more bytes: raises `ArchiveFault` unless the archive ended as it must."""
        if self._zero_blocks < 2:
            where = "inside a member" if self._content or self._padding or self._buffer or self._extension else "without its end mark"
            raise ArchiveFault("tar-truncated", f"the archive ends {where}", self.last_name)

    def _read_header(self, block: bytes) -> Member | None:
        if not any(block):
            if self._seen_extensions:
                raise self._header_fault("the archive ends behind an extension header")
            self._zero_blocks += 1
            return None
        if self._zero_blocks:
            raise ArchiveFault("tar-end", "there is data behind the end of the archive")
        if any(block[_PREFIX]) and block[_MAGIC] != b"ustar\0":
            raise self._header_fault("a header that is not POSIX ustar has bytes where ustar keeps a name's prefix")
        try:
            header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except tarfile.TarError as error:
            raise self._header_fault(f"a member's header is broken ({error})") from error
        if not 0 <= header.size <= _MAX_MEMBER_BYTES:
            raise self._header_fault("a member's size is not possible")
        if header.type in _EXTENSIONS:
            self._expect_extension(_EXTENSIONS[header.type], header.size)
            return None
        return self._member(header)

    def _expect_extension(self, kind: str, size: int) -> None:
        if size > self._extension_bytes:
            raise ArchiveFault("tar-extension", f"a {kind} of {size} bytes: at most {self._extension_bytes} are allowed", self.last_name)
        if not size or kind in self._seen_extensions or (kind in _NAMING and not _NAMING.isdisjoint(self._seen_extensions)):
            # Unpackers differ in which of two names wins.
            raise self._header_fault(f"a {kind} is empty, repeated or beside another name")
        self._seen_extensions.add(kind)
        self._extension = (kind, size)
        self._wanted = _padded(size)

    def _read_extension(self, block: bytes) -> None:
        assert self._extension is not None
        kind, size = self._extension
        self._extension = None
        payload = block[:size]
        if kind == "GNU long name":
            self._overrides["path"] = _text(payload.split(b"\0", 1)[0])
        elif kind == "pax header":
            self._overrides.update(self._pax_records(payload))
        elif kind == "global pax header":
            if self._pax_records(payload):
                raise self._header_fault("a global pax header renames or resizes members")
            self._global_headers += 1
            if self._global_headers > _MAX_GLOBAL_HEADERS:
                raise self._header_fault(f"there are more than {_MAX_GLOBAL_HEADERS} global pax headers")
            self._seen_extensions.discard(kind)

    def _pax_records(self, payload: bytes) -> dict[str, str]:
        """The records that change how the member is read."""
        found: dict[str, str] = {}
        while payload:
            match = _PAX_LENGTH.match(payload)
            length = int(match[1]) if match else 0
            record = payload[match.end() : length] if match else b""
            if match is None or length > len(payload) or not record.endswith(b"\n") or b"=" not in record[1:]:
                raise self._header_fault("a pax header is broken")
            keyword, value = record[:-1].split(b"=", 1)
            if keyword in {b"path", b"size"}:
                found[keyword.decode()] = _text(value)
            elif keyword.startswith(b"GNU.sparse.") or keyword in {b"hdrcharset", b"SCHILY.realsize"}:
                raise ArchiveFault("tar-unsupported", f"a pax header uses {_text(keyword[:40])!r}", self.last_name)
            payload = payload[length:]
        return found

    def _member(self, header: tarfile.TarInfo) -> Member:
        name = self._overrides.get("path", header.name)
        size = header.size
        if (declared := self._overrides.get("size")) is not None:
            if not re.fullmatch("[0-9]{1,15}", declared):
                raise self._header_fault("a pax header's size is not a number")
            size = int(declared)
        self._overrides.clear()
        self._seen_extensions.clear()
        self.last_name = name
        kind = _KINDS.get(header.type)
        if kind is None:
            raise ArchiveFault("tar-unsupported", f"the member has the type {header.type!r}", name)
        if kind == "file":
            self._content, self._padding = size, _padded(size) - size
        elif size:
            # Unpackers do not agree whether content follows here.
            raise self._header_fault(f"a {kind} declares {size} bytes of content")
        return Member(name, kind, size, header.mode)

    def _header_fault(self, detail: str) -> ArchiveFault:
        return ArchiveFault("tar-header", detail, self.last_name)


def _padded(size: int) -> int:
    return -(-size // _BLOCK_BYTES) * _BLOCK_BYTES


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")
