"""Serial inference pipelines: containers that a request passes one after another, one of them with many models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mme_constructs.errors import PipelineError

if TYPE_CHECKING:
    from mme_constructs.container import MultiModelContainer

__all__ = ["InferencePipeline", "PipelineStep"]

_MAX_ENVIRONMENT_BYTES = 32 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineStep:
    """One container of a pipeline.

    Attributes:
        container: the image; ``multi_model`` tells whether it serves every artifact below the prefix or just one.
        artifact_key: S3 key of the one artifact of a single-model container, in the store's bucket. Default: the image holds its model.

    Raises:
        PipelineError: a multi-model container with one artifact, or an artifact that is no ``.tar.gz``.
    """

    container: MultiModelContainer
    artifact_key: str | None = None

    def __post_init__(self) -> None:
        if self.artifact_key is None:
            return
        if self.container.multi_model:
            raise PipelineError(
                "A multi-model container serves a prefix, not one artifact",
                value=self.artifact_key,
                allowed="artifact_key for single-model containers",
                fix="Leave artifact_key out",
            )
        if not self.artifact_key.endswith(".tar.gz") or self.artifact_key.startswith("/"):
            raise PipelineError(
                "A pipeline's artifact is no archive",
                value=self.artifact_key,
                allowed="the key of a .tar.gz in the store's bucket",
                fix="Pack it with tar and gzip",
            )


@dataclass(frozen=True, slots=True)
class InferencePipeline:
    """Two to fifteen containers in a row, exactly one of them in multi-model mode. Pass it as the endpoint's ``container``.

    Each image needs the label ``com.amazonaws.sagemaker.capabilities.accept-bind-to-port=true``, because the containers of an instance
    share its ports.

    Attributes:
        steps: in the order in which a request passes them.

    Raises:
        PipelineError: the number of containers, or of multi-model ones, is refused, or their variables exceed 32 KiB together.
        ContainerError: an image is known to lack the label.

    Sources: Amazon SageMaker AI, Inference pipelines; API reference: CreateModel (Containers).
    """

    steps: Sequence[PipelineStep]

    def __post_init__(self) -> None:
        if not 2 <= len(self.steps) <= 15:
            raise PipelineError(
                "The pipeline's length is not allowed",
                value=f"{len(self.steps)} containers",
                allowed="2 to 15 containers",
                fix="Merge steps, or pass a single container to the endpoint",
            )
        several = sum(step.container.multi_model for step in self.steps)
        if several != 1:
            raise PipelineError(
                "CreateModel takes a pipeline of a multi-model endpoint with one multi-model container only",
                value=f"{several} multi-model containers",
                allowed="exactly one",
                fix="Mark the others as single-model containers",
            )
        for step in self.steps:
            step.container.check_in_pipeline()
        used = sum(step.container.environment_bytes for step in self.steps)
        if used > _MAX_ENVIRONMENT_BYTES:
            raise PipelineError(
                "The containers' variables are too large together",
                value=f"{used} bytes",
                allowed=f"{_MAX_ENVIRONMENT_BYTES:,} bytes in all containers of a model",
                fix="Shorten or remove some",
            )
