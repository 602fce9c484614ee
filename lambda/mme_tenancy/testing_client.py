"""A `TenantClient` without AWS, for the tests of applications: models are functions, failures are scripted, every call is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from mme_facts.grammar import VersionId
from mme_tenancy.client import TenantClient
from mme_tenancy.clock import Clock
from mme_tenancy.errors import InvalidRequestError, ModelNotFoundError, TenancyError, TenantNotFoundError
from mme_tenancy.invocation import InvocationRequest, ModelReply, ModelStream, Outcome
from mme_tenancy.invocation_path import Served
from mme_tenancy.routes import Target
from mme_tenancy.streaming import AnswerStream
from mme_tenancy.testing import FakeClock

__all__ = ["FakeTenantClient", "SeenRequest"]

_VERSION = str(VersionId.of(1, "0" * 64))


@dataclass(frozen=True, slots=True)
class SeenRequest:
    """A request that a fake model got.

    Attributes:
        tenant: the tenant's id.
        model: the model's id.
        request: the payload and its headers.
        sticky_key: what chose the version.
    """

    tenant: str
    model: str
    request: InvocationRequest
    sticky_key: str


@dataclass(slots=True)
class _Models:
    """The path of a fake client."""

    clock: Clock
    models: dict[tuple[str, str], Callable[[bytes], bytes]] = field(default_factory=dict)
    streams: dict[tuple[str, str], Callable[[bytes], Iterable[bytes]]] = field(default_factory=dict)
    failures: list[TenancyError] = field(default_factory=list)
    seen: list[SeenRequest] = field(default_factory=list)

    def invoke(
        self,
        tenant: str,
        model: str,
        request: InvocationRequest,
        *,
        deadline: float,
        sticky_key: str,
        began: Callable[[Target, bool | None], None] = lambda _target, _canary: None,
    ) -> Served:
        """Answer by the model's function; a deadline changes nothing."""
        del deadline
        request.check()
        self.seen.append(SeenRequest(tenant, model, request, sticky_key))
        target = Target("fake", "AllTraffic", _VERSION, f"{tenant}/{model}/{_VERSION}.tar.gz")
        began(target, None)
        if self.failures:
            raise self.failures.pop(0)
        answer = self.models.get((tenant, model))
        if answer is None:
            raise ModelNotFoundError(tenant, model) if any(owner == tenant for owner, _ in self.models) else TenantNotFoundError(tenant)
        reply = ModelReply(answer(request.body), request.accept)
        return Served(target, None, Outcome(reply, None, None, None, 1, False, 0.0))

    def stream(
        self,
        tenant: str,
        model: str,
        request: InvocationRequest,
        *,
        deadline: float,
        first_deadline: float,
        opened: Callable[[Served], None] = lambda _served: None,
        ended: Callable[[TenancyError | None, int], None] = lambda _error, _bytes: None,
        began: Callable[[Target, bool | None], None] = lambda _target, _canary: None,
    ) -> AnswerStream:
        """Answer by the model's function, part by part; a deadline for the first part changes nothing."""
        del first_deadline
        request.check()
        answer = self.streams.get((tenant, model))
        if answer is None and (tenant, model) in self.models:
            raise InvalidRequestError.of_shared(model)
        self.seen.append(SeenRequest(tenant, model, request, ""))
        target = Target("fake", "AllTraffic", _VERSION, f"{tenant}/{model}/{_VERSION}.tar.gz", "fake")
        began(target, None)
        if self.failures:
            raise self.failures.pop(0)
        if answer is None:
            owners = {owner for owner, _ in (*self.models, *self.streams)}
            raise ModelNotFoundError(tenant, model) if tenant in owners else TenantNotFoundError(tenant)
        parts = iter(answer(request.body))
        reply = ModelStream(next(parts, b""), request.accept, more=lambda _seconds: next(parts, None), close=lambda: None)
        opened(Served(target, None, Outcome(reply, None, None, None, 1, False, 0.0)))
        return AnswerStream(
            reply,
            version=_VERSION,
            attempts=1,
            clock=self.clock,
            deadline=deadline,
            ended=lambda _failure, error, size_bytes: ended(error, size_bytes),
        )


class FakeTenantClient(TenantClient):
    """A `TenantClient` whose models are functions of this process: the same checks of arguments, no AWS, no waiting.

    Args:
        clock: time. Default: one that stands still.
        log: as of `TenantClient`.

    Examples:
        >>> from mme_tenancy.testing_client import FakeTenantClient
        >>> client = FakeTenantClient()
        >>> client.serve("acme", "echo", lambda body: body)
        >>> client.predict("acme", "echo", [1, 2])
        [1, 2]
        >>> [seen.model for seen in client.seen]
        ['echo']
    """

    def __init__(self, clock: Clock | None = None, *, log: Callable[[str], object] | None = None) -> None:
        clock = FakeClock() if clock is None else clock
        self._models = _Models(clock)
        self._use(self._models, clock, lambda: None, log)

    @property
    def seen(self) -> list[SeenRequest]:
        """Every request so far, in order."""
        return self._models.seen

    def serve(self, tenant: str, model: str, answer: Callable[[bytes], bytes]) -> None:
        """From now on the model answers a payload with ``answer(payload)``."""
        self._models.models[tenant, model] = answer

    def serve_stream(self, tenant: str, model: str, answer: Callable[[bytes], Iterable[bytes]]) -> None:
        """From now on the model has a placement of its own and streams the parts of ``answer(payload)``; it may raise to break off."""
        self._models.streams[tenant, model] = answer

    def fail_next(self, *errors: TenancyError) -> None:
        """The next requests end with these errors, in order, such as ``ThrottledError("slow down", retry_after_seconds=1)``."""
        self._models.failures.extend(errors)
