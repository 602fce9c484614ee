"""The sweep's decisions, one by one, on records and objects in memory."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from mme_facts.grammar import ArtifactName, VersionId
from mme_tenancy.clock import timestamp
from mme_tenancy.errors import WriteConflictError
from mme_tenancy.registry import Change
from mme_tenancy.routes import Canary, Model, Route
from mme_tenancy.sweep import Sweeper, SweepRules, is_due, next_step
from mme_tenancy.sweep_ports import Cursors
from mme_tenancy.tenants import Tenant
from mme_tenancy.testing import MemoryArtifacts, MemoryRegistry
from mme_tenancy.testing_sweep import MemoryAdmissions, MemorySweepIndex, MemorySweepObjects
from mme_tenancy.versions import Multipart, State, Version

HOUR, DAY = 3600.0, 86_400.0


class World:
    """Everything around a sweeper."""

    def __init__(self, clock, make_version):
        self.clock, self._make = clock, make_version
        self.registry, self.artifacts, self.admissions = MemoryRegistry(), MemoryArtifacts(), MemoryAdmissions()
        self.index, self.objects = MemorySweepIndex(self.registry), MemorySweepObjects(self.artifacts)
        self.rules = SweepRules()

    def version(self, state, *, age=2 * HOUR, number=1, upload=None, stored=None, **changes):
        """A version that came to ``state`` ``age`` seconds ago, and its objects."""
        at = timestamp(self.clock.time() - age)
        moving = state in {State.AWAITING_UPLOAD, State.INSPECTING, State.STORED, State.WARMING}
        fields = {"moving": moving, "artifact": b"artifact %d" % number, "created_at": at, "updated_at": at, **changes}
        version = self._make(state, number=number, **fields)
        model = self.registry.model("acme", "iris")
        if model is None:
            self.registry.write(Change(None, Model("acme", "iris", number, at, at)))
        elif model.last_version < number:
            self.registry.write(Change(model, replace(model, last_version=number, rev=model.rev + 1)))
        self.registry.write(Change(None, version))
        if upload is not None:
            self.artifacts.incoming[version.name.incoming_key] = b"bytes"
            self.objects.modified[version.name.incoming_key] = self.clock.time() - upload
        if stored is not None:
            self.store(version.name, stored)
        return version

    def store(self, name, age=2 * DAY):
        self.artifacts.admitted[name.artifact_key()] = b"bytes"
        self.objects.modified[name.artifact_key()] = self.clock.time() - age

    def route(self, **changes):
        model = self.registry.model("acme", "iris")
        self.registry.write(Change(model, model.reroute(Route("endpoint-a", "AllTraffic", **changes), model.updated_at)))

    def sweeper(self, **parts):
        given = {"registry": self.registry, "index": self.index, "objects": self.objects, "admissions": self.admissions, **parts}
        return Sweeper(**given, clock=self.clock, rules=self.rules)

    def tick(self, seconds=60.0, **parts):
        return self.sweeper(**parts).tick(deadline=self.clock.monotonic() + seconds)

    def now(self, number=1):
        return self.registry.version("acme", "iris", number)


@pytest.fixture
def world(clock, make_version):
    return World(clock, make_version)


def counts(swept):
    """What was done, without what was only looked at."""
    done = {name: value for name, value in swept.document().items() if value}
    done.pop("examined", None)
    done.pop("oldest_stuck_seconds", None)
    return done


@pytest.mark.parametrize(
    ("state", "moving"),
    [(State.INSPECTING, True), (State.STORED, True), (State.WARMING, True), (State.READY, True), (State.AWAITING_UPLOAD, True)],
)
def test_a_stuck_version_is_resumed_with_the_object_that_is_there(world, state, moving):
    version = world.version(state, moving=moving, upload=HOUR, stored=HOUR)
    assert counts(world.tick()) == {"resumed": 1}
    (upload,) = world.admissions.resumed
    assert (upload.name, upload.etag) == (version.name, world.artifacts.etag(version.name.incoming_key))
    assert (world.now().state, world.now().resumes, world.now().updated_at) == (state, 1, version.updated_at)


@pytest.mark.parametrize("state", [State.STORED, State.WARMING, State.READY])
def test_a_stored_version_is_resumed_after_its_upload_expired(world, state):
    world.version(state, moving=True, stored=HOUR)
    assert counts(world.tick()) == {"resumed": 1}
    assert world.admissions.resumed[0].etag == ""


@pytest.mark.parametrize(
    ("state", "age", "upload"),
    [(State.INSPECTING, 1199, HOUR), (State.WARMING, 10, HOUR), (State.AWAITING_UPLOAD, HOUR, None), (State.AWAITING_UPLOAD, HOUR, 1199)],
)
def test_a_version_that_may_still_be_worked_on_is_left_alone(world, state, age, upload):
    world.version(state, age=age, upload=upload, stored=HOUR)
    assert counts(world.tick()) == {}
    assert world.admissions.resumed == []


@pytest.mark.parametrize("state", [State.READY, State.ACTIVE, State.REJECTED, State.EXPIRED, State.PURGED])
def test_a_version_that_does_not_move_is_never_resumed(world, state):
    world.version(state, age=90 * DAY, moving=False)
    assert counts(world.tick()) == {}


def test_the_rest_between_two_resumptions_doubles_up_to_its_limit(world):
    world.version(State.WARMING, stored=HOUR)
    at = []
    for _ in range(400):
        if world.tick().resumed:
            at.append(world.clock.now)
        world.clock.now += 300
    rests = [later - earlier for earlier, later in itertools.pairwise(at)]
    assert rests[:5] == [2400, 4800, 9600, 19200, 21600]
    assert set(rests[5:]) == {21600}


def test_a_move_begins_the_rests_anew(world):
    stuck = world.version(State.STORED, stored=HOUR, resumes=5, resumed_at="2026-11-29T12:00:00.000Z")
    moved = stuck.move(State.WARMING, "2026-11-29T12:00:01.000Z")
    assert (moved.resumes, moved.resumed_at) == (0, None)


def test_an_upload_that_never_came_is_expired(world):
    world.version(State.AWAITING_UPLOAD, age=DAY)
    assert counts(world.tick()) == {"expired": 1}
    assert (world.now().state, world.now().moving, world.now().reasons) == (State.EXPIRED, False, ())
    assert world.objects.aborted == []


def test_the_parts_of_an_abandoned_upload_are_given_up(world):
    version = world.version(State.AWAITING_UPLOAD, age=DAY, multipart=Multipart("upload-1", 5 << 20))
    assert world.tick().expired == 1
    assert world.objects.aborted == [(version.name, "upload-1")]


def test_an_upload_that_is_completed_in_the_last_moment_is_not_expired(world):
    version = world.version(State.AWAITING_UPLOAD, age=2 * DAY, multipart=Multipart("upload-1", 5 << 20))

    class Completed(MemorySweepObjects):
        def abort(self, name, upload_id):
            world.artifacts.incoming[name.incoming_key] = b"bytes"
            self.modified[name.incoming_key] = world.clock.time()

    world.objects = Completed(world.artifacts)
    assert counts(world.tick()) == {}
    assert world.now().state is State.AWAITING_UPLOAD
    world.clock.now += HOUR
    assert counts(world.tick()) == {"resumed": 1}
    assert world.admissions.resumed[0].name == version.name


def test_an_upload_that_was_deleted_before_its_inspection_ends_the_version_and_says_so(world):
    world.version(State.INSPECTING)
    assert counts(world.tick()) == {"expired": 1}
    assert [reason.rule for reason in world.now().reasons] == ["upload-lost"]


def test_a_version_that_was_copied_but_not_recorded_as_stored_goes_on_without_its_upload(world):
    world.version(State.INSPECTING, stored=HOUR)
    assert counts(world.tick()) == {"resumed": 1}
    assert (world.now().state, len(world.admissions.resumed)) == (State.STORED, 1)


@pytest.mark.parametrize("state", [State.STORED, State.WARMING])
def test_a_version_whose_stored_artifact_is_gone_is_rejected_and_says_so(world, state):
    world.version(state, upload=HOUR)
    assert counts(world.tick()) == {"rejected": 1}
    assert (world.now().state, [reason.rule for reason in world.now().reasons]) == (State.REJECTED, ["artifact-lost"])


def test_a_retired_version_is_purged_after_its_grace_time_and_not_before(world):
    purge_after = timestamp(world.clock.time() + HOUR)
    version = world.version(State.RETIRED, purge_after=purge_after, stored=2 * DAY, upload=HOUR)
    assert counts(world.tick()) == {}
    assert version.name.artifact_key() in world.artifacts.admitted
    world.clock.now += HOUR
    assert counts(world.tick()) == {"purged": 1}
    assert world.now().state is State.PURGED
    assert (world.artifacts.admitted, world.artifacts.incoming) == ({}, {})


def test_a_purge_that_was_cut_after_the_deletion_is_finished_by_the_next_tick(world):
    world.version(State.RETIRED, purge_after=timestamp(world.clock.time() - 1), stored=2 * DAY)

    class Cut(MemoryRegistry):
        def write(self, *changes):
            raise ConnectionError("cut")

    cut = Cut()
    cut.records = world.registry.records
    assert world.tick(registry=cut).failed == 1
    assert (world.now().state, world.artifacts.admitted) == (State.RETIRED, {})
    assert counts(world.tick()) == {"purged": 1}


@pytest.mark.parametrize("as_canary", [False, True])
def test_an_artifact_that_a_route_names_is_never_purged(world, as_canary):
    version = world.version(State.RETIRED, purge_after=timestamp(world.clock.time() - 1), stored=2 * DAY)
    other = VersionId(2, "0123456789ab")
    target = version.name.target_model
    if as_canary:
        world.route(version=str(other), target_model="x", canary=Canary("endpoint-a", "AllTraffic", str(version.id), target, 5))
    else:
        world.route(version=str(version.id), target_model=target)
    swept = world.tick()
    assert swept.failed == 1
    assert "names" in swept.failures[0].error
    assert (world.now().state, len(world.artifacts.admitted)) == (State.RETIRED, 1)


@pytest.mark.parametrize("state", sorted(State))
def test_an_artifact_stays_exactly_as_long_as_its_record_may_point_to_it(world, state):
    version = world.version(state, age=0, moving=False, stored=2 * DAY)
    stays = state in {State.INSPECTING, State.STORED, State.WARMING, State.READY, State.ACTIVE, State.RETIRED}
    assert world.tick().deleted_artifacts == (0 if stays else 1)
    assert (version.name.artifact_key() in world.artifacts.admitted) is stays


@pytest.mark.parametrize("state", sorted(State))
def test_an_upload_stays_exactly_as_long_as_it_may_have_to_be_read(world, state):
    version = world.version(state, age=0, moving=False, upload=2 * DAY, stored=0)
    stays = state in {State.AWAITING_UPLOAD, State.INSPECTING}
    assert world.tick().deleted_uploads == (0 if stays else 1)
    assert (version.name.incoming_key in world.artifacts.incoming) is stays


def test_young_objects_are_never_deleted(world):
    world.version(State.REJECTED, upload=DAY - 1, stored=DAY - 1)
    assert counts(world.tick()) == {}


def test_an_artifact_whose_record_was_lost_is_told_at_once_and_deleted_a_week_later(world):
    version = world.version(State.READY, stored=90 * DAY)
    lost = ArtifactName("acme", "iris", VersionId(1, "0" * 12))
    world.store(lost, age=90 * DAY)
    for _ in range(7):
        assert counts(world.tick()) == {"unexplained": 1}
        world.clock.now += DAY
    assert counts(world.tick()) == {"deleted_artifacts": 1}
    assert list(world.artifacts.admitted) == [version.name.artifact_key()]


def test_a_record_that_is_restored_within_the_week_keeps_its_artifact(world):
    version = world.version(State.READY, stored=90 * DAY)
    key = ("version", "acme", "iris", 1)
    lost = world.registry.records.pop(key)
    assert counts(world.tick()) == {"unexplained": 1}
    world.registry.records[key] = lost
    world.clock.now += 30 * DAY
    assert counts(world.tick()) == {}
    assert version.name.artifact_key() in world.artifacts.admitted


def test_artifacts_of_which_the_registry_has_no_history_are_kept_and_counted(world):
    """The table may have been restored from a backup: then they are newer than what it knows."""
    world.version(State.READY, number=3, stored=2 * DAY)
    newer, unknown = ArtifactName("acme", "iris", VersionId(4, "0" * 12)), ArtifactName("zeta", "iris", VersionId(1, "0" * 12))
    for name in (newer, unknown):
        world.store(name)
    assert counts(world.tick()) == {"unexplained": 2}
    assert {newer.artifact_key(), unknown.artifact_key()} <= set(world.artifacts.admitted)


def test_objects_with_other_keys_than_ours_are_kept_and_counted(world):
    world.artifacts.admitted["models/readme.txt"] = world.artifacts.incoming["incoming/acme/x"] = b"?"
    assert counts(world.tick()) == {"foreign": 2}
    assert (len(world.artifacts.admitted), len(world.artifacts.incoming)) == (1, 1)


def test_a_tick_does_a_bounded_amount_of_work_and_the_next_goes_on_where_it_stopped(world):
    world.rules = SweepRules(versions=4, objects=3, page=2)
    for number in range(1, 12):
        world.version(State.WARMING, number=number, stored=HOUR, age=2 * HOUR + number)
        world.artifacts.incoming[ArtifactName("acme", "iris", VersionId(number, "0" * 12)).incoming_key] = b"bytes"
    first = world.tick()
    assert (first.resumed, first.examined) == (4, 4 + 3 + 3)
    for _ in range(20):
        world.tick()
    assert sorted(upload.name.version.number for upload in world.admissions.resumed) == list(range(1, 12))
    assert (len(world.artifacts.admitted), world.artifacts.incoming) == (11, {})


def test_a_tick_begins_nothing_after_its_deadline(world):
    world.version(State.WARMING, stored=HOUR)
    assert world.tick(seconds=0.0).examined == 0
    assert world.tick().resumed == 1


def test_a_version_that_cannot_be_swept_stops_no_other(world):
    for number in range(1, 4):
        world.version(State.WARMING, number=number, stored=HOUR)

    class Troubled(MemoryAdmissions):
        def resume(self, upload):
            if upload.name.version.number == 2:
                raise ConnectionError("no route")
            super().resume(upload)

    admissions = Troubled()
    swept = world.tick(admissions=admissions)
    assert [upload.name.version.number for upload in admissions.resumed] == [1, 3]
    assert (swept.resumed, swept.failed) == (2, 1)
    assert (swept.failures[0].what, swept.failures[0].error) == ("acme/iris/v2", "ConnectionError: no route")


@pytest.mark.parametrize("broken", ["due", "versions", "cursors", "remember"])
def test_a_part_of_the_table_that_fails_stops_no_other_part(world, broken):
    world.version(State.RETIRED, purge_after=timestamp(world.clock.time() - 1), stored=2 * DAY)
    world.version(State.REJECTED, number=2, stored=2 * DAY)
    ready = world.version(State.READY, number=3, stored=2 * DAY)
    world.rules = SweepRules(objects=1, page=1)

    def fail(*_given, **_named):
        raise ConnectionError(broken)

    setattr(world.index, broken, fail)
    swept = world.tick()
    assert swept.failed >= 1
    assert (swept.purged == 1) is (broken != "due")
    delattr(world.index, broken)
    for _ in range(4):
        world.tick()
    assert list(world.artifacts.admitted) == [ready.name.artifact_key()]


def test_what_somebody_else_changed_meanwhile_is_a_conflict_and_not_a_failure(world):
    world.version(State.WARMING, stored=HOUR)

    class Faster(MemoryRegistry):
        def write(self, *changes):
            raise WriteConflictError("somebody else was faster")

    faster = Faster()
    faster.records = world.registry.records
    assert counts(world.tick(registry=faster)) == {"conflicts": 1}


def test_the_record_decides_where_the_index_is_behind(world):
    stale = world.version(State.WARMING, stored=HOUR)
    after = stale.move(State.READY, timestamp(world.clock.time())).settle(timestamp(world.clock.time()))

    class Behind(MemorySweepIndex):
        def due(self, queue, **given):
            due = super().due(queue, **given)
            if due.keys:
                world.registry.records[("version", "acme", "iris", 1)] = after
            return due

    assert counts(world.tick(index=Behind(world.registry))) == {}
    assert world.now() == after


def test_the_age_of_the_oldest_stuck_version_leaves_awaited_uploads_out(world):
    world.version(State.AWAITING_UPLOAD, number=1, age=20 * HOUR)
    world.version(State.WARMING, number=2, age=3 * HOUR, stored=HOUR)
    assert world.tick().oldest_stuck_seconds == 3 * HOUR


def test_cursors_that_cannot_be_used_begin_at_the_start(world):
    world.version(State.WARMING, stored=HOUR)
    world.index.stored = Cursors(moving="from another table")

    class Picky(MemorySweepIndex):
        def due(self, queue, *, until, limit, cursor):
            if cursor is not None:
                raise ValueError("The provided starting key is invalid")
            return super().due(queue, until=until, limit=limit, cursor=cursor)

    index = Picky(world.registry)
    index.stored = world.index.stored
    assert world.tick(index=index).failed == 1
    assert world.tick(index=index).resumed == 1


def test_the_decision_is_a_function_of_values(make_version):
    version, rules = make_version(State.INSPECTING, updated_at="2026-11-29T12:00:00.000Z"), SweepRules()
    noon = 1_795_953_600.0
    assert not is_due(version, noon + 1199.9, rules)
    assert is_due(version, noon + 1200, rules)
    assert next_step(version, noon, stored=False, now=noon + 1200, rules=rules).value == "resume"


class TestDeletions:
    def test_a_tenant_with_very_many_models_is_gone_on_with_until_nothing_is_left(self, world):
        now = timestamp(world.clock.time())
        tenant = Tenant("acme", now, now)
        world.registry.write(Change(None, tenant))
        for number in range(250):
            model = Model("acme", f"model-{number:03d}", 1, now, now)
            version = world._make(State.READY, model=model.model, moving=False, artifact=b"%d" % number)
            world.registry.write(Change(None, model), Change(None, version))
            world.store(version.name)
        world.registry.write(Change(tenant, tenant.delete(now)))
        done = world.tick()
        assert (done.failed, done.deletions > 2) == (0, True)
        assert world.registry.tenant("acme").retiring_after is None
        versions = [record for record in world.registry.records.values() if isinstance(record, Version)]
        assert {version.state for version in versions} == {State.RETIRED}
        assert {version.purge_after for version in versions} == {timestamp(world.clock.time() + 7 * DAY)}
        assert world.tick().deletions == 0
        world.clock.now += 7 * DAY + 1
        for _ in range(3):
            world.tick()
        assert {record.state for record in world.registry.records.values() if isinstance(record, Version)} == {State.PURGED}
        assert world.artifacts.admitted == {}

    def test_a_model_with_very_many_versions_is_gone_on_with_and_one_that_lives_is_not(self, world):
        for number in range(1, 131):
            world.version(State.READY, number=number, stored=HOUR)
        model = world.registry.model("acme", "iris")
        assert world.tick().deletions == 0
        now = timestamp(world.clock.time())
        deleted = model.delete(now, retiring_below=131)
        world.registry.write(Change(model, deleted))
        world.registry.write(Change(deleted, deleted.count_up(now)))
        newest = world.version(State.READY, number=131, stored=HOUR)
        assert world.tick().deletions > 1
        left = [record for record in world.registry.records.values() if isinstance(record, Version) and record.state is not State.RETIRED]
        assert left == [newest]
        assert world.registry.model("acme", "iris").retiring_below is None

    def test_without_time_the_rest_waits_for_the_next_tick(self, world):
        for number in range(1, 131):
            world.version(State.READY, number=number, stored=HOUR)
        model = world.registry.model("acme", "iris")
        world.registry.write(Change(model, model.delete(timestamp(world.clock.time()), retiring_below=131)))

        class Slow(MemoryRegistry):
            def versions(self, *names, **given):
                world.clock.sleep(20)
                return super().versions(*names, **given)

        slow = Slow()
        slow.records = world.registry.records
        assert world.tick(seconds=30, registry=slow).deletions == 1
        assert 1 < world.registry.model("acme", "iris").retiring_below < 131
        assert world.tick().deletions >= 1
        assert world.registry.model("acme", "iris").retiring_below is None

    def test_the_parts_of_a_retired_upload_are_ended(self, world):
        past = timestamp(world.clock.time() - 1)
        version = world.version(State.RETIRED, moving=False, multipart=Multipart("upload-1", 5), purge_after=past)
        aborted = []
        world.objects.abort = lambda name, upload: aborted.append((name, upload))
        assert world.tick().purged == 1
        assert aborted == [(version.name, "upload-1")]
