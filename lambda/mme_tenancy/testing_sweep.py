"""Whole small implementations of what the sweep needs, beside those of `mme_tenancy.testing`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mme_facts.grammar import INCOMING_PREFIX, MODELS_PREFIX, ArtifactName, GrammarError
from mme_tenancy.artifacts import UploadedObject
from mme_tenancy.routes import Model
from mme_tenancy.sweep_ports import Area, Cursors, Due, Found, Listed, Queue, VersionKey
from mme_tenancy.tenants import Tenant
from mme_tenancy.testing import MemoryArtifacts, MemoryRegistry
from mme_tenancy.versions import State, Version

__all__ = ["MemoryAdmissions", "MemorySweepIndex", "MemorySweepObjects"]


class MemorySweepIndex:
    """`mme_tenancy.sweep_ports.SweepIndex` over a `MemoryRegistry`.

    Args:
        registry: the records.

    Attributes:
        stored: the cursors.
        unrecorded: since when artifacts have been seen without a record.
    """

    def __init__(self, registry: MemoryRegistry) -> None:
        self._registry = registry
        self.stored = Cursors()
        self.unrecorded: dict[ArtifactName, float] = {}

    def due(self, queue: Queue, *, until: str, limit: int, cursor: str | None) -> Due:
        """At most ``limit`` records of a queue that last changed at ``until`` or before, oldest first."""
        found = sorted(
            (f"{record.updated_at} {record.name.target_model}", VersionKey(record.tenant, record.model, record.number))
            for record in self._registry.records.values()
            if isinstance(record, Version) and self._is_in(queue, record) and record.updated_at <= until
        )
        rest = [(order, key) for order, key in found if cursor is None or order > cursor]
        return Due([key for _, key in rest[:limit]], rest[limit - 1][0] if len(rest) > limit else None)

    @staticmethod
    def _is_in(queue: Queue, version: Version) -> bool:
        return version.moving if queue is Queue.MOVING else version.state is State.RETIRED

    def deletions(self, *, limit: int) -> Sequence[tuple[str, str | None]]:
        """At most ``limit`` deleted tenants, and as many deleted models with their tenants, of which something is left; oldest first."""
        records = sorted(self._registry.records.values(), key=lambda record: getattr(record, "updated_at", ""))
        tenants = [record.tenant for record in records if isinstance(record, Tenant) and record.retiring_after is not None]
        models = [(record.tenant, record.model) for record in records if isinstance(record, Model) and record.retiring_below is not None]
        return [*((tenant, None) for tenant in tenants[:limit]), *models[:limit]]

    def versions(self, names: Sequence[ArtifactName]) -> Mapping[ArtifactName, Version]:
        """The records of these artifacts; those without one are left out."""
        found = {name: self._registry.version(name.tenant, name.model, name.version.number) for name in names}
        return {name: version for name, version in found.items() if version is not None and version.name == name}

    def unrecorded_seconds(self, name: ArtifactName, now: float) -> float:
        """For how long the artifact has been seen without a record; the first call says 0 and remembers ``now``."""
        return now - self.unrecorded.setdefault(name, now)

    def cursors(self) -> Cursors:
        """Where the last tick stopped."""
        return self.stored

    def remember(self, cursors: Cursors) -> None:
        """Store where this tick stopped."""
        self.stored = cursors


class MemorySweepObjects:
    """`mme_tenancy.sweep_ports.SweepObjects` over `MemoryArtifacts`.

    Args:
        artifacts: uploads and artifacts.

    Attributes:
        modified: key -> when it came, epoch seconds; objects that are not in it are as old as can be.
        aborted: multipart uploads that were ended.
    """

    def __init__(self, artifacts: MemoryArtifacts) -> None:
        self._artifacts = artifacts
        self.modified: dict[str, float] = {}
        self.aborted: list[tuple[ArtifactName, str]] = []

    def upload(self, name: ArtifactName) -> Found | None:
        """The upload, if one is there."""
        key = name.incoming_key
        return self._found(key, INCOMING_PREFIX) if key in self._artifacts.incoming else None

    def stored(self, name: ArtifactName) -> bool:
        """Whether the artifact lies below the models prefix."""
        return name.artifact_key() in self._artifacts.admitted

    def abort(self, name: ArtifactName, upload_id: str) -> None:
        """End a multipart upload."""
        self.aborted.append((name, upload_id))

    def listed(self, area: Area, *, limit: int, after: str | None) -> Listed:
        """At most ``limit`` objects of an area by key, those behind the cursor ``after``."""
        held, prefix = (self._artifacts.incoming, INCOMING_PREFIX) if area is Area.INCOMING else (self._artifacts.admitted, MODELS_PREFIX)
        rest = sorted(key for key in held if after is None or key > after)
        return Listed([self._found(key, prefix) for key in rest[:limit]], rest[limit - 1] if len(rest) > limit else None)

    def delete(self, keys: Sequence[str]) -> Mapping[str, str]:
        """Delete objects, none of which has to be there."""
        for key in keys:
            self._artifacts.incoming.pop(key, None)
            self._artifacts.admitted.pop(key, None)
        return {}

    def delete_artifact(self, name: ArtifactName) -> None:
        """Delete a version's artifact and what is left of its upload; neither has to be there."""
        self.delete([name.artifact_key(), name.incoming_key])

    def _found(self, key: str, prefix: str) -> Found:
        try:
            name = ArtifactName.parse(key.removeprefix(prefix))
        except GrammarError:
            name = None
        etag = self._artifacts.etag(key) if key in self._artifacts.incoming else ""
        return Found(key, name, self.modified.get(key, 0.0), etag)


@dataclass
class MemoryAdmissions:
    """`mme_tenancy.sweep_ports.Admissions` that keeps the calls.

    Attributes:
        resumed: the uploads, in order.
    """

    resumed: list[UploadedObject] = field(default_factory=list)

    def resume(self, upload: UploadedObject) -> None:
        """Keep the call."""
        self.resumed.append(upload)
