"""`Prefer: respond-async` on the deployed platform: accepted, run in the background as the tenant, and told when asked for."""

import json

import pytest
from botocore.exceptions import ClientError

from mme_facts.grammar import result_key
from tests.e2e.support import onboard_model, problem, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

TENANT, OTHER, MODEL = "later-acme", "later-globex", "churn"
MODEL_PATH = f"/tenants/{TENANT}/models/{MODEL}/invocations"


@pytest.fixture(scope="module")
def onboarded(platform, demo_models):
    folder, prepared = demo_models
    for tenant in (TENANT, OTHER):
        platform.admin_client().expect((200, 201), "PUT", f"/tenants/{tenant}", {})
    client, row = platform.tenant_client(TENANT), prepared[0].rows[0]
    version = onboard_model(client, TENANT, MODEL, (folder / prepared[0].artifact).read_bytes(), row)
    return platform, client, version, row


def accepted(client, body, path=MODEL_PATH):
    answer = client.call("POST", path, body, {"content-type": "text/csv", "prefer": "respond-async, wait=1"})
    assert answer.status == 202, answer
    assert answer.headers["preference-applied"] == "respond-async"
    assert int(answer.headers["retry-after"]) >= 1
    return answer.headers["location"].removeprefix("../../results/")


def path_of(result, tenant=TENANT):
    return f"/tenants/{tenant}/results/{result}"


def ended(client, result):
    def told():
        answer = client.call("GET", path_of(result))
        return None if answer.status == 202 else answer

    return wait_until(told, what="the answer")


def test_the_answer_is_the_synchronous_one(onboarded):
    _, client, version, row = onboarded
    at_once = client.call("POST", MODEL_PATH, row.encode(), {"content-type": "text/csv"})
    later = ended(client, accepted(client, row.encode()))
    assert (later.status, later.body) == (200, at_once.body)
    for name in ("content-type", "x-mme-version"):
        assert later.headers[name] == at_once.headers[name]
    assert later.headers["x-mme-version"] == version


def test_a_model_that_rejects_the_input_and_one_that_is_not_there_are_told_as_problems(onboarded):
    _, client, _, _ = onboarded
    problem(ended(client, accepted(client, b"no,numbers")), 422, "model-rejected-input")
    problem(ended(client, accepted(client, b"1", f"/tenants/{TENANT}/models/none/invocations")), 404, "model-not-found")


def test_another_tenant_reaches_no_answer(onboarded):
    platform, client, _, row = onboarded
    result = accepted(client, row.encode())
    other = platform.tenant_client(OTHER)
    problem(other.call("GET", path_of(result)), 403, "forbidden")
    problem(other.call("GET", path_of(result, OTHER)), 404, "not-found")
    assert ended(client, result).status == 200


def test_an_event_that_comes_twice_changes_nothing(onboarded):
    platform, client, _, row = onboarded
    result = accepted(client, row.encode())
    before = ended(client, result)
    calls = platform.client("lambda")
    (function,) = [
        each["FunctionName"]
        for page in calls.get_paginator("list_functions").paginate()
        for each in page["Functions"]
        if each["Handler"] == "mme_tenancy.handlers.invocation.handler"
    ]
    event = json.dumps({"mme_deferred": {"tenant": TENANT, "result": result}}).encode()
    again = calls.invoke(FunctionName=function, Payload=event)
    assert ("FunctionError" in again, again["Payload"].read()) == (False, b"{}")
    after = client.call("GET", path_of(result))
    assert (after.status, after.body) == (before.status, before.body)


def test_the_store_refuses_a_second_answer(onboarded):
    platform, client, _, row = onboarded
    result = accepted(client, row.encode())
    ended(client, result)
    bucket = platform.state.output("BucketName")
    with pytest.raises(ClientError) as refused:
        platform.client("s3").put_object(Bucket=bucket, Key=result_key(TENANT, result), Body=b"{}", IfNoneMatch="*")
    assert refused.value.response["Error"]["Code"] == "PreconditionFailed"
