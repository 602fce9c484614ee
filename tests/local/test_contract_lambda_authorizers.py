"""What we rely on in API Gateway's Lambda authorizers: what they do not allow is refused, and nobody invokes them without permission."""

from __future__ import annotations

import json

import httpx
import pytest

from tests.local.tokens import ECHO, call

AUTHORIZER = """
    def handler(event, context):
        headers = {name.lower(): value for name, value in (event.get("headers") or {}).items()}
        token = event.get("authorizationToken") or headers.get("authorization", "")
        if token == "raise":
            raise Exception("Unauthorized")
        if token == "fail":
            raise RuntimeError("on purpose")
        statement = {"Effect": "Allow", "Action": "execute-api:Invoke", "Resource": event["methodArn"].split("/", 1)[0] + "/*"}
        context = {"tenant": token, "number": 1, "yes": True}
        changes = {
            "deny": {"Effect": "Deny"},
            "other-action": {"Action": "s3:*"},
            "not-action": {"Action": None, "NotAction": "execute-api:Invoke"},
            "other-path": {"Resource": event["methodArn"] + "/x"},
            "no-resource": {"Resource": None},
            "no-action": {"Action": None},
            "not-resource": {"Resource": None, "NotResource": event["methodArn"]},
            "condition": {"Condition": {"IpAddress": {"aws:SourceIp": "198.51.100.1/32"}}},
            "this-method": {"Resource": event["methodArn"]},
        }.get(token, {})
        statement = {name: value for name, value in (statement | changes).items() if value is not None}
        document = {"principalId": "user-7", "policyDocument": {"Version": "2012-10-17", "Statement": [statement]}, "context": context}
        return "nonsense" if token == "nonsense" else {"principalId": "x"} if token == "no-policy" else document
"""


@pytest.fixture(scope="module")
def echo(module_bench):
    return module_bench.function(ECHO)


@pytest.fixture(scope="module")
def function(module_bench):
    function = module_bench.function(AUTHORIZER)
    module_bench.client("lambda").add_permission(
        FunctionName=function, StatementId="api", Action="lambda:InvokeFunction", Principal="apigateway.amazonaws.com"
    )
    return function


def authorizer(bench, function, kind="REQUEST", seconds=0, source="method.request.header.Authorization"):
    uri = f"arn:aws:apigateway:{bench.cloud.region}:lambda:path/2015-03-31/functions/{function}/invocations"
    return {"type": kind, "authorizerUri": uri, "identitySource": source, "authorizerResultTtlInSeconds": seconds}


@pytest.fixture(scope="module", params=["REQUEST", "TOKEN"])
def api(request, module_bench, echo, function):
    given = authorizer(module_bench, function, request.param)
    return module_bench.rest_api(echo, authorization="CUSTOM", authorizer=given)


def test_what_it_says_of_the_caller_reaches_the_function_as_text(module_bench, api):
    answer = call(module_bench, api, "acme")
    assert answer.status_code == 200, answer.text
    assert answer.json()["authorizer"] == {"tenant": "acme", "number": "1", "yes": "true", "principalId": "user-7"}


@pytest.mark.parametrize(
    "token", ["deny", "other-action", "not-action", "other-path", "no-resource", "no-action", "not-resource", "condition"]
)
def test_a_policy_that_does_not_allow_the_call_refuses_it(module_bench, api, token):
    assert call(module_bench, api, token).status_code == 403


@pytest.mark.parametrize(("token", "status"), [("raise", 401), ("fail", 500), ("nonsense", 500), ("no-policy", 500)])
def test_without_a_policy_there_is_no_way_in(module_bench, api, token, status):
    assert call(module_bench, api, token).status_code == status


@pytest.mark.parametrize("kind", ["REQUEST", "TOKEN"])
def test_a_call_without_what_it_is_known_by_does_not_reach_it(module_bench, echo, function, kind):
    api = module_bench.rest_api(echo, authorization="CUSTOM", authorizer=authorizer(module_bench, function, kind, 300))
    assert call(module_bench, api).status_code == 401


def test_the_gateway_needs_the_functions_permission(module_bench, echo):
    function = module_bench.function(AUTHORIZER)
    api = module_bench.rest_api(echo, authorization="CUSTOM", authorizer=authorizer(module_bench, function))
    assert call(module_bench, api, "acme").status_code == 500
    api_id = api.partition("://")[2].partition(".")[0]
    arn = f"arn:aws:execute-api:{module_bench.cloud.region}:{module_bench.cloud.account}"
    for number, (source, status) in enumerate({f"{arn}:other/authorizers/*": 500, f"{arn}:{api_id}/authorizers/*": 200}.items()):
        permission = {"Action": "lambda:InvokeFunction", "Principal": "apigateway.amazonaws.com", "SourceArn": source}
        module_bench.client("lambda").add_permission(FunctionName=function, StatementId=f"s{number}", **permission)
        assert call(module_bench, api, "acme").status_code == status


def test_a_cached_answer_is_judged_for_every_method_anew(module_bench, echo, function):
    api = module_bench.rest_api(echo, authorization="CUSTOM", authorizer=authorizer(module_bench, function, seconds=300))
    assert call(module_bench, api, "this-method").status_code == 200
    other = module_bench.cloud.local_url(f"{api}/tenants/globex")
    assert httpx.get(other, headers={"Authorization": "this-method"}, timeout=60).status_code == 403


def test_it_cannot_lift_a_denial_of_the_apis_resource_policy(module_bench, echo, function):
    statement = {"Effect": "Deny", "Principal": "*", "Action": "execute-api:Invoke", "Resource": "execute-api:/*"}
    elsewhere = {**statement, "Condition": {"StringNotEquals": {"aws:SourceVpce": "vpce-1"}}}
    nowhere = {**statement, "Condition": {"StringEquals": {"aws:SourceVpce": "vpce-1"}}}
    for given, status in ((elsewhere, 403), (nowhere, 200)):
        policy = json.dumps({"Version": "2012-10-17", "Statement": [given]})
        api = module_bench.rest_api(echo, authorization="CUSTOM", authorizer=authorizer(module_bench, function), policy=policy)
        assert call(module_bench, api, "acme").status_code == status
