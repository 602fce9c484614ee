"""Unpack an artifact as the platform does before a load: only plain files and folders, inside the target, bounded."""

from __future__ import annotations

import gzip
import shutil
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

from mme_facts.artifacts import carries_code
from mme_local.dataplane.kinds import ServerKind

__all__ = ["BrokenArtifactError", "unpack"]

_CHUNK_BYTES = 1024 * 1024


class BrokenArtifactError(ValueError):
    """An artifact is not a safe ``.tar.gz``; the text names the member."""


class _Bounded:
    """Reads a stream and fails after ``limit`` bytes, whatever they are: data, padding or headers."""

    def __init__(self, stream: gzip.GzipFile, limit: int, abandoned: Callable[[], bool]) -> None:
        self._stream, self._limit, self._abandoned = stream, limit, abandoned
        self._left = limit

    def read(self, size: int) -> bytes:
        if self._abandoned():
            raise BrokenArtifactError("the unpacking was abandoned")
        data = self._stream.read(min(size, self._left + 1))
        self._left -= len(data)
        if self._left < 0:
            raise BrokenArtifactError(f"the artifact is larger than {self._limit} bytes unpacked, the space on an instance's disk")
        return data


def unpack(archive: BinaryIO, folder: Path, kind: ServerKind, limit_bytes: int, abandoned: Callable[[], bool]) -> int:
    """Unpack ``archive`` into the new folder ``folder``.

    Args:
        archive: the ``.tar.gz``, at its start.
        folder: made here; what lies in it after an error is the caller's to remove.
        kind: the server, which may refuse some members.
        limit_bytes: the greatest size unpacked.
        abandoned: asked now and then; when it says so the work ends with an error.

    Returns:
        The bytes of all files.

    Raises:
        BrokenArtifactError: it is no gzip, no tar, truncated, too large, or holds a member that may not be there.
    """
    folder.mkdir(parents=True)
    total = 0
    try:
        with gzip.GzipFile(fileobj=archive) as plain:
            stream = _Bounded(plain, limit_bytes, abandoned)
            with tarfile.open(fileobj=cast("BinaryIO", stream), mode="r|") as tar:
                for member in tar:
                    target = folder / _check(member, kind)
                    if member.isdir():
                        target.mkdir(parents=True, exist_ok=True)
                        continue
                    target.parent.mkdir(parents=True, exist_ok=True)
                    source = tar.extractfile(member)
                    assert source is not None
                    with target.open("wb") as file:
                        shutil.copyfileobj(source, file, _CHUNK_BYTES)
                    total += member.size
            while stream.read(_CHUNK_BYTES):  # to the end, for the checksum of the gzip stream
                pass
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise BrokenArtifactError(f"the artifact is not a sound .tar.gz: {error}") from error
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise BrokenArtifactError(f"the artifact has a member that is a file and a folder: {Path(str(error.filename)).name!r}") from error
    return total


def _check(member: tarfile.TarInfo, kind: ServerKind) -> Path:
    """Where the member goes, relative to the target."""
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts or "\0" in member.name:
        raise BrokenArtifactError(f"member {member.name!r} leaves the artifact's folder")
    if not (member.isdir() or member.isreg()) or member.issparse():
        raise BrokenArtifactError(f"member {member.name!r} is neither a plain file nor a folder")
    if kind.refuses_code and member.isreg() and carries_code(member.name):
        raise BrokenArtifactError(f"member {member.name!r} is code or a manifest, which this server does not take from an artifact")
    return Path(*path.parts)
