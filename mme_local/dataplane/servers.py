"""Which model server stands in for a container image: chosen by what is known of the image, then by its repository."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mme_local.dataplane.interface import FleetSpec

__all__ = ["ServerKind", "image_repository", "server_for"]


@dataclass(frozen=True, slots=True)
class ServerKind:
    """A model server with its handler.

    Attributes:
        handler: absolute ``file.py:function`` of a function-style handler of multi-model-server.
        refuses_code: artifacts with code or a manifest (`mme_facts.artifacts.carries_code`) are refused.
        refusal: instead of a handler: why every load is refused (`mme_local.dataplane.refusing_server`).
    """

    handler: str = ""
    refuses_code: bool = False
    refusal: str | None = None


_BUILT_IN = {
    "sagemaker-xgboost": ServerKind(
        handler=f"{Path(__file__).with_name('handlers') / 'xgboost_handler.py'}:handle",
        refuses_code=True,
    ),
}


def image_repository(image: str) -> str:
    """The repository of an image URI: ``123.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1`` -> ``sagemaker-xgboost``."""
    path = image.partition("@")[0].rpartition("/")[2]
    return path.partition(":")[0]


def server_for(spec: FleetSpec, handlers: Mapping[str, str]) -> ServerKind:
    """The server for a fleet; one that refuses every load, and says why, when nothing stands in for the image.

    Args:
        spec: the fleet.
        handlers: further repositories, see `DataPlaneSettings.handlers`.
    """
    repository = image_repository(spec.image)
    refusal = spec.refusal
    if not spec.cache_enabled:
        refusal = "the local cloud does not serve ModelCacheSetting Disabled: use Enabled"
    if refusal is not None:
        return ServerKind(refusal=f"{refusal} (image {spec.image})")
    if spec.handler is not None:
        return ServerKind(spec.handler)
    if repository in handlers:
        return ServerKind(handlers[repository])
    if repository not in _BUILT_IN:
        supported = ", ".join(sorted({*_BUILT_IN, *handlers}))
        return ServerKind(
            refusal=f"the local cloud has no model server for image {spec.image}: it serves images of the repositories {supported} "
            "and Docker assets that name a local handler"
        )
    return _BUILT_IN[repository]
