"""Events of AWS services on the emulator's EventBridge: the default bus, at the scaled clock's time.

AWS may send an event more than once, so now and then one is sent twice here, on purpose (`LocalSettings.duplicate_event_share`): a handler
that is not idempotent shows. See "Amazon EventBridge events and rules" of the SageMaker AI guide for the details of its events.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

__all__ = ["DEPLOYMENT_CHANGE", "STATE_CHANGE", "Event", "Events", "Publish"]

STATE_CHANGE = "SageMaker Endpoint State Change"
"""Detail type of a change of EndpointStatus."""
DEPLOYMENT_CHANGE = "SageMaker Endpoint Deployment State Change"
"""Detail type of what happens to the fleets of an endpoint while it changes."""

_SEED = 20261129


@dataclass(frozen=True, slots=True)
class Event:
    """An event of an AWS service.

    Attributes:
        event_id: new for every event that is sent, also for the second of two that say the same.
        source: such as ``aws.sagemaker``.
        detail_type: such as `STATE_CHANGE`.
        detail: the document.
        resources: ARNs.
        time: when it happened, in scaled epoch seconds.
    """

    event_id: str
    source: str
    detail_type: str
    detail: Mapping[str, Any]
    resources: Sequence[str]
    time: float


class Publish(Protocol):
    """`Events.publish`, as others are given it."""

    def __call__(self, detail_type: str, detail: Mapping[str, Any], resources: Sequence[str], *, source: str = ...) -> None:
        """Send an event."""


class Events:
    """Publishes events.

    Args:
        deliver: puts one event on the default bus.
        now: scaled epoch seconds.
        duplicate_share: the share of events that are sent twice, 0 to 1.
        chance: numbers in [0, 1) that decide which; seeded, so that the same run has the same duplicates.
        copies: how often an event is sent by its detail type and the name of its endpoint, as faults say; 1 for no fault.
    """

    def __init__(
        self,
        deliver: Callable[[Event], None],
        *,
        now: Callable[[], float],
        duplicate_share: float = 0.0,
        chance: Callable[[], float] | None = None,
        copies: Callable[[str, str], int] = lambda _detail_type, _endpoint: 1,
    ) -> None:
        self._copies = copies
        self._deliver, self._now, self._duplicate_share = deliver, now, duplicate_share
        self._chance = chance or random.Random(_SEED).random  # noqa: S311 - no secret
        self._listeners: list[Callable[[Event], None]] = []

    def listen(self, listener: Callable[[Event], None]) -> None:
        """Call ``listener`` with every event that is sent, on the event loop."""
        self._listeners.append(listener)

    def publish(self, detail_type: str, detail: Mapping[str, Any], resources: Sequence[str], *, source: str = "aws.sagemaker") -> None:
        """Send an event, now and then twice. Rules' targets are called in the background.

        Args:
            detail_type: its type.
            detail: the document; JSON.
            resources: the ARNs that it is about.
            source: the service that says so.
        """
        copies = self._copies(detail_type, str(detail.get("EndpointName", "")))
        for _ in range(2 if copies == 1 and self._chance() < self._duplicate_share else copies):
            event = Event(str(uuid.uuid4()), source, detail_type, detail, tuple(resources), self._now())
            for listener in self._listeners:
                listener(event)
            self._deliver(event)
