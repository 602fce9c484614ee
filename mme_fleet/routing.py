"""Which instance gets a request: routers are strategies that see the fleet through small read-only protocols.

What AWS documents of its router: a request goes to an instance that holds the model; a model under many requests is routed to another
instance as well, which loads it (Developer Guide: "How multi-model endpoints work"). Thresholds and tie-breaks are ours.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Protocol

from mme_fleet.hashing import HashRing

__all__ = ["FleetView", "InstanceView", "LeastOutstandingRouter", "OneHomeRouter", "RandomRouter", "Router", "StickyRouter"]


class InstanceView(Protocol):
    """What a router sees of one instance that takes requests."""

    @property
    def id(self) -> str:
        """Its name."""

    @property
    def zone(self) -> str:
        """Its availability zone; empty if the driver named none."""

    @property
    def outstanding(self) -> int:
        """Requests that it is answering now or keeps waiting."""

    @property
    def free_bytes(self) -> int:
        """Its budget less what is resident, being unloaded, loaded, or expected to be: negative when oversubscribed."""

    @property
    def loads_in_progress(self) -> int:
        """Models that it is downloading, loading, or keeps waiting for their turn or for memory."""

    def requests_of(self, model: str) -> int:
        """Requests of one model that it is answering or keeps waiting."""


class FleetView(Protocol):
    """What a router sees of the fleet.

    ``instances`` come in the order in which they came up; ``holders`` and ``loaders`` in the order in which the model came to them.
    """

    @property
    def instances(self) -> Sequence[InstanceView]:
        """The instances that take requests; never empty when a router is asked. The same object until they change."""

    def holders(self, model: str) -> Sequence[InstanceView]:
        """Those with the model in memory."""

    def loaders(self, model: str) -> Sequence[InstanceView]:
        """Those that are bringing it into memory."""


class Router(Protocol):
    """Chooses an instance for a request. It must be deterministic given its own state and the view.

    It is asked once for every request, and again for a request whose instance left service while it waited.
    """

    def route(self, model: str, fleet: FleetView) -> InstanceView:
        """The instance, one of ``fleet.instances``."""


class StickyRouter:
    """Goes where the model is, and spills to one more instance when that is not enough.

    An instance that holds the model (fewest outstanding requests), else one that is loading it, else the one with most free
    memory (then fewest loads in progress). Under load of a hot model, when the holder that it would go to has
    ``spill_outstanding`` requests of it, a request goes to an instance without the model, chosen in the same way, which then
    loads it; until it has, further requests stay with the holders, so that only one waits.

    Args:
        spill_outstanding: that threshold; ``None``: never spill. AWS documents that it spills, not when: 10 is our choice.
    """

    def __init__(self, spill_outstanding: int | None = 10) -> None:
        if spill_outstanding is not None and spill_outstanding < 1:
            raise ValueError(f"spill_outstanding is {spill_outstanding}: use 1 or more, or None")
        self._spill_outstanding: float = math.inf if spill_outstanding is None else spill_outstanding

    def route(self, model: str, fleet: FleetView) -> InstanceView:
        """See the class."""
        holders = fleet.holders(model)
        if not holders:
            return _emptiest(fleet.loaders(model) or fleet.instances)
        best = holders[0] if len(holders) == 1 else min(holders, key=_outstanding)
        if best.outstanding < self._spill_outstanding or best.requests_of(model) < self._spill_outstanding or fleet.loaders(model):
            return best
        others = [instance for instance in fleet.instances if instance not in holders]
        return _emptiest(others) if others else best


class LeastOutstandingRouter:
    """Goes to the holder with fewest outstanding requests, and never makes a second copy.

    Without a holder it goes where the model is being loaded, else to the instance with fewest outstanding requests, whatever its memory.
    """

    def route(self, model: str, fleet: FleetView) -> InstanceView:
        """See the class."""
        return min(fleet.holders(model) or fleet.loaders(model) or fleet.instances, key=_outstanding)


class OneHomeRouter:
    """Every model has one home: the instance that a consistent hash of its name falls to, whoever holds it (`HashRing`).

    When instances come or go only the models whose home they are move.
    """

    def __init__(self) -> None:
        self._instances: Sequence[InstanceView] = ()
        self._ring = HashRing(())
        self._by_id: dict[str, InstanceView] = {}
        self._homes: dict[str, InstanceView] = {}

    def route(self, model: str, fleet: FleetView) -> InstanceView:
        """See the class."""
        if fleet.instances is not self._instances:
            self._instances = fleet.instances
            self._by_id = {instance.id: instance for instance in self._instances}
            self._ring = HashRing(self._by_id)
            self._homes = {}
        home = self._homes.get(model)
        if home is None:
            home = self._homes[model] = self._by_id[self._ring.home(model)]
        return home


class RandomRouter:
    """Goes anywhere, whoever holds the model: the worst case for the caches.

    Args:
        rng: source of the choices; a replay needs one in the same state.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def route(self, model: str, fleet: FleetView) -> InstanceView:  # noqa: ARG002 - of the protocol
        """See the class."""
        return self._rng.choice(fleet.instances)


def _outstanding(instance: InstanceView) -> int:
    return instance.outstanding


def _emptiest(instances: Sequence[InstanceView]) -> InstanceView:
    """The one with most free memory, among equals with fewest loads in progress, among equals the first."""
    best = instances[0]
    most = best.free_bytes
    for instance in instances:
        free = instance.free_bytes
        if free > most or (free == most and instance.loads_in_progress < best.loads_in_progress):
            best, most = instance, free
    return best
