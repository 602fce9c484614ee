"""The schema of the table's items: which numbers are read, and how an item of the one before becomes one of now.

A release writes one schema and reads the one before, too, so that items may be brought over while it serves: `mme registry migrate` does
that. It also reads the schema after its own as it stands, because functions are deployed one after the other and rolled back: schemas only
ever add attributes, and a change leaves those that it does not know. Anything else is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from mme_facts.table import MOVING_KEY, MOVING_RETIRED, SORT_KEY
from mme_tenancy.tenants import Quotas, Tier

__all__ = ["ALWAYS_WRITTEN", "OLDEST_SCHEMA", "SCHEMA", "SchemaError", "current", "is_old"]

SCHEMA = 2
"""Schema number that every item carries. 1: before tiers, quotas, warnings and the queue of retired versions."""
OLDEST_SCHEMA = SCHEMA - 1
ALWAYS_WRITTEN = frozenset({"tier", "quotas", "retired_through", "activate", "warnings", "resumes"})
"""What every change writes: an item of the schema before has none of it, although the record that was read from it does."""


class SchemaError(Exception):
    """An item was written by a release that this code cannot read."""


def is_old(item: Mapping[str, Any]) -> bool:
    """Whether the item is of the schema before."""
    return _number(item) < SCHEMA


def current(item: dict[str, Any]) -> dict[str, Any]:
    """The item in today's schema; the same item if there is nothing to do.

    Raises:
        SchemaError: it is too old or too new.
    """
    if _number(item) >= SCHEMA:
        return item
    return _from_1(item) | {"schema": SCHEMA}


def _number(item: Mapping[str, Any]) -> int:
    number: int = item.get("schema", OLDEST_SCHEMA)
    if not OLDEST_SCHEMA <= number <= SCHEMA + 1:
        raise SchemaError(
            f"item {item.get(SORT_KEY)} has schema {number}, and this release reads {OLDEST_SCHEMA} to {SCHEMA + 1}: "
            + ("deploy the release that wrote it" if number > SCHEMA else "bring it over with an earlier release first")
        )
    return number


def _from_1(item: dict[str, Any]) -> dict[str, Any]:
    sort_key = str(item[SORT_KEY])
    if sort_key == "TENANT":
        return {"tier": Tier.STANDARD.value, "quotas": asdict(Quotas()), **item}
    if sort_key.startswith("MODEL#"):
        return {"retired_through": 0, **item}
    if sort_key.startswith("VERSION#"):
        retired = {MOVING_KEY: MOVING_RETIRED} if item["state"] == "retired" else {}
        return {"activate": True, "warnings": [], "resumes": 0, **retired, **item}
    return item
