"""The dedicated endpoint: tenants whose load deserves resources of their own get an inference component on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import aws_cdk as cdk
import jsii
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sagemaker as sagemaker
from constructs import Construct

from mme_constructs.acknowledge import acknowledge_grant
from mme_constructs.endpoint_identity import EndpointIdentity
from mme_constructs.endpoint_metrics import metric_of
from mme_constructs.endpoint_settings import check_managed_instances, check_tags, endpoint_name_of
from mme_constructs.errors import EndpointNameError, TenantError
from mme_constructs.execution_role import build_execution_role
from mme_constructs.inference_component import InferenceComponent
from mme_constructs.stack_of import is_token, stack_of
from mme_constructs.variants import DEFAULT_VARIANT, check_storage, check_timeout
from mme_facts import grammar
from mme_facts.metrics import COMPONENT_NAMESPACE, DEDICATED_ENDPOINT_METRICS, ENDPOINT_METRICS

if TYPE_CHECKING:
    from aws_cdk import aws_kms as kms

    from mme_constructs.artifact_store import ModelArtifactStore
    from mme_constructs.component_settings import ComponentScaling, ComputeRequirements
    from mme_constructs.container import MultiModelContainer
    from mme_constructs.deployment import RollingDeployment
    from mme_constructs.network import EndpointNetwork

__all__ = ["InferenceComponentEndpoint"]

_INVOKE = ["sagemaker:InvokeEndpoint"]
_MULTI_MODEL_ONLY = frozenset(
    {"ModelLoadingWaitTime", "ModelUnloadingTime", "ModelDownloadingTime", "ModelLoadingTime", "ModelCacheHit", "LoadedModelCount"}
)
_METRICS = {name: row for name, row in {**ENDPOINT_METRICS, **DEDICATED_ENDPOINT_METRICS}.items() if name not in _MULTI_MODEL_ONLY}


@jsii.implements(sagemaker.IEndpoint)
class InferenceComponentEndpoint(EndpointIdentity, cdk.Resource):
    """One endpoint whose instances hold inference components, each with memory, CPUs and copies of its own.

    It cannot hold the models of a multi-model endpoint: a variant has either a model or components. Its one variant has no model name; the
    execution role, the network and its isolation stand on the configuration. SageMaker adds and removes instances as copies need them
    (managed instance scaling) and sends each request to the copy with the fewest requests under way. Components are declared with
    `add_component`, or made at run time by the placement of hot models; either way an invocation must name its component.

    Args:
        scope: the parent.
        id: the id below the parent.
        store: where the artifacts are.
        endpoint_name: 1 to 63 lower-case letters, digits and inner hyphens, as text: components' names are derived from it. Default:
            derived from the construct's path.
        instance_type: SageMaker instance type. Default ``ml.m5.xlarge``.
        min_instances: smallest number of instances. Default 1. 0 lets the endpoint go to zero when no component has a copy; components
            then need ``ComponentScaling(min_copies=0)``.
        max_instances: greatest number, from 1. Default 4.
        containers: images of components that are made at run time: the role may pull them. Default: those of `add_component` only.
        network: VPC, subnets and security groups. Default: SageMaker's own network.
        network_isolation: whether containers are cut off from the network. Default true.
        encryption_key: KMS key of the instances' EBS volumes. Default: encrypted with a key of AWS.
        volume_size_gb: EBS volume of each instance, 1 to 512 GB. Default: SageMaker's size.
        container_startup_timeout_seconds: until a container must answer, 60 to 3,600. Default: SageMaker's.
        model_download_timeout_seconds: of model data, 60 to 3,600. Default: SageMaker's.
        tags: of everything in the endpoint that carries tags, at most 50. Default: none.

    Raises:
        ConfigurationError: one of its subclasses: the configuration is known to fail.

    Sources: Amazon SageMaker AI, Deploy models for real-time inference; Scale an endpoint to zero instances; API reference:
    CreateEndpointConfig (ExecutionRoleArn), ProductionVariantManagedInstanceScaling.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002 - CDK's name for it
        *,
        store: ModelArtifactStore,
        endpoint_name: str | None = None,
        instance_type: str = "ml.m5.xlarge",
        min_instances: int = 1,
        max_instances: int = 4,
        containers: Sequence[MultiModelContainer] = (),
        network: EndpointNetwork | None = None,
        network_isolation: bool = True,
        encryption_key: kms.IKey | None = None,
        volume_size_gb: int | None = None,
        container_startup_timeout_seconds: int | None = None,
        model_download_timeout_seconds: int | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        check_tags(tags or {})
        check_storage(instance_type, encrypted=encryption_key is not None, volume_size_gb=volume_size_gb)
        check_timeout("container_startup_timeout_seconds", container_startup_timeout_seconds)
        check_timeout("model_download_timeout_seconds", model_download_timeout_seconds)
        check_managed_instances(instance_type, min_instances, max_instances)
        super().__init__(scope, id)
        name = _literal(endpoint_name_of(self, endpoint_name))
        self.store = store
        """The artifacts."""
        self.hosts_components = True
        """Tells it from a multi-model endpoint."""
        self.instance_type = instance_type
        self.min_instances, self.max_instances = min_instances, max_instances
        self.variant_name, self.variants = DEFAULT_VARIANT, (DEFAULT_VARIANT,)
        self.metric_endpoint_name = name
        self.component_name_prefix = grammar.component_name_prefix(name)
        """What the names of its components start with."""
        self.execution_role = build_execution_role(
            self,
            store=store,
            containers=containers,
            log_groups=[f"/aws/sagemaker/Endpoints/{name}", f"/aws/sagemaker/InferenceComponents/{self.component_name_prefix}*"],
            namespaces=[COMPONENT_NAMESPACE],
        )
        """The role that SageMaker assumes."""
        acknowledge_grant(
            self.execution_role,
            {f"/{self.component_name_prefix}*": "Log groups of this endpoint's components, whose names end in a digest."},
        )
        placed = None if network is None else network.place(self)
        if placed is not None:
            placed.grant_interfaces(self.execution_role)
        self.endpoint_config = sagemaker.CfnEndpointConfig(
            self,
            "EndpointConfig",
            execution_role_arn=self.execution_role.role_arn,
            enable_network_isolation=network_isolation,
            kms_key_id=None if encryption_key is None else encryption_key.key_arn,
            vpc_config=None
            if placed is None
            else sagemaker.CfnEndpointConfig.VpcConfigProperty(
                subnets=list(placed.subnet_ids), security_group_ids=list(placed.security_group_ids)
            ),
            production_variants=[
                sagemaker.CfnEndpointConfig.ProductionVariantProperty(
                    variant_name=self.variant_name,
                    instance_type=instance_type,
                    initial_instance_count=max(min_instances, 1),
                    volume_size_in_gb=volume_size_gb,
                    container_startup_health_check_timeout_in_seconds=container_startup_timeout_seconds,
                    model_data_download_timeout_in_seconds=model_download_timeout_seconds,
                    managed_instance_scaling=sagemaker.CfnEndpointConfig.ManagedInstanceScalingProperty(
                        status="ENABLED", min_instance_count=min_instances, max_instance_count=max_instances
                    ),
                    routing_config=sagemaker.CfnEndpointConfig.RoutingConfigProperty(routing_strategy="LEAST_OUTSTANDING_REQUESTS"),
                )
            ],
        )
        """The endpoint's configuration."""
        # SageMaker checks the role when it makes the configuration.
        self.endpoint_config.node.add_dependency(self.execution_role)
        self.endpoint = sagemaker.CfnEndpoint(
            self,
            "Endpoint",
            endpoint_name=name,
            endpoint_config_name=self.endpoint_config.attr_endpoint_config_name,
            retain_all_variant_properties=True,
        )
        """The endpoint itself."""
        self.identify(self, self.endpoint.attr_endpoint_name)
        for key, value in (tags or {}).items():
            cdk.Tags.of(self).add(key, value)

    def add_component(
        self,
        tenant: str,
        model: str,
        *,
        container: MultiModelContainer,
        compute: ComputeRequirements,
        version: str | None = None,
        copies: int = 1,
        scaling: ComponentScaling | None = None,
        container_startup_timeout_seconds: int | None = None,
        model_download_timeout_seconds: int | None = None,
        deployment: RollingDeployment | None = None,
    ) -> InferenceComponent:
        """Declare a component that is there from the start.

        Args:
            tenant: whose it is.
            model: the tenant's model.
            container: the image.
            compute: what each copy reserves.
            version: version id of the artifact below the store's prefix. Default: the image holds its model.
            copies: how many at first. Default 1.
            scaling: when copies are added and removed. Default: never.
            container_startup_timeout_seconds: until a copy must answer, 60 to 3,600. Default: SageMaker's.
            model_download_timeout_seconds: of the artifact, 60 to 3,600. Default: SageMaker's.
            deployment: how a new version or image replaces the copies. Default: SageMaker's.

        Raises:
            ConfigurationError: one of its subclasses, see `InferenceComponent`.
        """
        return InferenceComponent(
            self,
            f"Component.{tenant}.{model}",
            endpoint=self,
            tenant=tenant,
            model=model,
            container=container,
            compute=compute,
            version=version,
            copies=copies,
            scaling=scaling,
            container_startup_timeout_seconds=container_startup_timeout_seconds,
            model_download_timeout_seconds=model_download_timeout_seconds,
            deployment=deployment,
        )

    def grant_invoke(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let ``grantee`` invoke **every** tenant's component here: for functions that map the caller to a tenant themselves."""
        self._acknowledge(grantee)
        return iam.Grant.add_to_principal(grantee=grantee, actions=_INVOKE, resource_arns=[self.endpoint_arn, self._components_arn])

    def grant_invoke_tenant(self, grantee: iam.IGrantable, tenant: str) -> iam.Grant:
        """Let ``grantee`` invoke the components here whose tag ``tenant`` says so, and no others.

        A call is authorized for the endpoint and for the component (Service Authorization Reference: Amazon SageMaker); the endpoint
        refuses calls that name no component.

        Args:
            grantee: who.
            tenant: a tenant id, or an IAM policy variable such as ``${aws:PrincipalTag/tenant}``.

        Raises:
            TenantError: ``tenant`` is outside the grammar.
        """
        try:
            value = grammar.tenant_tag_value(tenant)
        except grammar.GrammarError as error:
            raise TenantError("The tenant cannot be granted", value=tenant, allowed=error.allowed, fix="Pass the tenant's id") from error
        self._acknowledge(grantee)
        endpoint = iam.Grant.add_to_principal(
            grantee=grantee,
            actions=_INVOKE,
            resource_arns=[self.endpoint_arn],
            conditions={"Null": {"sagemaker:TargetModel": "true"}},
        )
        component = iam.Grant.add_to_principal(
            grantee=grantee,
            actions=_INVOKE,
            resource_arns=[self._components_arn],
            conditions={"StringEquals": {f"aws:ResourceTag/{grammar.TENANT_TAG}": value}},
        )
        return endpoint.combine(component)

    def metric(self, name: str, *, statistic: str | None = None, period_minutes: int = 1) -> cloudwatch.Metric:
        """A metric of all components' instances together; `InferenceComponent.metric` has those of one.

        Args:
            name: official name, one of `mme_facts.metrics.DEDICATED_ENDPOINT_METRICS` or an invocation metric.
            statistic: CloudWatch statistic. Default: the metric's usual one.
            period_minutes: whole minutes.

        Raises:
            MetricError: the metric does not exist or has no such statistic.
        """
        return metric_of(
            "Endpoints of inference components",
            _METRICS,
            name,
            dimensions={"EndpointName": self.metric_endpoint_name, "VariantName": self.variant_name},
            statistic=statistic,
            period_minutes=period_minutes,
        )

    @property
    def _components_arn(self) -> str:
        return stack_of(self).format_arn(
            service="sagemaker", resource="inference-component", resource_name=f"{self.component_name_prefix}*"
        )

    def _acknowledge(self, grantee: iam.IGrantable) -> None:
        reason = "Components come and go at run time; their names start with this endpoint's digest, and their tag says whose they are."
        acknowledge_grant(grantee, {f":inference-component/{self.component_name_prefix}*": reason})


def _literal(name: str) -> str:
    if is_token(name):
        raise EndpointNameError(
            "Components' names are derived from the endpoint's, which is not known at synthesis",
            value="a token",
            allowed="literal text",
            fix="Pass the name itself, or leave it out",
        )
    return name
