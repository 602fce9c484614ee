"""The registry as a warm-up reads it: many records at once, and of versions first without their payloads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mme_facts.grammar import ArtifactName
from mme_facts.table import PARTITION_KEY, SORT_KEY, tenant_partition
from mme_tenancy.aws.attributes import Item
from mme_tenancy.aws.batches import batch_items, read_versions
from mme_tenancy.aws.items import model_of, model_sort_key, version_key, version_sort_key
from mme_tenancy.routes import Model
from mme_tenancy.schema import current
from mme_tenancy.versions import State, Version
from mme_tenancy.warm_up.sources import VersionOutline

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

__all__ = ["DynamoWarmUpRecords"]

_OUTLINE = ("schema", "version", "state", "size_bytes", "memory_bytes", "timings")
_FIRST_INVOCATION = "first_invocation_seconds"


class DynamoWarmUpRecords:
    """`mme_tenancy.warm_up.sources.WarmUpRecords` on the table.

    Args:
        client: DynamoDB client; it must be safe for threads, as boto3's clients are.
        table_name: the table.
    """

    def __init__(self, client: DynamoDBClient, table_name: str) -> None:
        self._client = client
        self._table_name = table_name

    def models(self, names: Sequence[tuple[str, str]]) -> Mapping[tuple[str, str], Model]:
        """At most 100 models by tenant and model."""
        keys = [(tenant_partition(tenant), model_sort_key(model)) for tenant, model in names]
        found = map(model_of, batch_items(self._client, self._table_name, keys))
        return {(model.tenant, model.model): model for model in found}

    def outlines(self, names: Sequence[ArtifactName]) -> Mapping[ArtifactName, VersionOutline]:
        """At most 100 versions without their payloads, which stay in the table: with them an answer would be up to 26 MB."""
        keys = [(tenant_partition(name.tenant), version_sort_key(name.model, name.version.number)) for name in names]
        found: dict[tuple[str, str, str], VersionOutline] = {}
        for item in batch_items(self._client, self._table_name, keys, projection=_PROJECTION):
            tenant, model, _number = version_key(item)
            found[tenant, model, item["version"]] = _outline_of(item)
        named = ((name, found.get((name.tenant, name.model, str(name.version)))) for name in names)
        return {name: outline for name, outline in named if outline is not None}

    def versions(self, names: Sequence[ArtifactName]) -> Mapping[ArtifactName, Version]:
        """Versions with all they have."""
        return read_versions(self._client, self._table_name, names)


def _projection() -> dict[str, Any]:
    names = {f"#{index}": name for index, name in enumerate((PARTITION_KEY, SORT_KEY, *_OUTLINE))}
    # Of the payload only that it is there.
    names |= {"#sample": "sample", "#type": "content_type"}
    expression = ", ".join([*(name for name in names if name not in ("#sample", "#type")), "#sample.#type"])
    return {"ProjectionExpression": expression, "ExpressionAttributeNames": names}


_PROJECTION = _projection()


def _outline_of(item: Item) -> VersionOutline:
    item = current(item)
    load = item.get("timings", {}).get(_FIRST_INVOCATION)
    return VersionOutline(State(item["state"]), item["size_bytes"], item.get("memory_bytes"), load, "sample" in item)
