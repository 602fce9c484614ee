"""``/tenants/{tenant}/api-key``."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from aws_lambda_powertools.event_handler import Response

from mme_facts.grammar import check_tenant_id
from mme_tenancy.api_keys import ApiKeys, TenantKeys
from mme_tenancy.errors import ResourceNotFoundError
from mme_tenancy.handlers.onboarding.calls import Call, json_answer
from mme_tenancy.registry import Registry

__all__ = ["ApiKeyCalls", "KeysOf"]

KeysOf = Callable[[str, str], ApiKeys]
"""API and stage -> its tenants' keys."""


@dataclass(frozen=True, slots=True)
class ApiKeyCalls:
    """The tenants' keys at the gateway.

    Args:
        registry: where tenants are.
        keys_of: the gateway's keys; ``None``: the platform has no usage plans.
    """

    registry: Registry
    keys_of: KeysOf | None

    def put_api_key(self, call: Call, tenant: str) -> Response[str]:
        """Show the tenant's key (200), made if there is none (201). It is never kept for an ``Idempotency-Key``: its value is a secret."""
        issued, made = self._keys(call).issue(check_tenant_id(tenant))
        return json_answer(201 if made else 200, issued.document(), {"Cache-Control": "no-store"})

    def delete_api_key(self, call: Call, tenant: str) -> Response[str]:
        """Take the tenant's key back; the tenant as it is then."""
        return json_answer(200, self._keys(call).revoke(check_tenant_id(tenant)).document())

    def of_call(self, call: Call) -> TenantKeys | None:
        """The keys of the API that the call came by; ``None`` if it has no usage plans."""
        if self.keys_of is None:
            return None
        context = call.event.get("requestContext") or {}
        return TenantKeys(self.registry, self.keys_of(str(context.get("apiId")), str(context.get("stage"))), call.clock, random.random)

    def _keys(self, call: Call) -> TenantKeys:
        keys = self.of_call(call)
        if keys is None:
            raise ResourceNotFoundError("the platform has no usage plans, and so no API keys")
        return keys
