"""Reading uploads and storing admitted artifacts in the one S3 bucket."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from mme_facts.grammar import ArtifactName
from mme_tenancy.artifacts import UploadedObject, UploadGoneError

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import CompletedPartTypeDef

__all__ = ["S3Artifacts"]

_CHUNK_BYTES = 256 << 10
_COPY_PART_BYTES = 256 << 20
_COPY_THREADS = 4
_GONE = frozenset({"NoSuchKey", "404", "PreconditionFailed", "412"})
_DENIED = frozenset({"AccessDenied", "403"})


class S3Artifacts:
    """`mme_tenancy.artifacts.ArtifactStore` on the bucket.

    Args:
        client: S3 client.
        bucket_name: the bucket.
        models_prefix: the MME prefix, such as ``models/``.
        part_bytes: size of the copy's parts, 5 MiB to 5 GiB.
    """

    def __init__(self, client: S3Client, bucket_name: str, models_prefix: str, *, part_bytes: int = _COPY_PART_BYTES) -> None:
        self._client = client
        self._bucket_name = bucket_name
        self._models_prefix = models_prefix
        self._part_bytes = part_bytes

    @contextmanager
    def read(self, upload: UploadedObject) -> Iterator[Iterator[bytes]]:
        """Stream the upload in chunks of bounded size; raises `UploadGoneError`."""
        try:
            answer = self._client.get_object(Bucket=self._bucket_name, Key=upload.name.incoming_key, IfMatch=upload.etag)
        except ClientError as error:
            raise self._translated(error, upload.name) from error
        with closing(answer["Body"]) as body:
            yield body.iter_chunks(_CHUNK_BYTES)

    def admit(self, upload: UploadedObject, size_bytes: int) -> None:
        """Copy the upload, of ``size_bytes``, to its immutable key, server-side; does nothing if it is there. Raises `UploadGoneError`.

        Always a multipart copy: CopyObject ends at 5 GB, and only CompleteMultipartUpload is conditional on the key being new
        everywhere.
        """
        key = upload.name.artifact_key(self._models_prefix)
        upload_id = self._client.create_multipart_upload(Bucket=self._bucket_name, Key=key, ContentType="application/gzip")["UploadId"]
        completed = False
        try:
            parts = self._copy_parts(upload, size_bytes, key, upload_id)
            completed = self._complete(key, upload_id, parts)
        finally:
            if not completed:
                self._client.abort_multipart_upload(Bucket=self._bucket_name, Key=key, UploadId=upload_id)
        if not completed:
            self._check_there(key, size_bytes)

    def discard(self, name: ArtifactName) -> None:
        """Delete the admitted artifact of a rejected version; does nothing if there is none."""
        self._client.delete_object(Bucket=self._bucket_name, Key=name.artifact_key(self._models_prefix))

    def _copy_parts(self, upload: UploadedObject, size_bytes: int, key: str, upload_id: str) -> list[CompletedPartTypeDef]:
        def copy(number: int) -> CompletedPartTypeDef:
            first = (number - 1) * self._part_bytes
            last = min(first + self._part_bytes, size_bytes) - 1
            # S3 documents ranges for sources above 5 MB only (API reference: UploadPartCopy); a single part is the whole anyway.
            part: dict[str, Any] = {} if size_bytes <= self._part_bytes else {"CopySourceRange": f"bytes={first}-{last}"}
            try:
                answer = self._client.upload_part_copy(
                    Bucket=self._bucket_name,
                    Key=key,
                    UploadId=upload_id,
                    PartNumber=number,
                    CopySource={"Bucket": self._bucket_name, "Key": upload.name.incoming_key},
                    CopySourceIfMatch=upload.etag,
                    **part,
                )
            except ClientError as error:
                raise self._translated(error, upload.name) from error
            return {"PartNumber": number, "ETag": answer["CopyPartResult"]["ETag"]}

        numbers = range(1, -(-size_bytes // self._part_bytes) + 1)
        if len(numbers) == 1:
            return [copy(1)]
        with ThreadPoolExecutor(_COPY_THREADS) as pool:
            return list(pool.map(copy, numbers))

    def _complete(self, key: str, upload_id: str, parts: list[CompletedPartTypeDef]) -> bool:
        """Complete the copy; ``False`` if the key exists already."""
        try:
            self._client.complete_multipart_upload(
                Bucket=self._bucket_name, Key=key, UploadId=upload_id, MultipartUpload={"Parts": parts}, IfNoneMatch="*"
            )
        except ClientError as error:
            if _code(error) in {"PreconditionFailed", "412"}:
                return False
            raise
        return True

    def _check_there(self, key: str, size_bytes: int) -> None:
        """The key names the content, and only inspected content gets there; the size is a cheap check of that."""
        stored = self._client.head_object(Bucket=self._bucket_name, Key=key)["ContentLength"]
        if stored != size_bytes:
            raise RuntimeError(f"the stored artifact {key} has {stored} bytes instead of {size_bytes}: someone wrote it by hand")

    def _translated(self, error: ClientError, name: ArtifactName) -> Exception:
        """S3 may answer "denied" for an object that is not there: the right to list depends on a prefix, which a read does not have."""
        code = _code(error)
        if code in _GONE or (code in _DENIED and not self._is_listed(name.incoming_key)):
            return UploadGoneError(str(error))
        return error

    def _is_listed(self, key: str) -> bool:
        listed = self._client.list_objects_v2(Bucket=self._bucket_name, Prefix=key, MaxKeys=1)
        return any(found["Key"] == key for found in listed.get("Contents", ()))


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))
