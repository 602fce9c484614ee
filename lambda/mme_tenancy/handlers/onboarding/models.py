"""``/tenants/{tenant}/models``."""

from __future__ import annotations

from dataclasses import dataclass

from aws_lambda_powertools.event_handler import Response

from mme_tenancy.handlers.onboarding.calls import Call, json_answer, model_of, tenant_of, write_cursor
from mme_tenancy.registry import Registry

__all__ = ["ModelCalls"]


@dataclass(frozen=True, slots=True)
class ModelCalls:
    """Models and their routes.

    Args:
        registry: where they are.
    """

    registry: Registry

    def list_models(self, call: Call, tenant: str) -> Response[str]:
        """List a tenant's models by id."""
        tenant_of(self.registry, tenant)
        page = self.registry.models(tenant, limit=call.limit(), after=call.cursor("models"))
        document: dict[str, object] = {"models": [model.document() for model in page.items]}
        if page.more and page.items:
            document["next"] = write_cursor("models", page.items[-1].model)
        return json_answer(200, document)

    def get_model(self, _call: Call, tenant: str, model: str) -> Response[str]:
        """Show a model."""
        return json_answer(200, model_of(self.registry, tenant, model).document())
