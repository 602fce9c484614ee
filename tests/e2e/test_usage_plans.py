"""Usage plans end to end: deployed by the CDK, keys made by the function with its own rights, calls counted by the gateway."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from mme_cli.cdk import deploy
from mme_cli.local_state import LocalState
from mme_cli.signed_http import SignedClient
from mme_local import LocalCloud
from tests.e2e.support import PROJECT, problem

pytestmark = pytest.mark.e2e

APP = Path(__file__).parent / "usage_plans_app"


class Platform:
    """The deployment, as the administrator and as tenants."""

    def __init__(self, cloud, outputs):
        self.cloud, self.outputs = cloud, outputs
        self.url = cloud.local_url(outputs["Url"]).rstrip("/")
        self.keys = cloud.assume_role(outputs["AdminRole"], "admin", source=cloud.admin)
        self.admin = SignedClient(self.url, self.keys, cloud.region)

    def tenant(self, name):
        session = self.cloud.assume_role(self.outputs["AccessRole"], name, tags={"tenant": name}, source=self.keys)
        return SignedClient(self.url, session, self.cloud.region)

    def new(self, name, **settings):
        assert self.admin.call("PUT", f"/tenants/{name}", json.dumps(settings).encode()).status in (200, 201)
        return self.tenant(name)

    def key(self, name):
        answer = self.tenant(name).call("PUT", f"/tenants/{name}/api-key")
        assert answer.status in (200, 201), answer.body
        return answer.json()


@pytest.fixture(scope="module")
def platform(tmp_path_factory):
    project = tmp_path_factory.mktemp("plans")
    shutil.copytree(APP, project, dirs_exist_ok=True)
    shutil.copy(PROJECT / "cdk.json", project)
    with LocalCloud() as cloud:
        state = LocalState(cloud.endpoint_url, cloud.region, cloud.account, 0, cloud.admin, cloud.environment())
        yield Platform(cloud, deploy(state, project, print, "--output", str(tmp_path_factory.mktemp("cdk.out"))).outputs)


def invoke(client, tenant, key=None):
    return client.call("POST", f"/tenants/{tenant}/models/iris/invocations", b"1,2", {} if key is None else {"X-Api-Key": key})


def arrived(answer):
    """The function answered: the tenant has no such model."""
    problem(answer, 404, "model-not-found")


def test_an_invocation_needs_the_tenants_key_beside_its_signature(platform):
    acme = platform.new("acme")
    problem(invoke(acme, "acme"), 403, "forbidden")
    problem(invoke(acme, "acme", "x" * 40), 403, "forbidden")
    key = platform.key("acme")
    assert platform.key("acme") == key
    arrived(invoke(acme, "acme", key["value"]))
    assert acme.call("GET", "/tenants/acme").status == 200


def test_another_tenants_key_opens_nothing_and_neither_does_its_path(platform):
    one, other = platform.new("one"), platform.new("other")
    keys = {name: platform.key(name)["value"] for name in ("one", "other")}
    problem(invoke(one, "one", keys["other"]), 403, "forbidden")
    problem(invoke(one, "other", keys["one"]), 403, "forbidden")
    problem(one.call("PUT", "/tenants/other/api-key"), 403, "forbidden")
    problem(one.call("DELETE", "/tenants/other/api-key"), 403, "forbidden")
    arrived(invoke(other, "other", keys["other"]))
    logs = platform.cloud.client("logs")
    groups = [each["logGroupName"] for each in logs.describe_log_groups()["logGroups"]]
    lines = [event["message"] for name in groups for event in logs.filter_log_events(logGroupName=name)["events"]]
    assert any('"other-key"' in line for line in lines)
    assert not any(value in line for line in lines for value in keys.values())


def test_each_tenant_is_counted_by_its_own_key_and_by_its_tiers_plan(platform):
    busy, calm = platform.new("busy"), platform.new("calm")
    key, other = platform.key("busy")["value"], platform.key("calm")["value"]
    for _ in range(3):
        arrived(invoke(busy, "busy", key))
    refused = invoke(busy, "busy", key)
    problem(refused, 429, "throttled")
    assert refused.headers["retry-after"] == "1"
    arrived(invoke(calm, "calm", other))
    platform.new("busy", tier="trusted")
    assert platform.key("busy")["tier"] == "trusted"
    for _ in range(5):
        arrived(invoke(busy, "busy", key))
    used_up = invoke(busy, "busy", key)
    problem(used_up, 429, "throttled")
    assert "retry-after" not in used_up.headers


def test_a_key_that_was_taken_back_and_one_of_a_deleted_tenant_are_refused(platform):
    gone = platform.new("gone")
    first = platform.key("gone")
    assert gone.call("DELETE", "/tenants/gone/api-key").status == 200
    problem(invoke(gone, "gone", first["value"]), 403, "forbidden")
    second = platform.key("gone")
    assert second["value"] != first["value"]
    arrived(invoke(gone, "gone", second["value"]))
    assert platform.admin.call("DELETE", "/tenants/gone").status in (200, 202)
    problem(invoke(gone, "gone", second["value"]), 403, "forbidden")
    ids = {key["id"] for key in platform.cloud.client("apigateway").get_api_keys()["items"]}
    assert not ids & {first["id"], second["id"]}


def test_the_function_cannot_list_keys_or_reach_those_of_others(platform):
    gateway = platform.cloud.client("apigateway")
    foreign = gateway.create_api_key(name="foreign", enabled=True)
    policies = platform.cloud.client("iam")
    role = next(role for role in policies.list_roles()["Roles"] if "OnboardingRole" in role["RoleName"])
    simulated = {
        (action, resource): result["EvalDecision"]
        for action, resource in (("apigateway:GET", "/apikeys"), ("apigateway:GET", f"/apikeys/{foreign['id']}"))
        for result in policies.simulate_principal_policy(
            PolicySourceArn=role["Arn"],
            ActionNames=[action],
            ResourceArns=[f"arn:aws:apigateway:{platform.cloud.region}::{resource}"],
        )["EvaluationResults"]
    }
    assert set(simulated.values()) == {"implicitDeny"}
