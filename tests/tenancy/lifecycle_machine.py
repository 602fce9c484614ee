"""The whole lifecycle of versions under faults: the domain's own code over fakes, where every AWS call may fail in every way.

A call can fail before it does anything, fail after it did everything, be sent twice by the client, or time out and take effect later. The
process can end before or after any call. Events come twice, late, in another order, or never. In the middle of any call others act.
Whatever happens, the invariants hold after every step, and when the faults end, sweeps alone bring everything to its end.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Callable, Iterable
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache, partial
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from mme_facts.environment import Pool
from mme_facts.grammar import ArtifactName, VersionId
from mme_tenancy import uploads
from mme_tenancy.activation import Activator
from mme_tenancy.admission import Admission, AdmissionDelayedError
from mme_tenancy.artifacts import UploadedObject
from mme_tenancy.clock import timestamp
from mme_tenancy.errors import ModelNotFoundError, TenancyError
from mme_tenancy.invocation import Invoker, ModelReply
from mme_tenancy.purge import ARTIFACT_STATES
from mme_tenancy.registration import UPLOAD_SECONDS, Registrar, Registration
from mme_tenancy.registry import Change, Record
from mme_tenancy.retirement import Retirer
from mme_tenancy.retries import RuntimeFault
from mme_tenancy.routes import Model
from mme_tenancy.sweep import Sweeper, SweepRules
from mme_tenancy.tenant_settings import put_tenant
from mme_tenancy.tenants import Tenant, Usage
from mme_tenancy.testing import FakeClock, MemoryArtifacts, MemoryRegistry, MemorySigner, booster
from mme_tenancy.testing_sweep import MemorySweepIndex, MemorySweepObjects
from mme_tenancy.uploads import Completion
from mme_tenancy.usage import usage_of
from mme_tenancy.versions import MOVES, Sample, State, Version

TENANTS, MODELS, NOTES = ("acme", "globex"), ("iris",), ("one", "two", "three", "bad")
IN_PARTS, SMALL_BYTES = "three", 280
"""The artifact that is so large, here, that it is uploaded in parts."""
HOUR, DAY = 3600.0, 86_400.0
FINAL = frozenset({State.READY, State.ACTIVE, State.REJECTED, State.EXPIRED, State.PURGED})
POOL = Pool("shared", "xgboost", "endpoint-a", "AllTraffic")
SAMPLE = Sample("text/csv", b"1,2", "text/csv")


Plan = list[tuple[int, "How", int]]


class Killed(BaseException):
    """The process ended here."""


class How(StrEnum):
    """How a call goes wrong."""

    BEFORE = "before"
    AFTER = "after"
    TWICE = "twice"
    LATE = "late"
    KILLED_BEFORE = "killed before"
    KILLED_AFTER = "killed after"
    MEANWHILE = "meanwhile"


@dataclass
class Faults:
    """What will go wrong next.

    Attributes:
        planned: how many calls pass before each fault, and which.
        late: calls that timed out and take effect some time.
        others: who may act in the middle of a call.
    """

    planned: list[tuple[int, How, int]] = field(default_factory=list)
    late: list[Callable[[], object]] = field(default_factory=list)
    others: list[Callable[[], object]] = field(default_factory=list)
    calls: int = 0

    def next(self, name: str) -> tuple[How, int] | None:
        """The fault of this call, if it has one. Others act between a read and the write that follows from it."""
        self.calls += 1
        if not self.planned:
            return None
        skip, how, number = self.planned[0]
        if skip > 0:
            self.planned[0] = (skip - 1, how, number)
            return None
        if how is How.MEANWHILE and name != "write":
            return None
        self.planned.pop(0)
        return how, number

    @contextmanager
    def none(self):
        planned, self.planned = self.planned, []
        try:
            yield
        finally:
            self.planned = planned


class Faulty:
    """An adapter whose calls go wrong as planned."""

    READS: ClassVar[frozenset[str]] = frozenset(
        {
            *("read", "tenant", "model", "version", "claim", "models", "versions", "due", "deletions", "cursors"),
            *("upload", "stored", "listed", "parts", "uploaded"),
        }
    )

    def __init__(self, target: object, faults: Faults, error: Callable[[str], Exception] = ConnectionError) -> None:
        self._target, self._faults, self._error = target, faults, error

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._target, name)
        if not callable(call):
            return call

        def faulty(*args: object, **kwargs: object) -> object:
            def perform() -> object:
                return call(*args, **kwargs)

            fault = self._faults.next(name)
            return perform() if fault is None else self._go_wrong(name, perform, *fault)

        return faulty

    def _go_wrong(self, name: str, perform: Callable[[], object], how: How, number: int) -> object:
        match how:
            case How.BEFORE:
                raise self._error(f"{name}: {how}")
            case How.KILLED_BEFORE:
                raise Killed(name)
            case How.MEANWHILE:
                with self._faults.none(), suppress(Exception):
                    self._faults.others[number % len(self._faults.others)]()
                return perform()
            case How.LATE:
                if name not in self.READS:
                    self._faults.late.append(perform)
                raise self._error(f"{name}: timed out")
        done = perform()
        if how is How.TWICE:
            return perform() if name not in self.READS else done
        if how is How.KILLED_AFTER:
            raise Killed(name)
        raise self._error(f"{name}: {how}")


class Runtime:
    """SageMaker's runtime: it loads what lies below the models prefix and answers with the digest of it."""

    def __init__(self, artifacts: MemoryArtifacts) -> None:
        self._artifacts = artifacts

    def invoke(self, target: Any, _request: object, _timeout_seconds: float) -> ModelReply:
        body = self._artifacts.admitted.get(f"models/{target.target_model}")
        if body is None:
            raise RuntimeFault("ValidationError", 400, None, "Could not find model data")
        if body in BAD:
            raise RuntimeFault("ModelError", 424, 500)
        return ModelReply(hashlib.sha256(body).hexdigest().encode(), "text/plain")


@cache
def artifact_of(tenant: str, model: str, note: str) -> bytes:
    """A tenant's artifact: no two tenants or models have the same."""
    long = "".join(hashlib.sha256(f"{tenant} {number}".encode()).hexdigest() for number in range(4)) if note == IN_PARTS else ""
    content, buffer = booster(f"{tenant} {model} {note} {long}"), io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        header = tarfile.TarInfo("xgboost-model")
        header.size = len(content)
        archive.addfile(header, io.BytesIO(content))
    return buffer.getvalue()


BAD = frozenset(artifact_of(tenant, model, "bad") for tenant in TENANTS for model in MODELS)


class Events:
    """The sweep's way to call admission: one more event in the queue."""

    def __init__(self, queue: list[UploadedObject]) -> None:
        self._queue = queue

    def resume(self, upload: UploadedObject) -> None:
        self._queue.append(upload)


class Uploads(MemorySigner):
    """The bucket's side of uploads: what is completed has landed."""

    def __init__(self, clock: FakeClock, artifacts: MemoryArtifacts, landed: Callable[[UploadedObject], None]) -> None:
        super().__init__(clock, artifacts)
        self._landed = landed

    def complete(self, name: ArtifactName, upload_id: str, parts: Any) -> UploadedObject:
        upload = super().complete(name, upload_id, parts)
        self._landed(upload)
        return upload


class Objects(MemorySweepObjects):
    """The bucket as the sweep sees it: it ends uploads for good."""

    def __init__(self, artifacts: MemoryArtifacts, signer: Callable[[], MemorySigner]) -> None:
        super().__init__(artifacts)
        self._signer = signer

    def abort(self, name: ArtifactName, upload_id: str) -> None:
        super().abort(name, upload_id)
        self._signer().abort(name, upload_id)


class Machine(RuleBasedStateMachine):
    """Tenants, events, time and the sweep, in any order. Class attributes are the parts that a mutant replaces."""

    registry_class: ClassVar[type[MemoryRegistry]] = MemoryRegistry
    admission_class: ClassVar[type[Admission]] = Admission
    sweeper_class: ClassVar[type[Sweeper]] = Sweeper
    artifacts_class: ClassVar[type[MemoryArtifacts]] = MemoryArtifacts

    @initialize()
    def begin(self) -> None:
        self.clock, self.faults = FakeClock(), Faults()
        self.registry, self.artifacts = self.registry_class(), self.artifacts_class()
        self.objects = Objects(self.artifacts, lambda: self.signer)
        self.signer, self.told = Uploads(self.clock, self.artifacts, self._landed), True
        self.part_bytes, uploads.PART_BYTES = uploads.PART_BYTES, SMALL_BYTES
        self.index = MemorySweepIndex(self.registry)
        self.events: list[UploadedObject] = []
        self.signed: dict[ArtifactName, float] = {}
        self.bodies: dict[ArtifactName, bytes] = {}
        self.expired_by_s3: set[ArtifactName] = set()
        self.seen: dict[tuple[str, str, int], Version] = {}
        self.faults.others = [
            lambda: self._deliver(0, again=False, faulty=False),
            lambda: self._deliver(-1, again=True, faulty=False),
            lambda: self._complete("acme", "iris", 0, faulty=False),
            lambda: self._tick(faulty=False),
            *(partial(self._activate, tenant, "iris", number, faulty=False) for tenant in TENANTS for number in (0, 1)),
            *(partial(self._activate, tenant, "iris", number, 30, faulty=False) for tenant in TENANTS for number in (0, 1)),
            lambda: self._retire("acme", "iris", 0, faulty=False),
            lambda: self._retire("acme", "iris", 1, force=True, faulty=False),
            lambda: self._delete("acme", "iris", faulty=False),
            lambda: self._delete_tenant("acme", faulty=False),
            lambda: self._put_tenant("acme", faulty=False),
            lambda: self._register("acme", "iris", "one", faulty=False),
        ]
        now = self._now()
        for tenant in TENANTS:
            self.registry.write(Change(None, Tenant(tenant, now, now)))

    # --- the parts, whole or faulty

    def _part(self, target: object, *, faulty: bool, error: Callable[[str], Exception] = ConnectionError) -> Any:
        return Faulty(target, self.faults, error) if faulty else target

    def _registrar(self, *, faulty: bool) -> Registrar:
        registry, signer = self._part(self.registry, faulty=faulty), self._part(self.signer, faulty=faulty)
        return Registrar(registry, signer, [POOL], self.clock, lambda: 0.5)

    def _admission(self, *, faulty: bool) -> Admission:
        runtime = self._part(Runtime(self.artifacts), faulty=faulty, error=lambda _what: RuntimeFault("ReadTimeout"))
        invoker = Invoker(runtime, self.clock, lambda: 0.5)
        registry, artifacts = self._part(self.registry, faulty=faulty), self._part(self.artifacts, faulty=faulty)
        return self.admission_class(registry, artifacts, invoker, [POOL], self.clock)

    def _sweeper(self, *, faulty: bool) -> Sweeper:
        parts = (self.registry, self.index, self.objects, Events(self.events))
        registry, index, objects, admissions = (self._part(part, faulty=faulty) for part in parts)
        return self.sweeper_class(registry, index, objects, admissions, self.clock, SweepRules(retired_seconds=DAY))

    # --- what can happen

    def _register(self, tenant: str, model: str, note: str, *, faulty: bool = True) -> None:
        body = artifact_of(tenant, model, note)
        registration = Registration(hashlib.sha256(body).hexdigest(), len(body), "xgboost", SAMPLE)
        registered = self._registrar(faulty=faulty).register(tenant, model, registration)
        self.signed[registered.version.name] = self.clock.now

    def _complete(self, tenant: str, model: str, number: int, *, faulty: bool = True) -> None:
        parts = (self.registry, self.signer, Events(self.events))
        registry, signer, admissions = (self._part(part, faulty=faulty) for part in parts)
        Completion(registry, signer, admissions, self.clock).complete(tenant, model, self._some_version(tenant, model, number))

    def _landed(self, upload: UploadedObject) -> None:
        key = upload.name.incoming_key
        self.objects.modified[key], self.bodies[upload.name] = self.clock.now, self.artifacts.incoming[key]
        if self.told:
            self.events.append(upload)

    def _deliver(self, number: int, *, again: bool, faulty: bool = True) -> None:
        """Lambda runs admission for an event; one that fails is delivered again some time, or not."""
        if not self.events:
            return
        upload = self.events[number % len(self.events)]
        if not again:
            self.events.remove(upload)
        self._admission(faulty=faulty).admit(upload, deadline=self.clock.monotonic() + 60)

    def _tick(self, *, faulty: bool = True) -> None:
        self._sweeper(faulty=faulty).tick(deadline=self.clock.monotonic() + 1e9)

    def _some_version(self, tenant: str, model: str, number: int) -> VersionId:
        record = self.registry.model(tenant, model)
        version = record and self.registry.version(tenant, model, 1 + number % record.last_version)
        if version is None:
            raise ModelNotFoundError(tenant, model)
        return version.id

    def _activate(self, tenant: str, model: str, number: int, percent: float = 100, *, faulty: bool = True) -> None:
        activator = Activator(self._part(self.registry, faulty=faulty), [POOL], self.clock, lambda: 0.5)
        activator.activate(tenant, model, self._some_version(tenant, model, number), percent=percent)

    def _retirer(self, *, faulty: bool) -> Retirer:
        # So small a budget that deletions need several calls.
        return Retirer(self._part(self.registry, faulty=faulty), self.clock, lambda: 0.5, grace_seconds=DAY, budget=2)

    def _retire(self, tenant: str, model: str, number: int, *, force: bool = False, faulty: bool = True) -> None:
        self._retirer(faulty=faulty).retire_version(tenant, model, self._some_version(tenant, model, number), force=force)

    def _delete(self, tenant: str, model: str, *, faulty: bool = True) -> None:
        self._retirer(faulty=faulty).retire_model(tenant, model)

    def _delete_tenant(self, tenant: str, *, faulty: bool = True) -> None:
        self._retirer(faulty=faulty).retire_tenant(tenant)

    def _put_tenant(self, tenant: str, *, faulty: bool = True) -> None:
        put_tenant(self._part(self.registry, faulty=faulty), tenant, {}, clock=self.clock, random=lambda: 0.5)

    def _trying(self, what: Callable[[], object], plan: Iterable[tuple[int, How, int]] = ()) -> None:
        """Run something that goes wrong as planned. Its caller sees the error, if there is one, and repairs nothing because of it."""
        self.faults.planned += plan
        with suppress(ConnectionError, RuntimeFault, TenancyError, AdmissionDelayedError, Killed):
            what()

    plans = st.lists(st.tuples(st.integers(0, 5), st.sampled_from(How), st.integers(0, 8)), max_size=4)
    tenant_ids, model_ids, numbers = st.sampled_from(TENANTS), st.sampled_from(MODELS), st.integers(0, 5)

    @rule(tenant=tenant_ids, model=model_ids, note=st.sampled_from(NOTES), plan=plans)
    def registers(self, tenant: str, model: str, note: str, plan: Plan) -> None:
        self._trying(lambda: self._register(tenant, model, note), plan)

    @rule(number=st.integers(0, 50), right=st.sampled_from([True, True, True, False]), told=st.sampled_from([True, True, False]))
    def uploads(self, number: int, right: bool, told: bool) -> None:
        """An upload lands, as long as its address is valid; S3 tells it, or the event is lost."""
        valid = [
            name
            for name, at in self.signed.items()
            if self.clock.now - at <= UPLOAD_SECONDS and name.incoming_key not in self.artifacts.incoming
        ]
        if not valid:
            return
        name = sorted(valid, key=str)[number % len(valid)]
        body = next(
            artifact
            for note in NOTES
            if hashlib.sha256(artifact := artifact_of(name.tenant, name.model, note)).hexdigest().startswith(name.version.digest)
        )
        body, self.told = body if right else bytes(reversed(body)), told
        version = self.registry.version(name.tenant, name.model, name.version.number)
        if version is None or version.multipart is None:
            self._landed(self.artifacts.put(name, body))
        elif version.multipart.upload_id in self.signer.multiparts:
            self.signer.put_part(version.multipart.upload_id, 1, body)

    @rule(tenant=tenant_ids, model=model_ids, number=numbers, told=st.sampled_from([True, True, False]), plan=plans)
    def completes(self, tenant: str, model: str, number: int, told: bool, plan: Plan) -> None:
        self.told = told
        self._trying(lambda: self._complete(tenant, model, number), plan)

    @rule(tenant=tenant_ids, model=model_ids, note=st.sampled_from(NOTES), right=st.sampled_from([True, True, True, False]), plan=plans)
    def brings_a_model(self, tenant: str, model: str, note: str, right: bool, plan: Plan) -> None:
        self._trying(lambda: self._register(tenant, model, note), plan)
        self.uploads(0, right, True)
        record = self.registry.model(tenant, model)
        if record is not None:
            self._trying(lambda: self._complete(tenant, model, record.last_version - 1))

    @rule(plan=plans)
    def delivers_all(self, plan: Plan) -> None:
        for _ in range(len(self.events)):
            self._trying(lambda: self._deliver(0, again=False), plan)
            plan = []

    @rule(number=st.integers(0, 50), again=st.booleans(), plan=plans)
    def delivers(self, number: int, again: bool, plan: Plan) -> None:
        self._trying(lambda: self._deliver(number, again=again), plan)

    @rule()
    def loses_an_event(self) -> None:
        if self.events:
            self.events.pop()

    @rule(tenant=tenant_ids, model=model_ids, number=numbers, percent=st.sampled_from([100, 100, 30, 0]), plan=plans)
    def activates(self, tenant: str, model: str, number: int, percent: float, plan: Plan) -> None:
        self._trying(lambda: self._activate(tenant, model, number, percent), plan)

    @rule(tenant=tenant_ids, model=model_ids, number=numbers, force=st.booleans(), plan=plans)
    def retires(self, tenant: str, model: str, number: int, force: bool, plan: Plan) -> None:
        self._trying(lambda: self._retire(tenant, model, number, force=force), plan)

    @rule(tenant=tenant_ids, model=model_ids, sure=st.sampled_from([False, False, False, False, True]), plan=plans)
    def deletes_a_model(self, tenant: str, model: str, sure: bool, plan: Plan) -> None:
        if sure:
            self._trying(lambda: self._delete(tenant, model), plan)

    @rule(tenant=tenant_ids, sure=st.sampled_from([True, False, False, False]), plan=plans)
    def deletes_a_tenant(self, tenant: str, sure: bool, plan: Plan) -> None:
        if sure:
            self._trying(lambda: self._delete_tenant(tenant), plan)

    @rule(tenant=tenant_ids, plan=plans)
    def puts_a_tenant(self, tenant: str, plan: Plan) -> None:
        self._trying(lambda: self._put_tenant(tenant), plan)

    @rule(tenant=tenant_ids)
    def begins_a_tenant_anew(self, tenant: str) -> None:
        record = self.registry.tenant(tenant)
        if record.deleted_at is not None:
            self._trying(lambda: self.registry.write(Change(record, record.begin_anew(self._now()))))

    @rule(plan=plans)
    def sweeps(self, plan: Plan) -> None:
        self._trying(self._tick, plan)

    @rule(minutes=st.sampled_from([1, 5, 25, 70, 600, 1500]))
    def time_passes(self, minutes: int) -> None:
        self.clock.now += minutes * 60

    @rule()
    def s3_expires_uploads(self) -> None:
        """The bucket's lifecycle rule: uploads of more than a day."""
        for key in [key for key in self.artifacts.incoming if self.clock.now - self.objects.modified[key] > DAY]:
            del self.artifacts.incoming[key]
            self.expired_by_s3.add(ArtifactName.parse_incoming(key))

    @rule()
    def late_calls_take_effect(self) -> None:
        late, self.faults.late = self.faults.late, []
        for call in late:
            with suppress(Exception):
                call()

    # --- what always holds

    def _records(self, kind: type) -> list[Any]:
        return [record for record in self.registry.records.values() if isinstance(record, kind)]

    def _holds(self, version: Version) -> bool:
        body = self.artifacts.admitted.get(version.name.artifact_key())
        return body is not None and hashlib.sha256(body).hexdigest() == version.sha256

    @invariant()
    def a_route_points_to_an_active_version_of_its_own_tenant_that_is_stored(self) -> None:
        for model in self._records(Model):
            if model.route is None:
                continue
            for target in _targets(model.route):
                name = ArtifactName.parse(target)
                assert (name.tenant, name.model) == (model.tenant, model.model)
                version = self.registry.version(name.tenant, name.model, name.version.number)
                assert version is not None
                assert version.name == name
                assert version.state is State.ACTIVE, version.state
                assert self._holds(version)
                assert self.bodies[name] == self.artifacts.admitted[name.artifact_key()]
                assert self.bodies[name] not in BAD

    @invariant()
    def an_active_version_is_routed(self) -> None:
        for version in self._records(Version):
            if version.state is State.ACTIVE:
                model = self.registry.model(version.tenant, version.model)
                assert version.name.target_model in _targets(model.route)

    @invariant()
    def a_stored_version_has_its_artifact(self) -> None:
        for version in self._records(Version):
            if version.state in ARTIFACT_STATES - {State.RETIRED}:
                assert self._holds(version), version.state

    @invariant()
    def no_version_is_lost_and_every_move_is_one_of_the_table(self) -> None:
        for name in self.signed:
            answered = self.registry.version(name.tenant, name.model, name.version.number)
            assert answered is not None
            assert answered.name == name
        for key, before in self.seen.items():
            now = self.registry.version(*key)
            assert now is not None
            assert now.rev >= before.rev
            assert now.state in _reachable(before.state), (before.state, now.state)
        self.seen = {(version.tenant, version.model, version.number): version for version in self._records(Version)}
        for tenant, model, number in self.seen:
            assert self.registry.model(tenant, model).last_version >= number

    @invariant()
    def usage_is_what_the_records_add_up_to(self) -> None:
        records: list[Record] = list(self.registry.records.values())
        for tenant in TENANTS:
            assert self.registry.usages.get(tenant, Usage(tenant)) == usage_of(tenant, records)

    # --- and in the end

    def teardown(self) -> None:
        """The faults end. Only what runs by itself goes on: events that are there, sweeps, time."""
        if not hasattr(self, "registry"):
            return
        try:
            self._end()
        finally:
            uploads.PART_BYTES = self.part_bytes

    def _end(self) -> None:
        self.faults.planned = []
        self.late_calls_take_effect()
        for _ in range(16):
            while self.events:
                with suppress(AdmissionDelayedError, ConnectionError):
                    self._deliver(0, again=False, faulty=False)
            self._tick(faulty=False)
            self.clock.now += 7 * HOUR
        for check in (
            self.a_route_points_to_an_active_version_of_its_own_tenant_that_is_stored,
            self.an_active_version_is_routed,
            self.a_stored_version_has_its_artifact,
            self.no_version_is_lost_and_every_move_is_one_of_the_table,
            self.usage_is_what_the_records_add_up_to,
        ):
            check()
        self._everything_has_come_to_its_end()

    def _everything_has_come_to_its_end(self) -> None:
        versions = self._records(Version)
        for version in versions:
            assert not version.moving, version.state
            assert version.state in FINAL, version.state
            body = self.bodies.get(version.name)
            right = body is not None and hashlib.sha256(body).hexdigest() == version.sha256
            if right and version.name not in self.expired_by_s3:
                expected = {State.REJECTED, State.PURGED} if body in BAD else {State.READY, State.ACTIVE, State.PURGED}
                assert version.state in expected, (version.state, version.reasons)
            if not right:
                assert version.state in {State.EXPIRED, State.REJECTED, State.PURGED}, version.state
            assert version.multipart is None or version.multipart.upload_id not in self.signer.multiparts
        kept = {version.name.artifact_key() for version in versions if version.state in ARTIFACT_STATES}
        assert set(self.artifacts.admitted) == kept
        assert self.artifacts.incoming == {}
        for tenant in self._records(Tenant):
            assert tenant.retiring_after is None
            assert tenant.deleted_at is None or all(
                version.state not in {State.READY, State.ACTIVE} for version in versions if version.tenant == tenant.tenant
            )
        for model in self._records(Model):
            assert model.retiring_below is None
            assert model.retired_at is None or model.route is None
            mine = [version for version in versions if (version.tenant, version.model) == (model.tenant, model.model)]
            assert all(version.number > model.retired_through for version in mine if version.state in {State.READY, State.ACTIVE})
            if any(version.state in {State.READY, State.ACTIVE} for version in mine) and not any(v.state is State.PURGED for v in mine):
                assert model.route is not None

    def _now(self) -> str:
        return timestamp(self.clock.now)


def _targets(route: Any) -> list[str]:
    return [] if route is None else [route.target_model, *([route.canary.target_model] if route.canary else [])]


@cache
def _reachable(state: State) -> frozenset[State]:
    """Where versions in ``state`` can be by now."""
    found, new = {state}, {state}
    while new:
        new = {target for each in new for target in MOVES[each]} - found
        found |= new
    return frozenset(found)
