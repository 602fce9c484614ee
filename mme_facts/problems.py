"""The error table of the tenant API: stable problem types (RFC 9457) with their HTTP status and title."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CONTENT_TYPE", "PROBLEMS", "TYPE_PREFIX", "Problem"]

CONTENT_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:mme:problem:"


@dataclass(frozen=True, slots=True)
class Problem:
    """One row of the table.

    Attributes:
        slug: last part of ``type``, stable for ever.
        status: HTTP status.
        title: what it is, the same for every occurrence.
    """

    slug: str
    status: int
    title: str

    @property
    def type(self) -> str:
        """The ``type`` member of the answer."""
        return TYPE_PREFIX + self.slug


PROBLEMS = {
    problem.slug: problem
    for problem in (
        Problem("invalid-request", 400, "The request is not valid"),
        Problem("unauthenticated", 401, "The caller is not known"),
        Problem("forbidden", 403, "The caller may not do this"),
        Problem("format-not-allowed", 403, "The tenant may not bring this framework's artifacts"),
        Problem("not-found", 404, "There is no such resource"),
        Problem("tenant-not-found", 404, "There is no such tenant"),
        Problem("model-not-found", 404, "There is no such model"),
        Problem("version-not-found", 404, "There is no such version"),
        Problem("method-not-allowed", 405, "The resource does not know this method"),
        Problem("no-active-version", 409, "The model has no active version"),
        Problem("version-active", 409, "The version is active"),
        Problem("idempotency-conflict", 409, "The idempotency key was used with another request"),
        Problem("request-in-progress", 409, "The first request with this idempotency key is still running"),
        Problem("version-exists", 409, "The artifact is already stored"),
        Problem("upload-incomplete", 409, "The artifact is not uploaded in full"),
        Problem("quota-exceeded", 409, "The tenant's quota does not allow it"),
        Problem("write-conflict", 409, "Someone else changed the resource at the same time"),
        Problem("forbidden-move", 409, "The version is not in a state that allows this"),
        Problem("tenant-deleted", 410, "The tenant was deleted"),
        Problem("payload-too-large", 413, "The body is too large"),
        Problem("unsupported-media-type", 415, "The body has a media type that is not accepted"),
        Problem("model-failed", 502, "The model failed"),
        Problem("answer-too-large", 502, "The model's answer is too large"),
        Problem("model-rejected-input", 422, "The model rejected the input"),
        Problem("throttled", 429, "Too many requests"),
        Problem("not-warmed", 503, "The version could not be warmed"),
        Problem("model-loading", 503, "The model is still loading"),
        Problem("unavailable", 503, "The endpoint cannot answer now"),
        Problem("timeout", 504, "The model did not answer in time"),
        Problem("internal-error", 500, "The service failed"),
    )
}
