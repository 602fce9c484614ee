"""Events that the platform sends to itself: constructs write the rules, functions the events."""

from __future__ import annotations

__all__ = ["RESUME_DETAIL", "SWEEP_SOURCE"]

SWEEP_SOURCE = "mme.sweep"
"""Source of the sweep's events."""
RESUME_DETAIL = "Upload Resumed"
"""Detail type of the event that brings a stuck version on; its detail is that of S3's ``Object Created``."""
