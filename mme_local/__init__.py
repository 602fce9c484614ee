"""The local cloud: an AWS emulator, our SageMaker and Application Auto Scaling, and real model servers on one port.

`LocalCloud` starts it as a child process; nothing here imports the emulator into the caller's process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mme_facts.lazy import attach

if TYPE_CHECKING:
    from mme_local.cloud import CloudStartError, LocalCloud
    from mme_local.credentials import Credentials
    from mme_local.settings import LocalSettings
    from mme_local.toolchain import cdk_environment

__all__ = ["CloudStartError", "Credentials", "LocalCloud", "LocalSettings", "cdk_environment"]

__getattr__, __dir__ = attach(
    __name__,
    {
        "CloudStartError": "cloud",
        "Credentials": "credentials",
        "LocalCloud": "cloud",
        "LocalSettings": "settings",
        "cdk_environment": "toolchain",
    },
)
