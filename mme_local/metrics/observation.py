"""What the steps of one fleet say about a minute: counts, times and levels, from which its metrics are made.

Times are differences of the fleet's own seconds, which are real: model loads and invocations are not scaled.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mme_facts import runtime_errors
from mme_fleet import (
    Discard,
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
    ReplyError,
    Request,
    Step,
    Unload,
    Unloaded,
    ZoneLost,
)
from mme_local.cloudwatch.statistics import Samples

__all__ = ["FleetObservation", "Minute"]

_CLIENT_ERRORS = range(400, 500)
_SERVER_ERRORS = range(500, 600)


def _without_percentiles() -> Samples:
    return Samples(weights=None)


@dataclass(slots=True)
class Minute:
    """What happened in a minute. Times are in microseconds; of their values three digits are kept (`Samples.add_rounded`).

    Attributes:
        requests: requests that came.
        shares: 1/instances -> requests that came while there were so many instances.
        answered: requests that were answered, also with an error.
        client_errors: of them, those that ended 4xx: the container's answer, or the service's own.
        server_errors: those that ended 5xx, or without an answer of the container in time.
        model_errors: those for which the container was asked and did not answer 2xx.
        no_capacity: requests refused because there was no instance.
        cache_hits: requests that found their model in memory.
        cache_misses: requests that did not.
        model_latency: of each answered request, from the container's being asked to its answer.
        overhead_latency: of each answered request, the rest of its time; a wait for a load is part of it. It has no percentiles on AWS.
        loading_wait: of each request that waited for its model.
        downloading: of each download.
        loading: of each load.
        unloading: of each unload.
        busy_seconds: fleet and instance -> seconds of its requests and loads, added up.
    """

    requests: int = 0
    shares: Counter[float] = field(default_factory=Counter)
    answered: int = 0
    client_errors: int = 0
    server_errors: int = 0
    model_errors: int = 0
    no_capacity: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    model_latency: Samples = field(default_factory=Samples)
    overhead_latency: Samples = field(default_factory=_without_percentiles)
    loading_wait: Samples = field(default_factory=Samples)
    downloading: Samples = field(default_factory=Samples)
    loading: Samples = field(default_factory=Samples)
    unloading: Samples = field(default_factory=Samples)
    busy_seconds: defaultdict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))

    def fail(self, status: int, *, by_model: bool) -> None:
        """Count an error by its HTTP status (0: no answer in time), and by whether it is the container's."""
        self.client_errors += status in _CLIENT_ERRORS
        self.server_errors += status in _SERVER_ERRORS or status == 0
        self.model_errors += by_model

    def add(self, other: Minute) -> None:
        """Add what happened in the same minute in another fleet."""
        for name in ("requests", "answered", "client_errors", "server_errors", "model_errors", "no_capacity", "cache_hits", "cache_misses"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("model_latency", "overhead_latency", "loading_wait", "downloading", "loading", "unloading"):
            getattr(self, name).merge(getattr(other, name))
        self.shares.update(other.shares)
        for place, seconds in other.busy_seconds.items():
            self.busy_seconds[place] += seconds


@dataclass(slots=True)
class _UnderWay:
    came: float
    model: str
    forwarded: float | None = None
    instance: str | None = None
    waited: bool = False


class FleetObservation:
    """Follows one fleet.

    Args:
        name: its name.

    Attributes:
        minutes: beginning of a minute -> what happened in it; whoever publishes them takes them out.
        peaks: beginning of ten seconds -> instance -> most requests at a time, being answered or waiting for a load.
        loaded: instance -> models in its memory, of the instances in service.
        disk_bytes: instance -> bytes of unpacked artifacts.
        disk_budget_bytes: instance -> what they may take.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.minutes: dict[float, Minute] = {}
        self.peaks: dict[float, dict[str, int]] = {}
        self.loaded: dict[str, set[str]] = {}
        self.disk_budget_bytes: dict[str, int] = {}
        self._disk: dict[str, dict[str, int]] = defaultdict(dict)
        self._requests: dict[int, _UnderWay] = {}
        self._starts: dict[tuple[type[Any], str, str], float] = {}
        self._homes: dict[str, str] = {}
        self._zones: dict[str, str] = {}
        self._levels: Counter[str] = Counter()
        self._minute, self._window = Minute(), 0.0
        self._events: Mapping[type[Any], Callable[[Any, Step], None]] = {
            Request: self._on_request,
            Downloaded: self._on_downloaded,
            Loaded: self._on_loaded,
            LoadFailed: self._on_load_failed,
            Unloaded: self._on_unloaded,
            InstanceUp: self._on_instance_up,
            InstanceLost: self._on_instance_lost,
            ZoneLost: self._on_zone_lost,
            InstanceDraining: self._on_instance_draining,
        }
        self._actions: Mapping[type[Any], Callable[[Any, Step], None]] = {
            Download: self._on_download,
            Load: self._on_load,
            Unload: self._on_unload,
            Discard: self._on_discard,
            Forward: self._on_forward,
            Reply: self._on_reply,
            Release: self._on_release,
        }

    @property
    def disk_bytes(self) -> Mapping[str, int]:
        """Bytes of unpacked artifacts on each instance in service."""
        return {instance: sum(self._disk[instance].values()) for instance in self.loaded}

    def levels(self) -> dict[str, int]:
        """Requests that each instance in service has now."""
        return {instance: self._levels[instance] for instance in self.loaded}

    def take(self, step: Step, now: float) -> None:
        """Take one step of the fleet; ``now`` is the scaled epoch seconds at which it happened."""
        minute, self._window = now // 60 * 60, now // 10 * 10
        if minute not in self.minutes:
            self.minutes[minute] = Minute()
        self._minute = self.minutes[minute]
        handle = self._events.get(type(step.event))
        if handle is not None:
            handle(step.event, step)
        for action in step.actions:
            react = self._actions.get(type(action))
            if react is not None:
                react(action, step)
        if isinstance(step.event, Request) and step.event.request in self._requests:
            self._let_wait(self._requests[step.event.request])

    # Requests.

    def _on_request(self, event: Request, step: Step) -> None:
        self._minute.requests += 1
        if self.loaded:
            self._minute.shares[1 / len(self.loaded)] += 1
        self._requests[event.request] = _UnderWay(step.now, event.model)

    def _let_wait(self, request: _UnderWay) -> None:
        if request.forwarded is None:
            request.waited = True
            request.instance = self._homes.get(request.model)
            self._rise(request.instance)

    def _on_forward(self, action: Forward, step: Step) -> None:
        request = self._requests.get(action.request)
        if request is None:
            return
        if action.cold:
            self._minute.cache_misses += 1
            self._minute.loading_wait.add_rounded(_micros(step.now - request.came))
        else:
            self._minute.cache_hits += 1
        if request.waited:
            self._fall(request.instance)
        # A request that waited although its model was in memory stood in the container's queue: that is the model's time.
        request.forwarded, request.instance = step.now if action.cold else request.came, action.instance
        self._rise(action.instance)

    def _on_reply(self, action: Reply, step: Step) -> None:
        request = self._requests.pop(action.request, None)
        if request is None:
            return
        minute, total = self._minute, step.now - request.came
        self._fall(request.instance)
        minute.answered += 1
        asked = request.forwarded is not None
        if request.forwarded is not None:
            latency = step.now - request.forwarded
            minute.model_latency.add_rounded(_micros(latency))
            minute.overhead_latency.add_rounded(_micros(total - latency))
            if request.instance is not None:
                minute.busy_seconds[self._name, request.instance] += latency
        else:
            minute.overhead_latency.add_rounded(_micros(total))
            if request.waited:
                minute.cache_misses += 1
                minute.loading_wait.add_rounded(_micros(total))
        if action.error is not None:
            self._count_error(action.error, asked=asked, refused=not asked and not request.waited)

    def _count_error(self, error: ReplyError, *, asked: bool, refused: bool) -> None:
        status = error.status if error.original_status is None else error.original_status
        self._minute.fail(status, by_model=asked or error.code == runtime_errors.MODEL_ERROR)
        self._minute.no_capacity += refused and not self.loaded

    def _rise(self, instance: str | None) -> None:
        if instance is None:
            return
        self._levels[instance] += 1
        peaks = self.peaks.setdefault(self._window, {})
        peaks[instance] = max(peaks.get(instance, 0), self._levels[instance])

    def _fall(self, instance: str | None) -> None:
        if instance is not None and self._levels[instance] > 0:
            # What stood before the fall counts for these ten seconds, too.
            peaks = self.peaks.setdefault(self._window, {})
            peaks[instance] = max(peaks.get(instance, 0), self._levels[instance])
            self._levels[instance] -= 1

    # Models.

    def _on_download(self, action: Download, step: Step) -> None:
        self._starts[Download, action.instance, action.model] = step.now
        self._homes[action.model] = action.instance

    def _on_load(self, action: Load, step: Step) -> None:
        self._starts[Load, action.instance, action.model] = step.now
        self._homes[action.model] = action.instance

    def _on_unload(self, action: Unload, step: Step) -> None:
        self._starts[Unload, action.instance, action.model] = step.now
        self.loaded.get(action.instance, set()).discard(action.model)

    def _on_downloaded(self, event: Downloaded, step: Step) -> None:
        if (seconds := self._took(Download, event.instance, event.model, step)) is not None:
            self._minute.downloading.add_rounded(_micros(seconds))
            self._disk[event.instance][event.model] = event.unpacked_bytes

    def _on_loaded(self, event: Loaded, step: Step) -> None:
        if (seconds := self._took(Load, event.instance, event.model, step)) is not None:
            self._minute.loading.add_rounded(_micros(seconds))
            self._minute.busy_seconds[self._name, event.instance] += seconds
            if event.instance in self.loaded:
                self.loaded[event.instance].add(event.model)

    def _on_load_failed(self, event: LoadFailed, step: Step) -> None:
        for kind in (Download, Load):
            self._took(kind, event.instance, event.model, step)

    def _on_unloaded(self, event: Unloaded, step: Step) -> None:
        if (seconds := self._took(Unload, event.instance, event.model, step)) is not None:
            self._minute.unloading.add_rounded(_micros(seconds))

    def _on_discard(self, action: Discard, _step: Step) -> None:
        self._disk[action.instance].pop(action.model, None)

    def _took(self, kind: type[Any], instance: str, model: str, step: Step) -> float | None:
        began = self._starts.pop((kind, instance, model), None)
        return None if began is None else step.now - began

    # Instances.

    def _on_instance_up(self, event: InstanceUp, _step: Step) -> None:
        self.loaded[event.instance] = {model for model, _bytes in event.resident}
        self._zones[event.instance] = event.zone
        self.disk_budget_bytes[event.instance] = event.disk_bytes
        if not event.disk_kept:
            self._disk.pop(event.instance, None)

    def _on_instance_lost(self, event: InstanceLost, _step: Step) -> None:
        self._out_of_service(event.instance)

    def _on_zone_lost(self, event: ZoneLost, _step: Step) -> None:
        for instance in [instance for instance in self.loaded if self._zones[instance] == event.zone]:
            self._out_of_service(instance)

    def _on_instance_draining(self, event: InstanceDraining, _step: Step) -> None:
        self._out_of_service(event.instance)

    def _out_of_service(self, instance: str) -> None:
        self.loaded.pop(instance, None)
        for key in [key for key in self._starts if key[1] == instance]:
            del self._starts[key]

    def _on_release(self, action: Release, _step: Step) -> None:
        self._out_of_service(action.instance)
        self._disk.pop(action.instance, None)
        self.disk_budget_bytes.pop(action.instance, None)
        self._levels.pop(action.instance, None)
        self._zones.pop(action.instance, None)


def _micros(seconds: float) -> float:
    return max(seconds, 0.0) * 1e6
