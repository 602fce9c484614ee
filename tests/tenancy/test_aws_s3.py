from __future__ import annotations

import hashlib
import urllib.error
import urllib.request
from urllib.parse import parse_qs, urlsplit

import boto3
import pytest
from botocore.exceptions import ClientError

from mme_facts.grammar import ArtifactName, VersionId
from mme_tenancy.artifacts import UploadedObject, UploadGoneError
from mme_tenancy.aws.clients import s3_client
from mme_tenancy.aws.s3 import S3Artifacts
from mme_tenancy.aws.uploads import S3UploadSigner
from mme_tenancy.clock import SystemClock
from mme_tenancy.testing import FakeClock

BODY = bytes(range(256)) * 10
NAME = ArtifactName("acme", "iris", VersionId.of(1, hashlib.sha256(BODY).hexdigest()))


@pytest.fixture
def client(cloud_session):
    return s3_client(cloud_session)


@pytest.fixture
def upload(client, bucket_name):
    signer = S3UploadSigner(client, bucket_name, SystemClock())
    return signer.sign(NAME, sha256=hashlib.sha256(BODY).hexdigest(), size_bytes=len(BODY), seconds=60)


def put(upload, body, headers):
    request = urllib.request.Request(upload.url, data=body, method=upload.method, headers=headers)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def keys(client, bucket_name):
    return [item["Key"] for item in client.list_objects_v2(Bucket=bucket_name).get("Contents", [])]


def test_the_signed_upload_takes_the_declared_artifact_once(client, bucket_name, upload):
    assert put(upload, BODY, upload.headers) == 200
    assert keys(client, bucket_name) == [NAME.incoming_key]
    assert put(upload, BODY, upload.headers) == 412


@pytest.mark.parametrize(
    ("body", "changes", "status"),
    [
        (BODY[::-1], {}, 400),
        (BODY[:-1], {"Content-Length": str(len(BODY) - 1)}, 403),
        (BODY, {"x-amz-checksum-sha256": None}, 403),
        (BODY, {"If-None-Match": None}, 403),
        (BODY, {"If-None-Match": "x"}, 403),
    ],
    ids=["other bytes", "other size", "no digest", "no condition", "other condition"],
)
def test_the_signed_upload_takes_nothing_else(client, bucket_name, upload, body, changes, status):
    headers = {name: value for name, value in {**upload.headers, **changes}.items() if value is not None}
    assert put(upload, body, headers) == status
    assert keys(client, bucket_name) == []


def test_the_signed_upload_is_good_for_one_key(client, bucket_name, upload):
    other = upload.url.replace("/acme/", "/other/")
    assert put(type(upload)("PUT", other, upload.headers, upload.expires_at), BODY, upload.headers) == 403
    assert keys(client, bucket_name) == []


@pytest.mark.parametrize("region", ["us-east-1", "eu-west-1"])
def test_on_aws_the_upload_is_signed_for_the_regional_virtual_host(region):
    session = boto3.Session("AKIAEXAMPLE", "secret", "token", region_name=region)
    clock = FakeClock()
    upload = S3UploadSigner(s3_client(session), "artifacts", clock).sign(NAME, sha256="0" * 64, size_bytes=10, seconds=3600)
    parts = urlsplit(upload.url)
    query = parse_qs(parts.query)
    assert (parts.scheme, parts.netloc, parts.path) == ("https", f"artifacts.s3.{region}.amazonaws.com", f"/{NAME.incoming_key}")
    assert query["X-Amz-Algorithm"] == ["AWS4-HMAC-SHA256"]
    assert query["X-Amz-SignedHeaders"] == ["content-length;host;if-none-match;x-amz-checksum-sha256"]
    assert query["X-Amz-Expires"] == ["3600"]
    assert query["X-Amz-Security-Token"] == ["token"]
    assert upload.expires_at == "2026-11-30T01:53:20.000Z"


@pytest.fixture
def uploaded(client, bucket_name):
    etag = client.put_object(Bucket=bucket_name, Key=NAME.incoming_key, Body=BODY)["ETag"].strip('"')
    return UploadedObject(NAME, etag)


@pytest.fixture
def artifacts(client, bucket_name):
    return S3Artifacts(client, bucket_name, "models/")


def test_an_upload_is_read_as_a_stream(artifacts, uploaded):
    with artifacts.read(uploaded) as chunks:
        assert b"".join(chunks) == BODY


def test_an_upload_that_was_replaced_or_removed_is_gone(artifacts, uploaded, client, bucket_name):
    client.put_object(Bucket=bucket_name, Key=NAME.incoming_key, Body=b"other")
    with pytest.raises(UploadGoneError), artifacts.read(uploaded):
        pass
    with pytest.raises(UploadGoneError):
        artifacts.admit(uploaded, len(BODY))
    client.delete_object(Bucket=bucket_name, Key=NAME.incoming_key)
    with pytest.raises(UploadGoneError), artifacts.read(uploaded):
        pass
    with pytest.raises(UploadGoneError):
        artifacts.admit(uploaded, len(BODY))
    assert keys(client, bucket_name) == []
    assert "Uploads" not in client.list_multipart_uploads(Bucket=bucket_name)


def test_an_artifact_is_copied_to_its_immutable_key(artifacts, uploaded, client, bucket_name):
    artifacts.admit(uploaded, len(BODY))
    stored = client.get_object(Bucket=bucket_name, Key=f"models/{NAME.target_model}")
    assert stored["Body"].read() == BODY
    assert stored["ContentType"] == "application/gzip"


def test_a_second_copy_changes_nothing_and_leaves_no_upload(artifacts, uploaded, client, bucket_name):
    artifacts.admit(uploaded, len(BODY))
    before = client.head_object(Bucket=bucket_name, Key=f"models/{NAME.target_model}")
    artifacts.admit(uploaded, len(BODY))
    after = client.head_object(Bucket=bucket_name, Key=f"models/{NAME.target_model}")
    assert (before["ETag"], before["LastModified"]) == (after["ETag"], after["LastModified"])
    assert "Uploads" not in client.list_multipart_uploads(Bucket=bucket_name)


def test_an_object_that_someone_else_put_at_the_key_is_not_taken_for_ours(artifacts, uploaded, client, bucket_name):
    client.put_object(Bucket=bucket_name, Key=f"models/{NAME.target_model}", Body=b"intruder")
    with pytest.raises(RuntimeError, match="8 bytes instead of 2560"):
        artifacts.admit(uploaded, len(BODY))


def test_a_large_artifact_is_copied_in_parts(client, bucket_name):
    body = b"".join(bytes([number]) * (5 << 20) for number in range(3)) + b"end"
    etag = client.put_object(Bucket=bucket_name, Key=NAME.incoming_key, Body=body)["ETag"].strip('"')
    S3Artifacts(client, bucket_name, "models/", part_bytes=5 << 20).admit(UploadedObject(NAME, etag), len(body))
    stored = client.get_object(Bucket=bucket_name, Key=f"models/{NAME.target_model}")["Body"].read()
    assert hashlib.sha256(stored).digest() == hashlib.sha256(body).digest()


def test_other_errors_of_the_store_pass_through(client, uploaded):
    with pytest.raises(ClientError, match="NoSuchBucket"), S3Artifacts(client, "no-such-bucket-here", "models/").read(uploaded):
        pass


def test_the_artifact_of_a_rejected_version_is_deleted_and_nothing_else(artifacts, uploaded, client, bucket_name):
    artifacts.admit(uploaded, len(BODY))
    artifacts.discard(NAME)
    assert keys(client, bucket_name) == [NAME.incoming_key]
    artifacts.discard(NAME)


class Denying:
    """A client whose reads and copies are denied, as S3 answers without the right to list for what is not there."""

    def __init__(self, client):
        self._client = client

    def __getattr__(self, name):
        if name in {"get_object", "upload_part_copy"}:

            def deny(**_options):
                raise ClientError({"Error": {"Code": "AccessDenied", "Message": "Access Denied"}}, name)

            return deny
        return getattr(self._client, name)


def test_denied_means_gone_only_if_the_upload_is_not_listed(uploaded, client, bucket_name):
    denied = S3Artifacts(Denying(client), bucket_name, "models/")
    with pytest.raises(ClientError, match="AccessDenied"), denied.read(uploaded):
        pass
    with pytest.raises(ClientError, match="AccessDenied"):
        denied.admit(uploaded, len(BODY))
    client.put_object(Bucket=bucket_name, Key=f"{NAME.incoming_key}.other", Body=b"")
    client.delete_object(Bucket=bucket_name, Key=NAME.incoming_key)
    with pytest.raises(UploadGoneError), denied.read(uploaded):
        pass
    with pytest.raises(UploadGoneError):
        denied.admit(uploaded, len(BODY))
