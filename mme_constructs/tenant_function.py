"""What all functions of the platform share: runtime, code, role, log group, settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from mme_constructs.acknowledge import acknowledge, acknowledge_wildcards
from mme_constructs.errors import FunctionError
from mme_constructs.lambda_code import LambdaCode
from mme_constructs.stack_of import share_stack, stack_of

if TYPE_CHECKING:
    from aws_cdk import aws_ec2 as ec2

__all__ = ["FunctionSettings", "LogSettings", "TenantFunction"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """How long logs are kept.

    Attributes:
        retention: after which events expire. Default three months.
        removal_policy: what happens to the log groups with the stack. Default: they stay.
    """

    retention: logs.RetentionDays = logs.RetentionDays.THREE_MONTHS
    removal_policy: cdk.RemovalPolicy = cdk.RemovalPolicy.RETAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSettings:
    """Size and limits of one function.

    Attributes:
        memory_mb: memory in MB; CPU grows with it, one vCPU at 1,769.
        timeout_seconds: 1 to 900.
        ephemeral_storage_mb: size of ``/tmp`` in MB, 512 to 10,240.
        reserved_concurrency: concurrent executions that are set aside and not exceeded. Default: the account's pool. The account must keep
            100 executions unreserved, so new accounts with a quota of 10 cannot reserve any.
        tracing: whether X-Ray traces it; its role then may send segments. Default: no.
        vpc: the VPC that the function joins; its role then may attach it. What it calls must be reachable from there, such as through
            `PrivateAccess`. Default: none, the function calls AWS's public endpoints.
        subnets: which subnets of ``vpc``. Default: those that CDK chooses, the private ones with a way out.
        security_groups: groups of the function in ``vpc``. Default: a group of its own that lets nothing in.
        environment: variables besides the platform's own, such as ``AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME``. Default: none.

    Raises:
        FunctionError: a number is outside Lambda's limits (AWS Lambda, quotas), or subnets or groups are given without a VPC.
    """

    memory_mb: int = 1024
    timeout_seconds: int = 29
    ephemeral_storage_mb: int = 512
    reserved_concurrency: int | None = None
    tracing: bool = False
    vpc: ec2.IVpc | None = None
    subnets: ec2.SubnetSelection | None = None
    security_groups: Sequence[ec2.ISecurityGroup] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.vpc is None and (self.subnets is not None or self.security_groups):
            raise FunctionError(
                "Subnets and security groups belong to a VPC", value=None, allowed="a VPC for them", fix="Pass vpc, or leave them out"
            )
        for name, lowest, greatest in (("memory_mb", 128, 10_240), ("timeout_seconds", 1, 900), ("ephemeral_storage_mb", 512, 10_240)):
            if not lowest <= (value := getattr(self, name)) <= greatest:
                raise FunctionError(
                    f"{name} is outside Lambda's limits", value=value, allowed=f"{lowest:,} to {greatest:,}", fix="Change it"
                )
        if self.reserved_concurrency is not None and self.reserved_concurrency < 1:
            raise FunctionError(
                "The function could never run",
                value=self.reserved_concurrency,
                allowed="1 or more, or None",
                fix="Change reserved_concurrency",
            )


class TenantFunction(Construct):
    """One function of the platform with a role of its own that may write its own log group and, until it is granted more, nothing else.

    Args:
        scope: the parent.
        id: the id below the parent.
        handler: dotted name in the functions' code.
        description: what it does.
        environment: variables, named in `mme_facts.environment`. Those of ``settings`` come on top.
        settings: size, limits and place.
        log_settings: how long its logs are kept.
        dead_letter_queue: where events go that failed for good. Default: none, for functions that are called synchronously.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002 - CDK's name for it
        *,
        handler: str,
        description: str,
        environment: Mapping[str, str],
        settings: FunctionSettings,
        log_settings: LogSettings,
        dead_letter_queue: sqs.IQueue | None = None,
    ) -> None:
        super().__init__(scope, id)
        stack = stack_of(self, within=scope)
        self.log_group = logs.LogGroup(self, "Logs", retention=log_settings.retention, removal_policy=log_settings.removal_policy)
        """Its log group."""
        self.role = iam.Role(self, "Role", assumed_by=_lambda_service(), description=description)
        """Its role."""
        self.log_group.grant_write(self.role)
        if settings.vpc is not None:
            _grant_interfaces(self.role)
        self.function = lambda_.Function(
            self,
            "Function",
            runtime=_runtime(),
            architecture=_architecture(),
            code=LambdaCode.code(self),
            handler=handler,
            description=description,
            environment={**settings.environment, **environment},
            role=self.role,
            log_group=self.log_group,
            memory_size=settings.memory_mb,
            timeout=_seconds(settings.timeout_seconds),
            ephemeral_storage_size=_mebibytes(settings.ephemeral_storage_mb),
            reserved_concurrent_executions=settings.reserved_concurrency,
            tracing=lambda_.Tracing.ACTIVE if settings.tracing else lambda_.Tracing.DISABLED,
            dead_letter_queue=dead_letter_queue,
            vpc=settings.vpc,
            vpc_subnets=settings.subnets,
            security_groups=list(settings.security_groups) or None,
        )
        """The function."""
        share_stack(stack, self.function, self.role)
        cfn_function = self.function.node.default_child
        assert isinstance(cfn_function, lambda_.CfnFunction)
        LambdaCode.of(self).add_resource_metadata(cfn_function, "Code")
        acknowledge(self.function, {"AwsSolutions-L1": "Python 3.13 is the newest runtime that the code is tested with."})
        if settings.tracing:
            acknowledge_wildcards(self.role, {"*": "X-Ray's actions have no resource (Service Authorization Reference: AWS X-Ray)."})
        if dead_letter_queue is None:
            called = "Called synchronously: the caller gets the error; the queues are for asynchronous events."
            acknowledge(self.function, {"NIST.800.53.R5-LambdaDLQ": called})


# Values that all functions share: each is asked from CDK's process once.
_runtime = cache(lambda: lambda_.Runtime.PYTHON_3_13)
_architecture = cache(lambda: lambda_.Architecture.ARM_64)
_lambda_service = cache(lambda: iam.ServicePrincipal("lambda.amazonaws.com"))
_seconds = cache(cdk.Duration.seconds)
_mebibytes = cache(cdk.Size.mebibytes)


def _grant_interfaces(role: iam.Role) -> None:
    """Let Lambda attach the function to its subnets with ``role``.

    Source: AWS Lambda, Giving Lambda functions access to resources in an Amazon VPC (execution role permissions). The same actions as in
    AWS's managed policy AWSLambdaVPCAccessExecutionRole, without its right to write every log group.
    """
    role.add_to_policy(
        iam.PolicyStatement(
            actions=[
                "ec2:AssignPrivateIpAddresses",
                "ec2:CreateNetworkInterface",
                "ec2:DeleteNetworkInterface",
                "ec2:DescribeNetworkInterfaces",
                "ec2:DescribeSubnets",
                "ec2:UnassignPrivateIpAddresses",
            ],
            resources=["*"],
        )
    )
    acknowledge_wildcards(
        role, {"*": "Lambda checks these actions on every resource before it attaches a function; its interfaces have no name before."}
    )
