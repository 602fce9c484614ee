"""What creating, changing and deleting SageMaker's resources means.

All methods run on the gateway's event loop; nothing here does I/O but through the fleets given.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from mme_facts.instances import has_local_storage
from mme_fleet import InstanceUp, Step
from mme_local.dataplane.interface import ArtifactSource
from mme_local.images import Image
from mme_local.sagemaker import exceptions, notices
from mme_local.sagemaker.components import InferenceComponents
from mme_local.sagemaker.containers import check_container, check_labels, component_fleet, model_fleet
from mme_local.sagemaker.hosting import Hosting, Surroundings
from mme_local.sagemaker.policies import endpoint_policy
from mme_local.sagemaker.resources import (
    Endpoint,
    EndpointConfig,
    FleetOwner,
    Fleets,
    InferenceComponent,
    Model,
    ResourceKind,
    Run,
    arn_of,
)
from mme_local.sagemaker.rollout import AlarmStates, Clock
from mme_local.sagemaker.settings import ControlPlaneSettings
from mme_local.wire import AwsError, ValidationError

__all__ = ["SageMaker"]

Resource = TypeVar("Resource")
_WORDS: Mapping[ResourceKind, str] = {"model": "model", "endpoint-config": "endpoint configuration", "endpoint": "endpoint"}
_MAX_TAGS = 50


class SageMaker:
    """SageMaker of one account and region.

    Args:
        region: AWS region.
        account: account id.
        fleets: gives the data plane.
        artifacts: makes the reader of an endpoint's artifacts from bucket, execution role's ARN and endpoint name.
        check_role: raises `ValidationError` when SageMaker may not assume an execution role.
        clock: the scaled clock.
        instance_limit: instances that all endpoints together may have.
        settings: how long statuses last.
        image: what is known of a pushed image by its URI; ``None`` for others.
        chance: a number in [0, 1) for every request that may go several ways.
        publish: sends an event to EventBridge.
        alarms: the states of alarms by their names; those that do not exist are missing.
        capacity: asked with an endpoint's name before instances for inference components start; raises when none can be had.
    """

    def __init__(
        self,
        *,
        region: str,
        account: str,
        fleets: Callable[[], Fleets],
        artifacts: Callable[[str, str, str], ArtifactSource],
        check_role: Callable[[str], None],
        clock: Clock,
        instance_limit: int,
        settings: ControlPlaneSettings | None = None,
        image: Callable[[str], Image | None] = lambda _uri: None,
        chance: Callable[[], float] = random.random,
        publish: notices.Publish = lambda _detail_type, _detail, _resources: None,
        alarms: AlarmStates = lambda names: dict.fromkeys(names, "OK"),
        capacity: Callable[[str], None] = lambda _endpoint: None,
    ) -> None:
        self.region, self.account = region, account
        self._artifacts, self._check_role, self._now, self._image = artifacts, check_role, clock.now, image
        around = Surroundings(
            arn=self.arn,
            fleets=fleets,
            clock=clock,
            settings=settings or ControlPlaneSettings(),
            alarms=alarms,
            publish=publish,
            capacity=capacity,
            instance_limit=instance_limit,
            chance=chance,
        )
        self.hosting = Hosting(around, self._run)
        self.components = InferenceComponents(
            around,
            self.hosting,
            model=self.model,
            make_copies=lambda name, variant, copies, given: component_fleet(name, variant, copies, given, self.model, image),
            artifacts=artifacts,
        )
        self.hosting.components = self.components
        self.models: dict[str, Model] = {}
        self.configs: dict[str, EndpointConfig] = {}

    @property
    def endpoints(self) -> dict[str, Endpoint]:
        """The endpoints by name."""
        return self.hosting.by_name

    def arn(self, kind: ResourceKind, name: str) -> str:
        """ARN of a resource of this account and region."""
        return arn_of(self.region, self.account, kind, name)

    # Models

    def create_model(self, request: Mapping[str, Any]) -> Model:
        """Create a model; raises `ValidationError`."""
        name = request["ModelName"]
        if name in self.models:
            raise exceptions.already_exists("model", self.arn("model", name))
        containers = [request["PrimaryContainer"]] if "PrimaryContainer" in request else []
        containers += request.get("Containers", [])
        if not containers or ("PrimaryContainer" in request and request.get("Containers")):
            raise ValidationError("Exactly one of PrimaryContainer and Containers must be given.")
        if sum(container.get("Mode") == "MultiModel" for container in containers) > 1:
            raise ValidationError("More than one container in MultiModel mode is not supported with inference pipeline.")
        for container in containers:
            check_container(container)
            check_labels(container, self._image, in_pipeline=len(containers) > 1)
        if "ExecutionRoleArn" not in request:
            raise ValidationError("ExecutionRoleArn is required for a model that an endpoint serves.")
        self._check_role(request["ExecutionRoleArn"])
        tags = _tags(request)
        self.models[name] = Model(name, self.arn("model", name), request, self._now(), tags)
        return self.models[name]

    def model(self, name: str) -> Model:
        """A model by name; raises `ValidationError`."""
        return _found(self.models, name, "model", self.arn("model", name))

    def delete_model(self, name: str) -> None:
        """Delete a model. Endpoints that run it keep running."""
        self.model(name)
        del self.models[name]

    # Endpoint configurations

    def create_endpoint_config(self, request: Mapping[str, Any]) -> EndpointConfig:
        """Create an endpoint configuration; raises `ValidationError`."""
        name = request["EndpointConfigName"]
        if name in self.configs:
            raise exceptions.already_exists(_WORDS["endpoint-config"], self.arn("endpoint-config", name))
        variants = request["ProductionVariants"]
        if len({variant["VariantName"] for variant in variants}) < len(variants):
            raise ValidationError("Production variant names must be unique.")
        if len({"ModelName" in variant for variant in variants}) > 1:
            raise ValidationError("Either all production variants have a ModelName or none has.")
        if "ModelName" not in variants[0] and "ExecutionRoleArn" not in request:
            raise ValidationError("ExecutionRoleArn is required for an endpoint configuration whose variants have no ModelName.")
        if "ExecutionRoleArn" in request:
            self._check_role(request["ExecutionRoleArn"])
        for variant in variants:
            self._check_variant(variant, request)
        self.configs[name] = EndpointConfig(name, self.arn("endpoint-config", name), request, self._now(), _tags(request))
        return self.configs[name]

    def _check_variant(self, variant: Mapping[str, Any], config: Mapping[str, Any]) -> None:
        name = variant["VariantName"]
        if "KmsKeyId" in config and "InstanceType" in variant and has_local_storage(variant["InstanceType"]):
            # API reference: CreateEndpointConfig, KmsKeyId.
            raise ValidationError(
                f"KmsKeyId is not supported for {variant['InstanceType']} of variant {name}: hardware encrypts its local storage."
            )
        if "ModelName" in variant:
            model = self.model(variant["ModelName"])
            if model.multi_model_container is not None:
                for member, given in (("ServerlessConfig", variant), ("AsyncInferenceConfig", config)):
                    if member in given:
                        raise ValidationError(f"{member} is not supported with multi-model containers.")
            if "ManagedInstanceScaling" in variant:
                raise ValidationError(f"Variant {name}: ManagedInstanceScaling is for endpoints of inference components.")
        for required in ("InitialInstanceCount", "InstanceType"):
            if required not in variant and "ServerlessConfig" not in variant:
                raise ValidationError(f"Variant {name}: {required} is required.")
        scaling = variant.get("ManagedInstanceScaling", {})
        if scaling.get("MinInstanceCount", 0) > scaling.get("MaxInstanceCount", scaling.get("MinInstanceCount", 0)):
            raise ValidationError(f"Variant {name}: MinInstanceCount cannot be greater than MaxInstanceCount.")

    def endpoint_config(self, name: str) -> EndpointConfig:
        """An endpoint configuration by name; raises `ValidationError`."""
        return _found(self.configs, name, _WORDS["endpoint-config"], self.arn("endpoint-config", name))

    def delete_endpoint_config(self, name: str) -> None:
        """Delete an endpoint configuration. Endpoints that run it keep running."""
        self.endpoint_config(name)
        del self.configs[name]

    # Endpoints

    def create_endpoint(self, request: Mapping[str, Any]) -> Endpoint:
        """Create an endpoint and start its fleets in the background; raises `AwsError`."""
        name = request["EndpointName"]
        if any(name.lower() == other.lower() for other in self.endpoints):
            raise exceptions.already_exists("endpoint", self.arn("endpoint", name))
        config = self.endpoint_config(request["EndpointConfigName"])
        now = self._now()
        deployment = request.get("DeploymentConfig")
        counts = {variant["VariantName"]: variant.get("InitialInstanceCount", 0) for variant in config.variants}
        endpoint_policy(deployment, counts, counts)  # of no use yet, but it has to be right
        endpoint = Endpoint(
            name,
            self.arn("endpoint", name),
            config.name,
            now,
            now,
            hosts_components=config.hosts_components,
            deployment_config=deployment,
            tags=_tags(request),
        )
        self.hosting.create(endpoint, config)
        return endpoint

    def update_endpoint(self, request: Mapping[str, Any]) -> Endpoint:
        """Replace an endpoint's fleets by those of another configuration, in the background; raises `AwsError`."""
        endpoint = self.endpoint(request["EndpointName"])
        self.hosting.update(endpoint, self.endpoint_config(request["EndpointConfigName"]), request)
        return endpoint

    def update_weights_and_capacities(self, request: Mapping[str, Any]) -> Endpoint:
        """Change the instance counts or weights of an endpoint's variants, in the background; raises `AwsError`."""
        endpoint = self.endpoint(request["EndpointName"])
        self.hosting.change_capacities(endpoint, request["DesiredWeightsAndCapacities"])
        return endpoint

    def endpoint(self, name: str) -> Endpoint:
        """An endpoint by name; raises `ValidationError`."""
        return self.hosting.get(name)

    def delete_endpoint(self, name: str) -> Endpoint:
        """Stop an endpoint's fleets and forget the endpoint, in the background; raises `ValidationError`."""
        endpoint = self.endpoint(name)
        self.hosting.delete(endpoint)
        return endpoint

    def __call__(self, fleet: str, step: Step) -> None:
        """Take a step of a fleet, as a `StepObserver`: CurrentInstanceCount grows with the instances that come up."""
        if isinstance(step.event, InstanceUp):
            self.hosting.rollout.instance_up(fleet)

    def owner(self, fleet: str) -> FleetOwner | None:
        """Whose a fleet of the data plane is; ``None`` for one that is gone."""
        return self.hosting.owners.get(fleet)

    def _run(
        self, endpoint: Endpoint, fleet: str, _config: EndpointConfig, given: Mapping[str, Any], count: int
    ) -> tuple[Run, Sequence[str], bool]:
        """The fleet of a variant of models, its images, and whether it serves one model."""
        if "ServerlessConfig" in given:
            raise ValidationError("The local cloud serves instances: a variant with ServerlessConfig has none.")
        model = self.model(given["ModelName"])
        spec = model_fleet(fleet, given["VariantName"], count, model, self._image)
        images = tuple(str(item["Image"]) for item in model.containers if "Image" in item)
        run = Run(spec, self._artifacts(spec.bucket, model.role_arn, endpoint.name), count)
        return run, images, model.multi_model_container is None

    # Tags

    def tags_of(self, arn: str) -> dict[str, str]:
        """The tags of a resource, to read and change; raises `ValidationError` when there is no such resource."""
        kinds: Mapping[str, Mapping[str, Model | EndpointConfig | Endpoint | InferenceComponent]] = {
            "model": self.models,
            "endpoint-config": self.configs,
            "endpoint": self.endpoints,
            "inference-component": self.components.by_name,
        }
        kind, _, name = arn.split(":", 5)[-1].partition("/")
        resources = kinds.get(kind, {})
        # Names stand in ARNs in lower case, as most are anyway; the others are looked for.
        likely = (resources[name],) if name in resources else ()
        for resource in itertools.chain(likely, resources.values()):
            if resource.arn == arn:
                return resource.tags
        raise exceptions.could_not_find(kind.replace("-", " "), arn)

    def tag_context(self, arn: str) -> dict[str, str]:
        """The condition keys of a resource's tags; none when there is no such resource."""
        try:
            tags = self.tags_of(arn)
        except ValidationError:
            return {}
        return {f"{prefix}ResourceTag/{key}": value for key, value in tags.items() for prefix in ("aws:", "sagemaker:")}

    def add_tags(self, arn: str, tags: Sequence[Mapping[str, str]]) -> dict[str, str]:
        """Add or replace tags; at most 50 stay."""
        current = self.tags_of(arn)
        merged = {**current, **{tag["Key"]: tag["Value"] for tag in tags}}
        if len(merged) > _MAX_TAGS:
            raise AwsError("ResourceLimitExceeded", f"A resource can have at most {_MAX_TAGS} tags.")
        current.update(merged)
        return current

    async def close(self) -> None:
        """Stop all fleets and forget everything."""
        while self.endpoints or self.components.by_name:
            await self.components.close()
            await self.hosting.close()
        self.models.clear()
        self.configs.clear()


def _found(resources: Mapping[str, Resource], name: str, word: str, arn: str) -> Resource:
    if name not in resources:
        raise exceptions.could_not_find(word, arn)
    return resources[name]


def _tags(request: Mapping[str, Any]) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in request.get("Tags", [])}
