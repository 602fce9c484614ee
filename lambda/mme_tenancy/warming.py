"""The call of a version's own sample payload: whether the version answers, and that it is loaded before anybody asks it.

Admission makes the first one. An activation makes one before the route changes, because an artifact that answered once may have left all
instances since. Nobody's quota, telemetry or cost knows of these calls; the container is told by a custom attribute.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from mme_tenancy.errors import ModelFailedError, NotWarmedError, TenancyError
from mme_tenancy.invocation import InvocationRequest, Invoker, Outcome
from mme_tenancy.retries import Failure
from mme_tenancy.routes import Target
from mme_tenancy.versions import Version

__all__ = ["MODEL_IS_TO_BLAME", "SampleCaller", "Warmer", "sample_request"]

MODEL_IS_TO_BLAME: Mapping[Failure, str] = {
    Failure.INPUT_REJECTED: "the model rejected the sample payload",
    Failure.MODEL_FAILED: "the model failed on the sample payload",
    Failure.WORKER_DIED: "the model could not be loaded, or failed on the sample payload, twice",
}
"""Failures of a sample payload that trying again will not change."""
_UNLOADED = frozenset({Failure.NOT_READY, Failure.TIMED_OUT, Failure.CONTAINER_SILENT})
_AGAIN_SECONDS = 5
_ANYWAY = "send 'warm': false to switch without that"


class Warmer(Protocol):
    """Makes sure that an instance has a version loaded."""

    def warm(self, version: Version, target: Target, *, deadline: float) -> Outcome:
        """Return once the version answered at ``target``.

        Args:
            version: the version's record.
            target: where its requests are about to go.
            deadline: when it is given up, on the monotonic clock.

        Raises:
            NotWarmedError: it did not answer in time, or could not be asked.
            ModelFailedError: it answers its sample with an error.
        """
        ...


def sample_request(version: Version, why: str) -> InvocationRequest:
    """The request with a version's sample payload.

    Args:
        version: the version's record.
        why: what it is for, such as ``activation``; the container is told.
    """
    sample = version.sample
    return InvocationRequest(sample.body, sample.content_type, sample.accept, warm_up=why)


class SampleCaller:
    """`Warmer` by the retry rules: loads that are under way are waited for, an endpoint that is busy is asked again.

    Args:
        invoker: the shared invocation path.
        tell: is told how each call ended. Default: nobody is.
    """

    def __init__(
        self, invoker: Invoker, tell: Callable[[Version, Target, Outcome], None] = lambda _version, _target, _outcome: None
    ) -> None:
        self._invoker = invoker
        self._tell = tell

    def warm(self, version: Version, target: Target, *, deadline: float) -> Outcome:
        """Call the sample payload until it is answered; see `Warmer`."""
        outcome = self._invoker.invoke(target, sample_request(version, "activation"), deadline=deadline)
        self._tell(version, target, outcome)
        if outcome.reply is None:
            raise _not_warmed(version, outcome)
        return outcome


def _not_warmed(version: Version, outcome: Outcome) -> TenancyError:
    name = str(version.id)
    blame = MODEL_IS_TO_BLAME.get(outcome.failure) if outcome.failure is not None else None
    if blame is not None:
        return ModelFailedError(f"{blame} of version {name}, so no request was switched to it: {_ANYWAY}", field="version", value=name)
    if outcome.failure in _UNLOADED:
        why = f"version {name} is still being loaded, so no request was switched to it: loading goes on, try again in a few seconds"
    else:
        why = f"the endpoint cannot load version {name} at the moment, so no request was switched to it: try again"
    return NotWarmedError(f"{why}, or {_ANYWAY}", field="version", value=name, retry_after_seconds=_AGAIN_SECONDS)
