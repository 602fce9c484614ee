"""What all functions of the platform share: runtime, code, role, log group, settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from mme_constructs.acknowledge import acknowledge, acknowledge_wildcards
from mme_constructs.errors import FunctionError
from mme_constructs.lambda_code import LambdaCode

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

    Raises:
        FunctionError: a number is outside Lambda's limits (AWS Lambda, quotas).
    """

    memory_mb: int = 1024
    timeout_seconds: int = 29
    ephemeral_storage_mb: int = 512
    reserved_concurrency: int | None = None
    tracing: bool = False

    def __post_init__(self) -> None:
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
        environment: variables, named in `mme_facts.environment`.
        settings: size and limits.
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
        self.log_group = logs.LogGroup(self, "Logs", retention=log_settings.retention, removal_policy=log_settings.removal_policy)
        """Its log group."""
        self.role = iam.Role(self, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"), description=description)
        """Its role."""
        self.log_group.grant_write(self.role)
        self.function = lambda_.Function(
            self,
            "Function",
            runtime=lambda_.Runtime.PYTHON_3_13,
            architecture=lambda_.Architecture.ARM_64,
            code=LambdaCode.code(self),
            handler=handler,
            description=description,
            environment=dict(environment),
            role=self.role,
            log_group=self.log_group,
            memory_size=settings.memory_mb,
            timeout=cdk.Duration.seconds(settings.timeout_seconds),
            ephemeral_storage_size=cdk.Size.mebibytes(settings.ephemeral_storage_mb),
            reserved_concurrent_executions=settings.reserved_concurrency,
            tracing=lambda_.Tracing.ACTIVE if settings.tracing else lambda_.Tracing.DISABLED,
            dead_letter_queue=dead_letter_queue,
        )
        """The function."""
        cfn_function = self.function.node.default_child
        assert isinstance(cfn_function, lambda_.CfnFunction)
        LambdaCode.of(self).add_resource_metadata(cfn_function, "Code")
        acknowledge(self.function, {"AwsSolutions-L1": "Python 3.13 is the newest runtime that the code is tested with."})
        if settings.tracing:
            acknowledge_wildcards(self.role, {"*": "X-Ray's actions have no resource (Service Authorization Reference: AWS X-Ray)."})
        if dead_letter_queue is None:
            acknowledge(
                self.function,
                {"NIST.800.53.R5-LambdaDLQ": "Called synchronously: the caller gets the error; the queues are for asynchronous events."},
            )
