"""What is remembered of the use of models, in the one S3 bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mme_facts.grammar import prefetch_key
from mme_tenancy.aws.objects import ConditionalObjects

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

__all__ = ["S3PrefetchStates"]


class S3PrefetchStates:
    """`mme_tenancy.warm_up.prefetching.PrefetchStates` on the bucket: one object for each pool, every write conditional.

    Args:
        client: S3 client.
        bucket_name: the bucket.
    """

    def __init__(self, client: S3Client, bucket_name: str) -> None:
        self._objects = ConditionalObjects(client, bucket_name)

    def get(self, pool: str) -> tuple[bytes, str] | None:
        """What is remembered of a pool, and its ETag; ``None``: nothing yet."""
        return self._objects.find(prefetch_key(pool))

    def put(self, pool: str, content: bytes, revision: str | None) -> bool:
        """Write it in place of the object with this ETag, or of none; ``False`` if something else is there now."""
        return self._objects.put(prefetch_key(pool), content, revision)
