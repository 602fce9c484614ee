"""The whole platform in one construct, on good defaults, each part replaceable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from constructs import Construct

from mme_constructs.artifact_store import ModelArtifactStore
from mme_constructs.container import MultiModelContainer
from mme_constructs.errors import AuthorizerError, NetworkError, PoolError, WarmUpError
from mme_constructs.fleet_watch import FleetWatch
from mme_constructs.heat_collector import HeatCollector, HeatSettings
from mme_constructs.lambda_code import LambdaCode
from mme_constructs.model_admission import ADMISSION_SETTINGS, ModelAdmission, greatest_artifact_bytes
from mme_constructs.monitoring import MmeMonitoring
from mme_constructs.monitoring_alarms import AlarmSettings
from mme_constructs.multi_model_endpoint import MultiModelEndpoint
from mme_constructs.platform_admin import PlatformAdmin
from mme_constructs.pool import ModelPool
from mme_constructs.scaling import InvocationScaling, ScalingRule
from mme_constructs.sweeper import Sweeper, SweeperSettings
from mme_constructs.tenant_access import TenantAccess
from mme_constructs.tenant_api import INVOCATION_SECONDS, TenantApi, Throttle
from mme_constructs.tenant_function import FunctionSettings, LogSettings
from mme_constructs.tenant_registry import TenantRegistry
from mme_constructs.warm_up import WARM_UP_FUNCTION, WarmUp, WarmUpSettings, obstacle
from mme_facts.limits import RETIRED_DAYS

if TYPE_CHECKING:
    from aws_cdk import aws_logs as logs

    from mme_constructs.authorizers import CognitoAuthorizer, LambdaAuthorizer
    from mme_constructs.inference_component_endpoint import InferenceComponentEndpoint
    from mme_constructs.network import EndpointNetwork
    from mme_constructs.private_access import PrivateAccess
    from mme_constructs.telemetry_settings import TelemetrySettings
    from mme_constructs.usage_plans import RateLimits

__all__ = ["DedicatedSettings", "MultiTenantInference", "PlatformFunctions", "PlatformMonitoring", "PoolSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSettings:
    """A pool that the platform builds: one shared endpoint for one framework.

    Attributes:
        container: what serves the models.
        framework: which versions go to it. Default: the container's own.
        name: the pool's name. Default: the framework's.
        instance_type: SageMaker instance type. Default ``ml.m5.xlarge``.
        min_instances: smallest number of instances. Default 2.
        max_instances: greatest number. Default 4.
        scaling: when instances are added and removed. Default: `InvocationScaling` as it stands.
    """

    container: MultiModelContainer
    framework: str = ""
    name: str = ""
    instance_type: str = "ml.m5.xlarge"
    min_instances: int = 2
    max_instances: int = 4
    scaling: ScalingRule = field(default_factory=InvocationScaling)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformFunctions:
    """Size and limits of the platform's functions.

    Attributes:
        onboarding: default 1,024 MB, 29 s.
        invocation: default 1,024 MB, 90 s: so long a request may take that is answered later; others have the gateway's time.
        admission: default 1,769 MB (one vCPU), 900 s: inspection is bound by the processor.
        fleet_watch: default 256 MB, 30 s.
        sweeper: default 512 MB, 240 s.
        heat: default 512 MB, 300 s.
        warm_up: default 1,769 MB (one vCPU), 300 s: it begins within seconds, and lasts up to three minutes.
    """

    onboarding: FunctionSettings = field(default_factory=FunctionSettings)
    invocation: FunctionSettings = field(default_factory=lambda: FunctionSettings(timeout_seconds=INVOCATION_SECONDS))
    admission: FunctionSettings = ADMISSION_SETTINGS
    fleet_watch: FunctionSettings = field(default_factory=lambda: FunctionSettings(memory_mb=256, timeout_seconds=30))
    sweeper: FunctionSettings = field(default_factory=lambda: FunctionSettings(memory_mb=512, timeout_seconds=240))
    heat: FunctionSettings = field(default_factory=lambda: FunctionSettings(memory_mb=512, timeout_seconds=300))
    warm_up: FunctionSettings = WARM_UP_FUNCTION

    def placed(self, private_access: PrivateAccess) -> PlatformFunctions:
        """The same functions, placed in a VPC without a way to the internet."""
        return PlatformFunctions(
            onboarding=private_access.function_settings(self.onboarding),
            invocation=private_access.function_settings(self.invocation),
            admission=private_access.function_settings(self.admission),
            fleet_watch=private_access.function_settings(self.fleet_watch),
            sweeper=private_access.function_settings(self.sweeper),
            heat=private_access.function_settings(self.heat),
            warm_up=private_access.function_settings(self.warm_up),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DedicatedSettings:
    """The endpoint for hot tenants' models that the platform builds.

    Attributes:
        enabled: whether there is one. Default: yes.
        instance_type: SageMaker instance type. Default ``ml.m5.xlarge``.
        min_instances: smallest number of instances. Default 0: it costs nothing while no model is dedicated.
        max_instances: greatest number. Default 4.
    """

    enabled: bool = True
    instance_type: str = "ml.m5.xlarge"
    min_instances: int = 0
    max_instances: int = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformMonitoring:
    """How the platform is watched: an `MmeMonitoring` for each pool, all notifying the same topics.

    Attributes:
        enabled: whether it is watched at all. Default: yes.
        topic: who is woken when users are hurt. Default: a topic of its own, with a KMS key of its own; subscribe people to it.
        ticket_topic: who is told about everything else. Default: ``topic``.
        runbook: address of a runbook page, ``{alarm}`` standing for the alarm's id. Default: its path in this project's repository.
        overrides: alarm id -> what is different, or ``None``: that alarm is not made; see `MmeMonitoring`.
    """

    enabled: bool = True
    topic: sns.ITopic | None = None
    ticket_topic: sns.ITopic | None = None
    runbook: str = "docs/runbook/{alarm}.md"
    overrides: Mapping[str, AlarmSettings | None] = field(default_factory=dict)


class MultiTenantInference(Construct):
    """Store, registry, pools, API, admission, the sweep, warm-up, the tenants' role, the platform administrator's and the alarms, wired.

    Args:
        scope: the parent.
        id: the id below the parent.
        store: the artifacts. Default: a bucket of its own, which stays when the stack is deleted.
        registry: tenants, models, versions, routes. Default: a table of its own, which stays and is protected.
        pools: `PoolSettings` to build, or `ModelPool` of an endpoint that exists. Default: one pool of SageMaker's XGBoost container.
        dedicated: the endpoint for hot tenants' models. Default: `DedicatedSettings` as it stands.
        sweep: when stuck versions are resumed and what nobody needs is deleted. Default: `SweeperSettings` as it stands.
        functions: size and limits of the functions. Default: `PlatformFunctions` as it stands.
        monitoring: how the pools are watched. Default: `PlatformMonitoring` as it stands.
        private_access: a VPC without a way to the internet that functions and built pools are placed in, and that the API is private to.
            Default: none; the API is public and every call must be signed, or carry what ``authorizer`` asks for.
        max_artifact_bytes: greatest upload, packed bytes. Default: what the admission function inspects in its time: 9.6 GiB.
        retired_days: how many days the artifact of a retired version is kept before it is deleted, 1 to 3,650. Default 7.
        throttle: how fast the API may be called. Default: `Throttle` as it stands.
        telemetry: what is logged of each invocation. Default: `TelemetrySettings` as it stands.
        heat: how requests, bytes and cold loads per model are collected from the log. Default: `HeatSettings` as it stands.
        warm_up: whether and how pools are warmed after their fleets changed. Default: `WarmUpSettings` as it stands, for every pool whose
            endpoint keeps models loaded and whose instance type is known, if heat is collected. With settings every pool must be so.
        application_log_groups: log groups that applications write the lines of `TenantClient` to; they count for heat and are on the
            dashboard, see `HeatCollector`. Default: none.
        direct_access: whether tenants' sessions may, beside the API, upload below their own ``incoming/`` and invoke their own models at
            the endpoints, as applications do that call SageMaker themselves. Default: no.
        authorizer: who may call the API, `CognitoAuthorizer` or `LambdaAuthorizer`, instead of IAM principals. Tenants' sessions and the
            administrator's role, which opens them, are then made only with ``direct_access``. Default: IAM authorization.
        admin_trusted: who may assume the platform administrator's role. Default: principals of the account whose own policies allow it.
        usage_plans: tier -> what each of its tenants may ask of the gateway, see `TenantApi`; not with ``private_access``. Default: none.
        log_settings: how long logs are kept. Default: three months; they stay when the stack is deleted.
        isolation: whether the invocation function may invoke only as the request's tenant, see `TenantApi`. Default: yes.
        account_logging: whether the account's CloudWatch role for API Gateway is set here, see `TenantApi`. Default: no.

    Raises:
        PoolError: there is no pool, a pool's framework is unknown, or two pools share a name or framework.
        RetentionError: ``retired_days`` is out of range.
        WarmUpError: warm-up is asked for without heat, or of a pool that cannot be warmed; prefetch, without heat by the minute.
        CacheError: it is asked for of a pool that keeps no model loaded.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002 - CDK's name for it
        *,
        store: ModelArtifactStore | None = None,
        registry: TenantRegistry | None = None,
        pools: Sequence[PoolSettings | ModelPool] | None = None,
        dedicated: DedicatedSettings | InferenceComponentEndpoint | None = None,
        sweep: SweeperSettings | None = None,
        functions: PlatformFunctions | None = None,
        monitoring: PlatformMonitoring | None = None,
        private_access: PrivateAccess | None = None,
        max_artifact_bytes: int | None = None,
        retired_days: int = RETIRED_DAYS,
        throttle: Throttle | None = None,
        telemetry: TelemetrySettings | None = None,
        heat: HeatSettings | None = None,
        warm_up: WarmUpSettings | None = None,
        application_log_groups: Sequence[logs.ILogGroup] = (),
        direct_access: bool = False,
        authorizer: CognitoAuthorizer | LambdaAuthorizer | None = None,
        admin_trusted: iam.IPrincipal | None = None,
        usage_plans: Mapping[str, RateLimits] | None = None,
        log_settings: LogSettings | None = None,
        isolation: bool = True,
        account_logging: bool = False,
    ) -> None:
        super().__init__(scope, id)
        LambdaCode.prepare()
        self._application_log_groups = tuple(application_log_groups)
        functions = PlatformFunctions() if functions is None else functions
        if private_access is not None:
            functions = functions.placed(private_access)
        log_settings = LogSettings() if log_settings is None else log_settings
        self.store = ModelArtifactStore(self, "Artifacts") if store is None else store
        """The artifacts."""
        self.registry = TenantRegistry(self, "Registry") if registry is None else registry
        """Tenants, models, versions, routes."""
        if private_access is not None:
            _check_private(private_access, self.store, self.registry, usage_plans=usage_plans)
        self.pools = self._build_pools(pools, private_access)
        """The pools, each with its endpoint."""
        self.dedicated = self._build_dedicated(DedicatedSettings() if dedicated is None else dedicated, private_access)
        """The endpoint for hot tenants' models, if there is one."""
        if private_access is not None and private_access.takes_policy:
            for pool in self.pools:
                private_access.allow_invoke(pool.endpoint)
            if self.dedicated is not None:
                private_access.allow_invoke(self.dedicated, components=True)
        self.api = TenantApi(
            self,
            "Api",
            store=self.store,
            registry=self.registry,
            pools=self.pools,
            max_artifact_bytes=greatest_artifact_bytes(functions.admission, max_artifact_bytes),
            retired_days=retired_days,
            throttle=throttle,
            telemetry=telemetry,
            onboarding_settings=functions.onboarding,
            invocation_settings=functions.invocation,
            log_settings=log_settings,
            isolation=isolation,
            dedicated_endpoints=[] if self.dedicated is None else [self.dedicated],
            account_logging=account_logging,
            account_logging_removal_policy=log_settings.removal_policy,
            private_endpoint=None if private_access is None else private_access.execute_api,
            authorizer=authorizer,
            usage_plans=usage_plans,
        )
        """The tenants' API."""
        self.admission = ModelAdmission(
            self,
            "Admission",
            store=self.store,
            registry=self.registry,
            pools=self.pools,
            max_artifact_bytes=max_artifact_bytes,
            settings=functions.admission,
            log_settings=log_settings,
        )
        """What inspects and activates uploads."""
        heat = HeatSettings() if heat is None else heat
        self.heat = self._build_heat(heat, functions.heat, log_settings)
        """What collects heat, if something does."""
        self.warm_up = self._build_warm_up(warm_up, heat, functions.warm_up, log_settings)
        """What warms pools after their fleets changed, if something does."""
        self.sweeper = Sweeper(
            self,
            "Sweeper",
            store=self.store,
            registry=self.registry,
            times=sweep,
            retired_days=retired_days,
            settings=functions.sweeper,
            log_settings=log_settings,
        )
        """What brings stuck versions on and deletes what nobody needs."""
        if private_access is not None and authorizer is not None:
            private_access.allow_tokens()
        self._roles = self._build_roles(admin_trusted, direct_access=direct_access) if authorizer is None or direct_access else None
        self.monitoring = self._build_monitoring(
            PlatformMonitoring() if monitoring is None else monitoring, functions.fleet_watch, log_settings
        )
        """What watches the pools, in their order; empty if nothing does."""

    @property
    def admin(self) -> PlatformAdmin:
        """The platform administrator's role; raises `AuthorizerError` if callers come with tokens only, so that there is none."""
        return self._made_roles()[0]

    @property
    def tenant_access(self) -> TenantAccess:
        """The role of tenants' sessions, opened by the administrator; raises `AuthorizerError` as `admin` does."""
        return self._made_roles()[1]

    def _made_roles(self) -> tuple[PlatformAdmin, TenantAccess]:
        if self._roles is None:
            raise AuthorizerError(
                "There is no role of the administrator or of tenants: callers come with tokens",
                value=type(self.api.authorizer).__name__,
                allowed="IAM authorization, or direct_access",
                fix="Leave authorizer out, or do not ask for the role",
            )
        return self._roles

    def _build_roles(self, trusted: iam.IPrincipal | None, *, direct_access: bool) -> tuple[PlatformAdmin, TenantAccess]:
        admin = PlatformAdmin(self, "PlatformAdmin", api=self.api, trusted=trusted)
        access = TenantAccess(
            self,
            "TenantAccess",
            api=self.api,
            trusted=[admin.role],
            store=self.store if direct_access else None,
            endpoints=[pool.endpoint for pool in self.pools] if direct_access else [],
            dedicated_endpoints=[self.dedicated] if direct_access and self.dedicated is not None else [],
        )
        admin.allow_tenant_sessions(access)
        return admin, access

    def _build_dedicated(
        self, settings: DedicatedSettings | InferenceComponentEndpoint, private_access: PrivateAccess | None
    ) -> InferenceComponentEndpoint | None:
        if not isinstance(settings, DedicatedSettings):
            return settings
        if not settings.enabled:
            return None
        from mme_constructs.inference_component_endpoint import InferenceComponentEndpoint

        endpoint = InferenceComponentEndpoint(
            self,
            "Dedicated",
            store=self.store,
            instance_type=settings.instance_type,
            min_instances=settings.min_instances,
            max_instances=settings.max_instances,
            network=_network(private_access),
        )
        if private_access is not None:
            endpoint.node.add_dependency(private_access.downloads)
        return endpoint

    def _build_heat(self, settings: HeatSettings, function_settings: FunctionSettings, log_settings: LogSettings) -> HeatCollector | None:
        if not settings.enabled:
            return None
        return HeatCollector(
            self,
            "Heat",
            log_group=self.api.invocation.log_group,
            application_log_groups=self._application_log_groups,
            store=self.store,
            pools=self.pools,
            dedicated=self.dedicated,
            settings=settings,
            function_settings=function_settings,
            log_settings=log_settings,
        )

    def _build_warm_up(
        self, settings: WarmUpSettings | None, heat: HeatSettings, function_settings: FunctionSettings, log_settings: LogSettings
    ) -> WarmUp | None:
        pools = self._warmable() if settings is None else self.pools if settings.enabled else ()
        if not pools:
            return None
        if self.heat is None:
            raise WarmUpError(
                "Warm-up would not know which models are used",
                value="heat is not collected",
                allowed="heat and warm-up, or neither",
                fix="Enable heat, or pass WarmUpSettings(enabled=False)",
            )
        return WarmUp(
            self,
            "WarmUp",
            store=self.store,
            registry=self.registry,
            pools=pools,
            heat=heat,
            settings=settings,
            function_settings=function_settings,
            log_settings=log_settings,
        )

    def _warmable(self) -> tuple[ModelPool, ...]:
        """The pools that are warmed if nothing is said of it; the synthesis says of the others why they are not."""
        if self.heat is None:
            return ()
        obstacles = [obstacle(pool, WarmUpSettings()) for pool in self.pools]
        for pool, why in zip(self.pools, obstacles, strict=True):
            if why:
                cdk.Annotations.of(self).add_info(f"The pool {pool.name!r} is not warmed after its fleet changes: {why}")
        return tuple(pool for pool, why in zip(self.pools, obstacles, strict=True) if not why)

    def _build_pools(self, pools: Sequence[PoolSettings | ModelPool] | None, private_access: PrivateAccess | None) -> tuple[ModelPool, ...]:
        if pools is None:
            pools = [PoolSettings(container=MultiModelContainer.from_framework("xgboost", version="1.7-1"))]
        return tuple(pool if isinstance(pool, ModelPool) else self._build_pool(pool, private_access) for pool in pools)

    def _build_monitoring(
        self, settings: PlatformMonitoring, function_settings: FunctionSettings, log_settings: LogSettings
    ) -> tuple[MmeMonitoring, ...]:
        watched: list[MmeMonitoring] = []
        for pool in self.pools if settings.enabled else ():
            first = watched[0] if watched else None
            watched.append(
                MmeMonitoring(
                    self,
                    f"Monitoring-{pool.name}",
                    endpoint=pool.endpoint,
                    invocation_path=True,
                    topic=settings.topic if first is None else first.topic,
                    ticket_topic=settings.ticket_topic if first is None else first.ticket_topic,
                    runbook=settings.runbook,
                    overrides=settings.overrides,
                )
            )
        if watched:
            watched[0].add_admission(self.admission)
            watched[0].add_sweeper(self.sweeper)
            for name, function in (("onboarding", self.api.onboarding.function), ("invocation", self.api.invocation.function)):
                watched[0].add_function_throttles(function)
                watched[0].add_function_errors(name, function)
            if self.api.invocation_dead_letters is not None:
                watched[0].add_schedule_dead_letters(self.api.invocation_dead_letters)
            if self.heat is not None:
                watched[0].add_heat(self.heat)
            if self.warm_up is not None:
                watched[0].add_warm_up_function(self.warm_up)
            watched[0].add_tenants(self.api.invocation.log_group, *self._application_log_groups)
            watch = FleetWatch(
                self, "FleetWatch", endpoints=[pool.endpoint for pool in self.pools], settings=function_settings, log_settings=log_settings
            )
            watched[0].add_schedule_dead_letters(watch.dead_letters)
        for pool, each in zip(self.pools, watched, strict=False):
            each.add_stuck_updating()
            if self.warm_up is not None and pool in self.warm_up.pools:
                each.add_warm_up(prefetch=self.warm_up.prefetch)
        return tuple(watched)

    def _build_pool(self, settings: PoolSettings, private_access: PrivateAccess | None) -> ModelPool:
        framework = settings.framework or settings.container.framework
        if not framework:
            raise PoolError(
                "The pool's container does not tell its framework",
                value=framework,
                allowed="the framework whose versions go to the pool",
                fix="Set framework, such as 'xgboost'",
            )
        name = settings.name or framework
        endpoint = MultiModelEndpoint(
            self,
            f"Pool-{name}",
            store=self.store,
            container=settings.container,
            instance_type=settings.instance_type,
            min_instances=settings.min_instances,
            max_instances=settings.max_instances,
            scaling=settings.scaling,
            network=_network(private_access),
        )
        if private_access is not None:
            endpoint.node.add_dependency(private_access.downloads)
        return ModelPool(framework=framework, endpoint=endpoint, name=name)


def _check_private(
    access: PrivateAccess, store: ModelArtifactStore, registry: TenantRegistry, *, usage_plans: Mapping[str, RateLimits] | None
) -> None:
    if usage_plans is not None:
        raise NetworkError(
            "The onboarding function could not make the tenants' API keys: it has no way to API Gateway's control plane",
            value="usage_plans with private_access",
            allowed="usage_plans, or private_access",
            fix="Leave one of them out, or wire TenantApi with functions that reach the control plane yourself",
        )
    if access.store is not store or access.registry is not registry:
        raise NetworkError(
            "The VPC endpoints admit another bucket or table than the platform uses",
            value=access.node.path,
            allowed="one store and one registry for both",
            fix="Pass the same store and registry to PrivateAccess and to MultiTenantInference",
        )
    if access.execute_api is None:
        raise NetworkError(
            "The API would be public: there is no VPC endpoint of our own to make it private to",
            value="execute-api in already_there",
            allowed="an execute-api endpoint made by PrivateAccess",
            fix="Take execute-api out of already_there, or wire TenantApi with private_endpoint yourself",
        )


def _network(private_access: PrivateAccess | None) -> EndpointNetwork | None:
    if private_access is None:
        return None
    from mme_constructs.network import EndpointNetwork

    return EndpointNetwork(vpc=private_access.vpc, subnets=private_access.subnet_selection, security_groups=[private_access.clients])
