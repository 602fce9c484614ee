"""Usage plans and API keys: header, names and tags that constructs and functions share, and API Gateway's limits.

Source of the limits: Amazon API Gateway quotas; Usage plans and API keys for REST APIs.
"""

from __future__ import annotations

__all__ = ["API_KEYS", "API_KEY_HEADER", "API_TAG", "CREATE_KEY_PER_SECOND", "PLANS", "QUOTA_PERIODS", "TIERS", "TIER_TAG", "key_name"]

API_KEY_HEADER = "X-Api-Key"
"""Header with the tenant's key; its name is API Gateway's."""
API_TAG = "mme-api"
"""Tag of a key: id of the API whose tenant it is for."""
TIER_TAG = "mme-tier"
"""Tag of a usage plan: the tier."""
TIERS = ("standard", "trusted")
"""The tenants' tiers, one usage plan each."""
QUOTA_PERIODS = ("DAY", "WEEK", "MONTH")
API_KEYS = 10_000
"""API keys of an account and region. It can be raised."""
PLANS = 300
"""Usage plans of an account and region. It can be raised."""
CREATE_KEY_PER_SECOND = 5
"""CreateApiKey, and as often DeleteApiKey, for an account. It cannot be raised."""


def key_name(api_id: str, tenant: str) -> str:
    """Name of a tenant's key, for those who look at the account."""
    return f"{tenant}@{api_id}"
