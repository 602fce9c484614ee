"""Which model server stands in for a container image: chosen by the image's repository."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mme_local.dataplane.interface import StartFailed

__all__ = ["ServerKind", "image_repository", "server_for_image"]


@dataclass(frozen=True, slots=True)
class ServerKind:
    """A model server with its handler.

    Attributes:
        handler: absolute ``file.py:function`` of a function-style handler of multi-model-server.
        refuses_code: artifacts with code or a manifest (`mme_facts.artifacts.carries_code`) are refused.
    """

    handler: str
    refuses_code: bool = False


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


def server_for_image(image: str, handlers: Mapping[str, str]) -> ServerKind:
    """The server for an image URI.

    Args:
        image: the image URI.
        handlers: further repositories, see `DataPlaneSettings.handlers`.

    Raises:
        StartFailed: no server stands in for the repository; the text names those that have one.
    """
    repository = image_repository(image)
    if repository in handlers:
        return ServerKind(handlers[repository])
    if repository not in _BUILT_IN:
        supported = ", ".join(sorted({*_BUILT_IN, *handlers}))
        raise StartFailed(f"the local cloud has no model server for image {image!r}: use an image of a repository among {supported}")
    return _BUILT_IN[repository]
