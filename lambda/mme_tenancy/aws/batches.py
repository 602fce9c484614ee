"""Many records at once: BatchGetItem until every key was answered."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

from mme_facts.grammar import ArtifactName
from mme_facts.table import PARTITION_KEY, SORT_KEY, tenant_partition
from mme_tenancy.aws.attributes import Item, from_item
from mme_tenancy.aws.items import version_of, version_sort_key
from mme_tenancy.versions import Version

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

__all__ = ["BATCH_KEYS", "batch_items", "read_versions"]

BATCH_KEYS = 100
"""BatchGetItem takes no more."""
_ROUNDS = 8


def batch_items(
    client: DynamoDBClient,
    table_name: str,
    names: Sequence[tuple[str, str]],
    *,
    projection: Mapping[str, Any] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Item]:
    """The items that are there of at most `BATCH_KEYS` keys, read consistently.

    Args:
        client: DynamoDB client.
        table_name: the table.
        names: partition and sort keys; the same one twice is read once.
        projection: ``ProjectionExpression`` and its names. Default: items are read whole.
        sleep: waits between rounds, seconds.

    Raises:
        TimeoutError: DynamoDB left keys unprocessed again and again; what was not read must not look like what is not there.
    """
    keys = [{PARTITION_KEY: {"S": partition}, SORT_KEY: {"S": sort}} for partition, sort in dict.fromkeys(names)]
    request: Any = {table_name: {"Keys": keys, "ConsistentRead": True, **(projection or {})}} if keys else {}
    for done in count(1):
        if not request:
            return
        answer = client.batch_get_item(RequestItems=request)
        yield from map(from_item, answer["Responses"].get(table_name, ()))
        request = answer.get("UnprocessedKeys")
        if request and done == _ROUNDS:
            raise TimeoutError(f"DynamoDB left keys of a batch unprocessed {_ROUNDS} times")
        if request and not answer["Responses"].get(table_name):
            # Not the limit of an answer's size, but a table that is busy.
            sleep(0.05 * 2**done)


def read_versions(
    client: DynamoDBClient, table_name: str, names: Sequence[ArtifactName], *, sleep: Callable[[float], None] = time.sleep
) -> dict[ArtifactName, Version]:
    """The records of these artifacts, however many; those without one are left out. Raises what `batch_items` does."""
    found: dict[ArtifactName, Version] = {}
    for start in range(0, len(names), BATCH_KEYS):
        part = names[start : start + BATCH_KEYS]
        keys = [(tenant_partition(name.tenant), version_sort_key(name.model, name.version.number)) for name in part]
        for item in batch_items(client, table_name, keys, sleep=sleep):
            version = version_of(item)
            found[version.name] = version
    # A record of the same number and another digest is none of the artifact.
    return {name: found[name] for name in names if name in found}
