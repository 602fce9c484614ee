"""The table, the bucket and the admission function as the sweep uses them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from botocore.exceptions import ClientError

from mme_facts.grammar import INCOMING_PREFIX, ArtifactName, GrammarError
from mme_facts.own_events import RESUME_DETAIL, SWEEP_SOURCE
from mme_facts.table import (
    EXPIRES_AT,
    MOVING_INDEX,
    MOVING_KEY,
    MOVING_MODEL,
    MOVING_TENANT,
    PARTITION_KEY,
    SORT_KEY,
    UPDATED_AT,
    tenant_partition,
)
from mme_tenancy.artifacts import UploadedObject
from mme_tenancy.aws.attributes import from_item, to_item
from mme_tenancy.aws.batches import read_versions
from mme_tenancy.aws.items import SCHEMA, owner_key, version_key
from mme_tenancy.sweep_ports import Area, Cursors, Due, Found, Listed, Queue, VersionKey
from mme_tenancy.versions import Version

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_s3 import S3Client

__all__ = ["DynamoSweepIndex", "EventAdmissions", "EventsClient", "S3SweepObjects"]

_REMEMBERED_SECONDS = 30 * 86_400
_STATE_KEY = {PARTITION_KEY: "SWEEP", SORT_KEY: "CURSORS"}
_MISSING = frozenset({"NoSuchKey", "NoSuchUpload", "404"})


class EventsClient(Protocol):
    """What is used of EventBridge's client."""

    def put_events(self, *, Entries: Sequence[Mapping[str, str]]) -> Mapping[str, Any]:  # noqa: N803 - boto3's name for it
        """Send events; which of them were not taken is in the answer."""
        ...


class DynamoSweepIndex:
    """`mme_tenancy.sweep_ports.SweepIndex` on the table.

    Args:
        client: DynamoDB client.
        table_name: the table.
        sleep: waits between attempts, seconds.
    """

    def __init__(self, client: DynamoDBClient, table_name: str, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._client = client
        self._table_name = table_name
        self._sleep = sleep

    def due(self, queue: Queue, *, until: str, limit: int, cursor: str | None) -> Due:
        """At most ``limit`` records of a queue that last changed at ``until`` or before, oldest first. It may be old."""
        start: dict[str, Any] = {} if cursor is None else {"ExclusiveStartKey": to_item(json.loads(cursor))}
        answer = self._client.query(
            TableName=self._table_name,
            IndexName=MOVING_INDEX,
            KeyConditionExpression=f"{MOVING_KEY} = :queue AND {UPDATED_AT} <= :until",
            ExpressionAttributeValues={":queue": {"S": queue.value}, ":until": {"S": until}},
            Limit=limit,
            **start,
        )
        last = answer.get("LastEvaluatedKey")
        return Due([VersionKey(*version_key(from_item(item))) for item in answer["Items"]], json.dumps(from_item(last)) if last else None)

    def deletions(self, *, limit: int) -> Sequence[tuple[str, str | None]]:
        """At most ``limit`` deleted tenants, and as many deleted models with their tenants, of which something is left; oldest first."""
        found: list[tuple[str, str | None]] = []
        for queue in (MOVING_TENANT, MOVING_MODEL):
            answer = self._client.query(
                TableName=self._table_name,
                IndexName=MOVING_INDEX,
                KeyConditionExpression=f"{MOVING_KEY} = :queue",
                ExpressionAttributeValues={":queue": {"S": queue}},
                Limit=limit,
            )
            found += [owner_key(from_item(item)) for item in answer["Items"]]
        return found

    def versions(self, names: Sequence[ArtifactName]) -> Mapping[ArtifactName, Version]:
        """The records of these artifacts, read consistently; those without one are left out."""
        return read_versions(self._client, self._table_name, names, sleep=self._sleep)

    def unrecorded_seconds(self, name: ArtifactName, now: float) -> float:
        """For how long the artifact has been seen without a record; the first call says 0 and remembers ``now``.

        The item of an artifact that is not seen any more expires.
        """
        answer = self._client.update_item(
            TableName=self._table_name,
            Key=to_item({PARTITION_KEY: tenant_partition(name.tenant), SORT_KEY: f"UNRECORDED#{name.model}#{name.version}"}),
            UpdateExpression="SET first_seen = if_not_exists(first_seen, :now), #expires = :expires, #schema = :schema",
            ExpressionAttributeNames={"#expires": EXPIRES_AT, "#schema": "schema"},
            ExpressionAttributeValues=to_item({":now": now, ":expires": int(now) + _REMEMBERED_SECONDS, ":schema": SCHEMA}),
            ReturnValues="ALL_NEW",
        )
        return now - float(from_item(answer["Attributes"])["first_seen"])

    def cursors(self) -> Cursors:
        """Where the last tick stopped."""
        answer = self._client.get_item(TableName=self._table_name, Key=to_item(_STATE_KEY), ConsistentRead=True)
        item = from_item(answer.get("Item", {}))
        return Cursors(item.get("moving_cursor"), item.get("retired_cursor"), item.get("incoming_cursor"), item.get("models_cursor"))

    def remember(self, cursors: Cursors) -> None:
        """Store where this tick stopped; of two ticks at the same time the later one counts."""
        item = {
            **_STATE_KEY,
            "schema": SCHEMA,
            "moving_cursor": cursors.moving,
            "retired_cursor": cursors.retired,
            "incoming_cursor": cursors.incoming,
            "models_cursor": cursors.models,
        }
        self._client.put_item(TableName=self._table_name, Item=to_item(item))


class S3SweepObjects:
    """`mme_tenancy.sweep_ports.SweepObjects` on the bucket.

    Args:
        client: S3 client.
        bucket_name: the bucket.
        models_prefix: the MME prefix, such as ``models/``.
    """

    def __init__(self, client: S3Client, bucket_name: str, models_prefix: str) -> None:
        self._client = client
        self._bucket_name = bucket_name
        self._prefixes = {Area.INCOMING: INCOMING_PREFIX, Area.MODELS: models_prefix}

    def upload(self, name: ArtifactName) -> Found | None:
        """The upload, if one is there."""
        head = self._head(name.incoming_key)
        if head is None:
            return None
        return Found(name.incoming_key, name, head["LastModified"].timestamp(), head["ETag"].strip('"'))

    def stored(self, name: ArtifactName) -> bool:
        """Whether the artifact lies below the models prefix."""
        return self._head(self._artifact_key(name)) is not None

    def abort(self, name: ArtifactName, upload_id: str) -> None:
        """End a multipart upload; does nothing if it has ended."""
        try:
            self._client.abort_multipart_upload(Bucket=self._bucket_name, Key=name.incoming_key, UploadId=upload_id)
        except ClientError as error:
            if not _is_missing(error):
                raise

    def listed(self, area: Area, *, limit: int, after: str | None) -> Listed:
        """At most ``limit`` objects of an area by key, those behind the cursor ``after``."""
        prefix = self._prefixes[area]
        start: dict[str, Any] = {} if after is None else {"StartAfter": after}
        answer = self._client.list_objects_v2(Bucket=self._bucket_name, Prefix=prefix, MaxKeys=limit, **start)
        objects = [
            Found(item["Key"], _name(item["Key"].removeprefix(prefix)), item["LastModified"].timestamp(), item["ETag"].strip('"'))
            for item in answer.get("Contents", [])
        ]
        return Listed(objects, objects[-1].key if objects and answer["IsTruncated"] else None)

    def delete(self, keys: Sequence[str]) -> Mapping[str, str]:
        """Delete objects, none of which has to be there; returns those that could not be deleted, and why."""
        answer = self._client.delete_objects(Bucket=self._bucket_name, Delete={"Objects": [{"Key": key} for key in keys], "Quiet": True})
        return {error["Key"]: f"{error.get('Code')}: {error.get('Message')}" for error in answer.get("Errors", [])}

    def delete_artifact(self, name: ArtifactName) -> None:
        """Delete a version's artifact and what is left of its upload; neither has to be there."""
        failed = self.delete([self._artifact_key(name), name.incoming_key])
        if failed:
            raise RuntimeError("; ".join(f"{key} could not be deleted: {why}" for key, why in failed.items()))

    def _artifact_key(self, name: ArtifactName) -> str:
        return name.artifact_key(self._prefixes[Area.MODELS])

    def _head(self, key: str) -> Any:
        try:
            return self._client.head_object(Bucket=self._bucket_name, Key=key)
        except ClientError as error:
            if _is_missing(error):
                return None
            raise


class EventAdmissions:
    """`mme_tenancy.sweep_ports.Admissions` by an event: the rule on it retries, and its dead letters wait, as with S3's own events.

    Args:
        client: EventBridge client.
        bucket_name: the artifacts' bucket.
    """

    def __init__(self, client: EventsClient, bucket_name: str) -> None:
        self._client = client
        self._bucket_name = bucket_name

    def resume(self, upload: UploadedObject) -> None:
        """Have the version of ``upload`` brought on, as its event would, without waiting for it."""
        detail = {"bucket": {"name": self._bucket_name}, "object": {"key": upload.name.incoming_key, "etag": upload.etag}}
        answer = self._client.put_events(Entries=[{"Source": SWEEP_SOURCE, "DetailType": RESUME_DETAIL, "Detail": json.dumps(detail)}])
        if answer["FailedEntryCount"]:
            (entry,) = answer["Entries"]
            raise RuntimeError(f"EventBridge did not take the event: {entry.get('ErrorCode')}: {entry.get('ErrorMessage')}")


def _name(text: str) -> ArtifactName | None:
    try:
        return ArtifactName.parse(text)
    except GrammarError:
        return None


def _is_missing(error: ClientError) -> bool:
    return error.response.get("Error", {}).get("Code") in _MISSING
