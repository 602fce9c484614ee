"""Attribute, index and partition names of the registry's DynamoDB table: constructs create and grant them, functions use them."""

from __future__ import annotations

__all__ = [
    "CHANGES_PARTITION",
    "DEDICATED_INDEX",
    "DEDICATED_KEY",
    "DEDICATED_MODEL",
    "EXPIRES_AT",
    "MOVING_INDEX",
    "MOVING_KEY",
    "MOVING_MODEL",
    "MOVING_RETIRED",
    "MOVING_TENANT",
    "MOVING_VERSION",
    "PARTITION_KEY",
    "SORT_KEY",
    "UPDATED_AT",
    "endpoint_partition",
    "idempotency_partition",
    "tenant_partition",
]

PARTITION_KEY = "PK"
SORT_KEY = "SK"
EXPIRES_AT = "expires_at"
"""Time to live, epoch seconds."""
UPDATED_AT = "updated_at"
CHANGES_PARTITION = "CHANGES"
"""Partition key of the counters of changes that invocations must follow."""
MOVING_INDEX = "moving"
MOVING_KEY = "moving"
"""Present only while something is under way, so the index is sparse. Sorted by `UPDATED_AT`."""
MOVING_VERSION = "version"
"""Value of `MOVING_KEY` on versions under way."""
MOVING_RETIRED = "retired"
"""Value of `MOVING_KEY` on retired versions whose artifact waits for its deletion."""
MOVING_MODEL = "model"
"""Value of `MOVING_KEY` on deleted models some of whose versions are still to be retired."""
MOVING_TENANT = "tenant"
"""Value of `MOVING_KEY` on deleted tenants some of whose models are still to be retired."""
DEDICATED_INDEX = "dedicated"
DEDICATED_KEY = "dedicated"
"""Present only on models of the dedicated endpoint. Sorted by `PARTITION_KEY`."""
DEDICATED_MODEL = "model"
"""Value of `DEDICATED_KEY` on models whose route names an inference component."""


def tenant_partition(tenant: str) -> str:
    """Partition key of a tenant's records, which a session of that tenant may read; ``tenant`` is an id or IAM's name for one."""
    return f"TENANT#{tenant}"


def idempotency_partition(tenant: str) -> str:
    """Partition key of the answers kept for a tenant's repeated requests: they may hold signed addresses, so no session reads them."""
    return f"IDEMPOTENCY#{tenant}"


def endpoint_partition(endpoint: str) -> str:
    """Partition key of what is remembered of an endpoint; ``endpoint`` is its name."""
    return f"ENDPOINT#{endpoint}"
