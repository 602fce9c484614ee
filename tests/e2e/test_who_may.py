"""Calls are signed by real principals; what a principal may not do is refused, over real HTTP."""

import dataclasses
import urllib.error
import urllib.request

import pytest
from botocore.exceptions import ClientError

from mme_cli.errors import CommandError
from mme_cli.principals import tenant_session
from mme_cli.signed_http import SignedClient
from mme_facts.api import OPERATIONS
from mme_local import Credentials

TENANT = "/tenants/{tenant}"
ROUTES = [
    (operation.method, operation.path.removeprefix(TENANT).format(model="iris", version="v1-0123456789ab", result="0" * 32))
    for operation in OPERATIONS
    if operation.path.startswith(TENANT)
]


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_an_unsigned_call_is_refused(platform, served, method, path):
    request = urllib.request.Request(f"{platform.state.output('ApiUrl')}/tenants/acme{path}", method=method, data=b"{}")
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=30)
    with caught.value:
        assert caught.value.code == 403


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_a_bad_signature_is_refused(platform, served, method, path):
    keys = platform.tenant_keys("acme")
    forged = SignedClient(platform.state.output("ApiUrl"), dataclasses.replace(keys, secret_access_key="x" * 40), platform.state.region)
    assert forged.call(method, f"/tenants/acme{path}", b"{}").status == 403


@pytest.mark.parametrize("victim", ["globex", "acme-evil", "acm"])
@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_a_tenants_session_is_refused_on_every_path_of_another_tenant(platform, served, method, path, victim):
    assert platform.tenant_client("acme").call(method, f"/tenants/{victim}{path}", b"{}").status == 403


@pytest.mark.parametrize(
    "path", ["/tenants/acme/../globex/models", "/tenants/acme/%2e%2e/globex/models", "/tenants/acme%2f..%2fglobex/models"]
)
def test_a_path_that_climbs_out_is_not_the_other_tenants(platform, served, path):
    assert platform.tenant_client("acme").call("GET", path).status in (400, 403, 404)


def test_a_tenant_reads_the_description_of_the_api_and_strangers_do_not(platform, served):
    answer = platform.tenant_client("acme").call("GET", "/openapi.json")
    assert (answer.status, answer.headers["content-type"], answer.json()["openapi"]) == (200, "application/json", "3.1.1")
    users = platform.client("iam")
    users.create_user(UserName="stranger")
    key = users.create_access_key(UserName="stranger")["AccessKey"]
    stranger = Credentials(key["AccessKeyId"], key["SecretAccessKey"])
    assert SignedClient(platform.state.output("ApiUrl"), stranger, platform.state.region).call("GET", "/openapi.json").status == 403


def test_a_tenant_may_not_create_tenants_nor_itself(platform, served):
    assert platform.tenant_client("acme").call("PUT", "/tenants/acme", b"{}").status == 403
    assert platform.tenant_client("acme").call("PUT", "/tenants/other", b"{}").status == 403


@pytest.mark.parametrize("path", ["/tenants/acme", "/tenants/acme/"])
@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_what_is_the_administrators_is_refused_to_a_tenant_with_a_slash_at_the_end_too(platform, served, method, path):
    """Both reach one resource, and a policy that ends in ``/*`` would match the second."""
    assert platform.tenant_client("acme").call(method, path, b"{}").status == 403


def test_a_tenants_session_opens_only_with_its_tag_and_from_the_admin_role(platform, served):
    role = platform.state.output("TenantAccessRoleArn")
    admin = platform.client("sts", platform.admin_keys)
    with pytest.raises(ClientError, match="AccessDenied"):
        admin.assume_role(RoleArn=role, RoleSessionName="untagged")
    with pytest.raises(ClientError, match="AccessDenied"):
        admin.assume_role(RoleArn=role, RoleSessionName="mistagged", Tags=[{"Key": "team", "Value": "acme"}])
    tenant = platform.client("sts", platform.tenant_keys("acme"))
    with pytest.raises(CommandError, match="AccessDenied"):
        tenant_session(tenant, role, "globex")


def test_a_tenants_session_reaches_no_service_behind_the_api(platform, served):
    keys = platform.tenant_keys("acme")
    outputs = platform.state.outputs
    calls = {
        "s3": lambda client: client.get_object(Bucket=outputs["BucketName"], Key="models/globex/digits/v1-0123456789ab.tar.gz"),
        "dynamodb": lambda client: client.get_item(TableName=outputs["TableName"], Key={"PK": {"S": "TENANT#acme"}, "SK": {"S": "TENANT"}}),
        "sagemaker-runtime": lambda client: client.invoke_endpoint(
            EndpointName=outputs["EndpointName"], TargetModel="globex/digits/v1-0123456789ab.tar.gz", Body=b"1"
        ),
    }
    for service, call in calls.items():
        with pytest.raises(ClientError, match="AccessDenied"):
            call(platform.client(service, keys))


def test_a_function_is_refused_what_its_role_does_not_grant(platform, served):
    headers = {"x-probe": "describe-endpoint", "x-probe-endpoint": platform.state.output("EndpointName")}
    answer = platform.tenant_client("acme").call("GET", "/tenants/acme", headers=headers)
    assert answer.status == 200
    assert answer.headers["x-probe"] == "AccessDeniedException"


def test_the_root_key_opens_nothing(platform, served):
    with pytest.raises(ClientError):
        platform.client("s3", Credentials("000000000000", "test")).list_buckets()
