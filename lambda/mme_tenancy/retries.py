"""The retry rules of an invocation: one table from what SageMaker said to what is done about it.

Sources: API reference InvokeEndpoint (errors), and botocore's retry modes, none of which but ``legacy`` retries
`ModelNotReadyException`; the client is pinned to one attempt, so the two layers never multiply.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from mme_facts.runtime_errors import INTERNAL_STREAM_FAILURE, MODEL_ERROR, MODEL_NOT_READY, MODEL_STREAM_ERROR, VALIDATION_ERROR
from mme_tenancy.errors import (
    InvocationTimeoutError,
    ModelFailedError,
    ModelLoadingError,
    ModelRejectedInputError,
    TenancyError,
    ThrottledError,
    UnavailableError,
)

__all__ = ["RULES", "Failure", "RetryBudget", "Rule", "RuntimeFault", "classify"]


class Failure(StrEnum):
    """What went wrong with one attempt."""

    NOT_READY = "not ready"
    THROTTLED = "throttled"
    UNAVAILABLE = "unavailable"
    CONNECTION_LOST = "connection lost"
    WORKER_DIED = "worker died"
    MODEL_FAILED = "model failed"
    INPUT_REJECTED = "input rejected"
    TIMED_OUT = "timed out"
    CONTAINER_SILENT = "container silent"
    TARGET_GONE = "target gone"
    REFUSED = "refused"


class RuntimeFault(Exception):  # noqa: N818 - what the endpoint said, turned into an error of the tree by the rules
    """One attempt failed.

    Attributes:
        code: error code of the service, or ``ReadTimeout``, ``NotConnected`` (nothing was sent) or ``ConnectionLost``.
        http_status: status of the service's answer; 0 without an answer.
        original_status: status of the container, when it is a `ModelError`.
        message: what the service said.

    Its text is for logs only; ``message`` is what the service said, and must not hold what a container said about a payload.
    """

    def __init__(self, code: str, http_status: int = 0, original_status: int | None = None, message: str = "") -> None:
        super().__init__(f"{code} (HTTP {http_status}, container {original_status}) {message}".rstrip())
        self.code, self.http_status, self.original_status, self.message = code, http_status, original_status, message

    @property
    def answered(self) -> bool:
        """Whether the container answered, if only with an error."""
        return self.code == MODEL_ERROR and bool(self.original_status)


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
        may_have_run: whether the model may have worked on the request; then a request that must not run twice is not retried.
        budgeted: whether a retry is taken from the `RetryBudget`.
        as_long_again: whether a retry needs as much time before the deadline as the attempt took: with less it would end alike.
    """

    retries: int
    base_seconds: float
    cap_seconds: float
    error: type[TenancyError]
    detail: str
    retry_after_seconds: int | None = None
    may_have_run: bool = False
    budgeted: bool = False
    as_long_again: bool = False

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
    Failure.THROTTLED: Rule(4, 0.25, 4.0, ThrottledError, "too many requests at the moment: try again later", 2, budgeted=True),
    Failure.UNAVAILABLE: Rule(9, 0.1, 2.0, UnavailableError, "the endpoint cannot answer at the moment: try again", 2, budgeted=True),
    Failure.CONNECTION_LOST: Rule(
        3, 0.1, 2.0, UnavailableError, "the endpoint cannot answer at the moment: try again", 2, may_have_run=True, budgeted=True
    ),
    Failure.WORKER_DIED: Rule(
        1, 0.2, 0.2, ModelFailedError, "the model failed while it answered, and again when asked once more", may_have_run=True
    ),
    Failure.MODEL_FAILED: Rule(0, 0, 0, ModelFailedError, "the model failed while it answered"),
    Failure.INPUT_REJECTED: Rule(0, 0, 0, ModelRejectedInputError, "the model rejected the input: check the body and its content type"),
    Failure.TIMED_OUT: Rule(
        1, 0.1, 0.1, InvocationTimeoutError, "the model did not answer in time", 5, may_have_run=True, as_long_again=True
    ),
    Failure.CONTAINER_SILENT: Rule(
        1, 0.1, 0.1, InvocationTimeoutError, "the model did not answer in time", 5, may_have_run=True, as_long_again=True
    ),
    # The caller of the invoker reads the route again: a retry of the same target is of no use.
    Failure.TARGET_GONE: Rule(0, 0, 0, UnavailableError, "the model is being moved or taken away: try again", 2),
    Failure.REFUSED: Rule(0, 0, 0, UnavailableError, "the endpoint does not take requests for this model at the moment"),
}
"""The table. README and docs show the same rows."""

_THROTTLING_CODES = frozenset(
    {"Throttling", "ThrottlingException", "ThrottledException", "TooManyRequestsException", "RequestLimitExceeded"}
)
_WORKER_DIED_STATUSES = frozenset({500, 503, 507})
_GONE_WORDS = ("not found", "could not find", "does not exist", "failed to download model data")
"""What a ValidationError says about an endpoint, variant, component or artifact that is not there; no code of its own tells it."""


class RetryBudget:
    """Bounds what retries add to a service that is short already; shared by all requests of a process, safe for threads.

    A retry takes one token, an answer returns a part of one (as botocore's standard mode does): while most requests are answered
    retries are free, and when hardly any is, their number sinks to that part of the answers.

    Args:
        capacity: tokens at first and at most.
        returned: part of a token that each answer returns.
    """

    def __init__(self, capacity: float = 100.0, returned: float = 0.2) -> None:
        self._capacity, self._returned, self._tokens = capacity, returned, capacity
        self._lock = threading.Lock()

    def take(self) -> bool:
        """Take a token for a retry; whether there was one."""
        with self._lock:
            if self._tokens < 1.0:
                return False
            self._tokens -= 1.0
            return True

    def answer(self) -> None:
        """A request was answered."""
        with self._lock:
            self._tokens = min(self._tokens + self._returned, self._capacity)


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
            return Failure.CONTAINER_SILENT
        if status < 500:
            return Failure.INPUT_REJECTED
        return Failure.WORKER_DIED if status in _WORKER_DIED_STATUSES else Failure.MODEL_FAILED
    if fault.code == "ReadTimeout":
        return Failure.TIMED_OUT
    if fault.code == MODEL_STREAM_ERROR:
        return Failure.MODEL_FAILED
    if fault.code in ("ConnectionLost", INTERNAL_STREAM_FAILURE):
        return Failure.CONNECTION_LOST
    if fault.code == "NotConnected" or fault.http_status >= 500:
        return Failure.UNAVAILABLE
    if fault.code == VALIDATION_ERROR and any(words in fault.message.lower() for words in _GONE_WORDS):
        return Failure.TARGET_GONE
    return Failure.THROTTLED if fault.http_status == 429 else Failure.REFUSED
