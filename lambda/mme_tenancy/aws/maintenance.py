"""The table as an operator's commands see it: whole partitions, all items, items of an older schema. Nothing here serves requests."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from mme_facts.table import CHANGES_PARTITION, EXPIRES_AT, PARTITION_KEY, SORT_KEY, endpoint_partition, tenant_partition
from mme_tenancy.aws.attributes import Item, from_item, to_item
from mme_tenancy.aws.items import TENANT, USAGE, claim_of, model_of, tenant_of, usage_of, version_of
from mme_tenancy.registry import Record
from mme_tenancy.schema import SCHEMA, current, is_old
from mme_tenancy.tenants import Usage

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

__all__ = ["Copied", "DynamoMaintenance", "Partition", "is_kept"]

_BATCH_KEYS = 100
_STATE_PARTITION = "SWEEP"
_MIGRATION_KEY = {PARTITION_KEY: _STATE_PARTITION, SORT_KEY: "MIGRATION"}


@dataclass(frozen=True, slots=True)
class Partition:
    """Everything of one tenant in the table.

    Attributes:
        records: its records.
        usage: its usage as it is stored; ``None`` if there is none.
        usage_rev: the revision of that.
    """

    records: Sequence[Record]
    usage: Usage | None
    usage_rev: int | None


@dataclass(slots=True)
class Copied:
    """What copying items into the table did, or would do.

    Attributes:
        equal: items that are there as they were.
        missing: items that are not there; they are put.
        different: items that are there and differ; they are replaced only when that is asked for.
        changed: items that somebody changed meanwhile.
    """

    equal: int = 0
    missing: int = 0
    different: int = 0
    changed: int = 0


def is_kept(item: Mapping[str, Any]) -> bool:
    """Whether an item of a backup is worth restoring: not what expires by itself, is counted or seen anew, or says where a tick stopped."""
    if EXPIRES_AT in item or item[SORT_KEY] == USAGE:
        return False
    partition: str = item[PARTITION_KEY]
    return partition not in (_STATE_PARTITION, CHANGES_PARTITION) and not partition.startswith(endpoint_partition(""))


class DynamoMaintenance:
    """The table, for restoring, reconciling and migrating.

    Args:
        client: DynamoDB client.
        table_name: the table.
    """

    def __init__(self, client: DynamoDBClient, table_name: str) -> None:
        self._client = client
        self._table_name = table_name

    def tenants(self) -> Iterator[str]:
        """Every tenant that has an item, each once: the items of a partition follow each other in a scan."""
        last = ""
        for item in self._scan(ProjectionExpression=PARTITION_KEY):
            key: str = item[PARTITION_KEY]
            if key != last and key.startswith(tenant_partition("")):
                yield key.removeprefix(tenant_partition(""))
            last = key

    def partition(self, tenant: str) -> Partition:
        """Everything of one tenant, read consistently part by part; its usage is read first."""
        key = {PARTITION_KEY: tenant_partition(tenant), SORT_KEY: USAGE}
        answer = self._client.get_item(TableName=self._table_name, Key=to_item(key), ConsistentRead=True)
        item = from_item(answer["Item"]) if "Item" in answer else None
        return Partition(
            [record for each in self._items(tenant) if (record := _record(each)) is not None],
            None if item is None else usage_of(item),
            None if item is None else item.get("rev"),
        )

    def set_usage(self, usage: Usage, rev: int | None) -> bool:
        """Replace a tenant's usage if it still has this revision; ``False`` if it changed meanwhile.

        Whatever changes what a tenant holds changes its usage in the same transaction. So if the revision still is what it was before
        the records were read, they add up to what they did.
        """
        key = to_item({PARTITION_KEY: tenant_partition(usage.tenant), SORT_KEY: USAGE})
        values: Item = {":models": usage.models, ":bytes": usage.stored_bytes, ":schema": SCHEMA, ":one": 1}
        condition = f"attribute_not_exists({PARTITION_KEY})"
        if rev is not None:
            condition, values = "rev = :rev", {**values, ":rev": rev}
        try:
            self._client.update_item(
                TableName=self._table_name,
                Key=key,
                UpdateExpression="SET models = :models, stored_bytes = :bytes, #schema = :schema ADD rev :one",
                ConditionExpression=condition,
                ExpressionAttributeNames={"#schema": "schema"},
                ExpressionAttributeValues=to_item(values),
            )
        except ClientError as error:
            return _refused(error)
        return True

    def items(self) -> Iterator[Item]:
        """Every item of the table."""
        return self._scan()

    def copy(self, items: Iterable[Item], *, apply: bool, overwrite: bool) -> Copied:
        """Bring items of a backup in.

        Args:
            items: what `is_kept` of a backup.
            apply: write, instead of only counting.
            overwrite: replace items that differ, too.
        """
        done = Copied()
        batch: list[Item] = []
        for item in items:
            batch.append(item)
            if len(batch) == _BATCH_KEYS:
                self._copy(batch, done, apply=apply, overwrite=overwrite)
                batch = []
        self._copy(batch, done, apply=apply, overwrite=overwrite)
        return done

    def _copy(self, batch: Sequence[Item], done: Copied, *, apply: bool, overwrite: bool) -> None:
        there = self._get(batch) if batch else {}
        for item in batch:
            live = there.get(_names(item))
            if live == item:
                done.equal += 1
                continue
            if live is None:
                done.missing += 1
                written = not apply or self._put(item, None)
            else:
                done.different += 1
                written = not (apply and overwrite) or self._put({**item, "rev": max(item["rev"], live["rev"]) + 1}, live)
            done.changed += not written

    def old_items(self, *, limit: int, cursor: str | None) -> tuple[list[Item], str | None]:
        """Items of an older schema among the next ``limit`` items, and where the next part begins (``None``: the end)."""
        start: dict[str, Any] = {} if cursor is None else {"ExclusiveStartKey": to_item(json.loads(cursor))}
        answer = self._client.scan(
            TableName=self._table_name,
            ConsistentRead=True,
            Limit=limit,
            FilterExpression="attribute_not_exists(#schema) OR #schema < :schema",
            ExpressionAttributeNames={"#schema": "schema"},
            ExpressionAttributeValues=to_item({":schema": SCHEMA}),
            **start,
        )
        last = answer.get("LastEvaluatedKey")
        return [from_item(item) for item in answer["Items"]], json.dumps(from_item(last)) if last else None

    def upgrade(self, item: Item) -> bool:
        """Write an item of an older schema in today's; ``False`` if somebody changed it meanwhile, or did the same."""
        return not is_old(item) or self._put(current(item), item)

    def migration_cursor(self) -> str | None:
        """Where the last migration stopped."""
        answer = self._client.get_item(TableName=self._table_name, Key=to_item(_MIGRATION_KEY), ConsistentRead=True)
        cursor: str | None = from_item(answer.get("Item", {})).get("cursor")
        return cursor

    def remember_migration(self, cursor: str | None) -> None:
        """Store where this migration stopped; ``None``: it is done."""
        if cursor is None:
            self._client.delete_item(TableName=self._table_name, Key=to_item(_MIGRATION_KEY))
        else:
            self._client.put_item(TableName=self._table_name, Item=to_item({**_MIGRATION_KEY, "schema": SCHEMA, "cursor": cursor}))

    def _put(self, item: Item, before: Item | None) -> bool:
        """Put ``item`` if what is stored is ``before``, by revision and schema; ``False`` if it is not."""
        condition: dict[str, Any] = {"ConditionExpression": f"attribute_not_exists({PARTITION_KEY})"}
        if before is not None:
            known = {name: before[name] for name in ("rev", "schema") if name in before}
            missing = [name for name in ("rev", "schema") if name not in before]
            clauses = [f"#{name} = :{name}" for name in known] + [f"attribute_not_exists(#{name})" for name in missing]
            condition = {
                "ConditionExpression": " AND ".join([f"attribute_exists({PARTITION_KEY})", *clauses]),
                "ExpressionAttributeNames": {"#rev": "rev", "#schema": "schema"},
            }
            if known:
                condition["ExpressionAttributeValues"] = to_item({f":{name}": value for name, value in known.items()})
        try:
            self._client.put_item(TableName=self._table_name, Item=to_item(item), **condition)
        except ClientError as error:
            return _refused(error)
        return True

    def _get(self, items: Sequence[Item]) -> dict[tuple[str, str], Item]:
        keys = [to_item({PARTITION_KEY: item[PARTITION_KEY], SORT_KEY: item[SORT_KEY]}) for item in items]
        request: Any = {self._table_name: {"Keys": keys, "ConsistentRead": True}}
        found: dict[tuple[str, str], Item] = {}
        while request:
            answer = self._client.batch_get_item(RequestItems=request)
            for attributes in answer["Responses"].get(self._table_name, []):
                item = from_item(attributes)
                found[_names(item)] = item
            request = answer.get("UnprocessedKeys")
        return found

    def _items(self, tenant: str) -> Iterator[Item]:
        pages = self._client.get_paginator("query").paginate(
            TableName=self._table_name,
            KeyConditionExpression=f"{PARTITION_KEY} = :partition",
            ExpressionAttributeValues={":partition": {"S": tenant_partition(tenant)}},
            ConsistentRead=True,
        )
        for page in pages:
            yield from map(from_item, page["Items"])

    def _scan(self, **options: Any) -> Iterator[Item]:
        for page in self._client.get_paginator("scan").paginate(TableName=self._table_name, ConsistentRead=True, **options):
            yield from map(from_item, page["Items"])


def _names(item: Item) -> tuple[str, str]:
    return item[PARTITION_KEY], item[SORT_KEY]


def _record(item: Item) -> Record | None:
    sort_key: str = item[SORT_KEY]
    match sort_key.split("#", maxsplit=1)[0]:
        case "TENANT" if sort_key == TENANT:
            return tenant_of(item)
        case "MODEL":
            return model_of(item)
        case "VERSION":
            return version_of(item)
        case "DIGEST":
            return claim_of(item)
    return None


def _refused(error: ClientError) -> bool:
    """``False`` if a condition did not hold; raises anything else."""
    if error.response.get("Error", {}).get("Code") == "ConditionalCheckFailedException":
        return False
    raise error
