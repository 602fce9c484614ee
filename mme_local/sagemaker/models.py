"""What creating, changing and deleting SageMaker's resources means.

All methods run on the gateway's event loop; nothing here does I/O but through the fleets given.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from mme_facts.dockerfile import BIND_TO_PORT_LABEL, MULTI_MODEL_LABEL
from mme_facts.limits import INVOKE_TIMEOUT_SECONDS
from mme_local.dataplane.interface import ArtifactSource, FleetSpec, InvokeReply, InvokeRequest
from mme_local.images import Image
from mme_local.sagemaker import exceptions, notices
from mme_local.sagemaker.components import InferenceComponents
from mme_local.sagemaker.resources import Deployment, Doing, Endpoint, EndpointConfig, Fleets, Model, ResourceKind, Variant, arn_of
from mme_local.wire import AwsError, ValidationError

__all__ = ["SageMaker"]

logger = logging.getLogger(__name__)

Resource = TypeVar("Resource")
_WORDS: Mapping[ResourceKind, str] = {"model": "model", "endpoint-config": "endpoint configuration", "endpoint": "endpoint"}
_PIPELINE = "serial inference pipelines are not served by the local cloud: their endpoints only deploy"
_PREFIX_URL = re.compile(r"s3://([^/]+)/?(.*)")
_MAX_TAGS = 50


@dataclass(frozen=True, slots=True)
class _Plan:
    """A variant to be started, and where its artifacts come from; without a specification there is nothing to start."""

    variant: Variant
    spec: FleetSpec | None
    role_arn: str


class SageMaker:
    """SageMaker of one account and region.

    Args:
        region: AWS region.
        account: account id.
        fleets: gives the data plane.
        artifacts: makes the reader of an endpoint's artifacts from bucket, execution role's ARN and endpoint name.
        check_role: raises `ValidationError` when SageMaker may not assume an execution role.
        now: the clock.
        instance_limit: instances that all endpoints together may have.
        image: what is known of a pushed image by its URI; ``None`` for others.
        chance: a number in [0, 1) for every request to an endpoint of several variants.
        publish: sends an event to EventBridge.
    """

    def __init__(
        self,
        *,
        region: str,
        account: str,
        fleets: Callable[[], Fleets],
        artifacts: Callable[[str, str, str], ArtifactSource],
        check_role: Callable[[str], None],
        now: Callable[[], datetime],
        instance_limit: int,
        image: Callable[[str], Image | None] = lambda _uri: None,
        chance: Callable[[], float] = random.random,
        publish: notices.Publish = lambda _detail_type, _detail, _resources: None,
    ) -> None:
        self._publish = publish
        self._image, self._chance = image, chance
        self.region, self.account, self.fleets = region, account, fleets
        self._artifacts, self._check_role, self._now, self._instance_limit = artifacts, check_role, now, instance_limit
        self._under_way: Counter[str] = Counter()
        self._less_under_way = asyncio.Condition()
        self.models: dict[str, Model] = {}
        self.configs: dict[str, EndpointConfig] = {}
        self.endpoints: dict[str, Endpoint] = {}
        self.components = InferenceComponents(
            arn=lambda name: self.arn("inference-component", name), endpoint=self.endpoint, model=self.model, now=now
        )

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
            _check_container(container)
            self._check_labels(container, in_pipeline=len(containers) > 1)
        if "ExecutionRoleArn" not in request:
            raise ValidationError("ExecutionRoleArn is required for a model that an endpoint serves.")
        self._check_role(request["ExecutionRoleArn"])
        tags = _tags(request)
        self.models[name] = Model(name, self.arn("model", name), request, self._now(), tags)
        return self.models[name]

    def _check_labels(self, container: Mapping[str, Any], *, in_pipeline: bool) -> None:
        """The labels that CreateModel reads from an image; only those of images that were pushed here are known."""
        image = self._image(container.get("Image", ""))
        needed = [MULTI_MODEL_LABEL] if container.get("Mode") == "MultiModel" else []
        needed += [BIND_TO_PORT_LABEL] if in_pipeline else []
        missing = [label for label in needed if image is not None and image.labels.get(label, "").lower() != "true"]
        if missing:
            raise ValidationError(
                f"Your Ecr Image {container['Image']} does not contain required {', '.join(missing)}=true Docker label(s)."
            )

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
            self._check_variant(variant)
        self.configs[name] = EndpointConfig(name, self.arn("endpoint-config", name), request, self._now(), _tags(request))
        return self.configs[name]

    def _check_variant(self, variant: Mapping[str, Any]) -> None:
        name = variant["VariantName"]
        if "ModelName" in variant:
            model = self.model(variant["ModelName"])
            if model.multi_model_container is not None and "ServerlessConfig" in variant:
                raise ValidationError("ServerlessConfig is not supported with multi-model containers.")
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
        """Create an endpoint and start its fleet in the background; raises `AwsError`."""
        name = request["EndpointName"]
        if any(name.lower() == other.lower() for other in self.endpoints):
            raise exceptions.already_exists("endpoint", self.arn("endpoint", name))
        config = self.endpoint_config(request["EndpointConfigName"])
        self._check_instance_limit(config, None)
        now = self._now()
        endpoint = Endpoint(name, self.arn("endpoint", name), config.name, now, now, tags=_tags(request))
        self.endpoints[name] = endpoint
        self._begin(endpoint, "Creating", lambda: self._replace_fleets(endpoint, config, frozenset()))
        return endpoint

    def update_endpoint(self, request: Mapping[str, Any]) -> Endpoint:
        """Replace an endpoint's fleet by one of another configuration, in the background; raises `AwsError`."""
        endpoint = self._settled_endpoint(request["EndpointName"])
        config = self.endpoint_config(request["EndpointConfigName"])
        if config.hosts_components != endpoint.hosts_components:
            raise ValidationError(f'Endpoint "{endpoint.arn}" cannot change between models and inference components.')
        excluded = {entry["VariantPropertyType"] for entry in request.get("ExcludeRetainedVariantProperties", [])}
        kept = frozenset({"DesiredInstanceCount", "DesiredWeight"} - excluded if request.get("RetainAllVariantProperties") else ())
        self._check_instance_limit(config, endpoint)
        self._begin(endpoint, "Updating", lambda: self._replace_fleets(endpoint, config, kept))
        return endpoint

    def update_weights_and_capacities(self, request: Mapping[str, Any]) -> Endpoint:
        """Change an endpoint's instance count or weight, in the background; raises `AwsError`."""
        endpoint = self._settled_endpoint(request["EndpointName"])
        changes: dict[str, tuple[int, float]] = {}
        for change in request["DesiredWeightsAndCapacities"]:
            variant = endpoint.variant(change["VariantName"])
            if variant is None:
                raise ValidationError(f'Could not find variant "{change["VariantName"]}" on endpoint "{endpoint.arn}".')
            count = change.get("DesiredInstanceCount", variant.desired_count)
            if count < 1 and not endpoint.hosts_components:
                raise ValidationError(f"DesiredInstanceCount {count} is not allowed: an endpoint of models has at least 1 instance.")
            self._check_limit(variant.instance_type, count - variant.desired_count)
            changes[variant.name] = count, change.get("DesiredWeight", variant.desired_weight)
        for variant in endpoint.variants:
            variant.desired_count, variant.desired_weight = changes.get(variant.name, (variant.desired_count, variant.desired_weight))
        self._begin(endpoint, "Updating", lambda: self._resize(endpoint))
        return endpoint

    def endpoint(self, name: str) -> Endpoint:
        """An endpoint by name; raises `ValidationError`."""
        return _found(self.endpoints, name, "endpoint", self.arn("endpoint", name))

    def delete_endpoint(self, name: str) -> Endpoint:
        """Stop an endpoint's fleet and forget the endpoint, in the background; raises `ValidationError`."""
        endpoint = self.endpoint(name)
        if endpoint.status not in ("InService", "Failed", "OutOfService"):
            raise exceptions.in_progress(endpoint.arn)
        if components := self.components.of_endpoint(name):
            raise ValidationError(f'Endpoint "{endpoint.arn}" has inference components: delete {", ".join(components)} first.')
        self._begin(endpoint, "Deleting", lambda: self._remove(endpoint))
        return endpoint

    def _settled_endpoint(self, name: str) -> Endpoint:
        endpoint = self.endpoint(name)
        if endpoint.status != "InService":
            raise exceptions.in_progress(endpoint.arn)
        return endpoint

    def _begin(self, endpoint: Endpoint, status: str, change: Callable[[], Awaitable[None]]) -> None:
        self._set_status(endpoint, status)
        endpoint.settled.clear()
        endpoint.task = asyncio.get_running_loop().create_task(self._settle(endpoint, change), name=f"{status} {endpoint.name}")

    def _set_status(self, endpoint: Endpoint, status: str) -> None:
        endpoint.status, endpoint.modified = status, self._now()
        notices.state_change(self._publish, endpoint)

    def _set_doing(self, endpoint: Endpoint, variants: Sequence[Variant], status: str | None, message: str = "") -> None:
        """Say what happens to the fleets of some variants."""
        endpoint.modified = self._now()
        for variant in variants:
            variant.doing = None if status is None else Doing(status, endpoint.modified, message)
        if status is not None:
            notices.deployment_change(self._publish, endpoint)

    async def _settle(self, endpoint: Endpoint, change: Callable[[], Awaitable[None]]) -> None:
        creating = endpoint.status == "Creating"
        try:
            await change()
            endpoint.failure_reason = None
            if endpoint.status != "Deleting":
                self._set_status(endpoint, "InService")
        except Exception as error:
            # Whatever went wrong below is the endpoint's failure, as on AWS; the gateway goes on.
            logger.exception("endpoint %s", endpoint.name)
            endpoint.failure_reason = str(error) or type(error).__name__
            endpoint.pending = None
            self._set_doing(endpoint, endpoint.variants, None)
            self._set_status(endpoint, "Failed" if creating else "InService")
        finally:
            endpoint.settled.set()

    async def _replace_fleets(self, endpoint: Endpoint, config: EndpointConfig, kept: frozenset[str]) -> None:
        old = endpoint.fleets
        plans = [self._plan(endpoint, config, given, kept) for given in config.variants]
        endpoint.pending = Deployment(config.name, self._now(), [plan.variant for plan in plans])
        self._set_doing(endpoint, endpoint.pending.variants, "Creating")
        await self._start([plan for plan in plans if plan.spec is not None], endpoint.name)
        self._set_doing(endpoint, endpoint.pending.variants, "ActivatingTraffic")
        leaving, endpoint.pending = endpoint.variants, None
        self._set_doing(endpoint, leaving, None)
        endpoint.generation += 1
        endpoint.variants = [plan.variant for plan in plans]
        for variant in endpoint.variants:
            variant.current_count, variant.current_weight = variant.desired_count, variant.desired_weight
            variant.doing = None
        endpoint.config_name, endpoint.hosts_components = config.name, config.hosts_components
        for fleet in old:
            await self._drained(fleet)
            try:
                await self.fleets().stop_fleet(fleet)
            except Exception:
                # The new fleets serve already: the update has succeeded.
                logger.exception("endpoint %s: its old fleet %s did not stop", endpoint.name, fleet)

    async def _start(self, plans: Sequence[_Plan], endpoint_name: str) -> None:
        """Start the fleets of a change; all of them come up or none stays."""
        specs = [(plan.spec, plan.role_arn) for plan in plans if plan.spec is not None]
        try:
            async with asyncio.TaskGroup() as group:
                for spec, role_arn in specs:
                    group.create_task(self.fleets().start_fleet(spec, self._artifacts(spec.bucket, role_arn, endpoint_name)))
        except BaseException as failure:
            for spec, _ in specs:
                with suppress(Exception):
                    await self.fleets().stop_fleet(spec.endpoint_name)
            if isinstance(failure, BaseExceptionGroup):
                raise failure.exceptions[0] from failure
            raise

    def _plan(self, endpoint: Endpoint, config: EndpointConfig, given: Mapping[str, Any], kept: frozenset[str]) -> _Plan:
        """What to run for a variant; of the variant that it replaces it keeps the count or the weight."""
        old = endpoint.variant(given["VariantName"])
        count, weight = given["InitialInstanceCount"], given.get("InitialVariantWeight", 1.0)
        if old is not None:
            count = old.desired_count if "DesiredInstanceCount" in kept else count
            weight = old.desired_weight if "DesiredWeight" in kept else weight
        if config.hosts_components:
            return _Plan(Variant(given["VariantName"], None, (), given, count, weight), None, config.request["ExecutionRoleArn"])
        model = self.model(given["ModelName"])
        container = model.multi_model_container
        if container is None:
            raise ValidationError("The local cloud serves containers in MultiModel mode and records inference components, nothing else.")
        location = _PREFIX_URL.fullmatch(container["ModelDataUrl"])
        assert location is not None, "CreateModel checks it"
        image = self._image(container["Image"])
        # Dots cannot stand in the names of endpoints and variants, so they separate the parts.
        fleet = f"{endpoint.name}.{endpoint.generation + 1}.{given['VariantName']}"
        spec = FleetSpec(
            endpoint_name=fleet,
            variant_name=given["VariantName"],
            instance_count=count,
            image=container["Image"],
            bucket=location[1],
            models_prefix=location[2] if location[2].endswith("/") or not location[2] else f"{location[2]}/",
            cache_enabled=container.get("MultiModelConfig", {}).get("ModelCacheSetting") != "Disabled",
            environment=container.get("Environment", {}),
            handler=image.handler if image is not None else None,
            refusal=_PIPELINE if len(model.containers) > 1 else None,
        )
        images = tuple(str(item["Image"]) for item in model.containers if "Image" in item)
        return _Plan(Variant(given["VariantName"], fleet, images, given, count, weight), spec, model.role_arn)

    async def invoke(self, endpoint: Endpoint, request: InvokeRequest, variant_name: str | None = None) -> tuple[Variant, InvokeReply]:
        """Route one request to a current fleet, which stays until it has answered.

        Args:
            endpoint: one that serves models.
            request: what reaches the container.
            variant_name: an existing variant; chosen by the weights when not given.
        """
        variant = endpoint.variant(variant_name) if variant_name is not None else self._weighted(endpoint.variants)
        assert variant is not None
        assert variant.fleet is not None
        fleet = variant.fleet
        self._under_way[fleet] += 1
        try:
            return variant, await self.fleets().invoke(fleet, request)
        finally:
            async with self._less_under_way:
                self._under_way[fleet] -= 1
                self._less_under_way.notify_all()

    def _weighted(self, variants: Sequence[Variant]) -> Variant:
        """A variant by chance, each in the share of its weight (API reference: ProductionVariant, InitialVariantWeight)."""
        point = self._chance() * sum(variant.current_weight for variant in variants)
        for variant in variants:
            point -= variant.current_weight
            if point < 0:
                return variant
        return variants[-1]

    async def _drained(self, fleet: str) -> None:
        async with self._less_under_way:
            with suppress(TimeoutError):
                async with asyncio.timeout(INVOKE_TIMEOUT_SECONDS):
                    await self._less_under_way.wait_for(lambda: not self._under_way[fleet])
        del self._under_way[fleet]

    async def _resize(self, endpoint: Endpoint) -> None:
        for variant in endpoint.variants:
            if variant.desired_count != variant.current_count:
                way = "out" if variant.desired_count > variant.current_count else "in"
                self._set_doing(endpoint, [variant], "Updating", f"Scaling {way} desired instance count to {variant.desired_count}.")
            if variant.fleet is not None and variant.desired_count != variant.current_count:
                try:
                    await self.fleets().resize_fleet(variant.fleet, variant.desired_count)
                except BaseException:
                    for other in endpoint.variants:
                        other.desired_count, other.desired_weight = other.current_count, other.current_weight
                    raise
            variant.current_count, variant.current_weight = variant.desired_count, variant.desired_weight
            variant.doing = None

    async def _remove(self, endpoint: Endpoint) -> None:
        for fleet in endpoint.fleets:
            await self.fleets().stop_fleet(fleet)
        del self.endpoints[endpoint.name]

    def _check_instance_limit(self, config: EndpointConfig, replaced: Endpoint | None) -> None:
        self._check_limit(config.variants[0].get("InstanceType", ""), _instances(config), leaving_out=replaced)

    def _check_limit(self, instance_type: str, delta: int, leaving_out: Endpoint | None = None) -> None:
        used = 0
        for endpoint in self.endpoints.values():
            if endpoint is leaving_out or endpoint.status == "Failed":
                continue
            if endpoint.variants:
                used += sum(variant.desired_count for variant in endpoint.variants)
            elif (config := self.configs.get(endpoint.config_name)) is not None:
                used += _instances(config)
        if used + delta > self._instance_limit:
            raise exceptions.over_instance_limit(instance_type, self._instance_limit, used, delta)

    # Tags

    def tags_of(self, arn: str) -> dict[str, str]:
        """The tags of a resource, to read and change; raises `ValidationError` when there is no such resource."""
        for resources in (self.models, self.configs, self.endpoints, self.components.by_name):
            for resource in resources.values():
                if resource.arn == arn:
                    return resource.tags
        kind = arn.split(":", 5)[-1].partition("/")[0]
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
        endpoints = list(self.endpoints.values())
        for endpoint in endpoints:
            if endpoint.task is not None and not endpoint.task.done():
                endpoint.task.cancel()
                with suppress(asyncio.CancelledError):
                    await endpoint.task
        for endpoint in endpoints:
            for fleet in endpoint.fleets:
                with suppress(Exception):
                    await self.fleets().stop_fleet(fleet)
        self.components.by_name.clear()
        self.models.clear()
        self.configs.clear()
        self.endpoints.clear()


def _found(resources: Mapping[str, Resource], name: str, word: str, arn: str) -> Resource:
    if name not in resources:
        raise exceptions.could_not_find(word, arn)
    return resources[name]


def _instances(config: EndpointConfig) -> int:
    return sum(variant.get("InitialInstanceCount", 0) for variant in config.variants)


def _tags(request: Mapping[str, Any]) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in request.get("Tags", [])}


def _check_container(container: Mapping[str, Any]) -> None:
    if "ModelPackageName" not in container and "Image" not in container:
        raise ValidationError("A container needs Image or ModelPackageName.")
    if container.get("Mode") != "MultiModel":
        return
    if "Image" not in container:
        raise ValidationError("Model packages are not supported with multi-model containers: give Image.")
    if "ModelDataSource" in container:
        raise ValidationError("ModelDataSource is not supported with multi-model containers: use ModelDataUrl.")
    url = container.get("ModelDataUrl")
    if url is None:
        raise ValidationError("ModelDataUrl is required for a container in MultiModel mode.")
    location = _PREFIX_URL.fullmatch(url)
    if location is None or url.endswith((".tar.gz", ".tgz")):
        raise ValidationError(f"ModelDataUrl {url} must be an S3 prefix such as s3://bucket/models/ for a container in MultiModel mode.")
