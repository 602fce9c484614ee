"""Inference components: validated and recorded. Nothing runs for them, and invoking one says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from mme_local.sagemaker import exceptions
from mme_local.sagemaker.resources import Endpoint, InferenceComponent, Model
from mme_local.wire import ValidationError

__all__ = ["InferenceComponents"]

_KEPT = ("Specification", "Specifications", "DeploymentConfig")


class InferenceComponents:
    """The inference components of one account and region.

    Args:
        arn: makes the ARN of a component's name.
        endpoint: an endpoint by name; raises `ValidationError`.
        model: a model by name; raises `ValidationError`.
        now: the clock.
    """

    def __init__(
        self,
        *,
        arn: Callable[[str], str],
        endpoint: Callable[[str], Endpoint],
        model: Callable[[str], Model],
        now: Callable[[], datetime],
    ) -> None:
        self._arn, self._endpoint, self._model, self._now = arn, endpoint, model, now
        self.by_name: dict[str, InferenceComponent] = {}

    def create(self, request: Mapping[str, Any], tags: dict[str, str]) -> InferenceComponent:
        """Record a component; raises `ValidationError`."""
        name = request["InferenceComponentName"]
        if any(name.lower() == other.lower() for other in self.by_name):
            raise exceptions.already_exists("inference component", self._arn(name))
        endpoint = self._endpoint(request["EndpointName"])
        if not endpoint.hosts_components:
            raise ValidationError(
                f'Endpoint "{endpoint.arn}" serves the models of its endpoint configuration: inference components need an endpoint whose '
                "variants have no ModelName."
            )
        if endpoint.status != "InService":
            raise ValidationError(f'Endpoint "{endpoint.arn}" is not InService but {endpoint.status}.')
        variant = request.get("VariantName", endpoint.variants[0].name)
        if endpoint.variant(variant) is None:
            raise ValidationError(f'Could not find variant "{variant}" on endpoint "{endpoint.arn}".')
        self._check(request, endpoint.name)
        adapter = any("BaseInferenceComponentName" in given for given in _specifications(request))
        if not adapter and "RuntimeConfig" not in request:
            raise ValidationError("RuntimeConfig with CopyCount is required for an inference component that is no adapter.")
        now = self._now()
        copies = request.get("RuntimeConfig", {"CopyCount": 0})["CopyCount"]
        component = InferenceComponent(name, self._arn(name), endpoint.name, variant, dict(request), now, now, copies, tags=tags)
        self.by_name[name] = component
        return component

    def update(self, request: Mapping[str, Any]) -> InferenceComponent:
        """Change a component's specification or copies; raises `ValidationError`."""
        component = self.get(request["InferenceComponentName"])
        if _specifications(request):
            self._check(request, component.endpoint_name)
            for member in ("Specification", "Specifications"):
                component.request.pop(member, None)
        component.request.update({member: request[member] for member in _KEPT if member in request})
        component.copies = request.get("RuntimeConfig", {"CopyCount": component.copies})["CopyCount"]
        component.modified = self._now()
        return component

    def set_copies(self, name: str, copies: int) -> InferenceComponent:
        """Change the number of copies; raises `ValidationError`."""
        component = self.get(name)
        component.copies, component.modified = copies, self._now()
        return component

    def get(self, name: str) -> InferenceComponent:
        """A component by name; raises `ValidationError`."""
        if name not in self.by_name:
            raise exceptions.could_not_find("inference component", self._arn(name))
        return self.by_name[name]

    def delete(self, name: str) -> None:
        """Forget a component; raises `ValidationError`, also while adapters need it."""
        self.get(name)
        adapters = [
            other.name
            for other in self.by_name.values()
            if any(given.get("BaseInferenceComponentName") == name for given in _specifications(other.request))
        ]
        if adapters:
            raise ValidationError(f"Inference component {name} is the base of {', '.join(adapters)}: delete those first.")
        del self.by_name[name]

    def of_endpoint(self, name: str) -> list[str]:
        """The names of the components on an endpoint."""
        return [component.name for component in self.by_name.values() if component.endpoint_name == name]

    def _check(self, request: Mapping[str, Any], endpoint_name: str) -> None:
        if ("Specification" in request) == ("Specifications" in request):
            raise ValidationError("Exactly one of Specification and Specifications must be given.")
        for given in _specifications(request):
            if base := given.get("BaseInferenceComponentName"):
                if self.get(base).endpoint_name != endpoint_name:
                    raise ValidationError(f"Inference component {base} is not on endpoint {endpoint_name}.")
                if "ComputeResourceRequirements" in given:
                    raise ValidationError("ComputeResourceRequirements are those of the base: an adapter has none of its own.")
                continue
            if ("ModelName" in given) == ("Container" in given):
                raise ValidationError("A specification needs exactly one of ModelName and Container.")
            if "Container" in given and "Image" not in given["Container"]:
                raise ValidationError("Container.Image is required for an inference component that is no adapter.")
            if "ModelName" in given:
                self._model(given["ModelName"])
            if "ComputeResourceRequirements" not in given:
                raise ValidationError("ComputeResourceRequirements are required for an inference component that is no adapter.")
            needs = given["ComputeResourceRequirements"]
            if needs.get("MaxMemoryRequiredInMb", needs["MinMemoryRequiredInMb"]) < needs["MinMemoryRequiredInMb"]:
                raise ValidationError("MaxMemoryRequiredInMb cannot be less than MinMemoryRequiredInMb.")


def _specifications(request: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    many: Sequence[Mapping[str, Any]] = request.get("Specifications", [])
    return [request["Specification"]] if "Specification" in request else many
