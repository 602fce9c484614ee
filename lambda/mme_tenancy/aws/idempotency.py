"""The idempotency keys in the one DynamoDB table. Apart from the registry, which the invocation path loads alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from mme_facts.table import EXPIRES_AT, PARTITION_KEY, SORT_KEY, idempotency_partition
from mme_tenancy.aws.attributes import Item, from_item, to_attribute, to_item
from mme_tenancy.aws.items import SCHEMA
from mme_tenancy.idempotency import IdempotencyKey, IdempotencyRecord, StoredAnswer

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

__all__ = ["DynamoIdempotencyStore"]

_CONFLICTS = frozenset({"ConditionalCheckFailedException", "TransactionConflictException"})


class DynamoIdempotencyStore:
    """`mme_tenancy.idempotency.IdempotencyStore` on the table; items vanish by the table's TTL.

    Args:
        client: DynamoDB client.
        table_name: the table.
    """

    def __init__(self, client: DynamoDBClient, table_name: str) -> None:
        self._client = client
        self._table_name = table_name

    def put(self, key: IdempotencyKey, before: IdempotencyRecord | None, after: IdempotencyRecord) -> IdempotencyRecord | None:
        """Store ``after`` if the stored record is ``before``; returns the stored record if it is another one, else ``None``."""
        item: Item = {
            **_idempotency_key(key),
            "schema": SCHEMA,
            "rev": after.rev,
            "fingerprint": after.fingerprint,
            "lease_until": after.lease_until,
            EXPIRES_AT: after.expires_at,
        }
        if after.answer is not None:
            item |= {"status": after.answer.status, "body": after.answer.body}
        try:
            self._client.put_item(
                TableName=self._table_name,
                Item=to_item(item),
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
                **_condition(before),
            )
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") not in _CONFLICTS:
                raise
            stored: Any = error.response.get("Item")
            if stored is None:
                # The record that was read is gone: whoever held the key freed it.
                return before
            record = _idempotency_record(from_item(stored))
            # Our own write, whose answer was lost and which botocore sent again.
            return None if record == after else record
        return None

    def remove(self, key: IdempotencyKey, record: IdempotencyRecord) -> None:
        """Forget ``record`` if it is still the stored one."""
        try:
            self._client.delete_item(TableName=self._table_name, Key=to_item(_idempotency_key(key)), **_condition(record))
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") not in _CONFLICTS:
                raise


def _idempotency_key(key: IdempotencyKey) -> Item:
    return {PARTITION_KEY: idempotency_partition(key.tenant), SORT_KEY: f"{key.route}#{key.key}"}


def _idempotency_record(item: Item) -> IdempotencyRecord:
    answer = StoredAnswer(item["status"], item["body"]) if "status" in item else None
    return IdempotencyRecord(item["fingerprint"], float(item["lease_until"]), item[EXPIRES_AT], answer, item["rev"])


def _condition(record: IdempotencyRecord | None) -> dict[str, Any]:
    """Condition that the stored item is this record, or that there is none."""
    if record is None:
        return {"ConditionExpression": f"attribute_not_exists({PARTITION_KEY})"}
    return {
        "ConditionExpression": "rev = :rev AND fingerprint = :fingerprint",
        "ExpressionAttributeValues": {":rev": to_attribute(record.rev), ":fingerprint": to_attribute(record.fingerprint)},
    }
