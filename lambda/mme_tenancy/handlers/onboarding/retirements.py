"""``DELETE`` of versions, models and tenants."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from aws_lambda_powertools.event_handler import Response

from mme_facts.grammar import VersionId, check_model_id, check_tenant_id
from mme_tenancy.handlers.onboarding.api_keys import ApiKeyCalls
from mme_tenancy.handlers.onboarding.calls import KEEP_SECONDS, Call
from mme_tenancy.idempotency import StoredAnswer
from mme_tenancy.retirement import CACHED_COPIES, Retirer

__all__ = ["RetirementCalls"]


@dataclass(frozen=True, slots=True)
class RetirementCalls:
    """What is not wanted any more.

    Args:
        retirer: retires it.
        keys: the tenants' keys, which go with them.
    """

    retirer: Retirer
    keys: ApiKeyCalls

    def delete_version(self, call: Call, tenant: str, model: str, version: str) -> Response[str]:
        """Retire a version; 409 if it is active, unless ``force`` says that the model may lose its route."""
        wanted, force = VersionId.parse(version), call.flag("force")
        check_tenant_id(tenant)
        check_model_id(model)

        def retire() -> StoredAnswer:
            return _retired(self.retirer.retire_version(tenant, model, wanted, force=force).document(), done=True)

        return call.once(tenant, {"model": model, "version": version, "force": force}, retire, keep_seconds=KEEP_SECONDS)

    def delete_model(self, call: Call, tenant: str, model: str) -> Response[str]:
        """Delete a model with its route: 200 when all its versions are retired, 202 while some are left."""
        check_tenant_id(tenant)
        check_model_id(model)

        def retire() -> StoredAnswer:
            record = self.retirer.retire_model(tenant, model)
            return _retired(record.document(), done=record.retiring_below is None)

        return call.once(tenant, {"model": model}, retire, keep_seconds=KEEP_SECONDS)

    def delete_tenant(self, call: Call, tenant: str) -> Response[str]:
        """Delete a tenant with its models: 200 when all of them are retired, 202 while some are left."""
        check_tenant_id(tenant)

        def retire() -> StoredAnswer:
            record = self.retirer.retire_tenant(tenant)
            if (keys := self.keys.of_call(call)) is not None:
                record = keys.revoke(tenant)
            return _retired(record.document(), done=record.retiring_after is None)

        return call.once(tenant, {"tenant": tenant}, retire, keep_seconds=KEEP_SECONDS)


def _retired(document: Mapping[str, object], *, done: bool) -> StoredAnswer:
    return StoredAnswer(200 if done else 202, json.dumps({**document, "cached_copies": CACHED_COPIES}))
