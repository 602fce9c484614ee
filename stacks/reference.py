"""The reference app: two stacks, the platform above its storage."""

from __future__ import annotations

import aws_cdk as cdk

from stacks.lifetime import Lifetime
from stacks.platform_stack import PlatformStack
from stacks.storage_stack import StorageStack

__all__ = ["build"]


def build(app: cdk.App, *, env: cdk.Environment | None = None) -> tuple[cdk.Stack, ...]:
    """Add the stacks to ``app``.

    Args:
        app: its context ``environment`` says whether data outlives the stacks: ``aws`` (default) or ``local``.
        env: account and region. Default: environment-agnostic.

    Returns:
        The stacks in the order in which they deploy.
    """
    lifetime = Lifetime.of(app.node.try_get_context("environment") or "aws")
    storage = StorageStack(app, "MmeStorage", lifetime=lifetime, env=env)
    platform = PlatformStack(app, "MmePlatform", store=storage.store, registry=storage.registry, lifetime=lifetime, env=env)
    return storage, platform
