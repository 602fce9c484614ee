"""Guard rails of endpoints: instances and their volumes, network, pipelines, cache, updates, names."""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_kms as kms

from mme_constructs import (
    CanaryDeployment,
    CapacitySize,
    CpuScaling,
    EndpointNetwork,
    InferencePipeline,
    InvocationScaling,
    LinearDeployment,
    ModelArtifactStore,
    MultiModelContainer,
    MultiModelEndpoint,
    PipelineStep,
    ProductionVariant,
    RollingDeployment,
)
from mme_constructs.errors import (
    AutoScalingError,
    CacheError,
    DeploymentError,
    EncryptionError,
    EndpointNameError,
    EndpointSettingsError,
    InstanceCountError,
    NetworkError,
    PipelineError,
)
from tests.constructs.guard_rails.rail import GuardRail

XGBOOST = MultiModelContainer.from_framework("xgboost", version="1.7-1")
FEATURES = MultiModelContainer.from_framework("scikit-learn", version="1.2-1", multi_model=False)


def _store(stack: cdk.Stack) -> ModelArtifactStore:
    return ModelArtifactStore(stack, "Store")


def _vpc(stack: cdk.Stack, zones: int) -> ec2.IVpc:
    return ec2.Vpc(
        stack,
        "Vpc",
        availability_zones=[f"eu-central-1{letter}" for letter in "abc"[:zones]],
        nat_gateways=0,
        subnet_configuration=[ec2.SubnetConfiguration(name="inner", subnet_type=ec2.SubnetType.PRIVATE_ISOLATED)],
    )


def _key_on_nvme(stack: cdk.Stack) -> None:
    key = kms.Key(stack, "Key")
    MultiModelEndpoint(stack, "Endpoint", store=_store(stack), container=XGBOOST, instance_type="ml.m5d.xlarge", encryption_key=key)


def _key_on_ebs(stack: cdk.Stack) -> None:
    key = kms.Key(stack, "Key")
    MultiModelEndpoint(stack, "Endpoint", store=_store(stack), container=XGBOOST, instance_type="ml.m5.xlarge", encryption_key=key)


def _volume_on_nvme(stack: cdk.Stack) -> None:
    MultiModelEndpoint(stack, "Endpoint", store=_store(stack), container=XGBOOST, instance_type="ml.c5d.2xlarge", volume_size_gb=200)


def _volume_on_ebs(stack: cdk.Stack) -> None:
    MultiModelEndpoint(stack, "Endpoint", store=_store(stack), container=XGBOOST, instance_type="ml.c5.2xlarge", volume_size_gb=200)


def _scaling_on_burstable(stack: cdk.Stack) -> None:
    MultiModelEndpoint(
        stack, "Endpoint", store=_store(stack), container=XGBOOST, instance_type="ml.t2.xlarge", min_instances=2, max_instances=4
    )


def _burstable_of_a_fixed_size(stack: cdk.Stack) -> None:
    MultiModelEndpoint(
        stack, "Endpoint", store=_store(stack), container=XGBOOST, instance_type="ml.t2.xlarge", min_instances=2, max_instances=2
    )


def _cpu_target_of_summed_percent(stack: cdk.Stack) -> None:
    scaling = CpuScaling(percent=240)
    MultiModelEndpoint(stack, "Endpoint", store=_store(stack), container=XGBOOST, scaling=scaling)


def _cpu_target_of_all_vcpus(stack: cdk.Stack) -> None:
    scaling = CpuScaling(percent=60)
    MultiModelEndpoint(stack, "Endpoint", store=_store(stack), container=XGBOOST, scaling=scaling)


def _two_invocation_rules(stack: cdk.Stack) -> None:
    endpoint = MultiModelEndpoint(stack, "Endpoint", store=_store(stack), container=XGBOOST)
    endpoint.auto_scale(InvocationScaling(invocations_per_instance_per_minute=600))


def _one_invocation_rule(stack: cdk.Stack) -> None:
    scaling = InvocationScaling(invocations_per_instance_per_minute=600)
    MultiModelEndpoint(stack, "Endpoint", store=_store(stack), container=XGBOOST, scaling=scaling)


def _scale_to_zero(stack: cdk.Stack) -> None:
    MultiModelEndpoint(stack, "Endpoint", store=_store(stack), container=XGBOOST, min_instances=0, max_instances=4)


def _scale_to_one(stack: cdk.Stack) -> None:
    MultiModelEndpoint(stack, "Endpoint", store=_store(stack), container=XGBOOST, min_instances=1, max_instances=4)


def _single_model_container_alone(stack: cdk.Stack) -> None:
    MultiModelEndpoint(stack, "Endpoint", store=_store(stack), container=FEATURES)


def _no_multi_model_container(stack: cdk.Stack) -> None:
    pipeline = InferencePipeline([PipelineStep(container=FEATURES), PipelineStep(container=FEATURES)])
    MultiModelEndpoint(stack, "Endpoint", store=_store(stack), container=pipeline)


def _two_multi_model_containers(stack: cdk.Stack) -> None:
    pipeline = InferencePipeline([PipelineStep(container=XGBOOST), PipelineStep(container=XGBOOST)])
    MultiModelEndpoint(stack, "Endpoint", store=_store(stack), container=pipeline)


def _one_multi_model_container(stack: cdk.Stack) -> None:
    pipeline = InferencePipeline([PipelineStep(container=FEATURES), PipelineStep(container=XGBOOST)])
    MultiModelEndpoint(stack, "Endpoint", store=_store(stack), container=pipeline)


def _sixteen_containers(stack: cdk.Stack) -> None:
    steps = [PipelineStep(container=FEATURES)] * 15
    MultiModelEndpoint(stack, "Endpoint", store=_store(stack), container=InferencePipeline([*steps, PipelineStep(container=XGBOOST)]))


def _fifteen_containers(stack: cdk.Stack) -> None:
    steps = [PipelineStep(container=FEATURES)] * 14
    MultiModelEndpoint(stack, "Endpoint", store=_store(stack), container=InferencePipeline([*steps, PipelineStep(container=XGBOOST)]))


def _one_zone(stack: cdk.Stack) -> None:
    network = EndpointNetwork(vpc=_vpc(stack, zones=1))
    MultiModelEndpoint(stack, "Endpoint", store=_store(stack), container=XGBOOST, network=network)


def _two_zones(stack: cdk.Stack) -> None:
    network = EndpointNetwork(vpc=_vpc(stack, zones=2))
    MultiModelEndpoint(stack, "Endpoint", store=_store(stack), container=XGBOOST, network=network)


def _six_groups(stack: cdk.Stack) -> None:
    vpc = _vpc(stack, zones=2)
    groups = [ec2.SecurityGroup(stack, f"Group{number}", vpc=vpc) for number in range(6)]
    MultiModelEndpoint(stack, "Endpoint", store=_store(stack), container=XGBOOST, network=EndpointNetwork(vpc=vpc, security_groups=groups))


def _five_groups(stack: cdk.Stack) -> None:
    vpc = _vpc(stack, zones=2)
    groups = [ec2.SecurityGroup(stack, f"Group{number}", vpc=vpc) for number in range(5)]
    MultiModelEndpoint(stack, "Endpoint", store=_store(stack), container=XGBOOST, network=EndpointNetwork(vpc=vpc, security_groups=groups))


def _warm_up_without_cache(stack: cdk.Stack) -> None:
    endpoint = MultiModelEndpoint(stack, "Endpoint", store=_store(stack), container=XGBOOST, cache_enabled=False)
    endpoint.require_cache("warm-up")


def _warm_up_with_cache(stack: cdk.Stack) -> None:
    endpoint = MultiModelEndpoint(stack, "Endpoint", store=_store(stack), container=XGBOOST, cache_enabled=True)
    endpoint.require_cache("warm-up")


def _canary_waits_too_long(stack: cdk.Stack) -> None:
    deployment = CanaryDeployment(size=CapacitySize.of_percent(10), wait_seconds=7200)
    MultiModelEndpoint(stack, "Endpoint", store=_store(stack), container=XGBOOST, deployment=deployment)


def _canary_waits_an_hour(stack: cdk.Stack) -> None:
    deployment = CanaryDeployment(size=CapacitySize.of_percent(10), wait_seconds=3600)
    MultiModelEndpoint(stack, "Endpoint", store=_store(stack), container=XGBOOST, deployment=deployment)


def _canary_too_large(stack: cdk.Stack) -> None:
    deployment = CanaryDeployment(size=CapacitySize.of_percent(60))
    MultiModelEndpoint(stack, "Endpoint", store=_store(stack), container=XGBOOST, deployment=deployment)


def _canary_of_half(stack: cdk.Stack) -> None:
    deployment = CanaryDeployment(size=CapacitySize.of_percent(50))
    MultiModelEndpoint(stack, "Endpoint", store=_store(stack), container=XGBOOST, deployment=deployment)


def _waits_longer_than_the_update(stack: cdk.Stack) -> None:
    deployment = LinearDeployment(step=CapacitySize.of_percent(10), wait_seconds=600, timeout_seconds=3600)
    MultiModelEndpoint(stack, "Endpoint", store=_store(stack), container=XGBOOST, deployment=deployment)


def _waits_within_the_update(stack: cdk.Stack) -> None:
    deployment = LinearDeployment(step=CapacitySize.of_percent(10), wait_seconds=600, timeout_seconds=14_400)
    MultiModelEndpoint(stack, "Endpoint", store=_store(stack), container=XGBOOST, deployment=deployment)


def _rolling_with_two_variants(stack: cdk.Stack) -> None:
    variants = [ProductionVariant(name="Champion", weight=9), ProductionVariant(name="Challenger")]
    MultiModelEndpoint(stack, "Endpoint", store=_store(stack), container=XGBOOST, variants=variants, deployment=RollingDeployment())


def _canary_with_two_variants(stack: cdk.Stack) -> None:
    variants = [ProductionVariant(name="Champion", weight=9), ProductionVariant(name="Challenger")]
    MultiModelEndpoint(stack, "Endpoint", store=_store(stack), container=XGBOOST, variants=variants, deployment=CanaryDeployment())


def _long_name(stack: cdk.Stack) -> None:
    MultiModelEndpoint(stack, "Endpoint", store=_store(stack), container=XGBOOST, endpoint_name="tenants-" + "x" * 56)


def _upper_case_name(stack: cdk.Stack) -> None:
    MultiModelEndpoint(stack, "Endpoint", store=_store(stack), container=XGBOOST, endpoint_name="Tenants")


def _lower_case_name(stack: cdk.Stack) -> None:
    MultiModelEndpoint(stack, "Endpoint", store=_store(stack), container=XGBOOST, endpoint_name="tenants")


def _elastic_inference(stack: cdk.Stack) -> None:
    MultiModelEndpoint(stack, "Endpoint", store=_store(stack), container=XGBOOST, accelerator_type="ml.eia2.medium")


def _gpu_instead(stack: cdk.Stack) -> None:
    triton = MultiModelContainer.from_framework("triton", version="24.09")
    MultiModelEndpoint(stack, "Endpoint", store=_store(stack), container=triton, instance_type="ml.g5.xlarge")


def _startup_timeout_too_long(stack: cdk.Stack) -> None:
    MultiModelEndpoint(stack, "Endpoint", store=_store(stack), container=XGBOOST, container_startup_timeout_seconds=7200)


def _startup_timeout_of_an_hour(stack: cdk.Stack) -> None:
    MultiModelEndpoint(stack, "Endpoint", store=_store(stack), container=XGBOOST, container_startup_timeout_seconds=3600)


RAILS = (
    GuardRail(
        "KMS key on instances with NVMe disks",
        "CreateEndpointConfig fails; local disks are encrypted by their hardware (API reference: CreateEndpointConfig, KmsKeyId).",
        _key_on_nvme,
        _key_on_ebs,
        EncryptionError,
    ),
    GuardRail(
        "Volume size on instances with NVMe disks",
        "No EBS volume is attached to types with local disks (Amazon SageMaker AI, Host instance storage volumes).",
        _volume_on_nvme,
        _volume_on_ebs,
        EndpointSettingsError,
    ),
    GuardRail(
        "Auto scaling of burstable instances",
        "Burstable types are excluded from auto scaling (Amazon SageMaker AI, Configure model auto scaling with the console).",
        _scaling_on_burstable,
        _burstable_of_a_fixed_size,
        AutoScalingError,
    ),
    GuardRail(
        "CPU target given as the metric's sum over the vCPUs",
        "CPUUtilization goes up to 100 times the vCPUs; the construct multiplies, so a target above 100 is never met "
        "(Amazon SageMaker AI, Monitor SageMaker AI with Amazon CloudWatch).",
        _cpu_target_of_summed_percent,
        _cpu_target_of_all_vcpus,
        AutoScalingError,
    ),
    GuardRail(
        "The same auto scaling rule twice",
        "The second policy would replace or fight the first; an endpoint with room to scale has a rule already.",
        _two_invocation_rules,
        _one_invocation_rule,
        AutoScalingError,
    ),
    GuardRail(
        "Multi-model endpoint that scales to zero",
        "A variant's minimum is 1; only endpoints of inference components go to zero "
        "(Amazon SageMaker AI, Scale an endpoint to zero instances).",
        _scale_to_zero,
        _scale_to_one,
        InstanceCountError,
    ),
    GuardRail(
        "A single-model container alone",
        "CreateModel would take the prefix for one archive (API reference: ContainerDefinition, Mode).",
        _single_model_container_alone,
        _one_multi_model_container,
        PipelineError,
    ),
    GuardRail(
        "Pipeline without a multi-model container",
        "The endpoint would serve no artifact of the prefix (Amazon SageMaker AI, Inference pipelines).",
        _no_multi_model_container,
        _one_multi_model_container,
        PipelineError,
    ),
    GuardRail(
        "Pipeline with two multi-model containers",
        "CreateModel answers: More than one container in MultiModel mode is not supported with inference pipeline.",
        _two_multi_model_containers,
        _one_multi_model_container,
        PipelineError,
    ),
    GuardRail(
        "Pipeline of more than 15 containers",
        "CreateModel takes up to 15 (API reference: CreateModel, Containers).",
        _sixteen_containers,
        _fifteen_containers,
        PipelineError,
    ),
    GuardRail(
        "Endpoint in one Availability Zone",
        "SageMaker asks for two subnets in different zones, for a single instance too "
        "(Amazon SageMaker AI, Give SageMaker AI hosted endpoints access to resources in your Amazon VPC).",
        _one_zone,
        _two_zones,
        NetworkError,
    ),
    GuardRail(
        "Endpoint in more than five security groups",
        "VpcConfig takes 1 to 5 (API reference: VpcConfig).",
        _six_groups,
        _five_groups,
        NetworkError,
    ),
    GuardRail(
        "Warm-up of an endpoint whose cache is disabled",
        "The model is unloaded after each invocation, so what warm-up loads is gone before the next request "
        "(API reference: MultiModelConfig, ModelCacheSetting).",
        _warm_up_without_cache,
        _warm_up_with_cache,
        CacheError,
    ),
    GuardRail(
        "Canary that waits longer than the service allows",
        "WaitIntervalInSeconds is at most 3,600 (API reference: TrafficRoutingConfig).",
        _canary_waits_too_long,
        _canary_waits_an_hour,
        DeploymentError,
    ),
    GuardRail(
        "Canary of more than half of the fleet",
        "CanarySize is at most 50 % of the variant's instances (API reference: TrafficRoutingConfig).",
        _canary_too_large,
        _canary_of_half,
        DeploymentError,
    ),
    GuardRail(
        "Waits that take as long as the whole update may",
        "The update would always time out: MaximumExecutionTimeoutInSeconds must be larger than all waits "
        "(API reference: BlueGreenUpdatePolicy).",
        _waits_longer_than_the_update,
        _waits_within_the_update,
        DeploymentError,
    ),
    GuardRail(
        "Rolling deployment of several variants",
        "Rolling deployments exclude endpoints of several variants (Amazon SageMaker AI, Deployment guardrails, Exclusions).",
        _rolling_with_two_variants,
        _canary_with_two_variants,
        DeploymentError,
    ),
    GuardRail(
        "Endpoint name of more than 63 characters",
        "CreateEndpoint refuses it (API reference: CreateEndpoint, EndpointName).",
        _long_name,
        _lower_case_name,
        EndpointNameError,
    ),
    GuardRail(
        "Endpoint name in upper case",
        "Names that differ in case only clash when an endpoint is created, and IAM compares ARNs with case "
        "(API reference: CreateEndpoint, EndpointName).",
        _upper_case_name,
        _lower_case_name,
        EndpointNameError,
    ),
    GuardRail(
        "Elastic Inference",
        "It never worked with multi-model endpoints and is not available any more (API reference: ProductionVariant, AcceleratorType).",
        _elastic_inference,
        _gpu_instead,
        EndpointSettingsError,
    ),
    GuardRail(
        "Startup timeout outside the service's range",
        "ContainerStartupHealthCheckTimeoutInSeconds is 60 to 3,600 (API reference: ProductionVariant).",
        _startup_timeout_too_long,
        _startup_timeout_of_an_hour,
        EndpointSettingsError,
    ),
)
