"""A router that swaps tenants, in the deployed function and in an application's client: IAM refuses every call across tenants.

As a control the same function without isolation, and the same client with an administrator's session, get the other tenant's answer:
what refuses is not that nothing works.
"""

import asyncio
import json

import boto3
import pytest

from mme_cli.principals import tenant_session
from mme_tenancy import AsyncTenantClient, TenantClient
from mme_tenancy.aws.clients import dynamodb_client
from mme_tenancy.aws.dynamodb import DynamoRegistry
from mme_tenancy.errors import ForbiddenError, UnavailableError
from mme_tenancy.invocation_path import looked_up_in
from tests.e2e.conftest import append, copied_app, deployed
from tests.e2e.support import onboard_model, problem, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

NEXT = {"acme": "globex", "globex": "initech", "initech": "acme"}
MODEL = "churn"
CALLS = 5
DIRECT = """
        from mme_constructs import TenantAccess

        direct = TenantAccess(
            self, "Direct", api=platform.api, trusted=[platform.admin.role], registry=registry, endpoints=[pool.endpoint]
        )
        platform.admin.allow_tenant_sessions(direct)
        cdk.CfnOutput(self, "DirectRoleArn", value=direct.role.role_arn, description="Sessions that call AWS themselves")
        acknowledge(self, _DECISIONS)
"""


def with_broken_router(folder, output, *, isolation=True):
    """A deployed platform whose function has the broken router, and whose tenants may call AWS themselves."""
    project = copied_app(folder)
    append(project / "mme_tenancy" / "invocation_path.py", "broken_router.txt")
    stack = project / "stacks" / "platform_stack.py"
    text = stack.read_text()
    for before, after in (
        ("        acknowledge(self, _DECISIONS)\n", DIRECT),
        ("            functions=PlatformFunctions(", f"            isolation={isolation},\n            functions=PlatformFunctions("),
    ):
        assert before in text
        text = text.replace(before, after)
    stack.write_text(text)
    return deployed(project, output)


def onboarded(platform, demo_models):
    """Version and sample row of each tenant's model; each tenant has an artifact of its own."""
    folder, prepared = demo_models
    admin, versions = platform.admin_client(), {}
    for tenant, model in zip(NEXT, prepared, strict=False):
        admin.expect((200, 201), "PUT", f"/tenants/{tenant}", {})
        artifact = (folder / model.artifact).read_bytes()
        versions[tenant] = onboard_model(platform.tenant_client(tenant), tenant, MODEL, artifact, model.rows[0]), model.rows[0]
    return versions


def call(platform, tenant, row):
    path = f"/tenants/{tenant}/models/{MODEL}/invocations"
    return platform.tenant_client(tenant).call("POST", path, row.encode(), {"content-type": "text/csv"})


def is_document(message):
    return message.startswith("{")


@pytest.fixture(scope="module")
def isolated(tmp_path_factory, demo_models):
    with with_broken_router(tmp_path_factory.mktemp("app"), tmp_path_factory.mktemp("cdk.out")) as platform:
        yield platform, onboarded(platform, demo_models)


def test_every_call_that_the_function_sends_across_tenants_is_refused(isolated):
    platform, versions = isolated
    for tenant, (_version, row) in versions.items():
        for _ in range(CALLS):
            document = problem(call(platform, tenant, row), 503, "unavailable")
            assert not any(other in json.dumps(document) for other in NEXT.values() if other != tenant)
    group = platform.state.output("InvocationLogGroup")
    logs = platform.client("logs")

    def refused():
        messages = [event["message"] for event in logs.filter_log_events(logGroupName=group)["events"]]
        lines = [line for line in map(json.loads, filter(is_document, messages)) if line.get("status") == 503]
        return lines if len(lines) >= CALLS * len(NEXT) else None

    lines = wait_until(refused, what="the log lines of the refused requests")
    assert len(lines) == CALLS * len(NEXT)
    assert all("AccessDenied" in line["fault"] and line["attempts"] == 1 for line in lines)


def test_every_call_that_an_application_sends_across_tenants_is_refused(isolated, monkeypatch):
    platform, versions = isolated
    state = platform.state
    monkeypatch.setenv("AWS_ENDPOINT_URL", state.endpoint_url)

    def session(keys):
        return boto3.Session(keys.access_key_id, keys.secret_access_key, keys.session_token, region_name=state.region)

    refused = []

    def client(keys, log=None):
        return TenantClient(table_name=state.output("TableName"), session=session(keys), log=log)

    async def invoked_at_once(client, tenant, row):
        async with AsyncTenantClient(client) as at_once:
            calls = (at_once.invoke(tenant, MODEL, row.encode(), content_type="text/csv") for _ in range(CALLS))
            return await asyncio.gather(*calls, return_exceptions=True)

    anybodys = looked_up_in(DynamoRegistry(dynamodb_client(session(state.admin)), state.output("TableName")))
    sts = platform.client("sts", platform.admin_keys)
    for tenant, (version, row) in versions.items():
        keys, other = tenant_session(sts, state.output("DirectRoleArn"), tenant), NEXT[tenant]
        with client(keys) as own:
            assert own.invoke(tenant, MODEL, row.encode(), content_type="text/csv").version == version
            with pytest.raises(ForbiddenError, match=other):
                own.invoke(other, MODEL, row.encode(), content_type="text/csv")
        with monkeypatch.context() as patched:
            patched.setattr("mme_tenancy.client.looked_up_in", lambda _registry, other=other: lambda *_: anybodys(other, MODEL))
            broken, control, broken_async = client(keys, refused.append), client(state.admin), client(keys, refused.append)
        assert [type(each) for each in asyncio.run(invoked_at_once(broken_async, tenant, row))] == [UnavailableError] * CALLS
        with broken, control:
            for _ in range(CALLS):
                with pytest.raises(UnavailableError):
                    broken.invoke(tenant, MODEL, row.encode(), content_type="text/csv")
            others, others_row = versions[other]
            assert control.invoke(tenant, MODEL, others_row.encode(), content_type="text/csv").version == others
    assert len(refused) == 2 * CALLS * len(NEXT)
    assert all("AccessDenied" in line["fault"] and line["attempts"] == 1 for line in map(json.loads, refused))


def test_without_isolation_the_same_mistake_reaches_the_other_tenant(tmp_path_factory, demo_models):
    folders = tmp_path_factory.mktemp("app"), tmp_path_factory.mktemp("cdk.out")
    with with_broken_router(*folders, isolation=False) as platform:
        versions = onboarded(platform, demo_models)
        for tenant, other in NEXT.items():
            version, row = versions[other]
            answer = call(platform, tenant, row)
            assert answer.status == 200, answer
            assert answer.headers["x-mme-version"] == version
