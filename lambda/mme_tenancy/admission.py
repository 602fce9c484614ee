"""Admission: from an uploaded object to an active version, in steps that can be resumed at each state.

The records are read once, and every step moves the version's on if nobody else did meanwhile; moves that follow one another are one
write. So the same event may come twice, late or after a crash at any point: it goes on where the record stands, and after the end it
does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mme_facts.admission import FIRST_LOAD_LIMIT_SECONDS, INSPECTION_LIMIT_SHARE, first_load_seconds, load_takes_too_long
from mme_facts.environment import Pool
from mme_tenancy.activation import admit_to_route
from mme_tenancy.archive import ArchiveLimits, Inspection, inspect_artifact
from mme_tenancy.artifacts import ArtifactStore, UploadedObject, UploadGoneError
from mme_tenancy.clock import Clock, timestamp
from mme_tenancy.errors import WriteConflictError
from mme_tenancy.findings import RULES
from mme_tenancy.invocation import Invoker, Outcome
from mme_tenancy.registry import Change, Registry, model_key, tenant_key, version_key
from mme_tenancy.retries import Failure
from mme_tenancy.routes import Model, Target
from mme_tenancy.tenants import Tenant, Tier
from mme_tenancy.versions import Reason, State, Version
from mme_tenancy.warming import MODEL_IS_TO_BLAME, sample_request

__all__ = ["Admission", "AdmissionDelayedError", "Admitted"]

_MAX_READS = 24
"""One read leads to the end; the rest is for others that write the same records at the same time."""
_ENDPOINT_REST_SECONDS = 15.0
"""Between two first invocations of an endpoint that does not take any at the moment."""
_SILENT = frozenset({Failure.TIMED_OUT, Failure.CONTAINER_SILENT})
_RESUMES_UNTIL_BLAMED = 3
"""A model that still does not answer in time after the sweep has brought it on so often, hours later, is to blame for it."""
_SAMPLE_FIX = (
    "try the sample payload against the model locally; check content type, features and the versions of the libraries that wrote the model"
)
_SLOW_FIX = "bring a smaller or faster model, or ask for a dedicated placement, which loads a model before it takes requests"


class AdmissionDelayedError(Exception):
    """A step could not be finished now; the same event must come again."""


class _InspectionTooLongError(Exception):
    """There is no time left to inspect the rest."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """What an event led to.

    Attributes:
        version: the record now; ``None`` if the object belongs to no registered version.
        steps: the states it went through on the way.
        ignored: why nothing was done, if nothing was.
    """

    version: Version | None
    steps: tuple[State, ...]
    ignored: str | None = None


@dataclass(slots=True)
class _Work:
    """One event, and the records as they were read for it.

    Attributes:
        upload: the object that was created.
        deadline: when the first invocation must have been answered, on the monotonic clock.
        tenant: the tenant's record.
        model: the model's record.
        steps: the states that the version went through so far.
        begun: whether an earlier event had begun the inspection: then a copy may be there already.
        copied: whether this one has made a copy.
    """

    upload: UploadedObject
    deadline: float
    tenant: Tenant | None
    model: Model | None
    steps: list[State] = field(default_factory=list)
    begun: bool = False
    copied: bool = False


class Admission:
    """Admits uploads.

    Args:
        registry: the records.
        artifacts: uploads and admitted artifacts.
        invoker: the shared invocation path.
        pools: where versions are served.
        clock: time.
        limits: how large an archive may be.
    """

    def __init__(
        self,
        registry: Registry,
        artifacts: ArtifactStore,
        invoker: Invoker,
        pools: Sequence[Pool],
        clock: Clock,
        limits: ArchiveLimits | None = None,
    ) -> None:
        self._registry = registry
        self._artifacts = artifacts
        self._invoker = invoker
        self._pools = {pool.name: pool for pool in pools}
        self._clock = clock
        self._limits = limits or ArchiveLimits()
        self._steps: Mapping[State, Callable[[_Work, Version], Version]] = {
            State.AWAITING_UPLOAD: self._begin,
            State.INSPECTING: self._inspect,
            State.STORED: self._begin_warming,
            State.WARMING: self._warm,
            State.READY: self._finish,
            State.REJECTED: self._discard,
        }

    def admit(self, upload: UploadedObject, *, deadline: float) -> Admitted:
        """Bring the version of ``upload`` as far as it goes, from whatever state it is in.

        Args:
            upload: the object that was created.
            deadline: when the first invocation must have been answered, on the monotonic clock.

        Raises:
            AdmissionDelayedError: the endpoint cannot answer now, or others keep writing the same records.
        """
        name = upload.name
        steps: list[State] = []
        copied = False
        for _ in range(_MAX_READS):
            version, model, tenant = self._registry.read(
                version_key(name.tenant, name.model, name.version.number), model_key(name.tenant, name.model), tenant_key(name.tenant)
            )
            if version is None or version.name != name:
                return Admitted(None, (), "no such version is registered")
            if not steps or steps[-1] is not version.state:
                steps.append(version.state)
            work = _Work(upload, deadline, tenant, model, steps, begun=version.state is not State.AWAITING_UPLOAD)
            if copied and version.state is State.REJECTED and not version.moving:
                # The same event, twice at the same time: the other one rejected it, and knew of no copy.
                self._artifacts.discard(name)
            try:
                while version.moving and (step := self._steps.get(version.state)) is not None:
                    version = step(work, version)
            except WriteConflictError:
                copied = copied or work.copied
                continue
            except UploadGoneError:
                return Admitted(version, tuple(steps), "the object is gone or was replaced; the event of the newer one counts")
            return Admitted(version, tuple(steps), "nothing is left to do" if len(steps) == 1 else None)
        raise AdmissionDelayedError(f"version {name.version} of model {name.model!r} kept changing")

    def _begin(self, work: _Work, version: Version) -> Version:
        return self._move(work, version, State.INSPECTING)

    def _inspect(self, work: _Work, version: Version) -> Version:
        started = self._clock.monotonic()
        inspection = self._inspection(work, version)
        inspected = self._clock.monotonic()
        timings = {"inspect_seconds": round(inspected - started, 3)}
        if inspection.findings:
            return self._reject(work, version, inspection.findings, timings, stored=work.begun)
        self._artifacts.admit(work.upload, inspection.size_bytes)
        work.copied = True
        timings["copy_seconds"] = round(self._clock.monotonic() - inspected, 3)
        warnings = (*inspection.warnings, *_slow_load(inspection))
        return self._move(work, version, State.STORED, State.WARMING, timings=timings, warnings=warnings)

    def _inspection(self, work: _Work, version: Version) -> Inspection:
        """Inspect the upload; one that takes longer than there is time would never end, so that is a finding, too."""
        now = self._clock.monotonic()
        seconds = (work.deadline - now) * INSPECTION_LIMIT_SHARE
        try:
            with self._artifacts.read(work.upload) as chunks:
                return inspect_artifact(
                    self._until(now + seconds, chunks),
                    sha256=version.sha256,
                    size_bytes=version.size_bytes,
                    framework=version.framework,
                    allow_code=work.tenant is not None and work.tenant.tier is Tier.TRUSTED,
                    limits=self._limits,
                )
        except _InspectionTooLongError:
            detail = f"the inspection was given up after {seconds:.0f} seconds"
            return Inspection((Reason("inspection-time", detail, RULES["inspection-time"].fix),), (), 0, 0, 0)

    def _until(self, end: float, chunks: Iterator[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            if self._clock.monotonic() > end:
                raise _InspectionTooLongError
            yield chunk

    def _begin_warming(self, work: _Work, version: Version) -> Version:
        return self._move(work, version, State.WARMING)

    def _warm(self, work: _Work, version: Version) -> Version:
        """The first invocation: the model is loaded here, not on a tenant's request."""
        pool = self._pool(version)
        target = Target(pool.endpoint_name, pool.variant_name, str(version.id), version.name.target_model)
        request = sample_request(version, "admission")
        first = started = self._clock.monotonic()
        outcome = self._invoker.invoke(target, request, deadline=work.deadline)
        while not _is_final(outcome) and self._clock.monotonic() + 2 * _ENDPOINT_REST_SECONDS < work.deadline:
            # The endpoint is being created, updated or short of instances: Lambda's own two retries would come too soon.
            self._clock.sleep(_ENDPOINT_REST_SECONDS)
            started = self._clock.monotonic()
            outcome = self._invoker.invoke(target, request, deadline=work.deadline)
        took = self._clock.monotonic() - started
        timings = {"first_invocation_seconds": round(took, 3)}
        if started > first:
            timings["endpoint_wait_seconds"] = round(started - first, 3)
        if outcome.reply is None:
            return self._reject(work, version, [_sample_reason(version, outcome)], timings, stored=True)
        warnings = () if any(warning.rule == "load-time" for warning in version.warnings) else _measured_load(took)
        return self._finish(work, version, timings=timings, warnings=warnings, memory_bytes=outcome.reply.memory_bytes)

    def _finish(
        self,
        work: _Work,
        version: Version,
        *,
        timings: Mapping[str, float] | None = None,
        warnings: Sequence[Reason] = (),
        memory_bytes: int | None = None,
    ) -> Version:
        """The version is ready: the decision about the route, in the same write."""
        pool = self._pool(version)
        for _ in range(_MAX_READS):
            now = timestamp(self._clock.time())
            measured = replace(version, warnings=(*version.warnings, *warnings), memory_bytes=memory_bytes or version.memory_bytes)
            ready = measured if version.state is State.READY else measured.move(State.READY, now, timings=timings)
            model = work.model
            assert model is not None, "a version is written together with its model"
            current = self._registry.version(version.tenant, version.model, model.route.number) if model.route else None
            changes = [
                Change(version, replace(change.after, rev=version.rev + 1)) if change.before is ready else change
                for change in admit_to_route(model, ready, current, pool, now)
            ]
            try:
                self._registry.write(*changes)
            except WriteConflictError:
                # Mostly another version of the model was registered or activated: the answer to the sample still holds.
                fresh, work.model = self._registry.read(
                    version_key(version.tenant, version.model, version.number), model_key(version.tenant, version.model)
                )
                if fresh != version:
                    raise
                continue
            after = next(change.after for change in changes if change.before is version)
            assert isinstance(after, Version)
            for state in (State.READY, after.state):
                if work.steps[-1] is not state:
                    work.steps.append(state)
            return after
        raise WriteConflictError(f"the route of model {version.model!r} kept changing", retry_after_seconds=1)

    def _reject(self, work: _Work, version: Version, reasons: Sequence[Reason], timings: Mapping[str, float], *, stored: bool) -> Version:
        """End the version; if its artifact may be stored, it stays under way until that is gone."""
        return self._move(work, version, State.REJECTED, reasons=reasons, timings=timings, moving=stored)

    def _discard(self, work: _Work, version: Version) -> Version:
        """Remove what is stored of a rejected version: no route can name it any more, and the record says so already."""
        self._artifacts.discard(work.upload.name)
        after = version.settle(timestamp(self._clock.time()))
        self._registry.write(Change(version, after))
        return after

    def _move(
        self,
        work: _Work,
        version: Version,
        *states: State,
        reasons: Sequence[Reason] = (),
        warnings: Sequence[Reason] = (),
        timings: Mapping[str, float] | None = None,
        moving: bool = False,
    ) -> Version:
        """Move through ``states`` in one write."""
        now = timestamp(self._clock.time())
        after = version
        for state in states:
            after = after.move(state, now)
        after = replace(
            after,
            reasons=(*version.reasons, *reasons),
            warnings=tuple(warnings) or version.warnings,
            timings={**version.timings, **(timings or {})},
            moving=moving or after.moving,
            rev=version.rev + 1,
        )
        self._registry.write(Change(version, after))
        work.steps.extend(states)
        return after

    def _pool(self, version: Version) -> Pool:
        pool = self._pools.get(version.pool)
        if pool is None:
            raise AdmissionDelayedError(
                f"version {version.id} belongs to pool {version.pool!r}, but only {sorted(self._pools)} are configured"
            )
        return pool


def _is_final(outcome: Outcome) -> bool:
    """Whether the model has answered, or failed by its own fault."""
    return outcome.reply is not None or outcome.failure in MODEL_IS_TO_BLAME


def _sample_reason(version: Version, outcome: Outcome) -> Reason:
    if outcome.failure in _SILENT and version.resumes >= _RESUMES_UNTIL_BLAMED:
        detail = f"the model did not answer the sample payload within {FIRST_LOAD_LIMIT_SECONDS} seconds, again and again for hours"
        return Reason("sample-invocation", detail, _SLOW_FIX)
    blame = MODEL_IS_TO_BLAME.get(outcome.failure) if outcome.failure else None
    if blame is None:
        raise AdmissionDelayedError(f"the first invocation of version {version.id} was not answered: {outcome.fault}")
    return Reason("sample-invocation", blame, _SAMPLE_FIX)


def _slow_load(inspection: Inspection) -> tuple[Reason, ...]:
    seconds = first_load_seconds(packed_bytes=inspection.size_bytes, unpacked_bytes=inspection.unpacked_bytes)
    return _load_warning(f"the first load is estimated to take {seconds:.0f} seconds or more", seconds)


def _measured_load(seconds: float) -> tuple[Reason, ...]:
    return _load_warning(f"the first load took {seconds:.0f} seconds", seconds)


def _load_warning(what: str, seconds: float) -> tuple[Reason, ...]:
    if not load_takes_too_long(seconds):
        return ()
    detail = (
        f"{what}, but a multi-model endpoint answers within {FIRST_LOAD_LIMIT_SECONDS} seconds: after each eviction, requests would fail"
    )
    return (Reason("load-time", detail, RULES["load-time"].fix),)
