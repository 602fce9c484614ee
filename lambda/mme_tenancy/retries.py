"""The retry rules of an invocation: one table from what SageMaker said to what is done about it.

Sources: API reference InvokeEndpoint (errors), and botocore's retry modes, none of which but ``legacy`` retries
`ModelNotReadyException`; the client is pinned to one attempt, so the two layers never multiply.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from mme_facts.runtime_errors import MODEL_ERROR, MODEL_NOT_READY
from mme_tenancy.errors import (
    InvocationTimeoutError,
    ModelFailedError,
    ModelLoadingError,
    ModelRejectedInputError,
    TenancyError,
    ThrottledError,
    UnavailableError,
)

__all__ = ["RULES", "Failure", "Rule", "RuntimeFault", "classify"]


class Failure(StrEnum):
    """What went wrong with one attempt."""

    NOT_READY = "not ready"
    THROTTLED = "throttled"
    UNAVAILABLE = "unavailable"
    WORKER_DIED = "worker died"
    MODEL_FAILED = "model failed"
    INPUT_REJECTED = "input rejected"
    TIMED_OUT = "timed out"
    REFUSED = "refused"


class RuntimeFault(Exception):  # noqa: N818 - what the endpoint said, turned into an error of the tree by the rules
    """One attempt failed.

    Attributes:
        code: error code of the service, or ``ReadTimeout`` or ``Connection``.
        http_status: status of the service's answer; 0 without an answer.
        original_status: status of the container, when it is a `ModelError`.

    Its text is for logs only; ``message`` is what the service said, and must not hold what a container said about a payload.
    """

    def __init__(self, code: str, http_status: int = 0, original_status: int | None = None, message: str = "") -> None:
        super().__init__(f"{code} (HTTP {http_status}, container {original_status}) {message}".rstrip())
        self.code, self.http_status, self.original_status = code, http_status, original_status


@dataclass(frozen=True, slots=True)
class Rule:
    """What is done about one kind of failure.

    Attributes:
        retries: how often at most; the deadline may end it earlier.
        base_seconds: wait before the first retry, doubled each time, with a jitter of half to one and a half.
        cap_seconds: greatest wait before jitter.
        error: what the caller gets in the end.
        detail: its text.
        retry_after_seconds: when a caller may try again; ``None`` if that is of no use.
    """

    retries: int
    base_seconds: float
    cap_seconds: float
    error: type[TenancyError]
    detail: str
    retry_after_seconds: int | None = None

    def wait_seconds(self, retry: int, random: float) -> float:
        """The wait before retry number ``retry`` (from 0); ``random`` in [0, 1)."""
        return min(self.base_seconds * float(2**retry), self.cap_seconds) * (0.5 + random)

    def failed(self) -> TenancyError:
        """The error for the caller."""
        return self.error(self.detail, retry_after_seconds=self.retry_after_seconds)


RULES: Mapping[Failure, Rule] = {
    # Only the deadline ends it: a large model takes minutes, and each answer is cheap.
    Failure.NOT_READY: Rule(
        1000, 0.1, 2.0, ModelLoadingError, "the model is still being loaded; loading goes on: try again in a few seconds", 5
    ),
    Failure.THROTTLED: Rule(4, 0.25, 4.0, ThrottledError, "too many requests at the moment: try again later", 2),
    Failure.UNAVAILABLE: Rule(9, 0.1, 2.0, UnavailableError, "the endpoint cannot answer at the moment: try again", 2),
    Failure.WORKER_DIED: Rule(1, 0.2, 0.2, ModelFailedError, "the model failed while it answered, twice"),
    Failure.MODEL_FAILED: Rule(0, 0, 0, ModelFailedError, "the model failed while it answered"),
    Failure.INPUT_REJECTED: Rule(0, 0, 0, ModelRejectedInputError, "the model rejected the input: check the body and its content type"),
    Failure.TIMED_OUT: Rule(1, 0.1, 0.1, InvocationTimeoutError, "the model did not answer in time", 5),
    Failure.REFUSED: Rule(0, 0, 0, UnavailableError, "the endpoint does not take requests for this model at the moment"),
}
"""The table. README and docs show the same rows."""

_THROTTLING_CODES = frozenset(
    {"Throttling", "ThrottlingException", "ThrottledException", "TooManyRequestsException", "RequestLimitExceeded"}
)
_WORKER_DIED_STATUSES = frozenset({500, 503, 507})


def classify(fault: RuntimeFault) -> Failure:
    """Which row of `RULES` a failed attempt belongs to."""
    if fault.code == MODEL_NOT_READY:
        return Failure.NOT_READY
    if fault.code in _THROTTLING_CODES:
        return Failure.THROTTLED
    if fault.code == MODEL_ERROR:
        status = fault.original_status or 0
        if status < 400:
            # A container that does not answer appears as "server error (0)".
            return Failure.TIMED_OUT
        if status < 500:
            return Failure.INPUT_REJECTED
        return Failure.WORKER_DIED if status in _WORKER_DIED_STATUSES else Failure.MODEL_FAILED
    if fault.code == "ReadTimeout":
        return Failure.TIMED_OUT
    if fault.code == "Connection" or fault.http_status >= 500:
        return Failure.UNAVAILABLE
    return Failure.THROTTLED if fault.http_status == 429 else Failure.REFUSED
