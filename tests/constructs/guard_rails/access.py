"""Guard rails of networks, tenants' access and the API."""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_cognito as cognito
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_

from mme_constructs import (
    CognitoAuthorizer,
    FunctionSettings,
    LambdaAuthorizer,
    ModelArtifactStore,
    ModelPool,
    MultiModelEndpoint,
    PlatformAdmin,
    PrivateAccess,
    RateLimits,
    TenantAccess,
    TenantApi,
    TenantRegistry,
    Throttle,
)
from mme_constructs.errors import AuthorizerError, EndpointPolicyError, FunctionError, NetworkError, TenantError, ThrottleError, TrustError
from tests.constructs.guard_rails.rail import GuardRail


def _tenant_outside_the_grammar(stack: cdk.Stack) -> None:
    application = iam.Role(stack, "Application", assumed_by=iam.ServicePrincipal("ecs-tasks.amazonaws.com"))
    shared = MultiModelEndpoint.from_endpoint_attributes(stack, "Shared", endpoint_name="shared")
    shared.grant_invoke_tenant(application, "acme*")


def _tenant_id(stack: cdk.Stack) -> None:
    application = iam.Role(stack, "Application", assumed_by=iam.ServicePrincipal("ecs-tasks.amazonaws.com"))
    shared = MultiModelEndpoint.from_endpoint_attributes(stack, "Shared", endpoint_name="shared")
    shared.grant_invoke_tenant(application, "acme")


def _uploads_of_a_tenant_outside_the_grammar(stack: cdk.Stack) -> None:
    application = iam.Role(stack, "Application", assumed_by=iam.ServicePrincipal("ecs-tasks.amazonaws.com"))
    ModelArtifactStore(stack, "Store").grant_put_incoming(application, tenant="Acme/")


def _uploads_of_a_tenant(stack: cdk.Stack) -> None:
    application = iam.Role(stack, "Application", assumed_by=iam.ServicePrincipal("ecs-tasks.amazonaws.com"))
    ModelArtifactStore(stack, "Store").grant_put_incoming(application, tenant="acme")


def _api(stack: cdk.Stack) -> TenantApi:
    shared = MultiModelEndpoint.from_endpoint_attributes(stack, "Shared", endpoint_name="shared")
    pools = [ModelPool(framework="xgboost", endpoint=shared)]
    return TenantApi(stack, "Api", store=ModelArtifactStore(stack, "Store"), registry=TenantRegistry(stack, "Registry"), pools=pools)


def _anybody_is_trusted(stack: cdk.Stack) -> None:
    TenantAccess(stack, "Access", api=_api(stack), trusted=[iam.ArnPrincipal("*")])


def _nobody_is_trusted(stack: cdk.Stack) -> None:
    TenantAccess(stack, "Access", api=_api(stack), trusted=[])


def _a_role_is_trusted(stack: cdk.Stack) -> None:
    TenantAccess(stack, "Access", api=_api(stack), trusted=[iam.ArnPrincipal("arn:aws:iam::123456789012:role/SignIn")])


def _anybody_runs_the_platform(stack: cdk.Stack) -> None:
    PlatformAdmin(stack, "Admin", api=_api(stack), trusted=iam.AnyPrincipal())


def _a_role_runs_the_platform(stack: cdk.Stack) -> None:
    PlatformAdmin(stack, "Admin", api=_api(stack), trusted=iam.ArnPrincipal("arn:aws:iam::123456789012:role/Operators"))


def _any_attribute_may_be_written(stack: cdk.Stack) -> None:
    users = cognito.UserPool(stack, "Users", custom_attributes={"tenant": cognito.StringAttribute()})
    CognitoAuthorizer(user_pools=[users], clients=[users.add_client("App")])


def _the_tenant_may_not_be_written(stack: cdk.Stack) -> None:
    users = cognito.UserPool(stack, "Users", custom_attributes={"tenant": cognito.StringAttribute()})
    writable = cognito.ClientAttributes().with_standard_attributes(email=True)
    CognitoAuthorizer(user_pools=[users], clients=[users.add_client("App", write_attributes=writable)])


def _tokens_of_no_application(stack: cdk.Stack) -> None:
    users = cognito.UserPool.from_user_pool_id(stack, "Users", "eu-central-1_EXAMPLE")
    CognitoAuthorizer(user_pools=[users], clients=[])


def _tokens_of_an_application(stack: cdk.Stack) -> None:
    users = cognito.UserPool.from_user_pool_id(stack, "Users", "eu-central-1_EXAMPLE")
    CognitoAuthorizer(user_pools=[users], clients=[cognito.UserPoolClient.from_user_pool_client_id(stack, "App", "1example23456789")])


def _who_calls(stack: cdk.Stack) -> lambda_.IFunction:
    return lambda_.Function.from_function_name(stack, "WhoCalls", "who-calls")


def _known_by_nothing(stack: cdk.Stack) -> None:
    LambdaAuthorizer(function=_who_calls(stack), headers=[])


def _known_by_a_header(stack: cdk.Stack) -> None:
    LambdaAuthorizer(function=_who_calls(stack), headers=["X-Api-Key"])


def _kept_for_a_day(stack: cdk.Stack) -> None:
    LambdaAuthorizer(function=_who_calls(stack), cache_seconds=86_400)


def _kept_for_a_minute(stack: cdk.Stack) -> None:
    LambdaAuthorizer(function=_who_calls(stack), cache_seconds=60)


def _sessions_that_open_nothing(stack: cdk.Stack) -> None:
    shared = MultiModelEndpoint.from_endpoint_attributes(stack, "Shared", endpoint_name="shared")
    pools = [ModelPool(framework="xgboost", endpoint=shared)]
    store, registry = ModelArtifactStore(stack, "Store"), TenantRegistry(stack, "Registry")
    tokens = LambdaAuthorizer(function=_who_calls(stack))
    api = TenantApi(stack, "Api", store=store, registry=registry, pools=pools, authorizer=tokens)
    TenantAccess(stack, "Access", api=api, trusted=[iam.ArnPrincipal("arn:aws:iam::123456789012:role/SignIn")])


def _sessions_that_upload(stack: cdk.Stack) -> None:
    shared = MultiModelEndpoint.from_endpoint_attributes(stack, "Shared", endpoint_name="shared")
    pools = [ModelPool(framework="xgboost", endpoint=shared)]
    store, registry = ModelArtifactStore(stack, "Store"), TenantRegistry(stack, "Registry")
    tokens = LambdaAuthorizer(function=_who_calls(stack))
    api = TenantApi(stack, "Api", store=store, registry=registry, pools=pools, authorizer=tokens)
    TenantAccess(stack, "Access", api=api, trusted=[iam.ArnPrincipal("arn:aws:iam::123456789012:role/SignIn")], store=store)


def _one_zone(stack: cdk.Stack) -> None:
    private = PrivateAccess(stack, "Private", store=ModelArtifactStore(stack, "Store"), zones=1)
    private.allow_invoke(MultiModelEndpoint.from_endpoint_attributes(stack, "Shared", endpoint_name="shared"))


def _two_zones(stack: cdk.Stack) -> None:
    private = PrivateAccess(stack, "Private", store=ModelArtifactStore(stack, "Store"), zones=2)
    private.allow_invoke(MultiModelEndpoint.from_endpoint_attributes(stack, "Shared", endpoint_name="shared"))


def _small_range(stack: cdk.Stack) -> None:
    private = PrivateAccess(stack, "Private", store=ModelArtifactStore(stack, "Store"), cidr="10.0.0.0/22")
    private.allow_invoke(MultiModelEndpoint.from_endpoint_attributes(stack, "Shared", endpoint_name="shared"))


def _wide_range(stack: cdk.Stack) -> None:
    private = PrivateAccess(stack, "Private", store=ModelArtifactStore(stack, "Store"), cidr="10.0.0.0/18")
    private.allow_invoke(MultiModelEndpoint.from_endpoint_attributes(stack, "Shared", endpoint_name="shared"))


def _given_vpc(stack: cdk.Stack, *zones: str) -> ec2.IVpc:
    return ec2.Vpc.from_vpc_attributes(
        stack,
        "Vpc",
        vpc_id="vpc-1234",
        availability_zones=list(zones),
        isolated_subnet_ids=[f"subnet-{zone}" for zone in zones],
        isolated_subnet_route_table_ids=[f"rtb-{zone}" for zone in zones],
    )


def _given_vpc_in_one_zone(stack: cdk.Stack) -> None:
    vpc = _given_vpc(stack, "eu-central-1a")
    private = PrivateAccess(stack, "Private", store=ModelArtifactStore(stack, "Store"), vpc=vpc)
    private.allow_invoke(MultiModelEndpoint.from_endpoint_attributes(stack, "Shared", endpoint_name="shared"))


def _given_vpc_in_two_zones(stack: cdk.Stack) -> None:
    vpc = _given_vpc(stack, "eu-central-1a", "eu-central-1b")
    private = PrivateAccess(stack, "Private", store=ModelArtifactStore(stack, "Store"), vpc=vpc)
    private.allow_invoke(MultiModelEndpoint.from_endpoint_attributes(stack, "Shared", endpoint_name="shared"))


def _route_tables_unknown(stack: cdk.Stack) -> None:
    zones = ["eu-central-1a", "eu-central-1b"]
    subnets = ["subnet-1", "subnet-2"]
    vpc = ec2.Vpc.from_vpc_attributes(stack, "Vpc", vpc_id="vpc-1", availability_zones=zones, isolated_subnet_ids=subnets)
    private = PrivateAccess(stack, "Private", store=ModelArtifactStore(stack, "Store"), vpc=vpc)
    private.allow_invoke(MultiModelEndpoint.from_endpoint_attributes(stack, "Shared", endpoint_name="shared"))


def _gateways_already_there(stack: cdk.Stack) -> None:
    zones = ["eu-central-1a", "eu-central-1b"]
    subnets = ["subnet-1", "subnet-2"]
    vpc = ec2.Vpc.from_vpc_attributes(stack, "Vpc", vpc_id="vpc-1", availability_zones=zones, isolated_subnet_ids=subnets)
    store = ModelArtifactStore(stack, "Store")
    private = PrivateAccess(stack, "Private", store=store, vpc=vpc, already_there=["s3", "dynamodb"])
    private.allow_invoke(MultiModelEndpoint.from_endpoint_attributes(stack, "Shared", endpoint_name="shared"))


def _client_in_a_third_zone(stack: cdk.Stack) -> None:
    vpc = _given_vpc(stack, "eu-central-1a", "eu-central-1b")
    private = PrivateAccess(stack, "Private", store=ModelArtifactStore(stack, "Store"), vpc=vpc)
    private.allow_invoke(MultiModelEndpoint.from_endpoint_attributes(stack, "Shared", endpoint_name="shared"))
    far = ec2.Subnet.from_subnet_attributes(stack, "Far", subnet_id="subnet-3", availability_zone="eu-central-1c")
    private.add_client(ec2.SecurityGroup(stack, "Application", vpc=vpc), subnets=[far])


def _client_in_the_same_zones(stack: cdk.Stack) -> None:
    vpc = _given_vpc(stack, "eu-central-1a", "eu-central-1b")
    private = PrivateAccess(stack, "Private", store=ModelArtifactStore(stack, "Store"), vpc=vpc)
    private.allow_invoke(MultiModelEndpoint.from_endpoint_attributes(stack, "Shared", endpoint_name="shared"))
    private.add_client(ec2.SecurityGroup(stack, "Application", vpc=vpc), subnets=vpc.isolated_subnets)


def _fips_with_an_endpoint_policy(stack: cdk.Stack) -> None:
    american = cdk.Stack(stack, "American", env=cdk.Environment(account="123456789012", region="us-east-1"))
    private = PrivateAccess(american, "Private", store=ModelArtifactStore(american, "Store"), fips=True)
    private.allow_invoke(MultiModelEndpoint.from_endpoint_attributes(american, "Shared", endpoint_name="shared"))


def _fips_without_an_endpoint_policy(stack: cdk.Stack) -> None:
    american = cdk.Stack(stack, "American", env=cdk.Environment(account="123456789012", region="us-east-1"))
    PrivateAccess(american, "Private", store=ModelArtifactStore(american, "Store"), fips=True)


def _fips_where_there_is_none(stack: cdk.Stack) -> None:
    PrivateAccess(stack, "Private", store=ModelArtifactStore(stack, "Store"), fips=True)


def _function_in_subnets_of_no_vpc(stack: cdk.Stack) -> None:
    FunctionSettings(subnets=ec2.SubnetSelection(subnet_type=ec2.SubnetType.PRIVATE_ISOLATED))


def _function_placed(stack: cdk.Stack) -> None:
    private = PrivateAccess(stack, "Private", store=ModelArtifactStore(stack, "Store"))
    private.allow_invoke(MultiModelEndpoint.from_endpoint_attributes(stack, "Shared", endpoint_name="shared"))
    private.function_settings(FunctionSettings(memory_mb=2048))


def _one_plan(stack: cdk.Stack) -> None:
    shared = MultiModelEndpoint.from_endpoint_attributes(stack, "Shared", endpoint_name="shared")
    TenantApi(
        stack,
        "Api",
        store=ModelArtifactStore(stack, "Store"),
        registry=TenantRegistry(stack, "Registry"),
        pools=[ModelPool(framework="xgboost", endpoint=shared)],
        usage_plans={"standard": RateLimits(requests_per_second=50, burst=100)},
    )


def _a_plan_for_each_tier(stack: cdk.Stack) -> None:
    shared = MultiModelEndpoint.from_endpoint_attributes(stack, "Shared", endpoint_name="shared")
    TenantApi(
        stack,
        "Api",
        store=ModelArtifactStore(stack, "Store"),
        registry=TenantRegistry(stack, "Registry"),
        pools=[ModelPool(framework="xgboost", endpoint=shared)],
        usage_plans={
            "standard": RateLimits(requests_per_second=50, burst=100),
            "trusted": RateLimits(requests_per_second=500, burst=1000, quota=10_000_000, period="month"),
        },
    )


def _throttle_of_nothing(stack: cdk.Stack) -> None:
    Throttle(rate_per_second=0)


def _throttle(stack: cdk.Stack) -> None:
    _api(stack)
    Throttle(rate_per_second=100, burst=50)


RAILS = (
    GuardRail(
        "Invoking for a tenant outside the grammar",
        "IAM's `*` also matches slashes and other ids, so `acme*` would reach the models of `acme-evil` (Amazon SageMaker AI, Multi-Model "
        "Endpoint Security).",
        _tenant_outside_the_grammar,
        _tenant_id,
        TenantError,
    ),
    GuardRail(
        "Uploading for a tenant outside the grammar",
        "Keys are built from tenant ids; a looser pattern would reach other tenants' uploads.",
        _uploads_of_a_tenant_outside_the_grammar,
        _uploads_of_a_tenant,
        TenantError,
    ),
    GuardRail(
        "Tenants' sessions that anybody opens",
        "Whoever opens a session chooses its tenant, so anybody could act as every tenant (AWS IAM, Pass session tags in AWS STS).",
        _anybody_is_trusted,
        _a_role_is_trusted,
        TrustError,
    ),
    GuardRail(
        "Tenants' sessions that nobody opens",
        "A role without a trusted principal cannot be deployed (AWS IAM, AssumeRolePolicyDocument).",
        _nobody_is_trusted,
        _a_role_is_trusted,
        TrustError,
    ),
    GuardRail(
        "A platform that anybody runs",
        "The administrator reaches every path of the API and opens sessions for every tenant.",
        _anybody_runs_the_platform,
        _a_role_runs_the_platform,
        TrustError,
    ),
    GuardRail(
        "Users who write whose they are",
        "An app client without a list of write attributes may write every one, so users could make themselves another tenant's (Amazon "
        "Cognito, Working with user attributes).",
        _any_attribute_may_be_written,
        _the_tenant_may_not_be_written,
        AuthorizerError,
    ),
    GuardRail(
        "Tokens of no application",
        "A REST API's authorizer takes tokens of every application of a user pool; whose count must be said (Amazon API Gateway, Integrate "
        "a REST API with an Amazon Cognito user pool).",
        _tokens_of_no_application,
        _tokens_of_an_application,
        AuthorizerError,
    ),
    GuardRail(
        "A Lambda authorizer without identity sources",
        "Answers are cached by them: without any, one caller's answer would be used for all (Amazon API Gateway, Use API Gateway "
        "Lambda authorizers).",
        _known_by_nothing,
        _known_by_a_header,
        AuthorizerError,
    ),
    GuardRail(
        "Answers of an authorizer that are kept too long",
        "API Gateway keeps them for an hour at most (AWS CloudFormation, AWS::ApiGateway::Authorizer).",
        _kept_for_a_day,
        _kept_for_a_minute,
        AuthorizerError,
    ),
    GuardRail(
        "Tenants' sessions beside an API that takes tokens",
        "No IAM principal reaches such an API, so sessions would open nothing.",
        _sessions_that_open_nothing,
        _sessions_that_upload,
        AuthorizerError,
    ),
    GuardRail(
        "A private network in one Availability Zone",
        "An endpoint in a VPC needs subnets in two zones even for one instance (Amazon SageMaker AI, Give SageMaker AI hosted endpoints "
        "access to resources in your Amazon VPC).",
        _one_zone,
        _two_zones,
        NetworkError,
    ),
    GuardRail(
        "A private network without room",
        "Each instance of an endpoint takes two addresses or more, and functions and VPC endpoints take theirs (Amazon SageMaker AI, Give "
        "SageMaker AI hosted endpoints access to resources in your Amazon VPC).",
        _small_range,
        _wide_range,
        NetworkError,
    ),
    GuardRail(
        "A given VPC in one Availability Zone",
        "The same for a VPC that exists; without a selection only its isolated subnets count.",
        _given_vpc_in_one_zone,
        _given_vpc_in_two_zones,
        NetworkError,
    ),
    GuardRail(
        "Gateway endpoints without route tables",
        "S3 and DynamoDB are reached by routes, and CDK cannot add them to tables that it does not know.",
        _route_tables_unknown,
        _gateways_already_there,
        NetworkError,
    ),
    GuardRail(
        "A client in a zone without the runtime's endpoint",
        "The name of SageMaker's runtime may not resolve there (Amazon SageMaker AI, Connect to SageMaker AI Within your VPC).",
        _client_in_a_third_zone,
        _client_in_the_same_zones,
        NetworkError,
    ),
    GuardRail(
        "A policy for a FIPS endpoint",
        "VPC endpoint policies are not supported for SageMaker's FIPS runtime endpoints (Amazon SageMaker AI, Connect to SageMaker AI "
        "Within your VPC).",
        _fips_with_an_endpoint_policy,
        _fips_without_an_endpoint_policy,
        EndpointPolicyError,
    ),
    GuardRail(
        "FIPS where SageMaker has none",
        "SageMaker's runtime has FIPS endpoints in the United States only (AWS, FIPS endpoints by service).",
        _fips_where_there_is_none,
        _two_zones,
        NetworkError,
    ),
    GuardRail(
        "A function in subnets of no VPC",
        "Lambda takes subnets and security groups together and of one VPC; CDK would drop them without a VPC.",
        _function_in_subnets_of_no_vpc,
        _function_placed,
        FunctionError,
    ),
    GuardRail(
        "A throttle that lets nobody through",
        "With a rate of zero the stage answers every call with 429 (Amazon API Gateway, Throttle requests to your REST APIs).",
        _throttle_of_nothing,
        _throttle,
        ThrottleError,
    ),
    GuardRail(
        "A tier without a usage plan",
        "Keys of its tenants would belong to no plan, and a key of no plan is answered with 403 "
        "(Amazon API Gateway, Usage plans and API keys for REST APIs).",
        _one_plan,
        _a_plan_for_each_tier,
        ThrottleError,
    ),
)
