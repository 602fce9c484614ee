# ruff: noqa: ARG002 - the emulator's engine calls provisioners with these arguments
"""Provisioners of SageMaker's resource types. They run on worker threads and act on the event loop.

A physical id (what Ref gives) is the resource's ARN.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from mme_local.loop import LoopBridge
from mme_local.patches import physical_name
from mme_local.sagemaker.models import SageMaker
from mme_local.sagemaker.resources import Endpoint, EndpointConfig, InferenceComponent, Model
from mme_local.sagemaker.responses import OPERATIONS
from mme_local.wire import service_model

__all__ = ["EndpointConfigProvisioner", "EndpointProvisioner", "InferenceComponentProvisioner", "ModelProvisioner"]

Properties = Mapping[str, Any]
Provisioned = tuple[str, dict[str, str]]
Resource = TypeVar("Resource", Model, EndpointConfig, Endpoint, InferenceComponent)

_NAME_CHARACTERS = 63
_FIXED = ("InferenceComponentName", "EndpointName", "VariantName")
_CHANGING = ("Specification", "Specifications", "RuntimeConfig")


class EndpointFailedError(RuntimeError):
    """An endpoint did not reach InService."""


class ComponentFailedError(RuntimeError):
    """An inference component did not reach InService, or not as it was to be."""


def _request(operation: str, name_member: str, logical_id: str, properties: Properties, stack: str) -> dict[str, Any]:
    named = {name_member: physical_name(stack, logical_id, _NAME_CHARACTERS), **properties}
    return service_model("sagemaker", OPERATIONS).validated(operation, named, from_template=True)


def _by_arn(resources: Mapping[str, Resource], arn: str) -> Resource | None:
    return next((resource for resource in resources.values() if resource.arn == arn), None)


def _set_tags(resource: Model | EndpointConfig | Endpoint | InferenceComponent, properties: Properties) -> None:
    resource.tags.clear()
    resource.tags.update({tag["Key"]: str(tag["Value"]) for tag in properties.get("Tags") or []})


class ModelProvisioner:
    """``AWS::SageMaker::Model``."""

    def __init__(self, sagemaker: SageMaker, bridge: LoopBridge) -> None:
        self._sagemaker, self._bridge = sagemaker, bridge

    def create(self, logical_id: str, properties: Properties, stack: str) -> Provisioned:
        """Create the model."""
        request = _request("CreateModel", "ModelName", logical_id, properties, stack)
        model = self._bridge.call(lambda: self._sagemaker.create_model(request))
        return model.arn, {"ModelName": model.name}

    def update(self, physical_id: str, old: Properties, new: Properties, stack: str) -> Provisioned:
        """Change tags, the only thing that does not replace a model."""

        def change() -> Provisioned:
            model = _by_arn(self._sagemaker.models, physical_id)
            if model is None:
                raise LookupError(f"Model {physical_id} does not exist.")
            _set_tags(model, new)
            return model.arn, {"ModelName": model.name}

        return self._bridge.call(change)

    def delete(self, physical_id: str, properties: Properties) -> None:
        """Delete the model if it is there."""

        def remove() -> None:
            if (model := _by_arn(self._sagemaker.models, physical_id)) is not None:
                self._sagemaker.delete_model(model.name)

        self._bridge.call(remove)


class EndpointConfigProvisioner:
    """``AWS::SageMaker::EndpointConfig``."""

    def __init__(self, sagemaker: SageMaker, bridge: LoopBridge) -> None:
        self._sagemaker, self._bridge = sagemaker, bridge

    def create(self, logical_id: str, properties: Properties, stack: str) -> Provisioned:
        """Create the configuration."""
        request = _request("CreateEndpointConfig", "EndpointConfigName", logical_id, properties, stack)
        config = self._bridge.call(lambda: self._sagemaker.create_endpoint_config(request))
        return config.arn, {"EndpointConfigName": config.name}

    def update(self, physical_id: str, old: Properties, new: Properties, stack: str) -> Provisioned:
        """Change tags, the only thing that does not replace a configuration."""

        def change() -> Provisioned:
            config = _by_arn(self._sagemaker.configs, physical_id)
            if config is None:
                raise LookupError(f"Endpoint configuration {physical_id} does not exist.")
            _set_tags(config, new)
            return config.arn, {"EndpointConfigName": config.name}

        return self._bridge.call(change)

    def delete(self, physical_id: str, properties: Properties) -> None:
        """Delete the configuration if it is there."""

        def remove() -> None:
            if (config := _by_arn(self._sagemaker.configs, physical_id)) is not None:
                self._sagemaker.delete_endpoint_config(config.name)

        self._bridge.call(remove)


class EndpointProvisioner:
    """``AWS::SageMaker::Endpoint``: waits until the fleet serves, as CloudFormation does."""

    def __init__(self, sagemaker: SageMaker, bridge: LoopBridge) -> None:
        self._sagemaker, self._bridge = sagemaker, bridge

    def create(self, logical_id: str, properties: Properties, stack: str) -> Provisioned:
        """Create the endpoint; raises `EndpointFailedError` and leaves nothing when the fleet fails."""
        request = _request("CreateEndpoint", "EndpointName", logical_id, properties, stack)

        async def _create() -> Provisioned:
            endpoint = self._sagemaker.create_endpoint(request)
            await endpoint.settled.wait()
            if endpoint.status != "InService":
                reason = endpoint.failure_reason
                await self._remove(endpoint)
                raise EndpointFailedError(f"Endpoint {endpoint.name} failed: {reason}")
            return endpoint.arn, {"EndpointName": endpoint.name}

        return self._bridge.run(_create)

    def update(self, physical_id: str, old: Properties, new: Properties, stack: str) -> Provisioned:
        """Move the endpoint to another configuration; raises `EndpointFailedError` when the new fleet fails."""

        async def _update() -> Provisioned:
            endpoint = _by_arn(self._sagemaker.endpoints, physical_id)
            if endpoint is None:
                raise LookupError(f"Endpoint {physical_id} does not exist.")
            await endpoint.settled.wait()
            if new["EndpointConfigName"] != endpoint.config_name:
                model = service_model("sagemaker", OPERATIONS)
                given = {**new, "EndpointName": endpoint.name}
                self._sagemaker.update_endpoint(model.validated("UpdateEndpoint", given, from_template=True))
                await endpoint.settled.wait()
                if endpoint.failure_reason is not None:
                    raise EndpointFailedError(f"Endpoint {endpoint.name} kept its old fleet: {endpoint.failure_reason}")
            _set_tags(endpoint, new)
            return endpoint.arn, {"EndpointName": endpoint.name}

        return self._bridge.run(_update)

    def delete(self, physical_id: str, properties: Properties) -> None:
        """Delete the endpoint if it is there and wait until its fleet is gone."""

        async def _delete() -> None:
            endpoint = _by_arn(self._sagemaker.endpoints, physical_id)
            if endpoint is not None:
                await endpoint.settled.wait()
                await self._remove(endpoint)

        self._bridge.run(_delete)

    async def _remove(self, endpoint: Endpoint) -> None:
        if self._sagemaker.endpoints.get(endpoint.name) is endpoint:
            self._sagemaker.delete_endpoint(endpoint.name)
            await endpoint.settled.wait()
        if endpoint.failure_reason is not None and endpoint.name in self._sagemaker.endpoints:
            raise EndpointFailedError(f"Endpoint {endpoint.name} could not be deleted: {endpoint.failure_reason}")


class InferenceComponentProvisioner:
    """``AWS::SageMaker::InferenceComponent``."""

    def __init__(self, sagemaker: SageMaker, bridge: LoopBridge) -> None:
        self._sagemaker, self._bridge = sagemaker, bridge

    def create(self, logical_id: str, properties: Properties, stack: str) -> Provisioned:
        """Create the component; raises `ComponentFailedError` and leaves nothing when its copies do not fit or start."""
        request = _request("CreateInferenceComponent", "InferenceComponentName", logical_id, _with_endpoint(properties), stack)
        tags = {tag["Key"]: tag["Value"] for tag in request.get("Tags", [])}

        async def _create() -> Provisioned:
            component = self._sagemaker.components.create(request, tags)
            await component.settled.wait()
            if component.status != "InService":
                reason = component.failure_reason
                await self._remove(component)
                raise ComponentFailedError(f"Inference component {component.name} failed: {reason}")
            return _described(component)

        return self._bridge.run(_create)

    def update(self, physical_id: str, old: Properties, new: Properties, stack: str) -> Provisioned:
        """Change specification, copies or tags; what stays the same in the template is left as it is."""

        async def _update() -> Provisioned:
            component = _by_arn(self._sagemaker.components.by_name, physical_id)
            if component is None:
                raise LookupError(f"Inference component {physical_id} does not exist.")
            await component.settled.wait()
            if fixed := [name for name in _FIXED if _with_endpoint(old).get(name) != _with_endpoint(new).get(name)]:
                # The registry schema has no create-only properties for the type, and no operation changes these.
                raise ComponentFailedError(f"{', '.join(fixed)} of inference component {component.name} cannot be changed: make another")
            changed = {name: new[name] for name in _CHANGING if name in new and old.get(name) != new[name]}
            if changed:
                given = {**changed, "InferenceComponentName": component.name}
                if "DeploymentConfig" in new:
                    given["DeploymentConfig"] = new["DeploymentConfig"]
                model = service_model("sagemaker", OPERATIONS)
                self._sagemaker.components.update(model.validated("UpdateInferenceComponent", given, from_template=True))
                await component.settled.wait()
                if component.failure_reason is not None:
                    raise ComponentFailedError(f"Inference component {component.name} kept its old copies: {component.failure_reason}")
            _set_tags(component, new)
            return _described(component)

        return self._bridge.run(_update)

    def delete(self, physical_id: str, properties: Properties) -> None:
        """Delete the component if it is there and wait until its copies are gone."""

        async def _delete() -> None:
            component = _by_arn(self._sagemaker.components.by_name, physical_id)
            if component is not None:
                await component.settled.wait()
                await self._remove(component)

        self._bridge.run(_delete)

    async def _remove(self, component: InferenceComponent) -> None:
        if self._sagemaker.components.by_name.get(component.name) is component:
            self._sagemaker.components.delete(component.name)
            await component.settled.wait()
        if component.name in self._sagemaker.components.by_name:
            raise ComponentFailedError(f"Inference component {component.name} could not be deleted: {component.failure_reason}")


def _with_endpoint(properties: Properties) -> Properties:
    """EndpointName may be an endpoint's ARN, which is what Ref of one gives."""
    name = str(properties.get("EndpointName", ""))
    return {**properties, "EndpointName": name.rpartition("/")[2]} if name.startswith("arn:") else properties


def _described(component: InferenceComponent) -> Provisioned:
    return component.arn, {
        "InferenceComponentArn": component.arn,
        "InferenceComponentStatus": component.status,
        "CreationTime": component.created.isoformat(),
        "LastModifiedTime": component.modified.isoformat(),
        "RuntimeConfig.CurrentCopyCount": str(component.current),
        "RuntimeConfig.DesiredCopyCount": str(component.copies),
    }
