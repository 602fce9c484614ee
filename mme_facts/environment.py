"""Names of the environment variables that constructs set and functions read, and the shape of their values."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

__all__ = [
    "BUCKET_NAME",
    "MAX_ARTIFACT_BYTES",
    "MODELS_PREFIX",
    "POOLS",
    "TABLE_NAME",
    "TELEMETRY",
    "Pool",
    "dump_pools",
    "load_pools",
]

TABLE_NAME = "MME_TABLE_NAME"
BUCKET_NAME = "MME_BUCKET_NAME"
MODELS_PREFIX = "MME_MODELS_PREFIX"
MAX_ARTIFACT_BYTES = "MME_MAX_ARTIFACT_BYTES"
POOLS = "MME_POOLS"
TELEMETRY = "MME_TELEMETRY"
"""What `mme_facts.telemetry.LineSettings.dump` wrote."""


@dataclass(frozen=True, slots=True)
class Pool:
    """One shared endpoint as the functions see it.

    Attributes:
        name: the pool's name.
        framework: which versions go to it, such as ``xgboost``.
        endpoint_name: its SageMaker endpoint.
        variant_name: the production variant.
    """

    name: str
    framework: str
    endpoint_name: str
    variant_name: str


def dump_pools(pools: Sequence[Pool]) -> str:
    """Render pools as the value of `POOLS`."""
    return json.dumps([asdict(pool) for pool in pools], separators=(",", ":"))


def load_pools(value: str) -> tuple[Pool, ...]:
    """Read the value of `POOLS`."""
    return tuple(Pool(**item) for item in json.loads(value))
