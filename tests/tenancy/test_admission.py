from __future__ import annotations

import itertools
import pickle
from contextlib import contextmanager
from dataclasses import replace

import pytest

from mme_facts.grammar import ArtifactName, VersionId
from mme_tenancy.activation import activate
from mme_tenancy.admission import Admission, AdmissionDelayedError
from mme_tenancy.artifacts import UploadedObject
from mme_tenancy.errors import ForbiddenMoveError
from mme_tenancy.invocation import Invoker, ModelReply
from mme_tenancy.registry import Change
from mme_tenancy.retries import RuntimeFault
from mme_tenancy.routes import Model
from mme_tenancy.sweep import Step, SweepRules, next_step
from mme_tenancy.tenants import Tenant, Tier
from mme_tenancy.testing import MemoryArtifacts, MemoryRegistry, ScriptedRuntime, booster
from mme_tenancy.versions import State

NOW = "2026-11-29T12:00:00.000Z"
GOOD_REPLY = ModelReply(b"1.0", "text/csv")


class World:
    """Everything around an admission."""

    def __init__(self, clock, pool, *script):
        self.clock, self.pool = clock, pool
        self.registry, self.artifacts = MemoryRegistry(), MemoryArtifacts()
        self.runtime = ScriptedRuntime(*(script or (GOOD_REPLY,)))

    def admission(self, registry=None, artifacts=None, runtime=None):
        invoker = Invoker(runtime or self.runtime, self.clock, lambda: 0.5)
        return Admission(registry or self.registry, artifacts or self.artifacts, invoker, [self.pool], self.clock)

    def register(self, version):
        model = self.registry.model(version.tenant, version.model)
        after = replace(model, last_version=version.number, rev=model.rev + 1) if model else Model("acme", "iris", version.number, NOW, NOW)
        self.registry.write(Change(model, after), Change(None, version))
        return version

    def admit(self, upload):
        return self.admission().admit(upload, deadline=self.clock.monotonic() + 60)

    def state(self, number=1):
        return self.registry.version("acme", "iris", number).state

    @property
    def route(self):
        return self.registry.model("acme", "iris").route


@pytest.fixture
def world(clock, pool):
    return World(clock, pool)


@pytest.fixture
def upload(world, make_version, artifact):
    """A right artifact, registered and uploaded."""
    return world.artifacts.put(world.register(make_version(artifact=artifact)).name, artifact)


def test_a_right_artifact_becomes_active(world, upload):
    admitted = world.admit(upload)
    assert [state.value for state in admitted.steps] == ["awaiting_upload", "inspecting", "stored", "warming", "ready", "active"]
    assert admitted.version.state is State.ACTIVE
    assert not admitted.version.moving
    assert world.artifacts.admitted == {upload.name.artifact_key(): world.artifacts.incoming[upload.name.incoming_key]}
    assert (world.route.endpoint, world.route.variant, world.route.target_model, world.route.rev) == (
        "endpoint-a",
        "AllTraffic",
        upload.name.target_model,
        1,
    )
    assert set(admitted.version.timings) == {"inspect_seconds", "copy_seconds", "first_invocation_seconds"}


def test_the_first_invocation_sends_the_sample(world, upload):
    world.admit(upload)
    ((route, request, _),) = world.runtime.calls
    assert (route.target_model, request.body, request.content_type, request.accept) == (
        upload.name.target_model,
        b"5.1,3.5,1.4,0.2",
        "text/csv",
        "text/csv",
    )


def test_a_bad_archive_is_rejected_with_its_reasons_and_nothing_is_admitted(world, make_version, make_archive):
    artifact = make_archive(("../evil", b"x"))
    upload = world.artifacts.put(world.register(make_version(artifact=artifact)).name, artifact)
    version = world.admit(upload).version
    assert version.state is State.REJECTED
    assert [(reason.rule, reason.member) for reason in version.reasons] == [("parent-path", "../evil"), ("xgboost-model", "xgboost-model")]
    assert not version.moving
    assert world.artifacts.admitted == {}
    assert world.runtime.calls == []


def test_a_copy_of_what_another_event_rejected_at_the_same_time_does_not_stay(world, upload):
    class Overtaken(MemoryArtifacts):
        def admit(self, upload, size_bytes):
            super().admit(upload, size_bytes)
            version = world.registry.version("acme", "iris", 1)
            world.registry.write(Change(version, version.move(State.REJECTED, NOW)))

    artifacts = Overtaken()
    artifacts.incoming |= world.artifacts.incoming
    admitted = world.admission(artifacts=artifacts).admit(upload, deadline=world.clock.monotonic() + 60)
    assert (admitted.version.state, admitted.version.moving) == (State.REJECTED, False)
    assert artifacts.admitted == {}


def test_another_file_than_the_declared_one_is_rejected(world, make_version, artifact, make_archive):
    other = make_archive(("xgboost-model", booster("a longer one than the right artifact has")))
    upload = world.artifacts.put(world.register(make_version(artifact=artifact)).name, other)
    assert world.admit(upload).version.reasons[0].rule == "size"
    assert world.artifacts.admitted == {}


@pytest.mark.parametrize(
    ("fault", "attempts", "words"),
    [
        (RuntimeFault("ModelError", 424, 400), 1, "rejected the sample"),
        (RuntimeFault("ModelError", 424, 415), 1, "rejected the sample"),
        (RuntimeFault("ModelError", 424, 502), 1, "failed on the sample"),
        (RuntimeFault("ModelError", 424, 500), 2, "twice"),
    ],
)
def test_a_model_that_cannot_answer_its_sample_is_rejected(world, upload, fault, attempts, words):
    world.runtime = ScriptedRuntime(fault)
    version = world.admit(upload).version
    assert version.state is State.REJECTED
    assert [reason.rule for reason in version.reasons] == ["sample-invocation"]
    assert words in version.reasons[0].detail
    assert len(world.runtime.calls) == attempts
    assert world.route is None


@pytest.mark.parametrize(
    "code", ["ModelNotReadyException", "ServiceUnavailable", "ThrottlingException", "NotConnected", "ReadTimeout", "AccessDeniedException"]
)
def test_a_passing_trouble_of_the_endpoint_delays_and_the_next_event_finishes(world, upload, code):
    working = world.runtime
    world.runtime = ScriptedRuntime(RuntimeFault(code))
    with pytest.raises(AdmissionDelayedError, match=code):
        world.admit(upload)
    assert world.state() is State.WARMING
    world.runtime = working
    assert world.admit(upload).version.state is State.ACTIVE


def test_a_model_that_loads_slowly_is_waited_for(world, upload):
    world.runtime = ScriptedRuntime(*[RuntimeFault("ModelNotReadyException", 429)] * 20, GOOD_REPLY)
    assert world.admit(upload).version.state is State.ACTIVE
    assert world.registry.version("acme", "iris", 1).timings["first_invocation_seconds"] > 10


@pytest.mark.parametrize("code", ["AccessDeniedException", "ValidationError"])
def test_an_endpoint_that_takes_nothing_yet_is_waited_for(world, upload, code):
    world.runtime = ScriptedRuntime(RuntimeFault(code, 400), RuntimeFault(code, 400), GOOD_REPLY)
    assert world.admit(upload).version.state is State.ACTIVE
    assert len(world.runtime.calls) == 3


def test_a_second_event_after_the_end_does_nothing(world, upload):
    world.admit(upload)
    records, calls = dict(world.registry.records), len(world.runtime.calls)
    again = world.admit(upload)
    assert again.ignored == "nothing is left to do"
    assert (world.registry.records, len(world.runtime.calls)) == (records, calls)


def test_a_second_event_after_a_rejection_does_nothing(world, make_version):
    upload = world.artifacts.put(world.register(make_version(artifact=b"no gzip")).name, b"no gzip")
    world.admit(upload)
    records = dict(world.registry.records)
    world.admit(upload)
    assert world.registry.records == records


def test_an_object_of_no_version_is_ignored(world):
    upload = world.artifacts.put(ArtifactName("acme", "iris", VersionId(1, "0" * 12)), b"x")
    assert world.admit(upload).ignored == "no such version is registered"


def test_an_object_with_another_digest_than_the_versions_is_ignored(world, make_version):
    version = world.register(make_version())
    upload = world.artifacts.put(replace(version.name, version=VersionId(1, "0" * 12)), b"x")
    assert world.admit(upload).ignored == "no such version is registered"
    assert world.state() is State.AWAITING_UPLOAD


def test_the_event_of_a_replaced_object_leaves_the_work_to_the_newer_event(world, upload, artifact):
    stale = UploadedObject(upload.name, "0" * 64)
    assert "newer" in world.admit(stale).ignored
    assert world.state() is State.INSPECTING
    assert world.admit(upload).version.state is State.ACTIVE


def test_an_upload_over_a_stored_version_changes_nothing(world, upload, artifact):
    world.admit(upload)
    records, admitted = dict(world.registry.records), dict(world.artifacts.admitted)
    world.admit(world.artifacts.put(upload.name, b"something else"))
    assert (world.registry.records, world.artifacts.admitted) == (records, admitted)


def test_the_route_moves_forward_and_the_version_before_stays_ready(world, make_version, make_archive):
    for number in (1, 2):
        artifact = make_archive(("xgboost-model", booster(f"{number}")))
        world.admit(world.artifacts.put(world.register(make_version(number=number, artifact=artifact)).name, artifact))
    assert (world.state(1), world.state(2)) == (State.READY, State.ACTIVE)
    assert (world.route.number, world.route.rev) == (2, 2)


def test_an_older_version_that_finishes_late_stays_ready(world, make_version, make_archive):
    uploads = []
    for number in (1, 2):
        artifact = make_archive(("xgboost-model", booster(f"{number}")))
        uploads.append(world.artifacts.put(world.register(make_version(number=number, artifact=artifact)).name, artifact))
    world.admit(uploads[1])
    late = world.admit(uploads[0])
    assert (late.version.state, late.version.moving, world.route.number) == (State.READY, False, 2)


def test_an_event_that_comes_again_after_a_roll_back_does_not_roll_forward(world, make_version, make_archive):
    uploads = []
    for number in (1, 2):
        artifact = make_archive(("xgboost-model", booster(f"{number}")))
        uploads.append(world.artifacts.put(world.register(make_version(number=number, artifact=artifact)).name, artifact))
        world.admit(uploads[-1])
    model, first, second = world.registry.model("acme", "iris"), *(world.registry.version("acme", "iris", n) for n in (1, 2))
    world.registry.write(*activate(model, first, {str(second.id): second}, world.pool, NOW))
    world.admit(uploads[1])
    assert (world.route.number, world.route.rev, world.state(2)) == (1, 3, State.READY)


def test_only_a_ready_version_can_be_activated(make_version, pool):
    with pytest.raises(ForbiddenMoveError):
        activate(Model("acme", "iris", 1, NOW, NOW), make_version(State.STORED), {}, pool, NOW)


def test_a_version_of_a_pool_that_is_not_configured_is_delayed(world, make_version, artifact):
    upload = world.artifacts.put(world.register(make_version(artifact=artifact, pool="gpu")).name, artifact)
    with pytest.raises(AdmissionDelayedError, match="gpu"):
        world.admit(upload)


def test_a_rejected_model_is_not_stored_and_no_longer_under_way(world, upload):
    world.runtime = ScriptedRuntime(RuntimeFault("ModelError", 424, 400))
    admitted = world.admit(upload)
    assert [state.value for state in admitted.steps] == ["awaiting_upload", "inspecting", "stored", "warming", "rejected"]
    assert (world.artifacts.admitted, admitted.version.moving, world.registry.usages["acme"].stored_bytes) == ({}, False, 0)


def test_the_artifact_of_a_rejected_version_goes_only_after_the_record_says_so(world, upload):
    class Watching(MemoryArtifacts):
        def discard(self, name):
            assert world.state() is State.REJECTED
            super().discard(name)

    watching = Watching()
    watching.incoming = world.artifacts.incoming
    admission = world.admission(artifacts=watching, runtime=ScriptedRuntime(RuntimeFault("ModelError", 424, 400)))
    assert admission.admit(upload, deadline=world.clock.monotonic() + 60).version.state is State.REJECTED
    assert watching.admitted == {}


def test_a_rejection_that_was_cut_before_the_deletion_is_brought_on_by_the_sweep(world, upload):
    class Broken(MemoryArtifacts):
        def discard(self, name):
            raise OSError("the store is down")

    broken = Broken()
    broken.incoming, broken.admitted = world.artifacts.incoming, world.artifacts.admitted
    world.runtime = ScriptedRuntime(RuntimeFault("ModelError", 424, 400))
    with pytest.raises(OSError, match="down"):
        world.admission(artifacts=broken).admit(upload, deadline=world.clock.monotonic() + 60)
    version = world.registry.version("acme", "iris", 1)
    assert (version.state, version.moving, len(world.artifacts.admitted)) == (State.REJECTED, True, 1)
    for uploaded_at in (None, 0.0):
        assert next_step(version, uploaded_at, stored=True, now=world.clock.time(), rules=SweepRules()) is Step.RESUME
    # Its upload may have expired by then.
    world.artifacts.incoming.clear()
    assert world.admit(UploadedObject(upload.name, "")).version.moving is False
    assert world.artifacts.admitted == {}


def test_a_copy_of_an_earlier_event_goes_if_the_rules_refuse_the_artifact_now(world, make_version, make_archive):
    bad = make_archive(("../evil", b"x"))
    upload = world.artifacts.put(world.register(make_version(State.INSPECTING, artifact=bad)).name, bad)
    world.artifacts.admitted[upload.name.artifact_key()] = bad
    version = world.admit(upload).version
    assert (version.state, version.moving, world.artifacts.admitted) == (State.REJECTED, False, {})


CODE = pickle.dumps({"a": 1})


@pytest.mark.parametrize(("tier", "state"), [(Tier.STANDARD, State.REJECTED), (Tier.TRUSTED, State.ACTIVE), (None, State.REJECTED)])
def test_only_a_trusted_tenant_may_bring_code(world, make_version, make_archive, tier, state):
    artifact = make_archive(("model.pkl", CODE))
    upload = world.artifacts.put(world.register(make_version(artifact=artifact, framework="sklearn")).name, artifact)
    if tier is not None:
        world.registry.write(Change(None, Tenant("acme", NOW, NOW, tier=tier)))
    version = world.admit(upload).version
    assert (version.state, [reason.rule for reason in version.reasons]) == (state, [] if state is State.ACTIVE else ["code-format"])


def test_code_of_a_trusted_tenant_is_scanned(world, make_version, make_archive):
    artifact = make_archive(("model.pkl", b"\x80\x02cos\nsystem\n."))
    upload = world.artifacts.put(world.register(make_version(artifact=artifact, framework="sklearn")).name, artifact)
    world.registry.write(Change(None, Tenant("acme", NOW, NOW, tier=Tier.TRUSTED)))
    assert [reason.rule for reason in world.admit(upload).version.reasons] == ["unsafe-code"]


def test_warnings_stay_on_the_record_and_are_shown(world, make_version, make_archive):
    artifact = make_archive(("xgboost-model", booster()), ("extra/requirements.txt", b"x"))
    upload = world.artifacts.put(world.register(make_version(artifact=artifact)).name, artifact)
    version = world.admit(upload).version
    (warning,) = version.document()["warnings"]
    assert (version.state, warning["rule"], warning["member"]) == (State.ACTIVE, "ignored", "extra/requirements.txt")
    assert "dedicated placement" in warning["fix"]


def test_memory_is_stored_where_the_container_reports_it(world, upload):
    world.runtime = ScriptedRuntime(ModelReply(b"1.0", "text/csv", 123_456))
    version = world.admit(upload).version
    assert (version.memory_bytes, version.document()["memory_bytes"]) == (123_456, 123_456)


def test_a_model_that_takes_longer_to_load_than_an_endpoint_may_is_warned_about(world, upload):
    world.runtime = ScriptedRuntime(*[RuntimeFault("ModelNotReadyException", 429)] * 60, GOOD_REPLY)
    version = world.admission().admit(upload, deadline=world.clock.monotonic() + 900).version
    (warning,) = version.warnings
    assert (version.state, warning.rule, "dedicated placement" in warning.fix) == (State.ACTIVE, "load-time", True)
    assert "took" in warning.detail


def test_a_load_that_is_estimated_to_take_too_long_is_said_before_it_is_tried(world, upload, monkeypatch):
    monkeypatch.setattr("mme_tenancy.admission.first_load_seconds", lambda **_sizes: 75.0)
    world.runtime = ScriptedRuntime(RuntimeFault("ServiceUnavailable", 503))
    with pytest.raises(AdmissionDelayedError):
        world.admit(upload)
    (warning,) = world.registry.version("acme", "iris", 1).warnings
    assert (warning.rule, "estimated to take 75 seconds" in warning.detail) == ("load-time", True)
    world.runtime = ScriptedRuntime(GOOD_REPLY)
    assert world.admit(upload).version.warnings == (warning,)


def test_an_inspection_that_would_never_end_is_given_up(world, upload):
    class Slow(MemoryArtifacts):
        @contextmanager
        def read(self, uploaded):
            with super().read(uploaded) as chunks:
                yield (world.clock.sleep(50) or chunk for chunk in chunks)

    slow = Slow()
    slow.incoming = world.artifacts.incoming
    version = world.admission(artifacts=slow).admit(upload, deadline=world.clock.monotonic() + 60).version
    assert [(reason.rule, bool(reason.fix)) for reason in version.reasons] == [("inspection-time", True)]


def test_a_model_that_never_answers_in_time_is_rejected_after_hours_of_trying(world, upload):
    world.runtime = ScriptedRuntime(RuntimeFault("ReadTimeout"))
    for _ in range(3):
        with pytest.raises(AdmissionDelayedError):
            world.admit(upload)
        version = world.registry.version("acme", "iris", 1)
        world.registry.write(Change(version, version.resume(NOW)))
    version = world.admit(upload).version
    assert (version.state, version.reasons[0].rule, world.artifacts.admitted) == (State.REJECTED, "sample-invocation", {})
    assert "dedicated placement" in version.reasons[0].fix


class Counting:
    """Any protocol's implementation, with the names of its calls."""

    def __init__(self, inner, calls):
        self._inner, self._calls = inner, calls

    def __getattr__(self, name):
        method = getattr(self._inner, name)
        return lambda *arguments, **options: self._calls.append(name) or method(*arguments, **options)


def test_an_admission_makes_as_few_calls_as_it_can(world, upload):
    calls = []
    parts = (Counting(part, calls) for part in (world.registry, world.artifacts, world.runtime))
    assert world.admission(*parts).admit(upload, deadline=world.clock.monotonic() + 60).version.state is State.ACTIVE
    assert calls == ["read", "write", "read", "admit", "write", "invoke", "write"]  # the second read is of the upload


def test_the_sample_is_not_sent_again_because_another_version_was_registered_meanwhile(world, upload, make_version, artifact):
    class Registering(ScriptedRuntime):
        def invoke(self, *arguments):
            if not self.calls:
                world.register(make_version(number=2, artifact=b"other"))
            return super().invoke(*arguments)

    world.runtime = Registering(GOOD_REPLY)
    assert world.admit(upload).version.state is State.ACTIVE
    assert (len(world.runtime.calls), world.route.number, world.registry.model("acme", "iris").last_version) == (1, 1, 2)


class CrashError(BaseException):
    """The function is killed."""


class Crashing:
    """Any protocol's implementation, killed at one call of all calls that are counted together."""

    def __init__(self, inner, calls, crash_at, after):
        self._inner, self._calls, self._crash_at, self._after = inner, calls, crash_at, after

    def __getattr__(self, name):
        method = getattr(self._inner, name)

        def call(*arguments, **options):
            number = next(self._calls)
            if number == self._crash_at and not self._after:
                raise CrashError
            result = method(*arguments, **options)
            if number == self._crash_at:
                raise CrashError
            return result

        return call


def crash(world, upload, crash_at, *, after):
    """Run an admission that is killed at call ``crash_at``; whether it was."""
    calls = itertools.count()
    parts = (Crashing(part, calls, crash_at, after) for part in (world.registry, world.artifacts, world.runtime))
    try:
        world.admission(*parts).admit(upload, deadline=world.clock.monotonic() + 60)
    except CrashError:
        return True
    return False


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("kind", ["right", "bad archive", "bad model"])
def test_a_crash_at_any_call_is_finished_by_the_same_event(clock, pool, make_version, make_archive, artifact, kind, after):
    script = (RuntimeFault("ModelError", 424, 400),) if kind == "bad model" else (GOOD_REPLY,)
    body = make_archive(("../evil", b"x")) if kind == "bad archive" else artifact
    expected = State.ACTIVE if kind == "right" else State.REJECTED
    for crash_at in itertools.count():
        world = World(clock, pool, *script)
        upload = world.artifacts.put(world.register(make_version(artifact=body)).name, body)
        crashed = crash(world, upload, crash_at, after=after)
        assert world.route is None or world.state() is State.ACTIVE
        world.admit(upload)
        assert world.state() is expected
        assert (world.route is not None) == (kind == "right")
        assert bool(world.artifacts.admitted) == (kind == "right")
        assert not world.registry.version("acme", "iris", 1).moving
        if not crashed:
            break
    assert crash_at > 3


def test_two_crashes_in_a_row_at_any_two_calls_are_finished(clock, pool, make_version, artifact):
    for first, second in itertools.product(range(20), range(20)):
        world = World(clock, pool)
        upload = world.artifacts.put(world.register(make_version(artifact=artifact)).name, artifact)
        crash(world, upload, first, after=True)
        crash(world, upload, second, after=False)
        assert world.admit(upload).version.state is State.ACTIVE


class Interleaved:
    """A registry that lets another admission of the same object run right before one of its writes."""

    def __init__(self, inner, other, at):
        self._inner, self._other, self._at, self._writes = inner, other, at, 0

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def write(self, *changes):
        self._writes += 1
        if self._writes == self._at:
            self._other()
        self._inner.write(*changes)


@pytest.mark.parametrize("at", range(1, 4))
def test_two_deliveries_of_one_event_at_the_same_time_activate_once(world, upload, at):
    registry = Interleaved(world.registry, lambda: world.admit(upload), at)
    admitted = world.admission(registry).admit(upload, deadline=world.clock.monotonic() + 60)
    assert admitted.version.state is State.ACTIVE
    assert world.route.rev == 1


def test_two_versions_that_become_ready_at_the_same_time_end_with_the_newer_route(world, make_version, make_archive):
    uploads = []
    for number in (1, 2):
        artifact = make_archive(("xgboost-model", booster(f"{number}")))
        uploads.append(world.artifacts.put(world.register(make_version(number=number, artifact=artifact)).name, artifact))
    registry = Interleaved(world.registry, lambda: world.admit(uploads[1]), 3)
    world.admission(registry).admit(uploads[0], deadline=world.clock.monotonic() + 60)
    assert (world.route.number, world.state(1), world.state(2)) == (2, State.READY, State.ACTIVE)


def test_a_record_that_others_never_stop_changing_is_given_back(world, upload):
    def touch():
        version = world.registry.version("acme", "iris", 1)
        world.registry.write(Change(version, replace(version, notes="touched", rev=version.rev + 1)))

    class Restless(Interleaved):
        def write(self, *changes):
            touch()
            self._inner.write(*changes)

    with pytest.raises(AdmissionDelayedError, match="kept changing"):
        world.admission(Restless(world.registry, touch, 0)).admit(upload, deadline=0)
