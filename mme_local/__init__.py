"""The local cloud: an AWS emulator, our SageMaker and Application Auto Scaling, and real model servers on one port.

`LocalCloud` starts it as a child process; nothing here imports the emulator into the caller's process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mme_facts.lazy import attach

if TYPE_CHECKING:
    from mme_local.cloud import CloudStartError, LocalCloud
    from mme_local.credentials import Credentials
    from mme_local.fault_client import FaultsClient, FaultState
    from mme_local.fault_documents import (
        DuplicateEvent,
        FailDownload,
        FailInvoke,
        FailLoad,
        Fault,
        FaultError,
        FreezeInstance,
        InsufficientCapacity,
        JumpClock,
        KillInstance,
        LoseEvent,
        SlowDownload,
        SlowInvoke,
        SlowLoad,
        ThrottleControl,
        ThrottleInvoke,
    )
    from mme_local.sagemaker.settings import ControlPlaneSettings
    from mme_local.settings import LocalSettings
    from mme_local.toolchain import cdk_environment

__all__ = [
    "CloudStartError",
    "ControlPlaneSettings",
    "Credentials",
    "DuplicateEvent",
    "FailDownload",
    "FailInvoke",
    "FailLoad",
    "Fault",
    "FaultError",
    "FaultState",
    "FaultsClient",
    "FreezeInstance",
    "InsufficientCapacity",
    "JumpClock",
    "KillInstance",
    "LocalCloud",
    "LocalSettings",
    "LoseEvent",
    "SlowDownload",
    "SlowInvoke",
    "SlowLoad",
    "ThrottleControl",
    "ThrottleInvoke",
    "cdk_environment",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        **dict.fromkeys(__all__, "fault_documents"),
        "FaultState": "fault_client",
        "FaultsClient": "fault_client",
        "CloudStartError": "cloud",
        "ControlPlaneSettings": "sagemaker.settings",
        "Credentials": "credentials",
        "LocalCloud": "cloud",
        "LocalSettings": "settings",
        "cdk_environment": "toolchain",
    },
)
