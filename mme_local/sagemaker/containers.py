"""What the containers of models and inference components must be, and the fleets that serve them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from mme_facts.dockerfile import BIND_TO_PORT_LABEL, MULTI_MODEL_LABEL
from mme_local.dataplane.interface import FleetSpec
from mme_local.images import Image
from mme_local.sagemaker.resources import Model
from mme_local.wire import ValidationError

__all__ = ["check_container", "check_labels", "component_fleet", "model_fleet"]

_S3_URL = re.compile(r"s3://([^/]+)/?(.*)")
_ARCHIVES = (".tar.gz", ".tgz")
_PIPELINE = "serial inference pipelines are not served by the local cloud: their endpoints only deploy"
_NO_IMAGE = "model packages are not served by the local cloud: their endpoints only deploy"
_FOLDER = "uncompressed model data are not served by the local cloud: give one .tar.gz"

FindImage = Callable[[str], Image | None]


def check_container(container: Mapping[str, Any]) -> None:
    """The rules for a container of CreateModel; raises `ValidationError`."""
    if "ModelPackageName" not in container and "Image" not in container:
        raise ValidationError("A container needs Image or ModelPackageName.")
    if container.get("Mode") != "MultiModel":
        return
    if "Image" not in container:
        raise ValidationError("Model packages are not supported with multi-model containers: give Image.")
    if "ModelDataSource" in container:
        raise ValidationError("ModelDataSource is not supported with multi-model containers: use ModelDataUrl.")
    url = container.get("ModelDataUrl")
    if url is None:
        raise ValidationError("ModelDataUrl is required for a container in MultiModel mode.")
    if _S3_URL.fullmatch(url) is None or url.endswith(_ARCHIVES):
        raise ValidationError(f"ModelDataUrl {url} must be an S3 prefix such as s3://bucket/models/ for a container in MultiModel mode.")


def check_labels(container: Mapping[str, Any], image: FindImage, *, in_pipeline: bool) -> None:
    """The labels that CreateModel reads from an image; only those of images that were pushed here are known. Raises `ValidationError`."""
    known = image(container.get("Image", ""))
    needed = [MULTI_MODEL_LABEL] if container.get("Mode") == "MultiModel" else []
    needed += [BIND_TO_PORT_LABEL] if in_pipeline else []
    missing = [label for label in needed if known is not None and known.labels.get(label, "").lower() != "true"]
    if missing:
        raise ValidationError(f"Your Ecr Image {container['Image']} does not contain required {', '.join(missing)}=true Docker label(s).")


def model_fleet(name: str, variant: str, count: int, model: Model, image: FindImage) -> FleetSpec:
    """The fleet that serves a model on a variant.

    Args:
        name: of the fleet.
        variant: of the endpoint.
        count: number of instances.
        model: its one container, or that of a pipeline in MultiModel mode, is what is served.
        image: finds pushed images.

    Raises:
        ValidationError: nothing can serve it.
    """
    refusal = _PIPELINE if len(model.containers) > 1 else None
    if (container := model.multi_model_container) is None:
        return _single(name, variant, count, model.containers[0], image, refusal=refusal)
    bucket, prefix = _location(container["ModelDataUrl"])
    found = image(container["Image"])
    return FleetSpec(
        endpoint_name=name,
        variant_name=variant,
        instance_count=count,
        image=container["Image"],
        bucket=bucket,
        models_prefix=prefix if prefix.endswith("/") or not prefix else f"{prefix}/",
        cache_enabled=container.get("MultiModelConfig", {}).get("ModelCacheSetting") != "Disabled",
        environment=container.get("Environment", {}),
        handler=found.handler if found is not None else None,
        refusal=refusal,
    )


def component_fleet(
    name: str, variant: str, copies: int, specification: Mapping[str, Any], model: Callable[[str], Model], image: FindImage
) -> tuple[FleetSpec, str | None]:
    """The fleet of an inference component's copies, and the execution role of its model if that has one.

    Args:
        name: of the fleet.
        variant: of the endpoint.
        copies: number of copies.
        specification: of the component.
        model: finds models.
        image: finds pushed images.

    Raises:
        ValidationError: nothing can serve it.
    """
    memory_bytes = specification["ComputeResourceRequirements"]["MinMemoryRequiredInMb"] << 20
    if "ModelName" in specification:
        used = model(specification["ModelName"])
        refusal = _PIPELINE if len(used.containers) > 1 else None
        return _single(name, variant, copies, used.containers[0], image, refusal=refusal, memory_bytes=memory_bytes), used.role_arn
    given = specification["Container"]
    container = {"Image": given["Image"], "Environment": given.get("Environment", {})}
    if "ArtifactUrl" in given:
        container["ModelDataUrl"] = given["ArtifactUrl"]
    return _single(name, variant, copies, container, image, memory_bytes=memory_bytes), None


def _single(
    name: str,
    variant: str,
    count: int,
    container: Mapping[str, Any],
    image: FindImage,
    *,
    refusal: str | None = None,
    memory_bytes: int | None = None,
) -> FleetSpec:
    """A fleet whose instances serve one model."""
    source = container.get("ModelDataSource", {}).get("S3DataSource", {})
    url = container.get("ModelDataUrl") or source.get("S3Uri")
    if "Image" not in container:
        refusal = refusal or _NO_IMAGE
    if url is not None and not url.endswith(_ARCHIVES):
        refusal = refusal or _FOLDER
    bucket, key = _location(url) if url is not None else ("", "")
    found = image(container.get("Image", ""))
    return FleetSpec(
        endpoint_name=name,
        variant_name=variant,
        instance_count=count,
        image=container.get("Image", ""),
        bucket=bucket,
        models_prefix="",
        environment=container.get("Environment", {}),
        handler=found.handler if found is not None else None,
        refusal=refusal,
        model_key=key,
        memory_bytes=memory_bytes,
    )


def _location(url: str) -> tuple[str, str]:
    if (location := _S3_URL.fullmatch(url)) is None:
        raise ValidationError(f"The model data at {url} cannot be read here: give an S3 URL such as s3://bucket/model.tar.gz.")
    return location[1], location[2]
