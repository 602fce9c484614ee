"""The error answers of a fleet, in the terms of InvokeEndpoint (`mme_facts.runtime_errors`).

The text of a ModelError is what happened; SageMaker's sentence around it is made where it is sent.
"""

from __future__ import annotations

from mme_facts import runtime_errors
from mme_fleet.events import LoadFailed, LoadFailure, ReplyError

__all__ = ["load_error", "not_ready", "out_of_memory", "queue_full", "reply_error", "timed_out", "too_large", "unavailable"]

_INSUFFICIENT_STORAGE = 507
"""The container contract's status for what does not fit."""
_SERVICE_UNAVAILABLE = 503
"""The container's status for a full job queue."""


def unavailable(why: str) -> ReplyError:
    """No instance can serve the request."""
    return _error(runtime_errors.SERVICE_UNAVAILABLE, f"The endpoint cannot answer now, {why}: try again.")


def not_ready(model: str) -> ReplyError:
    """The load outlasted the wait."""
    return _error(runtime_errors.MODEL_NOT_READY, f"Model {model} is still being loaded: try again.")


def too_large(model: str, needed: int, budget: int, what: str) -> ReplyError:
    """The model can never fit an instance."""
    message = f"Model {model} needs {needed} bytes of {what}; an instance of this endpoint has {budget}."
    return _error(runtime_errors.MODEL_ERROR, message, _INSUFFICIENT_STORAGE)


def out_of_memory(model: str) -> ReplyError:
    """The container refused the load with 507 to the last attempt."""
    message = f"Model {model} did not fit in the container's memory, after evicting others as well."
    return _error(runtime_errors.MODEL_ERROR, message, _INSUFFICIENT_STORAGE)


def queue_full(model: str, size: int) -> ReplyError:
    """All workers of the model are busy and its queue is full: what multi-model-server answers with 503."""
    return _error(
        runtime_errors.MODEL_ERROR,
        f"{size} requests wait for model {model} already: its queue is full.",
        _SERVICE_UNAVAILABLE,
    )


def timed_out() -> ReplyError:
    """The container did not answer in time."""
    message = (
        "Your invocation timed out while waiting for a response from container primary. Review the latency metrics for each container in "
        "Amazon CloudWatch, resolve the issue, and try again."
    )
    return _error(runtime_errors.MODEL_ERROR, message, 0)


def load_error(event: LoadFailed) -> ReplyError:
    """A download or load failed."""
    if event.kind in (LoadFailure.MISSING, LoadFailure.DENIED):
        return _error(runtime_errors.VALIDATION_ERROR, event.message or f"Failed to download model data of {event.model}.")
    if event.kind is LoadFailure.UNAVAILABLE:
        return unavailable(event.message or f"the artifact of {event.model} cannot be fetched")
    return _error(runtime_errors.MODEL_ERROR, event.message or f"Model {event.model} cannot be loaded.", event.status or 500)


def reply_error(status: int | None) -> ReplyError | None:
    """What the container's status means to the caller (see `Replied.status`); ``None`` for success."""
    if status is None:
        return unavailable("the connection to the container broke")
    if status == 0:
        return timed_out()
    if 200 <= status < 300:
        return None
    return _error(runtime_errors.MODEL_ERROR, f"The container answered with status {status}.", status)


def _error(code: str, message: str, original_status: int | None = None) -> ReplyError:
    return ReplyError(code, runtime_errors.STATUS[code], message, original_status)
