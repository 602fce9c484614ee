"""What warm-ups remember, in the table: one item for each endpoint, and documents beside it that expire."""

from __future__ import annotations

import json
import uuid
import zlib
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, TypeVar

from botocore.exceptions import ClientError

from mme_facts.table import EXPIRES_AT, PARTITION_KEY, SORT_KEY, endpoint_partition
from mme_tenancy.aws.attributes import Item, from_item, to_attribute, to_item
from mme_tenancy.clock import Clock
from mme_tenancy.errors import WriteConflictError
from mme_tenancy.schema import SCHEMA, current
from mme_tenancy.warm_up.change import ChangeKind, FleetChange, FleetSeen
from mme_tenancy.warm_up.ports import EndpointRecord, Lease, WarmUp, WarmUpState

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

__all__ = ["DynamoWarmUpStore"]

_T = TypeVar("_T")
_RECORD = "ENDPOINT"
_DOCUMENT = "DOCUMENT#"
_KEPT_SECONDS = 86_400
_PART_BYTES = 300_000
"""An item may have 400 KB."""
_DOCUMENT_BYTES = 64_000_000
"""More than any plan; a document is unpacked only up to this."""


class DynamoWarmUpStore:
    """`mme_tenancy.warm_up.ports.WarmUpStore` on the table.

    Args:
        client: DynamoDB client.
        table_name: the table.
        clock: time.
    """

    def __init__(self, client: DynamoDBClient, table_name: str, clock: Clock) -> None:
        self._client, self._table_name, self._clock = client, table_name, clock

    def read(self, endpoint: str) -> EndpointRecord | None:
        """The endpoint's record, read consistently."""
        item = self._get(endpoint, _RECORD)
        return None if item is None else _record_of(endpoint, current(item))

    def write(self, before: EndpointRecord | None, after: EndpointRecord) -> None:
        """Write ``after`` over ``before``, which is as it was read; raises `WriteConflictError` if something else is there.

        Attributes that this code does not know stay as they are.
        """
        values = _values_of(after)
        names = {f"#{name}": name for name in values}
        sets = [f"#{name} = :{name}" for name, value in values.items() if value is not None]
        removes = [f"#{name}" for name, value in values.items() if value is None]
        attributes = to_item({f":{name}": value for name, value in values.items()})
        condition = f"attribute_not_exists({PARTITION_KEY})"
        if before is not None:
            condition, attributes[":before"] = "#rev = :before", to_attribute(before.rev)
        try:
            self._client.update_item(
                TableName=self._table_name,
                Key=_key(after.endpoint, _RECORD),
                UpdateExpression=f"SET {', '.join(sets)}" + (f" REMOVE {', '.join(removes)}" if removes else ""),
                ConditionExpression=condition,
                ExpressionAttributeNames=names,
                ExpressionAttributeValues=attributes,
            )
        except ClientError as error:
            if error.response["Error"].get("Code") != "ConditionalCheckFailedException":
                raise
            # The answer to the first sending may have been lost: botocore then sends a write again that has already been done.
            if self.read(after.endpoint) != after:
                raise WriteConflictError("someone else changed the endpoint's record at the same time", retry_after_seconds=1) from error

    def keep(self, endpoint: str, document: Mapping[str, Any]) -> str:
        """Store what a run needs to be continued; returns its name. It goes by itself after a day."""
        content = zlib.compress(json.dumps(document, separators=(",", ":")).encode())
        parts = [content[start : start + _PART_BYTES] for start in range(0, len(content), _PART_BYTES)]
        name = f"{uuid.uuid4().hex}-{len(parts)}"
        expires_at = int(self._clock.time()) + _KEPT_SECONDS
        for number, part in enumerate(parts):
            key = {PARTITION_KEY: endpoint_partition(endpoint), SORT_KEY: _part_key(name, number)}
            item = {**key, "schema": SCHEMA, "content": part, EXPIRES_AT: expires_at}
            self._client.put_item(TableName=self._table_name, Item=to_item(item))
        return name

    def kept(self, endpoint: str, name: str) -> Mapping[str, Any] | None:
        """What `keep` stored by that name; ``None`` if it is not there, or not whole."""
        content = b""
        for number in range(int(name.rpartition("-")[2])):
            item = self._get(endpoint, _part_key(name, number))
            if item is None:
                return None
            content += item["content"]
        text = zlib.decompressobj().decompress(content, _DOCUMENT_BYTES)
        document: Mapping[str, Any] = json.loads(text)
        return document

    def _get(self, endpoint: str, sort_key: str) -> Item | None:
        answer = self._client.get_item(TableName=self._table_name, Key=_key(endpoint, sort_key), ConsistentRead=True)
        return from_item(answer["Item"]) if "Item" in answer else None


def _key(endpoint: str, sort_key: str) -> dict[str, Any]:
    return to_item({PARTITION_KEY: endpoint_partition(endpoint), SORT_KEY: sort_key})


def _part_key(name: str, number: int) -> str:
    return f"{_DOCUMENT}{name}#{number:03d}"


def _values_of(record: EndpointRecord) -> dict[str, object]:
    """The record's attributes; ``None`` for those that an item has not."""
    warm_up = record.warm_up
    told = None
    if warm_up is not None:
        change = asdict(warm_up.change) | {"kind": warm_up.change.kind.value}
        summary = None if warm_up.summary is None else json.dumps(warm_up.summary)
        told = {field.name: getattr(warm_up, field.name) for field in fields(WarmUp)}
        told |= {"change": change, "state": warm_up.state.value, "summary": summary}
    return {
        "schema": SCHEMA,
        "rev": record.rev,
        "seen": asdict(record.seen),
        "warm_up": told,
        "lease": None if record.lease is None else asdict(record.lease),
    }


def _record_of(endpoint: str, item: Item) -> EndpointRecord:
    told, lease = item.get("warm_up"), item.get("lease")
    warm_up = None
    if told is not None:
        change = _of(FleetChange, told["change"] | {"kind": ChangeKind(told["change"]["kind"])})
        summary = json.loads(told["summary"]) if "summary" in told else None
        warm_up = _of(WarmUp, told | {"change": change, "state": WarmUpState(told["state"]), "summary": summary})
    return EndpointRecord(endpoint, _of(FleetSeen, item["seen"]), warm_up, None if lease is None else _of(Lease, lease), item["rev"])


def _of(kind: type[_T], values: Mapping[str, Any]) -> _T:
    """What of ``values`` this release knows, as a record."""
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in values.items() if name in names})
