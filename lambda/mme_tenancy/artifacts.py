"""The artifacts' store and the signer of uploads, as the domain sees them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from mme_facts.grammar import ArtifactName

__all__ = ["ArtifactStore", "Upload", "UploadGoneError", "UploadSigner", "UploadedObject"]


class UploadGoneError(Exception):
    """The uploaded object is not there any more, or is another one now."""


@dataclass(frozen=True, slots=True)
class Upload:
    """What a tenant needs to upload an artifact.

    Attributes:
        method: HTTP method.
        url: signed address.
        headers: headers that must be sent as they stand; the signature covers them.
        expires_at: timestamp after which the address is worthless.
    """

    method: str
    url: str
    headers: Mapping[str, str]
    expires_at: str

    def document(self) -> dict[str, object]:
        """What the API shows."""
        return {"method": self.method, "url": self.url, "headers": dict(self.headers), "expires_at": self.expires_at}


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
    """Signs uploads; needs no call to any service."""

    def sign(self, name: ArtifactName, *, sha256: str, size_bytes: int, seconds: int) -> Upload:
        """An upload of exactly this artifact, once, valid for ``seconds``."""
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
