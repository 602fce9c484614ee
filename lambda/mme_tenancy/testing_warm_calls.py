"""What a warm-up is driven with, for tests: work that takes virtual time, records in memory, metrics that somebody wrote down."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from heapq import heappop, heappush
from itertools import count

from mme_facts.grammar import ArtifactName
from mme_tenancy.routes import Model
from mme_tenancy.testing import FakeClock, MemoryRegistry
from mme_tenancy.versions import Version
from mme_tenancy.warm_up.execute import Minute
from mme_tenancy.warm_up.sources import VersionOutline
from mme_tenancy.warm_up.workers import Finished

__all__ = ["MemoryReadings", "MemoryWarmUpRecords", "VirtualWorkers"]


class VirtualWorkers:
    """`mme_tenancy.warm_up.workers.Workers` in virtual time: all pieces sleep beside one another, and waiting takes no time.

    Args:
        clock: moved on by waiting; what a piece of work sleeps is when it ends.

    Attributes:
        most_at_once: pieces that were under way at the same time, at most.
    """

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._under_way: list[tuple[float, int, Finished]] = []
        self._numbers = count()
        self.most_at_once = 0

    def begin(self, key: Hashable, work: Callable[[], object], *, urgent: bool = False) -> None:  # noqa: ARG002 - none waits
        """Do ``work`` now; it has ended when the clock is where it slept to."""
        began = self._clock.now
        try:
            finished = Finished(key, work())
        except BaseException as error:
            finished = Finished(key, None, error)
        heappush(self._under_way, (self._clock.now, next(self._numbers), finished))
        self._clock.now = began
        self.most_at_once = max(self.most_at_once, len(self._under_way))

    def finished(self, seconds: float) -> list[Finished]:
        """What has ended by the moment when the first does, or after ``seconds``."""
        until = self._clock.now + max(0.0, seconds)
        if self._under_way:
            until = min(until, self._under_way[0][0])
        self._clock.now = max(self._clock.now, until)
        told: list[Finished] = []
        while self._under_way and self._under_way[0][0] <= self._clock.now:
            told.append(heappop(self._under_way)[2])
        return told


class MemoryWarmUpRecords:
    """`mme_tenancy.warm_up.sources.WarmUpRecords` on a `MemoryRegistry`.

    Args:
        registry: the records.

    Attributes:
        reads: how many records each read asked for.
    """

    def __init__(self, registry: MemoryRegistry) -> None:
        self._registry = registry
        self.reads: list[int] = []

    def models(self, names: Sequence[tuple[str, str]]) -> Mapping[tuple[str, str], Model]:
        """Models by tenant and model."""
        self.reads.append(len(names))
        found = ((name, self._registry.model(*name)) for name in names)
        return {name: model for name, model in found if model is not None}

    def outlines(self, names: Sequence[ArtifactName]) -> Mapping[ArtifactName, VersionOutline]:
        """Versions without their payloads."""
        return {
            name: VersionOutline(
                version.state, version.size_bytes, version.memory_bytes, version.timings.get("first_invocation_seconds"), sample=True
            )
            for name, version in self.versions(names).items()
        }

    def versions(self, names: Sequence[ArtifactName]) -> Mapping[ArtifactName, Version]:
        """Versions with all they have."""
        self.reads.append(len(names))
        found = ((name, self._registry.version(name.tenant, name.model, name.version.number)) for name in names)
        return {name: version for name, version in found if version is not None and version.name == name}


class MemoryReadings:
    """`mme_tenancy.warm_up.execute.Readings` of minutes that were written down.

    Args:
        *minutes: in any order.
    """

    def __init__(self, *minutes: Minute) -> None:
        self.known = list(minutes)

    def minutes(self, endpoint: str, variant: str, *, start: int, end: int) -> list[Minute]:  # noqa: ARG002 - there is one endpoint
        """The minutes of a time range, oldest first."""
        return sorted((minute for minute in self.known if start <= minute.start < end), key=lambda minute: minute.start)
