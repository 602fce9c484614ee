"""The artifacts' store and the signer of uploads, as the domain sees them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from mme_facts.grammar import ArtifactName
from mme_tenancy.versions import Multipart

__all__ = ["ArtifactStore", "StoredPart", "Upload", "UploadGoneError", "UploadPart", "UploadSigner", "UploadedObject"]


class UploadGoneError(Exception):
    """The uploaded object is not there any more, or is another one now."""


@dataclass(frozen=True, slots=True)
class UploadPart:
    """One part of an upload.

    Attributes:
        number: counted from 1.
        offset: its first byte in the artifact.
        size_bytes: its size.
        url: signed address.
        headers: headers that must be sent as they stand; the signature covers them.
        uploaded: whether it is there already; sending it again replaces it.
    """

    number: int
    offset: int
    size_bytes: int
    url: str
    headers: Mapping[str, str]
    uploaded: bool

    def document(self) -> dict[str, object]:
        """What the API shows."""
        return {
            "number": self.number,
            "offset": self.offset,
            "size_bytes": self.size_bytes,
            "url": self.url,
            "headers": dict(self.headers),
            "uploaded": self.uploaded,
        }


@dataclass(frozen=True, slots=True)
class Upload:
    """What a tenant needs to upload an artifact: one request, or one a part and a call that puts them together.

    Attributes:
        method: HTTP method.
        url: signed address; ``None`` if the artifact goes in parts.
        headers: headers that must be sent as they stand; the signature covers them.
        parts: the parts, if the artifact goes in parts; they may be sent in any order and at the same time.
        expires_at: timestamp after which the addresses are worthless; registering the same artifact again renews them.
    """

    method: str
    url: str | None
    headers: Mapping[str, str]
    expires_at: str
    parts: tuple[UploadPart, ...] = ()

    def document(self) -> dict[str, object]:
        """What the API shows."""
        return {
            "method": self.method,
            "url": self.url,
            "headers": dict(self.headers),
            "parts": [part.document() for part in self.parts],
            "expires_at": self.expires_at,
        }


@dataclass(frozen=True, slots=True)
class StoredPart:
    """A part as the store holds it.

    Attributes:
        number: counted from 1.
        etag: its entity tag.
        size_bytes: its size.
    """

    number: int
    etag: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class UploadedObject:
    """One object as it was uploaded.

    Attributes:
        name: which artifact it should be.
        etag: its entity tag, without quotes; every later read and copy insists on it.
    """

    name: ArtifactName
    etag: str


class UploadSigner(Protocol):
    """Begins, signs and completes uploads. Signing needs no call to any service."""

    def sign(self, name: ArtifactName, *, sha256: str, size_bytes: int, seconds: int) -> Upload:
        """An upload of exactly this artifact, once, valid for ``seconds``."""
        ...

    def sign_parts(
        self, name: ArtifactName, multipart: Multipart, *, size_bytes: int, uploaded: Mapping[int, StoredPart], seconds: int
    ) -> Upload:
        """An upload in parts, valid for ``seconds``; ``uploaded`` is what `parts` found."""
        ...

    def begin(self, name: ArtifactName) -> str:
        """Begin an upload in parts; its id."""
        ...

    def abort(self, name: ArtifactName, upload_id: str) -> None:
        """Give an upload in parts up, and what is there of it; does nothing if it has ended."""
        ...

    def parts(self, name: ArtifactName, upload_id: str) -> Mapping[int, StoredPart] | None:
        """The parts that are there, by number; ``None`` if there is no such upload, or not any more."""
        ...

    def complete(self, name: ArtifactName, upload_id: str, parts: Sequence[StoredPart]) -> UploadedObject:
        """Put parts together to an object that must be new.

        Raises:
            UploadGoneError: the upload has ended, or there is an object already.
            WriteConflictError: a part is not the one that was listed any more.
        """
        ...

    def uploaded(self, name: ArtifactName) -> UploadedObject | None:
        """The uploaded object, if it is there."""
        ...


class ArtifactStore(Protocol):
    """Holds uploads and admitted artifacts."""

    def read(self, upload: UploadedObject) -> AbstractContextManager[Iterator[bytes]]:
        """Stream the upload in chunks of bounded size; raises `UploadGoneError`."""
        ...

    def admit(self, upload: UploadedObject, size_bytes: int) -> None:
        """Copy the upload, of ``size_bytes``, to its immutable key, server-side; does nothing if it is there. Raises `UploadGoneError`."""
        ...

    def discard(self, name: ArtifactName) -> None:
        """Delete the admitted artifact of a rejected version; does nothing if there is none."""
        ...
