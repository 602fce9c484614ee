from __future__ import annotations

import copy
import json

import aws_cdk as cdk
import pytest

from mme_constructs import (
    FunctionSettings,
    ModelArtifactStore,
    ModelPool,
    MultiModelEndpoint,
    TelemetrySettings,
    TenantApi,
    TenantRegistry,
    Throttle,
)
from mme_constructs.errors import FunctionError, PoolError, RetentionError, TelemetryError, TenantError, ThrottleError
from mme_facts import environment as variables
from mme_facts.api import OPERATIONS, Function
from mme_facts.problems import PROBLEMS
from mme_facts.telemetry import LineSettings
from mme_tenancy.activation import Activator
from mme_tenancy.handlers.onboarding import Onboarding
from mme_tenancy.registration import Registrar
from mme_tenancy.retirement import Retirer
from mme_tenancy.testing import FakeClock, MemoryIdempotencyStore, MemoryRegistry, MemorySigner


def _parts(stack):
    endpoint = MultiModelEndpoint.from_endpoint_attributes(stack, "There", endpoint_name="shared")
    return {
        "store": ModelArtifactStore(stack, "Store"),
        "registry": TenantRegistry(stack, "Registry"),
        "pools": [ModelPool(framework="xgboost", endpoint=endpoint)],
    }


@pytest.fixture(scope="module")
def api(synthesize):
    def build(app):
        stack = cdk.Stack(app, "Test", env=cdk.Environment(account="111122223333", region="eu-central-1"))
        TenantApi(stack, "Api", **_parts(stack))

    return synthesize(build)


def _routes(synthesized):
    resources = synthesized.resources("AWS::ApiGateway::Resource")

    def path(reference):
        if "Fn::GetAtt" in reference:
            return ""
        properties = resources[reference["Ref"]]["Properties"]
        return f"{path(properties['ParentId'])}/{properties['PathPart']}"

    for method in synthesized.resources("AWS::ApiGateway::Method").values():
        properties = method["Properties"]
        yield properties["HttpMethod"], path(properties["ResourceId"]), properties


def _function(synthesized, handler):
    (function,) = [
        item for item in synthesized.resources("AWS::Lambda::Function").values() if item["Properties"]["Handler"].split(".")[2] == handler
    ]
    return function["Properties"]


def test_the_routes_are_the_documented_ones_and_no_more(api):
    assert {(method, path) for method, path, _ in _routes(api)} == {
        ("GET", "/openapi.json"),
        ("PUT", "/tenants/{tenant}"),
        ("GET", "/tenants/{tenant}"),
        ("GET", "/tenants/{tenant}/models"),
        ("GET", "/tenants/{tenant}/models/{model}"),
        ("POST", "/tenants/{tenant}/models/{model}/versions"),
        ("GET", "/tenants/{tenant}/models/{model}/versions"),
        ("GET", "/tenants/{tenant}/models/{model}/versions/{version}"),
        ("POST", "/tenants/{tenant}/models/{model}/versions/{version}/complete"),
        ("POST", "/tenants/{tenant}/models/{model}/invocations"),
        ("GET", "/tenants/{tenant}/results/{result}"),
        ("POST", "/tenants/{tenant}/models/{model}/activate"),
        ("DELETE", "/tenants/{tenant}/models/{model}/versions/{version}"),
        ("DELETE", "/tenants/{tenant}/models/{model}"),
        ("DELETE", "/tenants/{tenant}"),
    }
    assert len(OPERATIONS) == 15


def test_every_method_demands_a_signature(api):
    assert {properties["AuthorizationType"] for _, _, properties in _routes(api)} == {"AWS_IAM"}


def test_invocations_go_to_the_invocation_function_and_the_rest_to_onboarding(api):
    for _, path, properties in _routes(api):
        integration = json.dumps(properties["Integration"]["Uri"])
        assert properties["Integration"]["Type"] == "AWS_PROXY"
        assert properties["Integration"]["TimeoutInMillis"] == 29_000
        assert ("ApiInvocationFunction" if path.endswith(("/invocations", "/results/{result}")) else "ApiOnboardingFunction") in integration


def test_bodies_are_binary_and_the_stage_is_v1(api):
    assert api.only("AWS::ApiGateway::RestApi")["Properties"]["BinaryMediaTypes"] == ["*/*"]
    assert api.only("AWS::ApiGateway::Stage")["Properties"]["StageName"] == "v1"


def test_the_stage_throttles_and_logs_every_access_without_payloads(api):
    properties = api.only("AWS::ApiGateway::Stage")["Properties"]
    (settings,) = properties["MethodSettings"]
    assert (settings["ThrottlingRateLimit"], settings["ThrottlingBurstLimit"]) == (1000, 500)
    assert (settings["LoggingLevel"], settings["DataTraceEnabled"]) == ("ERROR", False)
    fields = json.loads(properties["AccessLogSetting"]["Format"])
    assert {"requestId", "caller", "method", "path", "status", "latencyMs"} <= set(fields)
    assert not any("body" in name.lower() for name in fields)


def test_the_gateways_own_errors_are_problem_documents_whose_status_is_the_answers(api):
    responses = {
        item["Properties"]["ResponseType"]: item["Properties"] for item in api.resources("AWS::ApiGateway::GatewayResponse").values()
    }
    assert {
        "ACCESS_DENIED",
        "RESOURCE_NOT_FOUND",
        "REQUEST_TOO_LARGE",
        "UNSUPPORTED_MEDIA_TYPE",
        "THROTTLED",
        "INTEGRATION_TIMEOUT",
    } <= set(responses)
    assert {"DEFAULT_4XX", "DEFAULT_5XX"} <= set(responses)
    for kind, properties in responses.items():
        headers = dict(properties["ResponseParameters"])
        assert headers.pop("gatewayresponse.header.Content-Type") == "'application/problem+json'"
        more = {"UNAUTHORIZED": {"WWW-Authenticate": "'Bearer'"}, "THROTTLED": {"Retry-After": "'1'"}}
        assert headers == {f"gatewayresponse.header.{name}": value for name, value in more.get(kind, {}).items()}
        document = json.loads(properties["ResponseTemplates"]["application/json"].replace("$context.error.messageString", '"Forbidden"'))
        assert document["status"] == int(properties["StatusCode"])
        problem = PROBLEMS[document["type"].rpartition(":")[2]]
        assert (document["title"], document["status"], document["detail"]) == (
            problem.title,
            problem.status,
            "these credentials do not allow this call" if kind == "ACCESS_DENIED" else "Forbidden",
        )


def test_the_accounts_logging_role_is_left_alone_unless_asked(api, synthesize_stack):
    assert not api.resources("AWS::ApiGateway::Account")

    def build(stack):
        TenantApi(stack, "Api", **_parts(stack), account_logging=True)

    synthesized = synthesize_stack(build)
    ((name, account),) = synthesized.resources("AWS::ApiGateway::Account").items()
    assert account["DeletionPolicy"] == "Retain"
    assert name in synthesized.only("AWS::ApiGateway::Stage")["DependsOn"]


def test_functions_share_runtime_code_and_environment(api):
    functions = [copy.deepcopy(_function(api, name)) for name in ("onboarding", "invocation")]
    assert functions[0]["Environment"]["Variables"].pop(variables.RETIRED_SECONDS) == str(7 * 86_400)
    assert functions[1]["Environment"]["Variables"].pop(variables.RESULT_SECONDS) == str(300 + 90)
    for properties in functions:
        assert (properties["Runtime"], properties["Architectures"]) == ("python3.13", ["arm64"])
        assert set(properties["Environment"]["Variables"]) - {variables.TENANT_ROLE_ARN} == {
            variables.TABLE_NAME,
            variables.BUCKET_NAME,
            variables.MODELS_PREFIX,
            variables.MAX_ARTIFACT_BYTES,
            variables.POOLS,
        }
    assert functions[0]["Code"] == functions[1]["Code"]
    assert len(list(api.folder.glob("asset.*"))) == 1


def test_the_pools_reach_the_functions_in_the_shape_they_read(api):
    pools = variables.load_pools(_function(api, "invocation")["Environment"]["Variables"][variables.POOLS])
    assert pools == (variables.Pool("xgboost", "xgboost", "shared", "AllTraffic"),)


def test_the_onboarding_function_warms_versions_at_the_pools_endpoints_and_invokes_nothing_else(api):
    role = _function(api, "onboarding")["Role"]["Fn::GetAtt"][0]
    statements = [
        statement
        for policy in api.resources("AWS::IAM::Policy").values()
        if {"Ref": role} in policy["Properties"]["Roles"]
        for statement in policy["Properties"]["PolicyDocument"]["Statement"]
        if "sagemaker" in str(statement["Action"])
    ]
    shared = "arn:aws:sagemaker:eu-central-1:111122223333:endpoint/shared"
    assert statements == [{"Action": "sagemaker:InvokeEndpoint", "Effect": "Allow", "Resource": shared}]


def test_an_endpoint_that_keeps_nothing_loaded_is_not_warmed(synthesize_stack):
    def build(stack):
        endpoint = MultiModelEndpoint.from_endpoint_attributes(stack, "Bare", endpoint_name="bare", cache_enabled=False)
        TenantApi(stack, "Api", **{**_parts(stack), "pools": [ModelPool(framework="xgboost", endpoint=endpoint)]})

    synthesized = synthesize_stack(build)
    (pool,) = variables.load_pools(_function(synthesized, "onboarding")["Environment"]["Variables"][variables.POOLS])
    assert pool.keeps_loaded is False
    role = _function(synthesized, "onboarding")["Role"]["Fn::GetAtt"][0]
    policies = [item for item in synthesized.resources("AWS::IAM::Policy").values() if {"Ref": role} in item["Properties"]["Roles"]]
    assert policies
    assert "sagemaker:InvokeEndpoint" not in str(policies)


def test_every_function_logs_to_its_own_group_for_three_months(api):
    groups = {json.dumps(item["Properties"]["LoggingConfig"]["LogGroup"]) for item in api.resources("AWS::Lambda::Function").values()}
    assert len(groups) == 2
    assert {item["Properties"]["RetentionInDays"] for item in api.resources("AWS::Logs::LogGroup").values()} == {90}


def test_the_functions_code_can_be_found_by_the_clis_hotswap(synthesize):
    def build(app):
        stack = cdk.Stack(app, "Test")
        TenantApi(stack, "Api", **_parts(stack))

    synthesized = synthesize(build, **{"aws:cdk:enable-asset-metadata": True})
    for function in synthesized.resources("AWS::Lambda::Function").values():
        assert function["Metadata"]["aws:asset:property"] == "Code"
        assert (synthesized.folder / function["Metadata"]["aws:asset:path"]).suffix == ".zip"
        assert (synthesized.folder / function["Metadata"]["aws:asset:path"]).is_file()


def test_no_stray_output_appears_in_the_users_stack(api):
    assert "Outputs" not in api.templates["Test"]


def test_settings_reach_their_function(synthesize_stack):
    def build(stack):
        TenantApi(
            stack,
            "Api",
            **_parts(stack),
            invocation_settings=FunctionSettings(memory_mb=2048, reserved_concurrency=7, tracing=True),
            throttle=Throttle(rate_per_second=10, burst=20),
        )

    synthesized = synthesize_stack(build)
    invocation = _function(synthesized, "invocation")
    assert (invocation["MemorySize"], invocation["ReservedConcurrentExecutions"]) == (2048, 7)
    assert invocation["TracingConfig"] == {"Mode": "Active"}
    assert "ReservedConcurrentExecutions" not in _function(synthesized, "onboarding")
    assert synthesized.only("AWS::ApiGateway::Stage")["Properties"]["MethodSettings"][0]["ThrottlingRateLimit"] == 10


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"memory_mb": 64}, "memory_mb is outside Lambda's limits: got 64; allowed: 128 to 10,240"),
        ({"timeout_seconds": 901}, "1 to 900"),
        ({"ephemeral_storage_mb": 100}, "512 to 10,240"),
        ({"reserved_concurrency": 0}, "The function could never run"),
    ],
)
def test_rejects_settings_beyond_lambdas_limits(settings, text):
    with pytest.raises(FunctionError) as caught:
        FunctionSettings(**settings)
    assert text in str(caught.value)


@pytest.mark.parametrize("throttle", [{"rate_per_second": 0}, {"burst": 0}])
def test_rejects_a_throttle_that_lets_nobody_through(throttle):
    with pytest.raises(ThrottleError, match="the API would answer nobody: got 0"):
        Throttle(**throttle)


def test_rejects_pools_that_do_not_tell_where_a_version_goes(stack):
    parts = _parts(stack)
    (pool,) = parts.pop("pools")
    with pytest.raises(PoolError, match="There is no pool"):
        TenantApi(stack, "None", **parts, pools=[])
    with pytest.raises(PoolError, match="share a name"):
        TenantApi(stack, "Twice", **parts, pools=[pool, pool])
    with pytest.raises(PoolError, match="share a framework"):
        TenantApi(stack, "Same", **parts, pools=[pool, ModelPool(framework="xgboost", endpoint=pool.endpoint, name="other")])
    with pytest.raises(PoolError, match="has no framework"):
        ModelPool(framework="", endpoint=pool.endpoint)


@pytest.mark.parametrize(
    ("method", "path"), [(operation.method, operation.path) for operation in OPERATIONS if operation.function is Function.ONBOARDING]
)
def test_the_onboarding_function_knows_every_route_that_leads_to_it(method, path):
    clock = FakeClock()
    registry = MemoryRegistry()
    pools = (variables.Pool("xgboost", "xgboost", "shared", "AllTraffic"),)
    registrar = Registrar(registry, MemorySigner(clock), pools, clock, lambda: 0.5)
    activator = Activator(registry, pools, clock, lambda: 0.5)
    retirer = Retirer(registry, clock, lambda: 0.5, grace_seconds=1)
    onboarding = Onboarding(registry, registrar, activator, retirer, MemoryIdempotencyStore(), 1000, clock)
    names = {"tenant": "acme", "model": "churn", "version": "v1-0123456789ab"}
    event = {"httpMethod": method, "path": path.format(**names), "resource": path, "pathParameters": names, "headers": {}, "body": "{}"}
    answer = onboarding(event, None)
    slug = json.loads(answer["body"]).get("type", "").rpartition(":")[2]
    assert slug not in {"not-found", "method-not-allowed", "internal-error"}, answer


def test_what_is_set_of_the_line_reaches_the_invocation_function_alone(synthesize):
    def build(app):
        stack = cdk.Stack(app, "Test")
        TenantApi(stack, "Api", **_parts(stack), telemetry=TelemetrySettings(tenants=["acme"], access_share=0.05))

    told = synthesize(build)
    environments = {handler: _function(told, handler)["Environment"]["Variables"] for handler in ("onboarding", "invocation")}
    assert LineSettings.load(environments["invocation"][variables.TELEMETRY]) == LineSettings(("acme",), 0.05)
    assert variables.TELEMETRY not in environments["onboarding"]


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"tenants": ["ACME"]}, TenantError),
        ({"tenants": ["acme", "acme"]}, TelemetryError),
        ({"tenants": [f"t{number}" for number in range(51)]}, TelemetryError),
        ({"access_share": 1.5}, TelemetryError),
        ({"access_share": float("nan")}, TelemetryError),
        ({"slow_ms": 0}, TelemetryError),
    ],
)
def test_a_line_that_cannot_be_is_refused(settings, error):
    with pytest.raises(error):
        TelemetrySettings(**settings)


def test_how_long_retired_artifacts_are_kept_is_a_setting(synthesize_stack, stack):
    told = synthesize_stack(lambda other: TenantApi(other, "Api", **_parts(other), retired_days=30))
    assert _function(told, "onboarding")["Environment"]["Variables"][variables.RETIRED_SECONDS] == str(30 * 86_400)
    for number, days in enumerate((0, -1, 3651)):
        with pytest.raises(RetentionError, match=f"got {days}"):
            TenantApi(stack, f"Api{number}", **_parts(cdk.Stack(cdk.App(), "Parts")), retired_days=days)
