"""The reference app: three stacks, storage below inference below tenancy."""

from __future__ import annotations

import aws_cdk as cdk

from stacks.inference_stack import InferenceStack
from stacks.lifetime import Lifetime
from stacks.storage_stack import StorageStack
from stacks.tenancy_stack import TenancyStack

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
    inference = InferenceStack(app, "MmeInference", store=storage.store, env=env)
    tenancy = TenancyStack(
        app, "MmeTenancy", store=storage.store, registry=storage.registry, pools=inference.pools, lifetime=lifetime, env=env
    )
    return storage, inference, tenancy
