"""The sweep: what happens to versions that nobody brings on any more, and to objects that no record points to.

A tick does a bounded amount of work and remembers where it stopped. It decides from records that it reads consistently (the index that
names them may be old) and from the objects that are there, and every write is conditional. So a tick may be cut anywhere, run twice at
the same time, or never end: the next one goes on. What goes wrong with one version or object is counted and stops no other.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from enum import StrEnum
from functools import partial
from types import TracebackType

from mme_facts.grammar import ArtifactName
from mme_facts.limits import RETIRED_DAYS
from mme_tenancy.artifacts import UploadedObject
from mme_tenancy.clock import Clock, timestamp
from mme_tenancy.errors import WriteConflictError
from mme_tenancy.purge import Orphan, Purge, orphan
from mme_tenancy.registry import Change, Registry
from mme_tenancy.retirement import Retirer
from mme_tenancy.sweep_ports import Admissions, Area, Cursors, Due, Found, Listed, Queue, SweepIndex, SweepObjects
from mme_tenancy.versions import Reason, State, Version

__all__ = ["Failure", "Step", "SweepRules", "Sweeper", "Swept", "is_due", "next_step", "seconds_of"]

_HOUR, _DAY = 3600.0, 86_400.0
_KEPT_FAILURES = 10
"""So many failures of a tick are told in words; all are counted."""
_UPLOAD_LOST = Reason("upload-lost", "the upload was deleted before it could be inspected", "register the artifact again and upload it")
_ARTIFACT_LOST = Reason("artifact-lost", "the stored artifact is not there any more", "register the artifact again and upload it")


@dataclass(frozen=True, slots=True)
class SweepRules:
    """When the sweep acts, and how much it does in a tick.

    Attributes:
        stuck_seconds: how long a version under way may stay as it is: longer than the admission function may run.
        longest_rest_seconds: the rest between two resumptions of one version doubles from ``stuck_seconds`` up to this.
        expire_seconds: how long an upload is awaited; signed uploads end long before.
        orphan_seconds: how old an object must be before it may be deleted because no record points to it.
        retired_seconds: how long the artifacts are kept of versions that the tick retires, because their model or tenant was deleted.
        unrecorded_seconds: for how long an artifact must have been seen without a record that should be there before it is deleted: time
            to restore the record.
        versions: how many records a tick looks at, of each queue.
        objects: how many objects a tick looks at, of each area.
        page: how many are asked for at once.
    """

    stuck_seconds: float = 1200.0
    longest_rest_seconds: float = 6 * _HOUR
    expire_seconds: float = _DAY
    orphan_seconds: float = _DAY
    retired_seconds: float = RETIRED_DAYS * _DAY
    unrecorded_seconds: float = 7 * _DAY
    versions: int = 500
    objects: int = 5000
    page: int = 100


class Step(StrEnum):
    """What the sweep does with a version."""

    NOTHING = "nothing"
    RESUME = "resume"
    EXPIRE = "expire"
    STORE = "store"
    REJECT = "reject"


def seconds_of(moment: str) -> float:
    """Seconds since 1970 of a timestamp of ours."""
    return datetime.fromisoformat(moment).timestamp()


def is_due(version: Version, now: float, rules: SweepRules) -> bool:
    """Whether a version has stayed as it is for so long that the sweep should look after it; the rest doubles with every resumption."""
    rest = min(rules.stuck_seconds * 2.0 ** min(version.resumes, 20), max(rules.longest_rest_seconds, rules.stuck_seconds))
    return now - seconds_of(max(version.updated_at, version.resumed_at or "")) >= rest


def next_step(version: Version, uploaded_at: float | None, *, stored: bool, now: float, rules: SweepRules) -> Step:
    """What is to be done with a version under way that `is_due`.

    Args:
        version: its record, read consistently.
        uploaded_at: when its upload came, epoch seconds; ``None``: no upload is there.
        stored: whether its artifact lies below the models prefix.
        now: epoch seconds.
        rules: when to act.
    """
    if version.state is State.AWAITING_UPLOAD:
        if uploaded_at is None:
            return Step.EXPIRE if now - seconds_of(version.updated_at) >= rules.expire_seconds else Step.NOTHING
        # The event of a new upload may be on its way.
        return Step.RESUME if now - uploaded_at >= rules.stuck_seconds else Step.NOTHING
    if version.state is State.INSPECTING and uploaded_at is None:
        # Only what passed inspection is ever copied, and a copy is whole or absent.
        return Step.STORE if stored else Step.EXPIRE
    if version.state in {State.STORED, State.WARMING} and not stored:
        return Step.REJECT
    return Step.RESUME


@dataclass(frozen=True, slots=True)
class Failure:
    """Something that a tick could not do.

    Attributes:
        what: the version or object.
        error: what was raised.
    """

    what: str
    error: str


@dataclass(frozen=True, slots=True)
class Swept:
    """What a tick did.

    Attributes:
        resumed: versions whose admission was called again.
        expired: versions whose upload never came, or was gone before it could be inspected.
        rejected: versions under way whose stored artifact is gone.
        purged: retired versions whose artifact was deleted.
        deletions: deleted tenants and models that were gone on with.
        deleted_uploads: objects below ``incoming/`` that no record needs.
        deleted_artifacts: objects below the models prefix that no record points to.
        unexplained: artifacts without the record that should be there. They are kept, for good if the registry never gave their number.
        foreign: objects whose keys are none of the platform's. They are kept.
        examined: records and objects that were looked at.
        conflicts: records that somebody else changed meanwhile; the next tick sees them again.
        failed: what could not be done.
        oldest_stuck_seconds: for how long the oldest version under way, uploads that are awaited apart, has stayed as it is.
        failures: the first failures in words.
    """

    resumed: int = 0
    expired: int = 0
    rejected: int = 0
    purged: int = 0
    deletions: int = 0
    deleted_uploads: int = 0
    deleted_artifacts: int = 0
    unexplained: int = 0
    foreign: int = 0
    examined: int = 0
    conflicts: int = 0
    failed: int = 0
    oldest_stuck_seconds: float = 0.0
    failures: tuple[Failure, ...] = ()

    def document(self) -> dict[str, object]:
        """The function's answer and the line of its log."""
        return asdict(self) | {"failures": [asdict(failure) for failure in self.failures]}


class Sweeper:
    """Does ticks.

    Args:
        registry: the records.
        index: names what is due.
        objects: uploads and artifacts.
        admissions: resumes versions.
        clock: time.
        rules: when to act.
    """

    def __init__(
        self,
        registry: Registry,
        index: SweepIndex,
        objects: SweepObjects,
        admissions: Admissions,
        clock: Clock,
        rules: SweepRules | None = None,
    ) -> None:
        self._registry = registry
        self._index = index
        self._objects = objects
        self._admissions = admissions
        self._clock = clock
        self._rules = rules or SweepRules()
        self._purge = Purge(registry, objects)
        self._retirer = Retirer(registry, clock, random.random, grace_seconds=self._rules.retired_seconds)

    def tick(self, *, deadline: float) -> Swept:
        """One tick. It raises nothing: what failed is in the answer, and the next tick tries again.

        Args:
            deadline: point on the monotonic clock after which nothing new is begun.
        """
        work = _Work(self._clock, deadline)
        cursors = Cursors()
        with work.trying("where the last tick stopped"):
            cursors = self._index.cursors()
        after = Cursors(
            retired=self._queue(work, Queue.RETIRED, self._moment(), cursors.retired, self._sweep_retired),
            moving=self._queue(work, Queue.MOVING, self._moment(-self._rules.stuck_seconds), cursors.moving, self._sweep_moving),
            incoming=self._area(work, Area.INCOMING, cursors.incoming),
            models=self._area(work, Area.MODELS, cursors.models),
        )
        if after != cursors:
            with work.trying("where this tick stopped"):
                self._index.remember(after)
        self._go_on_with_deletions(work)
        return work.done

    def _go_on_with_deletions(self, work: _Work) -> None:
        """Retire what is left of deleted tenants and models, for as long as there is time: a tenant may have had thousands."""
        found: Sequence[tuple[str, str | None]] = ()
        with work.trying("deletions"):
            found = self._index.deletions(limit=self._rules.page)
        for tenant, model in found:
            work.count(examined=1)
            with work.trying(tenant if model is None else f"{tenant}/{model}"):
                while work.goes_on() and self._goes_on(tenant, model):
                    work.count(deletions=1)

    def _goes_on(self, tenant: str, model: str | None) -> bool:
        """Retire some more; whether anything was done. A call of the API or another tick may be at it, too."""
        before = self._registry.tenant(tenant) if model is None else self._registry.model(tenant, model)
        if before is None:
            return False
        after = self._retirer.resume_tenant(tenant) if model is None else self._retirer.resume_model(tenant, model)
        return after is not None and after.rev != before.rev

    def _moment(self, seconds: float = 0.0) -> str:
        return timestamp(self._clock.time() + seconds)

    def _queue(self, work: _Work, queue: Queue, until: str, cursor: str | None, sweep: Callable[[_Work, Version], None]) -> str | None:
        """Look at what is due in ``queue``, oldest first, from ``cursor`` on; returns where the next tick begins."""
        left = self._rules.versions
        while left > 0 and work.goes_on():
            limit = min(left, self._rules.page)
            due: Due | None = None
            with work.trying(f"queue {queue}"):
                due = self._index.due(queue, until=until, limit=limit, cursor=cursor)
            if due is None:
                # It may be the cursor that cannot be read; the start always can.
                return None
            for key in due.keys:
                if not work.goes_on():
                    return cursor
                work.count(examined=1)
                with work.trying(str(key)):
                    version = self._registry.version(key.tenant, key.model, key.number)
                    if version is not None:
                        sweep(work, version)
            cursor, left = due.cursor, left - limit
            if cursor is None:
                return None
        return cursor

    def _sweep_moving(self, work: _Work, version: Version) -> None:
        if not version.moving:
            return
        now = self._clock.time()
        awaited = version.state is State.AWAITING_UPLOAD
        if not awaited:
            work.stuck(now - seconds_of(version.updated_at))
        if not is_due(version, now, self._rules):
            return
        upload = self._objects.upload(version.name)
        stored = not awaited and self._objects.stored(version.name)
        match next_step(version, None if upload is None else upload.modified_at, now=now, stored=stored, rules=self._rules):
            case Step.RESUME:
                self._resume(version, upload)
                work.count(resumed=1)
            case Step.STORE:
                after = version.move(State.STORED, self._moment())
                self._registry.write(Change(version, after))
                self._resume(after, upload)
                work.count(resumed=1)
            case Step.EXPIRE:
                if self._expire(version):
                    work.count(expired=1)
            case Step.REJECT:
                self._end(version, State.REJECTED, _ARTIFACT_LOST)
                work.count(rejected=1)

    def _resume(self, version: Version, upload: Found | None) -> None:
        # The record first: a write behind the call would get in the way of the admission that the call starts.
        self._registry.write(Change(version, version.resume(self._moment())))
        self._admissions.resume(UploadedObject(version.name, "" if upload is None else upload.etag))

    def _expire(self, version: Version) -> bool:
        """Give an upload up; ``False`` if somebody completed it in the last moment."""
        if version.multipart is not None:
            self._objects.abort(version.name, version.multipart.upload_id)
            # Nobody can complete it from here on, but somebody may have done so just before.
            if self._objects.upload(version.name) is not None:
                return False
        self._end(version, State.EXPIRED, _UPLOAD_LOST if version.state is State.INSPECTING else None)
        return True

    def _end(self, version: Version, state: State, reason: Reason | None) -> None:
        after = version.move(state, self._moment(), reasons=() if reason is None else (reason,))
        self._registry.write(Change(version, after))

    def _sweep_retired(self, work: _Work, version: Version) -> None:
        now = self._moment()
        if version.state is State.RETIRED and version.purge_after is not None and version.purge_after <= now:
            if version.multipart is not None:
                self._objects.abort(version.name, version.multipart.upload_id)
            self._purge.purge(version, now)
            work.count(purged=1)

    def _area(self, work: _Work, area: Area, cursor: str | None) -> str | None:
        """Look at the objects of ``area`` from ``cursor`` on; returns where the next tick begins."""
        left = self._rules.objects
        while left > 0 and work.goes_on():
            limit = min(left, self._rules.page)
            listed: Listed | None = None
            with work.trying(f"objects of {area}"):
                listed = self._objects.listed(area, limit=limit, after=cursor)
            if listed is None:
                return cursor
            with work.trying(f"objects of {area} behind {cursor}"):
                self._delete_orphans(work, area, listed.objects)
            cursor, left = listed.cursor, left - limit
            if cursor is None:
                return None
        return cursor

    def _delete_orphans(self, work: _Work, area: Area, objects: Sequence[Found]) -> None:
        work.count(examined=len(objects))
        newest = self._clock.time() - self._rules.orphan_seconds
        old = [found for found in objects if found.modified_at <= newest]
        named = {found.name: found for found in old if found.name is not None}
        work.count(foreign=len(old) - len(named))
        # Listed first, read second: a record is written before its object comes.
        versions = self._index.versions(list(named)) if named else {}
        orphans: list[str] = []
        unrecorded: list[ArtifactName] = []
        for name, found in named.items():
            model = partial(self._registry.model, name.tenant, name.model)
            match orphan(area, name, versions.get(name), model):
                case Orphan.UNRECORDED if area is Area.MODELS:
                    unrecorded.append(name)
                case Orphan.ENDED | Orphan.UNRECORDED:
                    orphans.append(found.key)
                case Orphan.UNEXPLAINED:
                    work.count(unexplained=1)
        for name in unrecorded:
            # Versions' records are never deleted: somebody lost this one, and may be about to restore it.
            if self._index.unrecorded_seconds(name, self._clock.time()) >= self._rules.unrecorded_seconds:
                orphans.append(named[name].key)
            else:
                work.count(unexplained=1)
        failed = self._objects.delete(orphans) if orphans else {}
        for key, error in failed.items():
            work.fail(key, error)
        deleted = "deleted_uploads" if area is Area.INCOMING else "deleted_artifacts"
        work.count(**{deleted: len(orphans) - len(failed)})


class _Work:
    """What a tick has done so far, and whether it may go on."""

    def __init__(self, clock: Clock, deadline: float) -> None:
        self._clock = clock
        self._deadline = deadline
        self.done = Swept()

    def goes_on(self) -> bool:
        return self._clock.monotonic() < self._deadline

    def count(self, **counts: int) -> None:
        self.done = replace(self.done, **{name: getattr(self.done, name) + count for name, count in counts.items()})

    def stuck(self, seconds: float) -> None:
        self.done = replace(self.done, oldest_stuck_seconds=max(self.done.oldest_stuck_seconds, round(seconds, 3)))

    def fail(self, what: str, error: str) -> None:
        self.count(failed=1)
        if len(self.done.failures) < _KEPT_FAILURES:
            self.done = replace(self.done, failures=(*self.done.failures, Failure(what, error)))

    def trying(self, what: str) -> _Trying:
        """What lets no error out of its block."""
        return _Trying(self, what)


class _Trying:
    """Lets no error out: a conflict is somebody else's progress, everything else a failure of this one thing."""

    def __init__(self, work: _Work, what: str) -> None:
        self._work = work
        self._what = what

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        """Count what was raised; ends of the process pass."""
        if isinstance(error, WriteConflictError):
            self._work.count(conflicts=1)
        elif isinstance(error, Exception):
            self._work.fail(self._what, f"{type(error).__name__}: {error}")
        else:
            return False
        return True
