"""``/tenants/{tenant}/models``."""

from __future__ import annotations

import json
from dataclasses import dataclass

from aws_lambda_powertools.event_handler import Response

from mme_facts.api import ACTIVATION_SECONDS
from mme_facts.grammar import VersionId, check_model_id, check_tenant_id
from mme_tenancy.activation import Activator
from mme_tenancy.bodies import ACTIVATION, percent_of
from mme_tenancy.handlers.onboarding.calls import KEEP_SECONDS, Call, json_answer, model_of, tenant_of, write_cursor
from mme_tenancy.idempotency import StoredAnswer
from mme_tenancy.registry import Registry

__all__ = ["ModelCalls"]

_WRITING_SECONDS = 3.0
"""Left of a call for changing the route once the version is warm."""


@dataclass(frozen=True, slots=True)
class ModelCalls:
    """Models and their routes.

    Args:
        registry: where they are.
        activator: changes routes.
    """

    registry: Registry
    activator: Activator

    def list_models(self, call: Call, tenant: str) -> Response[str]:
        """List a tenant's models by id; those that were deleted are left out, so a page may be short."""
        tenant_of(self.registry, tenant)
        page = self.registry.models(tenant, limit=call.limit(), after=call.cursor("models"))
        document: dict[str, object] = {"models": [model.document() for model in page.items if model.retired_at is None]}
        if page.more and page.items:
            document["next"] = write_cursor("models", page.items[-1].model)
        return json_answer(200, document)

    def get_model(self, _call: Call, tenant: str, model: str) -> Response[str]:
        """Show a model."""
        return json_answer(200, model_of(self.registry, tenant, model).document())

    def activate_version(self, call: Call, tenant: str, model: str) -> Response[str]:
        """Roll a model forward or back to a version, or give a version a part of the requests; answers with the model."""
        check_tenant_id(tenant)
        check_model_id(model)
        fields = call.fields(ACTIVATION)
        wanted, percent, warm = VersionId.parse(fields["version"]), percent_of(fields["canary"]), fields["warm"]
        until = min(call.deadline() - _WRITING_SECONDS, call.clock.monotonic() + ACTIVATION_SECONDS) if warm else None

        def activate() -> StoredAnswer:
            activated = self.activator.activate(tenant, model, wanted, percent=percent, warm_until=until)
            return StoredAnswer(200, json.dumps(activated.document()))

        request = {"model": model, "version": str(wanted), "percent": percent, **({} if warm else {"warm": False})}
        return call.once(tenant, request, activate, keep_seconds=KEEP_SECONDS)
