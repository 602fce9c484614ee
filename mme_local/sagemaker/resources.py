"""SageMaker's resources as the local cloud keeps them, and the data plane that serves them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol

from mme_local.dataplane.interface import ArtifactSource, FleetSpec, InvokeReply, InvokeRequest

__all__ = ["Endpoint", "EndpointConfig", "Fleets", "Model", "ResourceKind", "Variant", "arn_of"]

ResourceKind = Literal["model", "endpoint-config", "endpoint"]


class Fleets(Protocol):
    """The data plane as the control plane sees it: `mme_local.dataplane.DataPlane`."""

    async def start_fleet(self, spec: FleetSpec, artifacts: ArtifactSource) -> None:
        """Start a fleet; returns when its instances answer."""

    async def resize_fleet(self, endpoint_name: str, instance_count: int) -> None:
        """Change the number of instances."""

    async def stop_fleet(self, endpoint_name: str) -> None:
        """Stop a fleet and forget it."""

    async def invoke(self, endpoint_name: str, request: InvokeRequest) -> InvokeReply:
        """Route one request."""

    def status(self) -> list[dict[str, Any]]:
        """Instances and residency of all fleets."""


def arn_of(region: str, account: str, kind: ResourceKind, name: str) -> str:
    """ARN of a resource. SageMaker writes names in ARNs in lower case."""
    return f"arn:aws:sagemaker:{region}:{account}:{kind}/{name.lower()}"


@dataclass(slots=True)
class Model:
    """A model: ``request`` holds what CreateModel got."""

    name: str
    arn: str
    request: Mapping[str, Any]
    created: datetime
    tags: dict[str, str] = field(default_factory=dict)

    @property
    def container(self) -> Mapping[str, Any]:
        """The container that serves: the primary one or the first of a pipeline."""
        container: Mapping[str, Any] = self.request.get("PrimaryContainer") or self.request["Containers"][0]
        return container

    @property
    def role_arn(self) -> str:
        """The execution role."""
        return str(self.request["ExecutionRoleArn"])


@dataclass(slots=True)
class EndpointConfig:
    """An endpoint configuration: ``request`` holds what CreateEndpointConfig got."""

    name: str
    arn: str
    request: Mapping[str, Any]
    created: datetime
    tags: dict[str, str] = field(default_factory=dict)

    @property
    def variants(self) -> Sequence[Mapping[str, Any]]:
        """The production variants as given."""
        variants: Sequence[Mapping[str, Any]] = self.request["ProductionVariants"]
        return variants


@dataclass(slots=True)
class Variant:
    """The running production variant of an endpoint."""

    name: str
    image: str
    instance_type: str
    desired_count: int
    desired_weight: float
    current_count: int = 0
    current_weight: float = 0.0


@dataclass(slots=True)
class Endpoint:
    """An endpoint and its fleet. ``status`` is SageMaker's EndpointStatus."""

    name: str
    arn: str
    config_name: str
    created: datetime
    modified: datetime
    status: str = "Creating"
    failure_reason: str | None = None
    variant: Variant | None = None
    multi_model: bool = True
    generation: int = 0
    tags: dict[str, str] = field(default_factory=dict)
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None

    @property
    def fleet(self) -> str:
        """The fleet's name in the data plane. A dot cannot stand in an endpoint's name, so it separates the generation."""
        return f"{self.name}.{self.generation}"
