"""Inspection of an artifact as a stream: digest, gzip, tar and the framework's shape, in bounded memory.

Nothing is unpacked to disk and no member is held. Each finding names the rule, the member and the fix. What is checked
is what every unpacker will see: one gzip stream to its last byte, and one tar archive to its last byte.
"""

from __future__ import annotations

import hashlib
import unicodedata
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

from mme_facts.admission import UNPACKED_BYTES
from mme_tenancy.findings import Findings
from mme_tenancy.formats.content import Content, ContentFault
from mme_tenancy.formats.frameworks import FRAMEWORKS, shape_of
from mme_tenancy.formats.shape import File
from mme_tenancy.tar_walk import ArchiveFault, Member, TarWalk
from mme_tenancy.versions import Reason

__all__ = ["FRAMEWORKS", "ArchiveInspector", "ArchiveLimits", "Inspection", "inspect_artifact"]

_OUTPUT_BYTES = 1 << 20
_SETUID_OR_SETGID = 0o6000


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    """How large an archive may be.

    Attributes:
        unpacked_bytes: total size once unpacked.
        member_bytes: size of one member.
        members: number of members.
        depth: folders above a member, itself included.
        ratio: unpacked size over packed size, checked beyond ``ratio_floor_bytes`` unpacked.
        ratio_floor_bytes: unpacked size below which any ratio is harmless.
        extension_bytes: one pax header or GNU long name.
        name_bytes: one member's name.
    """

    unpacked_bytes: int = UNPACKED_BYTES
    member_bytes: int = 10 << 30
    members: int = 1000
    depth: int = 16
    ratio: int = 100
    ratio_floor_bytes: int = 64 << 20
    extension_bytes: int = 64 << 10
    name_bytes: int = 1024


@dataclass(frozen=True, slots=True)
class Inspection:
    """What an inspection found.

    Attributes:
        findings: why the artifact is not admissible; empty if it is.
        warnings: what is admitted, but will not do what its owner may expect.
        size_bytes: bytes read.
        unpacked_bytes: bytes they unpacked to, as far as they were unpacked.
        members: number of members seen.
    """

    findings: tuple[Reason, ...]
    warnings: tuple[Reason, ...]
    size_bytes: int
    unpacked_bytes: int
    members: int


def inspect_artifact(
    chunks: Iterable[bytes],
    *,
    sha256: str,
    size_bytes: int,
    framework: str,
    allow_code: bool = False,
    limits: ArchiveLimits | None = None,
) -> Inspection:
    """Read an artifact once and say what is wrong with it.

    Args:
        chunks: its bytes, in pieces of bounded size.
        sha256: declared digest, 64 hexadecimal digits.
        size_bytes: declared size; reading stops as soon as there is more.
        framework: one of `FRAMEWORKS`.
        allow_code: whether formats that carry code are admitted, where the framework has such formats; default: they are refused.
        limits: default: `ArchiveLimits()`.
    """
    digest = hashlib.sha256()
    inspector = ArchiveInspector(framework, limits or ArchiveLimits(), allow_code=allow_code)
    got_bytes = 0
    for chunk in chunks:
        got_bytes += len(chunk)
        if got_bytes > size_bytes:
            break
        digest.update(chunk)
        inspector.feed(chunk)
    declared = Findings()
    if got_bytes != size_bytes:
        seen = f"{got_bytes} bytes" if got_bytes < size_bytes else f"more than {size_bytes} bytes"
        declared.add("size", None, f"{size_bytes} bytes were declared, {seen} were uploaded")
    elif digest.hexdigest() != sha256:
        declared.add("sha256", None, f"the SHA-256 {sha256} was declared, the upload has {digest.hexdigest()}")
    found = inspector.finish()
    refusals = (*declared.refusals, *found.refusals)
    return Inspection(refusals, tuple(found.warnings), got_bytes, inspector.unpacked_bytes, inspector.members)


class ArchiveInspector:
    """Takes the packed bytes piece by piece and collects findings; after a fault that ends the reading it only ignores.

    Args:
        framework: one of `FRAMEWORKS`.
        limits: how large the archive may be.
        allow_code: whether formats that carry code are admitted.
    """

    def __init__(self, framework: str, limits: ArchiveLimits, *, allow_code: bool = False) -> None:
        self._limits = limits
        self._shape = shape_of(framework, allow_code=allow_code)
        self._gzip = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
        self._tar = TarWalk(limits.extension_bytes)
        self._findings = Findings()
        self._names = _Names()
        self._start = b""
        self._packed_bytes = 0
        self._broken = False
        self._member: Member | None = None
        self._content: Content | None = None
        self.unpacked_bytes = 0
        self.members = 0

    def feed(self, chunk: bytes) -> None:
        """Take the next packed bytes."""
        if self._broken or not chunk:
            return
        try:
            self._feed(chunk)
        except ArchiveFault as fault:
            self._broken = True
            self._findings.add(fault.rule, fault.member, fault.detail)

    def finish(self) -> Findings:
        """There are no more bytes: all findings."""
        if not self._broken:
            try:
                if not self._gzip.eof:
                    raise ArchiveFault("gzip-truncated", "the gzip stream ends too early", self._tar.last_name)
                self._tar.close()
            except ArchiveFault as fault:
                self._findings.add(fault.rule, fault.member, fault.detail)
            else:
                self._end_content()
                self._shape.finish(self._findings)
        return self._findings

    def _feed(self, chunk: bytes) -> None:
        if len(self._start) < 2:
            self._start += chunk[: 2 - len(self._start)]
            if not b"\x1f\x8b".startswith(self._start[:2]):
                raise ArchiveFault("gzip", "the file is not gzip")
        self._packed_bytes += len(chunk)
        pending = chunk
        while pending:
            if self._gzip.eof:
                self._refuse_trailer(pending)
            pending = self._inflate(pending)

    def _inflate(self, packed: bytes) -> bytes:
        try:
            data = self._gzip.decompress(packed, _OUTPUT_BYTES)
        except zlib.error as error:
            raise ArchiveFault("gzip", "the gzip data are damaged", self._tar.last_name) from error
        self.unpacked_bytes += len(data)
        self._check_totals()
        for piece in self._tar.feed(data):
            if isinstance(piece, Member):
                self._end_content()
                self._begin_member(piece)
            elif self._content is not None:
                self._read_content(piece)
        if self._gzip.eof:
            return self._gzip.unused_data
        # A full piece may have left output inside the decompressor even when all input is taken.
        return self._gzip.unconsumed_tail or (self._inflate(b"") if len(data) == _OUTPUT_BYTES else b"")

    def _refuse_trailer(self, trailer: bytes) -> None:
        if trailer.startswith(b"\x1f\x8b"):
            # Unpackers differ in whether they go on, so what was inspected might not be what is unpacked.
            raise ArchiveFault("gzip-members", "the file is several gzip streams in a row", self._tar.last_name)
        raise ArchiveFault("gzip-trailer", "there is data behind the gzip stream", self._tar.last_name)

    def _check_totals(self) -> None:
        limits = self._limits
        if self.unpacked_bytes > limits.unpacked_bytes:
            detail = f"the archive unpacks to more than {limits.unpacked_bytes} bytes"
            raise ArchiveFault("unpacked-size", detail, self._tar.last_name)
        if self.unpacked_bytes > max(limits.ratio_floor_bytes, self._packed_bytes * limits.ratio):
            raise ArchiveFault("ratio", f"the archive unpacks to more than {limits.ratio} times its size", self._tar.last_name)

    def _begin_member(self, member: Member) -> None:
        self._member = member
        self.members += 1
        limits = self._limits
        if self.members > limits.members:
            raise ArchiveFault("member-count", f"the archive has more than {limits.members} members", member.name)
        if member.size_bytes > limits.member_bytes:
            raise ArchiveFault("member-size", f"the member has more than {limits.member_bytes} bytes", member.name)
        parts = tuple(part for part in member.name.split("/") if part not in {"", "."})
        broken = _name_rule(member.name, parts, limits) or _kind_rule(member) or self._names.rule(parts, member.kind)
        if broken is not None:
            rule, detail = broken
            self._findings.add(rule, member.name, detail)
        elif member.kind == "folder":
            self._shape.folder(parts)
        else:
            self._content = self._shape.file(File(member.name, parts, member.size_bytes), self._findings)

    def _read_content(self, piece: memoryview) -> None:
        assert self._content is not None
        try:
            self._content.feed(piece)
        except ContentFault as fault:
            self._refuse_content(fault)

    def _end_content(self) -> None:
        if self._content is None:
            return
        try:
            self._content.close()
        except ContentFault as fault:
            self._refuse_content(fault)
        self._content = None

    def _refuse_content(self, fault: ContentFault) -> None:
        assert self._member is not None
        self._content = None
        self._findings.add(fault.rule or self._shape.content_rule, self._member.name, fault.detail)


class _Names:
    """The names so far: unpackers must not disagree about which files there are, on any file system."""

    def __init__(self) -> None:
        self._kinds: dict[str, str] = {}
        self._spelled: dict[str, str] = {}

    def rule(self, parts: tuple[str, ...], kind: str) -> tuple[str, str] | None:
        """Remember a name; returns the rule that it breaks together with an earlier one, and the detail."""
        path = "/".join(parts)
        if not path:
            return ("name", "the member has no name") if kind == "file" else None
        if path in self._kinds:
            if self._kinds[path] == kind:
                return ("duplicate", "two members have the same name")
            return ("file-and-folder", "the name is a file and a folder")
        for depth in range(1, len(parts) + 1):
            upper = "/".join(parts[:depth])
            if depth < len(parts) and self._kinds.get(upper) == "file":
                return ("file-and-folder", f"{_quoted(upper)} is a file, but this member lies in it")
            folded = unicodedata.normalize("NFC", upper).casefold()
            if (earlier := self._spelled.setdefault(folded, upper)) != upper:
                return ("case-collision", f"the name and {_quoted(earlier)} are the same on file systems that ignore case")
        if kind == "file" and any(known.startswith(f"{path}/") for known in self._kinds):
            return ("file-and-folder", "the name is a file, but an earlier member lies in it")
        self._kinds[path] = kind
        return None


def _name_rule(name: str, parts: tuple[str, ...], limits: ArchiveLimits) -> tuple[str, str] | None:
    """The first rule that a name alone breaks, and the detail."""
    if len(name.encode("utf-8", "surrogateescape")) > limits.name_bytes:
        return ("name", f"the name is longer than {limits.name_bytes} bytes")
    if any(unicodedata.category(character).startswith("C") for character in name):
        return ("name", "the name has control characters or is not UTF-8")
    if "\\" in name:
        return ("name", "the name has a backslash")
    if name.startswith("/"):
        return ("absolute-path", "the path is absolute")
    if ".." in parts:
        return ("parent-path", "the path has '..'")
    if len(parts) > limits.depth:
        return ("depth", f"the member lies more than {limits.depth} levels deep")
    return None


def _kind_rule(member: Member) -> tuple[str, str] | None:
    if member.kind not in {"file", "folder"}:
        return ("member-type", f"the member is a {member.kind}")
    if member.kind == "file" and member.mode & _SETUID_OR_SETGID:
        return ("setuid", f"the file has the mode {member.mode:o}")
    return None


def _quoted(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:80]}...")
