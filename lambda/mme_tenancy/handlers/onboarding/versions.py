"""``/tenants/{tenant}/models/{model}/versions``."""

from __future__ import annotations

import json
from dataclasses import dataclass

from aws_lambda_powertools.event_handler import Response

from mme_facts.grammar import VersionId, check_model_id, check_tenant_id
from mme_tenancy.bodies import NOTHING, registration_shape
from mme_tenancy.errors import VersionNotFoundError
from mme_tenancy.handlers.onboarding.calls import Call, json_answer, model_of, write_cursor
from mme_tenancy.idempotency import StoredAnswer
from mme_tenancy.registration import UPLOAD_SECONDS, Registrar, read_registration
from mme_tenancy.registry import Registry

__all__ = ["VersionCalls"]


@dataclass(frozen=True, slots=True)
class VersionCalls:
    """Versions.

    Args:
        registry: where they are.
        registrar: registers them.
        max_artifact_bytes: greatest admissible artifact.
    """

    registry: Registry
    registrar: Registrar
    max_artifact_bytes: int

    def register_version(self, call: Call, tenant: str, model: str) -> Response[str]:
        """Register a version: 201, or 200 if the same artifact is awaited already; both with a signed upload."""
        check_tenant_id(tenant)
        check_model_id(model)
        shape = registration_shape(max_artifact_bytes=self.max_artifact_bytes, frameworks=self.registrar.frameworks)
        registration = read_registration(call.fields(shape))

        def register() -> StoredAnswer:
            registered = self.registrar.register(tenant, model, registration)
            return StoredAnswer(201 if registered.created else 200, json.dumps(registered.document()))

        # Not longer than the signed upload in the answer is of use.
        return call.once(tenant, {"model": model, "body": json.loads(call.body())}, register, keep_seconds=UPLOAD_SECONDS)

    def complete_version(self, call: Call, tenant: str, model: str, version: str) -> Response[str]:
        """Say that an upload is done: puts its parts together. It may be said again; the answer is the version as it is now."""
        check_tenant_id(tenant)
        check_model_id(model)
        wanted = VersionId.parse(version)
        call.fields(NOTHING, optional=True)

        def complete() -> StoredAnswer:
            return StoredAnswer(200, json.dumps(self.registrar.complete(tenant, model, wanted).document()))

        return call.once(tenant, {"model": model, "version": version}, complete, keep_seconds=UPLOAD_SECONDS)

    def list_versions(self, call: Call, tenant: str, model: str) -> Response[str]:
        """List a model's versions, newest first."""
        model_of(self.registry, tenant, model)
        cursor = call.cursor("versions")
        page = self.registry.versions(tenant, model, limit=call.limit(), before=None if cursor is None else int(cursor))
        document: dict[str, object] = {"versions": [version.document() for version in page.items]}
        if page.more and page.items:
            document["next"] = write_cursor("versions", str(page.items[-1].number))
        return json_answer(200, document)

    def get_version(self, _call: Call, tenant: str, model: str, version: str) -> Response[str]:
        """Show a version: its state, why it was rejected, how long each step took."""
        wanted = VersionId.parse(version)
        model_of(self.registry, tenant, model)
        record = self.registry.version(tenant, model, wanted.number)
        if record is None or record.id != wanted:
            raise VersionNotFoundError(model, version)
        return json_answer(200, record.document())
