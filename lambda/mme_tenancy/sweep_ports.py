"""What the sweep needs of the table, the bucket and the admission function, as the domain sees them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from mme_facts.grammar import ArtifactName
from mme_facts.table import MOVING_RETIRED, MOVING_VERSION
from mme_tenancy.artifacts import UploadedObject
from mme_tenancy.versions import Version

__all__ = ["Admissions", "Area", "Cursors", "Due", "Found", "Listed", "Queue", "SweepIndex", "SweepObjects", "VersionKey"]


class Queue(StrEnum):
    """What the sparse index lists, oldest first."""

    MOVING = MOVING_VERSION
    """Versions under way."""
    RETIRED = MOVING_RETIRED
    """Retired versions whose artifact waits for its deletion."""


class Area(StrEnum):
    """A part of the bucket that is looked through."""

    INCOMING = "incoming"
    MODELS = "models"


@dataclass(frozen=True, slots=True)
class VersionKey:
    """Names a version's record."""

    tenant: str
    model: str
    number: int

    def __str__(self) -> str:
        return f"{self.tenant}/{self.model}/v{self.number}"


@dataclass(frozen=True, slots=True)
class Due:
    """A part of a queue.

    Attributes:
        keys: records, as the index knew them a moment ago.
        cursor: where the next part begins; ``None`` at the end.
    """

    keys: Sequence[VersionKey]
    cursor: str | None


@dataclass(frozen=True, slots=True)
class Found:
    """An object.

    Attributes:
        key: its key.
        name: the artifact that the key names; ``None`` if it names none of ours.
        modified_at: epoch seconds.
        etag: entity tag without quotes.
    """

    key: str
    name: ArtifactName | None
    modified_at: float
    etag: str


@dataclass(frozen=True, slots=True)
class Listed:
    """A part of an area's objects, by key.

    Attributes:
        objects: the part.
        cursor: where the next part begins; ``None`` at the end.
    """

    objects: Sequence[Found]
    cursor: str | None


@dataclass(frozen=True, slots=True)
class Cursors:
    """Where the last tick stopped in each queue and area; ``None``: the next one begins at the start."""

    moving: str | None = None
    retired: str | None = None
    incoming: str | None = None
    models: str | None = None


class SweepIndex(Protocol):
    """The table, as the sweep reads it."""

    def due(self, queue: Queue, *, until: str, limit: int, cursor: str | None) -> Due:
        """At most ``limit`` records of a queue that last changed at ``until`` or before, oldest first. It may be old."""
        ...

    def deletions(self, *, limit: int) -> Sequence[tuple[str, str | None]]:
        """At most ``limit`` deleted tenants, and as many deleted models with their tenants, of which something is left; oldest first."""
        ...

    def versions(self, names: Sequence[ArtifactName]) -> Mapping[ArtifactName, Version]:
        """The records of these artifacts, read consistently; those without one are left out."""
        ...

    def unrecorded_seconds(self, name: ArtifactName, now: float) -> float:
        """For how long the artifact has been seen without a record; the first call says 0 and remembers ``now``."""
        ...

    def cursors(self) -> Cursors:
        """Where the last tick stopped."""
        ...

    def remember(self, cursors: Cursors) -> None:
        """Store where this tick stopped."""
        ...


class SweepObjects(Protocol):
    """The bucket, as the sweep reads and cleans it."""

    def upload(self, name: ArtifactName) -> Found | None:
        """The upload, if one is there."""
        ...

    def stored(self, name: ArtifactName) -> bool:
        """Whether the artifact lies below the models prefix."""
        ...

    def abort(self, name: ArtifactName, upload_id: str) -> None:
        """End a multipart upload; does nothing if it has ended."""
        ...

    def listed(self, area: Area, *, limit: int, after: str | None) -> Listed:
        """At most ``limit`` objects of an area by key, those behind the cursor ``after``."""
        ...

    def delete(self, keys: Sequence[str]) -> Mapping[str, str]:
        """Delete objects, none of which has to be there; returns those that could not be deleted, and why."""
        ...

    def delete_artifact(self, name: ArtifactName) -> None:
        """Delete a version's artifact and what is left of its upload; neither has to be there."""
        ...


class Admissions(Protocol):
    """Calls the admission function."""

    def resume(self, upload: UploadedObject) -> None:
        """Have the version of ``upload`` brought on, as its event would, without waiting for it."""
        ...
