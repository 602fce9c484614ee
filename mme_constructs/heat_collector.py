"""Turns the log lines of invocations into heat: requests, bytes and cold loads per model and window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import aws_cdk as cdk
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from constructs import Construct

from mme_constructs.acknowledge import acknowledge_wildcards
from mme_constructs.dead_letters import dead_letter_queue
from mme_constructs.errors import PoolError, TelemetryError
from mme_constructs.tenant_function import FunctionSettings, LogSettings, TenantFunction
from mme_facts import environment as variables
from mme_facts.grammar import GrammarError, check_pool_name
from mme_facts.heat import DEDICATED_POOL, HeatRules
from mme_facts.limits import LOG_GROUPS_OF_A_QUERY

if TYPE_CHECKING:
    from aws_cdk import aws_logs as logs

    from mme_constructs.artifact_store import ModelArtifactStore
    from mme_constructs.inference_component_endpoint import InferenceComponentEndpoint
    from mme_constructs.pool import ModelPool

__all__ = ["HeatCollector", "HeatSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatSettings:
    """What is counted when.

    Attributes:
        enabled: whether `MultiTenantInference` makes a collector. Default: yes. Warm-up, placement, planner and the split of costs need it.
        window_minutes: length of a window, minutes that divide a day; the collector runs once for each. Default 5.
        delay_seconds: a window is counted so long after its end: log events take a while until queries find them. Default 120.
        recount_minutes: and so long after its end once more, for lines that came late. Default 60.
        catch_up_hours: windows that ended longer ago, after an outage, are given up. Default 24.
        windows_a_pass: windows that one run of the function counts at most. Default 12.
        queries_at_once: queries of Logs Insights that a run has open at the same time, out of the account's 30. Default 3.

    Raises:
        TelemetryError: a number does not fit.
    """

    enabled: bool = True
    window_minutes: int = 5
    delay_seconds: int = 120
    recount_minutes: int = 60
    catch_up_hours: int = 24
    windows_a_pass: int = 12
    queries_at_once: int = 3

    def __post_init__(self) -> None:
        try:
            self.rules({"any": ["endpoint"]})
        except ValueError as error:
            raise TelemetryError(
                "Heat cannot be collected so",
                value=str(error),
                allowed="windows of minutes that divide a day, a recount after the delay, a catch-up of a window or more, counts from 1",
                fix="Correct the setting",
            ) from error

    def rules(self, pools: Mapping[str, Sequence[str]]) -> HeatRules:
        """The same as the function reads it, for these endpoints of each pool."""
        return HeatRules(
            {name: tuple(endpoints) for name, endpoints in pools.items()},
            window_seconds=self.window_minutes * 60,
            delay_seconds=self.delay_seconds,
            recount_seconds=self.recount_minutes * 60,
            catch_up_seconds=self.catch_up_hours * 3600,
            windows_a_pass=self.windows_a_pass,
            queries_at_once=self.queries_at_once,
        )


class HeatCollector(Construct):
    """A function on a schedule that asks Logs Insights once for each closed window and writes one ``heat/`` object for each pool.

    Nothing counts requests one by one: the only sources are log groups, of the invocation function and of applications. A window is written
    only if it is not there, so runs may be lost, cut or doubled. The function may query those log groups and read and write below
    ``heat/``, nothing else.

    Args:
        scope: the parent.
        id: the id below the parent.
        log_group: the invocation function's.
        application_log_groups: those that applications write their lines to (``TenantClient(log=...)``), at most 49; of this account and
            region. One that is deleted later stops the collection until it is taken out here. Default: none.
        store: where heat goes.
        pools: the shared endpoints.
        dedicated: the endpoint of models with components of their own; its heat is that of a pool ``dedicated``. Default: none.
        settings: what is counted when. Default: `HeatSettings` as it stands.
        function_settings: size and limits of the function. Default: 512 MB, 300 s.
        log_settings: how long its logs are kept. Default: three months.

    Raises:
        TelemetryError: there are more log groups than a query takes, or one is named twice.
        PoolError: there is no pool, a name cannot stand in a key or is ``dedicated``, or two pools share a name.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002 - CDK's name for it
        *,
        log_group: logs.ILogGroup,
        application_log_groups: Sequence[logs.ILogGroup] = (),
        store: ModelArtifactStore,
        pools: Sequence[ModelPool],
        dedicated: InferenceComponentEndpoint | None = None,
        settings: HeatSettings | None = None,
        function_settings: FunctionSettings | None = None,
        log_settings: LogSettings | None = None,
    ) -> None:
        settings = HeatSettings() if settings is None else settings
        endpoints = _endpoints(pools)
        if dedicated is not None:
            endpoints[DEDICATED_POOL] = [dedicated.endpoint_name]
        try:
            rules = settings.rules(endpoints)
        except ValueError as error:
            raise PoolError(
                "Requests could not be told apart by pool", value=str(error), allowed="an endpoint for each pool", fix="Merge the pools"
            ) from error
        log_groups = _checked([log_group, *application_log_groups])
        super().__init__(scope, id)
        self.dead_letters = dead_letter_queue(self)
        """Schedules that failed for good; they need not be sent again, the next run does what they did not."""
        function = TenantFunction(
            self,
            "Function",
            handler="mme_tenancy.handlers.heat.handler",
            description="Turns log lines of invocations into heat per model and window.",
            environment={
                variables.BUCKET_NAME: store.bucket.bucket_name,
                variables.LOG_GROUPS: ",".join(group.log_group_name for group in log_groups),
                variables.HEAT: rules.dump(),
            },
            settings=FunctionSettings(memory_mb=512, timeout_seconds=300) if function_settings is None else function_settings,
            log_settings=LogSettings() if log_settings is None else log_settings,
            dead_letter_queue=self.dead_letters,
        )
        self.function = function.function
        """The function."""
        store.grant_write_heat(function.role)
        function.role.add_to_policy(
            iam.PolicyStatement(actions=["logs:StartQuery"], resources=[group.log_group_arn for group in log_groups])
        )
        function.role.add_to_policy(iam.PolicyStatement(actions=["logs:GetQueryResults", "logs:StopQuery"], resources=["*"]))
        acknowledge_wildcards(
            function.role,
            {"*": "Queries have no resource that a policy could name (Service Authorization Reference: Amazon CloudWatch Logs)."},
        )
        self.rule = events.Rule(
            self,
            "EveryWindow",
            description="Collects the heat of closed windows.",
            schedule=events.Schedule.rate(cdk.Duration.minutes(settings.window_minutes)),
            targets=[
                targets.LambdaFunction(
                    self.function,
                    event=events.RuleTargetInput.from_object({}),
                    dead_letter_queue=self.dead_letters,
                    max_event_age=cdk.Duration.minutes(settings.window_minutes),
                    retry_attempts=0,
                )
            ],
        )
        """The schedule."""


def _checked(log_groups: Sequence[logs.ILogGroup]) -> Sequence[logs.ILogGroup]:
    names = [group.log_group_name for group in log_groups]
    if len(names) > LOG_GROUPS_OF_A_QUERY:
        raise TelemetryError(
            "A query takes no more log groups",
            value=len(names),
            allowed=f"{LOG_GROUPS_OF_A_QUERY} with the invocation function's (CloudWatch Logs API reference: StartQuery)",
            fix="Let applications share log groups",
        )
    if len(set(names)) < len(names):
        raise TelemetryError("A log group is named twice", value=names, allowed="each once", fix="Take one out")
    return log_groups


def _endpoints(pools: Sequence[ModelPool]) -> dict[str, list[str]]:
    if not pools:
        raise PoolError("There is no heat to collect", value=list(pools), allowed="one pool or more", fix="Pass a ModelPool")
    endpoints: dict[str, list[str]] = {}
    for pool in pools:
        try:
            check_pool_name(pool.name)
        except GrammarError as error:
            raise PoolError("The pool's heat cannot be named", value=pool.name, allowed=error.allowed, fix="Rename the pool") from error
        if pool.name == DEDICATED_POOL or pool.name in endpoints:
            raise PoolError(
                "Two pools' heat would share a name",
                value=pool.name,
                allowed=f"different names, other than {DEDICATED_POOL!r}",
                fix="Rename the pool",
            )
        endpoints[pool.name] = [pool.endpoint.endpoint_name]
    return endpoints
