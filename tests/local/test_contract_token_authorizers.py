"""What we rely on in API Gateway's authorizers: tokens of user pools and Lambda authorizers are enforced, whatever is wrong with them."""

from __future__ import annotations

import json

import pytest

from mme_local.authorizers import refusal_of_token
from tests.local.tokens import ECHO, PASSWORD, UserPool, call, claims_of

FORGERIES = [
    "expired",
    "without expiry",
    "not valid yet",
    "issued in the future",
    "wrong issuer",
    "no issuer",
    "an issuer that only begins right",
    "wrong audience",
    "no audience",
    "an access token",
    "without a use",
    "alg none",
    "alg none with the old signature",
    "HS256 with the public key in PEM",
    "HS256 with the public key in DER",
    "another algorithm's name",
    "tampered payload",
    "without a signature",
    "two parts",
    "unknown kid",
    "without a kid",
    "another key under the pool's kid",
    "a key of its own in the header",
    "a key's address in the header",
    "claims that are a list",
    "no JSON",
    "no text",
    "nested without end",
]


@pytest.fixture(scope="module")
def pool(module_bench):
    pool = UserPool.create(module_bench.cloud)
    pool.add_user("ann", "operators", "staff", custom_tenant="acme")
    return pool


@pytest.fixture(scope="module")
def echo(module_bench):
    return module_bench.function(ECHO)


@pytest.fixture(scope="module")
def authorizer(pool):
    return {
        "type": "COGNITO_USER_POOLS",
        "providerARNs": [pool.arn],
        "identitySource": "method.request.header.Authorization",
        "identityValidationExpression": pool.client_id,
    }


@pytest.fixture(scope="module")
def api(module_bench, echo, authorizer):
    return module_bench.rest_api(echo, authorization="COGNITO_USER_POOLS", authorizer=authorizer)


@pytest.fixture(scope="module")
def forgeries(pool):
    return pool.forgeries(pool.sign_in("ann")["IdToken"])


@pytest.mark.parametrize("prefix", ["", "Bearer "])
def test_an_id_token_reaches_the_function_as_claims(module_bench, api, pool, prefix):
    answer = call(module_bench, api, prefix + pool.sign_in("ann")["IdToken"])
    assert answer.status_code == 200, answer.text
    claims = answer.json()["authorizer"]["claims"]
    assert (claims["custom:tenant"], claims["aud"], claims["token_use"], claims["iss"]) == ("acme", pool.client_id, "id", pool.issuer)
    assert sorted(claims["cognito:groups"].split(",")) == ["operators", "staff"], "groups come as text, joined by commas"


def test_the_pools_own_key_signs_what_is_taken(module_bench, api, pool):
    token = pool.sign_in("ann")["IdToken"]
    assert call(module_bench, api, pool.signed(token)).status_code == 200, "so that the forgeries fail by what they name"


@pytest.mark.parametrize("what", FORGERIES)
def test_a_token_is_refused_that_is(module_bench, api, forgeries, what):
    answer = call(module_bench, api, f"Bearer {forgeries[what]}")
    assert (answer.status_code, answer.json()) == (401, {"message": "Unauthorized"}), what


def test_every_forgery_is_tried(forgeries):
    assert set(forgeries) == set(FORGERIES)


@pytest.mark.parametrize("token", [None, "", "Bearer", "Basic YTpi", "nonsense", "a.b.c", "...", "Bearer a.b.c.d.e"])
def test_no_token_and_what_is_none_are_refused(module_bench, api, token):
    assert call(module_bench, api, token).status_code == 401


def test_a_token_in_another_header_is_none(module_bench, api, pool):
    assert call(module_bench, api, pool.sign_in("ann")["IdToken"], header="X-Authorization").status_code == 401


def test_a_signature_of_iam_is_no_token(module_bench, api):
    assert module_bench.call("GET", f"{api}/tenants/acme", module_bench.cloud.admin).status_code == 401


@pytest.mark.parametrize("kind", ["AccessToken", "RefreshToken"])
def test_tokens_for_something_else_are_refused(module_bench, api, pool, kind):
    assert call(module_bench, api, pool.sign_in("ann")[kind]).status_code == 401


def test_a_token_of_another_application_is_refused(module_bench, api, pool):
    other = UserPool.add_client(module_bench.cloud, pool.id)
    assert call(module_bench, api, pool.sign_in("ann", other)["IdToken"]).status_code == 401


def test_a_token_of_another_pool_is_refused_and_so_is_one_of_a_pool_that_is_gone(module_bench, echo, api, authorizer):
    other = UserPool.create(module_bench.cloud)
    other.add_user("eve", custom_tenant="acme")
    token = other.sign_in("eve")["IdToken"]
    assert call(module_bench, api, token).status_code == 401
    changed = {**authorizer, "providerARNs": [other.arn], "identityValidationExpression": ""}
    own = module_bench.rest_api(echo, authorization="COGNITO_USER_POOLS", authorizer=changed)
    assert call(module_bench, own, token).status_code == 200
    module_bench.client("cognito-idp").delete_user_pool(UserPoolId=other.id)
    assert call(module_bench, own, token).status_code == 401


def test_a_method_with_scopes_takes_access_tokens_with_one_of_them_only(module_bench, echo, authorizer, pool):
    tokens = pool.sign_in("ann")
    scope = claims_of(tokens["AccessToken"])["scope"].split()[0]
    api = module_bench.rest_api(echo, authorization="COGNITO_USER_POOLS", authorizer=authorizer, scopes=[scope])
    assert call(module_bench, api, tokens["AccessToken"]).status_code == 200
    assert call(module_bench, api, tokens["IdToken"]).status_code == 401
    other = module_bench.rest_api(echo, authorization="COGNITO_USER_POOLS", authorizer=authorizer, scopes=["tenants/write"])
    assert call(module_bench, other, tokens["AccessToken"]).status_code == 401


def test_the_resource_policy_of_the_api_must_allow_what_the_token_opens(module_bench, echo, authorizer, pool):
    token = pool.sign_in("ann")["IdToken"]

    def api(*statements):
        policy = json.dumps({"Version": "2012-10-17", "Statement": list(statements)})
        return module_bench.rest_api(echo, authorization="COGNITO_USER_POOLS", authorizer=authorizer, policy=policy)

    everybody = {"Principal": "*", "Action": "execute-api:Invoke", "Resource": "execute-api:/*"}
    elsewhere = {"StringNotEquals": {"aws:SourceVpce": "vpce-1"}}
    allowing, refusing = {"Effect": "Allow", **everybody}, {"Effect": "Deny", **everybody, "Condition": elsewhere}
    assert call(module_bench, api(allowing), token).status_code == 200
    assert call(module_bench, api(allowing, refusing), token).status_code == 403
    assert call(module_bench, api(refusing), token).status_code == 403
    assert call(module_bench, api(refusing)).status_code == 401


def test_users_write_only_what_their_application_may_write(module_bench, pool):
    idp = module_bench.client("cognito-idp")
    access = pool.sign_in("ann")["AccessToken"]
    tenant, email = {"Name": "custom:tenant", "Value": "globex"}, {"Name": "email", "Value": "ann@example.com"}
    idp.update_user_attributes(AccessToken=access, UserAttributes=[email])
    for attributes in ([tenant], [email, tenant]):
        with pytest.raises(idp.exceptions.NotAuthorizedException):
            idp.update_user_attributes(AccessToken=access, UserAttributes=attributes)
        with pytest.raises(idp.exceptions.NotAuthorizedException):
            idp.sign_up(ClientId=pool.client_id, Username="eve", Password=PASSWORD, UserAttributes=attributes)
    assert claims_of(pool.sign_in("ann")["IdToken"])["custom:tenant"] == "acme"


def test_an_application_without_a_list_lets_users_write_every_attribute_as_on_aws(module_bench):
    idp = module_bench.client("cognito-idp")
    pool = UserPool.create(module_bench.cloud)
    pool.add_user("eve", custom_tenant="acme")
    flows = ["ALLOW_USER_PASSWORD_AUTH"]
    client = idp.create_user_pool_client(UserPoolId=pool.id, ClientName="open", ExplicitAuthFlows=flows)["UserPoolClient"]["ClientId"]
    access = pool.sign_in("eve", client)["AccessToken"]
    idp.update_user_attributes(AccessToken=access, UserAttributes=[{"Name": "custom:tenant", "Value": "globex"}])
    assert claims_of(pool.sign_in("eve", client)["IdToken"])["custom:tenant"] == "globex"


@pytest.mark.parametrize("header", [None, [], {}, {"alg": "none"}, {"alg": "HS256"}, {"alg": ["RS256"]}])
def test_a_header_that_names_no_rs256_is_refused(header):
    assert refusal_of_token(header, {"exp": 1, "token_use": "id"}, scopes=(), audience="") == "it is not signed with RS256"


def test_the_whole_audience_has_to_match():
    claims = {"exp": 1, "token_use": "id", "aud": "application2"}
    assert refusal_of_token({"alg": "RS256"}, claims, scopes=(), audience="application") is not None
    assert refusal_of_token({"alg": "RS256"}, claims, scopes=(), audience="application|application2") is None
