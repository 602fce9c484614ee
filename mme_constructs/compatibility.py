"""Which container serves on which instance type: rules without constructs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mme_constructs.errors import CompatibilityError
from mme_constructs.stack_of import is_token
from mme_facts import instances

if TYPE_CHECKING:
    from mme_constructs.container import MultiModelContainer

__all__ = ["Caution", "check_container_on_instance"]

_SINGLE_GPU = "Use one of them, or spread the models over more instances of a single-GPU type"


class Caution(NamedTuple):
    """Something that may fail, for a warning of CDK.

    Attributes:
        id: stable name, to acknowledge the warning with.
        text: what may fail and why.
    """

    id: str
    text: str


def check_container_on_instance(
    container: MultiModelContainer, instance_type: str, *, allow_undocumented_gpu: bool = False
) -> tuple[Caution, ...]:
    """Refuse a container on an instance type that cannot run it.

    Triton is allowed on CPU types with its CPU image: any server that meets the container contract may serve many models on CPUs, and AWS
    publishes that image. Its GPU image is refused there, because models that ask for a GPU would not load.

    Args:
        container: in multi-model mode, or a single-model step of a pipeline.
        instance_type: such as ``ml.m5.xlarge``; a token is not checked.
        allow_undocumented_gpu: whether single-GPU types that AWS does not document for multi-model endpoints (``g6``, ``g6e``, ``g7``,
            ``g7e``, ``p5.4xlarge``) give a caution instead of an error.

    Returns:
        What may fail: an undocumented GPU type, or a type that the catalogue does not know.

    Raises:
        CompatibilityError: the type is malformed, has another architecture, several GPUs, an accelerator that is no GPU, or a GPU that
            the container cannot use.

    Sources: Amazon SageMaker AI, Supported algorithms, frameworks, and instances for multi-model endpoints (GPU: Triton, single-GPU types);
    Build your own container for SageMaker AI multi-model endpoints.
    """
    if is_token(instance_type):
        return ()
    found = _find(instance_type)
    if found is None:
        text = f"The catalogue does not know {instance_type}: whether the container runs on it is not checked."
        return (Caution("mme-constructs:instance-type-not-in-catalogue", text),)
    _check_architecture(container, found)
    if found.other_accelerators:
        raise CompatibilityError(
            "Multi-model endpoints do not use AWS Inferentia, AWS Trainium or Gaudi",
            value=instance_type,
            allowed="CPU types and single-GPU types",
            fix="Choose a CPU type such as ml.m5.xlarge",
        )
    if found.gpus == 0:
        _check_on_cpu(container, found)
        return ()
    return _check_on_gpu(container, found, allow_undocumented_gpu=allow_undocumented_gpu)


def _find(instance_type: str) -> instances.InstanceType | None:
    try:
        instances.family(instance_type)
    except instances.InstanceTypeError as error:
        raise CompatibilityError(
            "Not an instance type", value=instance_type, allowed="ml.<family>.<size>", fix="Use a type such as 'ml.m5.xlarge'"
        ) from error
    try:
        return instances.instance(instance_type)
    except instances.InstanceTypeError:
        return None


def _check_architecture(container: MultiModelContainer, found: instances.InstanceType) -> None:
    if container.architecture != found.architecture:
        raise CompatibilityError(
            f"The image is built for another architecture than {found.name}",
            value=container.architecture,
            allowed=found.architecture,
            fix=f"Use an image for {found.architecture}, or another instance type",
        )


def _check_on_cpu(container: MultiModelContainer, found: instances.InstanceType) -> None:
    if container.processor == "gpu":
        raise CompatibilityError(
            "The image is built for GPUs and the instance type has none",
            value=found.name,
            allowed=f"single-GPU types: {', '.join(instances.mme_gpu_types())}",
            fix="Choose one of them, or the image for processor cpu",
        )


def _check_on_gpu(container: MultiModelContainer, found: instances.InstanceType, *, allow_undocumented_gpu: bool) -> tuple[Caution, ...]:
    documented = instances.mme_gpu_types()
    if container.multi_model and not container.gpu_server:
        raise CompatibilityError(
            "On GPU types only Triton serves multi-model endpoints",
            value=f"{container.framework or 'another server'} on {found.name}",
            allowed="a Triton container, or a CPU type",
            fix="Use MultiModelContainer.from_framework('triton', ...), or a type such as ml.m5.xlarge",
        )
    if container.multi_model and container.processor == "cpu":
        raise CompatibilityError(
            "Triton's CPU image leaves the GPU unused",
            value=found.name,
            allowed="the image for processor gpu, or a CPU type",
            fix="Leave processor out, or choose a type such as ml.m5.xlarge",
        )
    if found.gpus > 1:
        raise CompatibilityError(
            "Multi-model endpoints use single-GPU types only",
            value=f"{found.name} with {found.gpus} GPUs",
            allowed=", ".join(documented),
            fix=_SINGLE_GPU,
        )
    if found.name in documented:
        return ()
    if not allow_undocumented_gpu:
        raise CompatibilityError(
            "AWS does not document this GPU type for multi-model endpoints",
            value=found.name,
            allowed=", ".join(documented),
            fix="Use one of them, or try it with allow_undocumented_gpu=True",
        )
    text = f"AWS documents multi-model endpoints on GPUs for {', '.join(documented)}; {found.name} may be refused."
    return (Caution("mme-constructs:undocumented-gpu-type", text),)
