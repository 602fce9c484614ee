"""What we rely on in the emulator's API keys and usage plans: who is let in by which key, and how much each may ask."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from botocore.exceptions import ClientError

ECHO = """
    import json
    def handler(event, context):
        identity = event["requestContext"]["identity"]
        return {"statusCode": 200, "body": json.dumps({name: identity.get(name) for name in ("apiKeyId", "apiKey")})}
"""
PLENTY = {"rateLimit": 1000.0, "burstLimit": 1000}
SLOW = {"rateLimit": 0.001, "burstLimit": 2}


class Keyed:
    """A REST API whose methods require a key."""

    def __init__(self, bench):
        self.bench, self.gateway = bench, bench.client("apigateway")
        self.url = bench.rest_api(bench.function(ECHO), key_required=True)
        self.api = self.url.partition("://")[2].partition(".")[0]

    def plan(self, **limits):
        stages = [{"apiId": self.api, "stage": "v1"}]
        return self.gateway.create_usage_plan(name=self.bench.name("plan"), apiStages=stages, **limits)["id"]

    def key(self, plan=None, **settings):
        key = self.gateway.create_api_key(name=self.bench.name("key"), enabled=True, **settings)
        if plan is not None:
            self.subscribe(key, plan)
        return SimpleNamespace(**key)

    def subscribe(self, key, plan):
        identity = key["id"] if isinstance(key, dict) else key.id
        return self.gateway.create_usage_plan_key(usagePlanId=plan, keyId=identity, keyType="API_KEY")

    def call(self, value=None):
        headers = {} if value is None else {"x-api-key": value}
        return self.bench.call("GET", f"{self.url}/x", self.bench.cloud.admin, headers=headers)

    def statuses(self, value, times):
        return [self.call(value).status_code for _ in range(times)]


@pytest.fixture
def keyed(bench):
    return Keyed(bench)


def refused(operation, code, **parameters):
    with pytest.raises(ClientError) as caught:
        operation(**parameters)
    assert caught.value.response["Error"]["Code"] == code


def test_a_key_of_a_plan_of_the_stage_is_let_in_and_named_to_the_function(keyed):
    key = keyed.key(keyed.plan(throttle=PLENTY))
    answer = keyed.call(key.value)
    assert (answer.status_code, answer.json()) == (200, {"apiKeyId": key.id, "apiKey": key.value})


def test_no_key_an_unknown_one_one_of_no_plan_and_one_of_another_apis_plan_are_refused(keyed, bench):
    other = Keyed(bench)
    keyed.plan(throttle=PLENTY)
    for value in (None, "x" * 40, keyed.key().value, other.key(other.plan(throttle=PLENTY)).value):
        assert keyed.call(value).status_code == 403, value


def test_a_key_that_is_switched_off_deleted_or_taken_from_its_plan_is_refused(keyed):
    plan = keyed.plan(throttle=PLENTY)
    off, deleted, taken = (keyed.key(plan) for _ in range(3))
    assert [keyed.call(key.value).status_code for key in (off, deleted, taken)] == [200] * 3
    keyed.gateway.update_api_key(apiKey=off.id, patchOperations=[{"op": "replace", "path": "/enabled", "value": "false"}])
    keyed.gateway.delete_api_key(apiKey=deleted.id)
    keyed.gateway.delete_usage_plan_key(usagePlanId=plan, keyId=taken.id)
    assert [keyed.call(key.value).status_code for key in (off, deleted, taken)] == [403] * 3
    assert taken.id not in {key["id"] for key in keyed.gateway.get_usage_plan_keys(usagePlanId=plan)["items"]}


def test_each_key_has_its_own_bucket_of_its_plans_size(keyed):
    plan = keyed.plan(throttle=SLOW)
    first, second = keyed.key(plan), keyed.key(plan)
    assert keyed.statuses(first.value, 4) == [200, 200, 429, 429]
    assert keyed.call(second.value).status_code == 200


def test_a_key_moved_to_another_plan_counts_by_that_one(keyed):
    slow, fast = keyed.plan(throttle=SLOW), keyed.plan(throttle=PLENTY)
    key = keyed.key(slow)
    assert keyed.statuses(key.value, 3)[-1] == 429
    keyed.gateway.delete_usage_plan_key(usagePlanId=slow, keyId=key.id)
    keyed.subscribe(key, fast)
    assert keyed.statuses(key.value, 5) == [200] * 5


def test_a_used_up_quota_is_another_429(keyed):
    key = keyed.key(keyed.plan(throttle=PLENTY, quota={"limit": 2, "period": "DAY"}))
    assert keyed.statuses(key.value, 3) == [200, 200, 429]
    assert "Limit Exceeded" in keyed.call(key.value).text


def test_a_method_that_requires_no_key_counts_for_no_plan_and_names_none(bench):
    keyed = Keyed(bench)
    keyed.url = bench.rest_api(bench.function(ECHO))
    keyed.api = keyed.url.partition("://")[2].partition(".")[0]
    key = keyed.key(keyed.plan(throttle=SLOW))
    assert keyed.statuses(key.value, 4) == [200] * 4
    assert keyed.call(key.value).json()["apiKeyId"] is None


def test_a_key_joins_one_plan_of_a_stage_only_once_and_only_if_it_is_there(keyed):
    first, second = keyed.plan(throttle=PLENTY), keyed.plan(throttle=PLENTY)
    key = keyed.key(first)
    for plan in (first, second):
        refused(keyed.gateway.create_usage_plan_key, "ConflictException", usagePlanId=plan, keyId=key.id, keyType="API_KEY")
    refused(keyed.gateway.create_usage_plan_key, "NotFoundException", usagePlanId=second, keyId="none", keyType="API_KEY")
    refused(keyed.gateway.create_usage_plan_key, "NotFoundException", usagePlanId="none", keyId=key.id, keyType="API_KEY")
    refused(keyed.gateway.delete_usage_plan_key, "NotFoundException", usagePlanId=second, keyId=key.id)
    refused(keyed.gateway.create_api_key, "ConflictException", name="again", value=key.value)


def test_values_are_shown_only_to_those_who_ask(keyed):
    key = keyed.key(customerId=keyed.bench.name("tenant"))
    assert "value" not in keyed.gateway.get_api_key(apiKey=key.id)
    assert keyed.gateway.get_api_key(apiKey=key.id, includeValue=True)["value"] == key.value
    (found,) = keyed.gateway.get_api_keys(nameQuery=key.name)["items"]
    assert found["id"] == key.id
    assert "value" not in found
    (found,) = keyed.gateway.get_api_keys(customerId=key.customerId, includeValues=True)["items"]
    assert found["value"] == key.value


def test_keys_are_made_read_and_deleted_only_with_the_tag_that_a_policy_asks_for(keyed):
    def statement(action, resource, condition):
        arn = f"arn:aws:apigateway:{keyed.bench.cloud.region}::{resource}"
        return {"Effect": "Allow", "Action": f"apigateway:{action}", "Resource": arn, "Condition": {"StringEquals": condition}}

    mine = keyed.bench.client(
        "apigateway",
        keyed.bench.user(
            statement("POST", "/apikeys", {"aws:RequestTag/owner": "us"}),
            statement("GET", "/apikeys/*", {"aws:ResourceTag/owner": "us"}),
            statement("DELETE", "/apikeys/*", {"aws:ResourceTag/owner": "us"}),
        ),
    )
    refused(mine.create_api_key, "AccessDeniedException", name="untagged")
    refused(mine.create_api_key, "AccessDeniedException", name="theirs", tags={"owner": "them"})
    key = mine.create_api_key(name="ours", tags={"owner": "us"})
    assert mine.get_api_key(apiKey=key["id"], includeValue=True)["value"] == key["value"]
    theirs = keyed.key(tags={"owner": "them"})
    refused(mine.get_api_key, "AccessDeniedException", apiKey=theirs.id, includeValue=True)
    refused(mine.delete_api_key, "AccessDeniedException", apiKey=theirs.id)
    mine.delete_api_key(apiKey=key["id"])
    assert json.dumps(keyed.gateway.get_api_keys(nameQuery="ours")["items"]) == "[]"
