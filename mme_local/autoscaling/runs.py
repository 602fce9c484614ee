"""The runs of scheduled actions: which comes next, and when."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from mme_local.autoscaling.models import Key, ScheduledAction
from mme_local.clock import CloudClock

__all__ = ["ScheduledRuns"]

logger = logging.getLogger(__name__)

_NEVER = float("inf")
Number = tuple[str, Key]


class ScheduledRuns:
    """Runs scheduled actions at their moments of the cloud's clock; made and used on the event loop.

    Args:
        actions: the scheduled actions by name and target; a changed one is another object.
        clock: the cloud's clock.
        run: runs an action.
    """

    def __init__(self, actions: Mapping[Number, ScheduledAction], clock: CloudClock, run: Callable[[ScheduledAction], None]) -> None:
        self._actions, self._clock, self._run = actions, clock, run
        self._next: dict[Number, tuple[ScheduledAction, float]] = {}
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Run actions from now on, in the background."""
        self._task = asyncio.get_running_loop().create_task(self._loop(), name="scheduled actions")

    async def stop(self) -> None:
        """Run none any more."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def read(self, key: Key) -> None:
        """The actions of a target have changed."""
        for number in [number for number in self._next if number[1] == key]:
            if self._actions.get(number) is not self._next[number][0]:
                del self._next[number]
        for number, action in self._actions.items():
            if number[1] == key and number not in self._next:
                self._next[number] = action, _next_run(action, self._clock.time())
        self._changed.set()

    def clear(self) -> None:
        """Forget everything."""
        self._next.clear()
        self._changed.set()

    async def _loop(self) -> None:
        while True:
            self._changed.clear()
            soonest = min((moment for _, moment in self._next.values()), default=_NEVER)
            if soonest > self._clock.time():
                await self._until(soonest)
            now = self._clock.time()
            for number, (action, moment) in list(self._next.items()):
                if moment > now or number not in self._next:
                    continue
                self._next[number] = action, _next_run(action, now)
                try:
                    self._run(action)
                except Exception:
                    # The others still have to run.
                    logger.exception("scheduled action %s", action.name)

    async def _until(self, moment: float) -> None:
        """Return at a moment of the clock, or earlier when actions change."""
        waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(self._changed.wait())]
        if moment < _NEVER:
            waits.append(asyncio.ensure_future(self._clock.sleep_until(moment)))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()


def _next_run(action: ScheduledAction, after: float) -> float:
    """The action's next moment, between its start and its end. A rate begins with the start."""
    starts, ends = action.request.get("StartTime"), action.request.get("EndTime", _NEVER)
    since = action.created.timestamp() if starts is None else starts
    if starts is not None and after < starts:
        # The start itself may be a moment of the schedule.
        moment = starts if action.schedule.text.startswith("rate") else action.schedule.next_after(starts - 0.001, since=since)
    else:
        moment = action.schedule.next_after(after, since=since)
    return _NEVER if moment is None or moment > ends else moment
