"""What the control plane knows of endpoints, in the terms of their metrics."""

from __future__ import annotations

from mme_local.metrics.facts import ComponentFacts, VariantFacts
from mme_local.sagemaker.components import specification_for
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
    # None when the endpoint has moved to an instance type that the component is not made for, while it had no copies.
    needs = (specification_for(component.request, variant.instance_type) or {}).get("ComputeResourceRequirements", {})
    return ComponentFacts(
        component.name,
        component.current,
        needs.get("NumberOfCpuCoresRequired"),
        int(needs.get("MinMemoryRequiredInMb", 0) * _MIB),
        needs.get("NumberOfAcceleratorDevicesRequired", 0.0),
    )
