"""Guard rails of containers, their servers' settings, and the instance types that they run on."""

from __future__ import annotations

from pathlib import Path

import aws_cdk as cdk

from mme_constructs import (
    InferencePipeline,
    ModelArtifactStore,
    MultiModelContainer,
    MultiModelEndpoint,
    PipelineStep,
    ServerSettings,
)
from mme_constructs.errors import CompatibilityError, ContainerError, ServerSettingError
from tests.constructs.guard_rails.rail import GuardRail

IMAGES = Path(__file__).parent / "images"


def _unlabelled(stack: cdk.Stack) -> None:
    container = MultiModelContainer.from_asset(IMAGES / "unlabelled")
    MultiModelEndpoint(stack, "Endpoint", store=ModelArtifactStore(stack, "Store"), container=container)


def _labelled(stack: cdk.Stack) -> None:
    # FROM python:3.13-slim
    # LABEL com.amazonaws.sagemaker.capabilities.multi-models=true
    container = MultiModelContainer.from_asset(IMAGES / "labelled")
    MultiModelEndpoint(stack, "Endpoint", store=ModelArtifactStore(stack, "Store"), container=container)


def _gpu_image(stack: cdk.Stack) -> None:
    MultiModelContainer.from_framework("pytorch", version="2.6.0", processor="gpu")


def _cpu_image(stack: cdk.Stack) -> None:
    container = MultiModelContainer.from_framework("pytorch", version="2.6.0")
    MultiModelEndpoint(stack, "Endpoint", store=ModelArtifactStore(stack, "Store"), container=container)


def _gpu_without_triton(stack: cdk.Stack) -> None:
    container = MultiModelContainer.from_framework("xgboost", version="1.7-1")
    MultiModelEndpoint(stack, "Endpoint", store=ModelArtifactStore(stack, "Store"), container=container, instance_type="ml.g5.xlarge")


def _gpu_with_triton(stack: cdk.Stack) -> None:
    container = MultiModelContainer.from_framework("triton", version="26.05")
    MultiModelEndpoint(stack, "Endpoint", store=ModelArtifactStore(stack, "Store"), container=container, instance_type="ml.g5.xlarge")


def _several_gpus(stack: cdk.Stack) -> None:
    container = MultiModelContainer.from_framework("triton", version="26.05")
    MultiModelEndpoint(stack, "Endpoint", store=ModelArtifactStore(stack, "Store"), container=container, instance_type="ml.g5.12xlarge")


def _more_instances_of_one_gpu(stack: cdk.Stack) -> None:
    container = MultiModelContainer.from_framework("triton", version="26.05")
    MultiModelEndpoint(
        stack, "Endpoint", store=ModelArtifactStore(stack, "Store"), container=container, instance_type="ml.g5.4xlarge", min_instances=4
    )


def _undocumented_gpu(stack: cdk.Stack) -> None:
    container = MultiModelContainer.from_framework("triton", version="26.05")
    MultiModelEndpoint(stack, "Endpoint", store=ModelArtifactStore(stack, "Store"), container=container, instance_type="ml.g6.xlarge")


def _documented_gpu(stack: cdk.Stack) -> None:
    container = MultiModelContainer.from_framework("triton", version="26.05")
    MultiModelEndpoint(stack, "Endpoint", store=ModelArtifactStore(stack, "Store"), container=container, instance_type="ml.g5.xlarge")


def _gpu_image_on_cpu(stack: cdk.Stack) -> None:
    container = MultiModelContainer.from_framework("triton", version="26.05")
    MultiModelEndpoint(stack, "Endpoint", store=ModelArtifactStore(stack, "Store"), container=container, instance_type="ml.m5.xlarge")


def _cpu_image_on_cpu(stack: cdk.Stack) -> None:
    container = MultiModelContainer.from_framework("triton", version="26.05", processor="cpu")
    MultiModelEndpoint(stack, "Endpoint", store=ModelArtifactStore(stack, "Store"), container=container, instance_type="ml.m5.xlarge")


def _other_architecture(stack: cdk.Stack) -> None:
    container = MultiModelContainer.from_framework("xgboost", version="1.5-1")
    MultiModelEndpoint(stack, "Endpoint", store=ModelArtifactStore(stack, "Store"), container=container, instance_type="ml.c7g.xlarge")


def _same_architecture(stack: cdk.Stack) -> None:
    container = MultiModelContainer.from_framework("xgboost", version="1.5-1", architecture="arm64")
    MultiModelEndpoint(stack, "Endpoint", store=ModelArtifactStore(stack, "Store"), container=container, instance_type="ml.c7g.xlarge")


def _accelerator(stack: cdk.Stack) -> None:
    container = MultiModelContainer.from_framework("pytorch", version="2.6.0")
    MultiModelEndpoint(stack, "Endpoint", store=ModelArtifactStore(stack, "Store"), container=container, instance_type="ml.inf2.xlarge")


def _no_accelerator(stack: cdk.Stack) -> None:
    container = MultiModelContainer.from_framework("pytorch", version="2.6.0")
    MultiModelEndpoint(stack, "Endpoint", store=ModelArtifactStore(stack, "Store"), container=container, instance_type="ml.c6i.xlarge")


def _unread_setting(stack: cdk.Stack) -> None:
    settings = ServerSettings(response_timeout_seconds=30)
    MultiModelContainer.from_framework("xgboost", version="1.7-1", settings=settings)


def _read_setting(stack: cdk.Stack) -> None:
    settings = ServerSettings(job_queue_size=20)
    container = MultiModelContainer.from_framework("xgboost", version="1.7-1", settings=settings)
    MultiModelEndpoint(stack, "Endpoint", store=ModelArtifactStore(stack, "Store"), container=container)


def _unknown_version(stack: cdk.Stack) -> None:
    MultiModelContainer.from_framework("scikit-learn", version="1.3-1")


def _known_version(stack: cdk.Stack) -> None:
    container = MultiModelContainer.from_framework("scikit-learn", version="1.2-1")
    MultiModelEndpoint(stack, "Endpoint", store=ModelArtifactStore(stack, "Store"), container=container)


def _other_region(stack: cdk.Stack) -> None:
    # The stack is in eu-central-1.
    container = MultiModelContainer.from_image_uri("444455556666.dkr.ecr.us-east-1.amazonaws.com/server:v1")
    MultiModelEndpoint(stack, "Endpoint", store=ModelArtifactStore(stack, "Store"), container=container)


def _same_region(stack: cdk.Stack) -> None:
    container = MultiModelContainer.from_image_uri("444455556666.dkr.ecr.eu-central-1.amazonaws.com/server:v1")
    MultiModelEndpoint(stack, "Endpoint", store=ModelArtifactStore(stack, "Store"), container=container)


def _long_variable(stack: cdk.Stack) -> None:
    MultiModelContainer.from_framework("xgboost", version="1.7-1", environment={"ALLOWED": "x" * 1025})


def _short_variable(stack: cdk.Stack) -> None:
    container = MultiModelContainer.from_framework("xgboost", version="1.7-1", environment={"ALLOWED": "x" * 1024})
    MultiModelEndpoint(stack, "Endpoint", store=ModelArtifactStore(stack, "Store"), container=container)


def _fixed_port(stack: cdk.Stack) -> None:
    scale = MultiModelContainer.from_asset(IMAGES / "unlabelled", multi_model=False)
    predict = MultiModelContainer.from_framework("xgboost", version="1.7-1")
    InferencePipeline([PipelineStep(container=scale), PipelineStep(container=predict)])


def _given_port(stack: cdk.Stack) -> None:
    scale = MultiModelContainer.from_framework("scikit-learn", version="1.2-1", multi_model=False)
    predict = MultiModelContainer.from_framework("xgboost", version="1.7-1")
    pipeline = InferencePipeline([PipelineStep(container=scale, artifact_key="steps/scale.tar.gz"), PipelineStep(container=predict)])
    MultiModelEndpoint(stack, "Endpoint", store=ModelArtifactStore(stack, "Store"), container=pipeline)


RAILS = (
    GuardRail(
        "An image without the multi-model label",
        "CreateModel reads the image's labels and refuses multi-model mode without this one (Amazon SageMaker AI, Build your own container "
        "for SageMaker AI multi-model endpoints).",
        _unlabelled,
        _labelled,
        ContainerError,
    ),
    GuardRail(
        "A framework's GPU image for many models",
        "Only the CPU images of PyTorch, TensorFlow and MXNet have the multi-model label: CreateModel refuses the others "
        "(aws/deep-learning-containers, issue 2131).",
        _gpu_image,
        _cpu_image,
        ContainerError,
    ),
    GuardRail(
        "GPU without Triton",
        "On GPUs only NVIDIA Triton serves multi-model endpoints (Amazon SageMaker AI, Supported algorithms, frameworks, and instances for "
        "multi-model endpoints).",
        _gpu_without_triton,
        _gpu_with_triton,
        CompatibilityError,
    ),
    GuardRail(
        "An instance type with several GPUs",
        "Multi-model endpoints use single-GPU types only (Amazon SageMaker AI, Supported algorithms, frameworks, and instances for "
        "multi-model endpoints).",
        _several_gpus,
        _more_instances_of_one_gpu,
        CompatibilityError,
    ),
    GuardRail(
        "A GPU type that is not documented for multi-model endpoints",
        "AWS lists p2, p3, g4dn and g5 types; who knows that a newer single-GPU type works passes `allow_undocumented_gpu=True` and gets a "
        "warning instead (Amazon SageMaker AI, Supported algorithms, frameworks, and instances for multi-model endpoints).",
        _undocumented_gpu,
        _documented_gpu,
        CompatibilityError,
    ),
    GuardRail(
        "Triton's GPU image on a CPU type",
        "Models that ask for a GPU would not load; AWS publishes a CPU image of Triton too (SageMaker Python SDK, image URIs).",
        _gpu_image_on_cpu,
        _cpu_image_on_cpu,
        CompatibilityError,
    ),
    GuardRail(
        "An image for another architecture",
        "The container would not start: machine code for x86-64 does not run on AWS Graviton, nor the reverse (Docker documentation, "
        "Multi-platform builds).",
        _other_architecture,
        _same_architecture,
        CompatibilityError,
    ),
    GuardRail(
        "An accelerator that is no GPU",
        "Multi-model endpoints do not support AWS Inferentia or Trainium (Amazon SageMaker AI, Model deployment feature matrix).",
        _accelerator,
        _no_accelerator,
        CompatibilityError,
    ),
    GuardRail(
        "A setting that the server does not read",
        "SageMaker's XGBoost image has no variable for the response timeout: the setting would be ignored silently "
        "(aws/sagemaker-xgboost-container, serving_mms.py).",
        _unread_setting,
        _read_setting,
        ServerSettingError,
    ),
    GuardRail(
        "An unknown version of a framework",
        "The endpoint would fail after minutes because there is no such image (SageMaker Python SDK, image URIs).",
        _unknown_version,
        _known_version,
        ContainerError,
    ),
    GuardRail(
        "An image in another region",
        "SageMaker pulls images from ECR in the endpoint's region only (API reference: ContainerDefinition).",
        _other_region,
        _same_region,
        ContainerError,
    ),
    GuardRail(
        "A variable beyond SageMaker's limits",
        "CreateModel takes at most 100 variables, 1,024 bytes for each name and value, 32 KB together (API reference: CreateModel).",
        _long_variable,
        _short_variable,
        ContainerError,
    ),
    GuardRail(
        "A pipeline with an image that does not take its port",
        "The containers of a pipeline share an instance: each must listen where SageMaker tells it and say so with a label (Amazon "
        "SageMaker AI, Run real-time predictions with an inference pipeline).",
        _fixed_port,
        _given_port,
        ContainerError,
    ),
)
