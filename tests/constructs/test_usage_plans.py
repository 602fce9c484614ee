from __future__ import annotations

import json

import aws_cdk as cdk
import pytest
from cdk_nag import AwsSolutionsChecks, NIST80053R5Checks

from mme_constructs import (
    ModelArtifactStore,
    ModelPool,
    MultiModelEndpoint,
    MultiTenantInference,
    PrivateAccess,
    RateLimits,
    TenantAccess,
    TenantApi,
    TenantRegistry,
)
from mme_constructs.errors import NetworkError, ThrottleError
from mme_facts.usage_plans import TIERS
from mme_tenancy.tenants import Tier

PLANS = {
    "standard": RateLimits(requests_per_second=5, burst=10),
    "trusted": RateLimits(requests_per_second=0.5, burst=1, quota=1000, period="day"),
}


def build(stack, **options):
    endpoint = MultiModelEndpoint.from_endpoint_attributes(stack, "There", endpoint_name="shared")
    store, registry = ModelArtifactStore(stack, "Store"), TenantRegistry(stack, "Registry")
    pools = [ModelPool(framework="xgboost", endpoint=endpoint)]
    api = TenantApi(stack, "Api", store=store, registry=registry, pools=pools, **options)
    TenantAccess(stack, "Access", api=api, trusted=[cdk.aws_iam.Role(stack, "Admin", assumed_by=cdk.aws_iam.AccountRootPrincipal())])


@pytest.fixture(scope="module")
def with_plans(synthesize):
    return synthesize(lambda app: build(cdk.Stack(app, "Test"), usage_plans=PLANS))


def test_each_tier_has_a_plan_of_the_stage(with_plans):
    plans = {
        item["Properties"]["Tags"][0]["Value"]: item["Properties"] for item in with_plans.resources("AWS::ApiGateway::UsagePlan").values()
    }
    assert set(plans) == set(TIERS)
    assert (plans["standard"]["Throttle"], "Quota" in plans["standard"]) == ({"RateLimit": 5, "BurstLimit": 10}, False)
    assert plans["trusted"]["Quota"] == {"Limit": 1000, "Period": "DAY"}
    for properties in plans.values():
        (stage,) = properties["ApiStages"]
        assert set(stage["Stage"]) == {"Ref"}


def test_invocations_need_a_key_beside_the_signature_and_nothing_else_does(with_plans):
    methods = [item["Properties"] for item in with_plans.resources("AWS::ApiGateway::Method").values()]
    keyed = [method for method in methods if method.get("ApiKeyRequired")]
    assert len(keyed) == 1
    assert "ApiInvocationFunction" in json.dumps(keyed[0]["Integration"]["Uri"])
    assert {method["AuthorizationType"] for method in methods} == {"AWS_IAM"}
    paths = {item["Properties"]["PathPart"] for item in with_plans.resources("AWS::ApiGateway::Resource").values()}
    assert "api-key" in paths


def test_the_function_keeps_keys_of_this_api_in_these_plans_and_lists_none(with_plans):
    (policy,) = (
        item["Properties"] for name, item in with_plans.resources("AWS::IAM::Policy").items() if name.startswith("ApiUsagePlansKeys")
    )
    statements = policy["PolicyDocument"]["Statement"]
    for statement in statements:
        text = json.dumps(statement["Resource"])
        if "/apikeys" in text or "/tags" in text:
            ((key, value),) = statement["Condition"]["StringEquals"].items()
            assert key.endswith("/mme-api")
            assert "Ref" in value
        lists = "apigateway:GET" in json.dumps(statement["Action"]) and text.rstrip('"]}').endswith("/apikeys")
        assert not lists
    assert all("*" not in json.dumps(statement["Action"]) for statement in statements)
    (role,) = policy["Roles"]
    assert role["Ref"].startswith("ApiOnboarding")


def test_a_tenant_may_show_and_take_back_its_own_key(with_plans):
    (policy,) = (item["Properties"] for name, item in with_plans.resources("AWS::IAM::Policy").items() if name.startswith("Access"))
    text = json.dumps(policy)
    assert all(f"/{method}/tenants/${{aws:PrincipalTag/tenant}}/api-key" in text for method in ("PUT", "DELETE"))


def test_the_functions_know_of_the_plans(with_plans):
    functions = [item["Properties"]["Environment"]["Variables"] for item in with_plans.resources("AWS::Lambda::Function").values()]
    assert [variables.get("MME_USAGE_PLANS") for variables in functions] == ["1", "1"]


def test_without_plans_there_is_nothing_of_them(synthesize):
    template = synthesize(lambda app: build(cdk.Stack(app, "Test")))
    text = json.dumps(template.templates)
    assert not any(word in text for word in ("UsagePlan", "api-key", "ApiKeyRequired", "apikeys", "MME_USAGE_PLANS"))


def test_the_rule_packs_find_nothing_in_the_plans(flags, tmp_path):
    app = cdk.App(context=flags, outdir=str(tmp_path), analytics_reporting=False)
    build(cdk.Stack(app, "Test"), usage_plans=PLANS)
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
    }
    assert found
    # Which kind of policy is used is the stack's decision.
    ours = {(rule, path) for rule, path in found if "UsagePlans" in path or "api-key" in path}
    assert {rule for rule, _ in ours} <= {"NIST.800.53.R5-IAMNoInlinePolicy"}, ours


@pytest.mark.parametrize(
    "wrong",
    [
        {"requests_per_second": 0, "burst": 1},
        {"requests_per_second": float("nan"), "burst": 1},
        {"requests_per_second": 1, "burst": 0},
        {"requests_per_second": 1, "burst": 1, "quota": 0},
        {"requests_per_second": 1, "burst": 1, "quota": 1, "period": "hour"},
    ],
    ids=lambda wrong: "-".join(map(str, wrong.values())),
)
def test_limits_that_let_nobody_through_are_refused(wrong):
    with pytest.raises(ThrottleError):
        RateLimits(**wrong)


@pytest.mark.parametrize("plans", [{}, {"standard": PLANS["standard"]}, {**PLANS, "gold": PLANS["standard"]}], ids=["none", "one", "more"])
def test_every_tier_has_a_plan_and_no_other_has_one(plans):
    with pytest.raises(ThrottleError, match="standard and trusted"):
        build(cdk.Stack(), usage_plans=plans)


def test_functions_without_a_way_out_cannot_make_keys():
    stack = cdk.Stack()
    store, registry = ModelArtifactStore(stack, "Store"), TenantRegistry(stack, "Registry")
    private = PrivateAccess(stack, "Private", store=store, registry=registry)
    with pytest.raises(NetworkError, match="control plane"):
        MultiTenantInference(stack, "Platform", store=store, registry=registry, private_access=private, usage_plans=PLANS)


def test_the_tiers_are_those_of_the_tenants_record():
    assert tuple(Tier) == TIERS
