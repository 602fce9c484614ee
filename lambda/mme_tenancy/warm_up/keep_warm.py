"""Models that somebody wants to stay loaded: each is called now and then, if nobody else asked for it meanwhile.

A model stays in an instance's memory while it is among the last used ones that fit, so a call every few minutes keeps it there unless
others push out the whole memory in between. Nothing guarantees it: that is what dedicated placements are for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from mme_tenancy.clock import Clock
from mme_tenancy.heat import HeatReader, PoolHeat

__all__ = ["KEEP_WARM_SECONDS", "KeepWarm", "quiet"]

KEEP_WARM_SECONDS = 300.0
"""From one call of a model to the next."""
_HEAT_SECONDS = 900
"""So far back the newest window of heat is looked for: it is written minutes after its end."""

_Name = tuple[str, str]


def quiet(names: Iterable[_Name], heat: PoolHeat | None) -> list[_Name]:
    """Those models that nobody asked for in the newest window of heat; all of them if there is none.

    Args:
        names: tenant and model.
        heat: the newest window, if there is one of the last minutes.
    """
    asked = set() if heat is None else {(row.tenant, row.model) for row in heat.rows if row.counts.requests}
    return [name for name in names if name not in asked]


class KeepWarm:
    """Says which models are due. What was called is remembered by the process only: a new one calls them all, which costs little.

    Args:
        models: each ``<tenant>/<model>``.
        heat: where heat lies.
        clock: time.
        trouble: told (the endpoint, what it means, the error) when heat cannot be read.
        every_seconds: from one call of a model to the next.
    """

    def __init__(
        self,
        models: Sequence[str],
        heat: HeatReader,
        clock: Clock,
        trouble: Callable[[str, str, Exception], object],
        *,
        every_seconds: float = KEEP_WARM_SECONDS,
    ) -> None:
        self._names = [_name(model) for model in models]
        self._heat, self._clock, self._trouble, self._every = heat, clock, trouble, every_seconds
        self._seen: dict[tuple[str, _Name], float] = {}

    def tick(self, pool: str, endpoint: str, warm: Callable[[Sequence[_Name]], object]) -> int:
        """Have the models called that are due at an endpoint; how many that were.

        Whatever ``warm`` makes of them, they are due again only after a while: one that fails is not called every minute. Heat that cannot
        be read says nothing, so all of them are called.

        Args:
            pool: whose heat tells of the endpoint.
            endpoint: the endpoint's name.
            warm: calls models with their sample payloads, those of them that are routed there.
        """
        now = self._clock.time()
        due = [name for name in self._names if now - self._seen.get((endpoint, name), -self._every) >= self._every]
        if not due:
            return 0
        self._seen |= {(endpoint, name): now for name in due}
        called = self._quiet(due, pool, endpoint, now)
        if called:
            warm(called)
        return len(called)

    def _quiet(self, names: list[_Name], pool: str, endpoint: str, now: float) -> list[_Name]:
        try:
            keys = self._heat.windows(pool, since=int(now) - _HEAT_SECONDS)
            newest = self._heat.get(keys[-1]) if keys else None
        except Exception as error:  # whatever the store raises: a call too many is better than a model that is forgotten
            self._trouble(endpoint, "heat could not be read: all models that are due are kept warm", error)
            return names
        return quiet(names, None if newest is None else newest[0])


def _name(model: str) -> _Name:
    tenant, _, name = model.partition("/")
    return tenant, name
