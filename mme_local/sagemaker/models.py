"""What creating, changing and deleting SageMaker's resources means.

All methods run on the gateway's event loop; nothing here does I/O but through the fleets given.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, TypeVar

from mme_facts.limits import INVOKE_TIMEOUT_SECONDS
from mme_local.dataplane.interface import ArtifactSource, FleetSpec, InvokeReply, InvokeRequest
from mme_local.sagemaker import exceptions
from mme_local.sagemaker.resources import Endpoint, EndpointConfig, Fleets, Model, ResourceKind, Variant, arn_of
from mme_local.wire import AwsError, ValidationError

__all__ = ["SageMaker"]

logger = logging.getLogger(__name__)

Resource = TypeVar("Resource")
_WORDS: Mapping[ResourceKind, str] = {"model": "model", "endpoint-config": "endpoint configuration", "endpoint": "endpoint"}
_PREFIX_URL = re.compile(r"s3://([^/]+)/?(.*)")
_MAX_TAGS = 50


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
    ) -> None:
        self.region, self.account, self.fleets = region, account, fleets
        self._artifacts, self._check_role, self._now, self._instance_limit = artifacts, check_role, now, instance_limit
        self._under_way: Counter[str] = Counter()
        self._less_under_way = asyncio.Condition()
        self.models: dict[str, Model] = {}
        self.configs: dict[str, EndpointConfig] = {}
        self.endpoints: dict[str, Endpoint] = {}

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
        for variant in variants:
            self._check_variant(variant)
        self.configs[name] = EndpointConfig(name, self.arn("endpoint-config", name), request, self._now(), _tags(request))
        return self.configs[name]

    def _check_variant(self, variant: Mapping[str, Any]) -> None:
        if "ModelName" not in variant:
            raise ValidationError(f"Variant {variant['VariantName']}: ModelName is required; the local cloud has no inference components.")
        model = self.model(variant["ModelName"])
        if model.container.get("Mode") == "MultiModel" and "ServerlessConfig" in variant:
            raise ValidationError("ServerlessConfig is not supported with multi-model containers.")
        for required in ("InitialInstanceCount", "InstanceType"):
            if required not in variant and "ServerlessConfig" not in variant:
                raise ValidationError(f"Variant {variant['VariantName']}: {required} is required.")

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
        self._begin(endpoint, "Creating", lambda: self._replace_fleet(endpoint, config, keep_count=False))
        return endpoint

    def update_endpoint(self, request: Mapping[str, Any]) -> Endpoint:
        """Replace an endpoint's fleet by one of another configuration, in the background; raises `AwsError`."""
        endpoint = self._settled_endpoint(request["EndpointName"])
        config = self.endpoint_config(request["EndpointConfigName"])
        excluded = {entry["VariantPropertyType"] for entry in request.get("ExcludeRetainedVariantProperties", [])}
        keep_count = bool(request.get("RetainAllVariantProperties")) and "DesiredInstanceCount" not in excluded
        self._check_instance_limit(config, endpoint)
        self._begin(endpoint, "Updating", lambda: self._replace_fleet(endpoint, config, keep_count=keep_count))
        return endpoint

    def update_weights_and_capacities(self, request: Mapping[str, Any]) -> Endpoint:
        """Change an endpoint's instance count or weight, in the background; raises `AwsError`."""
        endpoint = self._settled_endpoint(request["EndpointName"])
        variant = endpoint.variant
        assert variant is not None
        for change in request["DesiredWeightsAndCapacities"]:
            if change["VariantName"] != variant.name:
                raise ValidationError(f'Could not find variant "{change["VariantName"]}" on endpoint "{endpoint.arn}".')
            count = change.get("DesiredInstanceCount", variant.desired_count)
            if count < 1:
                raise ValidationError(f"DesiredInstanceCount {count} is not allowed: an endpoint of models has at least 1 instance.")
            self._check_limit(variant.instance_type, count - variant.desired_count)
            variant.desired_count = count
            variant.desired_weight = change.get("DesiredWeight", variant.desired_weight)
        self._begin(endpoint, "Updating", lambda: self._resize(endpoint, variant))
        return endpoint

    def endpoint(self, name: str) -> Endpoint:
        """An endpoint by name; raises `ValidationError`."""
        return _found(self.endpoints, name, "endpoint", self.arn("endpoint", name))

    def delete_endpoint(self, name: str) -> Endpoint:
        """Stop an endpoint's fleet and forget the endpoint, in the background; raises `ValidationError`."""
        endpoint = self.endpoint(name)
        if endpoint.status not in ("InService", "Failed", "OutOfService"):
            raise exceptions.in_progress(endpoint.arn)
        self._begin(endpoint, "Deleting", lambda: self._remove(endpoint))
        return endpoint

    def _settled_endpoint(self, name: str) -> Endpoint:
        endpoint = self.endpoint(name)
        if endpoint.status != "InService":
            raise exceptions.in_progress(endpoint.arn)
        return endpoint

    def _begin(self, endpoint: Endpoint, status: str, change: Callable[[], Awaitable[None]]) -> None:
        endpoint.status, endpoint.modified = status, self._now()
        endpoint.settled.clear()
        endpoint.task = asyncio.get_running_loop().create_task(self._settle(endpoint, change), name=f"{status} {endpoint.name}")

    async def _settle(self, endpoint: Endpoint, change: Callable[[], Awaitable[None]]) -> None:
        creating = endpoint.status == "Creating"
        try:
            await change()
            endpoint.failure_reason = None
            if endpoint.status != "Deleting":
                endpoint.status = "InService"
        except Exception as error:
            # Whatever went wrong below is the endpoint's failure, as on AWS; the gateway goes on.
            logger.exception("endpoint %s", endpoint.name)
            endpoint.failure_reason = str(error) or type(error).__name__
            endpoint.status = "Failed" if creating else "InService"
        finally:
            endpoint.modified = self._now()
            endpoint.settled.set()

    async def _replace_fleet(self, endpoint: Endpoint, config: EndpointConfig, *, keep_count: bool) -> None:
        old, old_fleet = endpoint.variant, endpoint.fleet
        new, spec, role_arn = self._fleet_of(endpoint, config, old.desired_count if old and keep_count else None)
        artifacts = self._artifacts(spec.bucket, role_arn, endpoint.name)
        try:
            await self.fleets().start_fleet(spec, artifacts)
        except BaseException:
            with suppress(Exception):
                await self.fleets().stop_fleet(spec.endpoint_name)
            raise
        endpoint.generation += 1
        new.current_count, new.current_weight = new.desired_count, new.desired_weight
        endpoint.variant, endpoint.config_name = new, config.name
        if old is not None:
            await self._drained(old_fleet)
            try:
                await self.fleets().stop_fleet(old_fleet)
            except Exception:
                # The new fleet serves already: the update has succeeded.
                logger.exception("endpoint %s: its old fleet did not stop", endpoint.name)

    def _fleet_of(self, endpoint: Endpoint, config: EndpointConfig, kept_count: int | None) -> tuple[Variant, FleetSpec, str]:
        if len(config.variants) > 1:
            raise ValidationError("The local cloud serves endpoints of one production variant.")
        given = config.variants[0]
        model = self.model(given["ModelName"])
        container = model.container
        if container.get("Mode") != "MultiModel" or len(model.request.get("Containers", [])) > 1:
            raise ValidationError("The local cloud serves single containers in MultiModel mode only.")
        location = _PREFIX_URL.fullmatch(container["ModelDataUrl"])
        assert location is not None, "CreateModel checks it"
        count = kept_count or given["InitialInstanceCount"]
        variant = Variant(given["VariantName"], container["Image"], given["InstanceType"], count, given.get("InitialVariantWeight", 1.0))
        spec = FleetSpec(
            endpoint_name=f"{endpoint.name}.{endpoint.generation + 1}",
            variant_name=variant.name,
            instance_count=count,
            image=variant.image,
            bucket=location[1],
            models_prefix=location[2] if location[2].endswith("/") or not location[2] else f"{location[2]}/",
            cache_enabled=container.get("MultiModelConfig", {}).get("ModelCacheSetting") != "Disabled",
            environment=container.get("Environment", {}),
        )
        return variant, spec, model.role_arn

    async def invoke(self, endpoint: Endpoint, request: InvokeRequest) -> InvokeReply:
        """Route one request to the endpoint's current fleet, which stays until it has answered."""
        fleet = endpoint.fleet
        self._under_way[fleet] += 1
        try:
            return await self.fleets().invoke(fleet, request)
        finally:
            async with self._less_under_way:
                self._under_way[fleet] -= 1
                self._less_under_way.notify_all()

    async def _drained(self, fleet: str) -> None:
        async with self._less_under_way:
            with suppress(TimeoutError):
                async with asyncio.timeout(INVOKE_TIMEOUT_SECONDS):
                    await self._less_under_way.wait_for(lambda: not self._under_way[fleet])
        del self._under_way[fleet]

    async def _resize(self, endpoint: Endpoint, variant: Variant) -> None:
        if variant.desired_count != variant.current_count:
            try:
                await self.fleets().resize_fleet(endpoint.fleet, variant.desired_count)
            except BaseException:
                variant.desired_count = variant.current_count
                raise
        variant.current_count, variant.current_weight = variant.desired_count, variant.desired_weight

    async def _remove(self, endpoint: Endpoint) -> None:
        if endpoint.variant is not None:
            await self.fleets().stop_fleet(endpoint.fleet)
        del self.endpoints[endpoint.name]

    def _check_instance_limit(self, config: EndpointConfig, replaced: Endpoint | None) -> None:
        given = config.variants[0]
        self._check_limit(given.get("InstanceType", ""), given.get("InitialInstanceCount", 0), leaving_out=replaced)

    def _check_limit(self, instance_type: str, delta: int, leaving_out: Endpoint | None = None) -> None:
        used = 0
        for endpoint in self.endpoints.values():
            if endpoint is leaving_out or endpoint.status == "Failed":
                continue
            config = self.configs.get(endpoint.config_name)
            if endpoint.variant is not None:
                used += endpoint.variant.desired_count
            elif config is not None:
                used += config.variants[0].get("InitialInstanceCount", 0)
        if used + delta > self._instance_limit:
            raise exceptions.over_instance_limit(instance_type, self._instance_limit, used, delta)

    # Tags

    def tags_of(self, arn: str) -> dict[str, str]:
        """The tags of a resource, to read and change; raises `ValidationError` when there is no such resource."""
        for resources in (self.models, self.configs, self.endpoints):
            for resource in resources.values():
                if resource.arn == arn:
                    return resource.tags
        kind = arn.split(":", 5)[-1].partition("/")[0]
        raise exceptions.could_not_find(kind.replace("-", " "), arn)

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
            if endpoint.variant is not None:
                with suppress(Exception):
                    await self.fleets().stop_fleet(endpoint.fleet)
        self.models.clear()
        self.configs.clear()
        self.endpoints.clear()


def _found(resources: Mapping[str, Resource], name: str, word: str, arn: str) -> Resource:
    if name not in resources:
        raise exceptions.could_not_find(word, arn)
    return resources[name]


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
