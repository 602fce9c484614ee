"""A fleet in virtual time with its servers. Internal to `mme_fleet.Simulator`."""

from __future__ import annotations

import math
from collections.abc import Callable
from heapq import heapify, heapreplace

from mme_fleet.changes import InstanceSpec
from mme_fleet.fleet import Fleet
from mme_fleet.routing import Router
from mme_fleet.settings import FleetSettings

__all__ = ["Generation", "Server"]


class Server:
    """One life of one instance: what its model server is busy with.

    Args:
        workers: requests of one model that it serves at once; ``None``: the fleet sees to that.
    """

    __slots__ = ("_free", "_workers", "alive", "draining", "spec")

    def __init__(self, spec: InstanceSpec, workers: int | None) -> None:
        self.spec = spec
        self.alive = True
        self.draining = False
        self._workers = workers
        self._free: dict[str, list[float]] = {}

    def finish(self, model: str, now: float, seconds: float) -> float:
        """When a request that comes now will be done, after those before it."""
        if self._workers is None:
            return now + seconds
        free = self._free.get(model)
        if free is None:
            self._free[model] = [now + seconds] + [-math.inf] * (self._workers - 1)
            heapify(self._free[model])
            return now + seconds
        done = (now if free[0] < now else free[0]) + seconds
        if self._workers == 1:
            free[0] = done
        else:
            heapreplace(free, done)
        return done

    def forget(self, model: str) -> None:
        """The model has left memory, and its workers with it, whatever they were still busy with."""
        self._free.pop(model, None)


class Generation:
    """One fleet, its servers by the names of their instances, and whether a tick is due."""

    __slots__ = ("fleet", "name", "replied", "router", "servers", "settings", "ticking")

    def __init__(self, name: str, settings: FleetSettings, router: Callable[[], Router]) -> None:
        self.name, self.settings, self.router = name, settings, router
        self.fleet = Fleet(settings, router())
        self.replied = self.fleet.replied
        self.servers: dict[str, Server] = {}
        self.ticking = False

    def in_service(self) -> dict[str, Server]:
        """Those that take requests, oldest first."""
        return {name: server for name, server in self.servers.items() if server.alive and not server.draining}
