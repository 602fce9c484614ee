"""Whose fleets there are: what the control plane tells the publisher of metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

__all__ = ["ComponentFacts", "InstanceUse", "Owner", "VariantFacts"]


class Owner(Protocol):
    """Whose a fleet is: `mme_local.sagemaker.resources.FleetOwner`."""

    @property
    def endpoint(self) -> str:
        """Name of the endpoint."""

    @property
    def variant(self) -> str:
        """Name of the production variant."""

    @property
    def component(self) -> str | None:
        """Name of the inference component whose copies it is; ``None`` for the variant's own model."""


@dataclass(frozen=True, slots=True)
class ComponentFacts:
    """An inference component.

    Attributes:
        name: its name.
        copies: copies that serve.
        cpu_cores: cores that a copy reserves; ``None``: it reserves none.
        memory_bytes: memory that a copy reserves.
        accelerators: accelerators that a copy reserves.
    """

    name: str
    copies: int
    cpu_cores: float | None
    memory_bytes: int
    accelerators: float = 0.0


@dataclass(frozen=True, slots=True)
class VariantFacts:
    """A production variant of an endpoint.

    Attributes:
        endpoint: name of the endpoint.
        variant: name of the variant.
        instance_type: its instance type.
        instances: instances that it has now.
        multi_model: whether it serves a multi-model container.
        hosts_components: whether inference components are hosted.
        components: those on it.
    """

    endpoint: str
    variant: str
    instance_type: str
    instances: int
    multi_model: bool = True
    hosts_components: bool = False
    components: Sequence[ComponentFacts] = ()

    @property
    def dimensions(self) -> Mapping[str, str]:
        """The dimensions of its metrics."""
        return {"EndpointName": self.endpoint, "VariantName": self.variant}


@dataclass(frozen=True, slots=True)
class InstanceUse:
    """What the processes of an instance (or of a copy) use.

    Attributes:
        fleet: name of its fleet.
        instance: its name in the fleet.
        cores: processor seconds a second; ``None`` when it has no process of its own to measure.
        memory_bytes: memory of the models' processes, or what the fleet accounts to its models where they have none.
        memory_budget_bytes: what models may take.
    """

    fleet: str
    instance: str
    cores: float | None
    memory_bytes: int
    memory_budget_bytes: int
