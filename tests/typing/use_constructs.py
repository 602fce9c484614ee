"""Type-checked only: a user's stack that uses every construct."""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_applicationautoscaling as appscaling
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cognito as cognito
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from mme_constructs import (
    AlarmSettings,
    AllAtOnceDeployment,
    CacheScaling,
    CanaryDeployment,
    CapacitySize,
    CognitoAuthorizer,
    ComponentScaling,
    ComputeRequirements,
    ConfigurationError,
    CpuScaling,
    DataCapture,
    DedicatedSettings,
    EndpointNetwork,
    FleetWatch,
    FunctionSettings,
    HeatCollector,
    HeatSettings,
    ImageLocation,
    IMultiModelEndpoint,
    InferenceComponent,
    InferenceComponentEndpoint,
    InferencePipeline,
    InvocationScaling,
    LambdaAuthorizer,
    LambdaCode,
    LinearDeployment,
    LogSettings,
    MmeMonitoring,
    ModelAdmission,
    ModelArtifactStore,
    ModelPool,
    MultiModelContainer,
    MultiModelEndpoint,
    MultiTenantInference,
    PipelineStep,
    PlatformAdmin,
    PlatformFunctions,
    PlatformMonitoring,
    PoolSettings,
    PrivateAccess,
    PrivateService,
    ProductionVariant,
    RateLimits,
    RollingDeployment,
    ScheduledScaling,
    ServerFamily,
    ServerSettings,
    Sweeper,
    SweeperSettings,
    TelemetrySettings,
    TenantAccess,
    TenantApi,
    TenantIsolation,
    TenantRegistry,
    Throttle,
    UsagePlans,
    WarmUp,
    WarmUpSettings,
)


def endpoints(scope: Construct, store: ModelArtifactStore, access: PrivateAccess) -> list[IMultiModelEndpoint]:
    container = MultiModelContainer.from_framework("xgboost", version="1.7-1", settings=ServerSettings(workers_per_model=1))
    own = MultiModelContainer.from_image_uri("123456789012.dkr.ecr.eu-central-1.amazonaws.com/own:1", server=ServerFamily.XGBOOST_SKLEARN)
    location: ImageLocation = container.locate(scope)
    first = MultiModelContainer.from_framework("sklearn", version="1.2-1", multi_model=False)
    pipeline = InferencePipeline((PipelineStep(container=first, artifact_key="pre.tar.gz"), PipelineStep(container=own)))
    alarm: cloudwatch.IAlarm = cloudwatch.Alarm.from_alarm_arn(scope, "Alarm", location.uri)
    deployments: tuple[AllAtOnceDeployment | CanaryDeployment | LinearDeployment | RollingDeployment, ...] = (
        AllAtOnceDeployment(alarms=[alarm]),
        CanaryDeployment(size=CapacitySize(1, in_percent=False)),
        LinearDeployment(),
        RollingDeployment(),
    )
    built: list[IMultiModelEndpoint] = []
    for number, deployment in enumerate(deployments):
        endpoint = MultiModelEndpoint(
            scope,
            f"Endpoint{number}",
            store=store,
            container=container if number else pipeline,
            scaling=InvocationScaling(invocations_per_instance_per_minute=600),
            deployment=deployment,
            network=EndpointNetwork(vpc=access.vpc, subnets=access.subnet_selection, security_groups=[access.clients]),
            data_capture=DataCapture(bucket=store.bucket),
            variants=[ProductionVariant(name="A", weight=0.9), ProductionVariant(name="B", weight=0.1)],
        )
        endpoint.auto_scale(CpuScaling(percent=60))
        endpoint.auto_scale(CacheScaling(smallest_hit_ratio=0.8))
        endpoint.auto_scale(ScheduledScaling(name="morning", schedule=appscaling.Schedule.cron(hour="6"), min_instances=4))
        built.append(endpoint)
    built.append(MultiModelEndpoint.from_endpoint_attributes(scope, "Imported", endpoint_name="shared"))
    return built


def dedicated(scope: Construct, store: ModelArtifactStore, container: MultiModelContainer) -> InferenceComponentEndpoint:
    endpoint = InferenceComponentEndpoint(scope, "Dedicated", store=store, min_instances=0)
    component: InferenceComponent = endpoint.add_component(
        "acme",
        "iris",
        container=container,
        compute=ComputeRequirements(memory_mb=1024, cpus=0.5),
        scaling=ComponentScaling(min_copies=0, max_copies=2, invocations_per_copy_per_minute=100),
        copies=0,
    )
    assert component.node.id
    return endpoint


def platform(scope: cdk.Stack) -> MultiTenantInference:
    store, registry = ModelArtifactStore(scope, "Store"), TenantRegistry(scope, "Registry")
    access = PrivateAccess(scope, "Access", store=store, registry=registry, already_there=[PrivateService.LOGS])
    pools = [
        ModelPool(framework=f"framework-{number}", endpoint=endpoint) for number, endpoint in enumerate(endpoints(scope, store, access))
    ]
    plans = {tier: RateLimits(requests_per_second=10, burst=20, quota=1000, period="day") for tier in ("standard", "trusted")}
    throttle = Throttle(rate_per_second=10, burst=10)
    api = TenantApi(scope, "Api", store=store, registry=registry, pools=pools, throttle=throttle, usage_plans=plans)
    made: UsagePlans | None = api.usage_plans
    assert made is not None
    users = cognito.UserPool.from_user_pool_id(scope, "Users", "eu-central-1_EXAMPLE")
    application = cognito.UserPoolClient.from_user_pool_client_id(scope, "Application", "1example23456789")
    tokens = CognitoAuthorizer(user_pools=[users], clients=[application], admin_group="operators")
    keys = LambdaAuthorizer(function=lambda_.Function.from_function_name(scope, "Keys", "keys"), kind="token", headers=["X-Key"])
    authorizer: CognitoAuthorizer | LambdaAuthorizer = tokens if scope.nested_stack_parent is None else keys
    TenantApi(scope, "Tokens", store=store, registry=registry, pools=pools, authorizer=authorizer)
    isolation: TenantIsolation | None = api.isolation
    assert isolation is not None
    ModelAdmission(scope, "Admission", store=store, registry=registry, pools=pools, settings=FunctionSettings(timeout_seconds=900))
    admin = PlatformAdmin(scope, "Admin", api=api, trusted=iam.AccountRootPrincipal())
    admin.allow_tenant_sessions(TenantAccess(scope, "Tenants", api=api, trusted=[admin.role]))
    monitoring = MmeMonitoring(scope, "Monitoring", endpoint=pools[0].endpoint, overrides={"low-cache-hit": AlarmSettings(threshold=0.8)})
    assert monitoring.alarms
    code: lambda_.Code = LambdaCode.code(scope)
    assert code is not None
    container = MultiModelContainer.from_framework("xgboost", version="1.7-1")
    return MultiTenantInference(
        scope,
        "Platform",
        pools=[PoolSettings(container=container)],
        dedicated=DedicatedSettings(max_instances=2),
        functions=PlatformFunctions(onboarding=FunctionSettings(reserved_concurrency=5)),
        sweep=SweeperSettings(every_minutes=10),
        monitoring=PlatformMonitoring(enabled=True),
        log_settings=LogSettings(),
    )


try:
    platform(cdk.Stack(cdk.App(), "Stack"))
except ConfigurationError as error:
    raise SystemExit(f"{error.code}: {error}") from error
WATCH: type[FleetWatch] = FleetWatch
TELEMETRY: TelemetrySettings = TelemetrySettings(tenants=["acme"], access_share=0.01, slow_ms=500)
SWEEPER: type[Sweeper] = Sweeper
COLLECTOR: type[HeatCollector] = HeatCollector
WARM_UP: type[WarmUp] = WarmUp
WARMED: WarmUpSettings = WarmUpSettings(keep_warm=["acme/churn"], traffic_share=0.1)
HEAT: HeatSettings = HeatSettings(window_minutes=1, delay_seconds=30)
