"""The local cloud: an AWS emulator, our SageMaker and Application Auto Scaling, and real model servers on one port.

`LocalCloud` starts it as a child process; nothing here imports the emulator into the caller's process.
"""

from mme_facts.lazy import attach

__all__ = ["CloudStartError", "Credentials", "LocalCloud", "LocalSettings", "cdk_environment", "toolchain"]

__getattr__, __dir__ = attach(
    __name__,
    {
        "LocalCloud": "cloud",
        "CloudStartError": "cloud",
        "Credentials": "credentials",
        "LocalSettings": "settings",
        "cdk_environment": "toolchain",
    },
)
