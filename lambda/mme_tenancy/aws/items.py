"""The table's items: keys, and records to and from plain items. The schema is drawn in the docs (Storage)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from typing import Any

from mme_facts.table import (
    DEDICATED_KEY,
    DEDICATED_MODEL,
    MOVING_KEY,
    MOVING_MODEL,
    MOVING_RETIRED,
    MOVING_TENANT,
    MOVING_VERSION,
    PARTITION_KEY,
    SORT_KEY,
    tenant_partition,
)
from mme_tenancy.aws.attributes import Item
from mme_tenancy.registry import Key, Record
from mme_tenancy.routes import Canary, Model, Route
from mme_tenancy.schema import SCHEMA, current
from mme_tenancy.tenants import Quotas, Tenant, Tier, Usage
from mme_tenancy.versions import DigestClaim, Multipart, Reason, Sample, State, Version

__all__ = [
    "SCHEMA",
    "TENANT",
    "USAGE",
    "claim_of",
    "digest_sort_key",
    "item_of",
    "key_names",
    "model_of",
    "model_sort_key",
    "owner_key",
    "record_of",
    "tenant_of",
    "version_key",
    "usage_of",
    "version_of",
    "version_sort_key",
]

TENANT = "TENANT"
USAGE = "USAGE"
_OMITTED = frozenset({"tenant", "model"})
_CANARY, _ROUTE = (tuple(field.name for field in fields(kind)) for kind in (Canary, Route))


def model_sort_key(model: str) -> str:
    """Sort key of a model."""
    return f"MODEL#{model}"


def version_sort_key(model: str, number: int | None = None) -> str:
    """Sort key of a version; without a number the prefix of all of a model's versions."""
    return f"VERSION#{model}#" if number is None else f"VERSION#{model}#{number:06d}"


def digest_sort_key(model: str, sha256: str) -> str:
    """Sort key of the claim on an artifact."""
    return f"DIGEST#{model}#{sha256}"


def key_names(key: Key[Any]) -> tuple[str, str]:
    """Partition and sort key of the item that ``key`` names."""
    return tenant_partition(key.tenant), _SORT_KEYS[key.kind](key)


def record_of(key: Key[Any], item: Item) -> object:
    """The record that ``key`` names, in its item."""
    return _RECORDS[key.kind](item)


def item_of(record: Record) -> Item:
    """The record as an item."""
    values: Item = {PARTITION_KEY: tenant_partition(record.tenant), SORT_KEY: _sort_key(record), "schema": SCHEMA}
    match record:
        case Version():
            values |= _version_values(record)
        case Tenant():
            moving = MOVING_TENANT if record.retiring_after is not None else None
            values |= asdict(record) | {"tier": record.tier.value, MOVING_KEY: moving}
        case Model():
            values |= asdict(record) | {MOVING_KEY: MOVING_MODEL if record.retiring_below is not None else None}
            if record.route is not None and record.route.component is not None:
                values[DEDICATED_KEY] = DEDICATED_MODEL
        case DigestClaim():
            values |= asdict(record)
    return {name: value for name, value in values.items() if value is not None and name not in _OMITTED}


def _sort_key(record: Record) -> str:
    match record:
        case Tenant():
            return TENANT
        case Model():
            return model_sort_key(record.model)
        case Version():
            return version_sort_key(record.model, record.number)
        case DigestClaim():
            return digest_sort_key(record.model, record.sha256)


def _version_values(version: Version) -> Item:
    return asdict(version) | {
        "version": str(version.id),
        "state": version.state.value,
        "timings": dict(version.timings),
        "sample": _without_none(version.sample),
        "reasons": [_without_none(reason) for reason in version.reasons],
        "warnings": [_without_none(warning) for warning in version.warnings],
        MOVING_KEY: _queue_of(version),
    }


def _queue_of(version: Version) -> str | None:
    if version.moving:
        return MOVING_VERSION
    return MOVING_RETIRED if version.state is State.RETIRED else None


def _without_none(part: Sample | Reason) -> Item:
    return {name: value for name, value in asdict(part).items() if value is not None}


def _names(item: Item) -> tuple[str, str]:
    sort_key = item[SORT_KEY].split("#")
    return item[PARTITION_KEY].split("#")[1], sort_key[1] if len(sort_key) > 1 else ""


def tenant_of(item: Item) -> Tenant:
    """The tenant in an item."""
    item = current(item)
    return Tenant(
        tenant=_names(item)[0],
        created_at=item["created_at"],
        updated_at=item["updated_at"],
        tier=Tier(item.get("tier", Tier.STANDARD)),
        quotas=Quotas.known_of(item.get("quotas", {})),
        formats=tuple(item["formats"]) if "formats" in item else None,
        deleted_at=item.get("deleted_at"),
        rev=item["rev"],
        retiring_after=item.get("retiring_after"),
        api_key=item.get("api_key"),
    )


def model_of(item: Item) -> Model:
    """The model in an item."""
    item = current(item)
    tenant, model = _names(item)
    route = _route_of(item["route"]) if "route" in item else None
    return Model(
        tenant,
        model,
        item["last_version"],
        item["created_at"],
        item["updated_at"],
        route,
        item["rev"],
        retired_at=item.get("retired_at"),
        retired_through=item.get("retired_through", 0),
        retiring_below=item.get("retiring_below"),
    )


def _route_of(item: Item) -> Route:
    """What a later release adds to a route is passed over: a change writes the route whole."""
    canary = Canary(**{name: item["canary"][name] for name in _CANARY if name in item["canary"]}) if "canary" in item else None
    return Route(**{**{name: item[name] for name in _ROUTE if name in item}, "canary": canary})


def claim_of(item: Item) -> DigestClaim:
    """The claim in an item."""
    item = current(item)
    tenant, model = _names(item)
    return DigestClaim(tenant, model, item["sha256"], item["number"], item["rev"])


def owner_key(item: Item) -> tuple[str, str | None]:
    """Tenant and model that an item of a tenant (without a model) or of a model is of, by its keys alone."""
    tenant, model = _names(item)
    return tenant, model or None


def version_key(item: Item) -> tuple[str, str, int]:
    """Tenant, model and number of the version that an item is of, by its keys alone."""
    tenant, model = _names(item)
    return tenant, model, int(item[SORT_KEY].split("#")[2])


def version_of(item: Item) -> Version:
    """The version in an item."""
    item = current(item)
    tenant, model = _names(item)
    return Version(
        tenant=tenant,
        model=model,
        number=item["number"],
        sha256=item["sha256"],
        size_bytes=item["size_bytes"],
        framework=item["framework"],
        pool=item["pool"],
        sample=Sample(**item["sample"]),
        state=State(item["state"]),
        created_at=item["created_at"],
        updated_at=item["updated_at"],
        notes=item.get("notes"),
        activate=item.get("activate", True),
        reasons=tuple(Reason(**reason) for reason in item["reasons"]),
        warnings=tuple(Reason(**warning) for warning in item.get("warnings", ())),
        timings=item["timings"],
        memory_bytes=item.get("memory_bytes"),
        multipart=Multipart(**item["multipart"]) if "multipart" in item else None,
        purge_after=item.get("purge_after"),
        resumes=item.get("resumes", 0),
        resumed_at=item.get("resumed_at"),
        moving=item.get(MOVING_KEY) == MOVING_VERSION,
        rev=item["rev"],
    )


def usage_of(item: Item) -> Usage:
    """The usage in an item."""
    item = current(item)
    return Usage(_names(item)[0], item.get("models", 0), item.get("stored_bytes", 0))


_SORT_KEYS: Mapping[type, Callable[[Key[Any]], str]] = {
    Tenant: lambda _key: TENANT,
    Usage: lambda _key: USAGE,
    Model: lambda key: model_sort_key(key.model),
    Version: lambda key: version_sort_key(key.model, int(key.part)),
    DigestClaim: lambda key: digest_sort_key(key.model, str(key.part)),
}
_RECORDS: Mapping[type, Callable[[Item], object]] = {
    Tenant: tenant_of,
    Usage: usage_of,
    Model: model_of,
    Version: version_of,
    DigestClaim: claim_of,
}
