"""SageMaker's resources as the local cloud keeps them, and the data plane that serves them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol

from mme_local.dataplane.interface import ArtifactSource, FleetSpec, InvokeReply, InvokeRequest, InvokeStream
from mme_local.sagemaker.placement import Hosts

__all__ = [
    "Deployment",
    "Doing",
    "Endpoint",
    "EndpointConfig",
    "FleetOwner",
    "Fleets",
    "InferenceComponent",
    "Model",
    "ResourceKind",
    "Run",
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


@dataclass(frozen=True, slots=True)
class FleetOwner:
    """Whose a fleet of the data plane is.

    Attributes:
        endpoint: name of the endpoint.
        variant: name of the production variant.
        component: name of the inference component whose copies it is; ``None`` for the variant's own model.
        instance_type: of the variant.
    """

    endpoint: str
    variant: str
    component: str | None
    instance_type: str


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


@dataclass(slots=True)
class Run:
    """A fleet of the data plane, with what it is started from.

    Attributes:
        spec: the fleet; ``spec.endpoint_name`` is its name.
        artifacts: where its models come from.
        count: instances that it has when nothing is under way.
        current: instances that it has now.
        counted: is told every change of ``current``.
    """

    spec: FleetSpec
    artifacts: ArtifactSource
    count: int
    current: int = 0
    counted: Callable[[int], None] = lambda _count: None

    @property
    def name(self) -> str:
        """The fleet's name in the data plane."""
        return self.spec.endpoint_name

    def set_current(self, count: int) -> None:
        """Note that it has ``count`` instances."""
        self.current = count
        self.counted(count)


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
        run: its fleet in the data plane; ``None`` where it hosts inference components instead.
        images: image URIs of its containers.
        single_model: whether its fleet serves one model, so that no TargetModel may be given.
        hosts: its instances, where it hosts inference components.
        given: the variant as its endpoint configuration has it.
        doing: what happens to its fleet; ``None`` at rest.
    """

    name: str
    run: Run | None
    images: Sequence[str]
    given: Mapping[str, Any]
    desired_count: int
    desired_weight: float
    current_count: int = 0
    current_weight: float = 0.0
    single_model: bool = False
    hosts: Hosts | None = None
    doing: Doing | None = None

    @property
    def fleet(self) -> str | None:
        """The name of its fleet in the data plane."""
        return self.run.name if self.run is not None else None

    @property
    def instance_type(self) -> str:
        """Its instance type."""
        return str(self.given["InstanceType"])


@dataclass(slots=True)
class Deployment:
    """The fleets that an update brings up beside those of the endpoint; ``traffic`` is the share of the requests that they get."""

    config_name: str
    started: datetime
    variants: Sequence[Variant]
    traffic: float = 0.0


@dataclass(slots=True)
class Endpoint:
    """An endpoint and its variants.

    Attributes:
        status: SageMaker's EndpointStatus.
        pending: the update under way, and what is left of one whose rollback failed.
        generation: of its newest fleets.
        role_arn: the execution role of its configuration, for inference components.
        reserved: instances that the change under way may have beside those of ``variants``.
        deployment_config: DeploymentConfig of the last update that had one.
        settled: set while nothing is under way.
    """

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
    role_arn: str = ""
    reserved: int = 0
    deployment_config: Mapping[str, Any] | None = None
    tags: dict[str, str] = field(default_factory=dict)
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None

    @property
    def fleets(self) -> list[str]:
        """The names of its variants' fleets in the data plane."""
        return [variant.fleet for variant in self.variants if variant.fleet is not None]

    @property
    def all_fleets(self) -> list[str]:
        """Those, and what an update under way brings up."""
        return self.fleets + [variant.fleet for variant in self.pending_variants if variant.fleet is not None]

    @property
    def pending_variants(self) -> Sequence[Variant]:
        """The variants of the update under way."""
        return self.pending.variants if self.pending is not None else ()

    def variant(self, name: str) -> Variant | None:
        """A variant by name."""
        return next((variant for variant in self.variants if variant.name == name), None)


@dataclass(slots=True)
class InferenceComponent:
    """An inference component.

    Attributes:
        request: what describes it: the merged requests.
        copies: DesiredCopyCount.
        current: CurrentCopyCount.
        status: SageMaker's InferenceComponentStatus.
        generation: of its newest fleet.
        run: the fleet that its copies are; ``None`` without copies.
        next_run: that of an update under way.
        traffic: the share of the requests that ``next_run`` gets.
        settled: set while nothing is under way.
    """

    name: str
    arn: str
    endpoint_name: str
    variant_name: str
    request: dict[str, Any]
    created: datetime
    modified: datetime
    copies: int
    current: int = 0
    status: str = "Creating"
    failure_reason: str | None = None
    generation: int = 0
    run: Run | None = None
    next_run: Run | None = None
    traffic: float = 0.0
    deployment_config: Mapping[str, Any] | None = None
    tags: dict[str, str] = field(default_factory=dict)
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
