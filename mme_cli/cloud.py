"""Start the local cloud inside a command, and tell the other commands about it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from mme_cli.errors import CommandError
from mme_cli.local_state import Keys, LocalState

__all__ = ["running_cloud"]


@contextmanager
def running_cloud(*, port: int | None = None, models_per_instance: int | None = None) -> Iterator[LocalState]:
    """Run the local cloud for the length of the block.

    Args:
        port: the gateway's port; None takes a free one.
        models_per_instance: memory of each endpoint instance, in small XGBoost models; None takes the local cloud's default.

    Raises:
        CommandError: it did not start, or the ``local`` extra is not installed.
    """
    try:
        from mme_local import LocalCloud, LocalCloudError, LocalSettings
    except ImportError as error:
        raise CommandError(f"the local cloud is not installed ({error}): pip install 'mme-constructs[local]'") from None
    settings = LocalSettings() if models_per_instance is None else LocalSettings(models_per_instance=models_per_instance)
    try:
        with LocalCloud(port=port, settings=settings) as cloud:
            yield LocalState(
                endpoint_url=cloud.endpoint_url,
                region=cloud.region,
                account=cloud.account,
                pid=os.getpid(),
                directory=str(cloud.directory),
                admin=Keys(cloud.admin.access_key_id, cloud.admin.secret_access_key, cloud.admin.session_token),
            )
    except LocalCloudError as error:
        raise CommandError(str(error)) from error
