"""The adapter against the local cloud's API Gateway, with rights like those that the construct gives."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from mme_facts.usage_plans import API_TAG, TIER_TAG, key_name
from mme_tenancy.api_keys import KeyGoneError
from mme_tenancy.aws.api_keys import GatewayApiKeys
from mme_tenancy.errors import UnavailableError
from mme_tenancy.tenants import Tier


@pytest.fixture(scope="module")
def gateway(module_cloud):
    return module_cloud.client("apigateway")


@pytest.fixture
def stage(gateway):
    """An API with a stage and a plan for each tier."""
    api = gateway.create_rest_api(name="tenants")["id"]
    root = gateway.get_resources(restApiId=api)["items"][0]["id"]
    gateway.put_method(restApiId=api, resourceId=root, httpMethod="GET", authorizationType="NONE")
    gateway.put_integration(restApiId=api, resourceId=root, httpMethod="GET", type="MOCK")
    gateway.create_deployment(restApiId=api, stageName="v1")
    return api


@pytest.fixture
def plans(gateway, stage):
    stages = [{"apiId": stage, "stage": "v1"}]
    return {tier: gateway.create_usage_plan(name=f"{tier}", apiStages=stages, tags={TIER_TAG: tier.value})["id"] for tier in Tier}


@pytest.fixture
def keys(gateway, stage):
    return GatewayApiKeys(lambda: gateway, stage, "v1")


def members(gateway, plan):
    return {key["id"] for key in gateway.get_usage_plan_keys(usagePlanId=plan)["items"]}


def test_a_key_is_made_named_and_tagged_and_opens_nothing_yet(keys, gateway, stage, plans):
    key = keys.create("acme")
    shown = gateway.get_api_key(apiKey=key.id)
    assert (shown["name"], shown["tags"], shown["enabled"]) == (key_name(stage, "acme"), {API_TAG: stage}, True)
    assert keys.value(key.id) == key.value
    assert not any(key.id in members(gateway, plan) for plan in plans.values())


def test_a_key_is_in_one_plan_at_a_time(keys, gateway, plans):
    key = keys.create("acme").id
    for tier in (Tier.STANDARD, Tier.STANDARD, Tier.TRUSTED, Tier.STANDARD):
        keys.join(key, tier)
        assert [each for each in Tier if key in members(gateway, plans[each])] == [tier]


def test_a_deleted_key_is_gone_and_may_be_deleted_again(keys, plans):
    key = keys.create("acme").id
    keys.join(key, Tier.STANDARD)
    for _ in range(2):
        keys.delete(key)
    assert keys.value(key) is None
    with pytest.raises(KeyGoneError):
        keys.join(key, Tier.STANDARD)


def test_plans_of_another_api_and_plans_that_are_not_there_yet_are_no_plans(keys, gateway):
    with pytest.raises(UnavailableError):
        keys.join(keys.create("acme").id, Tier.STANDARD)


def test_a_plan_that_a_deployment_replaced_is_found_by_the_next_call(keys, gateway, stage, plans):
    key = keys.create("acme").id
    keys.join(key, Tier.STANDARD)
    gateway.delete_usage_plan(usagePlanId=plans[Tier.STANDARD])
    stages = [{"apiId": stage, "stage": "v1"}]
    new = gateway.create_usage_plan(name="new", apiStages=stages, tags={TIER_TAG: "standard"})["id"]
    with pytest.raises(UnavailableError):
        keys.join(key, Tier.STANDARD)
    keys.join(key, Tier.STANDARD)
    assert key in members(gateway, new)


@pytest.mark.parametrize(
    "error",
    [
        ClientError({"Error": {"Code": "TooManyRequestsException"}}, "CreateApiKey"),
        ClientError({"Error": {"Code": "LimitExceededException"}}, "CreateApiKey"),
        EndpointConnectionError(endpoint_url="https://table.invalid"),
    ],
    ids=["busy", "full", "away"],
)
def test_a_gateway_that_takes_no_calls_is_unavailable_with_the_cause_behind_it(error):
    class Client:
        def create_api_key(self, **_parameters):
            raise error

    with pytest.raises(UnavailableError) as caught:
        GatewayApiKeys(Client, "api", "v1").create("acme")
    assert caught.value.retry_after_seconds is not None
    assert caught.value.__cause__ is error
