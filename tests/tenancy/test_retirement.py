"""Versions, models and tenants that are not wanted any more."""

from __future__ import annotations

import pytest

from mme_facts.environment import Pool
from mme_tenancy.activation import Activator
from mme_tenancy.admission import Admission
from mme_tenancy.clock import timestamp
from mme_tenancy.errors import (
    ModelNotFoundError,
    TenantDeletedError,
    TenantNotFoundError,
    VersionActiveError,
    VersionNotFoundError,
    WriteConflictError,
)
from mme_tenancy.invocation import Invoker, ModelReply
from mme_tenancy.registration import Registrar, parse_registration
from mme_tenancy.registry import Change
from mme_tenancy.retirement import ENDED, Retirer
from mme_tenancy.tenants import Tenant
from mme_tenancy.testing import MemoryArtifacts, MemoryRegistry, MemorySigner, ScriptedRuntime
from mme_tenancy.versions import State
from tests.tenancy.test_activation import POOLS, check, filled, states, to

GRACE_SECONDS = 7 * 86_400.0


@pytest.fixture
def retirer_of(clock):
    def retirer_of(registry, budget=100):
        return Retirer(registry, clock, lambda: 0.5, grace_seconds=GRACE_SECONDS, budget=budget)

    return retirer_of


@pytest.fixture
def after_grace(clock):
    return timestamp(clock.time() + GRACE_SECONDS)


class TestAVersion:
    @pytest.mark.parametrize("state", [state for state in State if state not in ENDED and state is not State.ACTIVE])
    def test_it_is_retired_wherever_it_is(self, make_version, retirer_of, clock, after_grace, state):
        registry, (first, second) = filled(make_version, State.ACTIVE, state, route=lambda v: to(v[0]))
        retired = retirer_of(registry).retire_version("acme", "iris", second)
        assert (retired.state, retired.moving) == (State.RETIRED, False)
        assert retired.purge_after == (timestamp(clock.time()) if state is State.AWAITING_UPLOAD else after_grace)
        assert registry.version("acme", "iris", 2) == retired
        assert registry.model("acme", "iris").route.version == str(first)

    @pytest.mark.parametrize("state", sorted(ENDED))
    def test_one_that_has_ended_stays_as_it_is(self, make_version, retirer_of, state):
        registry, (first,) = filled(make_version, state)
        before = dict(registry.records)
        assert retirer_of(registry).retire_version("acme", "iris", first).state is state
        assert registry.records == before

    def test_the_active_one_is_refused_unless_it_is_what_the_caller_says(self, make_version, retirer_of):
        registry, (first,) = filled(make_version, State.ACTIVE, route=lambda v: to(v[0]))
        with pytest.raises(VersionActiveError, match="activate another version first"):
            retirer_of(registry).retire_version("acme", "iris", first)
        assert states(registry) == ["active"]
        retirer_of(registry).retire_version("acme", "iris", first, force=True)
        assert (states(registry), registry.model("acme", "iris").route) == (["retired"], None)

    def test_with_the_active_one_its_canary_loses_its_requests_too(self, make_version, retirer_of):
        registry, (first, _) = filled(make_version, State.ACTIVE, State.ACTIVE, route=lambda v: to(v[0], v[1]))
        retirer_of(registry).retire_version("acme", "iris", first, force=True)
        assert (states(registry), registry.model("acme", "iris").route) == (["retired", "ready"], None)

    def test_a_canarys_requests_go_back_to_the_active_one(self, make_version, retirer_of):
        registry, (first, second) = filled(make_version, State.ACTIVE, State.ACTIVE, route=lambda v: to(v[0], v[1]))
        retirer_of(registry).retire_version("acme", "iris", second)
        assert states(registry) == ["active", "retired"]
        assert registry.model("acme", "iris").route.versions == (str(first),)

    def test_unknown_names_are_told_apart(self, make_version, retirer_of):
        registry, (first,) = filled(make_version, State.READY)
        retirer = retirer_of(registry)
        with pytest.raises(TenantNotFoundError):
            retirer.retire_version("nobody", "iris", first)
        with pytest.raises(ModelNotFoundError):
            retirer.retire_version("acme", "wine", first)
        for wrong in (make_version(number=1, artifact=b"other").id, make_version(number=2).id):
            with pytest.raises(VersionNotFoundError):
                retirer.retire_version("acme", "iris", wrong)


class TestAModel:
    def test_its_route_and_all_its_versions_go_in_one_write(self, make_version, retirer_of, after_grace, clock):
        registry, _ = filled(
            make_version, State.READY, State.ACTIVE, State.ACTIVE, State.REJECTED, State.INSPECTING, route=lambda v: to(v[1], v[2])
        )
        writes = []
        registry.write = lambda *changes, write=registry.write: (writes.append(changes), write(*changes))
        model = retirer_of(registry).retire_model("acme", "iris")
        assert len(writes) == 1
        assert (model.route, model.retired_at, model.retiring_below) == (None, timestamp(clock.time()), None)
        assert states(registry) == ["retired", "retired", "retired", "rejected", "retired"]
        assert registry.version("acme", "iris", 1).purge_after == after_grace

    def test_deleting_it_again_changes_nothing(self, make_version, retirer_of, clock):
        registry, _ = filled(make_version, State.ACTIVE, route=lambda v: to(v[0]))
        first = retirer_of(registry).retire_model("acme", "iris")
        clock.sleep(60)
        before = dict(registry.records)
        assert retirer_of(registry).retire_model("acme", "iris") == first
        assert registry.records == before

    def test_of_very_many_versions_a_call_retires_some_and_the_route_first(self, make_version, retirer_of):
        registry, _ = filled(make_version, State.ACTIVE, *[State.READY] * 130, route=lambda v: to(v[0]))
        first = retirer_of(registry, budget=50).retire_model("acme", "iris")
        assert (first.route, first.retiring_below) == (None, 72)
        # The active one went with the route although it is the oldest.
        assert states(registry)[:2] == ["retired", "ready"]
        check(registry)
        calls = 0
        while retirer_of(registry, budget=50).retire_model("acme", "iris").retiring_below is not None:
            calls += 1
            assert calls < 10
        assert set(states(registry)) == {"retired"}

    def test_the_sweeper_goes_on_with_it_and_never_begins(self, make_version, retirer_of):
        registry, _ = filled(make_version, *[State.READY] * 60)
        retirer = retirer_of(registry, budget=1)
        before = dict(registry.records)
        assert retirer.resume_model("acme", "iris").retired_at is None
        assert registry.records == before
        assert retirer.resume_model("acme", "wine") is None
        assert retirer.retire_model("acme", "iris").retiring_below == 41
        assert retirer.resume_model("acme", "iris").retiring_below == 21
        assert retirer.resume_model("acme", "iris").retiring_below is None
        assert set(states(registry)) == {"retired"}

    def test_a_version_registered_later_lives_while_the_others_are_still_retired(self, make_version, retirer_of):
        registry, _ = filled(make_version, *[State.READY] * 60)
        retirer = retirer_of(registry, budget=1)
        deleted = retirer.retire_model("acme", "iris")
        newer = make_version(State.READY, number=61, artifact=b"newer", moving=False)
        registry.write(Change(deleted, deleted.count_up(timestamp(0))), Change(None, newer))
        while retirer.resume_model("acme", "iris").retiring_below is not None:
            pass
        assert states(registry) == ["retired"] * 60 + ["ready"]
        assert registry.model("acme", "iris").retired_at is None

    def test_a_conflict_while_it_goes_on_leaves_the_rest_to_the_next_call(self, make_version, retirer_of):
        registry, _ = filled(make_version, *[State.READY] * 60)
        retirer_of(registry, budget=1).retire_model("acme", "iris")

        def conflict(*changes):
            raise WriteConflictError("someone was faster")

        write, registry.write = registry.write, conflict
        assert retirer_of(registry).retire_model("acme", "iris").retiring_below == 41
        registry.write = write
        assert retirer_of(registry).retire_model("acme", "iris").retiring_below is None

    def test_an_unknown_one_is_not_found(self, retirer_of):
        registry = MemoryRegistry()
        with pytest.raises(TenantNotFoundError):
            retirer_of(registry).retire_model("acme", "iris")
        registry.write(Change(None, Tenant("acme", timestamp(0), timestamp(0))))
        with pytest.raises(ModelNotFoundError):
            retirer_of(registry).retire_model("acme", "iris")


def register(registry, clock, model, artifact, tenant="acme"):
    """Registers an artifact, given by its digest, as users do."""
    body = b'{"sha256": "%s", "size_bytes": 5, "framework": "xgboost", "sample": {"content_type": "text/csv", "body": "1"}}' % artifact
    registration = parse_registration(body, max_artifact_bytes=10_000_000, frameworks=["xgboost"])
    return Registrar(registry, MemorySigner(clock), POOLS, clock, lambda: 0.5).register(tenant, model, registration).version


@pytest.fixture
def many(clock):
    """A tenant with 70 models of one version, another with one."""
    registry = MemoryRegistry()
    for tenant in ("acme", "globex"):
        registry.write(Change(None, Tenant(tenant, timestamp(0), timestamp(0))))
    for number in range(70):
        register(registry, clock, f"model-{number:02d}", b"%064x" % number)
    register(registry, clock, "iris", b"f" * 64, tenant="globex")
    return registry


class TestATenant:
    def test_all_its_models_go_in_bounded_steps_and_nobody_elses(self, many, retirer_of):
        before = many.model("globex", "iris"), many.version("globex", "iris", 1)
        cursors = [retirer_of(many, budget=60).retire_tenant("acme").retiring_after]
        while cursors[-1] is not None:
            cursors.append(retirer_of(many, budget=60).resume_tenant("acme").retiring_after)
            assert len(cursors) < 20
        assert len(cursors) > 2
        assert cursors[:-1] == sorted(cursors[:-1])
        models = many.models("acme", limit=100).items
        assert all(model.retired_at and model.route is None and model.retiring_below is None for model in models)
        assert {many.version("acme", model.model, 1).state for model in models} == {State.RETIRED}
        assert (many.model("globex", "iris"), many.version("globex", "iris", 1)) == before
        assert many.tenant("globex").deleted_at is None

    def test_one_without_models_is_done_at_once_and_deleting_it_again_changes_nothing(self, retirer_of, clock):
        registry = MemoryRegistry()
        registry.write(Change(None, Tenant("acme", timestamp(0), timestamp(0))))
        done = retirer_of(registry).retire_tenant("acme")
        assert (done.deleted_at, done.retiring_after) == (timestamp(clock.time()), None)
        clock.sleep(60)
        assert retirer_of(registry).retire_tenant("acme") == done

    def test_a_model_with_very_many_versions_does_not_stop_it(self, make_version, retirer_of):
        registry, _ = filled(make_version, State.ACTIVE, *[State.READY] * 130, route=lambda v: to(v[0]))
        retirer, calls = retirer_of(registry, budget=30), 1
        tenant = retirer.retire_tenant("acme")
        assert tenant.retiring_after == ""
        while tenant.retiring_after is not None:
            tenant = retirer.resume_tenant("acme")
            calls += 1
            assert calls < 20
        assert set(states(registry)) == {"retired"}
        assert registry.model("acme", "iris").retiring_below is None

    def test_the_sweeper_never_begins(self, many, retirer_of):
        before = dict(many.records)
        assert retirer_of(many).resume_tenant("acme").deleted_at is None
        assert retirer_of(many).resume_tenant("nobody") is None
        assert many.records == before
        with pytest.raises(TenantNotFoundError):
            retirer_of(many).retire_tenant("nobody")

    def test_it_is_refused_registrations_and_activations_from_the_first_write_on(self, many, retirer_of, clock):
        tenant = retirer_of(many, budget=1).retire_tenant("acme")
        assert tenant.retiring_after is not None
        with pytest.raises(TenantDeletedError):
            register(many, clock, "new", b"e" * 64)
        left = many.version("acme", "model-69", 1)
        assert left.state is State.AWAITING_UPLOAD
        with pytest.raises(TenantDeletedError):
            Activator(many, POOLS, clock, lambda: 0.5).activate("acme", "model-69", left.id)

    def test_it_begins_anew_when_all_is_retired_and_not_before(self, many, retirer_of, clock):
        tenant = retirer_of(many, budget=1).retire_tenant("acme")
        with pytest.raises(TenantDeletedError):
            tenant.begin_anew(timestamp(clock.time()))
        while tenant.retiring_after is not None:
            tenant = retirer_of(many).retire_tenant("acme")
        anew = tenant.begin_anew(timestamp(clock.time()))
        assert (anew.deleted_at, anew.created_at, anew.rev) == (None, timestamp(clock.time()), tenant.rev + 1)
        many.write(Change(tenant, anew))
        version = register(many, clock, "model-00", b"%064x" % 0)
        assert (version.number, many.model("acme", "model-00").retired_at) == (2, None)


def test_a_version_whose_model_is_deleted_at_any_moment_of_its_admission_never_gets_a_route(artifact, make_version, clock):
    """The model is deleted before the n-th thing that admission does: a read, a write, a stream, a copy, an invocation; for every n."""

    def admit(delete_before):
        steps = 0

        def step():
            nonlocal steps
            steps += 1
            if steps == delete_before:
                retirer.retire_model("acme", "iris")

        def watched(method):
            def call(*arguments, **named):
                if not busy:
                    busy.append(True)
                    step()
                    busy.clear()
                return method(*arguments, **named)

            return call

        busy = []
        registry, artifacts, runtime = MemoryRegistry(), MemoryArtifacts(), ScriptedRuntime(ModelReply(b"1"), clock=clock)
        version = make_version(artifact=artifact)
        filled(make_version, registry=registry)
        registry.write(Change(None, version))
        retirer = Retirer(registry, clock, lambda: 0.5, grace_seconds=60)
        upload = artifacts.put(version.name, artifact)
        for thing, methods in ((registry, ("read", "version", "model", "write")), (artifacts, ("read", "admit")), (runtime, ("invoke",))):
            for method in methods:
                setattr(thing, method, watched(getattr(thing, method)))
        invoker = Invoker(runtime, clock, lambda: 0.5)
        admission = Admission(registry, artifacts, invoker, [Pool("shared", "xgboost", "endpoint-a", "AllTraffic")], clock)
        admission.admit(upload, deadline=clock.monotonic() + 60)
        return registry, steps

    registry, steps = admit(None)
    assert (states(registry), steps > 6) == (["active"], True)
    for number in range(1, steps + 1):
        registry, _ = admit(number)
        assert states(registry) == ["retired"], number
        assert registry.model("acme", "iris").route is None
