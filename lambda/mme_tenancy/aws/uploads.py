"""Uploads into the one S3 bucket: signed, in one request or in parts, and completed."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from mme_facts.grammar import ArtifactName
from mme_tenancy.artifacts import StoredPart, Upload, UploadedObject, UploadGoneError, UploadPart
from mme_tenancy.clock import Clock, timestamp
from mme_tenancy.errors import WriteConflictError
from mme_tenancy.uploads import slices
from mme_tenancy.versions import Multipart

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

__all__ = ["S3UploadSigner"]

_ENDED = frozenset({"NoSuchUpload", "PreconditionFailed", "412"})
_CHANGED = frozenset({"InvalidPart", "ConditionalRequestConflict", "409"})


class S3UploadSigner:
    """`mme_tenancy.artifacts.UploadSigner` by presigned requests.

    The signature of a single request pins size, SHA-256 and that the key must be new, so S3 itself refuses any other body and any second
    upload (Amazon S3: checking object integrity; conditional writes). That of a part pins the part's size; S3 knows no SHA-256 of a whole
    multipart object, so admission checks the digest. It is completed on the condition that the key is new and the size as declared.

    Args:
        client: S3 client.
        bucket_name: the bucket.
        clock: time.
    """

    def __init__(self, client: S3Client, bucket_name: str, clock: Clock) -> None:
        self._client = client
        self._bucket_name = bucket_name
        self._clock = clock

    def sign(self, name: ArtifactName, *, sha256: str, size_bytes: int, seconds: int) -> Upload:
        """An upload of exactly this artifact, once, valid for ``seconds``."""
        digest = base64.b64encode(bytes.fromhex(sha256)).decode()
        parameters = {"ContentLength": size_bytes, "ChecksumSHA256": digest, "IfNoneMatch": "*"}
        headers = {"Content-Length": str(size_bytes), "x-amz-checksum-sha256": digest, "If-None-Match": "*"}
        return Upload("PUT", self._url("put_object", name, parameters, seconds), headers, self._end(seconds))

    def sign_parts(
        self, name: ArtifactName, multipart: Multipart, *, size_bytes: int, uploaded: Mapping[int, StoredPart], seconds: int
    ) -> Upload:
        """An upload in parts, valid for ``seconds``; ``uploaded`` is what `parts` found."""
        parts = []
        for part in slices(size_bytes, multipart.part_bytes):
            parameters = {"UploadId": multipart.upload_id, "PartNumber": part.number, "ContentLength": part.size_bytes}
            url = self._url("upload_part", name, parameters, seconds)
            there = uploaded.get(part.number)
            parts.append(
                UploadPart(
                    part.number,
                    part.offset,
                    part.size_bytes,
                    url,
                    {"Content-Length": str(part.size_bytes)},
                    uploaded=there is not None and there.size_bytes == part.size_bytes,
                )
            )
        return Upload("PUT", None, {}, self._end(seconds), tuple(parts))

    def begin(self, name: ArtifactName) -> str:
        """Begin an upload in parts; its id."""
        return self._client.create_multipart_upload(Bucket=self._bucket_name, Key=name.incoming_key)["UploadId"]

    def abort(self, name: ArtifactName, upload_id: str) -> None:
        """Give an upload in parts up, and what is there of it; does nothing if it has ended."""
        try:
            self._client.abort_multipart_upload(Bucket=self._bucket_name, Key=name.incoming_key, UploadId=upload_id)
        except ClientError as error:
            if _code(error) not in _ENDED:
                raise

    def parts(self, name: ArtifactName, upload_id: str) -> Mapping[int, StoredPart] | None:
        """The parts that are there, by number; ``None`` if there is no such upload, or not any more."""
        pages = self._client.get_paginator("list_parts").paginate(Bucket=self._bucket_name, Key=name.incoming_key, UploadId=upload_id)
        try:
            found = [part for page in pages for part in page.get("Parts", [])]
        except ClientError as error:
            if _code(error) in _ENDED:
                return None
            raise
        return {part["PartNumber"]: StoredPart(part["PartNumber"], part["ETag"], part["Size"]) for part in found}

    def complete(self, name: ArtifactName, upload_id: str, parts: Sequence[StoredPart]) -> UploadedObject:
        """Put parts together to an object that must be new; raises `UploadGoneError` or `WriteConflictError`."""
        try:
            answer = self._client.complete_multipart_upload(
                Bucket=self._bucket_name,
                Key=name.incoming_key,
                UploadId=upload_id,
                MultipartUpload={"Parts": [{"PartNumber": part.number, "ETag": part.etag} for part in parts]},
                MpuObjectSize=sum(part.size_bytes for part in parts),
                IfNoneMatch="*",
            )
        except ClientError as error:
            if _code(error) in _ENDED:
                raise UploadGoneError(str(error)) from error
            if _code(error) in _CHANGED:
                raise WriteConflictError("a part of the upload changed at the same time: try again", retry_after_seconds=1) from error
            raise
        return UploadedObject(name, answer["ETag"].strip('"'))

    def uploaded(self, name: ArtifactName) -> UploadedObject | None:
        """The uploaded object, if it is there: by a listing, so that who asks needs no right to read uploads."""
        answer = self._client.list_objects_v2(Bucket=self._bucket_name, Prefix=name.incoming_key, MaxKeys=1)
        found = [item for item in answer.get("Contents", []) if item["Key"] == name.incoming_key]
        return UploadedObject(name, found[0]["ETag"].strip('"')) if found else None

    def _url(self, operation: str, name: ArtifactName, parameters: Mapping[str, Any], seconds: int) -> str:
        return self._client.generate_presigned_url(
            operation,
            Params={"Bucket": self._bucket_name, "Key": name.incoming_key, **parameters},
            ExpiresIn=seconds,
            HttpMethod="PUT",
        )

    def _end(self, seconds: int) -> str:
        return timestamp(self._clock.time() + seconds)


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))
