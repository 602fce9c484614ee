"""Start the local cloud inside a command, and tell the other commands about it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from mme_cli.errors import CommandError
from mme_cli.local_state import LocalState

__all__ = ["running_cloud"]

_SMALL_ARTIFACT_BYTES = 4 * 1024 * 1024
"""Room for one unpacked artifact when memory is counted in small models."""


@contextmanager
def running_cloud(
    *, port: int | None = None, models_per_instance: int | None = None, clock_scale: float | None = None, faults: bool = False
) -> Iterator[LocalState]:
    """Run the local cloud for the length of the block.

    Args:
        port: the gateway's port; None takes a free one.
        models_per_instance: memory of each endpoint instance, in small XGBoost models; None takes the local cloud's default.
        clock_scale: scaled seconds a real second; None takes the local cloud's default.
        faults: whether faults can be asked for.

    Raises:
        CommandError: it did not start, or the ``local`` extra is not installed.
    """
    try:
        from mme_local import CloudStartError, LocalCloud, LocalSettings
        from mme_local.dataplane import DataPlaneSettings
    except ImportError as error:
        raise CommandError(f"the local cloud is not installed ({error}): pip install 'mme-constructs[local]'") from None
    data_plane = DataPlaneSettings()
    if models_per_instance is not None:
        model_bytes = data_plane.model_overhead_bytes + _SMALL_ARTIFACT_BYTES
        data_plane = DataPlaneSettings(instance_memory_bytes=models_per_instance * model_bytes)
    settings = LocalSettings(data_plane=data_plane, faults=faults)
    if clock_scale is not None:
        settings = replace(settings, clock_scale=clock_scale)
    try:
        with LocalCloud(port=port, settings=settings) as cloud:
            yield LocalState(
                endpoint_url=cloud.endpoint_url,
                region=cloud.region,
                account=cloud.account,
                pid=os.getpid(),
                admin=cloud.admin,
                environment=cloud.environment(),
            )
    except CloudStartError as error:
        raise CommandError(str(error)) from error
