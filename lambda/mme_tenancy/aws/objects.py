"""Small objects of the one S3 bucket that are read whole, and written only if nobody else wrote them meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

__all__ = ["ConditionalObjects"]

_GONE = frozenset({"NoSuchKey", "404"})
_CHANGED = frozenset({"PreconditionFailed", "412", "ConditionalRequestConflict", "409", "NoSuchKey", "404"})


class ConditionalObjects:
    """Objects by key, with their ETag as revision.

    Args:
        client: S3 client.
        bucket_name: the bucket.
    """

    def __init__(self, client: S3Client, bucket_name: str) -> None:
        self._client = client
        self._bucket_name = bucket_name

    def get(self, key: str) -> tuple[bytes, str] | None:
        """The content and its ETag, if it is there."""
        try:
            answer = self._client.get_object(Bucket=self._bucket_name, Key=key)
        except ClientError as error:
            if _code(error) in _GONE:
                return None
            raise
        return answer["Body"].read(), answer["ETag"]

    def find(self, key: str) -> tuple[bytes, str] | None:
        """As `get`, for a key that may well not be there.

        Listed first: who may list only below a prefix is told 403 instead of 404 of an object that is not there.
        """
        listed = self._client.list_objects_v2(Bucket=self._bucket_name, Prefix=key, MaxKeys=1)
        return self.get(key) if listed.get("Contents") else None

    def put(self, key: str, body: bytes, revision: str | None) -> bool:
        """Write in place of the object with this ETag, or of none (``None``); ``False`` if something else is there now."""
        condition: dict[str, Any] = {"IfNoneMatch": "*"} if revision is None else {"IfMatch": revision}
        kind = "application/gzip" if key.endswith(".gz") else "application/json"
        try:
            self._client.put_object(Bucket=self._bucket_name, Key=key, Body=body, ContentType=kind, **condition)
        except ClientError as error:
            if _code(error) in _CHANGED:
                return False
            raise
        return True


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))
