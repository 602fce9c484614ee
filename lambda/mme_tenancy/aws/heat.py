"""Heat in the one S3 bucket."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from mme_facts.grammar import HEAT_NOTE_KEY, HEAT_PREFIX, GrammarError, HeatKey, heat_moment, heat_prefix
from mme_tenancy.aws.objects import ConditionalObjects
from mme_tenancy.heat import PoolHeat

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

__all__ = ["S3Heat"]


class S3Heat:
    """`mme_tenancy.heat.HeatStore` on the bucket: every write is conditional.

    Args:
        client: S3 client.
        bucket_name: the bucket.
    """

    def __init__(self, client: S3Client, bucket_name: str) -> None:
        self._client = client
        self._bucket_name = bucket_name
        self._objects = ConditionalObjects(client, bucket_name)

    def pools(self) -> list[str]:
        """The pools that have any heat, by name."""
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket_name, Prefix=HEAT_PREFIX, Delimiter="/")
        found = (entry["Prefix"] for page in pages for entry in page.get("CommonPrefixes", ()))
        return sorted(prefix.removeprefix(HEAT_PREFIX).removesuffix("/") for prefix in found)

    def windows(self, pool: str, *, since: int) -> list[HeatKey]:
        """The windows of a pool that begin at ``since`` (epoch seconds) or later, oldest first; other objects are passed over."""
        prefix = heat_prefix(pool)
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket_name, Prefix=prefix, StartAfter=prefix + heat_moment(since)
        )
        keys = (_parsed(entry["Key"]) for page in pages for entry in page.get("Contents", ()))
        return sorted(key for key in keys if key is not None)

    def get(self, key: HeatKey) -> tuple[PoolHeat, str] | None:
        """One window's heat and its ETag, if it is there; raises `HeatError`."""
        found = self._objects.get(key.key)
        return None if found is None else (PoolHeat.load(key, found[0]), found[1])

    def create(self, heat: PoolHeat) -> bool:
        """Write a window that is not there yet; ``False`` if it is."""
        return self._objects.put(heat.key.key, heat.dump(), None)

    def replace(self, heat: PoolHeat, revision: str) -> bool:
        """Write a window in place of the one with this ETag; ``False`` if it has another one now."""
        return self._objects.put(heat.key.key, heat.dump(), revision)

    def recounted_until(self) -> tuple[int, str] | None:
        """Up to when all windows were counted again (epoch seconds), and the note's ETag."""
        found = self._objects.find(HEAT_NOTE_KEY)
        return None if found is None else (int(json.loads(found[0])["recounted_until"]), found[1])

    def note_recounted(self, until: int, revision: str | None) -> bool:
        """Change that note; ``False`` if it has another ETag now."""
        return self._objects.put(HEAT_NOTE_KEY, json.dumps({"recounted_until": until}).encode(), revision)


def _parsed(key: str) -> HeatKey | None:
    try:
        return HeatKey.parse(key)
    except GrammarError:
        return None
