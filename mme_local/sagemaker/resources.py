"""SageMaker's resources as the local cloud keeps them, and the data plane that serves them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol

from mme_local.dataplane.interface import ArtifactSource, FleetSpec, InvokeReply, InvokeRequest, InvokeStream

__all__ = [
    "Deployment",
    "Doing",
    "Endpoint",
    "EndpointConfig",
    "Fleets",
    "InferenceComponent",
    "Model",
    "ResourceKind",
    "Variant",
    "arn_of",
]

ResourceKind = Literal["model", "endpoint-config", "endpoint", "inference-component"]


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

    async def stream(self, endpoint_name: str, request: InvokeRequest) -> InvokeStream:
        """Route one request whose answer is read as it comes."""

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
    def containers(self) -> Sequence[Mapping[str, Any]]:
        """The containers: one, or those of a pipeline in their order."""
        if "PrimaryContainer" in self.request:
            return [self.request["PrimaryContainer"]]
        containers: Sequence[Mapping[str, Any]] = self.request["Containers"]
        return containers

    @property
    def multi_model_container(self) -> Mapping[str, Any] | None:
        """The container in MultiModel mode, if there is one."""
        return next((container for container in self.containers if container.get("Mode") == "MultiModel"), None)

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

    @property
    def hosts_components(self) -> bool:
        """Whether its variants name no model: inference components will be placed on them."""
        return "ModelName" not in self.variants[0]


@dataclass(frozen=True, slots=True)
class Doing:
    """What happens to a variant's fleet now.

    Attributes:
        status: SageMaker's VariantStatus: Creating, Updating, Deleting, ActivatingTraffic or Baking.
        started: since when.
        message: more about it, if there is more to say.
    """

    status: str
    started: datetime
    message: str = ""


@dataclass(slots=True)
class Variant:
    """A running production variant of an endpoint.

    Attributes:
        fleet: name of its fleet in the data plane; ``None`` where inference components are recorded instead.
        images: image URIs of its containers.
        given: the variant as its endpoint configuration has it.
        doing: what happens to its fleet; ``None`` at rest.
    """

    name: str
    fleet: str | None
    images: Sequence[str]
    given: Mapping[str, Any]
    desired_count: int
    desired_weight: float
    current_count: int = 0
    current_weight: float = 0.0
    doing: Doing | None = None

    @property
    def instance_type(self) -> str:
        """Its instance type."""
        return str(self.given["InstanceType"])


@dataclass(slots=True)
class Deployment:
    """The fleets that an update brings up beside those of the endpoint."""

    config_name: str
    started: datetime
    variants: Sequence[Variant]


@dataclass(slots=True)
class Endpoint:
    """An endpoint and its variants. ``status`` is SageMaker's EndpointStatus."""

    name: str
    arn: str
    config_name: str
    created: datetime
    modified: datetime
    status: str = "Creating"
    failure_reason: str | None = None
    variants: Sequence[Variant] = ()
    pending: Deployment | None = None
    hosts_components: bool = False
    generation: int = 0
    tags: dict[str, str] = field(default_factory=dict)
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None

    @property
    def fleets(self) -> list[str]:
        """The names of its fleets in the data plane."""
        return [variant.fleet for variant in self.variants if variant.fleet is not None]

    def variant(self, name: str) -> Variant | None:
        """A variant by name."""
        return next((variant for variant in self.variants if variant.name == name), None)


@dataclass(slots=True)
class InferenceComponent:
    """An inference component: a record, nothing runs for it. ``request`` holds the merged requests."""

    name: str
    arn: str
    endpoint_name: str
    variant_name: str
    request: dict[str, Any]
    created: datetime
    modified: datetime
    copies: int
    status: str = "InService"
    tags: dict[str, str] = field(default_factory=dict)
