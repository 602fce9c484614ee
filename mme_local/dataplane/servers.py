"""Which model server stands in for a container image: chosen by the image's repository."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mme_local.dataplane.interface import StartFailed

__all__ = ["ServerKind", "image_repository", "server_for_image"]

_PYTHON_CODE = (".py", ".pyc", ".pyd", ".so", ".pth", ".dylib", ".egg")


@dataclass(frozen=True, slots=True)
class ServerKind:
    """A model server with its handler.

    Attributes:
        handler: absolute ``file.py:function`` of a function-style handler of multi-model-server.
        refused_suffixes: artifacts with such members are refused. multi-model-server puts the artifact's folder before
            the installed packages on the worker's import path, so a member ``numpy.py`` would be run instead of numpy.
        refused_roots: artifacts with such members at their root are refused: a manifest replaces our handler.
    """

    handler: str
    refused_suffixes: tuple[str, ...] = ()
    refused_roots: tuple[str, ...] = ()


_BUILT_IN = {
    "sagemaker-xgboost": ServerKind(
        handler=f"{Path(__file__).with_name('handlers') / 'xgboost_handler.py'}:handle",
        refused_suffixes=_PYTHON_CODE,
        refused_roots=("MAR-INF", "MANIFEST.json"),
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
