"""A service that does not answer, as an error of the tree."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from botocore.exceptions import BotoCoreError, ClientError

from mme_tenancy.errors import UnavailableError

__all__ = ["as_unavailable"]


@contextmanager
def as_unavailable() -> Iterator[None]:
    """Turn what botocore raises within it into `UnavailableError` (503), the cause behind it for the log."""
    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise UnavailableError("the service cannot answer at the moment: try again", retry_after_seconds=2) from error
