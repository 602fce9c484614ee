"""Answers that come later, in the bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from mme_facts.grammar import result_key
from mme_tenancy.aws.failures import or_unavailable

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

__all__ = ["S3Results"]

_THERE = frozenset({"PreconditionFailed", "412"})
_MEETING = frozenset({"ConditionalRequestConflict", "409"})
"""Another write of the same key is under way, which may yet fail: S3 wants the request again (S3 User Guide: Conditional writes)."""
_PUTS = 3
_MISSING = frozenset({"NoSuchKey", "404", "AccessDenied", "403"})
"""Without the right to list, which nobody needs here, S3 answers 403 for what is not there."""


class S3Results:
    """`mme_tenancy.deferred.Results` on the bucket; raises `UnavailableError` when S3 cannot.

    Args:
        client: S3 client with the tenant's rights.
        bucket_name: the bucket.
    """

    def __init__(self, client: S3Client, bucket_name: str) -> None:
        self._client, self._bucket_name = client, bucket_name

    @or_unavailable
    def put(self, tenant: str, result: str, part: str, content: bytes) -> bool:
        """Write what is not there yet; false if it is."""
        key = result_key(tenant, result, part)
        for attempt in range(1, _PUTS + 1):
            try:
                self._client.put_object(Bucket=self._bucket_name, Key=key, Body=content, ContentType="application/json", IfNoneMatch="*")
            except ClientError as error:
                code = error.response["Error"]["Code"]
                if code in _THERE:
                    return False
                if code not in _MEETING or attempt == _PUTS:
                    raise
            else:
                break
        return True

    @or_unavailable
    def get(self, tenant: str, result: str, part: str) -> bytes | None:
        """What is there; ``None``: nothing is."""
        try:
            return self._client.get_object(Bucket=self._bucket_name, Key=result_key(tenant, result, part))["Body"].read()
        except ClientError as error:
            if error.response["Error"]["Code"] in _MISSING:
                return None
            raise
