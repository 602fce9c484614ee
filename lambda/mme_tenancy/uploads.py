"""How an artifact is uploaded: in one request while it is small, in parts above that; and how an upload is completed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mme_facts.grammar import VersionId
from mme_facts.limits import MULTIPART_PART_BYTES_GREATEST
from mme_tenancy.artifacts import StoredPart, UploadedObject, UploadGoneError, UploadSigner
from mme_tenancy.clock import Clock
from mme_tenancy.errors import (
    ForbiddenMoveError,
    ModelNotFoundError,
    TenantNotFoundError,
    UploadIncompleteError,
    VersionNotFoundError,
)
from mme_tenancy.registry import Registry, model_key, tenant_key, version_key
from mme_tenancy.sweep_ports import Admissions
from mme_tenancy.versions import Multipart, State, Version

__all__ = ["GREATEST_UPLOAD_BYTES", "PARTS", "PART_BYTES", "Completion", "Slice", "missing_parts", "part_bytes_of", "slices"]

PART_BYTES = 8 << 20
"""Up to this size an artifact is uploaded by one request; above it, it is the smallest part. The AWS CLI splits at the same size."""
PARTS = 100
"""So many parts at most: their signed addresses fit into one answer, and the answer into an idempotency item."""
GREATEST_UPLOAD_BYTES = PARTS * MULTIPART_PART_BYTES_GREATEST
_MEBIBYTE = 1 << 20
_EVENT_LOOKS, _LOOK_SECONDS = 7, 0.5
"""How often it is looked whether the bucket's event has come, and the time between: it takes about a second."""


@dataclass(frozen=True, slots=True)
class Slice:
    """One part of an artifact.

    Attributes:
        number: counted from 1.
        offset: its first byte in the artifact.
        size_bytes: its size.
    """

    number: int
    offset: int
    size_bytes: int


def part_bytes_of(size_bytes: int) -> int | None:
    """Size of the parts of an artifact, whole mebibytes; ``None``: it goes in one request.

    The parts are as small as `PARTS` of them allow, because a part is what is sent again when a connection breaks.
    """
    if size_bytes <= PART_BYTES:
        return None
    return max(PART_BYTES, -(-size_bytes // (PARTS * _MEBIBYTE)) * _MEBIBYTE)


def slices(size_bytes: int, part_bytes: int) -> Iterator[Slice]:
    """The parts of an artifact; only the last may be smaller than ``part_bytes``."""
    for number, offset in enumerate(range(0, size_bytes, part_bytes), start=1):
        yield Slice(number, offset, min(part_bytes, size_bytes - offset))


def missing_parts(size_bytes: int, part_bytes: int, stored: Mapping[int, StoredPart]) -> list[int]:
    """Numbers of the parts that are not there, or not with the size that they must have."""
    return [
        part.number
        for part in slices(size_bytes, part_bytes)
        if (there := stored.get(part.number)) is None or there.size_bytes != part.size_bytes
    ]


class Completion:
    """Completes uploads.

    Args:
        registry: the records.
        uploads: the uploads.
        admissions: starts the admission of an upload whose event does not come; ``None``: it is left to the event.
        clock: time.
    """

    def __init__(self, registry: Registry, uploads: UploadSigner, admissions: Admissions | None, clock: Clock) -> None:
        self._clock = clock
        self._registry = registry
        self._uploads = uploads
        self._admissions = admissions

    def complete(self, tenant: str, model: str, wanted: VersionId) -> Version:
        """Put the parts of an upload together if that has not been done, and see that its admission begins; the version's record now.

        It may be called again, and before, after or at the same time as the bucket's event. The event is given a moment, because an
        admission that begins twice comes to one end, but inspects twice.

        Raises:
            TenantNotFoundError, ModelNotFoundError, VersionNotFoundError: there is no such thing.
            TenantDeletedError: the tenant was deleted.
            ForbiddenMoveError: the upload was not completed in time, the version has expired.
            UploadIncompleteError: something of the artifact is not there.
            WriteConflictError: a part was replaced at the same time.
        """
        names = tenant_key(tenant), model_key(tenant, model), version_key(tenant, model, wanted.number)
        owner, record, version = self._registry.read(*names)
        if owner is None:
            raise TenantNotFoundError(tenant)
        owner.check_open()
        if record is None:
            raise ModelNotFoundError(tenant, model)
        if version is None or version.id != wanted:
            raise VersionNotFoundError(model, str(wanted))
        if version.state is State.EXPIRED:
            raise ForbiddenMoveError(
                f"the upload of version {wanted} was not completed in time: register the artifact again", field="version", value=str(wanted)
            )
        if version.state is not State.AWAITING_UPLOAD:
            return version
        upload = self._complete(version)
        return self._see_to_admission(version, upload)

    def _see_to_admission(self, version: Version, upload: UploadedObject) -> Version:
        looks = _EVENT_LOOKS if self._admissions is not None else 1
        for look in range(looks):
            if look:
                self._clock.sleep(_LOOK_SECONDS)
            version = self._registry.version(version.tenant, version.model, version.number) or version
            if version.state is not State.AWAITING_UPLOAD:
                return version
        if self._admissions is not None:
            self._admissions.resume(upload)
        return version

    def _complete(self, version: Version) -> UploadedObject:
        missing: list[int] = []
        if version.multipart is not None and (parts := self._uploads.parts(version.name, version.multipart.upload_id)) is not None:
            missing = missing_parts(version.size_bytes, version.multipart.part_bytes, parts)
            if not missing:
                return self._put_together(version, version.multipart, parts)
        there = self._uploads.uploaded(version.name)
        if there is not None:
            return there
        if missing:
            raise UploadIncompleteError.of_parts(missing)
        raise UploadIncompleteError.of_artifact()

    def _put_together(self, version: Version, multipart: Multipart, stored: Mapping[int, StoredPart]) -> UploadedObject:
        wanted = [stored[part.number] for part in slices(version.size_bytes, multipart.part_bytes)]
        try:
            return self._uploads.complete(version.name, multipart.upload_id, wanted)
        except UploadGoneError as error:
            # Somebody completed it first, or the object was put in one request; or it was given up at the same time.
            there = self._uploads.uploaded(version.name)
            if there is None:
                raise UploadIncompleteError.of_artifact() from error
            return there
