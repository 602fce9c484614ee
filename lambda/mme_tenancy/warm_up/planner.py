"""Plans from heat: what the trigger of warm-ups asks for."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from mme_facts.warm_up import WarmUpEndpoint
from mme_tenancy.clock import Clock
from mme_tenancy.warm_up.change import FleetChange
from mme_tenancy.warm_up.plan import FleetShape, WarmUpPlan, plan
from mme_tenancy.warm_up.settings import WarmUpSettings
from mme_tenancy.warm_up.sources import HeatCandidates

__all__ = ["HeatPlanner"]


@dataclass(frozen=True, slots=True)
class HeatPlanner:
    """`mme_tenancy.warm_up.trigger.Planner` from heat and the registry.

    Attributes:
        candidates: reads them.
        settings: bounds.
        clock: time.
        write: writes a line of the log.
    """

    candidates: HeatCandidates
    settings: WarmUpSettings
    clock: Clock
    write: Callable[[str], None]

    def plan(self, target: WarmUpEndpoint, change: FleetChange) -> WarmUpPlan:
        """What to call after a change; what could not be read for it is told in the log."""
        before, after = (
            FleetShape(max(1, count), target.memory_bytes, target.load_slots) for count in (change.instances_before, change.instances_after)
        )
        began = self.clock.monotonic()
        # What was in the old fleet's memory are the models that were used last and fill it.
        found = self.candidates.read(target.pool, target.endpoint, enough_bytes=before.total_bytes)
        made = plan(change, before, after, found.candidates, self.settings, self.clock.wall())
        self.write(
            json.dumps(
                {
                    "message": "planned",
                    "endpoint": target.endpoint,
                    "number": change.number,
                    "kind": change.kind.value,
                    "instances_before": change.instances_before,
                    "instances_after": change.instances_after,
                    "models": len(made.steps),
                    "bytes": made.bytes,
                    "in_flight": made.in_flight,
                    "skipped": {reason.value: count for reason, count in made.skipped.items()},
                    "windows": found.windows,
                    "newest_heat": found.newest,
                    "unknown": found.unknown,
                    "elsewhere": found.elsewhere,
                    "problems": found.problems,
                    "seconds": round(self.clock.monotonic() - began, 3),
                }
            )
        )
        return made
