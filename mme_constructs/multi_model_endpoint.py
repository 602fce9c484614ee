"""A SageMaker multi-model endpoint: its models, configuration, endpoint, role, auto scaling and updates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import aws_cdk as cdk
import jsii
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_sagemaker as sagemaker
from constructs import Construct

from mme_constructs.compatibility import Caution
from mme_constructs.endpoint_interface import EndpointOperations, IMultiModelEndpoint
from mme_constructs.endpoint_settings import check_accelerator, check_tags, endpoint_name_of
from mme_constructs.errors import NetworkError
from mme_constructs.execution_role import build_execution_role, grant_alarms
from mme_constructs.imported_endpoint import ImportedEndpoint
from mme_constructs.scalable_variant import ScalableVariant
from mme_constructs.scaling import InvocationScaling, ScalingRule
from mme_constructs.serving_model import build_model, steps_of
from mme_constructs.variants import DEFAULT_VARIANT, ProductionVariant, ResolvedVariant, resolve_variants, variant_named

if TYPE_CHECKING:
    from aws_cdk import aws_ec2 as ec2
    from aws_cdk import aws_kms as kms

    from mme_constructs.artifact_store import ModelArtifactStore
    from mme_constructs.container import MultiModelContainer
    from mme_constructs.data_capture import DataCapture
    from mme_constructs.deployment import Deployment
    from mme_constructs.network import EndpointNetwork
    from mme_constructs.pipeline import InferencePipeline

__all__ = ["InvocationScaling", "MultiModelEndpoint"]


@jsii.implements(sagemaker.IEndpoint)
class MultiModelEndpoint(EndpointOperations, cdk.Resource):
    """One endpoint that serves every artifact below the store's prefix, loading each on its first request.

    The execution role reads the prefix, pulls the images and writes the endpoint's own logs and metrics. Models and endpoint configuration
    have no physical names, because both are replaced on every change. The endpoint keeps its auto scaled instance count on updates
    (``RetainAllVariantProperties``; it also swallows an intended change of the initial count, which auto scaling's bounds then apply). It
    can be passed where CDK takes an ``aws_sagemaker.IEndpoint``.

    The cache is disabled for models that are each called once or hardly ever: SageMaker then unloads a model and deletes it from disk
    after each invocation and loads more of them at a time. For every other use it makes each request a cold one.

    Args:
        scope: the parent.
        id: the id below the parent.
        store: where the artifacts are.
        container: what serves them, alone or in a pipeline.
        endpoint_name: 1 to 63 lower-case letters, digits and inner hyphens. Default: derived from the construct's path.
        instance_type: SageMaker instance type. Default ``ml.m5.xlarge``.
        allow_undocumented_gpu: whether a single-GPU type outside AWS's list gives a warning instead of an error. Default no.
        min_instances: smallest number of instances. Default 2: two Availability Zones and twice the cache.
        max_instances: greatest number. Default twice ``min_instances``; equal to it, the endpoint is not auto scaled.
        scaling: when instances are added and removed; `auto_scale` adds more rules. Default: `InvocationScaling` as it stands.
        cache_enabled: whether models stay loaded. Default yes.
        variants: for A/B tests; what they leave out is the endpoint's setting. Default: one, ``AllTraffic``.
        network: VPC, subnets and security groups. Default: SageMaker's own network.
        network_isolation: whether containers are cut off from the network; SageMaker still downloads artifacts. Default true: tenants'
            archives may carry code.
        encryption_key: KMS key of the instances' EBS volumes; its policy must allow who deploys. Default: encrypted with a key of AWS.
        volume_size_gb: EBS volume of each instance, 1 to 512 GB: all models that are served should fit. Default: SageMaker's size.
        container_startup_timeout_seconds: until a container must answer, 60 to 3,600. Default: SageMaker's; containers start empty.
        model_download_timeout_seconds: of model data at start, 60 to 3,600. Default: SageMaker's. Whether it governs loads on demand is not
            documented.
        data_capture: requests and answers written to S3, with a warning. Default: none.
        deployment: how updates move to new instances. Default: SageMaker's, blue/green and all at once.
        accelerator_type: always refused: Elastic Inference never served multi-model endpoints and has ended.
        tags: of everything in the endpoint that carries tags, at most 50. Default: none.

    Raises:
        ConfigurationError: one of its subclasses: the configuration is known to fail.

    Sources: Amazon SageMaker AI, Create a Multi-Model Endpoint; Multi-Model Endpoint Security; API reference: CreateEndpointConfig.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002 - CDK's name for it
        *,
        store: ModelArtifactStore,
        container: MultiModelContainer | InferencePipeline,
        endpoint_name: str | None = None,
        instance_type: str = "ml.m5.xlarge",
        allow_undocumented_gpu: bool = False,
        min_instances: int = 2,
        max_instances: int | None = None,
        scaling: ScalingRule | None = None,
        cache_enabled: bool = True,
        variants: Sequence[ProductionVariant] = (),
        network: EndpointNetwork | None = None,
        network_isolation: bool = True,
        encryption_key: kms.IKey | None = None,
        volume_size_gb: int | None = None,
        container_startup_timeout_seconds: int | None = None,
        model_download_timeout_seconds: int | None = None,
        data_capture: DataCapture | None = None,
        deployment: Deployment | None = None,
        accelerator_type: str | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        check_accelerator(accelerator_type)
        check_tags(tags or {})
        resolved = resolve_variants(
            variants,
            ResolvedVariant(
                name=DEFAULT_VARIANT,
                weight=1,
                container=container,
                instance_type=instance_type,
                smallest=min_instances,
                greatest=2 * min_instances if max_instances is None else max_instances,
                scaling=scaling,
                volume_size_gb=volume_size_gb,
                startup_timeout_seconds=container_startup_timeout_seconds,
                download_timeout_seconds=model_download_timeout_seconds,
            ),
        )
        cautions = set[Caution]()
        for variant in resolved:
            cautions |= variant.check_instances(encrypted=encryption_key is not None, allow_undocumented_gpu=allow_undocumented_gpu)
            if deployment is not None:
                deployment.check((variant.smallest, variant.greatest), len(resolved))
        super().__init__(scope, id)
        for caution in sorted(cautions):
            cdk.Annotations.of(self).add_warning_v2(caution.id, caution.text)
        name = endpoint_name_of(self, endpoint_name)
        self.container = container
        """What serves the models."""
        self.cache_enabled = cache_enabled
        self.metric_endpoint_name = name
        self.variant_name, self.variants = resolved[0].name, tuple(variant.name for variant in resolved)
        self.instance_type: str | None = resolved[0].instance_type
        self.min_instances: int | None = resolved[0].smallest
        self.max_instances: int | None = resolved[0].greatest
        self.execution_role = build_execution_role(
            self,
            store=store,
            containers=[step.container for variant in resolved for step in steps_of(variant.container)],
            log_groups=[f"/aws/sagemaker/Endpoints/{name}"],
        )
        """The role that SageMaker assumes."""
        self._network = None if network is None else network.place(self)
        if self._network is not None:
            self._network.grant_interfaces(self.execution_role)
        models = self._build_models(resolved, store, cache_enabled=cache_enabled, network_isolation=network_isolation)
        self.model = models[self.variant_name]
        """The model of the first variant: an image over a prefix."""
        self.endpoint_config = sagemaker.CfnEndpointConfig(
            self,
            "EndpointConfig",
            production_variants=[variant.render(models[variant.name].attr_model_name) for variant in resolved],
            kms_key_id=None if encryption_key is None else encryption_key.key_arn,
            data_capture_config=None if data_capture is None else data_capture.attach(self, self.execution_role),
        )
        """The endpoint's configuration."""
        self._deployment, self._alarms = deployment, list[cloudwatch.IAlarm]()
        grant_alarms(self.execution_role, () if deployment is None else deployment.alarms)
        self.endpoint = sagemaker.CfnEndpoint(
            self,
            "Endpoint",
            endpoint_name=name,
            endpoint_config_name=self.endpoint_config.attr_endpoint_config_name,
            deployment_config=None if deployment is None else _rendered(deployment),
            retain_all_variant_properties=True,
        )
        """The endpoint itself."""
        self.identify(self, self.endpoint.attr_endpoint_name)
        self._scalable = {variant.name: self._scalable_variant(variant) for variant in resolved}
        for variant in resolved:
            if variant.greatest > variant.smallest:
                self._scalable[variant.name].add(InvocationScaling() if variant.scaling is None else variant.scaling)
        for key, value in (tags or {}).items():
            cdk.Tags.of(self).add(key, value)
        if len(resolved) > 1:
            cdk.Annotations.of(self).add_warning_v2(
                "mme-constructs:variants",
                "AWS's documents disagree on several production variants of a multi-model endpoint; each variant caches models of its own.",
            )

    @staticmethod
    def from_endpoint_attributes(
        scope: Construct,
        id: str,  # noqa: A002 - CDK's name for it
        *,
        endpoint_name: str,
        variant_name: str = DEFAULT_VARIANT,
        variants: Sequence[str] = (),
        instance_type: str | None = None,
        min_instances: int | None = None,
        max_instances: int | None = None,
        cache_enabled: bool = True,
    ) -> IMultiModelEndpoint:
        """An endpoint that exists already, in the stack's account and region.

        Args:
            scope: the parent.
            id: the id below the parent.
            endpoint_name: its name.
            variant_name: its production variant. Default ``AllTraffic``.
            variants: all its variants. Default: ``variant_name`` alone.
            instance_type: its instances; alarms on CPU need it. Default: unknown.
            min_instances: fewest instances. Default: unknown.
            max_instances: most instances. Default: unknown.
            cache_enabled: whether models stay loaded. Default yes.
        """
        return ImportedEndpoint(
            scope,
            id,
            endpoint_name=endpoint_name,
            variants=tuple(variants) or (variant_name,),
            variant_name=variant_name,
            instance_type=instance_type,
            min_instances=min_instances,
            max_instances=max_instances,
            cache_enabled=cache_enabled,
        )

    @property
    def connections(self) -> ec2.Connections:
        """Opens ways to and from the instances; raises `NetworkError` for an endpoint outside a VPC."""
        if self._network is None:
            raise NetworkError("The endpoint is in no VPC", value=None, allowed="an endpoint with network", fix="Pass an EndpointNetwork")
        return self._network.connections

    def auto_scale(self, *rules: ScalingRule, variant: str | None = None) -> None:
        """Add rules to those of a variant; each kind once, scheduled ones by name.

        Args:
            rules: `InvocationScaling`, `CpuScaling`, `CacheScaling` or `ScheduledScaling`.
            variant: which variant. Default: `variant_name`.

        Raises:
            AutoScalingError: a rule cannot work for the variant, or is there already.
            VariantError: there is no such variant.
        """
        scalable = variant_named(self._scalable, self.variant_name if variant is None else variant)
        for rule in rules:
            scalable.add(rule)

    def add_rollback_alarms(self, *alarms: cloudwatch.IAlarm) -> None:
        """Let alarms roll an update back, such as alarms on this endpoint's own metrics.

        Args:
            alarms: together with the deployment's own at most 10. They must not refer to the endpoint's resources; `metric` does not.

        Raises:
            DeploymentError: there is no deployment policy, or there are too many alarms.
        """
        self.endpoint.deployment_config = _rendered(self._deployment, (*self._alarms, *alarms))
        self._alarms += alarms
        grant_alarms(self.execution_role, alarms)

    def _build_models(
        self, variants: Sequence[ResolvedVariant], store: ModelArtifactStore, *, cache_enabled: bool, network_isolation: bool
    ) -> dict[str, sagemaker.CfnModel]:
        """A model per container: variants with the same one share it."""
        by_container: dict[int, sagemaker.CfnModel] = {}
        for variant in variants:
            if id(variant.container) not in by_container:
                suffix = "" if variant.container is self.container else variant.name
                by_container[id(variant.container)] = build_model(
                    self,
                    f"Model{suffix}",
                    store=store,
                    container=variant.container,
                    role=self.execution_role,
                    cache_enabled=cache_enabled,
                    network_isolation=network_isolation,
                    network=self._network,
                )
        return {variant.name: by_container[id(variant.container)] for variant in variants}

    def _scalable_variant(self, variant: ResolvedVariant) -> ScalableVariant:
        return ScalableVariant(
            self,
            variant.suffix,
            endpoint_name=self.endpoint_name,
            metric_name=self.metric_endpoint_name,
            variant_name=variant.name,
            instance_type=variant.instance_type,
            smallest=variant.smallest,
            greatest=variant.greatest,
        )


def _rendered(
    deployment: Deployment | None, alarms: Sequence[cloudwatch.IAlarm] = ()
) -> sagemaker.CfnEndpoint.DeploymentConfigProperty | None:
    from mme_constructs import deployment as deployments  # most endpoints have no policy, and loading it takes time

    return deployments.render(deployment, alarms)
