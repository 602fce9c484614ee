"""``/tenants/{tenant}``."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass

from aws_lambda_powertools.event_handler import Response

from mme_facts.grammar import check_tenant_id
from mme_tenancy.bodies import tenant_shape
from mme_tenancy.handlers.onboarding.api_keys import ApiKeyCalls
from mme_tenancy.handlers.onboarding.calls import KEEP_SECONDS, Call, json_answer
from mme_tenancy.idempotency import StoredAnswer
from mme_tenancy.registry import Registry
from mme_tenancy.tenant_settings import put_tenant, status_of

__all__ = ["TenantCalls"]


@dataclass(frozen=True, slots=True)
class TenantCalls:
    """Tenants.

    Args:
        registry: where they are.
        frameworks: what the platform serves.
        keys: the tenants' keys, which follow their tiers.
    """

    registry: Registry
    frameworks: Sequence[str]
    keys: ApiKeyCalls

    def put_tenant(self, call: Call, tenant: str) -> Response[str]:
        """Create a tenant (201), or change the settings that are given of one that is there (200)."""
        check_tenant_id(tenant)
        settings = call.fields(tenant_shape(self.frameworks), optional=True)

        def put() -> StoredAnswer:
            status, created = put_tenant(self.registry, tenant, settings, clock=call.clock, random=random.random)
            if (keys := self.keys.of_call(call)) is not None:
                keys.move(status.tenant)
            return StoredAnswer(201 if created else 200, json.dumps(status.document()))

        return call.once(tenant, {"settings": settings}, put, keep_seconds=KEEP_SECONDS)

    def get_tenant(self, _call: Call, tenant: str) -> Response[str]:
        """Show a tenant and what it uses; also one that was deleted."""
        return json_answer(200, status_of(self.registry, check_tenant_id(tenant)).document())
