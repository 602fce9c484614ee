"""Fills the caches of shared endpoints again after their fleets changed, so that tenants' own requests need not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import aws_cdk as cdk
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from constructs import Construct

from mme_constructs.acknowledge import acknowledge_wildcards
from mme_constructs.dead_letters import dead_letter_queue
from mme_constructs.errors import CacheError, WarmUpError
from mme_constructs.stack_of import is_token
from mme_constructs.tenant_function import FunctionSettings, LogSettings, TenantFunction
from mme_facts import environment as variables
from mme_facts import instances
from mme_facts.grammar import artifact_pattern
from mme_facts.warm_up import PREFETCH_WINDOW_SECONDS, WarmUpEndpoint, WarmUpRules, check_keep_warm
from mme_facts.warm_up import WarmUpSettings as WarmUpBounds

if TYPE_CHECKING:
    from mme_constructs.artifact_store import ModelArtifactStore
    from mme_constructs.heat_collector import HeatSettings
    from mme_constructs.pool import ModelPool
    from mme_constructs.tenant_registry import TenantRegistry

__all__ = ["WARM_UP_FUNCTION", "WarmUp", "WarmUpSettings", "obstacle"]

WARM_UP_FUNCTION = FunctionSettings(memory_mb=1769, timeout_seconds=300)
"""One vCPU, because a warm-up must begin within seconds of its event, and longer than a warm-up lasts by default."""
_BOUNDS = WarmUpBounds()
_PURPOSE = "warm-up"
_LEAST_TIMEOUT_SECONDS = 60
"""With less an invocation ends before its calls are answered; a longer warm-up is continued by the next one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUpSettings:
    """What is warmed, and how much a warm-up may do.

    Attributes:
        enabled: whether `MultiTenantInference` warms its pools. Default: yes, if it collects heat.
        keep_warm: models, each ``<tenant>/<model>``, that are called now and then so that they stay loaded. Default: none.
        prefetch: whether models with periodic use are warmed shortly before it, and those that are probably used next kept loaded. It
            predicts by the minute, so heat's windows must be a minute long (`HeatSettings.window_minutes`). Default: no.
        reserve_share: of a fleet's memory for models, what a warm-up leaves alone. Default 0.125.
        traffic_share: calls of a warm-up as a share of users' requests. Default 0.25.
        least_calls_per_second: calls that a warm-up may make however little traffic there is. Default 20.
        in_flight_share: of the loads that new instances do at once, what a warm-up uses; the rest is users'. Default 0.75.
        seconds: how long a warm-up lasts at most. Default 180.
        memory_bytes: memory of one instance that models may take. Default: 80 percent of what the endpoint's instance type has.
        load_slots: loads that one instance does at once. Default: one a vCPU, at least two; AWS publishes no number.

    Raises:
        WarmUpError: a number is out of its range, or a model to keep warm is none.
    """

    enabled: bool = True
    keep_warm: Sequence[str] = ()
    prefetch: bool = False
    reserve_share: float = _BOUNDS.reserve_share
    traffic_share: float = _BOUNDS.traffic_share
    least_calls_per_second: float = _BOUNDS.least_calls_per_second
    in_flight_share: float = _BOUNDS.in_flight_share
    seconds: float = _BOUNDS.seconds
    memory_bytes: int | None = None
    load_slots: int | None = None

    def __post_init__(self) -> None:
        try:
            self.bounds()
            check_keep_warm(self.keep_warm)
        except ValueError as error:
            raise WarmUpError(
                "Fleets cannot be warmed so",
                value=str(error),
                allowed="shares of 1 or less, numbers above 0, models named <tenant>/<model>, each once",
                fix="Correct the setting",
            ) from error
        for name in ("memory_bytes", "load_slots"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise WarmUpError(f"{name} leaves no room to warm anything", value=value, allowed="1 or more, or None", fix="Correct it")

    def bounds(self) -> WarmUpBounds:
        """The same as the function reads them."""
        names = {field.name for field in fields(self)} & {field.name for field in fields(WarmUpBounds)}
        return WarmUpBounds(**{name: getattr(self, name) for name in names})


class WarmUp(Construct):
    """A function that looks at shared endpoints, and calls models where the fleet has lost or moved them, each with its own sample.

    SageMaker's events of these endpoints and a schedule, once a minute, have it look; what it does follows from the endpoint's description
    and from what it remembers of it, so that events may come twice, late or not at all. Events of every status count: none is so rare that
    passing over it would save anything.

    The function may describe and invoke these endpoints (only with the TargetModel of an artifact), read CloudWatch's metrics, heat and
    the registry's items, write the items of these endpoints, with ``prefetch`` also what it remembers of the use of models, and invoke
    itself: a warm-up that takes longer than the function may run is continued. In a VPC it has no way to Lambda's API; the next minute's
    schedule continues then.

    Args:
        scope: the parent.
        id: the id below the parent.
        store: where heat lies.
        registry: where versions are, and what is remembered of endpoints.
        pools: the shared endpoints, at most one pool each.
        heat: how heat is collected. Default: not said; ``prefetch`` is then refused.
        settings: what is warmed. Default: `WarmUpSettings` as it stands.
        function_settings: size and limits of the function. Default: 1,769 MB (one vCPU), 300 s. With reserved concurrency leave room for
            two executions beside one for each endpoint.
        log_settings: how long its logs are kept. Default: three months.

    Raises:
        WarmUpError: there is nothing to warm, an endpoint or pool is named twice, its instance type is not known here, the function's
            time limit is below 60 s, or ``prefetch`` is asked for and heat's windows are not a minute long.
        CacheError: an endpoint keeps no model loaded (`ModelCacheSetting` ``Disabled``).
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002 - CDK's name for it
        *,
        store: ModelArtifactStore,
        registry: TenantRegistry,
        pools: Sequence[ModelPool],
        heat: HeatSettings | None = None,
        settings: WarmUpSettings | None = None,
        function_settings: FunctionSettings | None = None,
        log_settings: LogSettings | None = None,
    ) -> None:
        settings = WarmUpSettings() if settings is None else settings
        function_settings = WARM_UP_FUNCTION if function_settings is None else function_settings
        if function_settings.timeout_seconds < _LEAST_TIMEOUT_SECONDS:
            raise WarmUpError(
                "The function's time limit is too short to warm anything",
                value=function_settings.timeout_seconds,
                allowed=f"{_LEAST_TIMEOUT_SECONDS} seconds or more",
                fix="Raise timeout_seconds of function_settings",
            )
        if settings.prefetch:
            _check_windows(heat)
        rules = _rules(pools, settings)
        super().__init__(scope, id)
        self.pools = tuple(pools)
        """What is warmed."""
        self.prefetch = settings.prefetch
        """Whether models are also called before their next use."""
        self.dead_letters = dead_letter_queue(self)
        """Events and schedules that failed for good; they need not be sent again, the next schedule does what they did not."""
        function = TenantFunction(
            self,
            "Function",
            handler="mme_tenancy.handlers.warm_up.handler",
            description="Calls models where a changed fleet has lost or moved them.",
            environment={
                variables.TABLE_NAME: registry.table.table_name,
                variables.BUCKET_NAME: store.bucket.bucket_name,
                variables.WARM_UP: rules.dump(),
            },
            settings=function_settings,
            log_settings=LogSettings() if log_settings is None else log_settings,
            dead_letter_queue=self.dead_letters,
        )
        self.function = function.function
        """The function."""
        self.log_group = function.log_group
        """Its log group: plans, what came of them, and why."""
        names = [each.endpoint for each in rules.endpoints]
        store.grant_read_heat(function.role)
        if settings.prefetch:
            store.grant_prefetch(function.role)
        registry.grant_warm_up(function.role, names)
        self._grant_endpoints(function.role, [pool.endpoint.endpoint_arn for pool in pools])
        if function_settings.vpc is None:
            # A policy of its own: the function waits for its role's default policy, which therefore cannot name the function.
            invoke_itself = iam.PolicyStatement(actions=["lambda:InvokeFunction"], resources=[self.function.function_arn])
            iam.Policy(self, "InvokeItself", statements=[invoke_itself], roles=[function.role])
        changed = events.EventPattern(
            source=["aws.sagemaker"],
            detail_type=["SageMaker Endpoint State Change", "SageMaker Endpoint Deployment State Change"],
            detail={"EndpointName": names},
        )
        self.changed = events.Rule(
            self, "Changed", description="SageMaker says that the endpoints change.", event_pattern=changed, targets=[self._target()]
        )
        """The rule on SageMaker's events."""
        self.schedule = events.Rule(
            self,
            "EveryMinute",
            description="Looks whether the endpoints changed.",
            schedule=events.Schedule.rate(cdk.Duration.minutes(1)),
            targets=[self._target(events.RuleTargetInput.from_object({}))],
        )
        """The schedule, for events that were lost."""

    def _target(self, sent: events.RuleTargetInput | None = None) -> targets.LambdaFunction:
        return targets.LambdaFunction(
            self.function, event=sent, dead_letter_queue=self.dead_letters, max_event_age=cdk.Duration.minutes(1), retry_attempts=0
        )

    @staticmethod
    def _grant_endpoints(role: iam.Role, arns: Sequence[str]) -> None:
        role.add_to_policy(iam.PolicyStatement(actions=["sagemaker:DescribeEndpoint"], resources=arns))
        artifacts = {"StringLike": {"sagemaker:TargetModel": artifact_pattern()}}
        role.add_to_policy(iam.PolicyStatement(actions=["sagemaker:InvokeEndpoint"], resources=arns, conditions=artifacts))
        role.add_to_policy(iam.PolicyStatement(actions=["cloudwatch:GetMetricData"], resources=["*"]))
        acknowledge_wildcards(
            role, {"*": "GetMetricData has no resource that a policy could name (Service Authorization Reference: Amazon CloudWatch)."}
        )


def obstacle(pool: ModelPool, settings: WarmUpSettings) -> str:
    """Why a pool cannot be warmed; empty: it can."""
    try:
        _rules([pool], settings)
    except (CacheError, WarmUpError) as error:
        return str(error)
    return ""


def _check_windows(heat: HeatSettings | None) -> None:
    if heat is None or heat.window_minutes * 60 != PREFETCH_WINDOW_SECONDS:
        raise WarmUpError(
            "Prefetch predicts by the minute, and heat is not collected so",
            value="not said how heat is collected" if heat is None else f"window_minutes={heat.window_minutes}",
            allowed=f"prefetch with heat in windows of {PREFETCH_WINDOW_SECONDS // 60} minute, or no prefetch",
            fix="Pass heat=HeatSettings(window_minutes=1), which queries the log every minute, or leave prefetch out",
        )


def _rules(pools: Sequence[ModelPool], settings: WarmUpSettings) -> WarmUpRules:
    for pool in pools:
        pool.endpoint.require_cache(_PURPOSE)
    try:
        return WarmUpRules(
            tuple(_endpoint(pool, settings) for pool in pools),
            settings.bounds(),
            tuple(settings.keep_warm),
            settings.prefetch,
        )
    except instances.InstanceTypeError as error:
        raise WarmUpError(
            "It is not known how much a fleet holds",
            value=str(error),
            allowed="endpoints whose instance type is in the catalogue, or memory_bytes and load_slots",
            fix="Pass the endpoint's instance_type, or both settings",
        ) from error
    except ValueError as error:
        raise WarmUpError(
            "There is nothing to warm, or it is not clear what",
            value=str(error),
            allowed="pools, each with its endpoint",
            fix="Correct pools",
        ) from error


def _endpoint(pool: ModelPool, settings: WarmUpSettings) -> WarmUpEndpoint:
    endpoint = pool.endpoint
    return WarmUpEndpoint(
        pool.name,
        endpoint.endpoint_name,
        endpoint.variant_name,
        instances.models_memory_bytes(_type(endpoint.instance_type)) if settings.memory_bytes is None else settings.memory_bytes,
        instances.load_slots(_type(endpoint.instance_type)) if settings.load_slots is None else settings.load_slots,
    )


def _type(instance_type: str | None) -> str:
    return "" if instance_type is None or is_token(instance_type) else instance_type
