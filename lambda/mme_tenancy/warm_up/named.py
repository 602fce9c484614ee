"""A short list of models that somebody named is warmed at once: those to be kept warm, and those whose next use is predicted.

There is no plan to choose and no lease: a list that is called twice costs a few answers of models that are there already.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mme_tenancy.warm_up.execute import Driven, Execution, Job
from mme_tenancy.warm_up.plan import Candidate, Skip, Step, WarmUpPlan
from mme_tenancy.warm_up.run import WarmUpRun
from mme_tenancy.warm_up.settings import WarmUpSettings
from mme_tenancy.warm_up.sources import HeatCandidates

__all__ = ["plan_named", "warm_models"]


def plan_named(candidates: Iterable[Candidate], in_flight: int, settings: WarmUpSettings) -> WarmUpPlan:
    """The plan that calls all of these models in their order, but those that cannot be called.

    Args:
        candidates: the models.
        in_flight: calls under way at once, at most.
        settings: bounds.
    """
    steps: list[Step] = []
    skipped: dict[Skip, int] = {}
    for one in {candidate.target_model: candidate for candidate in candidates}.values():
        reason = _skip(one)
        if reason is None:
            load_seconds = one.load_seconds or settings.unknown_load(one.bytes)
            steps.append(Step(one.target_model, one.bytes, load_seconds, one.rate, one.service_seconds, 0.0))
        else:
            skipped[reason] = skipped.get(reason, 0) + 1
    # Nothing is said to have moved, so the run does not end because all of them are there.
    return WarmUpPlan(kind=None, steps=tuple(steps), skipped=skipped, in_flight=max(1, in_flight), moved_share=0.0, requests_per_second=0.0)


def _skip(candidate: Candidate) -> Skip | None:
    if candidate.retired:
        return Skip.RETIRED
    if candidate.dedicated:
        return Skip.DEDICATED
    return None if candidate.sample else Skip.NO_SAMPLE


def warm_models(
    names: Sequence[tuple[str, str]],
    job: Job,
    source: HeatCandidates,
    execution: Execution,
    *,
    in_flight: int,
    settings: WarmUpSettings,
    stop_at: float,
) -> Driven:
    """Call the models that are routed to an endpoint, within the bounds of any warm-up.

    Args:
        names: tenant and model of each; those that are routed elsewhere or are not there are left out.
        job: the endpoint, and why.
        source: finds their versions.
        execution: does it.
        in_flight: calls under way at once, at most.
        settings: bounds.
        stop_at: when this must have returned, on the monotonic clock; what is not called by then is left.
    """
    plan = plan_named(source.named(names, job.endpoint).candidates, in_flight, settings)
    run = WarmUpRun(plan, settings, execution.clock.wall())
    return execution.drive(run, job, _NoLease(), _NoWatch(), stop_at=stop_at)


class _NoLease:
    """`mme_tenancy.warm_up.execute.Hold` of work that anybody may do at the same time."""

    expires_at = math.inf

    def save(self, progress: Mapping[str, Any]) -> bool:  # noqa: ARG002 - it is not continued
        return True


class _NoWatch:
    """`mme_tenancy.warm_up.execute.Watch` of work that is over before it matters."""

    def look(self) -> str | None:
        return None
