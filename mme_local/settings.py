"""What can be set on a local cloud."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from mme_local.dataplane.interface import DataPlaneSettings
from mme_local.sagemaker.settings import ControlPlaneSettings

__all__ = ["ACCOUNT", "REGION", "LocalSettings"]

ACCOUNT = "000000000000"
"""The account of every local cloud."""
REGION = "us-east-1"
"""The region whose SageMaker the local cloud serves."""


@dataclass(frozen=True, slots=True)
class LocalSettings:
    """Settings of a local cloud; every one has a default.

    Attributes:
        data_plane: how the model servers run (memory per instance, waits).
        control_plane: how long SageMaker's statuses last.
        instance_limit: instances that all endpoints together may have, at least 1: the local "quota".
        start_seconds: how long starting may take before `CloudStartError`.
        stop_seconds: how long a regular stop may take before the processes are killed.
        log_level: level of the gateway's log file.
        clock_scale: scaled seconds a real second (`mme_local.clock`): 60 lets an hour of autoscaling pass in a minute.
        duplicate_event_share: the share of AWS services' events that are sent twice, as AWS may do: 0 for none, 1 for all.
        faults: whether faults can be asked for (`LocalCloud.faults`, ``/_mme/faults``).
        asynchronous_executions: asynchronous invocations of one function that run at once, at least 1; the others wait, and no more
            run than the function's reserved concurrency. By default two for each core, at least 4: more would only start processes.
    """

    data_plane: DataPlaneSettings = field(default_factory=DataPlaneSettings)
    control_plane: ControlPlaneSettings = field(default_factory=ControlPlaneSettings)
    instance_limit: int = 20
    start_seconds: float = 60.0
    stop_seconds: float = 15.0
    log_level: str = "WARNING"
    clock_scale: float = 1.0
    duplicate_event_share: float = 0.1
    faults: bool = False
    asynchronous_executions: int = max(4, 2 * (os.cpu_count() or 1))

    def __post_init__(self) -> None:
        if self.instance_limit < 1:
            raise ValueError(f"instance_limit is {self.instance_limit}: at least 1 is needed")
        if self.asynchronous_executions < 1:
            raise ValueError(f"asynchronous_executions is {self.asynchronous_executions}: at least 1 is needed")
        for name in ("start_seconds", "stop_seconds"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}: a positive number of seconds is needed")
        if not 0 < self.clock_scale < float("inf"):
            raise ValueError(f"clock_scale is {self.clock_scale}: use a number above 0, such as 60 for a minute a second")

        if not 0 <= self.duplicate_event_share <= 1:
            raise ValueError(f"duplicate_event_share is {self.duplicate_event_share}: use a share from 0 to 1")

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready form for the gateway process."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> LocalSettings:
        """Read what `to_json` wrote."""
        parts = {
            "data_plane": DataPlaneSettings(**document["data_plane"]),
            "control_plane": ControlPlaneSettings(**document["control_plane"]),
        }
        return cls(**{**document, **parts})
