"""What the control plane knows of endpoints, in the terms of their metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mme_local.metrics.facts import ComponentFacts, VariantFacts
from mme_local.sagemaker.models import SageMaker
from mme_local.sagemaker.resources import InferenceComponent, Variant

__all__ = ["variants_of"]

_MIB = 1024 * 1024


def variants_of(sagemaker: SageMaker) -> list[VariantFacts]:
    """The production variants of all endpoints that serve or have served."""
    return [
        VariantFacts(
            endpoint.name,
            variant.name,
            variant.instance_type,
            variant.current_count,
            not variant.single_model,
            endpoint.hosts_components,
            [
                _component(component, variant)
                for component in sagemaker.components.by_name.values()
                if (component.endpoint_name, component.variant_name) == (endpoint.name, variant.name)
            ],
        )
        for endpoint in sagemaker.endpoints.values()
        for variant in endpoint.variants
    ]


def _component(component: InferenceComponent, variant: Variant) -> ComponentFacts:
    needs = _specification(component.request, variant.instance_type).get("ComputeResourceRequirements", {})
    return ComponentFacts(
        component.name,
        component.current,
        needs.get("NumberOfCpuCoresRequired"),
        int(needs.get("MinMemoryRequiredInMb", 0) * _MIB),
        needs.get("NumberOfAcceleratorDevicesRequired", 0.0),
    )


def _specification(request: Mapping[str, Any], instance_type: str) -> Mapping[str, Any]:
    """The specification for an instance type: the only one, or that of the type, else the first."""
    if "Specification" in request:
        only: Mapping[str, Any] = request["Specification"]
        return only
    given: list[Mapping[str, Any]] = request.get("Specifications", [{}])
    return next((one for one in given if one.get("InstanceType") == instance_type), given[0])
