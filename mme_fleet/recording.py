"""Record what a fleet was told and what it answered, and check that another fleet answers the same."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from mme_fleet.events import Action, Event
from mme_fleet.fleet import Fleet

__all__ = ["Recorder", "ReplayMismatchError", "Step", "StepObserver", "compare", "replay"]


@dataclass(frozen=True, slots=True)
class Step:
    """One call of `Fleet.on`: when, what was told, what was answered."""

    now: float
    event: Event
    actions: tuple[Action, ...]


class StepObserver(Protocol):
    """Is told every step of every fleet, in the local cloud and in the simulator: metrics, the console and recordings are made of them.

    In the local cloud it is called on the event loop, and must be quick.
    """

    def __call__(self, fleet: str, step: Step) -> None:
        """Take one step of the fleet of that name; ``step.now`` is the time of whoever drives the fleet."""


class ReplayMismatchError(AssertionError):
    """A replayed step gave other actions than the recorded ones; the text names the step and both."""


class Recorder:
    """Stands in front of a fleet and remembers every step. It grows without bound: for tests and analysis.

    Args:
        fleet: the fleet that answers.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._steps: list[Step] = []

    def on(self, event: Event, now: float) -> tuple[Action, ...]:
        """As `Fleet.on`."""
        actions = self._fleet.on(event, now)
        self._steps.append(Step(now, event, actions))
        return actions

    @property
    def steps(self) -> tuple[Step, ...]:
        """What happened so far."""
        return tuple(self._steps)


def replay(steps: Iterable[Step], fleet: Fleet) -> int:
    """Tell ``fleet``, which must be fresh, the recorded events.

    Returns:
        The number of steps.

    Raises:
        ReplayMismatchError: at the first step whose actions differ.
    """
    count = 0
    for count, step in enumerate(steps, 1):
        compare(count, step, fleet.on(step.event, step.now))
    return count


def compare(number: int, step: Step, actions: tuple[Action, ...]) -> None:
    """Raise `ReplayMismatchError` if a replay of the recorded step of that number gave other actions."""
    if actions != step.actions:
        raise ReplayMismatchError(f"step {number}, {step.event}: recorded {step.actions}, replayed {actions}")
