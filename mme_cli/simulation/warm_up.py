"""A warm-up in virtual time: the plan and the run that the Lambda uses, against a simulated fleet."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from mme_facts import runtime_errors
from mme_fleet import RequestAnswer, Simulator
from mme_tenancy.warm_up.plan import WarmUpPlan
from mme_tenancy.warm_up.run import Answer, Call, Outcome, WarmUpRun
from mme_tenancy.warm_up.settings import WarmUpSettings

__all__ = ["WarmUpPolicy", "outcome_of"]

_ANSWERS = {
    runtime_errors.MODEL_NOT_READY: Answer.NOT_READY,
    runtime_errors.SERVICE_UNAVAILABLE: Answer.THROTTLED,
}
_QUEUE_FULL = 503
"""The container's status when all workers of a model are busy and its queue is full."""


class WarmUpPolicy:
    """A `mme_fleet.SimulationPolicy`: makes a plan when it is time, and drives its run.

    Args:
        starts_at: virtual time of the first call: the fleet's change and the time until it was noticed.
        plan: makes the plan at that time.
        settings: bounds of the run.
    """

    def __init__(self, starts_at: float, plan: Callable[[float], WarmUpPlan], settings: WarmUpSettings) -> None:
        self._starts_at, self._plan, self._settings = starts_at, plan, settings
        self._simulator: Simulator | None = None
        self._wakes_at: float | None = None
        self.run: WarmUpRun | None = None
        """The run; ``None`` before it has begun."""

    def begin(self, simulator: Simulator) -> None:
        """See `mme_fleet.SimulationPolicy`."""
        self._simulator = simulator
        simulator.at(self._starts_at, self._start)

    def _start(self) -> None:
        assert self._simulator is not None
        now = self._simulator.now
        self.run = WarmUpRun(self._plan(now), self._settings, now)
        self._go_on()

    def _go_on(self) -> None:
        simulator, run = self._simulator, self.run
        assert simulator is not None
        assert run is not None
        now = simulator.now
        for call in run.take(now):
            simulator.ask(call.target_model, partial(self._answered, call))
        wake_at = run.wake_at(now)
        if wake_at is not None and (self._wakes_at is None or not now < self._wakes_at <= wake_at):
            self._wakes_at = wake_at
            simulator.at(wake_at, partial(self._woken, wake_at))

    def _woken(self, when: float) -> None:
        if self._wakes_at == when:
            self._wakes_at = None
            self._go_on()

    def _answered(self, call: Call, answer: RequestAnswer) -> None:
        """Told while the fleet executes its actions: the next calls come after them."""
        assert self._simulator is not None
        assert self.run is not None
        self.run.answered(call, self._simulator.now, outcome_of(answer))
        self._simulator.at(self._simulator.now, self._go_on)


def outcome_of(answer: RequestAnswer) -> Outcome:
    """What a simulated answer tells a run."""
    error = answer.error
    if error is None:
        return Outcome(Answer.OK, answer.seconds)
    kind = Answer.THROTTLED if error.original_status == _QUEUE_FULL else _ANSWERS.get(error.code, Answer.FAILED)
    return Outcome(kind, answer.seconds, error.message)
