"""The one log line of a request, as it comes together on the way: who asked what, where it went, how it ended."""

from __future__ import annotations

from collections.abc import Callable

from mme_facts.telemetry import LineSettings
from mme_tenancy.clock import Clock
from mme_tenancy.errors import ModelFailedError, ModelLoadingError, TenancyError, ThrottledError
from mme_tenancy.invocation_path import Served
from mme_tenancy.retries import Failure
from mme_tenancy.routes import Target
from mme_tenancy.telemetry import invocation_line, to_standard_output, write_line

__all__ = ["RequestLine"]


class RequestLine:
    """Gathers the fields of one request and writes them once, at its end.

    Args:
        clock: time; the request begins now.
        settings: which tenants have metrics of their own, and how many lines carry the access log.
        write: takes the line. Default: standard output.

    Attributes:
        fields: what is known so far, by the names of `mme_facts.telemetry`.
        told_elsewhere: whether another call around the same request writes its line, so that this one writes none.
    """

    def __init__(self, clock: Clock, settings: LineSettings, write: Callable[[str], object] = to_standard_output) -> None:
        self._clock, self._settings, self._write = clock, settings, write
        self._started = clock.monotonic()
        self.fields: dict[str, object] = {}
        self.told_elsewhere = False

    def began(self, target: Target, canary: bool | None) -> None:
        """The request goes to ``target``; ``canary`` as in `Served`.

        A request that follows its route to a second target was sent at least once: so it says if it is refused there.
        """
        followed = "endpoint" in self.fields
        placement = "shared" if target.component is None else "dedicated"
        self.fields |= {"version": target.version, "endpoint": target.endpoint, "placement": placement, "component": target.component}
        self.fields |= {"canary": None if canary is None else int(canary), "attempts": int(followed), "retries": 0}
        self.fields |= {"cold": 0, "throttled": 0, "rejected_by_limit": 0, "circuit_open": 0}

    def ended(self, served: Served) -> None:
        """The endpoint answered, or the retry rules ended."""
        outcome = served.outcome
        self.fields |= {"attempts": outcome.attempts, "retries": outcome.attempts - 1, "cold": int(outcome.cold)}
        self.fields |= {"waited_ms": round(outcome.waited_seconds * 1000), "throttled": int(outcome.failure is Failure.THROTTLED)}
        self.fields["model_latency_ms"] = None if outcome.model_seconds is None else round(outcome.model_seconds * 1000, 1)
        self.fields |= {"failure": outcome.failure and outcome.failure.value, "fault": outcome.fault}
        if outcome.reply is not None:
            self.fields["bytes_out"] = len(outcome.reply.body)

    def failed(self, error: TenancyError) -> None:
        """The caller gets this error."""
        self.fields["problem"] = error.problem.slug
        if self.fields.get("attempts") == 0:
            # It had a route and was not sent: the tenant's limits or the model's circuit breaker refused it.
            self.fields["rejected_by_limit"] = int(isinstance(error, ThrottledError | ModelLoadingError))
            self.fields["circuit_open"] = int(isinstance(error, ModelFailedError))

    def write(self, status: int) -> None:
        """Write the line of the answer with this HTTP status."""
        latency_ms = round((self._clock.monotonic() - self._started) * 1000, 1)
        self.fields |= {"status": status, "failed": int(status >= 500), "latency_ms": latency_ms}
        write_line(invocation_line(self.fields, epoch_seconds=self._clock.time(), settings=self._settings), self._write)
