"""The SageMaker model of a variant: a container over the prefix, alone or in a pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import aws_iam as iam
from aws_cdk import aws_sagemaker as sagemaker
from constructs import Construct

from mme_constructs.errors import PipelineError
from mme_constructs.pipeline import InferencePipeline, PipelineStep

if TYPE_CHECKING:
    from mme_constructs.artifact_store import ModelArtifactStore
    from mme_constructs.container import MultiModelContainer
    from mme_constructs.network import PlacedNetwork

__all__ = ["build_model", "steps_of"]

_Definition = sagemaker.CfnModel.ContainerDefinitionProperty


def steps_of(container: MultiModelContainer | InferencePipeline) -> tuple[PipelineStep, ...]:
    """The containers of an instance in order; raises `PipelineError` if none of them serves many models."""
    if isinstance(container, InferencePipeline):
        return tuple(container.steps)
    if not container.multi_model:
        raise PipelineError(
            "The endpoint's only container serves a single model",
            value="multi_model=False",
            allowed="a container with multi_model=True; a single-model container is a step of a pipeline",
            fix="Leave multi_model out, or put the container into an InferencePipeline",
        )
    return (PipelineStep(container=container),)


def build_model(
    scope: Construct,
    id: str,  # noqa: A002 - CDK's name for it
    *,
    store: ModelArtifactStore,
    container: MultiModelContainer | InferencePipeline,
    role: iam.Role,
    cache_enabled: bool,
    network_isolation: bool,
    network: PlacedNetwork | None,
) -> sagemaker.CfnModel:
    """Build the model and let ``role`` read the artifacts of its single-model containers.

    Args:
        scope: the endpoint.
        id: the id below it.
        store: the artifacts.
        container: one multi-model container, or a pipeline with one.
        role: assumed by SageMaker.
        cache_enabled: whether models stay loaded after an invocation.
        network_isolation: whether the containers are cut off from the network.
        network: subnets and security groups; None is SageMaker's own network.

    Raises:
        ContainerError: an image cannot be resolved for the stack.
    """
    steps = steps_of(container)
    definitions = [_define(scope, step, store, cache_enabled=cache_enabled) for step in steps]
    for step in steps:
        if step.artifact_key is not None:
            role.add_to_policy(iam.PolicyStatement(actions=["s3:GetObject"], resources=[store.bucket.arn_for_objects(step.artifact_key)]))
    single = len(definitions) == 1
    model = sagemaker.CfnModel(
        scope,
        id,
        execution_role_arn=role.role_arn,
        enable_network_isolation=network_isolation,
        primary_container=definitions[0] if single else None,
        containers=None if single else definitions,
        vpc_config=None
        if network is None
        else sagemaker.CfnModel.VpcConfigProperty(subnets=list(network.subnet_ids), security_group_ids=list(network.security_group_ids)),
    )
    # The role's policy must exist before SageMaker checks the prefix; without this the model depends on the bare role.
    model.node.add_dependency(role)
    return model


def _define(scope: Construct, step: PipelineStep, store: ModelArtifactStore, *, cache_enabled: bool) -> _Definition:
    image, environment = step.container.locate(scope).uri, dict(step.container.environment) or None
    if not step.container.multi_model:
        url = None if step.artifact_key is None else f"s3://{store.bucket.bucket_name}/{step.artifact_key}"
        return _Definition(image=image, mode="SingleModel", model_data_url=url, environment=environment)
    return _Definition(
        image=image,
        mode="MultiModel",
        model_data_url=store.model_data_url,
        environment=environment,
        # Left out, the cache is enabled.
        multi_model_config=None if cache_enabled else sagemaker.CfnModel.MultiModelConfigProperty(model_cache_setting="Disabled"),
    )
