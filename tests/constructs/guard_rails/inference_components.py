"""Guard rails of the dedicated endpoint and its components."""

from __future__ import annotations

import aws_cdk as cdk

from mme_constructs import (
    ComponentScaling,
    ComputeRequirements,
    InferenceComponent,
    InferenceComponentEndpoint,
    ModelArtifactStore,
    MultiModelContainer,
    MultiModelEndpoint,
)
from mme_constructs.errors import AutoScalingError, InferenceComponentError
from tests.constructs.guard_rails.rail import GuardRail

XGBOOST = MultiModelContainer.from_framework("xgboost", version="1.7-1")
SMALL = ComputeRequirements(memory_mb=2048, cpus=1)
VERSION = "v1-0123456789ab"


def _store(stack: cdk.Stack) -> ModelArtifactStore:
    return ModelArtifactStore(stack, "Store")


def _component_on_a_variant_with_a_model(stack: cdk.Stack) -> None:
    endpoint = MultiModelEndpoint(stack, "Endpoint", store=_store(stack), container=XGBOOST)
    InferenceComponent(
        stack,
        "Hot",
        endpoint=endpoint,  # type: ignore[arg-type]  # mypy sees it too
        tenant="acme",
        model="ranking",
        container=XGBOOST,
        version=VERSION,
        compute=SMALL,
    )


def _component_on_a_variant_without_a_model(stack: cdk.Stack) -> None:
    endpoint = InferenceComponentEndpoint(stack, "Endpoint", store=_store(stack))
    InferenceComponent(stack, "Hot", endpoint=endpoint, tenant="acme", model="ranking", container=XGBOOST, version=VERSION, compute=SMALL)


def _no_memory(stack: cdk.Stack) -> None:
    endpoint = InferenceComponentEndpoint(stack, "Endpoint", store=_store(stack))
    endpoint.add_component("acme", "ranking", container=XGBOOST, version=VERSION, compute=ComputeRequirements(cpus=1))


def _memory(stack: cdk.Stack) -> None:
    endpoint = InferenceComponentEndpoint(stack, "Endpoint", store=_store(stack))
    endpoint.add_component("acme", "ranking", container=XGBOOST, version=VERSION, compute=ComputeRequirements(memory_mb=2048, cpus=1))


def _tenth_of_a_vcpu(stack: cdk.Stack) -> None:
    endpoint = InferenceComponentEndpoint(stack, "Endpoint", store=_store(stack))
    compute = ComputeRequirements(memory_mb=2048, cpus=0.1)
    endpoint.add_component("acme", "ranking", container=XGBOOST, version=VERSION, compute=compute)


def _quarter_of_a_vcpu(stack: cdk.Stack) -> None:
    endpoint = InferenceComponentEndpoint(stack, "Endpoint", store=_store(stack))
    compute = ComputeRequirements(memory_mb=2048, cpus=0.25)
    endpoint.add_component("acme", "ranking", container=XGBOOST, version=VERSION, compute=compute)


def _larger_than_the_instance(stack: cdk.Stack) -> None:
    endpoint = InferenceComponentEndpoint(stack, "Endpoint", store=_store(stack), instance_type="ml.m5.large")
    compute = ComputeRequirements(memory_mb=16_384)
    endpoint.add_component("acme", "ranking", container=XGBOOST, version=VERSION, compute=compute)


def _on_a_larger_instance(stack: cdk.Stack) -> None:
    endpoint = InferenceComponentEndpoint(stack, "Endpoint", store=_store(stack), instance_type="ml.m5.2xlarge")
    compute = ComputeRequirements(memory_mb=16_384)
    endpoint.add_component("acme", "ranking", container=XGBOOST, version=VERSION, compute=compute)


def _to_zero_with_an_instance(stack: cdk.Stack) -> None:
    endpoint = InferenceComponentEndpoint(stack, "Endpoint", store=_store(stack), min_instances=1)
    scaling = ComponentScaling(min_copies=0, max_copies=4)
    endpoint.add_component("acme", "ranking", container=XGBOOST, version=VERSION, compute=SMALL, scaling=scaling)


def _to_zero_without_instances(stack: cdk.Stack) -> None:
    endpoint = InferenceComponentEndpoint(stack, "Endpoint", store=_store(stack), min_instances=0)
    scaling = ComponentScaling(min_copies=0, max_copies=4)
    endpoint.add_component("acme", "ranking", container=XGBOOST, version=VERSION, compute=SMALL, scaling=scaling)


RAILS = (
    GuardRail(
        "Inference component on a variant with a model name",
        "A variant has either a model or inference components, never both (Amazon SageMaker AI, Deploy models for real-time inference).",
        _component_on_a_variant_with_a_model,
        _component_on_a_variant_without_a_model,
        InferenceComponentError,
    ),
    GuardRail(
        "Inference component without memory",
        "CreateInferenceComponent refuses it: MinMemoryRequiredInMb is required "
        "(API reference: InferenceComponentComputeResourceRequirements).",
        _no_memory,
        _memory,
        InferenceComponentError,
    ),
    GuardRail(
        "Inference component with less than a quarter of a vCPU",
        "NumberOfCpuCoresRequired is at least 0.25 (API reference: InferenceComponentComputeResourceRequirements).",
        _tenth_of_a_vcpu,
        _quarter_of_a_vcpu,
        InferenceComponentError,
    ),
    GuardRail(
        "Inference component that is larger than an instance",
        "No instance could ever hold a copy, and the component would stay in Creating until it fails.",
        _larger_than_the_instance,
        _on_a_larger_instance,
        InferenceComponentError,
    ),
    GuardRail(
        "Scale to zero on an endpoint that keeps an instance",
        "Requests would fail for want of a copy while an idle instance is billed; the endpoint's minimum must be 0 as well "
        "(Amazon SageMaker AI, Scale an endpoint to zero instances).",
        _to_zero_with_an_instance,
        _to_zero_without_instances,
        AutoScalingError,
    ),
)
