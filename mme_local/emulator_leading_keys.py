# ruff: noqa: SLF001 - reaching into the pinned emulator is what this module is for
"""The condition key ``dynamodb:LeadingKeys``, which the emulator does not know. Part of `mme_local.patches`.

Without it a policy that confines a session to some partitions would deny it everything, or, where it says ``ForAllValues``, allow it
everything: a request without a value of the key meets such a condition.

Source: Amazon DynamoDB Developer Guide, Using IAM policy conditions for fine-grained access control.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

__all__ = ["apply", "leading_keys"]

_UNKNOWN = "\0"
"""Equals no partition: a request whose partition cannot be told must not look like one that names none."""
_TERM = re.compile(r"(#?\w+)\s*=\s*(:\w+)")


def apply() -> None:
    """Patch the emulator in this process."""
    from ministack.core import iam_actions
    from ministack.services import dynamodb

    def partition_of(table: str, index: str | None) -> str | None:
        """Name of the partition key of a table, or of its index."""
        found = dynamodb._tables.get(table.rpartition("/")[2])
        if found is None:
            return None
        schema = found["KeySchema"]
        if index is not None:
            indexes = [*found.get("GlobalSecondaryIndexes", ()), *found.get("LocalSecondaryIndexes", ())]
            schema = next((each["KeySchema"] for each in indexes if each["IndexName"] == index), ())
        return next((key["AttributeName"] for key in schema if key["KeyType"] == "HASH"), None)

    context_of = iam_actions.dynamodb_service_context

    @functools.wraps(context_of)
    def with_leading_keys(body: bytes) -> dict[str, Any]:
        context: dict[str, Any] = context_of(body)
        keys = leading_keys(body, partition_of)
        return context | {"dynamodb:LeadingKeys": keys} if keys else context

    iam_actions.dynamodb_service_context = with_leading_keys


def leading_keys(body: bytes, partition_of: Callable[[str, str | None], str | None]) -> list[str]:
    """Values of the partition keys that a request names, each once; none for a scan or a request on a table.

    Args:
        body: the request.
        partition_of: name of the partition key of a table, or of the named index of it.
    """
    try:
        request = json.loads(body or b"{}")
    except (UnicodeDecodeError, ValueError):
        return []
    if not isinstance(request, dict):
        return []
    named = {_value(key, partition_of(table, index)) for table, index, key in _named(request)}
    return sorted(named)


def _named(request: Mapping[str, Any]) -> Iterator[tuple[str, str | None, Any]]:
    """Table, index and key (or item, or the equalities of a query) of each item or partition that a request names."""
    table = str(request.get("TableName", ""))
    for member in ("Key", "Item"):
        if member in request:
            yield table, None, request[member]
    if "KeyConditionExpression" in request or "KeyConditions" in request:
        yield table, request.get("IndexName"), _equalities(request)
    batch = request.get("RequestItems")
    for name, part in batch.items() if isinstance(batch, dict) else ():
        if isinstance(part, dict):
            yield from ((name, None, key) for key in part.get("Keys", ()))
        else:
            yield from ((name, None, operation.get(member)) for each in part for member, operation in _operations(each))
    for each in request.get("TransactItems", ()):
        for operation in each.values():
            yield str(operation.get("TableName", "")), None, operation.get("Key", operation.get("Item"))


def _operations(each: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The member that holds the key, and the operation, of one part of a batch of writes."""
    for kind, operation in each.items():
        yield ("Item" if kind == "PutRequest" else "Key"), operation


def _equalities(request: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes that a query compares with a value, and the values."""
    names, values = request.get("ExpressionAttributeNames") or {}, request.get("ExpressionAttributeValues") or {}
    terms = _TERM.findall(request.get("KeyConditionExpression") or "")
    found = {names.get(name, name): values.get(value) for name, value in terms}
    for name, condition in (request.get("KeyConditions") or {}).items():
        if condition.get("ComparisonOperator") == "EQ":
            found[name] = next(iter(condition.get("AttributeValueList", ())), None)
    return found


def _value(key: Any, partition: str | None) -> str:
    typed = key.get(partition) if isinstance(key, dict) else None
    return str(next(iter(typed.values()))) if isinstance(typed, dict) and len(typed) == 1 else _UNKNOWN
