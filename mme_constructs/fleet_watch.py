"""Publishes how long endpoints have been out of service: the metric that SageMaker lacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import aws_cdk as cdk
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from constructs import Construct

from mme_constructs.dead_letters import dead_letter_queue
from mme_constructs.errors import AlarmError
from mme_constructs.tenant_function import FunctionSettings, LogSettings, TenantFunction

if TYPE_CHECKING:
    from mme_constructs.endpoint_interface import IMultiModelEndpoint

__all__ = ["FleetWatch"]


class FleetWatch(Construct):
    """A function that describes endpoints every minute and publishes ``updating_seconds`` and ``instances`` of ``MME/Fleet``.

    `MmeMonitoring.add_stuck_updating` alarms on it. One function watches all endpoints; it may describe these and nothing else.

    Args:
        scope: the parent.
        id: the id below the parent.
        endpoints: which endpoints, one or more.
        settings: size and limits of the function. Default: 256 MB, 30 s.
        log_settings: how long its logs are kept. Default: three months.

    Raises:
        AlarmError: there is nothing to watch.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002 - CDK's name for it
        *,
        endpoints: Sequence[IMultiModelEndpoint],
        settings: FunctionSettings | None = None,
        log_settings: LogSettings | None = None,
    ) -> None:
        if not endpoints:
            raise AlarmError("There is nothing to watch", value=list(endpoints), allowed="one endpoint or more", fix="Pass endpoints")
        super().__init__(scope, id)
        self.dead_letters = dead_letter_queue(self)
        """Schedules that failed for good; they need not be sent again, the next minute's replaces them."""
        function = TenantFunction(
            self,
            "Function",
            handler="mme_tenancy.handlers.fleet_watch.handler",
            description="Publishes how long endpoints have been out of service.",
            environment={},
            settings=FunctionSettings(memory_mb=256, timeout_seconds=30) if settings is None else settings,
            log_settings=LogSettings() if log_settings is None else log_settings,
            dead_letter_queue=self.dead_letters,
        )
        self.function = function.function
        """The function."""
        function.role.add_to_policy(
            iam.PolicyStatement(actions=["sagemaker:DescribeEndpoint"], resources=[endpoint.endpoint_arn for endpoint in endpoints])
        )
        self.rule = events.Rule(
            self,
            "EveryMinute",
            description="Describes the endpoints.",
            schedule=events.Schedule.rate(cdk.Duration.minutes(1)),
            targets=[
                targets.LambdaFunction(
                    self.function,
                    event=events.RuleTargetInput.from_object({"endpoints": [endpoint.endpoint_name for endpoint in endpoints]}),
                    dead_letter_queue=self.dead_letters,
                    max_event_age=cdk.Duration.minutes(1),
                    retry_attempts=0,
                )
            ],
        )
        """The schedule."""
