"""Who calls is known from what API Gateway wrote, in the one way that the function is set up for, and from nothing else."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mme_facts.api import OPERATIONS, Role
from mme_facts.environment import Callers, CallerSource, dump_callers, load_callers
from mme_tenancy.callers import attempt, known_caller, verified_caller
from mme_tenancy.errors import ForbiddenError

IAM = Callers()
COGNITO = Callers(CallerSource.COGNITO, "custom:tenant", "platform-admin", ("app-1", "app-2"))
ACCESS = Callers(CallerSource.COGNITO, "tenant", "platform-admin", ("app-1",), access_tokens=True)
LAMBDA = Callers(CallerSource.LAMBDA, "tenant", "role")
ALL = frozenset(Role)
ADMIN = frozenset({Role.PLATFORM_ADMIN})

CLAIMS = {"sub": "ann", "token_use": "id", "aud": "app-1", "custom:tenant": "acme"}
ARN = "arn:aws:sts::123456789012:assumed-role/TenantAccess/acme"


def event(**context):
    return {"requestContext": context, "headers": {"Authorization": "Bearer x.y.z"}, "pathParameters": {"tenant": "globex"}}


def user(**changes):
    return event(authorizer={"claims": {name: value for name, value in (CLAIMS | changes).items() if value is not None}})


def principal(**authorizer):
    return event(authorizer=authorizer)


def refusal(event, callers, roles=ALL, tenant=None):
    with pytest.raises(ForbiddenError) as caught:
        verified_caller(event, callers).check(roles, tenant)
    assert caught.value.problem.status == 403
    return caught.value.reason


class TestIam:
    def test_the_policy_has_judged_a_signed_call_already(self):
        caller = verified_caller(event(identity={"userArn": ARN}), IAM)
        assert (caller.name, caller.role, caller.tenant) == ("assumed-role/TenantAccess/acme", None, None)
        caller.check(ADMIN, "globex")

    @pytest.mark.parametrize("identity", [None, {}, {"userArn": None}, {"userArn": ""}, {"userArn": [ARN]}, {"accessKey": "AKIA"}])
    def test_a_call_that_nobody_signed_is_refused(self, identity):
        assert refusal(event(identity=identity), IAM) == "unverified"

    def test_tokens_count_for_nothing(self):
        assert refusal(user(), IAM) == "unverified"
        assert refusal(principal(tenant="acme", role="platform-admin"), IAM) == "unverified"


class TestCognito:
    def test_a_tenants_user_calls_for_that_tenant_only(self):
        caller = verified_caller(user(), COGNITO)
        assert (caller.name, caller.role, caller.tenant) == ("ann", Role.TENANT, "acme")
        caller.check(ALL, "acme")
        for other in ("globex", "acme-evil", "acm", "ACME", "acme/", "", "acme%2F", "acme\n"):
            assert refusal(user(), COGNITO, tenant=other) == "other-tenant"

    def test_calls_of_the_administrator_are_refused_to_a_tenant_on_its_own_path_too(self):
        assert refusal(user(), COGNITO, ADMIN, "acme") == "role"

    @pytest.mark.parametrize("groups", ["platform-admin", "staff,platform-admin", "platform-admin,staff"])
    def test_a_member_of_the_group_is_the_administrator_of_every_tenant(self, groups):
        caller = verified_caller(user(**{"cognito:groups": groups}), COGNITO)
        assert caller.role is Role.PLATFORM_ADMIN
        caller.check(ADMIN, "globex")

    @pytest.mark.parametrize(
        "groups",
        ["platform-admins", "xplatform-admin", "platform-admin ", "[platform-admin]", "PLATFORM-ADMIN", "", ["platform-admin"], None],
    )
    def test_another_group_makes_no_administrator(self, groups):
        assert verified_caller(user(**{"cognito:groups": groups}), COGNITO).role is Role.TENANT

    @pytest.mark.parametrize("tenant", [None, "", "ACME", "acme/..", "*", "a" * 64, ["acme"], {"acme": 1}, 7, True])
    def test_a_user_without_a_tenants_id_is_refused(self, tenant):
        assert refusal(user(**{"custom:tenant": tenant}), COGNITO) == "no-tenant"

    @pytest.mark.parametrize("use", [None, "access", "refresh", "ID", ["id"]])
    def test_a_token_for_another_use_is_refused(self, use):
        assert refusal(user(token_use=use), COGNITO) == "token-use"

    @pytest.mark.parametrize("audience", [None, "", "app-3", "app-1,app-2", ["app-1"]])
    def test_a_token_for_another_application_is_refused(self, audience):
        assert refusal(user(aud=audience), COGNITO) == "audience"
        assert refusal(user(aud=audience, client_id="app-1"), COGNITO) == "audience"

    def test_an_access_token_names_its_application_as_client(self):
        token = {"sub": "ann", "token_use": "access", "client_id": "app-1", "tenant": "acme"}
        assert verified_caller(event(authorizer={"claims": token}), ACCESS).tenant == "acme"
        assert refusal(event(authorizer={"claims": token | {"token_use": "id"}}), ACCESS) == "token-use"
        assert refusal(event(authorizer={"claims": token | {"client_id": "app-2", "aud": "app-1"}}), ACCESS) == "audience"

    @pytest.mark.parametrize(
        "given",
        [{}, event(), event(authorizer=None), event(authorizer={}), event(authorizer={"claims": json.dumps(CLAIMS)}), user(sub=None)],
    )
    def test_without_verified_claims_there_is_no_caller(self, given):
        assert refusal(given, COGNITO) == "unverified"

    def test_what_is_verified_in_another_way_counts_for_nothing(self):
        assert refusal(event(identity={"userArn": ARN}), COGNITO) == "unverified"
        assert refusal(principal(tenant="acme", role="platform-admin", **CLAIMS), COGNITO) == "unverified"


class TestLambda:
    def test_a_principal_calls_for_its_tenant_only(self):
        for role in ({}, {"role": ""}, {"role": "tenant"}):
            caller = verified_caller(principal(principalId="key-7", tenant="acme", **role), LAMBDA)
            assert (caller.name, caller.role, caller.tenant) == ("key-7", Role.TENANT, "acme")
        assert refusal(principal(tenant="acme"), LAMBDA, tenant="globex") == "other-tenant"
        assert refusal(principal(tenant="acme"), LAMBDA, ADMIN, "acme") == "role"

    def test_the_role_makes_the_administrator(self):
        verified_caller(principal(role="platform-admin"), LAMBDA).check(ADMIN, "globex")

    @pytest.mark.parametrize("role", ["admin", "Platform-Admin", "true", "tenant "])
    def test_an_unknown_role_is_refused(self, role):
        assert refusal(principal(tenant="acme", role=role), LAMBDA) == "role"

    @pytest.mark.parametrize("tenant", ["", "ACME", "*", None, ["acme"]])
    def test_a_principal_without_a_tenants_id_is_refused(self, tenant):
        assert refusal(principal(tenant=tenant, principalId="x"), LAMBDA) == "no-tenant"

    def test_what_is_verified_in_another_way_counts_for_nothing(self):
        assert refusal(event(identity={"userArn": ARN}), LAMBDA) == "unverified"
        assert refusal(user(), LAMBDA) == "no-tenant"

    @pytest.mark.parametrize("header", ["secret-key", "Bearer secret-key", "secret-key "])
    def test_a_principal_id_that_is_the_credential_itself_is_not_logged(self, header):
        given = {**principal(principalId=header.strip().rpartition(" ")[2], tenant="acme"), "headers": {"x-key": header.strip()}}
        assert "secret" not in verified_caller(given, LAMBDA).name


@settings(max_examples=60)
@given(
    st.dictionaries(st.text(max_size=9), st.text(max_size=9), max_size=3),
    st.sampled_from([IAM, COGNITO, ACCESS, LAMBDA]),
    st.sampled_from(OPERATIONS),
)
def test_headers_body_and_query_never_make_a_caller(values, callers, operation):
    forged = {"tenant": "acme", "role": "platform-admin", "claims": CLAIMS, "authorizer": {"claims": CLAIMS}, **values}
    given = {
        "headers": forged,
        "multiValueHeaders": forged,
        "queryStringParameters": forged,
        "body": json.dumps(forged),
        "authorizer": forged,
    }
    assert known_caller(given, callers) is None
    assert refusal(given, callers, operation.roles, "acme") == "unverified"


@settings(max_examples=60)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=9),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["claims", "sub", "tenant", "role", "userArn"]), inner),
        max_leaves=6,
    )
)
def test_any_context_is_a_caller_or_a_refusal(context):
    for callers in (IAM, COGNITO, ACCESS, LAMBDA):
        known_caller({"requestContext": context}, callers)
        known_caller(event(authorizer=context, identity=context), callers)
        known_caller(event(authorizer={"claims": context}), callers)


def test_an_attempt_tells_who_where_and_why_and_no_credential():
    given = user() | {"headers": {"Authorization": "Bearer secret"}, "pathParameters": {"tenant": "g" * 5000}}
    given["requestContext"]["identity"] = {"sourceIp": "198.51.100.7", "accessKey": "AKIAEXAMPLE"}
    with pytest.raises(ForbiddenError) as caught:
        verified_caller(given, COGNITO).check(ALL, "globex")
    told = attempt(given, COGNITO, caught.value)
    assert told == {
        "refused": "other-tenant",
        "caller": "ann",
        "caller_tenant": "acme",
        "path_tenant": "g" * 128,
        "source_ip": "198.51.100.7",
    }
    assert attempt({}, COGNITO, caught.value)["caller"] is None


def test_the_setting_survives_the_environment():
    for callers in (IAM, COGNITO, ACCESS, LAMBDA):
        assert load_callers(dump_callers(callers)) == callers


@pytest.mark.parametrize(
    "changes", [{"tenant": ""}, {"admin": ""}, {"clients": []}, {"clients": [""]}, {"source": "anybody"}, {"source": None}, {"more": 1}]
)
def test_a_setting_that_lets_anybody_in_is_refused(changes):
    with pytest.raises((TypeError, ValueError)):
        load_callers(json.dumps(json.loads(dump_callers(COGNITO)) | changes))
