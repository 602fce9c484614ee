"""A version: one immutable artifact of a model, its record and its state machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from mme_facts.grammar import ArtifactName, VersionId
from mme_tenancy.errors import ForbiddenMoveError

__all__ = ["MOVES", "DigestClaim", "Multipart", "Reason", "Sample", "State", "Version"]


class State(StrEnum):
    """The states of a version."""

    AWAITING_UPLOAD = "awaiting_upload"
    INSPECTING = "inspecting"
    STORED = "stored"
    WARMING = "warming"
    READY = "ready"
    ACTIVE = "active"
    RETIRED = "retired"
    PURGED = "purged"
    REJECTED = "rejected"
    EXPIRED = "expired"


MOVES: Mapping[State, frozenset[State]] = {
    State.AWAITING_UPLOAD: frozenset({State.INSPECTING, State.EXPIRED, State.RETIRED}),
    State.INSPECTING: frozenset({State.STORED, State.REJECTED, State.EXPIRED, State.RETIRED}),
    State.STORED: frozenset({State.WARMING, State.REJECTED, State.RETIRED}),
    State.WARMING: frozenset({State.READY, State.REJECTED, State.RETIRED}),
    State.READY: frozenset({State.ACTIVE, State.RETIRED}),
    State.ACTIVE: frozenset({State.READY, State.RETIRED}),
    State.RETIRED: frozenset({State.PURGED}),
    State.PURGED: frozenset(),
    State.REJECTED: frozenset(),
    State.EXPIRED: frozenset(),
}
"""The state machine: from each state, where it may go."""

_UNDER_WAY = frozenset({State.AWAITING_UPLOAD, State.INSPECTING, State.STORED, State.WARMING})


@dataclass(frozen=True, slots=True)
class Sample:
    """The request that a version must be able to answer before it gets traffic.

    Attributes:
        content_type: media type of ``body``.
        body: the payload.
        accept: media type of the answer; ``None`` leaves the choice to the container.
    """

    content_type: str
    body: bytes
    accept: str | None = None


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a version was rejected.

    Attributes:
        rule: short stable name of the broken rule.
        detail: what was found.
        fix: what to do about it.
        member: which member of the archive is meant, if one is.
    """

    rule: str
    detail: str
    fix: str
    member: str | None = None

    def document(self) -> dict[str, object]:
        """What the API shows."""
        return {"rule": self.rule, "member": self.member, "detail": self.detail, "fix": self.fix}


@dataclass(frozen=True, slots=True)
class Multipart:
    """A multipart upload under way.

    Attributes:
        upload_id: S3's id of it.
        part_bytes: size of each part but the last.
    """

    upload_id: str
    part_bytes: int


@dataclass(frozen=True, slots=True)
class Version:
    """The record of a version.

    Attributes:
        tenant: tenant id.
        model: model id.
        number: its number within the model, counted up from 1.
        sha256: declared digest of the artifact, 64 hexadecimal digits.
        size_bytes: declared size of the artifact.
        framework: such as ``xgboost``.
        pool: the pool that serves it.
        sample: the request it must be able to answer.
        state: where it is in the state machine.
        created_at: timestamp.
        updated_at: timestamp of the last move.
        notes: the tenant's own words.
        activate: whether it takes the route by itself once it is admitted, if it is the newest then.
        reasons: why it was rejected.
        warnings: what its owner should know although it was admitted.
        timings: seconds each step took, by name.
        memory_bytes: what it takes in the container, where the container reports it.
        multipart: its upload, if that goes in parts.
        purge_after: timestamp after which the artifact of a retired version may be deleted.
        resumes: how often the sweep had to bring it on since its last move.
        resumed_at: timestamp of the last time.
        moving: whether work is under way. A version that becomes ``ready`` for the first time stays moving until it was
            decided whether the route goes to it; one that was rolled back does not move.
        rev: revision of the record, counted up by every write.
    """

    tenant: str
    model: str
    number: int
    sha256: str
    size_bytes: int
    framework: str
    pool: str
    sample: Sample
    state: State
    created_at: str
    updated_at: str
    notes: str | None = None
    activate: bool = True
    reasons: tuple[Reason, ...] = ()
    warnings: tuple[Reason, ...] = ()
    timings: Mapping[str, float] = field(default_factory=dict)
    memory_bytes: int | None = None
    multipart: Multipart | None = None
    purge_after: str | None = None
    resumes: int = 0
    resumed_at: str | None = None
    moving: bool = True
    rev: int = 1

    @property
    def id(self) -> VersionId:
        """The version's id."""
        return VersionId.of(self.number, self.sha256)

    @property
    def name(self) -> ArtifactName:
        """The name its keys and TargetModel are made of."""
        return ArtifactName(self.tenant, self.model, self.id)

    def move(self, to: State, now: str, *, reasons: Sequence[Reason] = (), timings: Mapping[str, float] | None = None) -> Version:
        """The record after the move to ``to`` at ``now``; raises `ForbiddenMoveError` if `MOVES` has no such move.

        Args:
            to: the new state.
            now: timestamp.
            reasons: why, when it is a rejection.
            timings: seconds of the steps behind it, added to those recorded.
        """
        if to not in MOVES[self.state]:
            allowed = [state.value for state in State if state in MOVES[self.state]]
            raise ForbiddenMoveError(
                f"version {self.id} is {self.state.value} and cannot become {to.value}",
                field="state",
                value=to.value,
                allowed=allowed,
            )
        return replace(
            self,
            state=to,
            updated_at=now,
            reasons=(*self.reasons, *reasons),
            timings={**self.timings, **(timings or {})},
            resumes=0,
            resumed_at=None,
            moving=to in _UNDER_WAY or (self.state is State.WARMING and to is State.READY),
            rev=self.rev + 1,
        )

    def resume(self, now: str) -> Version:
        """The record when the sweep brings it on: it stays where it is, and its owner sees how often that was needed."""
        return replace(self, resumes=self.resumes + 1, resumed_at=now, rev=self.rev + 1)

    def retire(self, now: str, purge_after: str) -> Version:
        """The record once the version is retired at ``now``; its artifact stays until ``purge_after``.

        Nothing was uploaded for a version that still awaits it, so nothing is kept: that one may be purged at once.
        """
        return replace(self.move(State.RETIRED, now), purge_after=now if self.state is State.AWAITING_UPLOAD else purge_after)

    def settle(self, now: str) -> Version:
        """The record once nothing more is to be done with it for now."""
        return replace(self, moving=False, updated_at=now, rev=self.rev + 1)

    def document(self) -> dict[str, object]:
        """What the API shows."""
        return {
            "tenant": self.tenant,
            "model": self.model,
            "version": str(self.id),
            "state": self.state.value,
            "active": self.state is State.ACTIVE,
            "framework": self.framework,
            "size_bytes": self.size_bytes,
            "sha256": self.sha256,
            "notes": self.notes,
            "activate": self.activate,
            "reasons": [reason.document() for reason in self.reasons],
            "warnings": [warning.document() for warning in self.warnings],
            "timings": dict(self.timings),
            "memory_bytes": self.memory_bytes,
            "purge_after": self.purge_after,
            "created_at": self.created_at,
            "updated_at": self.updated_at,
        }


@dataclass(frozen=True, slots=True)
class DigestClaim:
    """Which version of a model holds an artifact, by digest: found by one read, however many versions there are.

    Attributes:
        tenant: tenant id.
        model: model id.
        sha256: the digest.
        number: the version's number.
        rev: revision of the record.
    """

    tenant: str
    model: str
    sha256: str
    number: int
    rev: int = 1
