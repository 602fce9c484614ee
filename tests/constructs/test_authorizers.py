"""The API with tokens instead of signatures: what every method demands, what the functions are told, and which roles are left."""

from __future__ import annotations

import json

import aws_cdk as cdk
import pytest
from aws_cdk import aws_cognito as cognito
from aws_cdk import aws_lambda as lambda_
from cdk_nag import AwsSolutionsChecks, NIST80053R5Checks

from mme_constructs import (
    CognitoAuthorizer,
    LambdaAuthorizer,
    ModelArtifactStore,
    ModelPool,
    MultiModelEndpoint,
    MultiTenantInference,
    PrivateAccess,
    TenantApi,
    TenantRegistry,
)
from mme_constructs.errors import AuthorizerError
from mme_facts.environment import CALLERS, Callers, CallerSource, load_callers
from stacks.platform_stack import _DECISIONS

ENV = cdk.Environment(account="111122223333", region="eu-central-1")


def cognito_authorizer(stack, **settings):
    users = cognito.UserPool.from_user_pool_id(stack, "Users", "eu-central-1_EXAMPLE")
    clients = [cognito.UserPoolClient.from_user_pool_client_id(stack, name, f"1{name}") for name in ("first", "second")]
    return CognitoAuthorizer(user_pools=[users], clients=clients, **settings)


def lambda_authorizer(stack, **settings):
    code = lambda_.Code.from_inline("def handler(event, context):\n    return {}")
    function = lambda_.Function(stack, "WhoCalls", runtime=lambda_.Runtime.PYTHON_3_13, handler="index.handler", code=code)
    return LambdaAuthorizer(function=function, **settings)


def build_api(stack, authorizer, **options):
    endpoint = MultiModelEndpoint.from_endpoint_attributes(stack, "There", endpoint_name="shared")
    return TenantApi(
        stack,
        "Api",
        store=ModelArtifactStore(stack, "Store"),
        registry=TenantRegistry(stack, "Registry"),
        pools=[ModelPool(framework="xgboost", endpoint=endpoint)],
        authorizer=authorizer,
        **options,
    )


def _build(app, authorizer, name="Test"):
    stack = cdk.Stack(app, name, env=ENV)
    build_api(stack, authorizer(stack))


@pytest.fixture(scope="module")
def with_cognito(synthesize):
    return synthesize(lambda app: _build(app, cognito_authorizer))


@pytest.fixture(scope="module")
def with_lambda(synthesize):
    return synthesize(lambda app: _build(app, lambda_authorizer))


def methods(synthesized):
    return [item["Properties"] for item in synthesized.resources("AWS::ApiGateway::Method").values()]


def told(synthesized):
    """How each function of the API knows its callers."""
    found = {}
    for function in synthesized.resources("AWS::Lambda::Function").values():
        value = function["Properties"].get("Environment", {}).get("Variables", {}).get(CALLERS)
        if value is not None:
            found[function["Properties"]["Handler"].split(".")[2]] = load_callers(value)
    return found


class TestCognito:
    def test_every_method_demands_a_token_of_the_pool(self, with_cognito):
        ((name, authorizer),) = with_cognito.resources("AWS::ApiGateway::Authorizer").items()
        for method in methods(with_cognito):
            assert (method["AuthorizationType"], method["AuthorizerId"]) == ("COGNITO_USER_POOLS", {"Ref": name})
            assert "AuthorizationScopes" not in method
        properties = authorizer["Properties"]
        assert properties["Type"] == "COGNITO_USER_POOLS"
        assert "userpool/eu-central-1_EXAMPLE" in json.dumps(properties["ProviderARNs"])
        assert properties["AuthorizerResultTtlInSeconds"] == 0

    def test_both_functions_and_the_gateway_know_whose_tokens_count(self, with_cognito):
        callers = Callers(CallerSource.COGNITO, "custom:tenant", "platform-admin", ("1first", "1second"))
        assert told(with_cognito) == {"onboarding": callers, "invocation": callers}
        properties = with_cognito.only("AWS::ApiGateway::Authorizer")["Properties"]
        assert properties["IdentityValidationExpression"] == "^(1first|1second)$"

    def test_with_scopes_access_tokens_are_sent(self, synthesize_stack):
        scopes = ["tenants/use"]
        synthesized = synthesize_stack(lambda stack: build_api(stack, cognito_authorizer(stack, scopes=scopes, tenant_claim="tenant")))
        assert {tuple(method["AuthorizationScopes"]) for method in methods(synthesized)} == {("tenants/use",)}
        assert "IdentityValidationExpression" not in synthesized.only("AWS::ApiGateway::Authorizer")["Properties"]
        assert told(synthesized)["invocation"].access_tokens is True

    def test_clients_made_in_the_stack_are_known_by_reference(self, synthesize_stack):
        def build(stack):
            users = cognito.UserPool(stack, "Users", custom_attributes={"tenant": cognito.StringAttribute()})
            client = users.add_client("App", write_attributes=cognito.ClientAttributes().with_standard_attributes(email=True))
            build_api(stack, CognitoAuthorizer(user_pools=[users], clients=[client]))

        synthesized = synthesize_stack(build)
        ((name, _),) = synthesized.resources("AWS::Cognito::UserPoolClient").items()
        expression = synthesized.only("AWS::ApiGateway::Authorizer")["Properties"]["IdentityValidationExpression"]
        assert expression == {"Fn::Join": ["", ["^(", {"Ref": name}, ")$"]]}
        for function in synthesized.resources("AWS::Lambda::Function").values():
            value = function["Properties"].get("Environment", {}).get("Variables", {}).get(CALLERS)
            if value is not None:
                text = "".join(part if isinstance(part, str) else "CLIENT" for part in value["Fn::Join"][1])
                assert load_callers(text).clients == ("CLIENT",)

    @pytest.mark.parametrize(
        "settings", [{"tenant_claim": ""}, {"tenant_claim": "cognito:groups"}, {"admin_group": ""}, {"admin_group": "a,platform-admin"}]
    )
    def test_what_tells_no_caller_apart_is_refused(self, settings):
        with pytest.raises(AuthorizerError):
            cognito_authorizer(cdk.Stack(), **settings)

    def test_a_client_that_may_write_the_claim_is_refused(self):
        stack = cdk.Stack()
        users = cognito.UserPool(stack, "Users", custom_attributes={"tenant": cognito.StringAttribute()})
        writes = cognito.ClientAttributes().with_custom_attributes("tenant")
        client = users.add_client("App", write_attributes=writes)
        with pytest.raises(AuthorizerError, match="write attributes"):
            CognitoAuthorizer(user_pools=[users], clients=[client])
        CognitoAuthorizer(user_pools=[users], clients=[client], tenant_claim="tenant")  # a trigger adds it


class TestLambda:
    def test_every_method_asks_the_function(self, with_lambda):
        ((name, authorizer),) = with_lambda.resources("AWS::ApiGateway::Authorizer").items()
        for method in methods(with_lambda):
            assert (method["AuthorizationType"], method["AuthorizerId"]) == ("CUSTOM", {"Ref": name})
        properties = authorizer["Properties"]
        assert (properties["Type"], properties["IdentitySource"]) == ("REQUEST", "method.request.header.Authorization")
        assert properties["AuthorizerResultTtlInSeconds"] == 300
        callers = Callers(CallerSource.LAMBDA, "tenant", "role")
        assert told(with_lambda) == {"onboarding": callers, "invocation": callers}

    def test_only_this_apis_authorizer_may_invoke_the_function(self, with_lambda):
        ((name, _),) = with_lambda.resources("AWS::ApiGateway::Authorizer").items()
        (permission,) = [
            item["Properties"]
            for item in with_lambda.resources("AWS::Lambda::Permission").values()
            if "WhoCalls" in json.dumps(item["Properties"]["FunctionName"])
        ]
        assert name in json.dumps(permission["SourceArn"])

    def test_a_token_authorizer_gets_one_header(self, synthesize_stack):
        settings = {"kind": "token", "headers": ["X-Api-Key"], "cache_seconds": 0, "tenant_key": "org", "role_key": "kind"}
        synthesized = synthesize_stack(lambda stack: build_api(stack, lambda_authorizer(stack, **settings)))
        properties = synthesized.only("AWS::ApiGateway::Authorizer")["Properties"]
        assert (properties["Type"], properties["IdentitySource"]) == ("TOKEN", "method.request.header.X-Api-Key")
        assert told(synthesized)["onboarding"] == Callers(CallerSource.LAMBDA, "org", "kind", header="X-Api-Key")

    @pytest.mark.parametrize(
        "settings",
        [
            {"kind": "REQUEST"},
            {"headers": []},
            {"headers": ["a", "b"], "kind": "token"},
            {"headers": ["no header"]},
            {"cache_seconds": -1},
            {"cache_seconds": 3601},
            {"tenant_key": ""},
            {"role_key": ""},
            {"role_key": "tenant"},
        ],
    )
    def test_what_the_gateway_refuses_or_cannot_tell_apart_is_refused(self, settings):
        stack = cdk.Stack()
        with pytest.raises(AuthorizerError):
            LambdaAuthorizer(function=lambda_.Function.from_function_name(stack, "WhoCalls", "who-calls"), **settings)


@pytest.mark.parametrize(("fixture", "caller"), [("with_cognito", "authorizer.claims.sub"), ("with_lambda", "authorizer.principalId")])
def test_access_logs_name_the_verified_caller_and_no_credential(request, fixture, caller):
    settings = request.getfixturevalue(fixture).only("AWS::ApiGateway::Stage")["Properties"]["AccessLogSetting"]
    assert json.loads(settings["Format"])["caller"] == f"$context.{caller}"
    assert not any(word in settings["Format"].lower() for word in ("header", "token", "accesskey"))


@pytest.mark.parametrize(("build", "allows"), [(cognito_authorizer, True), (lambda_authorizer, False)])
def test_a_private_api_lets_tokens_in_through_its_endpoint_only(synthesize_stack, build, allows):
    def platform(stack):
        store, registry = ModelArtifactStore(stack, "Store"), TenantRegistry(stack, "Registry")
        access = PrivateAccess(stack, "Access", store=store, registry=registry)
        MultiTenantInference(stack, "Platform", store=store, registry=registry, private_access=access, authorizer=build(stack))

    synthesized = synthesize_stack(platform)
    statements = synthesized.only("AWS::ApiGateway::RestApi")["Properties"]["Policy"]["Statement"]
    assert {statement["Effect"] for statement in statements} == ({"Allow", "Deny"} if allows else {"Deny"})
    for statement in statements:
        ((operator, values),) = statement["Condition"].items()
        assert operator == {"Allow": "StringEquals", "Deny": "StringNotEquals"}[statement["Effect"]]
        assert list(values) == ["aws:SourceVpce"]
    (endpoint,) = [
        item["Properties"]
        for item in synthesized.resources("AWS::EC2::VPCEndpoint").values()
        if "execute-api" in json.dumps(item["Properties"]["ServiceName"])
    ]
    unsigned = [statement for statement in endpoint["PolicyDocument"]["Statement"] if "Condition" not in statement]
    assert [statement["Action"] for statement in unsigned] == ["execute-api:Invoke"]


class TestThePlatform:
    def test_has_no_roles_for_callers_who_come_with_tokens(self, synthesize_stack):
        built = []
        synthesized = synthesize_stack(
            lambda stack: built.append(MultiTenantInference(stack, "Platform", authorizer=cognito_authorizer(stack)))
        )
        for name in ("admin", "tenant_access"):
            with pytest.raises(AuthorizerError, match="tokens"):
                getattr(built[0], name)
        assert "execute-api:Invoke" not in json.dumps(synthesized.resources("AWS::IAM::Policy"))
        assert "PlatformAdmin" not in json.dumps(synthesized.templates)

    def test_has_sessions_that_reach_what_lies_behind_the_api_only_when_asked(self, synthesize_stack):
        synthesized = synthesize_stack(
            lambda stack: MultiTenantInference(stack, "Platform", authorizer=lambda_authorizer(stack), direct_access=True)
        )
        policies = json.dumps(synthesized.resources("AWS::IAM::Policy"))
        assert "sts:TagSession" in policies
        assert "aws:PrincipalTag/tenant" in policies
        assert "execute-api:Invoke" not in policies


def test_the_rule_packs_find_nothing_in_the_api_but_the_stacks_decisions(flags, tmp_path):
    app = cdk.App(context=flags, outdir=str(tmp_path), analytics_reporting=False)
    _build(app, cognito_authorizer, "Cognito")
    _build(app, lambda_authorizer, "Lambda")
    cdk.Validations.of(app).add_plugins(AwsSolutionsChecks(app, verbose=True), NIST80053R5Checks(app, verbose=True))
    with pytest.raises(RuntimeError, match="ValidationFailed"):
        app.synth()
    report = json.loads((tmp_path / "validation-report.json").read_text("utf-8"))
    found = {
        (violation["ruleName"], construct["constructPath"])
        for plugin in report["pluginReports"]
        if plugin["pluginName"] in ("AwsSolutions", "NIST.800.53.R5")
        for violation in plugin["violations"]
        for construct in violation["violatingConstructs"]
        if "/Api/" in construct["constructPath"]
    }
    assert found
    assert {(rule, path) for rule, path in found if rule not in _DECISIONS and rule != "NIST.800.53.R5-LambdaConcurrency"} == set()


@pytest.mark.parametrize("fixture", ["with_cognito", "with_lambda"])
def test_cfn_lint_finds_neither_error_nor_warning(request, fixture):
    from cfnlint.api import ManualArgs, lint_file

    (path,) = request.getfixturevalue(fixture).folder.glob("*.template.json")
    assert [str(match) for match in lint_file(path, ManualArgs(regions=["eu-central-1"], ignore_checks=["W3005"]))] == []
