"""The modelled errors of SageMaker's InvokeEndpoint with their HTTP status (API reference: InvokeEndpoint, Errors)."""

from __future__ import annotations

__all__ = [
    "INTERNAL_FAILURE",
    "INTERNAL_STREAM_FAILURE",
    "MODEL_ERROR",
    "MODEL_NOT_READY",
    "MODEL_STREAM_ERROR",
    "SERVICE_UNAVAILABLE",
    "STATUS",
    "VALIDATION_ERROR",
]

VALIDATION_ERROR = "ValidationError"
"""The request is wrong, or the artifact behind TargetModel cannot be read."""
MODEL_ERROR = "ModelError"
"""The container answered 4xx or 5xx or not in time; carries OriginalStatusCode and OriginalMessage."""
MODEL_NOT_READY = "ModelNotReadyException"
"""The target model is still being downloaded or loaded: wait and retry."""
MODEL_STREAM_ERROR = "ModelStreamError"
"""The container broke off an answer that it streams, or took too long for it; comes within the stream."""
INTERNAL_STREAM_FAILURE = "InternalStreamFailure"
"""SageMaker broke off an answer that is streamed; comes within the stream."""
INTERNAL_FAILURE = "InternalFailure"
SERVICE_UNAVAILABLE = "ServiceUnavailable"
"""No instance can answer now: retry."""

STATUS = {
    VALIDATION_ERROR: 400,
    MODEL_ERROR: 424,
    MODEL_NOT_READY: 429,
    INTERNAL_FAILURE: 500,
    SERVICE_UNAVAILABLE: 503,
}
"""Error name -> HTTP status of the answer."""
