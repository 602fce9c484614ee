"""One tenant's model on a dedicated endpoint, with resources of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import aws_cdk as cdk
from aws_cdk import aws_applicationautoscaling as appscaling
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_sagemaker as sagemaker
from constructs import Construct

from mme_constructs.component_settings import ComponentScaling, ComputeRequirements, render_rolling
from mme_constructs.endpoint_metrics import metric_of
from mme_constructs.errors import AutoScalingError, InferenceComponentError, TenantError
from mme_constructs.execution_role import grant_alarms
from mme_constructs.stack_of import is_token, stack_of
from mme_constructs.variants import check_timeout
from mme_facts import grammar, instances
from mme_facts.metrics import COMPONENT_METRICS

if TYPE_CHECKING:
    from mme_constructs.container import MultiModelContainer
    from mme_constructs.deployment import RollingDeployment
    from mme_constructs.inference_component_endpoint import InferenceComponentEndpoint

__all__ = ["InferenceComponent"]

_Specification = sagemaker.CfnInferenceComponent.InferenceComponentSpecificationProperty


class InferenceComponent(Construct):
    """A component that an app declares; placements at run time make others beside it.

    Its name is a digest of tenant and model and stays over versions; its tag ``tenant`` says whose it is, and policies go by the tag.

    Args:
        scope: the parent.
        id: the id below the parent.
        endpoint: the dedicated endpoint; not a multi-model endpoint, whose variants have a model.
        tenant: whose it is.
        model: the tenant's model.
        container: the image; in multi-model images the server holds this one model only.
        version: version id of the artifact below the store's prefix. Default: the image holds its model.
        compute: what each copy reserves.
        copies: how many at first, from 0; auto scaling changes it. Default 1.
        scaling: when copies are added and removed. Default: never.
        container_startup_timeout_seconds: until a copy must answer, 60 to 3,600. Default: SageMaker's.
        model_download_timeout_seconds: of the artifact, 60 to 3,600. Default: SageMaker's.
        deployment: how a new version or image replaces the copies; its instances are copies here. Default: SageMaker's.

    Raises:
        InferenceComponentError: the endpoint cannot hold it, or a copy does not fit its instances.
        AutoScalingError: it would scale to zero on an endpoint that keeps an instance.
        TenantError: tenant, model or version is outside the grammar.
        ContainerError: the image cannot be resolved for the stack.

    Sources: API reference: CreateInferenceComponent; Amazon SageMaker AI, Deploy models for real-time inference.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002 - CDK's name for it
        *,
        endpoint: InferenceComponentEndpoint,
        tenant: str,
        model: str,
        container: MultiModelContainer,
        compute: ComputeRequirements,
        version: str | None = None,
        copies: int = 1,
        scaling: ComponentScaling | None = None,
        container_startup_timeout_seconds: int | None = None,
        model_download_timeout_seconds: int | None = None,
        deployment: RollingDeployment | None = None,
    ) -> None:
        check_timeout("container_startup_timeout_seconds", container_startup_timeout_seconds)
        check_timeout("model_download_timeout_seconds", model_download_timeout_seconds)
        _check_host(endpoint)
        artifact = _artifact(tenant, model, version)
        _check_container(container, endpoint.instance_type)
        _check_compute(compute, endpoint.instance_type)
        _check_copies(copies, scaling, endpoint)
        super().__init__(scope, id)
        self.tenant, self.model = tenant, model
        self.inference_component_name = grammar.component_name(endpoint.metric_endpoint_name, tenant, model)
        """Its name: a digest."""
        container.grant_pull(self, endpoint.execution_role)
        grant_alarms(endpoint.execution_role, () if deployment is None else deployment.alarms)
        timeouts = (container_startup_timeout_seconds, model_download_timeout_seconds)
        self.component = sagemaker.CfnInferenceComponent(
            self,
            "Component",
            inference_component_name=self.inference_component_name,
            endpoint_name=endpoint.endpoint_name,
            variant_name=endpoint.variant_name,
            specification=_Specification(
                container=sagemaker.CfnInferenceComponent.InferenceComponentContainerSpecificationProperty(
                    image=container.locate(self).uri,
                    artifact_url=None if artifact is None else f"{endpoint.store.model_data_url}{artifact.target_model}",
                    environment=dict(container.environment) or None,
                ),
                compute_resource_requirements=sagemaker.CfnInferenceComponent.InferenceComponentComputeResourceRequirementsProperty(
                    min_memory_required_in_mb=compute.memory_mb,
                    max_memory_required_in_mb=compute.max_memory_mb,
                    number_of_cpu_cores_required=compute.cpus,
                    number_of_accelerator_devices_required=compute.accelerators,
                ),
                startup_parameters=None
                if timeouts == (None, None)
                else sagemaker.CfnInferenceComponent.InferenceComponentStartupParametersProperty(
                    container_startup_health_check_timeout_in_seconds=container_startup_timeout_seconds,
                    model_data_download_timeout_in_seconds=model_download_timeout_seconds,
                ),
            ),
            deployment_config=None if deployment is None else render_rolling(deployment),
            runtime_config=sagemaker.CfnInferenceComponent.InferenceComponentRuntimeConfigProperty(copy_count=copies),
            tags=[cdk.CfnTag(key=grammar.TENANT_TAG, value=tenant)],
        )
        """The component itself."""
        # The role must reach image and artifact before SageMaker starts the first copy.
        self.component.node.add_dependency(endpoint.execution_role)
        self.inference_component_arn = stack_of(self).format_arn(
            service="sagemaker", resource="inference-component", resource_name=self.inference_component_name
        )
        if scaling is not None:
            self._build_scaling(scaling)

    def metric(self, name: str, *, statistic: str | None = None, period_minutes: int = 1) -> cloudwatch.Metric:
        """A metric of the component.

        Args:
            name: official name, one of `mme_facts.metrics.COMPONENT_METRICS`.
            statistic: CloudWatch statistic (``Average``, ``p99``). Default: the metric's usual one.
            period_minutes: whole minutes.

        Raises:
            MetricError: the metric does not exist or has no such statistic.
        """
        return metric_of(
            "Inference components",
            COMPONENT_METRICS,
            name,
            dimensions={"InferenceComponentName": self.inference_component_name},
            statistic=statistic,
            period_minutes=period_minutes,
        )

    def _build_scaling(self, scaling: ComponentScaling) -> None:
        target = appscaling.CfnScalableTarget(
            self,
            "ScalableTarget",
            service_namespace="sagemaker",
            scalable_dimension="sagemaker:inference-component:DesiredCopyCount",
            resource_id=f"inference-component/{self.inference_component_name}",
            min_capacity=scaling.min_copies,
            max_capacity=scaling.max_copies,
        )
        # The resource id is text, so nothing else orders the two.
        target.node.add_dependency(self.component)
        policy = appscaling.CfnScalingPolicy
        policy(
            self,
            "ScalingPolicy",
            policy_name="LoadPerCopy",
            policy_type="TargetTrackingScaling",
            scaling_target_id=target.ref,
            target_tracking_scaling_policy_configuration=policy.TargetTrackingScalingPolicyConfigurationProperty(
                target_value=scaling.target,
                predefined_metric_specification=policy.PredefinedMetricSpecificationProperty(predefined_metric_type=scaling.metric),
                scale_in_cooldown=scaling.scale_in_cooldown_seconds,
                scale_out_cooldown=scaling.scale_out_cooldown_seconds,
            ),
        )
        if scaling.min_copies == 0:
            self._build_scaling_from_zero(target)

    def _build_scaling_from_zero(self, target: appscaling.CfnScalableTarget) -> None:
        """Add the first copy when a request finds none: target tracking sees no load where there is no copy."""
        policy = appscaling.CfnScalingPolicy(
            self,
            "FromZeroPolicy",
            policy_name="FromZero",
            policy_type="StepScaling",
            scaling_target_id=target.ref,
            step_scaling_policy_configuration=appscaling.CfnScalingPolicy.StepScalingPolicyConfigurationProperty(
                adjustment_type="ChangeInCapacity",
                cooldown=60,
                metric_aggregation_type="Maximum",
                step_adjustments=[appscaling.CfnScalingPolicy.StepAdjustmentProperty(metric_interval_lower_bound=0, scaling_adjustment=1)],
            ),
        )
        metric = COMPONENT_METRICS["NoCapacityInvocationFailures"]
        cloudwatch.CfnAlarm(
            self,
            "FromZeroAlarm",
            alarm_description="A request found no copy; adds the first one.",
            namespace=metric.namespace,
            metric_name=metric.name,
            dimensions=[cloudwatch.CfnAlarm.DimensionProperty(name="InferenceComponentName", value=self.inference_component_name)],
            statistic="Sum",
            period=60,
            evaluation_periods=1,
            comparison_operator="GreaterThanOrEqualToThreshold",
            threshold=1,
            treat_missing_data="notBreaching",
            alarm_actions=[policy.ref],
        )


def _check_host(endpoint: InferenceComponentEndpoint) -> None:
    if not getattr(endpoint, "hosts_components", False):
        raise InferenceComponentError(
            "Inference components need variants without a model, and this endpoint's variants have a ModelName",
            value=type(endpoint).__name__,
            allowed="an InferenceComponentEndpoint",
            fix="Declare one beside the multi-model endpoint",
        )


def _artifact(tenant: str, model: str, version: str | None) -> grammar.ArtifactName | None:
    try:
        grammar.check_tenant_id(tenant)
        grammar.check_model_id(model)
        return None if version is None else grammar.ArtifactName(tenant, model, grammar.VersionId.parse(version))
    except grammar.GrammarError as error:
        raise TenantError(
            f"The component's {error.field} is outside the grammar", value=error.value, allowed=error.allowed, fix="Pass the id itself"
        ) from error


def _check_container(container: MultiModelContainer, instance_type: str) -> None:
    if len(container.environment) > 16:
        raise InferenceComponentError(
            "The container of a component has too many variables", value=len(container.environment), allowed="at most 16", fix="Remove some"
        )
    known = _known(instance_type)
    if known is None:
        return
    if container.architecture != known.architecture:
        raise InferenceComponentError(
            f"The image is built for another architecture than {known.name}",
            value=container.architecture,
            allowed=known.architecture,
            fix=f"Use an image for {known.architecture}, or another instance type",
        )
    if container.processor == "gpu" and not known.gpus:
        raise InferenceComponentError(
            "The image is built for GPUs and the instance type has none", value=known.name, allowed="GPU types", fix="Use the CPU image"
        )


def _check_compute(compute: ComputeRequirements, instance_type: str) -> None:
    known = _known(instance_type)
    if known is None:
        return
    for what, wanted, there in (
        ("memory_mb", compute.memory_mb, known.memory_mib * 1_048_576 // 1_000_000),
        ("cpus", compute.cpus or 0, known.vcpus),
        ("accelerators", compute.accelerators or 0, known.gpus + known.other_accelerators),
    ):
        if wanted > there:
            raise InferenceComponentError(
                f"A copy asks for more {what} than an instance has",
                value=wanted,
                allowed=f"up to {there} on {known.name}, less what the system takes",
                fix="Ask for less, or give the endpoint a larger type",
            )


def _known(instance_type: str) -> instances.InstanceType | None:
    if is_token(instance_type):
        return None
    try:
        return instances.instance(instance_type)
    except instances.InstanceTypeError:
        return None


def _check_copies(copies: int, scaling: ComponentScaling | None, endpoint: InferenceComponentEndpoint) -> None:
    smallest, greatest = (0, max(copies, 0)) if scaling is None else (scaling.min_copies, scaling.max_copies)
    if not smallest <= copies <= greatest:
        raise InferenceComponentError(
            "copies is out of range", value=copies, allowed=f"{smallest} to {greatest}", fix="Start within the bounds of scaling"
        )
    if scaling is not None and scaling.min_copies == 0 and endpoint.min_instances > 0:
        raise AutoScalingError(
            "The copies would go to zero and the endpoint would keep its instances, unused and billed",
            value=f"min_copies=0 with min_instances={endpoint.min_instances}",
            allowed="min_copies=0 on an endpoint with min_instances=0",
            fix="Give the endpoint min_instances=0, or keep a copy",
        )
