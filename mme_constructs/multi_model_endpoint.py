"""A SageMaker multi-model endpoint with its execution role and auto scaling."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import aws_cdk as cdk
from aws_cdk import aws_applicationautoscaling as appscaling
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sagemaker as sagemaker
from constructs import Construct

from mme_constructs.acknowledge import acknowledge_wildcards
from mme_constructs.endpoint_interface import EndpointOperations, IMultiModelEndpoint
from mme_constructs.errors import AutoScalingError, ConfigurationError, EncryptionError, EndpointNameError, InstanceCountError
from mme_facts import instances
from mme_facts.limits import MODEL_NAME_CHARACTERS
from mme_facts.metrics import INSTANCE_NAMESPACE, INVOCATION_NAMESPACE

if TYPE_CHECKING:
    from mme_constructs.artifact_store import ModelArtifactStore
    from mme_constructs.container import MultiModelContainer

__all__ = ["InvocationScaling", "MultiModelEndpoint"]

_ENDPOINT_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_VARIANT_NAME = "AllTraffic"
_LOG_GROUP_PREFIX = "/aws/sagemaker/Endpoints/"


@dataclass(frozen=True, slots=True, kw_only=True)
class InvocationScaling:
    """Target tracking on ``SageMakerVariantInvocationsPerInstance``, the metric that AWS recommends for multi-model endpoints.

    Attributes:
        invocations_per_instance_per_minute: the target. Measure the rate one instance sustains and set rate per second x 0.5 x 60 (Amazon
            SageMaker AI, Load test your auto scaling configuration). Default 1,200: 40 a second with that factor.
        scale_in_cooldown_seconds: rest after removing an instance. Default 600.
        scale_out_cooldown_seconds: rest after adding one. Default 300 (both: Set Auto Scaling Policies for Multi-Model Endpoint
            Deployments).

    Raises:
        AutoScalingError: a number is out of range.
    """

    invocations_per_instance_per_minute: float = 1200
    scale_in_cooldown_seconds: int = 600
    scale_out_cooldown_seconds: int = 300

    def __post_init__(self) -> None:
        if self.invocations_per_instance_per_minute <= 0:
            raise AutoScalingError(
                "The target of auto scaling cannot be met",
                value=self.invocations_per_instance_per_minute,
                allowed="more than 0 a minute",
                fix="Measure one instance",
            )
        for name in ("scale_in_cooldown_seconds", "scale_out_cooldown_seconds"):
            if not 0 <= (seconds := getattr(self, name)) <= 3600:
                raise AutoScalingError(f"{name} is out of range", value=seconds, allowed="0 to 3,600 seconds", fix="Use 600 in and 300 out")


class MultiModelEndpoint(Construct, EndpointOperations):
    """One endpoint that serves every artifact below the store's prefix, loading each on its first request.

    The execution role reads the prefix, pulls the one image and writes the endpoint's own logs and metrics. Model and endpoint
    configuration have no physical names, because both are replaced on every change. The endpoint keeps its auto scaled instance count
    on updates (``RetainAllVariantProperties``; it also swallows an intended change of the initial count, which auto scaling's bounds
    then apply).

    Args:
        scope: the parent.
        id: the id below the parent.
        store: where the artifacts are.
        container: what serves them.
        endpoint_name: 1 to 63 lower-case letters, digits and inner hyphens. Default: derived from the construct's path.
        instance_type: SageMaker instance type. Default ``ml.m5.xlarge``.
        min_instances: smallest number of instances. Default 2: two Availability Zones and twice the cache.
        max_instances: greatest number. Default twice ``min_instances``; equal to it, the endpoint is not auto scaled.
        scaling: when instances are added and removed. Default: `InvocationScaling` as it stands.
        network_isolation: whether containers are cut off from the network; SageMaker still downloads artifacts. Default true: tenants'
            archives may carry code.
        encryption_key: KMS key of the instances' EBS volumes. Default: encrypted with a key of AWS.

    Raises:
        EndpointNameError, InstanceCountError, AutoScalingError, EncryptionError, ContainerError: the configuration is known to fail.

    Sources: Amazon SageMaker AI, Create a Multi-Model Endpoint; Multi-Model Endpoint Security; API reference: CreateEndpointConfig.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002 - CDK's name for it
        *,
        store: ModelArtifactStore,
        container: MultiModelContainer,
        endpoint_name: str | None = None,
        instance_type: str = "ml.m5.xlarge",
        min_instances: int = 2,
        max_instances: int | None = None,
        scaling: InvocationScaling | None = None,
        network_isolation: bool = True,
        encryption_key: kms.IKey | None = None,
    ) -> None:
        greatest = 2 * min_instances if max_instances is None else max_instances
        _check_instances(instance_type, min_instances, greatest, encryption_key)
        if endpoint_name is not None:
            _check_endpoint_name(endpoint_name)
        super().__init__(scope, id)
        self.container = container
        """What serves the models."""
        name = (
            cdk.Names.unique_resource_name(self, max_length=MODEL_NAME_CHARACTERS, separator="-").lower()
            if endpoint_name is None
            else endpoint_name
        )
        self.variant_name = _VARIANT_NAME
        self.execution_role = self._build_role(store, name)
        """The role that SageMaker assumes."""
        self.model = self._build_model(store, network_isolation=network_isolation)
        """The model: an image over a prefix."""
        self.endpoint_config = sagemaker.CfnEndpointConfig(
            self,
            "EndpointConfig",
            production_variants=[
                sagemaker.CfnEndpointConfig.ProductionVariantProperty(
                    variant_name=self.variant_name,
                    model_name=self.model.attr_model_name,
                    instance_type=instance_type,
                    initial_instance_count=min_instances,
                    initial_variant_weight=1,
                )
            ],
            kms_key_id=None if encryption_key is None else encryption_key.key_arn,
        )
        """The endpoint's configuration."""
        self.endpoint = sagemaker.CfnEndpoint(
            self,
            "Endpoint",
            endpoint_name=name,
            endpoint_config_name=self.endpoint_config.attr_endpoint_config_name,
            retain_all_variant_properties=True,
        )
        """The endpoint itself."""
        self.endpoint_name = self.endpoint.attr_endpoint_name
        self.endpoint_arn = cdk.Stack.of(self).format_arn(service="sagemaker", resource="endpoint", resource_name=self.endpoint_name)
        if greatest > min_instances:
            self._build_scaling(min_instances, greatest, InvocationScaling() if scaling is None else scaling)

    @staticmethod
    def from_endpoint_attributes(
        scope: Construct,
        id: str,  # noqa: A002 - CDK's name for it
        *,
        endpoint_name: str,
        variant_name: str = _VARIANT_NAME,
    ) -> IMultiModelEndpoint:
        """An endpoint that exists already, in the stack's account and region.

        Args:
            scope: the parent.
            id: the id below the parent.
            endpoint_name: its name.
            variant_name: its production variant. Default ``AllTraffic``.
        """
        return _ImportedEndpoint(scope, id, endpoint_name, variant_name)

    def _build_role(self, store: ModelArtifactStore, endpoint_name: str) -> iam.Role:
        role = iam.Role(
            self,
            "ExecutionRole",
            assumed_by=iam.ServicePrincipal("sagemaker.amazonaws.com"),
            description="Reads the models' prefix, pulls the serving image, writes the endpoint's logs and metrics.",
        )
        store.grant_read_models(role)
        self.container.grant_pull(self, role)
        log_group = cdk.Stack.of(self).format_arn(
            service="logs",
            resource="log-group",
            resource_name=f"{_LOG_GROUP_PREFIX}{endpoint_name}",
            arn_format=cdk.ArnFormat.COLON_RESOURCE_NAME,
        )
        role.add_to_policy(
            iam.PolicyStatement(
                actions=["logs:CreateLogGroup", "logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"],
                resources=[log_group, f"{log_group}:log-stream:*"],
            )
        )
        role.add_to_policy(
            iam.PolicyStatement(
                actions=["cloudwatch:PutMetricData"],
                resources=["*"],
                conditions={"StringEquals": {"cloudwatch:namespace": [INSTANCE_NAMESPACE, INVOCATION_NAMESPACE]}},
            )
        )
        acknowledge_wildcards(
            role,
            {
                ":log-stream:*": "The endpoint names its log streams after instances; the log group is its own.",
                "*": "PutMetricData and GetAuthorizationToken have no resource; the former is limited to the endpoint's namespaces.",
            },
        )
        return role

    def _build_model(self, store: ModelArtifactStore, *, network_isolation: bool) -> sagemaker.CfnModel:
        model = sagemaker.CfnModel(
            self,
            "Model",
            execution_role_arn=self.execution_role.role_arn,
            enable_network_isolation=network_isolation,
            primary_container=sagemaker.CfnModel.ContainerDefinitionProperty(
                image=self.container.locate(self).uri,
                mode="MultiModel",
                model_data_url=store.model_data_url,
                environment=dict(self.container.environment) or None,
            ),
        )
        # The role's policy must exist before SageMaker checks the prefix; without this the model depends on the bare role.
        model.node.add_dependency(self.execution_role)
        return model

    def _build_scaling(self, smallest: int, greatest: int, scaling: InvocationScaling) -> None:
        target = appscaling.CfnScalableTarget(
            self,
            "ScalableTarget",
            service_namespace="sagemaker",
            scalable_dimension="sagemaker:variant:DesiredInstanceCount",
            resource_id=f"endpoint/{self.endpoint_name}/variant/{self.variant_name}",
            min_capacity=smallest,
            max_capacity=greatest,
        )
        appscaling.CfnScalingPolicy(
            self,
            "ScalingPolicy",
            policy_name="InvocationsPerInstance",
            policy_type="TargetTrackingScaling",
            scaling_target_id=target.ref,
            target_tracking_scaling_policy_configuration=appscaling.CfnScalingPolicy.TargetTrackingScalingPolicyConfigurationProperty(
                target_value=scaling.invocations_per_instance_per_minute,
                predefined_metric_specification=appscaling.CfnScalingPolicy.PredefinedMetricSpecificationProperty(
                    predefined_metric_type="SageMakerVariantInvocationsPerInstance"
                ),
                scale_in_cooldown=scaling.scale_in_cooldown_seconds,
                scale_out_cooldown=scaling.scale_out_cooldown_seconds,
            ),
        )


class _ImportedEndpoint(Construct, EndpointOperations):
    def __init__(self, scope: Construct, id: str, endpoint_name: str, variant_name: str) -> None:  # noqa: A002 - CDK's name for it
        super().__init__(scope, id)
        self.endpoint_name, self.variant_name = endpoint_name, variant_name
        self.endpoint_arn = cdk.Stack.of(self).format_arn(service="sagemaker", resource="endpoint", resource_name=endpoint_name)


def _check_endpoint_name(name: str) -> None:
    if not cdk.Token.is_unresolved(name) and not _ENDPOINT_NAME.fullmatch(name):
        raise EndpointNameError(
            "SageMaker compares endpoint names without case and IAM with it",
            value=name,
            allowed="1 to 63 lower-case letters, digits and inner hyphens",
            fix="Use such a name, or leave it out",
        )


def _check_instances(instance_type: str, smallest: int, greatest: int, encryption_key: kms.IKey | None) -> None:
    if smallest < 1:
        raise InstanceCountError(
            "A multi-model endpoint cannot scale to zero", value=smallest, allowed="min_instances from 1", fix="Use 2 for two zones"
        )
    if greatest < smallest:
        raise InstanceCountError(
            "max_instances is below min_instances", value=greatest, allowed=f"{smallest} or more", fix="Raise max_instances"
        )
    if cdk.Token.is_unresolved(instance_type):
        return
    try:
        local, burstable = instances.has_local_storage(instance_type), instances.is_burstable(instance_type)
    except instances.InstanceTypeError as error:
        raise ConfigurationError(
            "Not an instance type", value=instance_type, allowed="ml.<family>.<size>", fix="Use a type such as 'ml.m5.xlarge'"
        ) from error
    if local and encryption_key is not None:
        raise EncryptionError(
            "CreateEndpointConfig refuses a KMS key on types with local NVMe storage, which is encrypted by its hardware",
            value=instance_type,
            allowed="types with EBS volumes, such as ml.m5.xlarge",
            fix="Leave encryption_key out, or choose another type",
        )
    if burstable and greatest > smallest:
        raise AutoScalingError(
            "Burstable types cannot be auto scaled",
            value=instance_type,
            allowed="other types, or max_instances equal to min_instances",
            fix="Choose another type",
        )
