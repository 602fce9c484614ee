"""Who opens a tenant's session, and which paths of the API it reaches; what it reaches besides stands in ``test_isolation``."""

from __future__ import annotations

import json
from collections import defaultdict

import aws_cdk as cdk
import pytest
from aws_cdk import aws_iam as iam

from mme_constructs import ModelArtifactStore, ModelPool, MultiModelEndpoint, PlatformAdmin, TenantAccess, TenantApi, TenantRegistry
from mme_constructs.errors import TrustError
from tests.constructs.iam_evaluation import Request, decide, resolved


def _api(stack):
    endpoint = MultiModelEndpoint.from_endpoint_attributes(stack, "There", endpoint_name="shared")
    return TenantApi(
        stack,
        "Api",
        store=ModelArtifactStore(stack, "Store"),
        registry=TenantRegistry(stack, "Registry"),
        pools=[ModelPool(framework="xgboost", endpoint=endpoint)],
    )


@pytest.fixture(scope="module")
def access(synthesize):
    def build(app):
        stack = cdk.Stack(app, "Test", env=cdk.Environment(account="111122223333", region="eu-central-1"))
        api = _api(stack)
        admin = PlatformAdmin(stack, "Admin", api=api)
        access = TenantAccess(stack, "Access", api=api, trusted=[admin.role])
        admin.allow_tenant_sessions(access)

    return synthesize(build)


def _policy(synthesized, role):
    (policy,) = [item for name, item in synthesized.resources("AWS::IAM::Policy").items() if name.startswith(role)]
    return policy["Properties"]["PolicyDocument"]["Statement"]


def _decide(statements, *calls):
    """Whether a tenant's session may call a method and path of the API, for each (tenant, method, path)."""
    on_the_api = [statement for statement in statements if statement["Action"] == "execute-api:Invoke"]
    deployed = resolved(on_the_api, defaultdict(lambda: "abcde12345"))
    requests = [
        Request(
            "execute-api:Invoke",
            f"arn:aws:execute-api:eu-central-1:111122223333:abcde12345/v1/{method}{path}",
            {"aws:PrincipalTag/tenant": tenant},
        )
        for tenant, method, path in calls
    ]
    return dict(zip(calls, decide({"Statement": deployed}, requests), strict=True))


OWN = (
    ("acme", "GET", "/tenants/acme"),
    ("acme", "GET", "/tenants/acme/models"),
    ("acme", "POST", "/tenants/acme/models/churn/versions"),
    ("acme", "GET", "/tenants/acme/models/churn/versions/v1-0123456789ab"),
    ("acme", "POST", "/tenants/acme/models/churn/invocations"),
    ("acme", "POST", "/tenants/acme/models/churn/activate"),
    ("acme", "DELETE", "/tenants/acme/models/churn"),
    ("acme", "DELETE", "/tenants/acme/models/churn/versions/v1-0123456789ab"),
)
FOREIGN = (
    ("acme", "GET", "/tenants/acme-evil"),
    ("acme", "GET", "/tenants/acme-evil/models"),
    ("acme-evil", "GET", "/tenants/acme/models"),
    ("acme", "GET", "/tenants/Acme/models"),
    ("acme", "GET", "/tenants/globex/models"),
    ("acme", "POST", "/tenants/globex/models/churn/invocations"),
    ("acme", "GET", "/tenants"),
    ("acme", "PUT", "/tenants/acme"),
    # A path with a slash at its end reaches the same resource, and a pattern that ends in "/*" would match it.
    ("acme", "PUT", "/tenants/acme/"),
    ("acme", "DELETE", "/tenants/acme/"),
    ("acme", "DELETE", "/tenants/acme"),
    ("acme", "DELETE", "/tenants/globex/models/churn"),
    ("acme", "DELETE", "/tenants/acme-evil/models/churn"),
    ("models", "DELETE", "/tenants/tenants/models/churn"),
    # A wildcard in place of the method would match these: the other tenant's model is called "tenants".
    ("versions", "GET", "/tenants/globex/models/tenants/versions/v1-0123456789ab"),
    ("models", "GET", "/tenants/tenants/models/churn"),
)


def test_a_tenant_reaches_its_own_paths(access):
    assert _decide(_policy(access, "Access"), *OWN) == dict.fromkeys(OWN, True)


def test_a_tenant_reaches_nothing_else(access):
    assert _decide(_policy(access, "Access"), *FOREIGN) == dict.fromkeys(FOREIGN, False)


def test_with_a_wildcard_for_the_method_another_tenants_model_would_be_reached():
    """Why the policy spells the methods out."""
    resource = "arn:aws:execute-api:eu-central-1:111122223333:abcde12345/v1/*/tenants/${aws:PrincipalTag/tenant}/*"
    statement = {"Effect": "Allow", "Action": "execute-api:Invoke", "Resource": resource}
    reached = ("versions", "GET", "/tenants/globex/models/tenants/versions/v1-0123456789ab")
    assert _decide([statement], reached) == {reached: True}


def test_the_role_grants_calls_of_the_api_only(access):
    assert {json.dumps(statement["Action"]) for statement in _policy(access, "Access")} == {'"execute-api:Invoke"'}


def test_only_the_named_principal_may_open_a_session_and_must_tag_it(access):
    roles = access.resources("AWS::IAM::Role")
    (admin,) = [name for name in roles if name.startswith("Admin")]
    (role,) = [item for name, item in roles.items() if name.startswith("Access")]
    statements = role["Properties"]["AssumeRolePolicyDocument"]["Statement"]
    assert {action for item in statements for action in ([item["Action"]] if isinstance(item["Action"], str) else item["Action"])} == {
        "sts:AssumeRole",
        "sts:TagSession",
    }
    for statement in statements:
        assert statement["Principal"] == {"AWS": {"Fn::GetAtt": [admin, "Arn"]}}
        assert statement["Condition"] == {
            "StringLike": {"aws:RequestTag/tenant": "?*"},
            "ForAllValues:StringEquals": {"aws:TagKeys": ["tenant"]},
        }


def test_the_administrator_reaches_every_path_and_opens_tenants_sessions(access):
    statements = _policy(access, "Admin")
    calls = (("", "PUT", "/tenants/acme"), ("", "POST", "/tenants/globex/models/churn/invocations"))
    assert _decide(statements, *calls) == dict.fromkeys(calls, True)
    (sessions,) = [statement for statement in statements if "sts:AssumeRole" in statement["Action"]]
    (tenant_role,) = [name for name in access.resources("AWS::IAM::Role") if name.startswith("Access")]
    assert sessions["Action"] == ["sts:AssumeRole", "sts:TagSession"]
    assert sessions["Resource"] == {"Fn::GetAtt": [tenant_role, "Arn"]}


def test_the_administrator_is_assumable_by_whom_the_account_allows(access):
    (role,) = [item for name, item in access.resources("AWS::IAM::Role").items() if name.startswith("Admin")]
    (statement,) = role["Properties"]["AssumeRolePolicyDocument"]["Statement"]
    assert statement["Principal"] == {"AWS": "arn:aws:iam::111122223333:root"}


def test_rejects_an_administrator_that_anybody_is(stack):
    api = _api(stack)
    with pytest.raises(TrustError, match="Anybody could run the platform: got 'ArnPrincipal'"):
        PlatformAdmin(stack, "Admin", api=api, trusted=iam.ArnPrincipal("*"))
    PlatformAdmin(stack, "Named", api=api, trusted=iam.ArnPrincipal("arn:aws:iam::111122223333:role/Operators"))


def test_rejects_a_role_for_nobody_or_anybody(stack):
    api = _api(stack)
    with pytest.raises(TrustError, match="Nobody could open"):
        TenantAccess(stack, "Nobody", api=api, trusted=[])
    with pytest.raises(TrustError, match="Anybody could open a tenant's session: got 'AnyPrincipal'"):
        TenantAccess(stack, "Anybody", api=api, trusted=[iam.AnyPrincipal()])
    wrapped = iam.AnyPrincipal().with_conditions({"StringEquals": {"aws:PrincipalOrgID": "o-1"}})
    for name, principal in {"Star": iam.StarPrincipal(), "Arn": iam.ArnPrincipal("*"), "Wrapped": wrapped}.items():
        with pytest.raises(TrustError, match="Anybody could open a tenant's session"):
            TenantAccess(stack, name, api=api, trusted=[principal])
