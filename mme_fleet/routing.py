"""Which instance gets a request: routers are strategies that see the fleet through small read-only protocols."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

__all__ = ["FleetView", "InstanceView", "Router", "StickyRouter"]


class InstanceView(Protocol):
    """What a router sees of one instance that takes requests."""

    @property
    def id(self) -> str:
        """Its name."""

    @property
    def outstanding(self) -> int:
        """Requests that it is answering now."""

    @property
    def free_bytes(self) -> int:
        """Its budget less what is resident, being unloaded, loaded, or expected to be: negative when oversubscribed."""

    @property
    def loads_in_progress(self) -> int:
        """Models that it is downloading, loading, or keeps waiting for memory."""


class FleetView(Protocol):
    """What a router sees of the fleet.

    ``instances`` come in the order in which they came up; ``holders`` and ``loaders`` in the order in which the model came to them.
    """

    @property
    def instances(self) -> Collection[InstanceView]:
        """The instances that take requests; never empty when a router is asked."""

    def holders(self, model: str) -> Collection[InstanceView]:
        """Those with the model in memory."""

    def loaders(self, model: str) -> Collection[InstanceView]:
        """Those that are bringing it into memory."""


class Router(Protocol):
    """Chooses an instance for a request. It must be deterministic given its own state and the view."""

    def route(self, model: str, fleet: FleetView) -> InstanceView:
        """The instance, one of ``fleet.instances``."""


class StickyRouter:
    """Goes where the model is.

    An instance that holds the model (fewest outstanding requests), else one that is loading it, else the one with most
    free memory (then fewest loads in progress). AWS documents only that a request goes to an instance that holds the
    model (Developer Guide: "How multi-model endpoints work").
    """

    def route(self, model: str, fleet: FleetView) -> InstanceView:
        """See the class."""
        holders = fleet.holders(model)
        if holders:
            return min(holders, key=_outstanding)
        return min(fleet.loaders(model) or fleet.instances, key=_occupation)


def _outstanding(instance: InstanceView) -> int:
    return instance.outstanding


def _occupation(instance: InstanceView) -> tuple[int, int]:
    return -instance.free_bytes, instance.loads_in_progress
