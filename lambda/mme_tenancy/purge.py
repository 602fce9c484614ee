"""The end of artifacts: when a retired version's may go, and which objects no record points to."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from mme_facts.grammar import ArtifactName
from mme_tenancy.registry import Change, Registry
from mme_tenancy.routes import Model
from mme_tenancy.sweep_ports import Area, SweepObjects
from mme_tenancy.versions import State, Version

__all__ = ["ARTIFACT_STATES", "Orphan", "Purge", "RoutedArtifactError", "is_routed", "orphan"]

ARTIFACT_STATES = frozenset({State.STORED, State.WARMING, State.READY, State.ACTIVE, State.RETIRED})
"""A version's artifact lies below the models prefix if, and in the end only if, it is in one of these."""
_NEEDS_UPLOAD = frozenset({State.AWAITING_UPLOAD, State.INSPECTING})


class RoutedArtifactError(Exception):
    """A route still names an artifact that was to be deleted: something else is broken."""


class Orphan(StrEnum):
    """What an object is to the registry."""

    NONE = "none"
    """A record points to it."""
    ENDED = "ended"
    """Its version has ended, or does not need it any more."""
    UNRECORDED = "unrecorded"
    """The registry knows that its number was given, and has no such version: that record was lost."""
    UNEXPLAINED = "unexplained"
    """The registry gave no such number: it may be older than the object, restored from a backup. Only an operator may delete it."""


def orphan(area: Area, name: ArtifactName, version: Version | None, model: Callable[[], Model | None]) -> Orphan:
    """What the object that ``name`` names in ``area`` is to the registry.

    Args:
        area: where it lies.
        name: what its key says.
        version: the record of that name, read after the object was seen.
        model: reads the model's record; called only if there is no version.
    """
    if version is not None:
        # An artifact of a version that is inspected still may be the copy that its record is about to name.
        needed = _NEEDS_UPLOAD if area is Area.INCOMING else ARTIFACT_STATES | {State.INSPECTING}
        return Orphan.NONE if version.state in needed else Orphan.ENDED
    if area is Area.INCOMING:
        return Orphan.UNRECORDED
    known = model()
    return Orphan.UNRECORDED if known is not None and known.last_version >= name.version.number else Orphan.UNEXPLAINED


def is_routed(model: Model | None, version: Version) -> bool:
    """Whether the model's route, or its canary, names the version."""
    route = None if model is None else model.route
    if route is None:
        return False
    return str(version.id) in {route.version, None if route.canary is None else route.canary.version}


class Purge:
    """Deletes the artifacts of retired versions.

    Args:
        registry: the records.
        objects: the bucket.
    """

    def __init__(self, registry: Registry, objects: SweepObjects) -> None:
        self._registry = registry
        self._objects = objects

    def purge(self, version: Version, now: str) -> None:
        """Delete the artifact, then say so in the record: cut in between, the next call finds the version retired and does it again.

        Args:
            version: a retired version, read consistently. No move leads back from there, so nobody routes to it meanwhile.
            now: timestamp.

        Raises:
            RoutedArtifactError: the model's route names it.
            WriteConflictError: somebody else changed the record.
        """
        after = version.move(State.PURGED, now)
        if is_routed(self._registry.model(version.tenant, version.model), version):
            raise RoutedArtifactError(f"the route of {version.tenant}/{version.model} names {version.id}, which is retired")
        self._objects.delete_artifact(version.name)
        self._registry.write(Change(version, after))
