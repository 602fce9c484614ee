"""The container that serves an endpoint's models: its image and what the model server in it is told."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from aws_cdk import aws_iam as iam
from constructs import Construct

from mme_constructs.acknowledge import acknowledge_grant
from mme_constructs.container_images import (
    AssetImage,
    FrameworkImageSource,
    ImageLocation,
    ImageSource,
    RepositoryImage,
    UriImage,
)
from mme_constructs.container_labels import ImageCapabilities, read_capabilities
from mme_constructs.errors import ContainerError
from mme_constructs.server_settings import ServerFamily, ServerSettings
from mme_constructs.stack_of import is_token
from mme_facts import dockerfile, images
from mme_facts.images import Processor
from mme_facts.instances import Architecture

if TYPE_CHECKING:
    from aws_cdk import aws_ecr as ecr

__all__ = ["ImageLocation", "MultiModelContainer"]

_PULL = ["ecr:BatchCheckLayerAvailability", "ecr:GetDownloadUrlForLayer", "ecr:BatchGetImage"]
_MAX_VARIABLES = 100
_MAX_VARIABLE_BYTES = 1024
_MAX_ENVIRONMENT_BYTES = 32 * 1024


@dataclass(frozen=True, slots=True)
class MultiModelContainer:
    """An image with what the model server in it is told.

    Make one with `from_framework`, `from_image_uri`, `from_ecr` or `from_asset`. With ``multi_model=False`` each of them makes a container
    of a single model: a step of an inference pipeline before or after the one that serves many.

    Attributes:
        image: finds the image for a stack.
        environment: variables of the container; no secrets, every model that it loads can read them.
        framework: the framework of its models, such as ``xgboost``; None if the image does not tell.
        architecture: of its machine code; the instance type must have the same.
        processor: ``gpu`` if the image is built for GPUs, ``cpu`` if it is not; None if that is not known.
        multi_model: whether it loads models from the prefix on demand; false for the other steps of a pipeline.
        server: what serves the models in it; None if that is not known.
        accepts_bind_to_port: whether the image has the label that an inference pipeline needs; None if that is not known.

    Raises:
        ContainerError: its variables exceed SageMaker's limits, its architecture is none of SageMaker's, or it is to serve many models on a
            GPU without Triton.
    """

    image: ImageSource
    environment: Mapping[str, str] = field(default_factory=dict)
    framework: str | None = None
    architecture: Architecture = "x86_64"
    processor: Processor | None = None
    multi_model: bool = True
    server: ServerFamily | None = None
    accepts_bind_to_port: bool | None = None

    def __post_init__(self) -> None:
        if self.architecture not in get_args(Architecture):
            raise ContainerError(
                "Not an architecture of SageMaker's instances",
                value=self.architecture,
                allowed=" or ".join(get_args(Architecture)),
                fix="Use arm64 for AWS Graviton, x86_64 for all others",
            )
        _check_environment(self.environment)
        if self.multi_model and self.processor == "gpu" and not self.gpu_server:
            raise ContainerError(
                "Only Triton serves multi-model endpoints on GPUs; the GPU images of the frameworks lack the label "
                f"{dockerfile.MULTI_MODEL_LABEL}=true and CreateModel refuses them",
                value=f"{self.framework or 'an image'} for gpu",
                allowed="framework triton, or processor cpu",
                fix="Leave processor out, or serve the models with Triton",
            )

    @property
    def gpu_server(self) -> bool:
        """Whether the server is Triton, the only one for multi-model endpoints on GPUs."""
        return self.server is ServerFamily.TRITON

    @property
    def environment_bytes(self) -> int:
        """Bytes of its variables; a model's containers share 32 KiB (tokens count with the length of their placeholders)."""
        return sum(len(name.encode()) + len(value.encode()) for name, value in self.environment.items())

    @classmethod
    def from_framework(
        cls,
        framework: str,
        *,
        version: str,
        architecture: Architecture = "x86_64",
        processor: Processor | None = None,
        python: str | None = None,
        environment: Mapping[str, str] | None = None,
        settings: ServerSettings | None = None,
        multi_model: bool = True,
    ) -> MultiModelContainer:
        """SageMaker's own image of a framework.

        In a stack with a concrete region the URI is resolved; in an environment-agnostic one it goes through a mapping by region.

        Args:
            framework: ``xgboost``, ``sklearn`` (or ``scikit-learn``), ``pytorch``, ``tensorflow``, ``mxnet``, ``knn``, ``linear-learner``,
                ``randomcutforest`` or ``triton``.
            version: as SageMaker writes it, such as ``1.7-1``; a short form such as ``2.6`` is the newest version that it stands for.
            architecture: of the instances. Default ``x86_64``; ``arm64`` is AWS Graviton.
            processor: ``cpu`` or ``gpu``. Default ``gpu`` for Triton, else ``cpu``.
            python: such as ``py312``, for versions that have several. Default: the newest.
            environment: variables of the container. Default: none.
            settings: of the model server. Default: the image's.
            multi_model: whether it serves many models. Default true.

        Raises:
            ContainerError: framework, version or variant is unknown, cannot serve many models, or (when used) is not published in the
                stack's region.
            ServerSettingError: the framework's server does not read a setting.

        Source: Amazon SageMaker AI, Supported algorithms, frameworks, and instances for multi-model endpoints.
        """
        try:
            image = images.framework_image(framework, version, architecture=architecture, processor=processor, python=python)
        except images.UnknownImageError as error:
            variant = [part for part in (architecture if architecture != "x86_64" else None, processor, python) if part is not None]
            raise ContainerError(
                "SageMaker publishes no such image",
                value=" ".join([framework, version, *variant]),
                allowed=error.allowed,
                fix="Choose a known one",
            ) from error
        server = _server_of(image.framework, image.version)
        return cls(
            FrameworkImageSource(image),
            _merge(environment, settings, server),
            image.framework,
            architecture=image.architecture,
            processor=image.processor,
            multi_model=multi_model,
            server=server,
            accepts_bind_to_port=True,
        )

    @classmethod
    def from_image_uri(
        cls,
        uri: str,
        *,
        repository_arn: str | None = None,
        environment: Mapping[str, str] | None = None,
        framework: str | None = None,
        architecture: Architecture = "x86_64",
        server: ServerFamily | None = None,
        settings: ServerSettings | None = None,
        multi_model: bool = True,
    ) -> MultiModelContainer:
        """Any image in ECR; to serve many models it must carry the label ``com.amazonaws.sagemaker.capabilities.multi-models=true``.

        The label cannot be read from here: CreateModel checks it.

        Args:
            uri: with a tag or digest.
            repository_arn: its repository. Default: taken from the URI.
            environment: variables of the container. Default: none.
            framework: the framework of its models. Default: unknown.
            architecture: of its machine code. Default ``x86_64``.
            server: what serves the models in it. Default: that of SageMaker's image with the repository's name, else unknown.
            settings: of the model server. Default: the image's.
            multi_model: whether it serves many models. Default true.

        Raises:
            ContainerError: the URI is not one of ECR, or it is a token and ``repository_arn`` is missing.
            ServerSettingError: the server does not read a setting, or is not known.
        """
        image = UriImage(uri, repository_arn)
        known = server or _server_of_image(uri)
        return cls(
            image,
            _merge(environment, settings, known),
            framework,
            architecture=architecture,
            multi_model=multi_model,
            server=known,
        )

    @classmethod
    def from_ecr(
        cls,
        repository: ecr.IRepository,
        tag: str,
        *,
        environment: Mapping[str, str] | None = None,
        framework: str | None = None,
        architecture: Architecture = "x86_64",
        server: ServerFamily | None = None,
        settings: ServerSettings | None = None,
        multi_model: bool = True,
    ) -> MultiModelContainer:
        """An image of an ECR repository that the app owns or imports.

        To serve many models it must carry the label ``com.amazonaws.sagemaker.capabilities.multi-models=true``, which CreateModel checks.

        Args:
            repository: in the endpoint's region.
            tag: image tag, or ``sha256:...``; a tag that moves does not change the endpoint.
            environment: variables of the container. Default: none.
            framework: the framework of its models. Default: unknown.
            architecture: of its machine code. Default ``x86_64``.
            server: what serves the models in it. Default: unknown.
            settings: of the model server. Default: the image's.
            multi_model: whether it serves many models. Default true.

        Raises:
            ContainerError: the tag is empty, or (when used) the repository is in another region.
            ServerSettingError: the server does not read a setting, or is not known.
        """
        return cls(
            RepositoryImage(repository, tag),
            _merge(environment, settings, server),
            framework,
            architecture=architecture,
            multi_model=multi_model,
            server=server,
        )

    @classmethod
    def from_asset(
        cls,
        directory: str | Path,
        *,
        file: str = "Dockerfile",
        target: str | None = None,
        build_args: Mapping[str, str] | None = None,
        exclude: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        framework: str | None = None,
        architecture: Architecture = "x86_64",
        server: ServerFamily | None = None,
        settings: ServerSettings | None = None,
        multi_model: bool = True,
    ) -> MultiModelContainer:
        """An image that ``cdk deploy`` builds and pushes.

        The Dockerfile is read: its last stage, or ``target``, must set the label ``com.amazonaws.sagemaker.capabilities.multi-models=true``
        or start from one of SageMaker's multi-model images, and for a pipeline likewise ``...accept-bind-to-port=true``.

        Args:
            directory: the build context.
            file: the Dockerfile in it. Default ``Dockerfile``.
            target: stage to build. Default: the last one.
            build_args: arguments of the build. Default: none.
            exclude: patterns of files that are not sent to the build. Default: none.
            environment: variables of the container. Default: none.
            framework: the framework of its models. Default: unknown.
            architecture: the image is built for it. Default ``x86_64``.
            server: what serves the models in it. Default: that of the SageMaker image that it starts from, else unknown.
            settings: of the model server. Default: the image's.
            multi_model: whether it serves many models. Default true.

        Raises:
            ContainerError: there is no such Dockerfile, it cannot be read, or its image lacks the label.
            ServerSettingError: the server does not read a setting, or is not known.

        Source: Amazon SageMaker AI, Build your own container for SageMaker AI multi-model endpoints.
        """
        capabilities = read_capabilities(Path(directory) / file, target=target, build_args=build_args)
        if multi_model:
            _check_multi_model_label(capabilities)
        known = server or _server_of_image(capabilities.base)
        return cls(
            AssetImage(str(directory), file, target, tuple((build_args or {}).items()), tuple(exclude), architecture),
            _merge(environment, settings, known),
            framework,
            architecture=architecture,
            multi_model=multi_model,
            server=known,
            accepts_bind_to_port=capabilities.accepts_bind_to_port,
        )

    def check_in_pipeline(self) -> None:
        """Raise `ContainerError` if the image is known to lack the label that an inference pipeline needs."""
        if self.accepts_bind_to_port is False:
            raise ContainerError(
                f"CreateModel refuses a pipeline whose images lack the label {dockerfile.BIND_TO_PORT_LABEL}=true",
                value="an image without it",
                allowed="images that listen on the port in SAGEMAKER_BIND_TO_PORT and say so with the label",
                fix=f"Add LABEL {dockerfile.BIND_TO_PORT_LABEL}=true to the last stage of its Dockerfile",
            )

    def locate(self, scope: Construct) -> ImageLocation:
        """The image as ``scope``'s stack refers to it; raises `ContainerError`."""
        return self.image.locate(scope)

    def grant_pull(self, scope: Construct, grantee: iam.IGrantable) -> iam.Grant:
        """Let ``grantee`` pull from the image's repository, and from no other."""
        acknowledge_grant(grantee, {"*": "ecr:GetAuthorizationToken has no resource (Service Authorization Reference: Amazon ECR)."})
        iam.Grant.add_to_principal(grantee=grantee, actions=["ecr:GetAuthorizationToken"], resource_arns=["*"])
        return iam.Grant.add_to_principal(grantee=grantee, actions=_PULL, resource_arns=[self.locate(scope).repository_arn])


_FAMILIES: Mapping[str, ServerFamily] = {
    "xgboost": ServerFamily.XGBOOST_SKLEARN,
    "sklearn": ServerFamily.XGBOOST_SKLEARN,
    "pytorch": ServerFamily.TORCHSERVE,
    "tensorflow": ServerFamily.TENSORFLOW_SERVING,
    "mxnet": ServerFamily.INFERENCE_TOOLKIT,
    "knn": ServerFamily.ALGORITHM,
    "linear-learner": ServerFamily.ALGORITHM,
    "randomcutforest": ServerFamily.ALGORITHM,
    "triton": ServerFamily.TRITON,
}


def _server_of(framework: str, version: str) -> ServerFamily:
    numbers = [int(number) for number in re.findall(r"\d+", version)[:2]]
    if framework == "pytorch" and numbers and numbers < [1, 6]:
        return ServerFamily.INFERENCE_TOOLKIT
    return _FAMILIES[framework]


def _server_of_image(image: str) -> ServerFamily | None:
    """The server of an image whose repository is named as one of SageMaker's; names as common as ``knn`` do not count."""
    name, _, tag = image.partition("@")[0].rpartition("/")[2].partition(":")
    for framework, repository in images.repositories():
        if name == repository != framework:
            return _server_of(framework, tag)
    return None


def _check_multi_model_label(capabilities: ImageCapabilities) -> None:
    if not capabilities.multi_model:
        raise ContainerError(
            f"CreateModel refuses a multi-model container whose image lacks the label {dockerfile.MULTI_MODEL_LABEL}=true",
            value=f"{capabilities.source}, FROM {capabilities.base}",
            allowed="the label in the last stage, or a SageMaker multi-model image as its base",
            fix=f"Add LABEL {dockerfile.MULTI_MODEL_LABEL}=true to the last stage",
        )


def _merge(environment: Mapping[str, str] | None, settings: ServerSettings | None, server: ServerFamily | None) -> dict[str, str]:
    rendered = {} if settings is None else settings.environment(server)
    for name, value in (environment or {}).items():
        if rendered.get(name, value) != value:
            raise ContainerError(
                f"The variable {name} is set twice",
                value=f"{value} in environment, {rendered[name]} by settings",
                allowed="one of both",
                fix="Remove it from environment",
            )
    return {**(environment or {}), **rendered}


def _check_environment(environment: Mapping[str, str]) -> None:
    # Amazon SageMaker AI API reference, ContainerDefinition: 100 entries, key and value 1,024 bytes each, 32 KB in a model.
    if len(environment) > _MAX_VARIABLES:
        raise ContainerError(
            "The container has too many variables", value=len(environment), allowed=f"at most {_MAX_VARIABLES}", fix="Remove some"
        )
    total = 0
    for name, value in environment.items():
        unresolved = is_token(value)
        sizes = len(name.encode()), 0 if unresolved else len(value.encode())
        total += sum(sizes)
        if max(sizes) > _MAX_VARIABLE_BYTES:
            raise ContainerError(
                "A variable of the container is too long",
                value=f"{name}={value}"[:80],
                allowed=f"{_MAX_VARIABLE_BYTES:,} bytes for name and value each",
                fix="Shorten it",
            )
    if total > _MAX_ENVIRONMENT_BYTES:
        raise ContainerError(
            "The container's variables are too long together",
            value=f"{total:,} bytes",
            allowed=f"{_MAX_ENVIRONMENT_BYTES:,} bytes of names and values",
            fix="Remove some",
        )
