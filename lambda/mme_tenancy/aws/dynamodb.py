"""The registry in the one DynamoDB table, by the low-level client."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

from botocore.exceptions import ClientError

from mme_facts.table import CHANGES_PARTITION, PARTITION_KEY, SORT_KEY, tenant_partition
from mme_tenancy.aws.attributes import Item, from_item, to_attribute, to_item
from mme_tenancy.aws.items import (
    SCHEMA,
    TENANT,
    USAGE,
    claim_of,
    digest_sort_key,
    item_of,
    key_names,
    model_of,
    model_sort_key,
    record_of,
    tenant_of,
    usage_of,
    version_of,
    version_sort_key,
)
from mme_tenancy.errors import TenancyError, UnavailableError, WriteConflictError
from mme_tenancy.registry import Change, Key, Page
from mme_tenancy.route_changes import PARTS, changed_parts
from mme_tenancy.routes import Model
from mme_tenancy.schema import ALWAYS_WRITTEN
from mme_tenancy.tenants import Quotas, Tenant, Usage
from mme_tenancy.usage import UsageChange, left_by, refusal, usage_changes
from mme_tenancy.versions import DigestClaim, Version

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import QueryInputTypeDef, TransactWriteItemTypeDef

__all__ = ["DynamoRegistry"]

_T = TypeVar("_T")
_CONDITION, _CONFLICT = "ConditionalCheckFailed", "TransactionConflict"
_CONFLICTS = frozenset({_CONDITION, _CONFLICT})
_ATTEMPTS = 8
"""Of a batch that was read in part, and of a transaction that met another one on the same items: both say nothing about the request."""
_PART = "PART#"
_CLOSED = "closed"
"""Attribute of a usage item whose tenant was deleted."""


class DynamoRegistry:
    """`mme_tenancy.registry.Registry` on the table.

    Args:
        client: DynamoDB client.
        table_name: the table.
        sleep: waits between attempts, seconds.
        random: numbers in [0, 1), for jitter.
    """

    def __init__(
        self,
        client: DynamoDBClient,
        table_name: str,
        *,
        sleep: Callable[[float], None] = time.sleep,
        random: Callable[[], float] = random.random,
    ) -> None:
        self._client = client
        self._table_name = table_name
        self._sleep = sleep
        self._random = random

    def read(self, *keys: Key[Any]) -> tuple[Any, ...]:
        """Several records by one call, in the order of ``keys``; ``None`` for what is not there."""
        names = [key_names(key) for key in keys]
        asked: Any = {self._table_name: {"Keys": [_key(*name) for name in dict.fromkeys(names)], "ConsistentRead": True}}
        found: dict[tuple[str, str], Item] = {}
        for attempt in count():
            answer = self._client.batch_get_item(RequestItems=asked)
            for attributes in answer["Responses"].get(self._table_name, []):
                item = from_item(attributes)
                found[item[PARTITION_KEY], item[SORT_KEY]] = item
            asked = answer.get("UnprocessedKeys")
            if not asked:
                break
            if attempt + 1 == _ATTEMPTS:
                raise UnavailableError("the registry is too busy: try again", retry_after_seconds=1)
            self._rest(attempt)
        return tuple(record_of(key, found[name]) if name in found else None for key, name in zip(keys, names, strict=True))

    def tenant(self, tenant: str) -> Tenant | None:
        """The tenant's record, if there is one."""
        return self._get(tenant, TENANT, tenant_of)

    def model(self, tenant: str, model: str) -> Model | None:
        """The model's record, if there is one."""
        return self._get(tenant, model_sort_key(model), model_of)

    def version(self, tenant: str, model: str, number: int) -> Version | None:
        """The version's record, if there is one."""
        return self._get(tenant, version_sort_key(model, number), version_of)

    def claim(self, tenant: str, model: str, sha256: str) -> DigestClaim | None:
        """Which version of the model holds the artifact with this digest, if one does."""
        return self._get(tenant, digest_sort_key(model, sha256), claim_of)

    def models(self, tenant: str, *, limit: int, after: str | None = None) -> Page[Model]:
        """At most ``limit`` models by id, those behind the id ``after``."""
        start = None if after is None else model_sort_key(after)
        return self._page(tenant, model_sort_key(""), model_of, limit=limit, start=start, forward=True)

    def versions(self, tenant: str, model: str, *, limit: int, before: int | None = None) -> Page[Version]:
        """At most ``limit`` versions, newest first, those with a number below ``before``."""
        start = None if before is None else version_sort_key(model, before)
        return self._page(tenant, version_sort_key(model), version_of, limit=limit, start=start, forward=False)

    def write(self, *changes: Change, quotas: Quotas | None = None) -> None:
        """Write all changes or none, and what they do to the tenant's usage with them; raises what `Registry.write` says."""
        usage = usage_changes(changes)
        for wanted in usage:
            if quotas is not None and (error := refusal(wanted, Usage(wanted.tenant), quotas, closed=False)):
                raise error  # more than the whole quota: no condition can say that
        writes = [_transact_item(self._table_name, change) for change in changes]
        writes += [_counter_item(self._table_name, part) for part in changed_parts(changes)]
        if len(writes) == 1 and not usage:
            try:
                self._write_one(writes[0])
            except ClientError as error:
                if _is_conflict(error):
                    raise _stale() from error
                raise
        else:
            self._transact([*writes, *(_usage_item(self._table_name, wanted, quotas) for wanted in usage)], usage, quotas)

    def changes(self) -> Sequence[int]:
        """The counters of `mme_tenancy.route_changes`, read consistently, in the order of their parts."""
        counters = [0] * PARTS
        query: QueryInputTypeDef = {
            "TableName": self._table_name,
            "KeyConditionExpression": f"{PARTITION_KEY} = :partition",
            "ExpressionAttributeValues": {":partition": {"S": CHANGES_PARTITION}},
            "ConsistentRead": True,
        }
        # All of them are far below the megabyte of a page.
        for item in self._client.query(**query)["Items"]:
            counters[int(item[SORT_KEY]["S"].removeprefix(_PART))] = int(item["changes"]["N"])
        return counters

    def _transact(self, writes: Sequence[TransactWriteItemTypeDef], usage: Sequence[UsageChange], quotas: Quotas | None) -> None:
        """Write a transaction whose last items are those of ``usage``.

        boto3 sends it with a token, so that one whose answer was lost is not applied a second time when botocore sends it again.
        """
        for attempt in count():
            try:
                self._client.transact_write_items(TransactItems=writes)
            except ClientError as error:
                reasons: list[Any] = error.response.get("CancellationReasons", [])
                codes = [reason.get("Code") for reason in reasons]
                first = len(writes) - len(usage)
                if _CONDITION in codes[:first]:
                    raise _stale() from error
                for wanted, reason in zip(usage, reasons[first:], strict=False):
                    if reason.get("Code") == _CONDITION:
                        raise _usage_refusal(wanted, reason.get("Item"), quotas) from error
                if _CONFLICT not in codes:
                    raise
                if attempt + 1 == _ATTEMPTS:
                    raise _stale() from error
                self._rest(attempt)
            else:
                return

    def _rest(self, attempt: int) -> None:
        self._sleep(min(0.02 * 2**attempt, 0.5) * (0.5 + self._random()))

    def _write_one(self, write: TransactWriteItemTypeDef) -> None:
        if "Put" in write:
            self._client.put_item(**write["Put"])
        else:
            self._client.update_item(**write["Update"])

    def _get(self, tenant: str, sort_key: str, read: Callable[[Item], _T]) -> _T | None:
        answer = self._client.get_item(TableName=self._table_name, Key=_key(tenant_partition(tenant), sort_key), ConsistentRead=True)
        return read(from_item(answer["Item"])) if "Item" in answer else None

    def _page(self, tenant: str, prefix: str, read: Callable[[Item], _T], *, limit: int, start: str | None, forward: bool) -> Page[_T]:
        query: QueryInputTypeDef = {
            "TableName": self._table_name,
            "KeyConditionExpression": f"{PARTITION_KEY} = :partition AND begins_with({SORT_KEY}, :prefix)",
            "ExpressionAttributeValues": {":partition": {"S": tenant_partition(tenant)}, ":prefix": {"S": prefix}},
            "Limit": limit,
            "ScanIndexForward": forward,
            "ConsistentRead": True,
        }
        if start is not None:
            query["ExclusiveStartKey"] = _key(tenant_partition(tenant), start)
        answer = self._client.query(**query)
        return Page([read(from_item(item)) for item in answer["Items"]], more="LastEvaluatedKey" in answer)


def _condition(rev: int | None) -> dict[str, Any]:
    """Condition that the stored item has this revision, or that there is none."""
    if rev is None:
        return {"ConditionExpression": f"attribute_not_exists({PARTITION_KEY})"}
    return {"ConditionExpression": "rev = :rev", "ExpressionAttributeValues": {":rev": to_attribute(rev)}}


def _key(partition_key: str, sort_key: str) -> dict[str, Any]:
    return {PARTITION_KEY: {"S": partition_key}, SORT_KEY: {"S": sort_key}}


def _transact_item(table_name: str, change: Change) -> TransactWriteItemTypeDef:
    after = item_of(change.after)
    if change.before is None:
        put: Any = {"TableName": table_name, "Item": to_item(after), **_condition(None)}
        return {"Put": put}
    key = _key(after[PARTITION_KEY], after[SORT_KEY])
    update: Any = {"TableName": table_name, "Key": key, **_difference(item_of(change.before), after)}
    return {"Update": update}


def _counter_item(table_name: str, part: int) -> TransactWriteItemTypeDef:
    """Count up the changes of a part."""
    update: Any = {
        "TableName": table_name,
        "Key": _key(CHANGES_PARTITION, f"{_PART}{part:02d}"),
        "UpdateExpression": "SET #schema = :schema ADD changes :one",
        "ExpressionAttributeNames": {"#schema": "schema"},
        "ExpressionAttributeValues": {":schema": to_attribute(SCHEMA), ":one": to_attribute(1)},
    }
    return {"Update": update}


def _usage_item(table_name: str, change: UsageChange, quotas: Quotas | None) -> TransactWriteItemTypeDef:
    """Add to a usage item, which there may not be yet, if the quotas hold after that and the tenant was not deleted."""
    names = {"#schema": "schema"}
    if change.takes or change.closed is not None:
        names["#closed"] = _CLOSED
    values: Item = {":models": change.models, ":bytes": change.stored_bytes, ":one": 1, ":schema": SCHEMA}
    conditions = ["attribute_not_exists(#closed)"] if change.takes else []
    for name, left in ({} if quotas is None else left_by(change, quotas)).items():
        conditions.append(f"(attribute_not_exists({name}) OR {name} <= :{name}_left)")
        values[f":{name}_left"] = left
    expression = "SET #schema = :schema"
    if change.closed:
        expression += ", #closed = :closed"
        values[":closed"] = True
    elif change.closed is False:
        expression += " REMOVE #closed"
    update: Any = {
        "TableName": table_name,
        "Key": _key(tenant_partition(change.tenant), USAGE),
        "UpdateExpression": f"{expression} ADD models :models, stored_bytes :bytes, rev :one",
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": {name: to_attribute(value) for name, value in values.items()},
    }
    if conditions:
        update |= {"ConditionExpression": " AND ".join(conditions), "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
    return {"Update": update}


def _usage_refusal(change: UsageChange, stored: Any, quotas: Quotas | None) -> TenancyError:
    item = from_item(stored)
    return refusal(change, usage_of(item), quotas, closed=_CLOSED in item) or _stale()


def _stale() -> WriteConflictError:
    return WriteConflictError("someone else changed the resource at the same time: try again", retry_after_seconds=1)


def _difference(before: Mapping[str, object], after: Mapping[str, object]) -> dict[str, Any]:
    """The update from ``before`` to ``after``: attributes that this code does not know stay as they are.

    What the stored item may lack, although the record that was read from it has it, is always written.
    """
    changed = {name: value for name, value in after.items() if name in ALWAYS_WRITTEN or before.get(name) != value}
    removed = [name for name in before if name not in after]
    names = {f"#{index}": name for index, name in enumerate([*changed, *removed])}
    sets = ", ".join(f"#{index} = :{index}" for index in range(len(changed)))
    removes = ", ".join(f"#{index}" for index in range(len(changed), len(names)))
    return {
        "UpdateExpression": f"SET {sets}" + (f" REMOVE {removes}" if removed else ""),
        "ConditionExpression": "#rev = :rev",
        "ExpressionAttributeNames": {**names, "#rev": "rev"},
        "ExpressionAttributeValues": {
            **{f":{index}": to_attribute(value) for index, value in enumerate(changed.values())},
            ":rev": to_attribute(before["rev"]),
        },
    }


def _is_conflict(error: ClientError) -> bool:
    code = error.response.get("Error", {}).get("Code")
    if code == "TransactionCanceledException":
        reasons: Any = error.response.get("CancellationReasons", [])
        return any(reason.get("Code") in _CONFLICTS for reason in reasons)
    return code in {"ConditionalCheckFailedException", "TransactionConflictException"}
