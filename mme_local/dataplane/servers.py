"""Which model server stands in for a container image: by the settings, by what is known of the image, then by its repository."""

from __future__ import annotations

from pathlib import Path

from mme_local.dataplane.interface import DataPlaneSettings, FleetSpec
from mme_local.dataplane.kinds import ServerKind
from mme_local.dataplane.mms import MultiModelServer
from mme_local.dataplane.refusing import RefusingServer
from mme_local.dataplane.simulated import SimulatedServer
from mme_local.dataplane.triton import TritonServer, why_not

__all__ = ["image_repository", "server_for"]

_TRITON = "sagemaker-tritonserver"

_BUILT_IN = {
    "sagemaker-xgboost": MultiModelServer(
        handler=f"{Path(__file__).with_name('handlers') / 'xgboost_handler.py'}:handle",
        refuses_code=True,
    ),
}


def image_repository(image: str) -> str:
    """The repository of an image URI: ``123.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1`` -> ``sagemaker-xgboost``."""
    path = image.partition("@")[0].rpartition("/")[2]
    return path.partition(":")[0]


def server_for(spec: FleetSpec, settings: DataPlaneSettings) -> ServerKind:
    """The server for a fleet; one that refuses every load, and says why, when nothing stands in for the image.

    Args:
        spec: the fleet.
        settings: of the data plane; `DataPlaneSettings.handlers` adds to the built-in servers.
    """
    if spec.refusal is not None:
        return RefusingServer(f"{spec.refusal} (image {spec.image})")
    repository = image_repository(spec.image)
    server = settings.servers.get(repository, settings.servers.get("*"))
    if server == "simulated":
        return SimulatedServer(settings.simulation)
    if server == "triton":
        return _triton(spec, settings)
    if spec.handler is not None:
        return MultiModelServer(spec.handler)
    if repository in settings.handlers:
        return MultiModelServer(settings.handlers[repository])
    if repository == _TRITON and server is None and settings.triton_python is not None:
        return _triton(spec, settings)
    if repository not in _BUILT_IN:
        supported = ", ".join(sorted({*_BUILT_IN, *settings.handlers}))
        return RefusingServer(
            f"the local cloud has no model server for image {spec.image}: it serves images of the repositories {supported} "
            "and Docker assets that name a local handler"
        )
    return _BUILT_IN[repository]


def _triton(spec: FleetSpec, settings: DataPlaneSettings) -> ServerKind:
    reason = why_not(settings.triton_python)
    if reason is not None or settings.triton_python is None:
        return RefusingServer(f"{reason} (image {spec.image})")
    return TritonServer(settings.triton_python)
