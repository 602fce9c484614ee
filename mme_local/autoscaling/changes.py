"""Changes of capacities: one after the other for each target, told as scaling activities, followed by their cooldowns."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from mme_local.autoscaling.activities import Activities, Activity
from mme_local.autoscaling.capacity import BusyError, Capacity, RefusedError
from mme_local.autoscaling.models import COMPONENT_COPIES, Key
from mme_local.clock import CloudClock

__all__ = ["Change", "Changes", "Cooldowns"]

logger = logging.getLogger(__name__)

_BUSY_SECONDS = 5.0
"""Scaled seconds between two attempts at a resource that changes at the moment."""
_PATIENCE_SECONDS = 3600.0
"""Scaled seconds after which a change that found no moment is given up."""
_NEVER = float("-inf")


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a target's capacity.

    Attributes:
        activity: tells it.
        base: what a policy added to; less than ``old`` when earlier steps of a cooldown are part of this one.
        old: the capacity before.
        new: the capacity wanted.
        cooldown_seconds: the cooldown that follows; ``None`` for changes that no policy asked for.
    """

    activity: Activity
    base: int
    old: int
    new: int
    cooldown_seconds: float | None

    @property
    def what(self) -> str:
        """In the words of a scaling activity."""
        return _what(self.activity.key, self.new)


@dataclass(slots=True)
class Cooldowns:
    """The cooldowns of a target; moments are scaled epoch seconds.

    Attributes:
        out_base: capacity before the scale-outs whose cooldown runs.
        out_until: end of that cooldown.
        in_until: end of the cooldown of the last scale-in.
    """

    out_base: int = 0
    out_until: float = _NEVER
    in_until: float = _NEVER

    def begin(self, change: Change, now: float) -> None:
        """A change is done."""
        if change.cooldown_seconds is None:
            return
        if change.new > change.old:
            self.out_base, self.out_until = change.base, now + change.cooldown_seconds
        else:
            self.in_until = now + change.cooldown_seconds

    def end_scale_in(self) -> None:
        """A scale-out ends the cooldown of a scale-in."""
        self.in_until = _NEVER


@dataclass(slots=True)
class _Queue:
    waiting: Change | None = None
    running: Change | None = None
    task: asyncio.Task[None] | None = None


class Changes:
    """Does changes, on the event loop.

    Args:
        capacity: the capacities.
        activities: where they are told.
        clock: the cloud's clock.
        done: is told of every change that was fulfilled.
    """

    def __init__(self, capacity: Capacity, activities: Activities, clock: CloudClock, done: Callable[[Change], None]) -> None:
        self._capacity, self._activities, self._clock, self._done = capacity, activities, clock, done
        self._queues: dict[Key, _Queue] = {}
        self._cooldowns: dict[Key, Cooldowns] = {}
        self._forgotten: set[asyncio.Task[None]] = set()

    def cooldowns(self, key: Key) -> Cooldowns:
        """The cooldowns of a target."""
        return self._cooldowns.setdefault(key, Cooldowns())

    def under_way(self, key: Key) -> Change | None:
        """The newest change of a target that is not done."""
        queue = self._queues.get(key)
        return None if queue is None else queue.waiting or queue.running

    def desired(self, key: Key) -> int | None:
        """The capacity of a target when the changes under way are done; ``None`` when its resource does not exist."""
        desired, change = self._capacity.desired(key), self.under_way(key)
        return desired if desired is None or change is None else change.new

    def base(self, key: Key, desired: int) -> int:
        """What a scale-out adds to: while a scale-out or its cooldown lasts, the capacity from before, so that it is part of the next."""
        if (change := self.under_way(key)) is not None:
            return min(change.base, desired)
        cooldowns = self.cooldowns(key)
        return min(cooldowns.out_base, desired) if self._clock.time() < cooldowns.out_until else desired

    def begin(self, key: Key, new: int, cause: str, *, cooldown_seconds: float | None = None, base: int | None = None) -> None:
        """Change a target's capacity as soon as its resource takes it; a change that still waits is overridden."""
        queue = self._queues.setdefault(key, _Queue())
        if (waiting := queue.waiting) is not None:
            self._activities.change(waiting.activity, "Overridden", f"Setting {waiting.what} was overridden by a newer scaling event.")
        old = queue.running.new if queue.running is not None else self._capacity.desired(key) or 0
        activity = self._activities.begin(key, f"Setting {_what(key, new)}.", cause)
        queue.waiting = Change(activity, old if base is None else base, old, new, cooldown_seconds)
        if queue.task is None or queue.task.done():
            queue.task = asyncio.get_running_loop().create_task(self._work(key, queue), name=f"scale {key[1]}")

    def forget(self, key: Key) -> None:
        """A target is gone, and its cooldowns with it. What SageMaker has taken is told to its end, what still waits is given up."""
        self._cooldowns.pop(key, None)
        queue = self._queues.pop(key, None)
        if queue is None:
            return
        if (waiting := queue.waiting) is not None:
            queue.waiting = None
            self._fail(waiting, "The scalable target was deregistered.")
        if queue.task is not None and not queue.task.done():
            self._forgotten.add(queue.task)
            queue.task.add_done_callback(self._forgotten.discard)

    async def clear(self) -> None:
        """Forget everything; what is under way is left as it is."""
        tasks = [*self._forgotten, *(queue.task for queue in self._queues.values() if queue.task is not None)]
        self._queues.clear()
        self._cooldowns.clear()
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _work(self, key: Key, queue: _Queue) -> None:
        while queue.waiting is not None:
            try:
                await self._next(key, queue)
            except Exception as error:
                logger.exception("scaling %s", key[1])
                if (change := queue.running or queue.waiting) is not None:
                    self._fail(change, str(error) or type(error).__name__)
                queue.waiting = queue.running = None

    async def _next(self, key: Key, queue: _Queue) -> None:
        change = await self._taken(key, queue)
        if change is None:
            return
        queue.waiting, queue.running = None, change
        text = f"Successfully set {change.what}."
        self._activities.change(change.activity, "InProgress", f"{text} Waiting for change to be fulfilled by sagemaker.", ended=False)
        await self._capacity.settled(key)
        reason = self._capacity.shortfall(key, change.new)
        queue.running = None
        if reason is not None:
            self._fail(change, reason)
            return
        self._activities.change(change.activity, "Successful", f"{text} Change successfully fulfilled by sagemaker.")
        if self._queues.get(key) is queue:
            self.cooldowns(key).begin(change, self._clock.time())
        self._done(change)

    async def _taken(self, key: Key, queue: _Queue) -> Change | None:
        """The change that SageMaker has taken, always the newest that waits; ``None`` when it took none."""
        patience = self._clock.time() + _PATIENCE_SECONDS
        while (change := queue.waiting) is not None:
            try:
                self._capacity.set(key, change.new)
            except BusyError:
                if self._clock.time() >= patience:
                    queue.waiting = None
                    self._fail(change, "The resource did not become scalable.", unfulfilled=True)
                    return None
                with suppress(TimeoutError):
                    async with asyncio.timeout(_BUSY_SECONDS / self._clock.scale):
                        await self._capacity.settled(key)
                await asyncio.sleep(0)
            except RefusedError as error:
                queue.waiting = None
                self._fail(change, str(error))
                return None
            else:
                return change
        return None

    def _fail(self, change: Change, reason: str, *, unfulfilled: bool = False) -> None:
        self._activities.change(
            change.activity, "Unfulfilled" if unfulfilled else "Failed", f"Failed to set {change.what}. Reason: {reason}"
        )


def _what(key: Key, count: int) -> str:
    return f"desired {'copy' if key[2] == COMPONENT_COPIES else 'instance'} count to {count}"
