"""Registering a version: the request's body, field by field, and the write that gives it its number."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mme_facts.environment import Pool
from mme_facts.grammar import GrammarError, VersionId, check_model_id, check_tenant_id
from mme_facts.limits import SAMPLE_BODY_BYTES
from mme_tenancy.archive import FRAMEWORKS
from mme_tenancy.artifacts import StoredPart, Upload, UploadSigner
from mme_tenancy.bodies import BASE64, registration_shape
from mme_tenancy.clock import Clock, timestamp
from mme_tenancy.conflicts import until_written
from mme_tenancy.errors import (
    InvalidRequestError,
    PayloadTooLargeError,
    TenancyError,
    TenantNotFoundError,
    VersionExistsError,
)
from mme_tenancy.registry import Change, Registry, claim_key, model_key, tenant_key
from mme_tenancy.routes import Model
from mme_tenancy.shapes import parse_json
from mme_tenancy.sweep_ports import Admissions
from mme_tenancy.tenants import Quotas
from mme_tenancy.uploads import Completion, part_bytes_of
from mme_tenancy.versions import DigestClaim, Multipart, Sample, State, Version

__all__ = ["UPLOAD_SECONDS", "Registered", "Registrar", "Registration", "parse_registration", "read_registration"]

UPLOAD_SECONDS = 3600
"""How long a signed upload is valid; it also ends when the signing role's session does."""
_ENDED = frozenset({State.REJECTED, State.EXPIRED, State.RETIRED, State.PURGED})
"""States in which a version no longer stands for its artifact: the same bytes get a new number."""


@dataclass(frozen=True, slots=True)
class Registration:
    """What a tenant says about an artifact before uploading it.

    Attributes:
        sha256: its digest, 64 hexadecimal digits.
        size_bytes: its size.
        framework: such as ``xgboost``.
        sample: a request that the model must be able to answer.
        notes: the tenant's own words.
        activate: whether the version takes the route by itself once it is admitted.
    """

    sha256: str
    size_bytes: int
    framework: str
    sample: Sample
    notes: str | None = None
    activate: bool = True


def read_registration(fields: Mapping[str, Any]) -> Registration:
    """A registration from the members that `registration_shape` checked.

    Raises:
        InvalidRequestError: the sample is not base64 although it says so.
        PayloadTooLargeError: the sample is above its limit.
    """
    return Registration(
        fields["sha256"], fields["size_bytes"], fields["framework"], _sample(fields["sample"]), fields["notes"], fields["activate"]
    )


def parse_registration(body: bytes, *, max_artifact_bytes: int, frameworks: Sequence[str]) -> Registration:
    """Parse and validate the body of a registration.

    Args:
        body: the request's body.
        max_artifact_bytes: greatest admissible artifact.
        frameworks: what the platform serves.

    Raises:
        InvalidRequestError: a field is wrong; it carries field, value and what is allowed.
        PayloadTooLargeError: the artifact or the sample is above its limit.
    """
    shape = registration_shape(max_artifact_bytes=max_artifact_bytes, frameworks=frameworks)
    return read_registration(shape.check("body", parse_json(body)))


def _sample(fields: Mapping[str, Any]) -> Sample:
    text: str = fields["body"]
    if fields["encoding"] == "base64":
        if not re.fullmatch(BASE64, text):
            raise InvalidRequestError.of_field("sample.body", text, "base64, as sample.encoding says")
        body = base64.b64decode(text)
    else:
        body = text.encode()
    if len(body) > SAMPLE_BODY_BYTES:
        raise PayloadTooLargeError.of_limit("sample.body", len(body), SAMPLE_BODY_BYTES)
    return Sample(fields["content_type"], body, fields["accept"])


@dataclass(frozen=True, slots=True)
class Registered:
    """The outcome of a registration.

    Attributes:
        version: the version's record.
        upload: where its artifact goes; ``None`` if all of it is there already and only the version's admission is to come.
        created: whether the version is new; ``False`` if the same artifact was awaited already.
    """

    version: Version
    upload: Upload | None
    created: bool

    def document(self) -> dict[str, object]:
        """What the API shows."""
        version = self.version
        return {
            "tenant": version.tenant,
            "model": version.model,
            "version": str(version.id),
            "state": version.state.value,
            "upload": None if self.upload is None else self.upload.document(),
        }


class Registrar:
    """Registers versions, and completes their uploads.

    Args:
        registry: where they are recorded.
        signer: begins and signs the uploads.
        pools: which pool serves which framework.
        clock: time.
        random: numbers in [0, 1), for jitter.
        admissions: starts the admission of completed uploads. Default: it is left to the bucket's events.
    """

    def __init__(
        self,
        registry: Registry,
        signer: UploadSigner,
        pools: Sequence[Pool],
        clock: Clock,
        random: Callable[[], float],
        admissions: Admissions | None = None,
    ) -> None:
        self._completion = Completion(registry, signer, admissions, clock)
        self._registry = registry
        self._signer = signer
        self._pools = {pool.framework: pool for pool in pools}
        self._clock = clock
        self._random = random

    @property
    def frameworks(self) -> tuple[str, ...]:
        """What can be registered: frameworks with a pool whose artifacts can be inspected."""
        return tuple(framework for framework in FRAMEWORKS if framework in self._pools)

    def register(self, tenant: str, model: str, registration: Registration) -> Registered:
        """Give the artifact a version, or find the one that awaits it, and sign its upload.

        Raises:
            TenantNotFoundError: there is no such tenant.
            TenantDeletedError: it was deleted.
            FormatNotAllowedError: it may not bring this framework's artifacts.
            QuotaExceededError: a quota of it does not allow one more.
            VersionExistsError: the model has this artifact already.
            WriteConflictError: others kept changing the model at the same time.
            InvalidRequestError: an id is outside the grammar.
        """
        try:
            check_tenant_id(tenant)
            check_model_id(model)
        except GrammarError as error:
            raise InvalidRequestError.of_grammar(error) from error
        return until_written(
            lambda: self._write_once(tenant, model, registration), clock=self._clock, random=self._random, what="this model's versions"
        )

    def complete(self, tenant: str, model: str, wanted: VersionId) -> Version:
        """Complete an upload; see `Completion.complete`."""
        return self._completion.complete(tenant, model, wanted)

    def _write_once(self, tenant: str, model: str, registration: Registration) -> Registered:
        registry, now = self._registry, timestamp(self._clock.time())
        owner, before, claim = registry.read(tenant_key(tenant), model_key(tenant, model), claim_key(tenant, model, registration.sha256))
        if owner is None:
            raise TenantNotFoundError(tenant)
        owner.check_open()
        owner.check_format(registration.framework)
        known = registry.version(tenant, model, claim.number) if claim else None
        if known is not None and known.state not in _ENDED:
            return self._await_again(known, registration, owner.quotas, now)
        after = before.count_up(now) if before else Model(tenant, model, 1, now, now)
        version = Version(
            tenant=tenant,
            model=model,
            number=after.last_version,
            sha256=registration.sha256,
            size_bytes=registration.size_bytes,
            framework=registration.framework,
            pool=self._pools[registration.framework].name,
            sample=registration.sample,
            state=State.AWAITING_UPLOAD,
            created_at=now,
            updated_at=now,
            notes=registration.notes,
            activate=registration.activate,
        )
        version = replace(version, multipart=self._begin(version, part_bytes_of(version.size_bytes)))
        claimed = (
            replace(claim, number=version.number, rev=claim.rev + 1)
            if claim
            else DigestClaim(tenant, model, registration.sha256, version.number)
        )
        self._write(Change(before, after), Change(None, version), Change(claim, claimed), quotas=owner.quotas, begun=version)
        return self._registered(version, created=True)

    def _await_again(self, known: Version, registration: Registration, quotas: Quotas, now: str) -> Registered:
        """The version that awaits this artifact, with what the newest registration says about it, and what of it is uploaded."""
        if known.state is not State.AWAITING_UPLOAD:
            raise VersionExistsError(
                f"this artifact is version {known.id} of model {known.model!r} already, in state {known.state.value!r}",
                field="sha256",
                value=str(known.id),
            )
        part_bytes, multipart, stored = part_bytes_of(registration.size_bytes), known.multipart, None
        if multipart is not None and multipart.part_bytes == part_bytes:
            stored = self._signer.parts(known.name, multipart.upload_id)
        complete = multipart is not None and stored is None and self._signer.uploaded(known.name) is not None
        if stored is None and not complete:
            multipart = self._begin(known, part_bytes)
        amended = replace(
            known,
            size_bytes=registration.size_bytes,
            framework=registration.framework,
            pool=self._pools[registration.framework].name,
            sample=registration.sample,
            notes=registration.notes,
            activate=registration.activate,
            multipart=multipart,
        )
        # What is signed anew must not expire before it was of use.
        renewed = not complete and known.updated_at <= timestamp(self._clock.time() - UPLOAD_SECONDS)
        if amended != known or renewed:
            amended = replace(amended, updated_at=now, rev=known.rev + 1)
            self._write(Change(known, amended), quotas=quotas, begun=amended if multipart != known.multipart else None)
            if known.multipart is not None and multipart != known.multipart:
                self._signer.abort(known.name, known.multipart.upload_id)
        return Registered(amended, None, created=False) if complete else self._registered(amended, created=False, stored=stored)

    def _begin(self, version: Version, part_bytes: int | None) -> Multipart | None:
        return None if part_bytes is None else Multipart(self._signer.begin(version.name), part_bytes)

    def _write(self, *changes: Change, quotas: Quotas, begun: Version | None) -> None:
        """Write; what is refused leaves no upload behind that was begun for it. What else fails may have been written."""
        try:
            self._registry.write(*changes, quotas=quotas)
        except TenancyError:
            if begun is not None and begun.multipart is not None:
                self._signer.abort(begun.name, begun.multipart.upload_id)
            raise

    def _registered(self, version: Version, *, created: bool, stored: Mapping[int, StoredPart] | None = None) -> Registered:
        if version.multipart is None:
            upload = self._signer.sign(version.name, sha256=version.sha256, size_bytes=version.size_bytes, seconds=UPLOAD_SECONDS)
        else:
            upload = self._signer.sign_parts(
                version.name, version.multipart, size_bytes=version.size_bytes, uploaded=stored or {}, seconds=UPLOAD_SECONDS
            )
        return Registered(version, upload, created)
