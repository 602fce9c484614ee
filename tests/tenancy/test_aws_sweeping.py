"""One contract for what the sweep needs: the fakes keep it, and so do table, bucket and function in the local cloud."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from botocore.stub import Stubber

from mme_facts.grammar import ArtifactName, VersionId
from mme_tenancy.artifacts import UploadedObject
from mme_tenancy.aws.clients import dynamodb_client, events_client, s3_client
from mme_tenancy.aws.dynamodb import DynamoRegistry
from mme_tenancy.aws.sweeping import DynamoSweepIndex, EventAdmissions, S3SweepObjects
from mme_tenancy.registry import Change
from mme_tenancy.routes import Model
from mme_tenancy.sweep_ports import Area, Cursors, Queue, VersionKey
from mme_tenancy.tenants import Tenant
from mme_tenancy.testing import MemoryArtifacts, MemoryRegistry
from mme_tenancy.testing_sweep import MemorySweepIndex, MemorySweepObjects
from mme_tenancy.versions import State

ARTIFACT = ArtifactName("acme", "iris", VersionId(1, "0123456789ab"))
UNTIL = "2026-11-29T13:00:00.000Z"


@dataclass
class Table:
    registry: Any
    index: Any


@dataclass
class Bucket:
    objects: Any
    put: Any


@pytest.fixture(params=["memory", "aws"])
def table(request):
    if request.param == "memory":
        registry = MemoryRegistry()
        return Table(registry, MemorySweepIndex(registry))
    client, name = dynamodb_client(request.getfixturevalue("cloud_session")), request.getfixturevalue("table_name")
    return Table(DynamoRegistry(client, name), DynamoSweepIndex(client, name))


@pytest.fixture(params=["memory", "aws"])
def bucket(request):
    if request.param == "memory":
        artifacts = MemoryArtifacts()

        def put(key):
            (artifacts.incoming if key.startswith("incoming/") else artifacts.admitted)[key] = b"body"

        return Bucket(MemorySweepObjects(artifacts), put)
    client, name = s3_client(request.getfixturevalue("cloud_session")), request.getfixturevalue("bucket_name")
    return Bucket(S3SweepObjects(client, name, "models/"), lambda key: client.put_object(Bucket=name, Key=key, Body=b"body"))


def at(minute):
    return f"2026-11-29T12:{minute:02d}:00.000Z"


def test_a_queue_lists_what_is_due_oldest_first_in_parts(table, make_version):
    for number in (3, 1, 2, 4):
        table.registry.write(Change(None, make_version(State.WARMING, number=number, updated_at=at(number))))
    table.registry.write(Change(None, make_version(State.READY, number=5, updated_at=at(0), moving=False)))
    table.registry.write(Change(None, make_version(State.RETIRED, number=6, updated_at=at(0), moving=False)))
    seen, cursor = [], None
    for _ in range(4):
        due = table.index.due(Queue.MOVING, until=at(3), limit=2, cursor=cursor)
        seen += due.keys
        cursor = due.cursor
        if cursor is None:
            break
    assert seen == [VersionKey("acme", "iris", number) for number in (1, 2, 3)]
    assert cursor is None


def test_retired_versions_wait_in_a_queue_of_their_own_until_they_are_purged(table, make_version):
    retired = make_version(State.RETIRED, purge_after=UNTIL, moving=False)
    table.registry.write(Change(None, retired))
    assert table.index.due(Queue.RETIRED, until=UNTIL, limit=9, cursor=None).keys == [VersionKey("acme", "iris", 1)]
    assert table.index.due(Queue.MOVING, until=UNTIL, limit=9, cursor=None).keys == []
    table.registry.write(Change(retired, retired.move(State.PURGED, UNTIL)))
    assert table.index.due(Queue.RETIRED, until=UNTIL, limit=9, cursor=None).keys == []
    assert table.registry.version("acme", "iris", 1).moving is False


def test_a_resumed_version_stays_where_it_is_in_its_queue(table, make_version):
    stuck = make_version(State.WARMING, updated_at=at(1))
    table.registry.write(Change(None, stuck))
    resumed = stuck.resume(at(30))
    table.registry.write(Change(stuck, resumed))
    assert table.registry.version("acme", "iris", 1) == resumed
    assert table.index.due(Queue.MOVING, until=at(1), limit=9, cursor=None).keys == [VersionKey("acme", "iris", 1)]
    moved = resumed.move(State.READY, at(31))
    table.registry.write(Change(resumed, moved))
    assert table.registry.version("acme", "iris", 1) == moved


def test_records_of_many_artifacts_are_read_at_once_by_number_and_digest(table, make_version):
    versions = [make_version(State.READY, number=number, artifact=b"%d" % number) for number in range(1, 131)]
    for version in versions:
        table.registry.write(Change(None, version))
    wrong = ArtifactName("acme", "iris", VersionId(1, "0" * 12))
    missing = ArtifactName("zeta", "iris", VersionId(1, "0" * 12))
    found = table.index.versions([*(version.name for version in versions), wrong, missing])
    assert found == {version.name: version for version in versions}


def test_since_when_an_artifact_has_no_record_is_remembered_for_each(table):
    other = ArtifactName("acme", "iris", VersionId(2, "0123456789ab"))
    assert [table.index.unrecorded_seconds(ARTIFACT, now) for now in (1000.5, 1000.5, 4000.75)] == [0, 0, 3000.25]
    assert table.index.unrecorded_seconds(other, 4000.0) == 0


def test_cursors_are_remembered(table):
    assert table.index.cursors() == Cursors()
    for cursors in (Cursors("a", None, "incoming/a", "models/b"), Cursors(models="models/c")):
        table.index.remember(cursors)
        assert table.index.cursors() == cursors


def test_objects_are_listed_by_key_in_parts_and_only_of_their_area(bucket):
    for number in (2, 1, 3):
        bucket.put(f"models/acme/iris/v{number}-0123456789ab.tar.gz")
    bucket.put("models/other")
    bucket.put(ARTIFACT.incoming_key)
    first = bucket.objects.listed(Area.MODELS, limit=3, after=None)
    assert [(found.name.version.number, found.key) for found in first.objects] == [
        (number, f"models/acme/iris/v{number}-0123456789ab.tar.gz") for number in (1, 2, 3)
    ]
    second = bucket.objects.listed(Area.MODELS, limit=3, after=first.cursor)
    assert [(found.name, found.key) for found in second.objects] == [(None, "models/other")]
    assert second.cursor is None
    assert [found.name for found in bucket.objects.listed(Area.INCOMING, limit=3, after=None).objects] == [ARTIFACT]


def test_an_area_without_objects_is_empty(bucket):
    listed = bucket.objects.listed(Area.MODELS, limit=10, after=None)
    assert (list(listed.objects), listed.cursor) == ([], None)


def test_an_upload_is_there_with_its_entity_tag_or_it_is_not(bucket):
    assert bucket.objects.upload(ARTIFACT) is None
    bucket.put(ARTIFACT.incoming_key)
    (listed,) = bucket.objects.listed(Area.INCOMING, limit=10, after=None).objects
    found = bucket.objects.upload(ARTIFACT)
    assert (found.key, found.name, found.etag) == (listed.key, listed.name, listed.etag)
    assert int(found.modified_at) == int(listed.modified_at)
    assert listed.etag
    assert '"' not in listed.etag


def test_deleting_an_artifact_deletes_its_upload_too_and_may_be_repeated(bucket):
    bucket.put(ARTIFACT.artifact_key())
    bucket.put(ARTIFACT.incoming_key)
    assert bucket.objects.stored(ARTIFACT)
    for _ in range(2):
        bucket.objects.delete_artifact(ARTIFACT)
        assert (bucket.objects.stored(ARTIFACT), bucket.objects.upload(ARTIFACT)) == (False, None)


def test_deleting_what_is_not_there_is_no_failure(bucket):
    bucket.put("models/a")
    assert bucket.objects.delete(["models/a", "models/b"]) == {}
    assert bucket.objects.listed(Area.MODELS, limit=10, after=None).objects == []


def test_the_parts_of_an_abandoned_upload_are_deleted_and_once_more_does_nothing(cloud_session, bucket_name):
    client = s3_client(cloud_session)
    objects = S3SweepObjects(client, bucket_name, "models/")
    upload_id = client.create_multipart_upload(Bucket=bucket_name, Key=ARTIFACT.incoming_key)["UploadId"]
    client.upload_part(Bucket=bucket_name, Key=ARTIFACT.incoming_key, UploadId=upload_id, PartNumber=1, Body=b"part")
    for _ in range(2):
        objects.abort(ARTIFACT, upload_id)
        assert client.list_multipart_uploads(Bucket=bucket_name).get("Uploads", []) == []


def test_an_object_that_s3_would_not_delete_is_a_failure(cloud_session):
    client = s3_client(cloud_session)
    error = {"Key": ARTIFACT.artifact_key(), "Code": "AccessDenied", "Message": "no"}
    with Stubber(client) as stub:
        stub.add_response("delete_objects", {"Errors": [error]})
        stub.add_response("delete_objects", {"Errors": [error]})
        objects = S3SweepObjects(client, "bucket", "models/")
        assert objects.delete([ARTIFACT.artifact_key()]) == {ARTIFACT.artifact_key(): "AccessDenied: no"}
        with pytest.raises(RuntimeError, match="could not be deleted: AccessDenied"):
            objects.delete_artifact(ARTIFACT)


def test_keys_that_dynamodb_leaves_unprocessed_are_asked_for_again_and_never_taken_for_missing(cloud_session):
    client = dynamodb_client(cloud_session)
    left = {"Responses": {}, "UnprocessedKeys": {"table": {"Keys": [{"PK": {"S": "a"}, "SK": {"S": "b"}}], "ConsistentRead": True}}}
    with Stubber(client) as stub:
        for _ in range(8):
            stub.add_response("batch_get_item", left)
        with pytest.raises(TimeoutError, match="unprocessed"):
            DynamoSweepIndex(client, "table", sleep=lambda _seconds: None).versions([ARTIFACT])
        stub.assert_no_pending_responses()


@pytest.mark.parametrize("taken", [True, False])
def test_admission_is_called_by_the_event_of_the_upload_and_an_event_that_is_not_taken_is_an_error(cloud_session, taken):
    client = events_client(cloud_session)
    detail = {"bucket": {"name": "bucket"}, "object": {"key": ARTIFACT.incoming_key, "etag": "tag"}}
    expected = {"Entries": [{"Source": "mme.sweep", "DetailType": "Upload Resumed", "Detail": json.dumps(detail)}]}
    entry = {"EventId": "1"} if taken else {"ErrorCode": "InternalFailure", "ErrorMessage": "later"}
    with Stubber(client) as stub:
        stub.add_response("put_events", {"FailedEntryCount": int(not taken), "Entries": [entry]}, expected)
        admissions = EventAdmissions(client, "bucket")
        if taken:
            admissions.resume(UploadedObject(ARTIFACT, "tag"))
        else:
            with pytest.raises(RuntimeError, match="did not take the event: InternalFailure: later"):
                admissions.resume(UploadedObject(ARTIFACT, "tag"))
        stub.assert_no_pending_responses()


def test_deletions_of_which_something_is_left_are_listed_oldest_first(table):
    early, late = at(1), at(2)
    tenants = [Tenant(name, at(9), at(9)) for name in ("globex", "acme")]
    models = [Model("initech", name, 3, at(9), at(9)) for name in ("wine", "iris", "alive")]
    for record in (*tenants, *models):
        table.registry.write(Change(None, record))
    assert table.index.deletions(limit=9) == []
    deleted = [tenant.delete(moment) for tenant, moment in zip(tenants, (late, early), strict=True)]
    retired = [model.delete(moment, retiring_below=2) for model, moment in zip(models, (late, early), strict=False)]
    for before, after in zip((*tenants, *models), (*deleted, *retired), strict=False):
        table.registry.write(Change(before, after))
    assert table.index.deletions(limit=9) == [("acme", None), ("globex", None), ("initech", "iris"), ("initech", "wine")]
    assert table.index.deletions(limit=1) == [("acme", None), ("initech", "iris")]
    table.registry.write(Change(deleted[1], deleted[1].retired(None, late)))
    table.registry.write(Change(retired[1], retired[1].retired(None, late)))
    assert table.index.deletions(limit=9) == [("globex", None), ("initech", "wine")]
