"""Callers with real tokens over real HTTP: a tenant's open its own paths and nothing of another's, whoever verified them."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from mme_cli.cdk import deploy
from mme_cli.local_state import LocalState
from mme_facts.api import OPERATIONS, Role
from mme_local import LocalCloud
from tests.e2e.support import PROJECT, wait_until
from tests.local.tokens import UserPool, claims_of, decoded, encoded, hs256

pytestmark = pytest.mark.e2e

APP = Path(__file__).parent / "tokens_app"
SECRET = secrets.token_hex(16)
NAMES = {"tenant": "globex", "model": "iris", "version": "v1-0123456789ab", "result": "0" * 32}
OF_TENANTS = [operation for operation in OPERATIONS if "{tenant}" in operation.path]


@dataclass
class Deployment:
    """One API and tokens for it."""

    url: str
    tokens: dict[str, str]

    def call(self, method, path, token=None, *, body=b"{}", **headers):
        if token is not None:
            headers["Authorization"] = f"Bearer {self.tokens.get(token, token)}"
        headers = {"Content-Type": "application/json", **headers}
        return httpx.request(method, f"{self.url}{path}", headers=headers, content=body, timeout=60)

    def operate(self, operation, token, tenant, **options):
        return self.call(operation.method, operation.path.format(**{**NAMES, "tenant": tenant}), token, **options)


def lambda_token(secret=SECRET, **changes):
    claims = {"iss": "https://login.example.com", "aud": "tenant-api", "sub": "ann", "exp": int(time.time()) + 3600, **changes}
    return hs256(claims, secret.encode())


@pytest.fixture(scope="module")
def cloud():
    with LocalCloud() as cloud:
        yield cloud


@pytest.fixture(scope="module")
def outputs(cloud, tmp_path_factory):
    project = tmp_path_factory.mktemp("tokens")
    shutil.copytree(APP, project, dirs_exist_ok=True)
    shutil.copy(PROJECT / "cdk.json", project)
    state = LocalState(cloud.endpoint_url, cloud.region, cloud.account, 0, cloud.admin, cloud.environment())
    output = str(tmp_path_factory.mktemp("cdk.out"))
    return deploy(state, project, print, "--output", output, "-c", f"secret={SECRET}").outputs


@pytest.fixture(scope="module")
def users(cloud, outputs):
    users = UserPool(cloud, outputs["UserPoolId"], outputs["ClientId"])
    for tenant in ("acme", "globex", "acme-evil"):
        users.add_user(f"{tenant}-user", custom_tenant=tenant)
    users.add_user("olga", "platform-admin")
    users.add_user("nobody")
    return users


@pytest.fixture(scope="module")
def with_cognito(cloud, outputs, users):
    names = {"acme": "acme-user", "globex": "globex-user", "acme-evil": "acme-evil-user", "admin": "olga", "nobody": "nobody"}
    tokens = {name: users.sign_in(user)["IdToken"] for name, user in names.items()}
    tokens["other application"] = users.sign_in("globex-user", outputs["OtherClientId"])["IdToken"]
    tokens["access token"] = users.sign_in("globex-user")["AccessToken"]
    return Deployment(cloud.local_url(outputs["CognitoUrl"]).rstrip("/"), tokens)


@pytest.fixture(scope="module")
def with_lambda(cloud, outputs):
    tokens = {tenant: lambda_token(tenant=tenant) for tenant in ("acme", "globex", "acme-evil")}
    tokens |= {"admin": lambda_token(sub="olga", role="platform-admin"), "nobody": lambda_token()}
    return Deployment(cloud.local_url(outputs["LambdaUrl"]).rstrip("/"), tokens)


@pytest.fixture(params=["with_cognito", "with_lambda"])
def api(request):
    return request.getfixturevalue(request.param)


def problem(answer, status, slug):
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), answer.text
    assert (answer.json()["status"], answer.json()["type"]) == (status, f"urn:mme:problem:{slug}"), answer.text


@pytest.mark.parametrize("operation", OF_TENANTS, ids=lambda operation: operation.id)
class TestEveryRoute:
    @pytest.mark.parametrize("token", ["acme", "acme-evil", "nobody"])
    def test_of_another_tenant_is_refused(self, api, operation, token):
        problem(api.operate(operation, token, "globex"), 403, "forbidden")
        problem(api.operate(operation, token, "globe"), 403, "forbidden")

    def test_without_a_token_is_refused(self, api, operation):
        answer = api.operate(operation, None, "globex")
        problem(answer, 401, "unauthenticated")
        assert answer.headers["www-authenticate"] == "Bearer"

    def test_is_open_to_the_administrator_and_if_it_is_a_tenants_to_that_tenant(self, api, operation):
        assert api.operate(operation, "admin", "initech").status_code not in (401, 403)
        answer = api.operate(operation, "globex", "globex")
        if Role.TENANT in operation.roles:
            assert answer.status_code not in (401, 403), answer.text
        else:
            problem(answer, 403, "forbidden")


def test_a_forged_token_opens_nothing(with_cognito, users):
    forgeries = users.forgeries(with_cognito.tokens["globex"])
    assert len(forgeries) > 20
    opened = [what for what, token in forgeries.items() if with_cognito.call("GET", "/tenants/globex", token).status_code != 401]
    assert opened == []
    assert with_cognito.call("GET", "/tenants/globex", users.signed(with_cognito.tokens["globex"])).status_code != 401


@pytest.mark.parametrize("token", ["other application", "access token"])
def test_a_token_made_for_something_else_opens_nothing(with_cognito, token):
    problem(with_cognito.call("GET", "/tenants/globex", token), 401, "unauthenticated")


def test_a_token_of_the_one_api_opens_nothing_of_the_other(with_cognito, with_lambda):
    problem(with_cognito.call("GET", "/tenants/globex", with_lambda.tokens["globex"]), 401, "unauthenticated")
    problem(with_lambda.call("GET", "/tenants/globex", with_cognito.tokens["globex"]), 401, "unauthenticated")


def test_a_token_that_the_users_authorizer_does_not_know_opens_nothing(with_lambda):
    good = with_lambda.tokens["globex"]
    head, payload, signature = good.split(".")
    forged = {
        "expired": lambda_token(tenant="globex", exp=int(time.time()) - 1),
        "wrong issuer": lambda_token(tenant="globex", iss="https://evil.example.com"),
        "wrong audience": lambda_token(tenant="globex", aud="other"),
        "wrong secret": lambda_token("guess", tenant="globex"),
        "tampered": f"{head}.{encoded(claims_of(good) | {'role': 'platform-admin'})}.{signature}",
        "alg none": f"{encoded(decoded(head) | {'alg': 'none'})}.{payload}.",
        "garbage": "garbage",
    }
    for what, token in forged.items():
        assert with_lambda.call("GET", "/tenants/globex", token).status_code == 401, what


def test_an_unknown_role_and_an_id_outside_the_grammar_open_nothing(with_lambda):
    for claims in ({"role": "root", "tenant": "globex"}, {"tenant": "globex/../acme"}, {"tenant": "*"}, {"tenant": ["globex"]}):
        assert with_lambda.call("GET", "/tenants/globex", lambda_token(**claims)).status_code == 403, claims


@pytest.mark.parametrize(
    "path", ["/tenants/acme/../globex/models", "/tenants/acme/%2e%2e/globex/models", "/tenants/acme%2f..%2fglobex/models"]
)
def test_a_path_that_climbs_out_is_not_the_other_tenants(api, path):
    assert api.call("GET", path, "acme").status_code in (400, 403, 404)


def test_what_a_caller_says_of_itself_in_headers_counts_for_nothing(api):
    told = {"X-Tenant": "globex", "tenant": "globex", "role": "platform-admin", "X-Amzn-Oidc-Data": "globex"}
    problem(api.call("GET", "/tenants/globex", "acme", **told), 403, "forbidden")
    problem(api.call("GET", "/tenants/globex?tenant=acme&role=platform-admin", "acme"), 403, "forbidden")


def test_a_user_cannot_make_itself_another_tenants(with_cognito, cloud, users):
    idp = cloud.client("cognito-idp")
    users.add_user("mallory", custom_tenant="acme")
    access = users.sign_in("mallory")["AccessToken"]
    with pytest.raises(idp.exceptions.ClientError):
        idp.update_user_attributes(AccessToken=access, UserAttributes=[{"Name": "custom:tenant", "Value": "globex"}])
    problem(with_cognito.call("GET", "/tenants/globex", users.sign_in("mallory")["IdToken"]), 403, "forbidden")


def test_the_document_says_what_to_send(with_cognito, with_lambda):
    for api, scheme in ((with_cognito, "http"), (with_lambda, "apiKey")):
        document = api.call("GET", "/openapi.json", "acme").json()
        assert document["components"]["securitySchemes"]["token"]["type"] == scheme
        problem(api.call("GET", "/openapi.json"), 401, "unauthenticated")


def test_a_tenant_brings_a_model_and_invokes_it_with_tokens_and_no_other_tenant_does(with_cognito, demo_models):
    api, (folder, (model, *_)) = with_cognito, demo_models
    for tenant in ("acme", "globex"):
        assert api.call("PUT", f"/tenants/{tenant}", "admin").status_code in (200, 201)
    artifact = (folder / model.artifact).read_bytes()
    registration = {
        "sha256": hashlib.sha256(artifact).hexdigest(),
        "size_bytes": len(artifact),
        "framework": "xgboost",
        "sample": {"content_type": "text/csv", "body": model.rows[0]},
    }
    registered = api.call("POST", "/tenants/acme/models/iris/versions", "acme", body=json.dumps(registration).encode())
    assert registered.status_code == 201, registered.text
    upload, version = registered.json()["upload"], registered.json()["version"]
    httpx.request(upload["method"], upload["url"], headers=upload["headers"], content=artifact, timeout=60).raise_for_status()
    shown = f"/tenants/acme/models/iris/versions/{version}"
    wait_until(lambda: api.call("GET", shown, "acme").json()["state"] in ("active", "rejected"), what="the end of the admission")
    assert api.call("GET", shown, "acme").json()["state"] == "active", api.call("GET", shown, "acme").text
    csv = {"Content-Type": "text/csv"}
    answer = api.call("POST", "/tenants/acme/models/iris/invocations", "acme", body=model.rows[0].encode(), **csv)
    assert (answer.status_code, answer.headers["x-mme-version"]) == (200, version)
    for token in ("globex", "acme-evil", "nobody"):
        problem(api.call("POST", "/tenants/acme/models/iris/invocations", token, body=model.rows[0].encode(), **csv), 403, "forbidden")
        problem(api.call("GET", shown, token), 403, "forbidden")


def test_the_command_line_brings_a_model_with_a_token_and_without_aws_credentials(with_cognito, demo_models, tmp_path):
    folder, (model, *_) = demo_models
    assert with_cognito.call("PUT", "/tenants/acme", "admin").status_code in (200, 201)
    sample = tmp_path / "sample.csv"
    sample.write_text(model.rows[0])

    def onboard(token):
        command = ["onboard", "acme", "by-command", str(folder / model.artifact), "--sample", str(sample), "--json"]
        command += ["--api-url", with_cognito.url]
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "MME_API_TOKEN": with_cognito.tokens[token]}
        return subprocess.run(
            [sys.executable, "-m", "mme_cli.main", *command], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
        )

    refused = onboard("globex")
    assert refused.returncode == 1
    assert "403" in refused.stderr
    assert with_cognito.tokens["globex"] not in refused.stdout + refused.stderr
    done = onboard("acme")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["state"] == "active"


def test_attempts_are_in_the_functions_logs_and_tokens_in_none(api, cloud):
    """The calls of the tests before are told of; this one makes two more, to stand alone."""
    for path in ("/tenants/globex/models", "/tenants/globex/models/iris/invocations"):
        api.call("POST" if path.endswith("invocations") else "GET", path, "acme")
    logs = cloud.client("logs")
    groups = [group["logGroupName"] for page in logs.get_paginator("describe_log_groups").paginate() for group in page["logGroups"]]

    def lines():
        return [event["message"] for group in groups for event in logs.filter_log_events(logGroupName=group, limit=10_000)["events"]]

    def attempts():
        return [json.loads(line) for line in lines() if '"refused"' in line and "other-tenant" in line]

    wait_until(lambda: len(attempts()) >= 2, what="the log of two attempts")
    assert all(told["path_tenant"] in ("globex", "globe", "acme") and told["caller_tenant"] for told in attempts())
    assert len(asked_for(logs, groups)) >= len(attempts()), "the page's query finds them"
    text = "\n".join(lines())
    for token in api.tokens.values():
        assert token.rpartition(".")[2] not in text


def asked_for(logs, groups):
    """What the query of the documentation finds."""
    query = re.search(r"^fields @timestamp.*$", (PROJECT / "docs" / "tasks" / "who-may-call.md").read_text("utf-8"), re.MULTILINE)[0]
    now = int(time.time())
    started = logs.start_query(logGroupNames=groups, startTime=now - 3600, endTime=now + 60, queryString=query)["queryId"]
    done = wait_until(lambda: (found := logs.get_query_results(queryId=started))["status"] == "Complete" and found, what="the query's end")
    rows = [{cell["field"]: cell["value"] for cell in row} for row in done["results"]]
    assert all(row["refused"] and row["path_tenant"] for row in rows if row["refused"] == "other-tenant")
    return [row for row in rows if row["refused"] == "other-tenant"]
