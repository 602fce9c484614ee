"""Usage plans and API keys of the gateway: header, names and tags that constructs and functions share."""

from __future__ import annotations

__all__ = ["API_KEY_HEADER", "API_TAG", "TIERS", "TIER_TAG", "key_name"]

API_KEY_HEADER = "X-Api-Key"
"""Header with the tenant's key; its name is API Gateway's."""
API_TAG = "mme-api"
"""Tag of a key: id of the API whose tenant it is for."""
TIER_TAG = "mme-tier"
"""Tag of a usage plan: the tier."""
TIERS = ("standard", "trusted")
"""The tenants' tiers, one usage plan each."""


def key_name(api_id: str, tenant: str) -> str:
    """Name of a tenant's key, for those who look at the account."""
    return f"{tenant}@{api_id}"
