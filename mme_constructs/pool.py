"""Pools: which endpoint serves which framework, as the functions are told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mme_constructs.errors import PoolError
from mme_facts import environment as variables

if TYPE_CHECKING:
    from mme_constructs.artifact_store import ModelArtifactStore
    from mme_constructs.endpoint_interface import IMultiModelEndpoint
    from mme_constructs.tenant_registry import TenantRegistry

__all__ = ["ModelPool", "function_environment"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPool:
    """One shared endpoint and the framework whose versions go to it.

    Attributes:
        framework: such as ``xgboost``.
        endpoint: the endpoint.
        name: the pool's name. Default: the framework's.

    Raises:
        PoolError: framework or name is empty.
    """

    framework: str
    endpoint: IMultiModelEndpoint
    name: str = ""

    def __post_init__(self) -> None:
        if not self.framework:
            raise PoolError(
                "The pool has no framework", value=self.framework, allowed="a framework's name", fix="Set framework, such as 'xgboost'"
            )
        if not self.name:
            object.__setattr__(self, "name", self.framework)


def function_environment(
    *, store: ModelArtifactStore, registry: TenantRegistry, pools: Sequence[ModelPool], max_artifact_bytes: int
) -> dict[str, str]:
    """The variables that every function of the platform gets.

    Args:
        store: the artifacts.
        registry: the table.
        pools: one per framework.
        max_artifact_bytes: greatest upload, compressed bytes.

    Raises:
        PoolError: there is no pool, or two share a name or framework.
    """
    if not pools:
        raise PoolError("There is no pool", value=list(pools), allowed="at least one pool", fix="Pass a ModelPool")
    for what in ("name", "framework"):
        values = [str(getattr(pool, what)) for pool in pools]
        if len(set(values)) < len(values):
            raise PoolError(f"Two pools share a {what}", value=values, allowed=f"one pool per {what}", fix="Merge them or rename one")
    return {
        variables.TABLE_NAME: registry.table.table_name,
        variables.BUCKET_NAME: store.bucket.bucket_name,
        variables.MODELS_PREFIX: store.models_prefix,
        variables.MAX_ARTIFACT_BYTES: str(max_artifact_bytes),
        variables.POOLS: variables.dump_pools(
            [
                variables.Pool(
                    pool.name, pool.framework, pool.endpoint.endpoint_name, pool.endpoint.variant_name, pool.endpoint.cache_enabled
                )
                for pool in pools
            ]
        ),
    }
