"""Admission: from an uploaded object to an active version, in steps that can be resumed at each state.

Every step reads the record, does its work, and moves the record on if nobody else did meanwhile. So the same event may
come twice, late or after a crash at any point: it goes on where the record stands, and after the end it does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mme_facts.environment import Pool
from mme_tenancy.activation import admit_to_route
from mme_tenancy.archive import ArchiveLimits, inspect_artifact
from mme_tenancy.artifacts import ArtifactStore, UploadedObject, UploadGoneError
from mme_tenancy.clock import Clock, timestamp
from mme_tenancy.errors import WriteConflictError
from mme_tenancy.invocation import InvocationRequest, Invoker, Outcome
from mme_tenancy.registry import Change, Registry
from mme_tenancy.retries import Failure
from mme_tenancy.routes import Target
from mme_tenancy.versions import Reason, State, Version

__all__ = ["Admission", "AdmissionDelayedError", "Admitted"]

_MAX_STEPS = 24
"""Six steps lead to the end; the rest is for others that write the same records at the same time."""
_ENDPOINT_REST_SECONDS = 15.0
"""Between two first invocations of an endpoint that does not take any at the moment."""
_MODEL_IS_TO_BLAME: Mapping[Failure, str] = {
    Failure.INPUT_REJECTED: "the model rejected the sample payload",
    Failure.MODEL_FAILED: "the model failed on the sample payload",
    Failure.WORKER_DIED: "the model could not be loaded, or failed on the sample payload, twice",
}
"""Failures of the first invocation that trying again will not change."""


class AdmissionDelayedError(Exception):
    """A step could not be finished now; the same event must come again."""


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
        self._steps: Mapping[State, Callable[[Version, UploadedObject, float], bool]] = {
            State.AWAITING_UPLOAD: self._begin,
            State.INSPECTING: self._inspect,
            State.STORED: self._begin_warming,
            State.WARMING: self._warm,
            State.READY: self._route,
        }

    def admit(self, upload: UploadedObject, *, deadline: float) -> Admitted:
        """Bring the version of ``upload`` as far as it goes.

        Args:
            upload: the object that was created.
            deadline: when the first invocation must have been answered, on the monotonic clock.

        Raises:
            AdmissionDelayedError: the endpoint cannot answer now, or others keep writing the same records.
        """
        name = upload.name
        seen: list[State] = []
        for _ in range(_MAX_STEPS):
            version = self._registry.version(name.tenant, name.model, name.version.number)
            if version is None or version.name != name:
                return Admitted(None, (), "no such version is registered")
            if not seen or seen[-1] is not version.state:
                seen.append(version.state)
            step = self._steps.get(version.state)
            if step is None or not version.moving:
                return Admitted(version, tuple(seen), "nothing is left to do" if len(seen) == 1 else None)
            try:
                if not step(version, upload, deadline):
                    return Admitted(version, tuple(seen), "the object is gone or was replaced; the event of the newer one counts")
            except WriteConflictError:
                continue
        raise AdmissionDelayedError(f"version {name.version} of model {name.model!r} kept changing")

    def _begin(self, version: Version, _upload: UploadedObject, _deadline: float) -> bool:
        return self._move(version, State.INSPECTING)

    def _inspect(self, version: Version, upload: UploadedObject, _deadline: float) -> bool:
        started = self._clock.monotonic()
        try:
            with self._artifacts.read(upload) as chunks:
                inspection = inspect_artifact(
                    chunks, sha256=version.sha256, size_bytes=version.size_bytes, framework=version.framework, limits=self._limits
                )
            inspected = self._clock.monotonic()
            timings = {"inspect_seconds": round(inspected - started, 3)}
            if inspection.findings:
                return self._move(version, State.REJECTED, reasons=inspection.findings, timings=timings)
            self._artifacts.admit(upload, inspection.size_bytes)
        except UploadGoneError:
            return False
        return self._move(version, State.STORED, timings={**timings, "copy_seconds": round(self._clock.monotonic() - inspected, 3)})

    def _begin_warming(self, version: Version, _upload: UploadedObject, _deadline: float) -> bool:
        return self._move(version, State.WARMING)

    def _warm(self, version: Version, _upload: UploadedObject, deadline: float) -> bool:
        """The first invocation: the model is loaded here, not on a tenant's request."""
        pool = self._pool(version)
        target = Target(pool.endpoint_name, pool.variant_name, str(version.id), version.name.target_model)
        sample = version.sample
        started = self._clock.monotonic()
        request = InvocationRequest(sample.body, sample.content_type, sample.accept)
        outcome = self._invoker.invoke(target, request, deadline=deadline)
        while not _is_final(outcome) and self._clock.monotonic() + 2 * _ENDPOINT_REST_SECONDS < deadline:
            # The endpoint is being created, updated or short of instances: Lambda's own two retries would come too soon.
            self._clock.sleep(_ENDPOINT_REST_SECONDS)
            outcome = self._invoker.invoke(target, request, deadline=deadline)
        timings = {"first_invocation_seconds": round(self._clock.monotonic() - started, 3)}
        if outcome.reply is not None:
            return self._move(version, State.READY, timings=timings)
        return self._move(version, State.REJECTED, reasons=[_sample_reason(version, outcome)], timings=timings)

    def _route(self, version: Version, _upload: UploadedObject, _deadline: float) -> bool:
        pool = self._pool(version)
        model = self._registry.model(version.tenant, version.model)
        assert model is not None, "a version is written together with its model"
        current = self._registry.version(version.tenant, version.model, model.route.number) if model.route else None
        self._registry.write(*admit_to_route(model, version, current, pool, timestamp(self._clock.time())))
        return True

    def _move(self, version: Version, to: State, *, reasons: Sequence[Reason] = (), timings: Mapping[str, float] | None = None) -> bool:
        after = version.move(to, timestamp(self._clock.time()), reasons=reasons, timings=timings)
        self._registry.write(Change(version, after))
        return True

    def _pool(self, version: Version) -> Pool:
        pool = self._pools.get(version.pool)
        if pool is None:
            raise AdmissionDelayedError(
                f"version {version.id} belongs to pool {version.pool!r}, but only {sorted(self._pools)} are configured"
            )
        return pool


def _is_final(outcome: Outcome) -> bool:
    """Whether the model has answered, or failed by its own fault."""
    return outcome.reply is not None or outcome.failure in _MODEL_IS_TO_BLAME


def _sample_reason(version: Version, outcome: Outcome) -> Reason:
    blame = _MODEL_IS_TO_BLAME.get(outcome.failure) if outcome.failure else None
    if blame is None:
        raise AdmissionDelayedError(f"the first invocation of version {version.id} was not answered: {outcome.fault}")
    fix = "try the sample payload against the model locally; check content type, features and the XGBoost version that wrote the model"
    return Reason("sample-invocation", blame, fix)
