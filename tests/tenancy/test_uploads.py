"""Uploads in parts: how an artifact is split, and the same story with the fake and with the bucket of the local cloud."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import random
import urllib.error
import urllib.request
from dataclasses import replace

import boto3
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mme_facts.grammar import ArtifactName, VersionId
from mme_facts.limits import MULTIPART_PART_BYTES_GREATEST, MULTIPART_PART_BYTES_LEAST, MULTIPART_PARTS
from mme_tenancy.artifacts import StoredPart, UploadGoneError
from mme_tenancy.aws.clients import s3_client
from mme_tenancy.aws.uploads import S3UploadSigner
from mme_tenancy.clock import SystemClock
from mme_tenancy.errors import (
    ForbiddenMoveError,
    ModelNotFoundError,
    QuotaExceededError,
    TenantDeletedError,
    TenantNotFoundError,
    UploadIncompleteError,
    VersionNotFoundError,
    WriteConflictError,
)
from mme_tenancy.registration import Registrar, Registration
from mme_tenancy.registry import Change
from mme_tenancy.tenants import Quotas, Tenant, Usage
from mme_tenancy.testing import FakeClock, MemoryRegistry, MemorySigner
from mme_tenancy.uploads import GREATEST_UPLOAD_BYTES, PART_BYTES, PARTS, missing_parts, part_bytes_of, slices
from mme_tenancy.versions import Multipart, Sample, State

NOW = "2026-11-29T12:00:00.000Z"
TENANT = Tenant("acme", NOW, NOW)
BODY = b"".join(bytes([number]) * (1 << 20) for number in range(17)) + b"end"
SMALL = b"an artifact"


@given(st.integers(1, GREATEST_UPLOAD_BYTES) | st.integers(1, 2 * PARTS * PART_BYTES))
def test_parts_cover_the_artifact_within_the_limits_of_s3(size_bytes):
    part_bytes = part_bytes_of(size_bytes)
    if part_bytes is None:
        assert size_bytes <= PART_BYTES
        return
    parts = list(slices(size_bytes, part_bytes))
    assert 2 <= len(parts) <= PARTS <= MULTIPART_PARTS
    assert [part.number for part in parts] == list(range(1, len(parts) + 1))
    assert [part.offset for part in parts] == [(part.number - 1) * part_bytes for part in parts]
    assert sum(part.size_bytes for part in parts) == size_bytes
    assert all(MULTIPART_PART_BYTES_LEAST <= part.size_bytes == part_bytes <= MULTIPART_PART_BYTES_GREATEST for part in parts[:-1])
    assert 1 <= parts[-1].size_bytes <= part_bytes


def test_parts_are_no_larger_than_they_must_be():
    assert [part_bytes_of(size) for size in (PART_BYTES, PART_BYTES + 1, 100 * PART_BYTES)] == [None, PART_BYTES, PART_BYTES]
    assert part_bytes_of(100 * PART_BYTES + 1) == PART_BYTES + (1 << 20)
    assert part_bytes_of(GREATEST_UPLOAD_BYTES) == MULTIPART_PART_BYTES_GREATEST


def test_a_part_of_another_size_counts_as_missing():
    stored = {1: StoredPart(1, "a", 10), 2: StoredPart(2, "b", 10), 3: StoredPart(3, "c", 10), 9: StoredPart(9, "d", 10)}
    assert missing_parts(25, 10, stored) == [3]
    assert missing_parts(30, 10, stored) == []
    assert missing_parts(35, 10, stored) == [4]


class Started:
    """Keeps what admission was started for."""

    def __init__(self):
        self.uploads = []

    def resume(self, upload):
        self.uploads.append(upload)


class Story:
    """A tenant with a registrar, and the tenant's side of its uploads."""

    def __init__(self, signer, pool, send):
        self.registry, self.signer, self.send, self.started = MemoryRegistry(), signer, send, Started()
        self.registry.write(Change(None, TENANT))
        self.clock = FakeClock()
        self.registrar = Registrar(self.registry, signer, [pool], self.clock, lambda: 0.5, self.started)

    def register(self, body=BODY, size_bytes=None):
        digest = hashlib.sha256(body).hexdigest()
        registration = Registration(digest, size_bytes or len(body), "xgboost", Sample("text/csv", b"1"))
        return self.registrar.register("acme", "iris", registration)

    def upload(self, registered, body=BODY, numbers=None):
        """Send parts, those with ``numbers`` or all, or the whole body."""
        upload = registered.upload
        if not upload.parts:
            return self.send(registered.version, upload, body)
        for part in upload.parts:
            if numbers is None or part.number in numbers:
                self.send(registered.version, part, body[part.offset : part.offset + part.size_bytes])
        return None

    def complete(self, version=None):
        return self.registrar.complete("acme", "iris", version or VersionId.of(1, hashlib.sha256(BODY).hexdigest()))

    def move(self, *states):
        for state in states:
            version = self.registry.version("acme", "iris", 1)
            self.registry.write(Change(version, version.move(state, NOW)))


def over_http(_version, signed, body):
    request = urllib.request.Request(signed.url, data=body, method="PUT", headers=signed.headers)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


@pytest.fixture(params=["memory", "s3"])
def story(request, pool):
    if request.param == "memory":
        signer = MemorySigner(SystemClock())

        def send(version, signed, body):
            if version.multipart is None:
                signer.artifacts.put(version.name, body)
            else:
                signer.put_part(version.multipart.upload_id, signed.number, body)

        return Story(signer, pool, send)
    client, bucket = s3_client(request.getfixturevalue("cloud_session")), request.getfixturevalue("bucket_name")
    return Story(S3UploadSigner(client, bucket, SystemClock()), pool, over_http)


def test_a_large_artifact_is_uploaded_in_parts_and_completed(story):
    registered = story.register()
    assert registered.version.multipart.part_bytes == PART_BYTES
    assert (registered.upload.url, [part.uploaded for part in registered.upload.parts]) == (None, [False] * 3)
    story.upload(registered)
    version = story.complete()
    assert version.state is State.AWAITING_UPLOAD
    (upload,) = story.started.uploads
    assert upload == story.signer.uploaded(version.name)
    assert upload.name == version.name


def test_completing_again_changes_nothing_and_starts_admission_as_long_as_nothing_has_moved(story):
    story.upload(story.register())
    story.complete()
    story.complete()
    assert len(set(story.started.uploads)) == 1
    assert len(story.started.uploads) == 2
    story.move(State.INSPECTING)
    assert story.complete().state is State.INSPECTING
    assert len(story.started.uploads) == 2


def test_an_event_that_moved_the_version_meanwhile_starts_nothing(story):
    story.upload(story.register())
    complete = story.signer.complete

    def event_first(*arguments):
        upload = complete(*arguments)
        story.move(State.INSPECTING)
        return upload

    story.signer.complete = event_first
    assert story.complete().state is State.INSPECTING
    assert story.started.uploads == []


@pytest.mark.parametrize("looks", range(1, 6))
def test_an_event_that_comes_a_moment_later_starts_nothing_either(story, looks):
    story.upload(story.register())
    sleep = story.clock.sleep

    def event_meanwhile(seconds):
        sleep(seconds)
        if len(story.clock.slept) == looks:
            story.move(State.INSPECTING)

    story.clock.sleep = event_meanwhile
    assert story.complete().state is State.INSPECTING
    assert (story.started.uploads, story.clock.slept) == ([], [0.5] * looks)


def test_an_event_that_does_not_come_is_waited_for_three_seconds(story):
    story.upload(story.register())
    story.complete()
    assert sum(story.clock.slept) == 3
    assert len(story.started.uploads) == 1


def test_missing_parts_are_named_and_nothing_is_put_together(story):
    registered = story.register()
    story.upload(registered, numbers={2})
    with pytest.raises(UploadIncompleteError, match="2 parts are missing: upload 1, 3") as caught:
        story.complete()
    assert (caught.value.field, caught.value.value) == ("parts", "1, 3")
    assert story.signer.uploaded(registered.version.name) is None
    assert story.started.uploads == []


def test_registering_again_renews_the_addresses_and_goes_on_with_what_is_there(story):
    first = story.register()
    story.upload(first, numbers={1, 3})
    again = story.register()
    assert not again.created
    assert again.version == first.version
    assert [part.uploaded for part in again.upload.parts] == [True, False, True]
    story.upload(again, numbers={2})
    story.complete()
    assert len(story.started.uploads) == 1


def test_registering_again_when_everything_is_put_together_asks_for_no_upload(story):
    story.upload(story.register())
    story.complete()
    again = story.register()
    assert (again.upload, again.created, again.document()["upload"]) == (None, False, None)
    story.complete()


def test_an_upload_that_was_given_up_begins_anew(story):
    first = story.register()
    story.signer.abort(first.version.name, first.version.multipart.upload_id)
    with pytest.raises(UploadIncompleteError, match="register the artifact again"):
        story.complete()
    again = story.register()
    assert again.version.multipart.upload_id != first.version.multipart.upload_id
    assert story.registry.version("acme", "iris", 1) == again.version
    story.upload(again)
    story.complete()


def test_a_corrected_size_changes_the_parts_and_gives_the_old_ones_up(story):
    wrong = story.register(size_bytes=5)
    assert wrong.upload.parts == ()
    in_parts = story.register()
    assert (in_parts.version.number, len(in_parts.upload.parts)) == (1, 3)
    larger = story.register(size_bytes=101 * PART_BYTES)
    assert larger.version.multipart.part_bytes > PART_BYTES
    assert story.signer.parts(in_parts.version.name, in_parts.version.multipart.upload_id) is None
    small = story.register(size_bytes=5)
    assert (small.version.multipart, small.upload.parts) == (None, ())
    assert story.signer.parts(larger.version.name, larger.version.multipart.upload_id) is None


def test_a_size_that_keeps_the_parts_keeps_the_upload(story):
    first = story.register(size_bytes=len(BODY) - 1)
    story.upload(first)
    again = story.register()
    assert again.version.multipart == first.version.multipart
    assert [part.uploaded for part in again.upload.parts] == [True, True, False]
    with pytest.raises(UploadIncompleteError, match="upload 3"):
        story.complete()
    story.upload(again, numbers={3})
    story.complete()


def test_a_refused_registration_leaves_no_upload_behind(story, monkeypatch):
    begun = []
    begin = story.signer.begin
    monkeypatch.setattr(story.signer, "begin", lambda name: begun.append((name, begin(name))) or begun[-1][1])
    story.registry.write(Change(TENANT, replace(TENANT, quotas=Quotas(stored_bytes=1), rev=2)))
    with pytest.raises(QuotaExceededError):
        story.register()
    ((name, upload_id),) = begun
    assert story.signer.parts(name, upload_id) is None


def test_a_small_artifact_is_completed_once_it_is_there(story):
    registered = story.register(SMALL)
    with pytest.raises(UploadIncompleteError, match="nothing is uploaded"):
        story.complete(registered.version.id)
    story.upload(registered, SMALL)
    assert story.complete(registered.version.id) == registered.version
    assert story.started.uploads == [story.signer.uploaded(registered.version.name)]


@pytest.mark.parametrize(
    "states",
    [
        (State.INSPECTING, State.REJECTED),
        (State.INSPECTING, State.STORED),
        (State.INSPECTING, State.STORED, State.WARMING, State.READY, State.ACTIVE),
        (State.INSPECTING, State.STORED, State.WARMING, State.READY, State.RETIRED),
    ],
)
def test_a_version_that_went_on_is_answered_as_it_is(story, states):
    story.register(SMALL)
    story.move(*states)
    assert story.complete(VersionId.of(1, hashlib.sha256(SMALL).hexdigest())).state is states[-1]
    assert story.started.uploads == []


def test_an_expired_version_cannot_be_completed(story):
    story.upload(story.register())
    story.move(State.EXPIRED)
    with pytest.raises(ForbiddenMoveError, match="register the artifact again"):
        story.complete()


def test_what_is_not_there_cannot_be_completed(story):
    version = VersionId.of(1, hashlib.sha256(BODY).hexdigest())
    with pytest.raises(TenantNotFoundError):
        story.registrar.complete("nobody", "iris", version)
    with pytest.raises(ModelNotFoundError):
        story.complete()
    story.register()
    for other in (VersionId.of(2, hashlib.sha256(BODY).hexdigest()), VersionId.of(1, "0" * 64)):
        with pytest.raises(VersionNotFoundError):
            story.complete(other)
    story.registry.write(Change(TENANT, replace(TENANT, deleted_at=NOW, rev=2)))
    with pytest.raises(TenantDeletedError):
        story.complete()


def test_without_a_way_to_start_admission_it_is_left_to_the_event(story, pool):
    story.registrar = Registrar(story.registry, story.signer, [pool], story.clock, lambda: 0.5)
    story.upload(story.register())
    assert story.complete().state is State.AWAITING_UPLOAD
    assert (story.started.uploads, story.clock.slept) == ([], [])


class Faulty:
    """Passes calls on; the one with the number ``at``, counted over all that share ``made``, fails before or after its effect."""

    def __init__(self, target, made, at, after):
        self.target, self.made, self.at, self.after = target, made, at, after

    def __getattr__(self, name):
        method = getattr(self.target, name)
        if not callable(method) or name.startswith("sign"):
            return method

        def call(*arguments, **options):
            self.made.append(name)
            if len(self.made) == self.at and not self.after:
                raise ConnectionError(name)
            outcome = method(*arguments, **options)
            if len(self.made) == self.at:
                raise ConnectionError(name)
            return outcome

        return call


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", range(1, 18))
def test_whatever_call_fails_the_same_requests_again_bring_the_upload_to_its_end(pool, monkeypatch, at, after):
    monkeypatch.setattr("mme_tenancy.uploads.PART_BYTES", 1 << 20)
    body = BODY[: (2 << 20) + 3]
    clock, made, started = FakeClock(), [], Started()
    registry, signer = MemoryRegistry(), MemorySigner(clock)
    registry.write(Change(None, TENANT))
    faulty_registry, faulty_signer, faulty_start = (Faulty(part, made, at, after) for part in (registry, signer, started))
    registrar = Registrar(faulty_registry, faulty_signer, [pool], clock, lambda: 0.5, faulty_start)
    digest = hashlib.sha256(body).hexdigest()
    version_id = VersionId.of(1, digest)

    def trying(work):
        for _ in range(3):
            with contextlib.suppress(ConnectionError):
                return work()
        raise AssertionError(made)

    for numbers in ({1, 2}, {3}):
        registration = Registration(digest, len(body), "xgboost", Sample("text/csv", b"1"))
        registered = trying(lambda: registrar.register("acme", "iris", registration))  # noqa: B023
        for signed in registered.upload.parts:
            if signed.number in numbers:
                upload_id = registered.version.multipart.upload_id
                signer.put_part(upload_id, signed.number, body[signed.offset : signed.offset + signed.size_bytes])
    assert trying(lambda: registrar.complete("acme", "iris", version_id)).state is State.AWAITING_UPLOAD
    assert len(made) >= 16
    assert signer.artifacts.incoming == {registered.version.name.incoming_key: body}
    assert set(started.uploads) == {signer.uploaded(registered.version.name)}
    assert (registry.model("acme", "iris").last_version, registry.usages["acme"]) == (1, Usage("acme", 1, len(body)))
    assert registered.version.multipart.upload_id not in signer.multiparts


@pytest.mark.parametrize("size_bytes", [100 * PART_BYTES, GREATEST_UPLOAD_BYTES])
def test_the_longest_answer_fits_an_idempotency_item(size_bytes):
    token = base64.b64encode(random.Random(1).randbytes(1050)).decode()  # as long as those of function roles get
    client = s3_client(boto3.Session("AKIAEXAMPLE", "secret", token, region_name="ap-southeast-2"))
    signer = S3UploadSigner(client, "b" * 63, SystemClock())
    name = ArtifactName("t" * 63, "m" * 63, VersionId(999_999, "0" * 12))
    upload = signer.sign_parts(name, Multipart("u" * 130, part_bytes_of(size_bytes)), size_bytes=size_bytes, uploaded={}, seconds=3600)
    assert len(upload.parts) == PARTS
    assert len(json.dumps(upload.document())) < 400_000 * 0.8


class TestInTheBucket:
    """What only the bucket itself can refuse."""

    @pytest.fixture
    def signer(self, cloud_session, bucket_name):
        return S3UploadSigner(s3_client(cloud_session), bucket_name, SystemClock())

    @pytest.fixture
    def name(self):
        return ArtifactName("acme", "iris", VersionId.of(1, hashlib.sha256(BODY).hexdigest()))

    @pytest.fixture
    def upload(self, signer, name):
        multipart = Multipart(signer.begin(name), PART_BYTES)
        return multipart, signer.sign_parts(name, multipart, size_bytes=len(BODY), uploaded={}, seconds=60)

    def test_a_part_of_another_size_number_or_key_is_refused(self, upload):
        _multipart, signed = upload
        part = signed.parts[2]
        body = BODY[part.offset :]
        assert over_http(None, replace(part, headers={"Content-Length": str(len(body) - 1)}), body[:-1]) == 403
        assert over_http(None, replace(part, headers={}), body + b"more") == 403
        assert over_http(None, replace(part, url=part.url.replace("partNumber=3", "partNumber=4")), body) == 403
        assert over_http(None, replace(part, url=part.url.replace("/acme/", "/other/")), body) == 403
        assert over_http(None, part, body) == 200

    def test_a_part_of_an_upload_that_ended_is_refused(self, signer, name, upload):
        multipart, signed = upload
        signer.abort(name, multipart.upload_id)
        signer.abort(name, multipart.upload_id)
        assert over_http(None, signed.parts[2], BODY[signed.parts[2].offset :]) == 404

    def test_what_was_listed_must_still_be_there_when_it_is_put_together(self, signer, name, upload):
        multipart, signed = upload
        for part in signed.parts:
            over_http(None, part, BODY[part.offset : part.offset + part.size_bytes])
        listed = list(signer.parts(name, multipart.upload_id).values())
        over_http(None, signed.parts[2], bytes(signed.parts[2].size_bytes))
        with pytest.raises(WriteConflictError):
            signer.complete(name, multipart.upload_id, listed)
        assert signer.uploaded(name) is None

    def test_nothing_is_put_over_an_object_that_is_there(self, signer, name, upload, cloud_session, bucket_name):
        multipart, signed = upload
        for part in signed.parts:
            over_http(None, part, BODY[part.offset : part.offset + part.size_bytes])
        client = s3_client(cloud_session)
        client.put_object(Bucket=bucket_name, Key=name.incoming_key, Body=b"first")
        with pytest.raises(UploadGoneError):
            signer.complete(name, multipart.upload_id, list(signer.parts(name, multipart.upload_id).values()))
        assert client.get_object(Bucket=bucket_name, Key=name.incoming_key)["Body"].read() == b"first"

    def test_the_object_holds_the_parts_in_their_order_whatever_the_order_they_came_in(
        self, signer, name, upload, cloud_session, bucket_name
    ):
        multipart, signed = upload
        for part in reversed(signed.parts):
            over_http(None, part, BODY[part.offset : part.offset + part.size_bytes])
        stored = signer.parts(name, multipart.upload_id)
        uploaded = signer.complete(name, multipart.upload_id, [stored[number] for number in sorted(stored)])
        got = s3_client(cloud_session).get_object(Bucket=bucket_name, Key=name.incoming_key)
        assert got["ETag"].strip('"') == uploaded.etag
        assert hashlib.sha256(got["Body"].read()).digest() == hashlib.sha256(BODY).digest()

    def test_an_object_with_a_longer_key_is_not_the_artifact(self, signer, name, cloud_session, bucket_name):
        s3_client(cloud_session).put_object(Bucket=bucket_name, Key=f"{name.incoming_key}.old", Body=b"x")
        assert signer.uploaded(name) is None
