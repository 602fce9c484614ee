"""``/tenants/{tenant}``."""

from __future__ import annotations

from dataclasses import dataclass

from aws_lambda_powertools.event_handler import Response

from mme_facts.grammar import check_tenant_id
from mme_tenancy.bodies import NOTHING
from mme_tenancy.clock import timestamp
from mme_tenancy.errors import WriteConflictError
from mme_tenancy.handlers.onboarding.calls import Call, json_answer, tenant_of
from mme_tenancy.registry import Change, Registry
from mme_tenancy.tenants import Tenant

__all__ = ["TenantCalls"]


@dataclass(frozen=True, slots=True)
class TenantCalls:
    """Tenants.

    Args:
        registry: where they are.
    """

    registry: Registry

    def put_tenant(self, call: Call, tenant: str) -> Response[str]:
        """Create a tenant; 200 if it exists."""
        check_tenant_id(tenant)
        call.fields(NOTHING, optional=True)
        now = timestamp(call.clock.time())
        created = Tenant(tenant, now, now)
        try:
            self.registry.write(Change(None, created))
        except WriteConflictError:
            return json_answer(200, tenant_of(self.registry, tenant).document())
        return json_answer(201, created.document())

    def get_tenant(self, _call: Call, tenant: str) -> Response[str]:
        """Show a tenant."""
        return json_answer(200, tenant_of(self.registry, tenant).document())
