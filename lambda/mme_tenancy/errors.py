"""The one error tree of the run time. Every class is a row of `mme_facts.problems`: that gives its type, HTTP status and title.

Texts are for tenants: what went wrong, the value got, what is allowed, what to do. They never carry a bucket name, an
ARN, a stack trace or another tenant's name.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Self

from mme_facts.grammar import GrammarError
from mme_facts.problems import PROBLEMS, Problem

__all__ = [
    "AnswerTooLargeError",
    "ForbiddenError",
    "ForbiddenMoveError",
    "FormatNotAllowedError",
    "IdempotencyConflictError",
    "InternalError",
    "InvalidRequestError",
    "InvocationTimeoutError",
    "MethodNotAllowedError",
    "ModelFailedError",
    "ModelLoadingError",
    "ModelNotFoundError",
    "ModelRejectedInputError",
    "NoActiveVersionError",
    "NotWarmedError",
    "PayloadTooLargeError",
    "QuotaExceededError",
    "RequestInProgressError",
    "ResourceNotFoundError",
    "TenancyError",
    "TenantDeletedError",
    "TenantNotFoundError",
    "ThrottledError",
    "UnavailableError",
    "UnsupportedMediaTypeError",
    "UploadIncompleteError",
    "VersionActiveError",
    "VersionExistsError",
    "VersionNotFoundError",
    "WriteConflictError",
]

_SHOWN_CHARACTERS = 120
_SHOWN_PARTS = 20


class TenancyError(Exception):
    """Root of the tree.

    Args:
        detail: one sentence about this occurrence.
        field: which input is meant, if one is.
        value: the value got; long ones are cut when shown.
        allowed: what is allowed instead, in words or as a list.
        retry_after_seconds: when trying again makes sense.

    Attributes:
        problem: the row of the error table.
    """

    problem: ClassVar[Problem] = PROBLEMS["internal-error"]

    def __init__(
        self,
        detail: str,
        *,
        field: str | None = None,
        value: object = None,
        allowed: object = None,
        retry_after_seconds: int | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.field = field
        self.value = value
        self.allowed = allowed
        self.retry_after_seconds = retry_after_seconds

    def document(self) -> dict[str, object]:
        """The error as the members of an ``application/problem+json`` document (RFC 9457)."""
        document: dict[str, object] = {
            "type": self.problem.type,
            "title": self.problem.title,
            "status": self.problem.status,
            "detail": self.detail,
        }
        if self.field is not None:
            document["field"] = self.field
            document["value"] = _shown(self.value)
        if self.allowed is not None:
            document["allowed"] = self.allowed
        return document


def _shown(value: object) -> object:
    if value is None or isinstance(value, bool) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, int) and value.bit_length() <= 64:
        return value
    text = value if isinstance(value, str) else repr(value) if not isinstance(value, int) else hex(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


class InvalidRequestError(TenancyError):
    """A field of the request is wrong (400)."""

    problem = PROBLEMS["invalid-request"]

    @classmethod
    def of_field(cls, field: str, value: object, allowed: object) -> Self:
        """The error for one field: names it, the value got and what is allowed."""
        words = ", ".join(map(str, allowed)) if isinstance(allowed, list | tuple) else str(allowed)
        return cls(f"{field} {_shown(value)!r} is not allowed: use {words}", field=field, value=value, allowed=allowed)

    @classmethod
    def of_grammar(cls, error: GrammarError) -> Self:
        """The error for a name outside the grammar."""
        return cls.of_field(error.field, error.value, error.allowed)

    @classmethod
    def of_shared(cls, model: str) -> InvalidRequestError:
        """The error for a stream of a model that a shared endpoint serves: SageMaker streams no answers of those."""
        return cls(
            f"model {model!r} is served by a shared endpoint, and SageMaker streams none of those: use invoke or a dedicated placement",
            field="model",
            value=model,
            allowed="a model whose active version has an inference component of its own",
        )


class UnsupportedMediaTypeError(InvalidRequestError):
    """The body is said to be something that the call does not take (415)."""

    problem = PROBLEMS["unsupported-media-type"]


class ForbiddenError(TenancyError):
    """The caller may not do this (403).

    Args:
        detail: one sentence about this occurrence.
        reason: why, in one word for the log, such as ``other-tenant``.
        field: which input is meant, if one is.
        value: the value got.
        allowed: what is allowed instead.
    """

    problem = PROBLEMS["forbidden"]

    def __init__(self, detail: str, *, reason: str, field: str | None = None, value: object = None, allowed: object = None) -> None:
        super().__init__(detail, field=field, value=value, allowed=allowed)
        self.reason = reason


class ResourceNotFoundError(TenancyError):
    """The path is not part of the API (404)."""

    problem = PROBLEMS["not-found"]


class MethodNotAllowedError(TenancyError):
    """The path does not know the method (405); ``allowed`` lists the methods that it knows."""

    problem = PROBLEMS["method-not-allowed"]


class TenantNotFoundError(TenancyError):
    """There is no such tenant (404)."""

    problem = PROBLEMS["tenant-not-found"]

    def __init__(self, tenant: str) -> None:
        super().__init__(f"tenant {tenant!r} does not exist: create it with PUT /tenants/{tenant}", field="tenant", value=tenant)


class TenantDeletedError(TenancyError):
    """The tenant was deleted (410): it is still shown, but nothing of it can be changed."""

    problem = PROBLEMS["tenant-deleted"]

    def __init__(self, tenant: str) -> None:
        super().__init__(
            f"tenant {tenant!r} was deleted: once its models are retired, PUT /tenants/{tenant} begins it anew",
            field="tenant",
            value=tenant,
        )


class FormatNotAllowedError(TenancyError):
    """The platform serves the framework, but the tenant may not bring its artifacts (403)."""

    problem = PROBLEMS["format-not-allowed"]

    def __init__(self, tenant: str, framework: str, formats: Sequence[str]) -> None:
        super().__init__(
            f"tenant {tenant!r} may not bring {framework!r} artifacts: use {', '.join(formats)}, or ask the operator to allow it",
            field="framework",
            value=framework,
            allowed=list(formats),
        )


class QuotaExceededError(TenancyError):
    """The tenant's quota does not allow it (409): trying again helps only after something was retired, or the quota raised."""

    problem = PROBLEMS["quota-exceeded"]

    @classmethod
    def of_quota(cls, name: str, *, used: int, more: int, quota: int) -> QuotaExceededError:
        """The error for ``more`` of what ``name`` counts, while ``used`` of ``quota`` are in use."""
        return cls(
            f"the quota of {name} is {quota}, of which {used} are in use: {more} more do not fit; retire what is not needed, or ask the "
            "operator for a greater quota",
            field=f"quotas.{name}",
            value=used + more,
            allowed=f"at most {quota}",
        )


class ModelNotFoundError(TenancyError):
    """The tenant has no such model (404)."""

    problem = PROBLEMS["model-not-found"]

    def __init__(self, tenant: str, model: str) -> None:
        super().__init__(f"tenant {tenant!r} has no model {model!r}: register a version of it first", field="model", value=model)


class VersionNotFoundError(TenancyError):
    """The model has no such version (404)."""

    problem = PROBLEMS["version-not-found"]

    def __init__(self, model: str, version: str) -> None:
        super().__init__(f"model {model!r} has no version {version!r}", field="version", value=version)


class NoActiveVersionError(TenancyError):
    """The model has no active version (409)."""

    problem = PROBLEMS["no-active-version"]

    def __init__(self, model: str) -> None:
        super().__init__(f"model {model!r} has no active version yet: upload a registered version and wait until its state is 'active'")


class VersionActiveError(TenancyError):
    """The version gets the model's requests (409)."""

    problem = PROBLEMS["version-active"]


class IdempotencyConflictError(TenancyError):
    """The idempotency key was used with another request (409)."""

    problem = PROBLEMS["idempotency-conflict"]


class RequestInProgressError(TenancyError):
    """The first request with this idempotency key is still running (409)."""

    problem = PROBLEMS["request-in-progress"]


class VersionExistsError(TenancyError):
    """The artifact is already stored as a version of the model (409)."""

    problem = PROBLEMS["version-exists"]


class UploadIncompleteError(TenancyError):
    """Something of the artifact is not there (409)."""

    problem = PROBLEMS["upload-incomplete"]

    @classmethod
    def of_parts(cls, numbers: Sequence[int]) -> UploadIncompleteError:
        """The error for parts that are missing, or have another size than they must."""
        shown = ", ".join(map(str, numbers[:_SHOWN_PARTS])) + (" ..." if len(numbers) > _SHOWN_PARTS else "")
        return cls(
            f"{len(numbers)} parts are missing: upload {shown} and complete again; registering the artifact again renews the addresses",
            field="parts",
            value=shown,
        )

    @classmethod
    def of_artifact(cls) -> UploadIncompleteError:
        """The error for an artifact of which nothing is there."""
        return cls("nothing is uploaded, or the upload was given up: register the artifact again and upload it as the answer says")


class WriteConflictError(TenancyError):
    """A revision changed between the read and the write (409)."""

    problem = PROBLEMS["write-conflict"]


class ForbiddenMoveError(TenancyError):
    """The state machine has no such move (409)."""

    problem = PROBLEMS["forbidden-move"]


class PayloadTooLargeError(TenancyError):
    """A body or artifact is above its limit (413)."""

    problem = PROBLEMS["payload-too-large"]

    @classmethod
    def of_limit(cls, field: str, size_bytes: int, limit_bytes: int) -> PayloadTooLargeError:
        """The error for ``size_bytes`` above ``limit_bytes``."""
        return cls(
            f"{field} is {size_bytes} bytes: at most {limit_bytes} bytes are allowed",
            field=field,
            value=size_bytes,
            allowed=f"at most {limit_bytes} bytes",
        )


class ModelRejectedInputError(TenancyError):
    """The model answered with a status of the 4xx class (422)."""

    problem = PROBLEMS["model-rejected-input"]


class ThrottledError(TenancyError):
    """The endpoint throttles and kept doing so (429)."""

    problem = PROBLEMS["throttled"]


class ModelFailedError(TenancyError):
    """The model answered with a status of the 5xx class (502)."""

    problem = PROBLEMS["model-failed"]


class AnswerTooLargeError(TenancyError):
    """The model's answer does not fit through the API (502)."""

    problem = PROBLEMS["answer-too-large"]


class ModelLoadingError(TenancyError):
    """The model was still loading when the deadline came (503)."""

    problem = PROBLEMS["model-loading"]


class NotWarmedError(TenancyError):
    """The version was to be loaded before requests are switched to it, and was not in time (503)."""

    problem = PROBLEMS["not-warmed"]


class UnavailableError(TenancyError):
    """The endpoint cannot answer (503)."""

    problem = PROBLEMS["unavailable"]


class InvocationTimeoutError(TenancyError):
    """The model did not answer before the deadline (504)."""

    problem = PROBLEMS["timeout"]


class InternalError(TenancyError):
    """Something unexpected; the details are in the log only (500)."""

    problem = PROBLEMS["internal-error"]

    def __init__(self) -> None:
        super().__init__("the service failed: try again, and tell the operator the request id if it stays so")
