"""The role that SageMaker assumes for an endpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_iam as iam
from constructs import Construct

from mme_constructs.acknowledge import acknowledge_wildcards
from mme_constructs.stack_of import stack_of
from mme_facts.metrics import INSTANCE_NAMESPACE, INVOCATION_NAMESPACE

if TYPE_CHECKING:
    from mme_constructs.artifact_store import ModelArtifactStore
    from mme_constructs.container import MultiModelContainer

__all__ = ["build_execution_role", "grant_alarms"]


def build_execution_role(
    scope: Construct,
    *,
    store: ModelArtifactStore,
    containers: Sequence[MultiModelContainer] = (),
    log_groups: Sequence[str],
    namespaces: Sequence[str] = (),
) -> iam.Role:
    """A role that reads the models' prefix, pulls the images and writes the endpoint's logs and metrics.

    Args:
        scope: the endpoint.
        store: the artifacts.
        containers: whose images it pulls.
        log_groups: names of the log groups that its containers write, possibly ending in ``*``.
        namespaces: further metric namespaces.
    """
    role = iam.Role(
        scope,
        "ExecutionRole",
        assumed_by=iam.ServicePrincipal("sagemaker.amazonaws.com"),
        description="Reads the models' prefix, pulls the serving image, writes the endpoint's logs and metrics.",
    )
    store.grant_read_models(role)
    for container in containers:
        container.grant_pull(scope, role)
    groups = [
        stack_of(scope).format_arn(service="logs", resource="log-group", resource_name=name, arn_format=cdk.ArnFormat.COLON_RESOURCE_NAME)
        for name in log_groups
    ]
    role.add_to_policy(
        iam.PolicyStatement(
            actions=["logs:CreateLogGroup", "logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"],
            resources=[resource for group in groups for resource in (group, f"{group}:log-stream:*")],
        )
    )
    role.add_to_policy(
        iam.PolicyStatement(
            actions=["cloudwatch:PutMetricData"],
            resources=["*"],
            conditions={"StringEquals": {"cloudwatch:namespace": [INSTANCE_NAMESPACE, INVOCATION_NAMESPACE, *namespaces]}},
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


def grant_alarms(role: iam.Role, alarms: Sequence[cloudwatch.IAlarm]) -> None:
    """Let ``role`` watch the alarms that roll an update back (Amazon SageMaker AI, Auto-rollback configuration and monitoring)."""
    if alarms:
        role.add_to_policy(iam.PolicyStatement(actions=["cloudwatch:DescribeAlarms"], resources=[alarm.alarm_arn for alarm in alarms]))
