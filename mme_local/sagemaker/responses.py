"""The SageMaker control plane: one method per operation, request in, answer out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from mme_local.emulator import Request, authorize
from mme_local.sagemaker.models import SageMaker
from mme_local.sagemaker.resources import Doing, Endpoint, EndpointConfig, InferenceComponent, Model, ResourceKind, Variant
from mme_local.wire import ValidationError, service_model

__all__ = ["OPERATIONS", "ControlPlane"]

OPERATIONS = (
    "AddTags",
    "CreateEndpoint",
    "CreateEndpointConfig",
    "CreateInferenceComponent",
    "CreateModel",
    "DeleteEndpoint",
    "DeleteEndpointConfig",
    "DeleteInferenceComponent",
    "DeleteModel",
    "DeleteTags",
    "DescribeEndpoint",
    "DescribeEndpointConfig",
    "DescribeInferenceComponent",
    "DescribeModel",
    "ListEndpointConfigs",
    "ListEndpoints",
    "ListInferenceComponents",
    "ListModels",
    "ListTags",
    "UpdateEndpoint",
    "UpdateEndpointWeightsAndCapacities",
    "UpdateInferenceComponent",
    "UpdateInferenceComponentRuntimeConfig",
)

_NAMED: Mapping[str, ResourceKind] = {
    "ModelName": "model",
    "EndpointConfigName": "endpoint-config",
    "EndpointName": "endpoint",
    "InferenceComponentName": "inference-component",
}
_PAGE = 10
_SEVERAL_RESOURCES: Mapping[str, Sequence[str]] = {
    "CreateEndpoint": ("EndpointName", "EndpointConfigName"),
    "UpdateEndpoint": ("EndpointName", "EndpointConfigName"),
    "CreateInferenceComponent": ("EndpointName", "InferenceComponentName"),
}
_KINDS = ("InferenceComponent", "EndpointConfig", "Endpoint", "Model")
_WITH_ROLE = "CreateModel", "CreateEndpointConfig"
Document = dict[str, Any]


class ControlPlane:
    """Serves the operations of `OPERATIONS`.

    Args:
        sagemaker: the resources.
    """

    def __init__(self, sagemaker: SageMaker) -> None:
        self._sagemaker = sagemaker

    def serve(self, request: Request, operation: str, parameters: object) -> Document:
        """Validate, authorize and perform one operation.

        Raises:
            AwsError: the operation refuses.
            AccessDeniedError: the caller may not.
        """
        model = service_model("sagemaker", OPERATIONS)
        invalid: ValidationError | None = None
        validated: Document = {}
        try:
            validated = model.validated(operation, parameters)
        except ValidationError as error:
            # Values of a wrong type are refused at once: permissions are about these values. Wrong values only to who may.
            invalid = error
        assert isinstance(parameters, dict)
        known = model.members(operation)
        self._authorize(request, operation, {name: value for name, value in parameters.items() if name in known})
        if invalid is not None:
            raise invalid
        handler: Callable[[Mapping[str, Any]], Document] = getattr(self, f"_{_snake(operation)}")
        return handler(validated)

    def _authorize(self, request: Request, operation: str, given: Mapping[str, Any]) -> None:
        tags = given.get("Tags") or []
        context: dict[str, Any] = {f"aws:RequestTag/{tag.get('Key')}": tag.get("Value") for tag in tags}
        if keys := [str(tag.get("Key")) for tag in tags] or given.get("TagKeys"):
            context["aws:TagKeys"] = keys
        for resource in self._resources(operation, given):
            authorize(request, f"sagemaker:{operation}", resource, {**context, **self._sagemaker.tag_context(resource)})
        if operation in _WITH_ROLE and "ExecutionRoleArn" in given:
            authorize(request, "iam:PassRole", str(given["ExecutionRoleArn"]), {"iam:PassedToService": "sagemaker.amazonaws.com"})

    def _resources(self, operation: str, given: Mapping[str, Any]) -> list[str]:
        """The ARNs that IAM checks (Service Authorization Reference: Amazon SageMaker)."""
        if operation.startswith("List") and operation != "ListTags":
            return ["*"]
        if "ResourceArn" in given:
            return [str(given["ResourceArn"])]
        kind = next(kind for kind in _KINDS if kind in operation)
        names = _SEVERAL_RESOURCES.get(operation, (f"{kind}Name",))
        return [self._sagemaker.arn(_NAMED[name], str(given.get(name, ""))) for name in names]

    # Models

    def _create_model(self, given: Mapping[str, Any]) -> Document:
        return {"ModelArn": self._sagemaker.create_model(given).arn}

    def _describe_model(self, given: Mapping[str, Any]) -> Document:
        model = self._sagemaker.model(given["ModelName"])
        kept = ("PrimaryContainer", "Containers", "InferenceExecutionConfig", "ExecutionRoleArn", "VpcConfig")
        return {
            "ModelName": model.name,
            "ModelArn": model.arn,
            "CreationTime": model.created,
            "EnableNetworkIsolation": model.request.get("EnableNetworkIsolation", False),
            **_only(model.request, kept),
        }

    def _delete_model(self, given: Mapping[str, Any]) -> Document:
        self._sagemaker.delete_model(given["ModelName"])
        return {}

    def _list_models(self, given: Mapping[str, Any]) -> Document:
        page, more = _page(self._sagemaker.models.values(), given)
        return {"Models": [{"ModelName": item.name, "ModelArn": item.arn, "CreationTime": item.created} for item in page], **more}

    # Endpoint configurations

    def _create_endpoint_config(self, given: Mapping[str, Any]) -> Document:
        return {"EndpointConfigArn": self._sagemaker.create_endpoint_config(given).arn}

    def _describe_endpoint_config(self, given: Mapping[str, Any]) -> Document:
        config = self._sagemaker.endpoint_config(given["EndpointConfigName"])
        kept = ["DataCaptureConfig", "KmsKeyId", "AsyncInferenceConfig", "ExplainerConfig", "ShadowProductionVariants"]
        kept += ["ExecutionRoleArn", "VpcConfig", "EnableNetworkIsolation", "MetricsConfig"]
        return {
            "EndpointConfigName": config.name,
            "EndpointConfigArn": config.arn,
            "CreationTime": config.created,
            "ProductionVariants": [{"InitialVariantWeight": 1.0, **variant} for variant in config.variants],
            **_only(config.request, kept),
        }

    def _delete_endpoint_config(self, given: Mapping[str, Any]) -> Document:
        self._sagemaker.delete_endpoint_config(given["EndpointConfigName"])
        return {}

    def _list_endpoint_configs(self, given: Mapping[str, Any]) -> Document:
        page, more = _page(self._sagemaker.configs.values(), given)
        listed = [{"EndpointConfigName": item.name, "EndpointConfigArn": item.arn, "CreationTime": item.created} for item in page]
        return {"EndpointConfigs": listed, **more}

    # Endpoints

    def _create_endpoint(self, given: Mapping[str, Any]) -> Document:
        return {"EndpointArn": self._sagemaker.create_endpoint(given).arn}

    def _update_endpoint(self, given: Mapping[str, Any]) -> Document:
        return {"EndpointArn": self._sagemaker.update_endpoint(given).arn}

    def _update_endpoint_weights_and_capacities(self, given: Mapping[str, Any]) -> Document:
        return {"EndpointArn": self._sagemaker.update_weights_and_capacities(given).arn}

    def _delete_endpoint(self, given: Mapping[str, Any]) -> Document:
        self._sagemaker.delete_endpoint(given["EndpointName"])
        return {}

    def _describe_endpoint(self, given: Mapping[str, Any]) -> Document:
        endpoint = self._sagemaker.endpoint(given["EndpointName"])
        described: Document = {
            "EndpointName": endpoint.name,
            "EndpointArn": endpoint.arn,
            "EndpointConfigName": endpoint.config_name,
            "EndpointStatus": endpoint.status,
            "CreationTime": endpoint.created,
            "LastModifiedTime": endpoint.modified,
        }
        if endpoint.failure_reason is not None:
            described["FailureReason"] = endpoint.failure_reason
        if endpoint.variants:
            described["ProductionVariants"] = [_variant(variant, endpoint) for variant in endpoint.variants]
        if endpoint.deployment_config is not None:
            described["LastDeploymentConfig"] = endpoint.deployment_config
        if endpoint.pending is not None:
            described["PendingDeploymentSummary"] = {
                "EndpointConfigName": endpoint.pending.config_name,
                "ProductionVariants": [
                    {**_variant(variant, endpoint), "InstanceType": variant.instance_type} for variant in endpoint.pending.variants
                ],
                "StartTime": endpoint.pending.started,
            }
        if (config := self._sagemaker.configs.get(endpoint.config_name)) is not None:
            described.update(_only(config.request, ("AsyncInferenceConfig", "ExplainerConfig", "MetricsConfig")))
            if "DataCaptureConfig" in config.request:
                described["DataCaptureConfig"] = _data_capture(config.request["DataCaptureConfig"])
        return described

    def _list_endpoints(self, given: Mapping[str, Any]) -> Document:
        endpoints = self._sagemaker.endpoints.values()
        page, more = _page([item for item in endpoints if given.get("StatusEquals", item.status) == item.status], given)
        listed = [
            {
                "EndpointName": item.name,
                "EndpointArn": item.arn,
                "CreationTime": item.created,
                "LastModifiedTime": item.modified,
                "EndpointStatus": item.status,
            }
            for item in page
        ]
        return {"Endpoints": listed, **more}

    # Inference components

    def _create_inference_component(self, given: Mapping[str, Any]) -> Document:
        tags = {tag["Key"]: tag["Value"] for tag in given.get("Tags", [])}
        return {"InferenceComponentArn": self._sagemaker.components.create(given, tags).arn}

    def _update_inference_component(self, given: Mapping[str, Any]) -> Document:
        return {"InferenceComponentArn": self._sagemaker.components.update(given).arn}

    def _update_inference_component_runtime_config(self, given: Mapping[str, Any]) -> Document:
        copies = given["DesiredRuntimeConfig"]["CopyCount"]
        return {"InferenceComponentArn": self._sagemaker.components.set_copies(given["InferenceComponentName"], copies).arn}

    def _delete_inference_component(self, given: Mapping[str, Any]) -> Document:
        self._sagemaker.components.delete(given["InferenceComponentName"])
        return {}

    def _describe_inference_component(self, given: Mapping[str, Any]) -> Document:
        component = self._sagemaker.components.get(given["InferenceComponentName"])
        described: Document = {
            **_component(component, self._sagemaker.arn("endpoint", component.endpoint_name)),
            "RuntimeConfig": {"DesiredCopyCount": component.copies, "CurrentCopyCount": component.current},
        }
        if component.failure_reason is not None:
            described["FailureReason"] = component.failure_reason
        if "Specification" in component.request:
            described["Specification"] = _summary(component.request["Specification"], component)
        else:
            described["Specifications"] = [_summary(one, component) for one in component.request["Specifications"]]
        if component.deployment_config is not None:
            described["LastDeploymentConfig"] = component.deployment_config
        return described

    def _list_inference_components(self, given: Mapping[str, Any]) -> Document:
        wanted = [
            item
            for item in self._sagemaker.components.by_name.values()
            if given.get("StatusEquals", item.status) == item.status
            and given.get("EndpointNameEquals", item.endpoint_name) == item.endpoint_name
            and given.get("VariantNameEquals", item.variant_name) == item.variant_name
        ]
        page, more = _page(wanted, given)
        listed = [_component(item, self._sagemaker.arn("endpoint", item.endpoint_name)) for item in page]
        return {"InferenceComponents": listed, **more}

    # Tags

    def _add_tags(self, given: Mapping[str, Any]) -> Document:
        return {"Tags": _tag_list(self._sagemaker.add_tags(given["ResourceArn"], given["Tags"]))}

    def _list_tags(self, given: Mapping[str, Any]) -> Document:
        return {"Tags": _tag_list(self._sagemaker.tags_of(given["ResourceArn"]))}

    def _delete_tags(self, given: Mapping[str, Any]) -> Document:
        tags = self._sagemaker.tags_of(given["ResourceArn"])
        for key in given["TagKeys"]:
            tags.pop(key, None)
        return {}


def _snake(operation: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in operation).lstrip("_")


def _only(request: Mapping[str, Any], names: Sequence[str]) -> Document:
    return {name: request[name] for name in names if name in request}


def _tag_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def _variant(variant: Variant, endpoint: Endpoint) -> Document:
    images = [{"SpecifiedImage": image, "ResolvedImage": image, "ResolutionTime": endpoint.created} for image in variant.images]
    return {
        "VariantName": variant.name,
        **({"DeployedImages": images} if images else {}),
        "CurrentWeight": variant.current_weight,
        "DesiredWeight": variant.desired_weight,
        "CurrentInstanceCount": variant.current_count,
        "DesiredInstanceCount": variant.desired_count,
        **({"VariantStatus": [_doing(variant.doing)]} if variant.doing is not None else {}),
        **_only(variant.given, ("ManagedInstanceScaling", "RoutingConfig")),
    }


def _doing(doing: Doing) -> Document:
    return {"Status": doing.status, "StartTime": doing.started, **({"StatusMessage": doing.message} if doing.message else {})}


def _data_capture(config: Mapping[str, Any]) -> Document:
    """DataCaptureConfig as DescribeEndpoint tells it."""
    enabled = config.get("EnableCapture", False)
    return {
        "EnableCapture": enabled,
        "CaptureStatus": "Started" if enabled else "Stopped",
        "CurrentSamplingPercentage": config["InitialSamplingPercentage"],
        "DestinationS3Uri": config["DestinationS3Uri"],
        "KmsKeyId": config.get("KmsKeyId", ""),
    }


def _component(component: InferenceComponent, endpoint_arn: str) -> Document:
    return {
        "InferenceComponentName": component.name,
        "InferenceComponentArn": component.arn,
        "EndpointName": component.endpoint_name,
        "EndpointArn": endpoint_arn,
        "VariantName": component.variant_name,
        "InferenceComponentStatus": component.status,
        "CreationTime": component.created,
        "LastModifiedTime": component.modified,
    }


def _summary(specification: Mapping[str, Any], component: InferenceComponent) -> Document:
    """A specification as it is described: the image of a container is a deployed one."""
    if "Container" not in specification:
        return dict(specification)
    container = dict(specification["Container"])
    if (image := container.pop("Image", None)) is not None:
        container["DeployedImage"] = {"SpecifiedImage": image, "ResolvedImage": image, "ResolutionTime": component.created}
    return {**specification, "Container": container}


def _page(
    resources: Iterable[Model | EndpointConfig | Endpoint | InferenceComponent], given: Mapping[str, Any]
) -> tuple[list[Any], dict[str, str]]:
    """Filter, sort and cut a list as the List operations do: newest first, 10 a page."""

    def moment(name: str) -> datetime | None:
        value = given.get(name)
        return None if value is None else datetime.fromtimestamp(float(value), UTC)

    def wanted(item: Any) -> bool:
        before, after = moment("CreationTimeBefore"), moment("CreationTimeAfter")
        modified_before, modified_after = moment("LastModifiedTimeBefore"), moment("LastModifiedTimeAfter")
        return (
            given.get("NameContains", "").lower() in item.name.lower()
            and (before is None or item.created <= before)
            and (after is None or item.created >= after)
            and (modified_before is None or item.modified <= modified_before)
            and (modified_after is None or item.modified >= modified_after)
        )

    def order(item: Any) -> tuple[object, str]:
        key = given.get("SortBy", "CreationTime")
        return (item.name if key == "Name" else item.status if key == "Status" else item.created), item.name

    # The default sort order is Descending for these lists (API reference: ListModels, ListEndpoints).
    ordered = sorted(filter(wanted, resources), key=order, reverse=given.get("SortOrder", "Descending") == "Descending")
    token = given.get("NextToken", "0")
    if not token.isdecimal():
        raise ValidationError("The pagination token is not valid.")
    start = int(token)
    end = start + given.get("MaxResults", _PAGE)
    return ordered[start:end], {"NextToken": str(end)} if end < len(ordered) else {}
