"""The plan and the run of the Lambda against a simulated fleet."""

from __future__ import annotations

import pytest

from mme_cli.simulation.warm_up import WarmUpPolicy, outcome_of
from mme_fleet import Costs, FleetSettings, InstanceSpec, OneHomeRouter, RequestAnswer, ScaleOut, Simulator, StickyRouter, UpdateFleet
from mme_fleet.events import LoadFailure, ReplyError
from mme_tenancy.warm_up.change import ChangeKind, FleetChange
from mme_tenancy.warm_up.plan import Candidate, FleetShape, plan
from mme_tenancy.warm_up.run import Answer, End
from mme_tenancy.warm_up.settings import WarmUpSettings

MODELS = [f"acme/m{number}/v1-000000000000.tar.gz" for number in range(40)]
MEMORY, SLOTS, CHANGES_AT = 200, 4, 600.0
SPEC = InstanceSpec(MEMORY, 10 * MEMORY)


def requests(until, every=1.0):
    """Each model in turn, one a second."""
    return [(number * every, MODELS[number % len(MODELS)]) for number in range(int(until / every))]


def simulate(change, kind, before, after, *, router=OneHomeRouter, warm=True, failures=None, queue=None):
    settings = WarmUpSettings()
    asked = dict(zip(MODELS, [1 / 40] * 40, strict=True))
    empty = after if kind is ChangeKind.UPDATE else after - before

    def make(now):
        candidates = [Candidate(target_model=model, bytes=10, load_seconds=1.0, rate=rate, last_used=now) for model, rate in asked.items()]
        happened = FleetChange(kind, "shared", 1, now, before, after, empty, "one", "two")
        return plan(happened, FleetShape(before, MEMORY, SLOTS), FleetShape(after, MEMORY, SLOTS), candidates, settings, now)

    policy = WarmUpPolicy(CHANGES_AT + 5, make, settings)
    costs = Costs(
        unpacked_bytes=lambda _model: 10,
        download_seconds=lambda _model: 1.0,
        service_seconds=lambda _model: 0.01,
        failures=failures or {},
    )
    simulator = Simulator(
        costs,
        [SPEC] * before,
        settings=FleetSettings(load_concurrency=SLOTS, model_queue_size=queue),
        router=router,
        policies=[policy] if warm else [],
    )
    results = simulator.run(requests(1200), [(CHANGES_AT, change)])
    return policy, sum(at >= CHANGES_AT for at in results.cold_at)


@pytest.mark.parametrize(
    ("change", "kind", "before", "after"),
    [
        (ScaleOut([SPEC, SPEC]), ChangeKind.SCALE_OUT, 4, 6),
        (UpdateFleet(), ChangeKind.UPDATE, 4, 4),
    ],
    ids=["scale-out", "update"],
)
def test_users_of_what_moved_no_longer_wait_once_it_is_warmed(change, kind, before, after):
    _none, without = simulate(change, kind, before, after, warm=False)
    policy, with_warm_up = simulate(change, kind, before, after)
    summary = policy.run.summary(CHANGES_AT + 600)
    assert (summary.end, summary.planned, summary.warmed) == (End.DONE, 40, 40)
    assert with_warm_up < without / 2
    assert summary.cold_requests_avoided == pytest.approx(without - with_warm_up, rel=0.3)


def test_under_a_sticky_router_nothing_has_moved_and_it_costs_no_load():
    policy, cold = simulate(ScaleOut([SPEC, SPEC]), ChangeKind.SCALE_OUT, 4, 6, router=StickyRouter)
    assert (cold, policy.run.summary(1e4).loaded) == (0, 0)


def test_a_model_whose_load_fails_is_listed_and_the_others_are_warmed():
    broken = MODELS[3]
    policy, _cold = simulate(UpdateFleet(), ChangeKind.UPDATE, 4, 4, failures={broken: LoadFailure.BROKEN})
    summary = policy.run.summary(1e4)
    assert [one.target_model for one in summary.failed] == [broken]
    assert summary.warmed == 39


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (None, Answer.OK),
        (ReplyError("ModelNotReadyException", 429, "still loading"), Answer.NOT_READY),
        (ReplyError("ServiceUnavailable", 503, "no instance"), Answer.THROTTLED),
        (ReplyError("ModelError", 424, "queue full", 503), Answer.THROTTLED),
        (ReplyError("ModelError", 424, "broken", 500), Answer.FAILED),
        (ReplyError("ValidationError", 400, "no such model"), Answer.FAILED),
    ],
    ids=["ok", "not-ready", "unavailable", "queue-full", "model-error", "validation"],
)
def test_answers_of_the_fleet_are_told_apart(error, answer):
    outcome = outcome_of(RequestAnswer("m", 1.5, cold=False, instance=None, error=error))
    assert (outcome.answer, outcome.seconds) == (answer, 1.5)
