"""The tenants' HTTP API: onboarding and invocation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import aws_cdk as cdk
from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from constructs import Construct

from mme_constructs.acknowledge import acknowledge
from mme_constructs.authorizers import CognitoAuthorizer, LambdaAuthorizer
from mme_constructs.dead_letters import dead_letter_queue
from mme_constructs.errors import ThrottleError
from mme_constructs.gateway_responses import add_problem_responses
from mme_constructs.pool import ModelPool, function_environment
from mme_constructs.resuming import grant_resume
from mme_constructs.retention import check_retired_days
from mme_constructs.tenant_function import FunctionSettings, LogSettings, TenantFunction
from mme_constructs.tenant_isolation import TenantIsolation
from mme_constructs.tenant_rights import TENANT
from mme_constructs.usage_plans import RateLimits, UsagePlans, check_usage_plans
from mme_facts import environment as variables
from mme_facts.admission import ARTIFACT_BYTES
from mme_facts.api import KEY_OPERATIONS, OPERATIONS, Function
from mme_facts.limits import API_GATEWAY_TIMEOUT_SECONDS, RETIRED_DAYS

if TYPE_CHECKING:
    from aws_cdk import aws_ec2 as ec2

    from mme_constructs.artifact_store import ModelArtifactStore
    from mme_constructs.endpoint_interface import IMultiModelEndpoint
    from mme_constructs.telemetry_settings import TelemetrySettings
    from mme_constructs.tenant_registry import TenantRegistry
    from mme_constructs.tenant_rights import DedicatedEndpoint

__all__ = ["INVOCATION_SECONDS", "STAGE", "TenantApi", "Throttle"]

_DAY_SECONDS = 86_400
INVOCATION_SECONDS = 90
"""Timeout of the invocation function: of a request that is answered later. Other requests have the gateway's time."""
_EVENT_AGE_SECONDS = 300
"""So long Lambda tries to start a request that is answered later."""
STAGE = "v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttle:
    """How fast the whole API may be called.

    Attributes:
        rate_per_second: sustained requests a second. Default 1,000.
        burst: requests above it that are let through at once. Default 500.

    Raises:
        ThrottleError: a number is below 1: the API would answer nobody. Above the account's quota (10,000 and 5,000 by default, Amazon API
            Gateway quotas) the quota holds.
    """

    rate_per_second: int = 1000
    burst: int = 500

    def __post_init__(self) -> None:
        for name, value in (("rate_per_second", self.rate_per_second), ("burst", self.burst)):
            if value < 1:
                raise ThrottleError(f"With this {name} the API would answer nobody", value=value, allowed="1 or more", fix="Raise it")


class TenantApi(Construct):
    """A REST API over the onboarding and the invocation function, with IAM authorization, or another authorizer, on every method.

    With IAM authorization tenants are confined by their role's policy (`TenantAccess`). With an authorizer callers send tokens instead, no
    IAM principal reaches the API, and the functions refuse and log every call whose tenant is not the verified one.

    Bodies are binary in both directions. Errors of the gateway are problem documents like those of the functions. Access logs go to a log
    group of its own; API Gateway writes them only if the account has a CloudWatch role for it (one per account and region).

    With ``private_endpoint`` the API has no public address, and its resource policy refuses every call that does not come through that
    VPC endpoint. The policy only refuses, it allows nothing: in the API's own account an allowance of the resource policy is enough for a
    signed call, so one for everybody would lift the tenants' confinement (Amazon API Gateway, How API Gateway resource policies affect
    authorization workflow). Callers of other accounts assume a role of this account, as tenants' sessions do. Only with a
    `CognitoAuthorizer` it allows, too, what comes through the endpoint: a verified token alone opens nothing there.

    Args:
        scope: the parent.
        id: the id below the parent.
        store: where artifacts are.
        registry: where tenants, models and versions are.
        pools: which endpoint serves which framework.
        max_artifact_bytes: greatest upload, packed bytes. Default: what the admission function inspects in its time: 9.6 GiB.
        retired_days: how many days the artifact of a retired version is kept before it is deleted, 1 to 3,650. Default 7.
        throttle: how fast the API may be called. Default: `Throttle` as it stands.
        onboarding_settings: size and limits of the onboarding function. Default: 1,024 MB, 29 s.
        invocation_settings: size and limits of the invocation function. Default: 1,024 MB, 90 s, for requests that are answered later.
        telemetry: what the invocation function logs of each request. Default: `TelemetrySettings` as it stands.
        log_settings: how long logs are kept. Default: three months.
        isolation: whether the invocation function holds no right to invoke and assumes a role that is confined to the request's tenant
            (`TenantIsolation`). Without it each invocation saves an STS call an hour, and a bug in routing could reach another tenant's
            model: only for platforms all of whose tenants trust each other. Default: yes.
        dedicated_endpoints: endpoints of inference components that the invocation function may invoke as the request's tenant, with
            ``isolation``. Default: none.
        account_logging: whether this construct sets the account's CloudWatch role, as the first or only API of an account must. The setting
            is shared by all APIs of the account and region, so it stays when the stack goes. Default: no, it is set elsewhere.
        account_logging_removal_policy: what happens to that setting with the stack. Default: it stays.
        private_endpoint: the ``execute-api`` VPC endpoint that alone reaches the API, such as `PrivateAccess.execute_api`; with an
            ``authorizer`` its policy must let calls through that no principal signs (`PrivateAccess.allow_tokens`). Default: the API has a
            public address, in the region only.
        authorizer: who may call, `CognitoAuthorizer` or `LambdaAuthorizer`. Default: IAM authorization.
        usage_plans: tier -> what each of its tenants may ask, for every tier: invocations then need the tenant's API key as ``X-Api-Key``,
            beside what the authorization asks for, and the gateway counts by it (`UsagePlans`). The onboarding function needs a way to
            API Gateway's control plane. Default: no keys; the gateway's throttle holds for the API as a whole.

    Raises:
        PoolError: there is no pool, or two share a name or framework.
        RetentionError: ``retired_days`` is out of range.
        ThrottleError: a tier has no usage plan.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002 - CDK's name for it
        *,
        store: ModelArtifactStore,
        registry: TenantRegistry,
        pools: Sequence[ModelPool],
        max_artifact_bytes: int = ARTIFACT_BYTES,
        retired_days: int = RETIRED_DAYS,
        throttle: Throttle | None = None,
        onboarding_settings: FunctionSettings | None = None,
        invocation_settings: FunctionSettings | None = None,
        telemetry: TelemetrySettings | None = None,
        log_settings: LogSettings | None = None,
        isolation: bool = True,
        dedicated_endpoints: Sequence[DedicatedEndpoint] = (),
        account_logging: bool = False,
        account_logging_removal_policy: cdk.RemovalPolicy = cdk.RemovalPolicy.RETAIN,
        private_endpoint: ec2.IInterfaceVpcEndpoint | None = None,
        authorizer: CognitoAuthorizer | LambdaAuthorizer | None = None,
        usage_plans: Mapping[str, RateLimits] | None = None,
    ) -> None:
        environment = function_environment(store=store, registry=registry, pools=pools, max_artifact_bytes=max_artifact_bytes)
        check_retired_days(retired_days)
        if usage_plans is not None:
            check_usage_plans(usage_plans)
            environment[variables.USAGE_PLANS] = "1"
        super().__init__(scope, id)
        log_settings = LogSettings() if log_settings is None else log_settings
        self.authorizer = authorizer
        """Who may call; None: whom IAM lets."""
        if authorizer is not None:
            environment[variables.CALLERS] = variables.dump_callers(authorizer.callers())
        self.onboarding = TenantFunction(
            self,
            "Onboarding",
            handler="mme_tenancy.handlers.onboarding.handler",
            description="Registers tenants' versions, signs uploads, answers status and lists.",
            environment={**environment, variables.RETIRED_SECONDS: str(retired_days * _DAY_SECONDS)},
            settings=_settings(onboarding_settings),
            log_settings=log_settings,
        )
        """The function behind every route but invocations."""
        registry.grant_onboard(self.onboarding.role)
        store.grant_uploads(self.onboarding.role)
        grant_resume(self, self.onboarding.role)
        for pool in pools:
            if pool.endpoint.cache_enabled:
                # A version is warmed before requests are switched to it.
                pool.endpoint.grant_invoke(self.onboarding.role)
        invocation_settings = FunctionSettings(timeout_seconds=INVOCATION_SECONDS) if invocation_settings is None else invocation_settings
        self.answers_later = invocation_settings.vpc is None
        """Whether ``Prefer: respond-async`` is honoured: not by a function in a VPC, which has no way to invoke itself."""
        dead_letters = dead_letter_queue(self, "InvocationDeadLetters") if self.answers_later else None
        self.invocation_dead_letters = dead_letters
        """Ids of requests that were to be answered later and could not be run, if there can be some."""
        self.invocation = TenantFunction(
            self,
            "Invocation",
            handler="mme_tenancy.handlers.invocation.handler",
            description="Invokes a tenant's active version.",
            environment=environment if telemetry is None else {**environment, variables.TELEMETRY: telemetry.of_line().dump()},
            settings=invocation_settings,
            log_settings=log_settings,
            dead_letter_queue=dead_letters,
        )
        """The function behind invocations."""
        registry.grant_read_routes(self.invocation.role)
        self.isolation = self._isolate([pool.endpoint for pool in pools], dedicated_endpoints) if isolation else None
        """The role that the invocation function assumes for each tenant; ``None`` if it invokes with its own rights."""
        if self.isolation is None:
            for pool in pools:
                pool.endpoint.grant_invoke(self.invocation.role)
        if self.answers_later:
            self._allow_later_answers(store, invocation_settings.timeout_seconds)
        self.asks_for_keys = usage_plans is not None
        """Whether invocations need the tenant's API key."""
        self.api = self._build_api(Throttle() if throttle is None else throttle, log_settings, private_endpoint)
        """The REST API."""
        self.usage_plans = (
            None if usage_plans is None else UsagePlans(self, "UsagePlans", api=self.api, limits=usage_plans, onboarding=self.onboarding)
        )
        """The tiers' usage plans, if there are some."""
        if account_logging:
            self._build_account_logging(account_logging_removal_policy)

    def _isolate(self, endpoints: Sequence[IMultiModelEndpoint], dedicated: Sequence[DedicatedEndpoint]) -> TenantIsolation:
        isolation = TenantIsolation(self, "Isolation", function=self.invocation, endpoints=endpoints, dedicated_endpoints=dedicated)
        self.invocation.function.add_environment(variables.TENANT_ROLE_ARN, isolation.role.role_arn)
        return isolation

    def _allow_later_answers(self, store: ModelArtifactStore, timeout_seconds: int) -> None:
        """Let the invocation function send itself events, and keep answers: as the tenant of the request only, with isolation."""
        function = self.invocation.function
        function.configure_async_invoke(retry_attempts=1, max_event_age=cdk.Duration.seconds(_EVENT_AGE_SECONDS))
        function.add_environment(variables.RESULT_SECONDS, str(_EVENT_AGE_SECONDS + timeout_seconds))
        # A policy of its own: the function waits for its role's default policy, which therefore cannot name the function.
        invoke_itself = iam.PolicyStatement(actions=["lambda:InvokeFunction"], resources=[function.function_arn])
        iam.Policy(self, "InvokeItself", statements=[invoke_itself], roles=[self.invocation.role])
        if self.isolation is None:
            store.grant_results(self.invocation.role)
        else:
            store.grant_results(self.isolation.role, tenant=TENANT)

    @property
    def url(self) -> str:
        """The stage's URL, ending in ``/``."""
        return self.api.url

    def arn_for(self, method: str, path: str) -> str:
        """The ARN that ``execute-api:Invoke`` is granted on.

        Args:
            method: HTTP method or ``*``.
            path: path below the stage, from ``/``; may hold wildcards and policy variables.
        """
        return self.api.arn_for_execute_api(method, path, STAGE)

    @property
    def takes_signatures(self) -> bool:
        """Whether callers sign with IAM; otherwise a grant of ``execute-api:Invoke`` opens nothing."""
        return self.authorizer is None

    def _build_api(
        self, throttle: Throttle, log_settings: LogSettings, private_endpoint: ec2.IInterfaceVpcEndpoint | None
    ) -> apigateway.RestApi:
        access_logs = logs.LogGroup(self, "AccessLogs", retention=log_settings.retention, removal_policy=log_settings.removal_policy)
        api = apigateway.RestApi(
            self,
            "Api",
            description="Tenants onboard and invoke their models.",
            endpoint_configuration=apigateway.EndpointConfiguration(
                types=[apigateway.EndpointType.REGIONAL if private_endpoint is None else apigateway.EndpointType.PRIVATE],
                vpc_endpoints=None if private_endpoint is None else [private_endpoint],
            ),
            policy=None
            if private_endpoint is None
            else _only_through(private_endpoint, allow=isinstance(self.authorizer, CognitoAuthorizer)),
            binary_media_types=["*/*"],
            cloud_watch_role=False,
            default_method_options=apigateway.MethodOptions(authorization_type=apigateway.AuthorizationType.IAM)
            if self.authorizer is None
            else self.authorizer.method_options(self),
            deploy_options=apigateway.StageOptions(
                stage_name=STAGE,
                throttling_rate_limit=throttle.rate_per_second,
                throttling_burst_limit=throttle.burst,
                logging_level=apigateway.MethodLoggingLevel.ERROR,
                data_trace_enabled=False,
                access_log_destination=apigateway.LogGroupLogDestination(access_logs),
                access_log_format=_access_log_format(self.authorizer),
            ),
        )
        api.node.try_remove_child("Endpoint")  # an output that the stack did not ask for
        integrations = {
            name: apigateway.LambdaIntegration(
                function.function,
                proxy=True,
                scope_permission_to_method=False,
                timeout=cdk.Duration.seconds(API_GATEWAY_TIMEOUT_SECONDS),
            )
            for name, function in ((Function.ONBOARDING, self.onboarding), (Function.INVOCATION, self.invocation))
        }
        root = api.root
        for operation in (*OPERATIONS, *KEY_OPERATIONS) if self.asks_for_keys else OPERATIONS:
            keyed = self.asks_for_keys and operation.id == "invoke_model"
            root.resource_for_path(operation.path).add_method(
                operation.method, integrations[operation.function], api_key_required=keyed or None
            )
        add_problem_responses(api)
        acknowledge(
            api,
            {
                "AwsSolutions-APIG2": "Bodies are opaque bytes to the gateway; the functions validate and name the field.",
                **({} if isinstance(self.authorizer, CognitoAuthorizer) else {"AwsSolutions-COG4": _why_not_cognito(self.authorizer)}),
                "NIST.800.53.R5-APIGWSSLEnabled": "Integrations are functions: there is no backend to show a client certificate to.",
                "NIST.800.53.R5-APIGWCacheEnabledAndEncrypted": "Nothing is cached: answers belong to one tenant.",
            },
        )
        return api

    def _build_account_logging(self, removal_policy: cdk.RemovalPolicy) -> None:
        role = iam.Role(
            self,
            "CloudWatchRole",
            assumed_by=iam.ServicePrincipal("apigateway.amazonaws.com"),
            managed_policies=[iam.ManagedPolicy.from_aws_managed_policy_name("service-role/AmazonAPIGatewayPushToCloudWatchLogs")],
            description="Lets API Gateway write logs of every API of this account and region.",
        )
        role.apply_removal_policy(removal_policy)
        account = apigateway.CfnAccount(self, "Account", cloud_watch_role_arn=role.role_arn)
        account.apply_removal_policy(removal_policy)
        self.api.deployment_stage.node.add_dependency(account)
        managed = "Policy::arn:<AWS::Partition>:iam::aws:policy/service-role/AmazonAPIGatewayPushToCloudWatchLogs"
        acknowledge(
            role, {f"AwsSolutions-IAM4[{managed}]": "AWS maintains it for exactly this role; the setting serves every API of the account."}
        )


def _only_through(endpoint: ec2.IInterfaceVpcEndpoint, *, allow: bool) -> iam.PolicyDocument:
    def statement(effect: iam.Effect, operator: str) -> iam.PolicyStatement:
        return iam.PolicyStatement(
            effect=effect,
            principals=[iam.AnyPrincipal()],
            actions=["execute-api:Invoke"],
            resources=["execute-api:/*"],
            conditions={operator: {"aws:SourceVpce": endpoint.vpc_endpoint_id}},
        )

    refusal = statement(iam.Effect.DENY, "StringNotEquals")
    return iam.PolicyDocument(statements=[refusal, statement(iam.Effect.ALLOW, "StringEquals")] if allow else [refusal])


def _why_not_cognito(authorizer: LambdaAuthorizer | None) -> str:
    if authorizer is None:
        return "Every method demands IAM signatures; tenants are confined by their role's policy."
    return "Every method asks a Lambda authorizer; the functions compare the tenant that it names with the path."


def _settings(settings: FunctionSettings | None) -> FunctionSettings:
    return FunctionSettings(timeout_seconds=API_GATEWAY_TIMEOUT_SECONDS) if settings is None else settings


def _access_log_format(authorizer: CognitoAuthorizer | LambdaAuthorizer | None) -> apigateway.AccessLogFormat:
    caller = "identity.userArn"
    if authorizer is not None:
        caller = "authorizer.claims.sub" if isinstance(authorizer, CognitoAuthorizer) else "authorizer.principalId"
    fields = {
        "requestId": "$context.requestId",
        "extendedRequestId": "$context.extendedRequestId",
        "time": "$context.requestTime",
        "ip": "$context.identity.sourceIp",
        "caller": f"$context.{caller}",
        "method": "$context.httpMethod",
        "resource": "$context.resourcePath",
        "path": "$context.path",
        "status": "$context.status",
        "responseBytes": "$context.responseLength",
        "latencyMs": "$context.responseLatency",
        "integrationLatencyMs": "$context.integrationLatency",
        "error": "$context.error.responseType",
    }
    return apigateway.AccessLogFormat.custom(json.dumps(fields))
