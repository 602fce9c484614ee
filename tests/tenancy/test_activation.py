"""Rolling forward and back, canaries, and what stays true when several do it at once."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mme_facts.environment import Pool
from mme_tenancy.activation import Activator, admit_to_route
from mme_tenancy.bodies import percent_of
from mme_tenancy.errors import (
    ForbiddenMoveError,
    ModelNotFoundError,
    NoActiveVersionError,
    TenantDeletedError,
    TenantNotFoundError,
    VersionActiveError,
    VersionNotFoundError,
    WriteConflictError,
)
from mme_tenancy.registry import Change
from mme_tenancy.retirement import Retirer
from mme_tenancy.routes import Canary, Model, Route
from mme_tenancy.tenants import Tenant
from mme_tenancy.testing import FakeClock, MemoryRegistry
from mme_tenancy.versions import State, Version

NOW = "2026-11-29T12:00:00.000Z"
POOLS = (Pool("shared", "xgboost", "endpoint-a", "AllTraffic"), Pool("deep", "onnx", "endpoint-b", "Other"))


def filled(make_version, *states, registry=None, route=None):
    """A registry with tenant acme and versions 1, 2, ... of its model iris in these states, and their ids."""
    registry = registry or MemoryRegistry()
    versions = [
        make_version(state, number=number, artifact=f"artifact {number}".encode(), moving=False) for number, state in enumerate(states, 1)
    ]
    model = Model("acme", "iris", max(len(versions), 1), NOW, NOW, route and route(versions))
    registry.write(Change(None, Tenant("acme", NOW, NOW)), Change(None, model), *(Change(None, version) for version in versions))
    return registry, [version.id for version in versions]


def to(version, canary=None, percent=10):
    """The route to a version, perhaps with a canary."""
    beside = canary and Canary("endpoint-a", "AllTraffic", str(canary.id), canary.name.target_model, percent)
    return Route("endpoint-a", "AllTraffic", str(version.id), version.name.target_model, beside)


def states(registry):
    return [version.state.value for version in reversed(registry.versions("acme", "iris", limit=1000).items)]


@pytest.fixture
def activate(clock):
    def activate(registry, version, percent=100.0):
        return Activator(registry, POOLS, clock, lambda: 0.5).activate("acme", "iris", version, percent=percent)

    return activate


def test_a_route_rolls_back_and_forward_and_the_versions_change_places(make_version, activate):
    registry, (first, second) = filled(make_version, State.READY, State.ACTIVE, route=lambda v: to(v[1]))
    model = activate(registry, first)
    assert (model.route.version, model.route.target_model, model.route.rev) == (str(first), f"acme/iris/{first}.tar.gz", 2)
    assert states(registry) == ["active", "ready"]
    assert registry.model("acme", "iris") == model
    activate(registry, second)
    assert states(registry) == ["ready", "active"]


def test_the_first_activation_of_a_model_makes_its_route(make_version, activate):
    registry, (first,) = filled(make_version, State.READY)
    assert activate(registry, first).route.versions == (str(first),)
    assert states(registry) == ["active"]


def test_activating_what_is_active_writes_nothing(make_version, activate):
    registry, (first, _) = filled(make_version, State.ACTIVE, State.READY, route=lambda v: to(v[0]))
    before = dict(registry.records)
    activate(registry, first)
    assert registry.records == before


def test_a_version_of_another_pool_is_routed_to_its_own_endpoint(make_version, activate):
    registry, (first, second) = filled(make_version, State.ACTIVE, State.READY, route=lambda v: to(v[0]))
    version = registry.version("acme", "iris", 2)
    registry.records["version", "acme", "iris", 2] = make_version(
        State.READY, number=2, sha256=version.sha256, framework="onnx", pool="deep", moving=False
    )
    canary = activate(registry, second, percent=50).route.canary
    assert (canary.endpoint, canary.variant) == ("endpoint-b", "Other")
    assert {activate(registry, second).route.choose(f"user {number}").endpoint for number in range(20)} == {"endpoint-b"}
    assert activate(registry, first).route.endpoint == "endpoint-a"


@pytest.mark.parametrize("state", [state for state in State if state not in (State.READY, State.ACTIVE)])
def test_a_version_that_is_not_ready_gets_no_requests(make_version, activate, state):
    registry, (_, second) = filled(make_version, State.ACTIVE, state, route=lambda v: to(v[0]))
    before = dict(registry.records)
    for percent in (100, 10):
        with pytest.raises(ForbiddenMoveError, match=f"is {state.value}:") as caught:
            activate(registry, second, percent)
    assert caught.value.allowed == ["ready", "active"]
    assert registry.records == before


class TestDedicated:
    """The active version has a component of its own."""

    @staticmethod
    def to(version, canary=None):
        return replace(to(version, canary), endpoint="endpoint-d", component="acme-iris-1")

    def test_activating_the_version_that_the_component_serves_leaves_it_there(self, make_version, activate):
        registry, (first,) = filled(make_version, State.ACTIVE, route=lambda v: self.to(v[0]))
        before = registry.model("acme", "iris")
        assert activate(registry, first) == before

    def test_ending_a_canary_leaves_the_active_version_there(self, make_version, activate):
        registry, (first, _) = filled(make_version, State.ACTIVE, State.ACTIVE, route=lambda v: self.to(v[0], v[1]))
        route = activate(registry, first).route
        assert (route.component, route.endpoint, route.canary) == ("acme-iris-1", "endpoint-d", None)

    def test_a_canary_beside_it_is_shared(self, make_version, activate):
        registry, (_, second) = filled(make_version, State.ACTIVE, State.READY, route=lambda v: self.to(v[0]))
        route = activate(registry, second, 10).route
        assert (route.active.component, route.canary.target.component) == ("acme-iris-1", None)
        assert (route.active.endpoint, route.canary.endpoint) == ("endpoint-d", "endpoint-a")

    @pytest.mark.parametrize("canary_first", [False, True])
    def test_another_version_is_shared_and_so_is_the_way_back(self, make_version, activate, canary_first):
        registry, (first, second) = filled(make_version, State.ACTIVE, State.READY, route=lambda v: self.to(v[0]))
        if canary_first:
            activate(registry, second, 10)
        route = activate(registry, second).route
        assert (route.version, route.endpoint, route.component) == (str(second), "endpoint-a", None)
        back = activate(registry, first).route
        assert (back.version, back.endpoint, back.component) == (str(first), "endpoint-a", None)

    def test_a_newer_version_that_becomes_ready_is_shared(self, make_version):
        registry, _ = filled(make_version, State.ACTIVE, State.READY, route=lambda v: self.to(v[0]))
        first, second = (registry.version("acme", "iris", number) for number in (1, 2))
        changes = admit_to_route(registry.model("acme", "iris"), second, first, POOLS[0], NOW)
        (route,) = [change.after.route for change in changes if isinstance(change.after, Model)]
        assert (route.version, route.component) == (str(second.id), None)


class TestCanary:
    def test_it_gets_its_part_and_the_active_version_stays(self, make_version, activate):
        registry, (first, second) = filled(make_version, State.ACTIVE, State.READY, route=lambda v: to(v[0]))
        route = activate(registry, second, 10).route
        assert (route.version, route.canary.version, route.canary.percent) == (str(first), str(second), 10)
        assert states(registry) == ["active", "active"]

    def test_its_part_changes_without_touching_the_versions(self, make_version, activate):
        registry, (_, second) = filled(make_version, State.ACTIVE, State.ACTIVE, route=lambda v: to(v[0], v[1]))
        assert activate(registry, second, 30).route.canary.percent == 30
        assert registry.version("acme", "iris", 2).rev == 1

    def test_activating_it_fully_ends_it(self, make_version, activate):
        registry, (_, second) = filled(make_version, State.ACTIVE, State.ACTIVE, route=lambda v: to(v[0], v[1]))
        route = activate(registry, second).route
        assert (route.version, route.canary) == (str(second), None)
        assert states(registry) == ["ready", "active"]

    @pytest.mark.parametrize("percent", [100.0, 0.0])
    def test_activating_the_active_version_ends_it(self, make_version, activate, percent):
        registry, (first, _) = filled(make_version, State.ACTIVE, State.ACTIVE, route=lambda v: to(v[0], v[1]))
        route = activate(registry, first, percent).route
        assert (route.version, route.canary) == (str(first), None)
        assert states(registry) == ["active", "ready"]

    def test_zero_percent_ends_it_and_does_nothing_the_second_time(self, make_version, activate):
        registry, (_, second) = filled(make_version, State.ACTIVE, State.ACTIVE, route=lambda v: to(v[0], v[1]))
        once = activate(registry, second, 0)
        assert (once.route.canary, states(registry)) == (None, ["active", "ready"])
        assert activate(registry, second, 0) == once

    def test_another_version_takes_its_place(self, make_version, activate):
        registry, (_, _, third) = filled(make_version, State.ACTIVE, State.ACTIVE, State.READY, route=lambda v: to(v[0], v[1]))
        assert activate(registry, third, 20).route.canary.version == str(third)
        assert states(registry) == ["active", "ready", "active"]

    def test_activating_a_third_version_ends_it(self, make_version, activate):
        registry, (_, _, third) = filled(make_version, State.ACTIVE, State.ACTIVE, State.READY, route=lambda v: to(v[0], v[1]))
        assert activate(registry, third).route.versions == (str(third),)
        assert states(registry) == ["ready", "ready", "active"]

    def test_the_active_version_is_not_its_own_canary(self, make_version, activate):
        registry, (first,) = filled(make_version, State.ACTIVE, route=lambda v: to(v[0]))
        with pytest.raises(ForbiddenMoveError, match="is the active one"):
            activate(registry, first, 10)

    def test_beside_nothing_there_is_none(self, make_version, activate):
        registry, (first,) = filled(make_version, State.READY)
        for percent in (10, 0):
            with pytest.raises(NoActiveVersionError):
                activate(registry, first, percent)

    @pytest.mark.parametrize(("asked", "percent"), [(None, 100), (0, 0), (100, 100), (1e-300, 0.01), (99.9999, 99.99), (12.345, 12.35)])
    def test_its_percentage_counts_to_a_hundredth_and_what_is_some_stays_some(self, asked, percent):
        assert percent_of(None if asked is None else {"percent": asked}) == pytest.approx(percent, abs=0.006)
        assert asked is None or (percent_of({"percent": asked}) in (0, 100)) == (asked in (0, 100))


def test_unknown_names_are_told_apart(make_version, clock):
    registry, (first,) = filled(make_version, State.READY)
    activator = Activator(registry, POOLS, clock, lambda: 0.5)
    with pytest.raises(TenantNotFoundError):
        activator.activate("nobody", "iris", first)
    with pytest.raises(ModelNotFoundError):
        activator.activate("acme", "wine", first)
    with pytest.raises(VersionNotFoundError):
        activator.activate("acme", "iris", make_version(number=1, artifact=b"other").id)
    with pytest.raises(ForbiddenMoveError, match="a pool that the platform does not run any more"):
        Activator(registry, POOLS[1:], clock, lambda: 0.5).activate("acme", "iris", first)
    tenant = registry.tenant("acme")
    registry.write(Change(tenant, tenant.delete(NOW)))
    with pytest.raises(TenantDeletedError):
        activator.activate("acme", "iris", first)


class TestByItself:
    def test_a_newer_version_takes_the_route_and_an_older_one_waits(self, make_version):
        first, second = (make_version(State.READY, number=number, artifact=bytes([number])) for number in (1, 2))
        model = Model("acme", "iris", 2, NOW, NOW)
        changes = admit_to_route(model, second, None, POOLS[0], NOW)
        assert changes[0].after.route.version == str(second.id)
        (settled,) = admit_to_route(changes[0].after, first, changes[1].after, POOLS[0], NOW)
        assert (settled.after.state, settled.after.moving) == (State.READY, False)

    def test_a_version_that_was_registered_to_wait_waits(self, make_version):
        version = make_version(State.READY, activate=False)
        (settled,) = admit_to_route(Model("acme", "iris", 1, NOW, NOW), version, None, POOLS[0], NOW)
        assert (settled.after.state, settled.after.moving) == (State.READY, False)

    def test_while_a_canary_runs_a_newer_version_waits(self, make_version):
        first, second, third = (make_version(State.ACTIVE, number=number, artifact=bytes([number])) for number in (1, 2, 3))
        model = Model("acme", "iris", 3, NOW, NOW, to(first, second))
        ready = make_version(State.READY, number=3, artifact=bytes([3]))
        (settled,) = admit_to_route(model, ready, first, POOLS[0], NOW)
        assert (settled.after.id, settled.after.state, settled.after.moving) == (third.id, State.READY, False)

    def test_a_version_that_went_with_a_deletion_of_its_model_never_gets_the_route(self, make_version):
        version = make_version(State.READY)
        deleted = Model("acme", "iris", 1, NOW, NOW).delete(NOW, retiring_below=2)
        for model in (deleted, deleted.count_up(NOW)):
            (settled,) = admit_to_route(model, version, None, POOLS[0], NOW)
            assert (settled.after.state, settled.after.moving) == (State.READY, False)
        newer = make_version(State.READY, number=2, artifact=b"newer")
        assert admit_to_route(deleted.count_up(NOW), newer, None, POOLS[0], NOW)[0].after.route.version == str(newer.id)


def check(registry):
    """What holds after every write: a version is active exactly while the route names it, and no route names one that is not."""
    model = registry.records["model", "acme", "iris"]
    active = {str(record.id) for record in registry.records.values() if isinstance(record, Version) and record.state is State.ACTIVE}
    assert active == set(model.route.versions if model.route else ())


class Interrupted(MemoryRegistry):
    """A registry in which others may write between any read and the next step; and every write is checked."""

    def __init__(self):
        super().__init__()
        self.others = iter(())
        self.busy = False

    def _let_others(self):
        if not self.busy:
            self.busy = True
            other = next(self.others, None)
            if other is not None:
                other()
            self.busy = False

    def model(self, tenant, model):
        found = super().model(tenant, model)
        self._let_others()
        return found

    def version(self, tenant, model, number):
        found = super().version(tenant, model, number)
        self._let_others()
        return found

    def write(self, *changes, quotas=None):
        super().write(*changes, quotas=quotas)
        if len(self.records) > 1 and ("model", "acme", "iris") in self.records:
            check(self)


OUTCOMES = (ForbiddenMoveError, NoActiveVersionError, VersionActiveError, WriteConflictError, ModelNotFoundError)
CALLS = st.tuples(
    st.sampled_from(["activate", "activate", "activate", "retire", "force", "delete"]), st.integers(0, 3), st.sampled_from([100, 10, 0])
)


class World:
    """A registry in which others may act at any moment, and who acts on it."""

    def __init__(self, make_version, *states, route):
        clock = FakeClock()
        self.registry, self.ids = filled(make_version, *states, registry=Interrupted(), route=route)
        self.activator = Activator(self.registry, POOLS, clock, lambda: 0.5)
        self.retirer = Retirer(self.registry, clock, lambda: 0.5, grace_seconds=60)

    def run(self, call):
        kind, which, percent = call
        try:
            match kind:
                case "activate":
                    self.activator.activate("acme", "iris", self.ids[which], percent=percent)
                case "retire" | "force":
                    self.retirer.retire_version("acme", "iris", self.ids[which], force=kind == "force")
                case "delete":
                    self.retirer.retire_model("acme", "iris")
        except OUTCOMES:
            pass


KINDS, PERCENTS = ("activate", "retire", "force", "delete"), (100, 10)


@pytest.mark.parametrize("after", range(4))
@pytest.mark.parametrize("percent", PERCENTS)
@pytest.mark.parametrize("other", KINDS)
@pytest.mark.parametrize("kind", KINDS)
def test_another_call_between_any_two_reads_of_a_call_breaks_nothing(make_version, kind, other, percent, after):
    """Every pair of calls, the other one after every read of the first, on every version: as a canary, active, and without requests."""
    for which in range(3):
        for victim in range(3):
            world = World(make_version, State.ACTIVE, State.ACTIVE, State.READY, route=lambda v: to(v[0], v[1]))
            call = (other, victim, percent)
            world.registry.others = iter([*[None] * after, lambda world=world, call=call: world.run(call)])
            world.run((kind, which, 100))
            check(world.registry)


@given(st.lists(CALLS, min_size=1, max_size=6), st.lists(st.none() | CALLS, max_size=30))
@settings(max_examples=400, deadline=None)
def test_whatever_happens_between_reads_a_version_is_active_exactly_while_the_route_names_it(make_version, calls, others):
    world = World(make_version, State.ACTIVE, State.READY, State.READY, State.READY, route=lambda v: to(v[0]))
    registry, ids, run = world.registry, world.ids, world.run
    registry.others = iter([None if call is None else lambda call=call: run(call) for call in others])
    for call in calls:
        run(call)
        check(registry)
    # Whatever came before: a call that nobody disturbs does what it says.
    registry.others = iter(())
    if (model := registry.model("acme", "iris")).retired_at is None:
        for version in [each for each in ids if registry.version("acme", "iris", each.number).state in (State.READY, State.ACTIVE)]:
            model = world.activator.activate("acme", "iris", version)
            assert model.route.versions == (str(version),)
            check(registry)


def test_many_at_once_leave_one_route_and_one_active_version(make_version):
    class Locked(MemoryRegistry):
        """A registry whose write is atomic among threads, as the table's is."""

        def __init__(self):
            super().__init__()
            self._lock = threading.Lock()

        def write(self, *changes, quotas=None):
            with self._lock:
                super().write(*changes, quotas=quotas)

    registry, ids = filled(make_version, State.ACTIVE, State.READY, State.READY, registry=Locked(), route=lambda v: to(v[0]))
    done, conflicts = [], []

    def roll(start):
        clock = FakeClock()
        activator = Activator(registry, POOLS, clock, lambda: 0.5)
        for number in range(60):
            try:
                done.append(activator.activate("acme", "iris", ids[(start + number) % 3], percent=(100, 25)[number % 2]).rev)
            except ForbiddenMoveError:
                pass  # its own canary, by chance
            except WriteConflictError as conflict:
                conflicts.append(conflict)

    threads = [threading.Thread(target=roll, args=(start,)) for start in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    check(registry)
    assert len(done) > len(conflicts)
    assert registry.model("acme", "iris").rev >= max(done)
