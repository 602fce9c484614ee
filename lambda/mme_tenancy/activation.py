"""The decision what happens to the route when a version became ready: pure."""

from __future__ import annotations

from mme_facts.environment import Pool
from mme_tenancy.registry import Change
from mme_tenancy.routes import Model, Route
from mme_tenancy.versions import State, Version

__all__ = ["activate", "admit_to_route"]


def activate(model: Model, version: Version, current: Version | None, pool: Pool, now: str) -> tuple[Change, ...]:
    """Flip the route of ``model`` to ``version``: the changes that must be written together.

    Args:
        model: the model's record.
        version: a ready version of it.
        current: the version that the route names now, if there is one.
        pool: where ``version`` is served.
        now: timestamp.

    Raises:
        ForbiddenMoveError: ``version`` is not ready.
    """
    route = Route(pool.endpoint_name, pool.variant_name, str(version.id), version.name.target_model)
    changes = [Change(version, version.move(State.ACTIVE, now)), Change(model, model.reroute(route, now))]
    if current is not None and current.state is State.ACTIVE and current.number != version.number:
        changes.append(Change(current, current.move(State.READY, now)))
    return tuple(changes)


def admit_to_route(model: Model, version: Version, current: Version | None, pool: Pool, now: str) -> tuple[Change, ...]:
    """What follows when ``version`` became ready for the first time: the route only ever moves forward by itself.

    An older version that finishes late stays ready; a person may still activate it.
    """
    if model.route is not None and model.route.number > version.number:
        return (Change(version, version.settle(now)),)
    return activate(model, version, current, pool, now)
