"""Counts what fleets do, and puts it into the feed: an observer of every step."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mme_fleet import (
    Action,
    Download,
    Downloaded,
    Forward,
    InstanceDraining,
    InstanceLost,
    InstanceUp,
    Load,
    Loaded,
    LoadFailed,
    Release,
    Reply,
    Request,
    Step,
    Unload,
    ZoneLost,
)
from mme_local.console.feed import Feed

__all__ = ["Activity", "Counters", "Second", "tenant_of"]

_SECONDS = 120
_TENANTS = 1000
"""The busiest tenants that stay known by name, when twice as many have come: anybody may call with any TargetModel."""


def tenant_of(model: str) -> str:
    """Whose a model is: the first segment of its TargetModel, or ``-`` where there is only one."""
    tenant, slash, _ = model.partition("/")
    return tenant if slash else "-"


@dataclass(slots=True)
class Tenant:
    """Requests of a tenant: all, those that found their model in memory, and those that failed."""

    requests: int = 0
    hits: int = 0
    errors: int = 0

    def document(self) -> dict[str, int]:
        """The JSON form."""
        return {"requests": self.requests, "hits": self.hits, "errors": self.errors}


@dataclass(slots=True)
class Counters:
    """What happened to an endpoint since it was created, its updates included.

    Attributes:
        requests: that reached a fleet.
        hits: of them, those that found their model in memory.
        cold_loads: loads completed.
        evictions: models unloaded to make room; without a cache none.
        errors: requests that failed.
        failed_loads: downloads and loads that failed.
        instances_lost: how often an instance was lost.
        errors_by_code: error name -> requests.
        loads_by_model: TargetModel -> loads completed.
        tenants: tenant -> its requests, of the busiest.
        others: requests of the tenants that are no longer known by name.
    """

    requests: int = 0
    hits: int = 0
    cold_loads: int = 0
    evictions: int = 0
    errors: int = 0
    failed_loads: int = 0
    instances_lost: int = 0
    errors_by_code: Counter[str] = field(default_factory=Counter)
    loads_by_model: Counter[str] = field(default_factory=Counter)
    tenants: dict[str, Tenant] = field(default_factory=dict)
    others: Tenant = field(default_factory=Tenant)

    def tenant(self, name: str) -> Tenant:
        """The requests of a tenant, known by name from now on."""
        tenant = self.tenants.get(name)
        if tenant is None:
            if len(self.tenants) >= 2 * _TENANTS:
                self._sum_up()
            tenant = self.tenants[name] = Tenant()
        return tenant

    def _sum_up(self) -> None:
        busiest = sorted(self.tenants.items(), key=lambda item: item[1].requests, reverse=True)
        self.tenants = dict(busiest[:_TENANTS])
        for _name, tenant in busiest[_TENANTS:]:
            self.others.requests += tenant.requests
            self.others.hits += tenant.hits
            self.others.errors += tenant.errors

    def document(self) -> dict[str, Any]:
        """The JSON form, without models and tenants."""
        return {
            "requests": self.requests,
            "hits": self.hits,
            "hit_ratio": round(self.hits / self.requests, 4) if self.requests else None,
            "cold_loads": self.cold_loads,
            "evictions": self.evictions,
            "errors": self.errors,
            "failed_loads": self.failed_loads,
            "instances_lost": self.instances_lost,
            "errors_by_code": dict(self.errors_by_code),
        }


@dataclass(slots=True)
class Second:
    """What happened in one real second, in all fleets; ``number`` is that second since the epoch."""

    number: int
    requests: int = 0
    hits: int = 0
    errors: int = 0
    loads: int = 0
    evictions: int = 0

    def document(self) -> dict[str, int]:
        """The JSON form."""
        return {
            "second": self.number,
            "requests": self.requests,
            "hits": self.hits,
            "errors": self.errors,
            "loads": self.loads,
            "evictions": self.evictions,
        }


class Activity:
    """A `mme_local.dataplane.StepObserver`. It lives on the gateway's event loop.

    Args:
        feed: takes what is worth showing by itself: everything but single requests that succeed.
        born: what tells two endpoints of one name apart, such as the moment of its creation; None for one that is not there.
        clock: real seconds since the epoch.
        memory_bytes: what a model of so many unpacked bytes takes in memory, unless its server says otherwise.
        caches: whether a fleet unloads models only to make room.
    """

    def __init__(
        self,
        feed: Feed,
        born: Callable[[str], object],
        clock: Callable[[], float],
        memory_bytes: Callable[[int], int] = int,
        *,
        caches: Callable[[str], bool] = lambda _fleet: True,
    ) -> None:
        self._feed, self._born, self._clock, self._memory_bytes, self._caches = feed, born, clock, memory_bytes, caches
        self._unpacked: dict[tuple[str, str], int] = {}
        self._counters: dict[str, tuple[object, Counters]] = {}
        self._under_way: dict[tuple[str, int], str] = {}
        self._loading: dict[tuple[str, str, str], float] = {}
        self._up: dict[tuple[str, str], str] = {}
        self._seconds: deque[Second] = deque([Second(int(clock()))], maxlen=_SECONDS)

    def counters(self, endpoint: str) -> Counters:
        """The counters of an endpoint; all zero for one that nothing happened to."""
        known = self._counters.get(endpoint)
        return known[1] if known is not None else Counters()

    def seconds(self) -> list[Second]:
        """The last two minutes up to this second, oldest first; seconds in which nothing happened are left out."""
        self._second()
        return list(self._seconds)

    def forget(self, endpoints: Mapping[str, object]) -> None:
        """Drop what is known of all endpoints but these; a new endpoint is an occasion, too."""
        self._keep(endpoints.__contains__)

    def _keep(self, there: Callable[[str], bool]) -> None:
        for name in [name for name in self._counters if not there(name)]:
            del self._counters[name]
        tables: tuple[dict[Any, Any], ...] = self._unpacked, self._under_way, self._loading, self._up
        for known in tables:
            for key in [key for key in known if not there(key[0].partition(".")[0])]:
                del known[key]

    def clear(self) -> None:
        """Forget everything."""
        self._counters.clear()
        self._under_way.clear()
        self._unpacked.clear()
        self._loading.clear()
        self._up.clear()
        self._seconds.clear()

    def __call__(self, fleet: str, step: Step) -> None:
        """Take one step of a fleet."""
        endpoint = fleet.partition(".")[0]
        event = step.event
        if isinstance(event, InstanceUp):
            self._begin(endpoint)
        known = self._counters.get(endpoint)
        counters = known[1] if known is not None else self._begin(endpoint)
        if isinstance(event, Downloaded):
            self._unpacked[endpoint, event.model] = event.unpacked_bytes
        elif isinstance(event, Request):
            self._request(counters, fleet, event, step.actions)
        elif isinstance(event, Loaded):
            self._loaded(counters, fleet, event, step.now)
        elif isinstance(event, LoadFailed):
            counters.failed_loads += 1
            self._loading.pop((fleet, event.instance, event.model), None)
            self._put("load-failed", fleet, event.instance, model=event.model, reason=event.kind.value, message=event.message)
        elif isinstance(event, InstanceUp):
            self._up[fleet, event.instance] = event.zone
            self._put("instance-up", fleet, event.instance, memory_budget_bytes=event.memory_bytes)
        elif isinstance(event, InstanceDraining):
            self._up.pop((fleet, event.instance), None)
            self._put("instance-draining", fleet, event.instance)
        elif isinstance(event, InstanceLost) and (fleet, event.instance) in self._up:
            self._lost(counters, fleet, event.instance)
        elif isinstance(event, ZoneLost):
            for where in [where for where, zone in self._up.items() if where[0] == fleet and zone == event.zone]:
                self._lost(counters, *where)
        for action in step.actions:
            self._action(counters, fleet, action, step.now)

    def _loaded(self, counters: Counters, fleet: str, event: Loaded, now: float) -> None:
        counters.cold_loads += 1
        counters.loads_by_model[event.model] += 1
        self._second().loads += 1
        began = self._loading.pop((fleet, event.instance, event.model), None)
        seconds = None if began is None else round(now - began, 3)
        size = event.measured_bytes
        if size is None and (unpacked := self._unpacked.get((fleet.partition(".")[0], event.model))) is not None:
            size = self._memory_bytes(unpacked)
        self._put("loaded", fleet, event.instance, model=event.model, seconds=seconds, bytes=size)

    def _begin(self, endpoint: str) -> Counters:
        born = self._born(endpoint)
        known = self._counters.get(endpoint)
        if known is None or known[0] != born:
            self._keep(lambda name: name == endpoint or self._born(name) is not None)
            known = self._counters[endpoint] = born, Counters()
        return known[1]

    def _second(self) -> Second:
        number = int(self._clock())
        if not self._seconds or self._seconds[-1].number != number:
            self._seconds.append(Second(number))
        return self._seconds[-1]

    def _request(self, counters: Counters, fleet: str, event: Request, actions: tuple[Action, ...]) -> None:
        second = self._second()
        tenant = counters.tenant(tenant_of(event.model))
        counters.requests += 1
        tenant.requests += 1
        second.requests += 1
        self._under_way[fleet, event.request] = event.model
        if any(isinstance(action, Forward) and action.request == event.request and not action.cold for action in actions):
            counters.hits += 1
            tenant.hits += 1
            second.hits += 1

    def _action(self, counters: Counters, fleet: str, action: Action, now: float) -> None:
        if isinstance(action, Reply):
            model = self._under_way.pop((fleet, action.request), "")
            if action.error is not None:
                counters.errors += 1
                counters.errors_by_code[action.error.code] += 1
                self._second().errors += 1
                counters.tenants.get(tenant_of(model), counters.others).errors += 1
                self._put(
                    "error", fleet, None, model=model, code=action.error.code, status=action.error.status, message=action.error.message
                )
        elif isinstance(action, Download | Load):
            key = fleet, action.instance, action.model
            if isinstance(action, Download) or key not in self._loading:
                self._loading[key] = now
                self._put("load", fleet, action.instance, model=action.model, from_disk=isinstance(action, Load))
        elif isinstance(action, Unload) and not self._caches(fleet):
            self._put("unloaded", fleet, action.instance, model=action.model)
        elif isinstance(action, Unload):
            counters.evictions += 1
            self._second().evictions += 1
            self._put("evicted", fleet, action.instance, model=action.model)
        elif isinstance(action, Release):
            self._forget_loads(fleet, action.instance)
            self._up.pop((fleet, action.instance), None)
            self._put("instance-gone", fleet, action.instance)

    def _lost(self, counters: Counters, fleet: str, instance: str) -> None:
        del self._up[fleet, instance]
        counters.instances_lost += 1
        self._forget_loads(fleet, instance)
        self._put("instance-lost", fleet, instance)

    def _forget_loads(self, fleet: str, instance: str) -> None:
        for key in [key for key in self._loading if key[:2] == (fleet, instance)]:
            del self._loading[key]

    def _put(self, kind: str, fleet: str, instance: str | None, **members: Any) -> None:
        self._feed.put(
            kind, endpoint=fleet.partition(".")[0], fleet=fleet, **({} if instance is None else {"instance": instance}), **members
        )
