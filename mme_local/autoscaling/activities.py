"""Scaling activities: what was done, or not done, and why. They outlive their targets and are kept for six weeks."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["Activities", "Activity", "Status"]

_KEPT_SECONDS = 42 * 86400

Status = Literal["Pending", "InProgress", "Successful", "Overridden", "Unfulfilled", "Failed"]
Key = tuple[str, str, str]


@dataclass(slots=True)
class Activity:
    """A scaling activity; moments are scaled epoch seconds.

    Attributes:
        key: namespace, resource id and dimension of its target.
        description: what was to be done.
        cause: why.
        started: when it began.
        status: StatusCode.
        message: StatusMessage, if there is one.
        ended: when it ended.
        details: further details.
        not_scaled: NotScaledReasons of an activity that did nothing.
    """

    key: Key
    description: str
    cause: str
    started: float
    status: Status = "Pending"
    message: str | None = None
    ended: float | None = None
    not_scaled: Sequence[Mapping[str, Any]] = ()
    id: str = field(default_factory=lambda: str(uuid.uuid4()))


class Activities:
    """The activities of all targets, newest first.

    Args:
        now: scaled epoch seconds.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._all: deque[Activity] = deque()
        self._noted: dict[tuple[Key, str], Mapping[str, Any]] = {}
        self._listeners: list[Callable[[Activity], object]] = []

    def listen(self, listener: Callable[[Activity], object]) -> None:
        """Call ``listener`` with every activity that begins or changes, on the event loop."""
        self._listeners.append(listener)

    def begin(self, key: Key, description: str, cause: str) -> Activity:
        """Record the beginning of an activity."""
        for noted in [noted for noted in self._noted if noted[0] == key]:
            del self._noted[noted]
        return self._add(Activity(key, description, cause, self._now()))

    def change(self, activity: Activity, status: Status, message: str | None = None, *, ended: bool = True) -> None:
        """Record what became of an activity."""
        activity.status, activity.message = status, message
        if ended:
            activity.ended = self._now()
        self._tell(activity)

    def note(self, key: Key, cause: str, reason: Mapping[str, Any]) -> None:
        """Record that nothing was done, once as long as the reason for a cause stays the same and nothing else is done."""
        if self._noted.get((key, cause)) == reason:
            return
        self._noted[key, cause] = reason
        description = "Attempting to scale due to alarm triggered"
        self._add(Activity(key, description, cause, self._now(), "Failed", not_scaled=[reason]))

    def of(
        self, namespace: str, *, resource_id: str | None = None, dimension: str | None = None, not_scaled: bool = False
    ) -> list[Activity]:
        """The activities of the last six weeks, newest first; those that did nothing only if asked for."""
        oldest = self._now() - _KEPT_SECONDS
        return [
            activity
            for activity in self._all
            if activity.key[0] == namespace
            and resource_id in (None, activity.key[1])
            and dimension in (None, activity.key[2])
            and (not_scaled or not activity.not_scaled)
            and activity.started >= oldest
        ]

    def clear(self) -> None:
        """Forget everything."""
        self._all.clear()
        self._noted.clear()

    def _add(self, activity: Activity) -> Activity:
        oldest = self._now() - _KEPT_SECONDS
        while self._all and self._all[-1].started < oldest:
            self._all.pop()
        self._all.appendleft(activity)
        self._tell(activity)
        return activity

    def _tell(self, activity: Activity) -> None:
        for listener in self._listeners:
            listener(activity)
