"""Constants of a fleet."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FleetSettings"]


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """Constants of a fleet.

    Attributes:
        model_overhead_bytes: memory that a loaded model takes on top of its unpacked artifact.
        load_wait_seconds: how long a request waits for a load before it gets ModelNotReadyException.
        load_attempts: how often a load that ends out of memory is tried in all.
    """

    model_overhead_bytes: int = 0
    load_wait_seconds: float = 60.0
    load_attempts: int = 3

    def __post_init__(self) -> None:
        if self.model_overhead_bytes < 0:
            raise ValueError(f"model_overhead_bytes is {self.model_overhead_bytes}: use 0 or more")
        if self.load_wait_seconds < 0:
            raise ValueError(f"load_wait_seconds is {self.load_wait_seconds}: use 0 or more")
        if self.load_attempts < 1:
            raise ValueError(f"load_attempts is {self.load_attempts}: use 1 or more")
