"""What the processes of the instances use, measured by psutil: processor time and resident memory of their process groups."""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import psutil  # type: ignore[import-untyped]

from mme_local.metrics.facts import InstanceUse

__all__ = ["ProcessMeter"]


@dataclass(slots=True)
class _Group:
    """A server's process group: the server itself and what it started.

    Attributes:
        cpu_seconds: process id -> processor seconds so far.
        started: process id -> when it started.
        resident: process id -> resident bytes.
    """

    cpu_seconds: dict[int, float]
    started: dict[int, float]
    resident: dict[int, int]


class ProcessMeter:
    """Measures use between two calls of `measure`, which must not overlap; they may run on threads.

    Args:
        now: real epoch seconds.
    """

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._before: dict[int, float] = {}
        self._measured = now()

    def measure(self, fleets: Sequence[Mapping[str, Any]]) -> dict[str, list[InstanceUse]]:
        """The use of every instance since the last call, by fleet.

        Args:
            fleets: as `mme_local.dataplane.DataPlane.use` gives them. A process that serves several instances belongs to none of them.
        """
        pids = [instance["pid"] for fleet in fleets for instance in fleet["instances"] if instance["pid"] is not None]
        own = {pid for pid in pids if pids.count(pid) == 1}
        with self._lock:
            groups, now = _groups(own), self._now()
            elapsed, since = max(now - self._measured, 1e-3), self._measured
            uses = {
                fleet["name"]: [
                    self._use(fleet["name"], instance, groups.get(instance["pid"]), elapsed, since) for instance in fleet["instances"]
                ]
                for fleet in fleets
            }
            self._before = {pid: seconds for group in groups.values() for pid, seconds in group.cpu_seconds.items()}
            self._measured = now
        return uses

    def _use(self, fleet: str, instance: Mapping[str, Any], group: _Group | None, elapsed: float, since: float) -> InstanceUse:
        budget, accounted = instance["memory_budget_bytes"], instance["memory_bytes"]
        if group is None:
            return InstanceUse(fleet, instance["id"], None, accounted, budget)
        spent = 0.0
        for pid, seconds in group.cpu_seconds.items():
            if pid in self._before:
                spent += max(0.0, seconds - self._before[pid])
            elif group.started[pid] >= since:
                spent += seconds
        # The server itself is no model: its memory is not in the budget.
        models = sum(size for pid, size in group.resident.items() if pid != instance["pid"])
        return InstanceUse(fleet, instance["id"], spent / elapsed, models or accounted, budget)


def _groups(leaders: set[int]) -> dict[int, _Group]:
    groups: dict[int, _Group] = defaultdict(lambda: _Group({}, {}, {}))
    if not leaders:
        return groups
    for pid in psutil.pids():
        with suppress(ProcessLookupError, psutil.Error):
            leader = os.getpgid(pid)
            if leader not in leaders:
                continue
            process = psutil.Process(pid)
            with process.oneshot():
                times = process.cpu_times()
                group = groups[leader]
                group.cpu_seconds[pid] = times.user + times.system
                group.started[pid] = process.create_time()
                group.resident[pid] = process.memory_info().rss
    return groups
