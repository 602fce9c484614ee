"""From a tenant's model to its answer: the one path that the API's function and applications share.

It finds the route (`StaleCache`), keeps to the tenant's limits (`Fairness`), acts as the tenant, and invokes by the retry rules
(`Invoker`). When SageMaker says that the target is gone, the route is read anew, and if it leads elsewhere now the request follows it.
A component that is gone has no tags, so to a tenant's session it is one that it may not invoke: a refusal there reads the route, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from mme_tenancy.clock import Clock
from mme_tenancy.errors import (
    ForbiddenError,
    InvalidRequestError,
    ModelNotFoundError,
    NoActiveVersionError,
    TenancyError,
    TenantNotFoundError,
    UnavailableError,
)
from mme_tenancy.fairness import Fairness, Limits, Turn
from mme_tenancy.invocation import InvocationRequest, Invoker, ModelStream, Outcome
from mme_tenancy.registry import Registry, model_key, tenant_key
from mme_tenancy.retries import RULES, Failure
from mme_tenancy.route_changes import RouteChanges, part_of
from mme_tenancy.routes import Model, Route, Target
from mme_tenancy.stale_cache import Freshness, StaleCache
from mme_tenancy.tenants import Tenant

if TYPE_CHECKING:
    from mme_tenancy.streaming import AnswerStream

__all__ = ["Addressee", "InvocationPath", "Lookup", "PathSettings", "Served", "Tenancy", "looked_up_in"]

_MODEL_IS_TO_BLAME = frozenset({Failure.MODEL_FAILED, Failure.WORKER_DIED, Failure.CONTAINER_SILENT})
_PATIENT_SECONDS = 20.0
"""A model that does not answer is to blame only if it was given so long: impatient callers say nothing about it."""


@dataclass(frozen=True, slots=True)
class Addressee:
    """Who a request is for, as the registry says.

    Attributes:
        tenant: the tenant's record, if there is one.
        model: the model's record, if there is one.
    """

    tenant: Tenant | None
    model: Model | None

    @property
    def served(self) -> bool:
        """Whether requests go anywhere."""
        return self.tenant is not None and self.tenant.deleted_at is None and self.model is not None and self.model.route is not None

    def has_key(self, api_key: str) -> bool:
        """Whether a key of the gateway is the tenant's."""
        return self.tenant is not None and self.tenant.api_key == api_key

    def check_key(self, api_key: str) -> None:
        """Raise `ForbiddenError` if a key of the gateway is not the tenant's; a tenant that is not there is somebody else's error."""
        if self.tenant is not None and not self.has_key(api_key):
            raise ForbiddenError("the API key is not this tenant's: send the tenant's own as X-Api-Key", reason="other-key")


Lookup = Callable[[str, str], Addressee]
"""Reads a tenant and a model of it, as they are now; raises an error of the tree when it cannot."""


def looked_up_in(registry: Registry) -> Lookup:
    """One consistent read for both."""

    def look_up(tenant: str, model: str) -> Addressee:
        return Addressee(*registry.read(tenant_key(tenant), model_key(tenant, model)))

    return look_up


@dataclass(frozen=True, slots=True)
class PathSettings:
    """How one process invokes.

    Attributes:
        freshness: how old may be what is known of changes of routes and tenants' limits, and the routes themselves where changes cannot be
            watched: a route that changed is followed everywhere after ``stale_seconds``. Default: 1 s, then renewed behind the caller's
            back until 2 s.
        routes: routes that are kept; the least recently used goes.
    """

    freshness: Freshness = field(default_factory=Freshness)
    routes: int = 10_000


class Tenancy(Protocol):
    """Acts as a tenant."""

    def acting_as(self, tenant: str, *, deadline: float) -> AbstractContextManager[None]:
        """Within it, calls are made with the tenant's own rights only; they are waited for until the deadline, on the monotonic clock."""
        ...


@dataclass(frozen=True, slots=True)
class Served:
    """How a request ended.

    Attributes:
        target: where it went last.
        canary: whether that is the canary; ``None`` if the model has none.
        outcome: how it ended there; attempts, waits and coldness are those of all targets.
    """

    target: Target
    canary: bool | None
    outcome: Outcome


class InvocationPath:
    """Invokes tenants' models; safe for threads.

    Args:
        lookup: where tenants and routes are.
        invoker: the retry rules.
        clock: time.
        background: runs a function soon, on another thread: routes are renewed there.
        fairness: limits and circuit breakers. Default: its own.
        tenancy: acts as the tenant while its model is invoked. Default: nobody does, the calls have the rights of the process.
        settings: how long routes are kept.
    """

    def __init__(
        self,
        lookup: Lookup,
        invoker: Invoker,
        clock: Clock,
        *,
        background: Callable[[Callable[[], None]], object],
        fairness: Fairness | None = None,
        tenancy: Tenancy | None = None,
        settings: PathSettings | None = None,
        changes: Callable[[], Sequence[int]] | None = None,
    ) -> None:
        self._invoker, self._tenancy = invoker, tenancy
        self._settings = PathSettings() if settings is None else settings
        self._fairness = Fairness(clock) if fairness is None else fairness
        self._clock = clock
        freshness = self._settings.freshness
        watch = None if changes is None else RouteChanges(changes, clock, freshness=freshness, background=background)
        self._addressees: StaleCache[tuple[str, str], Addressee] = StaleCache(
            lambda key: lookup(*key),
            clock,
            freshness=freshness,
            entries=self._settings.routes,
            keep=lambda addressee: addressee.served,
            background=background,
            watch=watch,
            part=lambda key: part_of(key[0]),
        )

    def invoke(
        self,
        tenant: str,
        model: str,
        request: InvocationRequest,
        *,
        deadline: float,
        sticky_key: str,
        began: Callable[[Target, bool | None], None] = lambda _target, _canary: None,
        api_key: str | None = None,
    ) -> Served:
        """Invoke a tenant's model.

        Args:
            tenant: its id.
            model: the model's id.
            request: the request.
            deadline: when the answer is wanted, on the monotonic clock.
            sticky_key: requests with the same key go to the same version while a canary runs.
            began: told where the request goes, and whether that is the canary, before it goes there.
            api_key: id of the gateway's key that the request came with, which must be the tenant's own. Default: nobody looks.

        Raises:
            ForbiddenError: the key is another tenant's.
            TenantNotFoundError: there is no such tenant.
            ModelNotFoundError: the tenant has no such model.
            NoActiveVersionError: the model has no active version.
            ThrottledError: the tenant is above its limits.
            ModelLoadingError: too many of the tenant's models are being loaded.
            ModelFailedError: the model kept failing and rests.
            UnavailableError: the registry or the tenant's session cannot be had.
            PayloadTooLargeError: the body is above SageMaker's limit.
            InvalidRequestError: a header cannot be sent.
        """
        request.check()
        key = (tenant, model)
        addressee = self._in_time(self._addressees.get, key, deadline)
        if api_key is not None and not addressee.has_key(api_key):
            # It may be new.
            addressee = self._in_time(self._addressees.refresh, key, deadline)
            addressee.check_key(api_key)
        route, limits = self._route(addressee, tenant, model)
        served = self._once(tenant, route, limits, request, deadline, sticky_key, began)
        if not _may_have_moved(served):
            return served
        route, limits = self._route(self._in_time(self._addressees.refresh, key, deadline), tenant, model)
        if route.choose(sticky_key) == served.target or self._clock.monotonic() >= deadline:
            return served
        return _joined(served, self._once(tenant, route, limits, request, deadline, sticky_key, began))

    def _in_time(self, read: Callable[..., Addressee], key: tuple[str, str], deadline: float) -> Addressee:
        try:
            return read(key, deadline=deadline)
        except TimeoutError as error:
            raise UnavailableError("the model's route was not there in time: try again", retry_after_seconds=2) from error

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
        """Invoke a tenant's model and have its answer part by part, from the active version alone: canaries are shared.

        Args:
            tenant: its id.
            model: the model's id.
            request: the request.
            deadline: when the whole answer is wanted, on the monotonic clock.
            first_deadline: when its first part is wanted; until then the retry rules apply.
            opened: told how the request ended once the first part is there, or in its stead what failed.
            ended: told once, at the end of an answer that began, what the caller got instead of the rest, and how many bytes came.
            began: told where the request goes before it goes there.

        Raises:
            InvalidRequestError: a shared endpoint serves the model.
            TenancyError: as `invoke`, and what kept the first part from coming.
        """
        from mme_tenancy.streaming import AnswerStream

        request.check()
        key = (tenant, model)
        first_deadline = min(first_deadline, deadline)
        route, limits = self._route(self._in_time(self._addressees.get, key, first_deadline), tenant, model)
        served, turn, hold = self._open(tenant, model, route, limits, request, first_deadline, began)
        if _may_have_moved(served):
            route, limits = self._route(self._in_time(self._addressees.refresh, key, first_deadline), tenant, model)
            if route.active != served.target and self._clock.monotonic() < first_deadline:
                again, turn, hold = self._open(tenant, model, route, limits, request, first_deadline, began)
                served = _joined(served, again)
        outcome = served.outcome
        with hold:
            opened(served)
            reply = outcome.answer()
            assert isinstance(reply, ModelStream), "a stream was asked for"
            hold = hold.pop_all()

        def end(failure: Failure | None, error: TenancyError | None, size_bytes: int) -> None:
            with hold:
                if failure in _MODEL_IS_TO_BLAME:
                    turn.blame()
                elif failure is None:
                    turn.answer()
            ended(error, size_bytes)

        return AnswerStream(
            reply, version=served.target.version, attempts=outcome.attempts, clock=self._clock, deadline=deadline, ended=end
        )

    def _open(
        self,
        tenant: str,
        model: str,
        route: Route,
        limits: Limits,
        request: InvocationRequest,
        deadline: float,
        began: Callable[[Target, bool | None], None],
    ) -> tuple[Served, Turn, ExitStack]:
        """How the request ended, and what is held for its answer: nothing if there is none."""
        target = route.active
        if target.component is None:
            raise InvalidRequestError.of_shared(model)
        began(target, None if route.canary is None else False)
        # A stream outlives this call and may be read on another thread: only its turn is held, rights are needed to sign alone.
        acting = nullcontext() if self._tenancy is None else self._tenancy.acting_as(tenant, deadline=deadline)
        with ExitStack() as hold:
            turn = hold.enter_context(self._fairness.turn(tenant, target.key, limits, resident=True))
            patient = deadline - self._clock.monotonic() >= _PATIENT_SECONDS
            with acting:
                outcome = self._invoker.invoke(target, request, deadline=deadline, stream=True)
            if outcome.reply is None:
                _tell(turn, outcome, patient=patient)
                hold.close()
            return Served(target, None if route.canary is None else False, outcome), turn, hold.pop_all()

    def _once(
        self,
        tenant: str,
        route: Route,
        limits: Limits,
        request: InvocationRequest,
        deadline: float,
        sticky_key: str,
        began: Callable[[Target, bool | None], None],
    ) -> Served:
        target = route.choose(sticky_key)
        canary = None if route.canary is None else target != route.active
        began(target, canary)
        acting = nullcontext() if self._tenancy is None else self._tenancy.acting_as(tenant, deadline=deadline)
        with self._fairness.turn(tenant, target.key, limits, resident=target.component is not None) as turn, acting:
            patient = deadline - self._clock.monotonic() >= _PATIENT_SECONDS
            outcome = self._invoker.invoke(target, request, deadline=deadline)
            _tell(turn, outcome, patient=patient)
            if turn.cold and outcome.failure is Failure.TIMED_OUT:
                # A load keeps the request waiting; nobody has seen this model in memory, so that is what it most likely waits for.
                outcome = replace(outcome, error=RULES[Failure.NOT_READY].failed())
        return Served(target, canary, outcome)

    def _route(self, addressee: Addressee, tenant: str, model: str) -> tuple[Route, Limits]:
        if addressee.tenant is None:
            raise TenantNotFoundError(tenant)
        addressee.tenant.check_open()
        if addressee.model is None or addressee.model.retired_at is not None:
            raise ModelNotFoundError(tenant, model)
        if addressee.model.route is None:
            raise NoActiveVersionError(model)
        quotas = addressee.tenant.quotas
        return addressee.model.route, Limits(quotas.requests_per_second, quotas.in_flight, quotas.cold_loads)


def _may_have_moved(served: Served) -> bool:
    failure = served.outcome.failure
    return failure is Failure.TARGET_GONE or (failure is Failure.REFUSED and served.target.component is not None)


def _tell(turn: Turn, outcome: Outcome, *, patient: bool) -> None:
    if outcome.reply is not None or outcome.failure is Failure.INPUT_REJECTED:
        turn.answer()
    elif outcome.failure in _MODEL_IS_TO_BLAME or (patient and outcome.failure is Failure.TIMED_OUT):
        turn.blame()


def _joined(first: Served, second: Served) -> Served:
    before, after = first.outcome, second.outcome
    outcome = replace(
        after,
        attempts=before.attempts + after.attempts,
        cold=before.cold or after.cold,
        waited_seconds=before.waited_seconds + after.waited_seconds,
    )
    return replace(second, outcome=outcome)
