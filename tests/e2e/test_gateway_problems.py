"""Answers that API Gateway makes itself, each provoked on the running API: problem documents like those of the functions."""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import json
import urllib.parse

import pytest

from mme_cli.signed_http import Answer, SignedClient
from mme_facts.limits import API_GATEWAY_BODY_BYTES, api_binary_body_bytes
from mme_local import Credentials
from tests.e2e.support import problem, wait_until

VERSIONS = "/tenants/acme/models/iris/versions"
JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def admin(platform):
    client = platform.admin_client()
    client.expect((200, 201), "PUT", "/tenants/acme", {})
    return client


@pytest.fixture
def gateway(platform):
    """The API's control plane."""
    return platform.client("apigateway")


@pytest.fixture
def api_id(platform):
    """The API's id, from its address."""
    address = urllib.parse.urlsplit(platform.state.output("ApiUrl"))
    return address.path.split("/execute-api/")[1].split("/")[0]


def signed_as(platform, keys):
    return SignedClient(platform.state.output("ApiUrl"), keys, platform.state.region)


def unsigned(platform, method, path, headers):
    """Send a request as it is."""
    address = urllib.parse.urlsplit(platform.state.output("ApiUrl"))
    with contextlib.closing(http.client.HTTPConnection(address.hostname, address.port, timeout=30)) as connection:
        connection.request(method, address.path.rstrip("/") + path, headers=headers)
        response = connection.getresponse()
        return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, response.read())


class TestForbidden:
    @pytest.mark.parametrize(
        "authorization",
        [
            None,
            "Bearer token",
            "AWS4-HMAC-SHA256 nonsense",
            "AWS4-HMAC-SHA256 Credential=AKIA/20260101/us-east-1/execute-api/aws4_request, SignedHeaders=host, Signature=00",
        ],
    )
    def test_a_call_without_a_signature_that_can_be_read(self, platform, authorization):
        headers = {} if authorization is None else {"Authorization": authorization}
        problem(unsigned(platform, "GET", "/tenants/acme", headers), 403, "forbidden")

    @pytest.mark.parametrize(
        "forge",
        [
            lambda keys: dataclasses.replace(keys, secret_access_key="x" * 40),
            lambda keys: dataclasses.replace(keys, session_token="nonsense"),
            lambda keys: dataclasses.replace(keys, session_token=None),
            lambda _keys: Credentials("AKIAIOSFODNN7EXAMPLE", "x" * 40),
        ],
        ids=["secret", "token", "no token", "key"],
    )
    def test_forged_credentials(self, platform, forge):
        problem(signed_as(platform, forge(platform.admin_keys)).call("GET", "/tenants/acme"), 403, "forbidden")

    def test_a_policy_that_does_not_allow(self, platform, admin):
        problem(platform.tenant_client("acme").call("PUT", "/tenants/acme", b"{}", JSON), 403, "forbidden")
        problem(platform.tenant_client("acme").call("GET", "/tenants/globex"), 403, "forbidden")

    @pytest.mark.parametrize(("method", "path"), [("GET", "/nothing"), ("GET", "/"), ("PATCH", "/tenants/acme"), ("POST", "/openapi.json")])
    def test_a_path_or_method_that_is_not_there(self, admin, method, path):
        problem(admin.call(method, path), 403, "forbidden")


@pytest.mark.parametrize("size", [api_binary_body_bytes() + 100_000, API_GATEWAY_BODY_BYTES + 1])
def test_a_body_that_is_too_large(admin, size):
    problem(admin.call("POST", VERSIONS, b"x" * size, JSON), 413, "payload-too-large")


def test_a_media_type_that_is_not_accepted(admin):
    problem(admin.call("POST", VERSIONS, b"a=b", {"content-type": "application/x-www-form-urlencoded"}), 415, "unsupported-media-type")


def test_a_tenant_that_is_not_there(admin):
    problem(admin.call("GET", "/tenants/nobody"), 404, "tenant-not-found")


def test_too_many_calls(admin, gateway, api_id):
    def throttle(rate, burst):
        changes = [("rateLimit", rate), ("burstLimit", burst)]
        operations = [{"op": "replace", "path": f"/*/*/throttling/{name}", "value": str(value)} for name, value in changes]
        gateway.update_stage(restApiId=api_id, stageName="v1", patchOperations=operations)

    before = gateway.get_stage(restApiId=api_id, stageName="v1")["methodSettings"]["*/*"]
    throttle(0, 0)
    try:
        answer = admin.call("GET", "/openapi.json")
    finally:
        throttle(before["throttlingRateLimit"], before["throttlingBurstLimit"])
    assert problem(answer, 429, "throttled")["detail"]
    assert answer.headers["retry-after"] == "1"
    assert admin.call("GET", "/openapi.json").status == 200


def test_a_function_that_does_not_answer_in_time(admin, gateway, api_id):
    resources = gateway.get_resources(restApiId=api_id, limit=500)["items"]
    (document,) = [item["id"] for item in resources if item["path"] == "/openapi.json"]

    def wait_at_most(milliseconds):
        change = [{"op": "replace", "path": "/timeoutInMillis", "value": str(milliseconds)}]
        gateway.update_integration(restApiId=api_id, resourceId=document, httpMethod="GET", patchOperations=change)
        gateway.create_deployment(restApiId=api_id, stageName="v1")

    before = gateway.get_integration(restApiId=api_id, resourceId=document, httpMethod="GET")["timeoutInMillis"]
    assert before == 29_000
    wait_at_most(1000)
    try:
        answer = admin.call("GET", "/openapi.json", headers={"x-probe": "sleep", "x-probe-seconds": "3"})
    finally:
        wait_at_most(before)
    problem(answer, 504, "timeout")
    assert wait_until(lambda: admin.call("GET", "/openapi.json").status == 200)


def test_a_function_that_fails_tells_the_caller_nothing(admin):
    answer = admin.call("GET", "/openapi.json", headers={"x-probe": "fail"})
    problem(answer, 500, "internal-error")
    assert b"secret" not in answer.body


def test_a_function_that_may_not_be_called(platform, admin, api_id):
    functions = platform.client("lambda")
    (name,) = [item["FunctionName"] for item in functions.list_functions()["Functions"] if ".onboarding." in item["Handler"]]
    policy = json.loads(functions.get_policy(FunctionName=name)["Policy"])
    statements = [statement for statement in policy["Statement"] if statement["Principal"] == {"Service": "apigateway.amazonaws.com"}]
    for statement in statements:
        functions.remove_permission(FunctionName=name, StatementId=statement["Sid"])
    try:
        answer = admin.call("GET", "/openapi.json")
    finally:
        for statement in statements:
            functions.add_permission(
                FunctionName=name,
                StatementId=statement["Sid"],
                Action="lambda:InvokeFunction",
                Principal="apigateway.amazonaws.com",
                SourceArn=statement["Condition"]["ArnLike"]["AWS:SourceArn"],
            )
    problem(answer, 500, "internal-error")
    assert admin.call("GET", "/openapi.json").status == 200
