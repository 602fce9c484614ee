"""What an image that is built from a Dockerfile declares to SageMaker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mme_constructs.errors import ContainerError
from mme_facts import images
from mme_facts.dockerfile import BIND_TO_PORT_LABEL, MULTI_MODEL_LABEL, DockerfileError, DockerfileImage, read_dockerfile

__all__ = ["ImageCapabilities", "read_capabilities"]


@dataclass(frozen=True, slots=True)
class ImageCapabilities:
    """What an image declares with labels, its own or those of the SageMaker image that it starts from.

    Attributes:
        source: the Dockerfile's name.
        base: the image that it starts from.
        multi_model: whether it serves many models.
        accepts_bind_to_port: whether it can be a step of an inference pipeline.
    """

    source: str
    base: str
    multi_model: bool
    accepts_bind_to_port: bool


def read_capabilities(path: Path, *, target: str | None = None, build_args: Mapping[str, str] | None = None) -> ImageCapabilities:
    """Read a Dockerfile.

    Args:
        path: the Dockerfile.
        target: stage that is built. Default: the last one.
        build_args: arguments of the build. Default: none.

    Raises:
        ContainerError: it does not exist or cannot be read.
    """
    try:
        image = read_dockerfile(path.read_text("utf-8"), arguments=build_args, target=target)
    except OSError as error:
        raise ContainerError(
            "There is no Dockerfile",
            value=str(path),
            allowed="a folder with a Dockerfile",
            fix="Pass the folder that holds it, or its name as file",
        ) from error
    except (DockerfileError, UnicodeDecodeError) as error:
        raise ContainerError(
            f"The Dockerfile cannot be read: {error}", value=str(path), allowed="what `docker build` takes", fix="Mend it"
        ) from error
    inherited = images.is_multi_model_image(image.base)
    return ImageCapabilities(
        source=path.name,
        base=image.base,
        multi_model=_declares(image, MULTI_MODEL_LABEL, inherited=inherited),
        accepts_bind_to_port=_declares(image, BIND_TO_PORT_LABEL, inherited=inherited),
    )


def _declares(image: DockerfileImage, label: str, *, inherited: bool) -> bool:
    return image.labels[label] == "true" if label in image.labels else inherited
