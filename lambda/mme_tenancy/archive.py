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

from mme_facts.artifacts import XGBOOST_MODEL, carries_code
from mme_tenancy.tar_walk import ArchiveFault, Member, TarWalk
from mme_tenancy.versions import Reason

__all__ = ["FRAMEWORKS", "ArchiveInspector", "ArchiveLimits", "Inspection", "inspect_artifact"]

_MAX_FINDINGS = 20
_OUTPUT_BYTES = 1 << 20
_SHOWN_CHARACTERS = 120
FRAMEWORKS = ("xgboost",)
"""The frameworks whose artifacts can be inspected."""


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    """How large an archive may be.

    Attributes:
        unpacked_bytes: total size once unpacked.
        members: number of members.
        ratio: unpacked size over packed size, checked beyond ``ratio_floor_bytes`` unpacked.
        ratio_floor_bytes: unpacked size below which any ratio is harmless.
        extension_bytes: one pax header or GNU long name.
        name_bytes: one member's name.
    """

    unpacked_bytes: int = 16 << 30
    members: int = 1000
    ratio: int = 100
    ratio_floor_bytes: int = 64 << 20
    extension_bytes: int = 64 << 10
    name_bytes: int = 1024


@dataclass(frozen=True, slots=True)
class Inspection:
    """What an inspection found.

    Attributes:
        findings: why the artifact is not admissible; empty if it is.
        size_bytes: bytes read.
        unpacked_bytes: bytes they unpacked to, as far as they were unpacked.
        members: number of members seen.
    """

    findings: tuple[Reason, ...]
    size_bytes: int
    unpacked_bytes: int
    members: int


def inspect_artifact(
    chunks: Iterable[bytes], *, sha256: str, size_bytes: int, framework: str, limits: ArchiveLimits | None = None
) -> Inspection:
    """Read an artifact once and say what is wrong with it.

    Args:
        chunks: its bytes, in pieces of bounded size.
        sha256: declared digest, 64 hexadecimal digits.
        size_bytes: declared size; reading stops as soon as there is more.
        framework: one of `FRAMEWORKS`.
        limits: default: `ArchiveLimits()`.
    """
    digest = hashlib.sha256()
    inspector = ArchiveInspector(framework, limits or ArchiveLimits())
    got_bytes = 0
    for chunk in chunks:
        got_bytes += len(chunk)
        if got_bytes > size_bytes:
            break
        digest.update(chunk)
        inspector.feed(chunk)
    declared: list[Reason] = []
    if got_bytes != size_bytes:
        seen = f"{got_bytes} bytes" if got_bytes < size_bytes else f"more than {size_bytes} bytes"
        declared.append(Reason("size", f"{size_bytes} bytes were declared, {seen} were uploaded", "register the artifact's real size"))
    elif digest.hexdigest() != sha256:
        detail = f"the SHA-256 {sha256} was declared, the upload has {digest.hexdigest()}"
        declared.append(Reason("sha256", detail, "register the artifact's real digest, or upload the right file"))
    findings = (*declared, *inspector.finish())
    return Inspection(findings, got_bytes, inspector.unpacked_bytes, inspector.members)


class ArchiveInspector:
    """Takes the packed bytes piece by piece and collects findings; after a fault that ends the reading it only ignores.

    Args:
        framework: one of `FRAMEWORKS`.
        limits: how large the archive may be.
    """

    def __init__(self, framework: str, limits: ArchiveLimits) -> None:
        if framework not in FRAMEWORKS:
            raise ValueError(f"framework {framework!r} cannot be inspected: use one of {', '.join(FRAMEWORKS)}")
        self._limits = limits
        self._gzip = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
        self._tar = TarWalk(limits.extension_bytes)
        self._findings: list[Reason] = []
        self._names: set[str] = set()
        self._start = b""
        self._packed_bytes = 0
        self._broken = False
        self._model_files = 0
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
            self._add(fault.rule, fault.detail, fault.fix, fault.member)

    def finish(self) -> tuple[Reason, ...]:
        """There are no more bytes: all findings."""
        if not self._broken:
            try:
                self._close()
            except ArchiveFault as fault:
                self._add(fault.rule, fault.detail, fault.fix, fault.member)
            else:
                self._check_shape()
        return tuple(self._findings)

    def _feed(self, chunk: bytes) -> None:
        if len(self._start) < 2:
            self._start += chunk[: 2 - len(self._start)]
            if not b"\x1f\x8b".startswith(self._start[:2]):
                raise ArchiveFault("gzip", "the file is not gzip", "upload a .tar.gz (tar -czf model.tar.gz xgboost-model)")
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
            raise ArchiveFault("gzip", "the gzip data are damaged", "compress and upload the archive again") from error
        self.unpacked_bytes += len(data)
        self._check_totals()
        for member in self._tar.feed(data):
            self._check_member(member)
        if self._gzip.eof:
            return self._gzip.unused_data
        # A full piece may have left output inside the decompressor even when all input is taken.
        return self._gzip.unconsumed_tail or (self._inflate(b"") if len(data) == _OUTPUT_BYTES else b"")

    def _refuse_trailer(self, trailer: bytes) -> None:
        if trailer.startswith(b"\x1f\x8b"):
            # Unpackers differ in whether they go on, so what was inspected might not be what is unpacked.
            raise ArchiveFault("gzip-members", "the file is several gzip streams in a row", "compress the archive as one gzip stream")
        raise ArchiveFault("gzip-trailer", "there is data behind the gzip stream", "upload the .tar.gz as the tool wrote it")

    def _close(self) -> None:
        if not self._gzip.eof:
            raise ArchiveFault("gzip-truncated", "the gzip stream ends too early", "compress and upload the archive again")
        self._tar.close()

    def _check_totals(self) -> None:
        limits = self._limits
        if self.unpacked_bytes > limits.unpacked_bytes:
            raise ArchiveFault("unpacked-size", f"the archive unpacks to more than {limits.unpacked_bytes} bytes", "upload a smaller model")
        if self.unpacked_bytes > max(limits.ratio_floor_bytes, self._packed_bytes * limits.ratio):
            raise ArchiveFault("ratio", f"the archive unpacks to more than {limits.ratio} times its size", "upload a model, not padding")

    def _check_member(self, member: Member) -> None:
        self.members += 1
        if self.members > self._limits.members:
            raise ArchiveFault(
                "member-count", f"the archive has more than {self._limits.members} members", "pack the files of one model only"
            )
        name = member.name
        parts = [part for part in name.split("/") if part not in {"", "."}]
        path = "/".join(parts)
        if (broken := _name_rule(name, parts, self._limits.name_bytes)) is not None:
            self._add(*broken, name)
        elif member.kind not in {"file", "folder"}:
            self._add("member-type", f"the member is a {member.kind}", "pack plain files and folders only (tar --dereference)", name)
        elif not path:
            if member.kind == "file":
                self._add("name", "the member has no name", "pack the archive again with tar", name)
        elif path in self._names:
            self._add("duplicate", "two members have the same name", "pack every file once", name)
        elif member.kind == "file" and carries_code(path):
            self._add("code", "the member is code, or chooses what code runs", "pack the model only: the container brings the code", name)
        elif member.kind == "file" and len(parts) == 1:
            self._check_root_file(path, member)
        self._names.add(path)

    def _check_root_file(self, path: str, member: Member) -> None:
        """SageMaker's XGBoost image takes the files at the root as models, so there must be one and it must be the model."""
        if path != XGBOOST_MODEL:
            self._add(
                "xgboost-root",
                f"the root holds a file other than {XGBOOST_MODEL}",
                f"leave only {XGBOOST_MODEL} at the root (on macOS: COPYFILE_DISABLE=1 tar ...)",
                member.name,
            )
            return
        self._model_files += 1
        if not member.size_bytes:
            self._add("xgboost-model", "the model file is empty", "save the booster again and pack it", member.name)

    def _check_shape(self) -> None:
        if not self._model_files:
            fix = f"put the booster at the root as {XGBOOST_MODEL} (tar -czf model.tar.gz {XGBOOST_MODEL})"
            self._add("xgboost-model", f"the archive has no regular file {XGBOOST_MODEL} at its root", fix, XGBOOST_MODEL)

    def _add(self, rule: str, detail: str, fix: str, member: str | None = None) -> None:
        if len(self._findings) < _MAX_FINDINGS:
            self._findings.append(Reason(rule, detail, fix, None if member is None else _shown(member)))


def _name_rule(name: str, parts: list[str], name_bytes: int) -> tuple[str, str, str] | None:
    """The first rule that a name breaks: rule, detail, fix."""
    if len(name.encode("utf-8", "surrogateescape")) > name_bytes:
        return ("name", f"the name is longer than {name_bytes} bytes", "use a shorter name")
    if any(unicodedata.category(character).startswith("C") for character in name):
        return ("name", "the name has control characters or is not UTF-8", "rename the file")
    if "\\" in name:
        return ("name", "the name has a backslash", "use '/' between folders")
    if name.startswith("/"):
        return ("absolute-path", "the path is absolute", "pack with relative paths (tar -C folder ...)")
    if ".." in parts:
        return ("parent-path", "the path has '..'", "pack from inside the folder (tar -C folder ...)")
    return None


def _shown(name: str) -> str:
    text = name[: 2 * _SHOWN_CHARACTERS].encode("unicode_escape").decode("ascii")
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
