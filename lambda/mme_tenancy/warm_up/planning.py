"""From a change of a fleet to its plan: what was used lately is read, and the plan is made of it. Nothing is written or called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from mme_facts.warm_up import WarmUpEndpoint
from mme_tenancy.clock import Clock
from mme_tenancy.warm_up.change import FleetChange
from mme_tenancy.warm_up.plan import Candidate, FleetShape, WarmUpPlan, plan
from mme_tenancy.warm_up.settings import WarmUpSettings

__all__ = ["CandidateSource", "Found", "HeatPlanner", "Planned"]


class Found(Protocol):
    """What a source knows: `mme_tenancy.warm_up.sources.Candidates`."""

    @property
    def candidates(self) -> Sequence[Candidate]:
        """The models."""
        ...

    @property
    def problems(self) -> Sequence[str]:
        """What could not be read and is missing."""
        ...


class CandidateSource(Protocol):
    """Where candidates come from: `mme_tenancy.warm_up.sources.HeatCandidates`."""

    def read(self, pool: str, endpoint: str, *, enough_bytes: float) -> Found:
        """The models of a pool that are routed to an endpoint and were used lately, as many as fill ``enough_bytes`` and some more."""
        ...


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan and what it was made of.

    Attributes:
        plan: the plan.
        change: what it is for.
        found: what the source said.
        before: the fleet as it was.
        after: the fleet as it is.
    """

    plan: WarmUpPlan
    change: FleetChange
    found: Found
    before: FleetShape
    after: FleetShape


class HeatPlanner:
    """Makes plans.

    Args:
        source: what was used lately.
        settings: bounds of a warm-up.
        clock: time; plans count by the machine's own, as loads do.
        scale: seconds of the platform's clock a real second, above 1 under a local cloud whose clock runs faster.
        told: is told what of an endpoint's models could not be read. Default: nobody is.
    """

    def __init__(
        self,
        source: CandidateSource,
        settings: WarmUpSettings,
        clock: Clock,
        *,
        scale: float = 1.0,
        told: Callable[[str, Sequence[str]], object] = lambda _endpoint, _problems: None,
    ) -> None:
        self._source, self._settings, self._clock, self._scale, self._told = source, settings, clock, scale, told

    def plan(self, target: WarmUpEndpoint, change: FleetChange) -> WarmUpPlan:
        """What to call after a change."""
        return self.explained(target, change).plan

    def explained(self, target: WarmUpEndpoint, change: FleetChange) -> Planned:
        """The plan with what it was made of.

        Args:
            target: the endpoint.
            change: what happened to its fleet.
        """
        before, after = (_shape(target, count) for count in (change.instances_before, change.instances_after))
        found = self._source.read(target.pool, target.endpoint, enough_bytes=before.total_bytes)
        if found.problems:
            self._told(target.endpoint, found.problems)
        now = self._clock.wall()
        seen = replace(change, seen_at=now - max(0.0, self._clock.time() - change.seen_at) / self._scale)
        made = plan(seen, before, after, found.candidates, self._settings, now)
        return Planned(made, change, found, before, after)


def _shape(target: WarmUpEndpoint, instances: int) -> FleetShape:
    # A fleet that has lost everything, or had nothing, is described by one instance: what it held is not known.
    return FleetShape(max(1, instances), target.memory_bytes, target.load_slots)
