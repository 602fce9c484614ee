"""Heat in the one S3 bucket."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from mme_facts.grammar import HEAT_NOTE_KEY, HEAT_PREFIX, GrammarError, HeatKey, heat_moment, heat_prefix
from mme_tenancy.heat import PoolHeat

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

__all__ = ["S3Heat"]

_GONE = frozenset({"NoSuchKey", "404"})
_CHANGED = frozenset({"PreconditionFailed", "412", "ConditionalRequestConflict", "409", "NoSuchKey", "404"})


class S3Heat:
    """`mme_tenancy.heat.HeatStore` on the bucket: every write is conditional.

    Args:
        client: S3 client.
        bucket_name: the bucket.
    """

    def __init__(self, client: S3Client, bucket_name: str) -> None:
        self._client = client
        self._bucket_name = bucket_name

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
        found = self._get(key.key)
        return None if found is None else (PoolHeat.load(key, found[0]), found[1])

    def create(self, heat: PoolHeat) -> bool:
        """Write a window that is not there yet; ``False`` if it is."""
        return self._put(heat.key.key, heat.dump(), None)

    def replace(self, heat: PoolHeat, revision: str) -> bool:
        """Write a window in place of the one with this ETag; ``False`` if it has another one now."""
        return self._put(heat.key.key, heat.dump(), revision)

    def recounted_until(self) -> tuple[int, str] | None:
        """Up to when all windows were counted again (epoch seconds), and the note's ETag.

        Listed first: who may list only below ``heat/`` is told 403 instead of 404 of an object that is not there.
        """
        listed = self._client.list_objects_v2(Bucket=self._bucket_name, Prefix=HEAT_NOTE_KEY, MaxKeys=1)
        found = self._get(HEAT_NOTE_KEY) if listed.get("Contents") else None
        return None if found is None else (int(json.loads(found[0])["recounted_until"]), found[1])

    def note_recounted(self, until: int, revision: str | None) -> bool:
        """Change that note; ``False`` if it has another ETag now."""
        return self._put(HEAT_NOTE_KEY, json.dumps({"recounted_until": until}).encode(), revision)

    def _get(self, key: str) -> tuple[bytes, str] | None:
        try:
            answer = self._client.get_object(Bucket=self._bucket_name, Key=key)
        except ClientError as error:
            if _code(error) in _GONE:
                return None
            raise
        return answer["Body"].read(), answer["ETag"]

    def _put(self, key: str, body: bytes, revision: str | None) -> bool:
        condition: dict[str, Any] = {"IfNoneMatch": "*"} if revision is None else {"IfMatch": revision}
        kind = "application/gzip" if key.endswith(".gz") else "application/json"
        try:
            self._client.put_object(Bucket=self._bucket_name, Key=key, Body=body, ContentType=kind, **condition)
        except ClientError as error:
            if _code(error) in _CHANGED:
                return False
            raise
        return True


def _parsed(key: str) -> HeatKey | None:
    try:
        return HeatKey.parse(key)
    except GrammarError:
        return None


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))
