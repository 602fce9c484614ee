"""Which version gets a model's requests: by itself when a version became ready, and by a call, forward, back or in part.

A version is ``active`` while the route names it, wholly or as the canary. Whatever changes a route writes the model, and whatever
takes a version away from a route writes both; so of two changes at the same time one meets a conflict and looks again.

A version that is about to get requests is warmed first, if the caller wants that: an artifact that answered when it was admitted may have
left all instances since. Two kinds are loaded already, and are not called in vain: the one that admission brings to the route has just
answered there, and the active one has its requests, so that ending a canary waits for nothing. Nor is one called where none stays loaded.

Activation places nothing: a component serves one version, so the version that takes its place is served by its shared pool, as are
canaries, and so is a version that an activation brings back. Activating the version that a component serves leaves it there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from mme_facts.environment import Pool
from mme_facts.grammar import VersionId
from mme_tenancy.clock import Clock, timestamp
from mme_tenancy.conflicts import until_written
from mme_tenancy.errors import (
    ForbiddenMoveError,
    ModelNotFoundError,
    NoActiveVersionError,
    TenantNotFoundError,
    VersionNotFoundError,
)
from mme_tenancy.registry import Change, Registry, model_key, tenant_key
from mme_tenancy.routes import Canary, Model, Route, Target
from mme_tenancy.versions import State, Version
from mme_tenancy.warming import Warmer

__all__ = ["Activator", "activate", "admit_to_route"]

_WHOLE_PERCENT = 100.0


def activate(
    model: Model, version: Version, named: Mapping[str, Version], pool: Pool, now: str, *, percent: float = _WHOLE_PERCENT
) -> tuple[Change, ...]:
    """Route the requests of ``model`` to ``version``: the changes that must be written together; none if it is so already.

    Args:
        model: the model's record.
        version: a version of it, ready or active, read after the model.
        named: the versions that the route names now, by id, read after the model.
        pool: where ``version`` is served.
        now: timestamp.
        percent: which part of the sticky keys. 100: all of them, and a canary ends. Between: ``version`` becomes the canary and the active
            version stays. 0: ``version`` is no canary any more; of the active version, whatever canary there is ends.

    Raises:
        ForbiddenMoveError: ``version`` is neither ready nor active, went with a deletion of the model, or would be its own canary.
        NoActiveVersionError: a canary beside nothing.
    """
    if version.state not in (State.READY, State.ACTIVE) or version.number <= model.retired_through:
        raise ForbiddenMoveError(
            f"version {version.id} is {version.state.value}: only a version that answered its sample and was not retired gets requests",
            field="version",
            value=str(version.id),
            allowed=[State.READY.value, State.ACTIVE.value],
        )
    before = model.route
    after = _routed(model, Target(pool.endpoint_name, pool.variant_name, str(version.id), version.name.target_model), percent)
    name = str(version.id)
    takes = after is not None and name in after.versions
    if after == before and (version.state is State.ACTIVE or not takes):
        return ()
    assert after is not None, "no activation takes the route away"
    changes = [Change(model, model.reroute(after, now))]
    left = [named[each] for each in (before.versions if before else ()) if each in named and each not in after.versions]
    changes += [Change(each, each.move(State.READY, now)) for each in left if each.state is State.ACTIVE]
    if takes and version.state is State.READY:
        changes.append(Change(version, version.move(State.ACTIVE, now)))
    elif takes and (before is None or name not in before.versions):
        # Active although no route names it: what was read is old, and the model's revision will tell. Or an operator's hand was in it.
        changes.append(Change(version, version.settle(now)))
    return tuple(changes)


def _routed(model: Model, target: Target, percent: float) -> Route | None:
    """The route of ``model`` when ``target`` has ``percent`` of it."""
    route = model.route
    if percent >= _WHOLE_PERCENT:
        if route is not None and (route.active == target or (route.component is not None and route.version == target.version)):
            return replace(route, canary=None)
        return Route(target.endpoint, target.variant, target.version, target.target_model)
    if route is None:
        raise NoActiveVersionError(model.model)
    if percent <= 0:
        return replace(route, canary=None) if target.version in route.versions else route
    if target.version == route.version:
        raise ForbiddenMoveError(
            f"version {target.version} is the active one and gets what its canary leaves: name another version",
            field="version",
            value=target.version,
        )
    return replace(route, canary=Canary(target.endpoint, target.variant, target.version, target.target_model, percent))


def _more_for(version: str, before: Route | None, after: Route | None) -> Target | None:
    """Where a version gets more requests by a change of the route; ``None`` if it does not, or was the active one already."""
    if after is None or (before is not None and before.version == version):
        return None
    if after.version == version:
        return after.active
    share = before.canary.percent if before is not None and before.canary is not None and before.canary.version == version else 0.0
    canary = after.canary
    return canary.target if canary is not None and canary.version == version and canary.percent > share else None


def admit_to_route(model: Model, version: Version, current: Version | None, pool: Pool, now: str) -> tuple[Change, ...]:
    """What follows when ``version`` became ready for the first time: the route only ever moves forward by itself.

    Four kinds stay ready and wait for a call: one that was registered so; an older version that finishes late; any version while a canary
    runs, because somebody weighs two versions against each other then; and one that went with a deletion of its model and will be retired.

    Args:
        model: the model's record.
        version: a ready version of it.
        current: the version that the route names now, if there is one.
        pool: where ``version`` is served.
        now: timestamp.
    """
    route = model.route
    late = route is not None and (route.number > version.number or route.canary is not None)
    if late or not version.activate or version.number <= model.retired_through:
        return (Change(version, version.settle(now)),)
    return activate(model, version, {} if current is None else {str(current.id): current}, pool, now)


class Activator:
    """Rolls models forward and back.

    Args:
        registry: the records.
        pools: where versions are served.
        clock: time.
        random: numbers in [0, 1), for jitter.
        warmer: loads versions before they get requests. Default: nobody does.
    """

    def __init__(
        self, registry: Registry, pools: Sequence[Pool], clock: Clock, random: Callable[[], float], warmer: Warmer | None = None
    ) -> None:
        self._warmer = warmer
        self._registry = registry
        self._pools = {pool.name: pool for pool in pools}
        self._clock = clock
        self._random = random

    def activate(
        self, tenant: str, model: str, version: VersionId, *, percent: float = _WHOLE_PERCENT, warm_until: float | None = None
    ) -> Model:
        """Route the model's requests to a version, wholly or in part (see `activate`); the model's record after it.

        Args:
            tenant: whose model.
            model: which model.
            version: which version of it.
            percent: which part of the sticky keys.
            warm_until: warm the version first, if it gets more requests than now; given up at this point of the monotonic clock. ``None``:
                whether an instance can load it now is not tried: it answered its sample when it was admitted, and its artifact does not
                change.

        Raises:
            NotWarmedError, ModelFailedError: the version did not answer in time, or with an error: the route is as it was.
            TenantNotFoundError, TenantDeletedError, ModelNotFoundError, VersionNotFoundError: there is no such thing.
            ForbiddenMoveError: the version may not get requests.
            NoActiveVersionError: a canary beside nothing.
            WriteConflictError: others kept changing the model at the same time.
        """
        warmed: Target | None = None

        def activated() -> Model:
            nonlocal warmed
            while True:
                record, changes, cold = self._decide(tenant, model, version, percent)
                if warm_until is None or self._warmer is None or cold is None or cold[1] == warmed:
                    break
                # A load takes its time: afterwards the decision is made anew, by the records as they are then.
                self._warmer.warm(*cold, deadline=warm_until)
                warmed = cold[1]
            if not changes:
                return record
            self._registry.write(*changes)
            after = changes[0].after
            assert isinstance(after, Model)
            return after

        return until_written(activated, clock=self._clock, random=self._random, what="this model's route")

    def _decide(
        self, tenant: str, model: str, wanted: VersionId, percent: float
    ) -> tuple[Model, tuple[Change, ...], tuple[Version, Target] | None]:
        """The model, what is to be written, and which version gets more requests by that, and where, unless it is the active one."""
        owner, record = self._registry.read(tenant_key(tenant), model_key(tenant, model))
        if owner is None:
            raise TenantNotFoundError(tenant)
        owner.check_open()
        if record is None or record.retired_at is not None:
            raise ModelNotFoundError(tenant, model)
        named = {each: self._version(record, VersionId.parse(each)) for each in (record.route.versions if record.route else ())}
        version = named.get(str(wanted)) or self._version(record, wanted)
        pool = self._pool(version)
        changes = activate(record, version, named, pool, timestamp(self._clock.time()), percent=percent)
        after = changes[0].after if changes else record
        assert isinstance(after, Model)
        target = _more_for(str(wanted), record.route, after.route) if pool.keeps_loaded else None
        return record, changes, None if target is None else (version, target)

    def _version(self, model: Model, wanted: VersionId) -> Version:
        version = self._registry.version(model.tenant, model.model, wanted.number)
        if version is None or version.id != wanted:
            raise VersionNotFoundError(model.model, str(wanted))
        return version

    def _pool(self, version: Version) -> Pool:
        pool = self._pools.get(version.pool)
        if pool is None:
            raise ForbiddenMoveError(
                f"version {version.id} belongs to a pool that the platform does not run any more: register the model for another framework",
                field="version",
                value=str(version.id),
            )
        return pool
