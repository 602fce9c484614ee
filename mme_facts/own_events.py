"""Events that the platform sends to itself: constructs write the rules, functions the events."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["RESUME_DETAIL", "SWEEP_SOURCE", "WARM_UP_KEY", "WarmUpTask", "warm_up_event"]

SWEEP_SOURCE = "mme.sweep"
"""Source of the sweep's events."""
RESUME_DETAIL = "Upload Resumed"
"""Detail type of the event that brings a stuck version on; its detail is that of S3's ``Object Created``."""
WARM_UP_KEY = "mme_warm_up"
"""The one key of the events that the warm-up function gets from itself and from operators."""


class WarmUpTask(StrEnum):
    """What the warm-up function is asked to do with an endpoint."""

    LOOK = "look"
    """What it does on every event: look at the fleet, and begin or continue the warm-up that is due."""
    START = "start"
    """Warm it although its fleet has not changed, unless a warm-up is under way."""


def warm_up_event(endpoint: str, task: WarmUpTask = WarmUpTask.LOOK) -> dict[str, dict[str, str]]:
    """An event for the warm-up function.

    Args:
        endpoint: the endpoint's name.
        task: what to do with it.
    """
    return {WARM_UP_KEY: {"endpoint": endpoint, "task": task.value}}
