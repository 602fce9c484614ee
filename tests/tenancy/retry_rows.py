"""The rows of the retry table as the tests know them: what SageMaker says, and what must come of it within 27 s without jitter.

They are written out here, not computed from `RULES`: the table is held against them.
"""

from __future__ import annotations

from dataclasses import dataclass

from mme_tenancy.errors import (
    InvocationTimeoutError,
    ModelFailedError,
    ModelLoadingError,
    ModelRejectedInputError,
    TenancyError,
    ThrottledError,
    UnavailableError,
)
from mme_tenancy.retries import Failure

__all__ = ["DEADLINE_SECONDS", "ROWS", "Row"]

DEADLINE_SECONDS = 27.0


@dataclass(frozen=True)
class Row:
    """One thing that may go wrong, each time a request is sent.

    Attributes:
        code: the service's error code, or what botocore says in place of one.
        http_status: status of the service's answer; 0 without one.
        original_status: status of the container.
        failure: the row of the table.
        attempts: requests in all.
        waited_seconds: time between them in all.
        error: what the caller gets.
        status: its HTTP status.
        once: requests in all when the caller said that the model must not work on it twice.
        message: what the service says.
    """

    code: str
    http_status: int
    original_status: int | None
    failure: Failure
    attempts: int
    waited_seconds: float
    error: type[TenancyError]
    status: int
    once: int
    message: str = "m"

    def __str__(self) -> str:
        return f"{self.code or 'no code'}-{self.http_status}-{self.original_status}-{self.failure}".replace(" ", "-")


ROWS = [
    Row("ModelNotReadyException", 429, None, Failure.NOT_READY, 17, 25.1, ModelLoadingError, 503, 17),
    Row("ThrottlingException", 400, None, Failure.THROTTLED, 5, 3.75, ThrottledError, 429, 5),
    Row("ThrottlingException", 400, None, Failure.THROTTLED, 5, 3.75, ThrottledError, 429, 5, message=""),
    Row("ThrottlingException", 429, None, Failure.THROTTLED, 5, 3.75, ThrottledError, 429, 5),
    Row("", 429, None, Failure.THROTTLED, 5, 3.75, ThrottledError, 429, 5, message=""),
    Row("ServiceUnavailable", 503, None, Failure.UNAVAILABLE, 10, 11.1, UnavailableError, 503, 10),
    Row("InternalFailure", 500, None, Failure.UNAVAILABLE, 10, 11.1, UnavailableError, 503, 10),
    Row("InternalDependencyException", 530, None, Failure.UNAVAILABLE, 10, 11.1, UnavailableError, 503, 10),
    Row("", 504, None, Failure.UNAVAILABLE, 10, 11.1, UnavailableError, 503, 10),
    Row("NotConnected", 0, None, Failure.UNAVAILABLE, 10, 11.1, UnavailableError, 503, 10),
    Row("ConnectionLost", 0, None, Failure.CONNECTION_LOST, 4, 0.7, UnavailableError, 503, 1),
    Row("ModelError", 424, 500, Failure.WORKER_DIED, 2, 0.2, ModelFailedError, 502, 1),
    Row("ModelError", 424, 503, Failure.WORKER_DIED, 2, 0.2, ModelFailedError, 502, 1),
    Row("ModelError", 424, 507, Failure.WORKER_DIED, 2, 0.2, ModelFailedError, 502, 1),
    Row("ModelError", 424, 501, Failure.MODEL_FAILED, 1, 0.0, ModelFailedError, 502, 1),
    Row("ModelError", 424, 400, Failure.INPUT_REJECTED, 1, 0.0, ModelRejectedInputError, 422, 1),
    Row("ModelError", 424, 415, Failure.INPUT_REJECTED, 1, 0.0, ModelRejectedInputError, 422, 1),
    Row("ModelError", 424, 0, Failure.CONTAINER_SILENT, 2, 0.1, InvocationTimeoutError, 504, 1),
    Row("ModelError", 424, None, Failure.CONTAINER_SILENT, 2, 0.1, InvocationTimeoutError, 504, 1),
    Row("ReadTimeout", 0, None, Failure.TIMED_OUT, 2, 0.1, InvocationTimeoutError, 504, 1),
    Row("ValidationError", 400, None, Failure.TARGET_GONE, 1, 0.0, UnavailableError, 503, 1, message="Endpoint e of account a not found."),
    Row("ValidationError", 400, None, Failure.REFUSED, 1, 0.0, UnavailableError, 503, 1),
    Row("AccessDeniedException", 403, None, Failure.REFUSED, 1, 0.0, UnavailableError, 503, 1),
]
