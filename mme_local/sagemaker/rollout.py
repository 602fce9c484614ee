"""Carries out a deployment policy: brings up new fleets, shifts traffic, watches alarms, ends the old fleets, or goes back.

The same for endpoints and for inference components; what they do in between comes from a `Change`.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Protocol

from mme_local.dataplane.interface import UnknownFleet
from mme_local.sagemaker.policies import Move, Policy
from mme_local.sagemaker.resources import Fleets, Run

__all__ = ["AlarmStates", "Change", "Clock", "DeploymentError", "RollbackError", "Rollout"]

logger = logging.getLogger(__name__)

AlarmStates = Callable[[Sequence[str]], Mapping[str, str]]
"""The states (OK, ALARM, INSUFFICIENT_DATA) of alarms by their names; those that do not exist are missing."""


class Clock(Protocol):
    """The scaled clock: `mme_local.clock.CloudClock`."""

    def time(self) -> float:
        """Epoch seconds."""

    def now(self) -> datetime:
        """The same as a datetime in UTC."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""


class DeploymentError(Exception):
    """A deployment is to go back: an alarm, or its time limit."""


class RollbackError(Exception):
    """A deployment failed, and so did going back."""


async def end_fleet(fleets: Fleets, name: str) -> None:
    """Stop a fleet at once; one that is not there is fine, and one that does not stop is logged."""
    try:
        with suppress(UnknownFleet):
            await fleets.stop_fleet(name)
    except Exception:
        logger.exception("fleet %s did not stop", name)


class Change(Protocol):
    """What an update means for what is updated."""

    @property
    def old(self) -> Sequence[Run]:
        """The fleets that go."""

    @property
    def new(self) -> Sequence[Run]:
        """The fleets that come."""

    async def room(self, new: int | None, old: int | None) -> None:
        """Before the fleets have that many instances (``None``: all): make room; raises when there is none."""

    def doing(self, status: str) -> None:
        """Tell SageMaker's VariantStatus of now."""

    def shift(self, traffic: float) -> None:
        """Give the new fleets this share of the requests."""


class Rollout:
    """Carries out changes.

    Args:
        fleets: gives the data plane.
        clock: the scaled clock.
        alarms: the states of alarms.
        poll_seconds: between two looks at them.
        drained: waits until a fleet has answered what is under way.
    """

    def __init__(
        self,
        fleets: Callable[[], Fleets],
        clock: Clock,
        alarms: AlarmStates,
        poll_seconds: float,
        drained: Callable[[str], Awaitable[None]],
    ) -> None:
        self._fleets, self._clock, self._alarms, self._poll_seconds, self._drained = fleets, clock, alarms, poll_seconds, drained
        self._growing: dict[str, tuple[Run, int]] = {}

    def instance_up(self, fleet: str) -> None:
        """An instance of a fleet serves: one that grows has one more of those that it shall have."""
        if (growing := self._growing.get(fleet)) is not None:
            run, count = growing
            run.set_current(min(run.current + 1, count))

    async def forward(self, change: Change, policy: Policy) -> None:
        """Go from the old fleets to the new ones, but for the end of the old ones (`finish`). What fails is left for `back`."""
        deadline = None if policy.timeout_seconds is None else self._clock.time() + policy.timeout_seconds
        self._check(policy, deadline)
        for number, move in enumerate(policy.moves):
            last = number == len(policy.moves) - 1
            if number == 0 or any(run.current < _size(run, move.new, policy.new) for run in change.new):
                change.doing("Creating")
                await change.room(move.new, None if number == 0 else policy.moves[number - 1].old)
                await self.resize(change.new, move.new, policy.new)
            self._check(policy, deadline)
            change.doing("ActivatingTraffic")
            change.shift(move.traffic)
            await self._bake(change, policy, move, deadline)
            if not last and move.old is not None:
                change.doing("Deleting")
                await self.resize(change.old, move.old, policy.old)
        if policy.termination_wait_seconds:
            change.doing("Baking")
            await self._watch(policy, policy.termination_wait_seconds, deadline)

    async def finish(self, change: Change) -> None:
        """End the old fleets. The new ones serve already: a fleet that does not stop is no failure of the update."""
        change.doing("Deleting")
        for run in change.old:
            await self.stop(run)
        await change.room(None, 0)

    async def back(self, change: Change, policy: Policy) -> None:
        """Return to the old fleets; raises `RollbackError` when that fails, too."""
        try:
            while any(run.current < run.count for run in change.old):
                for run in change.old:
                    batch = run.count if policy.rollback_batch is None else _size(run, policy.rollback_batch, policy.old)
                    there = min(run.count, run.current + max(1, batch))
                    await change.room(max((new.current for new in change.new), default=0), there)
                    await self.resize([run], there)
                whole = sum(run.current for run in (*change.old, *change.new))
                change.shift(sum(run.current for run in change.new) / whole if whole else 0.0)
        except Exception as error:
            raise RollbackError(str(error) or type(error).__name__) from error
        change.shift(0.0)
        for run in change.new:
            await self.stop(run)
        await change.room(0, None)

    async def resize(self, runs: Sequence[Run], count: int | None, total: int | None = None) -> None:
        """Give fleets ``count`` instances; all of them come up, or none of those that are new stays.

        Args:
            runs: the fleets.
            count: instances that each has from then on; ``None``: all of its own.
            total: what ``count`` is a part of, where the fleets are copies on so many instances: each gets the same part of its own.
        """
        fresh = [run for run in runs if run.current == 0]
        try:
            async with asyncio.TaskGroup() as group:
                for run in runs:
                    group.create_task(self._resize(run, _size(run, count, total)))
        except BaseException as failure:
            for run in fresh:
                await self.stop(run)
            if isinstance(failure, BaseExceptionGroup):
                raise failure.exceptions[0] from failure
            raise

    async def _resize(self, run: Run, count: int) -> None:
        if run.current == count:
            return
        if count == 0:
            await self.stop(run)
            return
        before = run.current
        if count > before:
            self._growing[run.name] = run, count
        try:
            if before == 0:
                await self._fleets().start_fleet(replace(run.spec, instance_count=count), run.artifacts)
            else:
                await self._fleets().resize_fleet(run.name, count)
        except BaseException:
            run.set_current(before)
            raise
        finally:
            self._growing.pop(run.name, None)
        run.set_current(count)

    async def stop(self, run: Run) -> None:
        """End a fleet when it has answered what is under way; one that is not there is fine, and one that does not stop is logged.

        It counts as gone at once, so that no request is sent to it any more.
        """
        run.set_current(0)
        await self._drained(run.name)
        await end_fleet(self._fleets(), run.name)

    async def _bake(self, change: Change, policy: Policy, move: Move, deadline: float | None) -> None:
        if move.wait_seconds:
            change.doing("Baking")
            await self._watch(policy, move.wait_seconds, deadline)

    async def _watch(self, policy: Policy, seconds: float, deadline: float | None) -> None:
        end = self._clock.time() + seconds
        while (missing := end - self._clock.time()) > 0:
            await self._clock.sleep(min(missing, self._poll_seconds) if policy.alarms or deadline is not None else missing)
            self._check(policy, deadline)

    def _check(self, policy: Policy, deadline: float | None) -> None:
        if policy.alarms:
            states = self._alarms(policy.alarms)
            if tripped := [name for name in policy.alarms if states.get(name) == "ALARM"]:
                raise DeploymentError(
                    f"One or more configured alarms have tripped: [{', '.join(tripped)}]. The deployment was rolled back."
                )
            if missing := [name for name in policy.alarms if name not in states]:
                raise DeploymentError(
                    f"One or more configured alarms do not exist: [{', '.join(missing)}]. The deployment was rolled back."
                )
        if deadline is not None and self._clock.time() >= deadline:
            raise DeploymentError(
                f"The deployment took longer than MaximumExecutionTimeoutInSeconds, {policy.timeout_seconds:g}. It was rolled back."
            )


def _size(run: Run, count: int | None, total: int | None = None) -> int:
    if count is None:
        return run.count
    return min(run.count, count if total is None else math.ceil(run.count * count / total))
