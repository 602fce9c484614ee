"""What a tenant's session, an upload and a call through a VPC endpoint reach, decided by an IAM evaluator."""

from __future__ import annotations

import aws_cdk as cdk
import pytest
from aws_cdk import aws_iam as iam

from mme_constructs import ModelArtifactStore, ModelPool, MultiModelEndpoint, PrivateAccess, TenantAccess, TenantApi, TenantRegistry
from tests.constructs.iam_evaluation import Request, decide, resolved

SHARED = "arn:aws:sagemaker:eu-central-1:111122223333:endpoint/shared"
DEDICATED = "arn:aws:sagemaker:eu-central-1:111122223333:endpoint/dedicated"
OTHER = "arn:aws:sagemaker:eu-central-1:111122223333:endpoint/other"
COMPONENT = "arn:aws:sagemaker:eu-central-1:111122223333:inference-component/c-3f2a"
API = "arn:aws:execute-api:eu-central-1:111122223333:abcde12345/v1"
BUCKET = "arn:aws:s3:::artifacts"
TABLE = "arn:aws:dynamodb:eu-central-1:111122223333:table/registry"
ONBOARDING = "arn:aws:iam::111122223333:role/Onboarding"
OWN = "acme/x/v1-0123456789ab.tar.gz"


@pytest.fixture(scope="module")
def platform(synthesize):
    def build(app):
        stack = cdk.Stack(app, "Test", env=cdk.Environment(account="111122223333", region="eu-central-1"))
        shared = MultiModelEndpoint.from_endpoint_attributes(stack, "Shared", endpoint_name="shared")
        dedicated = MultiModelEndpoint.from_endpoint_attributes(stack, "Dedicated", endpoint_name="dedicated")
        store, registry = ModelArtifactStore(stack, "Store"), TenantRegistry(stack, "Registry")
        private = PrivateAccess(stack, "Private", store=store, registry=registry)
        private.allow_invoke(shared)
        private.allow_invoke(dedicated, components=True)
        api = TenantApi(
            stack,
            "Api",
            store=store,
            registry=registry,
            pools=[ModelPool(framework="xgboost", endpoint=shared)],
            private_endpoint=private.execute_api,
        )
        store.restrict_to_vpc_endpoint(private.s3, allowed=[api.onboarding.role])
        TenantAccess(
            stack,
            "Access",
            api=api,
            trusted=[iam.ArnPrincipal("arn:aws:iam::111122223333:role/Broker")],
            registry=registry,
            store=store,
            endpoints=[shared],
            dedicated_endpoints=[dedicated],
        )

    return synthesize(build)


@pytest.fixture(scope="module")
def values(platform):
    """What the deployed template's references give."""
    given = {"AWS::Partition": "aws", "AWS::Region": "eu-central-1", "AWS::AccountId": "111122223333"}
    for prefix, value in {
        "StoreBucket": BUCKET,
        "RegistryTable": TABLE,
        "ApiOnboardingRole": ONBOARDING,
        "PrivateS3": "vpce-s3",
        "PrivateExecuteApi": "vpce-api",
    }.items():
        given |= {name: value for name in platform.templates["Test"]["Resources"] if name.startswith(prefix)}
    api = next(iter(platform.resources("AWS::ApiGateway::RestApi")))
    return given | {api: "abcde12345"}


def _policy(platform, values, resource_type, prefix, document="PolicyDocument"):
    (properties,) = [item["Properties"] for name, item in platform.resources(resource_type).items() if name.startswith(prefix)]
    return resolved(properties[document], values)


@pytest.fixture(scope="module")
def tenant_policy(platform, values):
    return _policy(platform, values, "AWS::IAM::Policy", "Access")


def _session(tenant, **keys):
    return {"aws:PrincipalTag/tenant": tenant} | {name.replace("__", ":"): value for name, value in keys.items()}


def _invoke(tenant, target_model=None, endpoint=SHARED):
    keys = _session(tenant) | ({} if target_model is None else {"sagemaker:TargetModel": target_model})
    return Request("sagemaker:InvokeEndpoint", endpoint, keys)


def _component(tenant, owner):
    keys = _session(tenant) | ({} if owner is None else {"aws:ResourceTag/tenant": owner})
    return Request("sagemaker:InvokeEndpoint", COMPONENT, keys)


def _upload(tenant, key, action="s3:PutObject"):
    return Request(action, f"{BUCKET}/{key}", _session(tenant))


def _records(tenant, *partitions, action="dynamodb:BatchGetItem", resource=TABLE):
    """A request that names these partitions of the registry's table; none names none, as a scan."""
    return Request(action, resource, _session(tenant) | ({"dynamodb:LeadingKeys": list(partitions)} if partitions else {}))


def _call(tenant, call):
    return Request("execute-api:Invoke", f"{API}/{call}", _session(tenant))


ALLOWED = {
    "its own model": _invoke("acme", OWN),
    "its own model in a folder called as another tenant": _invoke("acme", "acme/globex/v1-0123456789ab.tar.gz"),
    "its own component": _component("acme", "acme"),
    "the dedicated endpoint, for a component": _invoke("acme", endpoint=DEDICATED),
    "its own upload": _upload("acme", f"incoming/{OWN}"),
    "its own records": _records("acme", "TENANT#acme"),
    "one record of its own": _records("acme", "TENANT#acme", action="dynamodb:GetItem"),
    "its own path": _call("acme", "POST/tenants/acme/models/x/invocations"),
}
DENIED = {
    "a tenant with the same beginning": _invoke("acme", "acme-evil/x/v1-0123456789ab.tar.gz"),
    "a shorter tenant": _invoke("acme-evil", OWN),
    "another case": _invoke("acme", "Acme/x/v1-0123456789ab.tar.gz"),
    "the tenant's name alone": _invoke("acme", "acme"),
    "a way up": _invoke("acme", "../acme/x/v1-0123456789ab.tar.gz"),
    "a leading slash": _invoke("acme", f"/{OWN}"),
    "an empty target": _invoke("acme", ""),
    "no target": _invoke("acme"),
    "another tenant": _invoke("acme", "globex/x/v1-0123456789ab.tar.gz"),
    "another endpoint": _invoke("acme", OWN, endpoint=OTHER),
    "a target on the dedicated endpoint": _invoke("acme", OWN, endpoint=DEDICATED),
    "a session without the tag": Request("sagemaker:InvokeEndpoint", SHARED, {"sagemaker:TargetModel": OWN}),
    "a session whose tag is a wildcard": _invoke("*", OWN),
    "another tenant's component": _component("acme", "globex"),
    "the component of a tenant with the same beginning": _component("acme", "acme-evil"),
    "the component of a shorter tenant": _component("acme-evil", "acme"),
    "a component in another case": _component("acme", "ACME"),
    "a component without an owner": _component("acme", None),
    "a component for a session without the tag": Request("sagemaker:InvokeEndpoint", COMPONENT, {"aws:ResourceTag/tenant": "acme"}),
    "asynchronous invocation": Request("sagemaker:InvokeEndpointAsync", SHARED, _session("acme") | {"sagemaker:TargetModel": OWN}),
    "another tenant's upload": _upload("acme", "incoming/globex/x/v1-0123456789ab.tar.gz"),
    "an upload of a tenant with the same beginning": _upload("acme", "incoming/acme-evil/x/v1-0123456789ab.tar.gz"),
    "an upload of a shorter tenant": _upload("acme-evil", f"incoming/{OWN}"),
    "an upload in another case": _upload("acme", "incoming/Acme/x/v1-0123456789ab.tar.gz"),
    "an upload without inspection": _upload("acme", f"models/{OWN}"),
    "reading an upload back": _upload("acme", f"incoming/{OWN}", "s3:GetObject"),
    "deleting an upload": _upload("acme", f"incoming/{OWN}", "s3:DeleteObject"),
    "reading its own artifact": _upload("acme", f"models/{OWN}", "s3:GetObject"),
    "another tenant's records": _records("acme", "TENANT#globex"),
    "another tenant's records beside its own": _records("acme", "TENANT#acme", "TENANT#globex"),
    "records of a tenant with the same beginning": _records("acme", "TENANT#acme-evil"),
    "records of a shorter tenant": _records("acme-evil", "TENANT#acme", action="dynamodb:GetItem"),
    "the answers kept for its own repeated requests": _records("acme", "IDEMPOTENCY#acme"),
    "a query of its own records": _records("acme", "TENANT#acme", action="dynamodb:Query"),
    "a scan of the records": _records("acme", action="dynamodb:Scan"),
    "a record of its own written": _records("acme", "TENANT#acme", action="dynamodb:PutItem"),
    "a record of its own deleted": _records("acme", "TENANT#acme", action="dynamodb:DeleteItem"),
    "a read that names no partition": _records("acme"),
    "records for a session without the tag": Request("dynamodb:GetItem", TABLE, {"dynamodb:LeadingKeys": ["TENANT#acme"]}),
    "another tenant's path": _call("acme", "POST/tenants/globex/models/x/invocations"),
    "the path of a tenant with the same beginning": _call("acme", "GET/tenants/acme-evil/models"),
    "the path of a model that is called tenants": _call("versions", "GET/tenants/globex/models/tenants/versions/v1-0123456789ab"),
}


def test_a_tenants_session_reaches_what_is_its_own(tenant_policy):
    assert dict(zip(ALLOWED, decide(tenant_policy, list(ALLOWED.values())), strict=True)) == dict.fromkeys(ALLOWED, True)


def test_a_tenants_session_is_denied_everything_else(tenant_policy):
    assert dict(zip(DENIED, decide(tenant_policy, list(DENIED.values())), strict=True)) == dict.fromkeys(DENIED, False)


def test_names_of_components_would_collide_where_their_tags_do_not():
    """Why components are told by their tag: a pattern over names reaches the tenant whose name begins alike."""
    by_name = {
        "Effect": "Allow",
        "Action": "sagemaker:InvokeEndpoint",
        "Resource": "arn:aws:sagemaker:eu-central-1:111122223333:inference-component/${aws:PrincipalTag/tenant}-*",
    }
    foreign = Request("sagemaker:InvokeEndpoint", COMPONENT.replace("c-3f2a", "acme-evil-churn"), _session("acme"))
    assert decide({"Statement": [by_name]}, [foreign]) == [True]


def test_a_session_must_be_tagged_by_its_opener_and_with_that_tag_only(platform, values):
    (role,) = [item for name, item in platform.resources("AWS::IAM::Role").items() if name.startswith("Access")]
    trust = role["Properties"]["AssumeRolePolicyDocument"]
    # The evaluator decides statements of identities: who is trusted is compared here, the conditions are decided.
    assert {statement["Principal"]["AWS"] for statement in trust["Statement"]} == {"arn:aws:iam::111122223333:role/Broker"}
    role_arn = "arn:aws:iam::111122223333:role/Access"
    opened = {"Statement": [{**statement, "Resource": role_arn} for statement in trust["Statement"]]}

    def open_with(action="sts:AssumeRole", **tags):
        keys = {f"aws:RequestTag/{name}": value for name, value in tags.items()} | {"aws:TagKeys": list(tags)}
        return Request(action, role_arn, keys)

    requests = [open_with(tenant="acme"), open_with("sts:TagSession", tenant="acme"), open_with(), open_with(tenant="")]
    requests += [
        open_with(team="x"),
        open_with("sts:TagSession", tenant="acme", team="x"),
        open_with("sts:SetSourceIdentity", tenant="acme"),
    ]
    assert decide(opened, requests) == [True, True, False, False, False, False, False]


ANYTHING = {"Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}


def test_objects_are_reached_through_the_vpc_endpoint_or_by_an_allowed_role_only(platform, values):
    bucket_policy = _policy(platform, values, "AWS::S3::BucketPolicy", "Store")

    def get(action="s3:GetObject", endpoint=None, principal="arn:aws:iam::111122223333:role/Admin", resource=f"{BUCKET}/models/{OWN}"):
        keys = {"aws:PrincipalArn": principal} | ({} if endpoint is None else {"aws:SourceVpce": endpoint})
        return Request(action, resource, keys, principal)

    requests = {
        "through the endpoint": (get(endpoint="vpce-s3"), True),
        "through another endpoint": (get(endpoint="vpce-other"), False),
        "from the internet": (get(), False),
        "an upload from the internet": (get("s3:PutObject"), False),
        "a list from the internet": (get("s3:ListBucket", resource=BUCKET), False),
        "signed by the onboarding function": (get("s3:PutObject", principal=ONBOARDING), True),
        "the bucket's own policy": (get("s3:PutBucketPolicy", resource=BUCKET), True),
    }
    decided = decide(ANYTHING, [request for request, _ in requests.values()], resource_policy=bucket_policy)
    assert dict(zip(requests, decided, strict=True)) == {name: expected for name, (_, expected) in requests.items()}


def test_a_private_api_refuses_calls_from_elsewhere_and_allows_nothing_by_itself(platform, values):
    policy = _policy(platform, values, "AWS::ApiGateway::RestApi", "Api", "Policy")
    assert {statement["Effect"] for statement in policy["Statement"]} == {"Deny"}
    # API Gateway completes the resource with the API's ARN.
    policy = {"Statement": [{**statement, "Resource": f"{API.removesuffix('/v1')}/*"} for statement in policy["Statement"]]}
    calls = [
        Request("execute-api:Invoke", f"{API}/GET/tenants/acme", {"aws:SourceVpce": endpoint} if endpoint else {})
        for endpoint in ("vpce-api", "vpce-other", None)
    ]
    assert decide(ANYTHING, calls, resource_policy=policy) == [True, False, False]


@pytest.mark.parametrize(
    ("endpoint", "requests"),
    [
        (
            "PrivateSagemakerRuntime",
            {
                "the shared endpoint": (Request("sagemaker:InvokeEndpoint", SHARED), True),
                "the dedicated endpoint": (Request("sagemaker:InvokeEndpoint", DEDICATED), True),
                "a tenant's component": (Request("sagemaker:InvokeEndpoint", COMPONENT, {"aws:ResourceTag/tenant": "acme"}), True),
                "an untagged component": (Request("sagemaker:InvokeEndpoint", COMPONENT), False),
                "another endpoint": (Request("sagemaker:InvokeEndpoint", OTHER), False),
                "another account's endpoint": (Request("sagemaker:InvokeEndpoint", SHARED.replace("1111", "9999")), False),
                "asynchronous invocation": (Request("sagemaker:InvokeEndpointAsync", SHARED), False),
            },
        ),
        (
            "PrivateS3",
            {
                "an artifact": (Request("s3:GetObject", f"{BUCKET}/models/{OWN}"), True),
                "an upload": (Request("s3:PutObject", f"{BUCKET}/incoming/{OWN}"), True),
                "an image layer": (Request("s3:GetObject", "arn:aws:s3:::prod-eu-central-1-starport-layer-bucket/layer"), True),
                "another bucket": (Request("s3:PutObject", "arn:aws:s3:::elsewhere/stolen"), False),
                "a bucket whose name begins alike": (Request("s3:PutObject", f"{BUCKET}-evil/stolen"), False),
                "the bucket's policy": (Request("s3:PutBucketPolicy", BUCKET), False),
                "writing image layers": (Request("s3:PutObject", "arn:aws:s3:::prod-eu-central-1-starport-layer-bucket/layer"), False),
            },
        ),
        (
            "PrivateDynamoDb",
            {
                "an item": (Request("dynamodb:GetItem", TABLE), True),
                "an index": (Request("dynamodb:Query", f"{TABLE}/index/moving"), True),
                "another table": (Request("dynamodb:PutItem", TABLE.replace("registry", "elsewhere")), False),
                "deleting the table": (Request("dynamodb:DeleteTable", TABLE), False),
                "a scan": (Request("dynamodb:Scan", TABLE), False),
            },
        ),
        (
            "PrivateLogs",
            {
                "this account": (Request("logs:PutLogEvents", "*"), True),
                "another account's credentials": (Request("logs:PutLogEvents", "*", account="999922223333"), False),
                "another service": (Request("s3:PutObject", "*"), False),
            },
        ),
        (
            "PrivateExecuteApi",
            {
                "an API of this account": (Request("execute-api:Invoke", f"{API}/GET/tenants/acme"), True),
                "another account's API": (Request("execute-api:Invoke", f"{API}/GET/x".replace("1111", "9999")), False),
                "another account's credentials": (Request("execute-api:Invoke", f"{API}/GET/x", account="999922223333"), False),
            },
        ),
        (
            "PrivateSts",
            {
                "a session of this account": (Request("sts:AssumeRole", ONBOARDING), True),
                "a role of this account by web identity": (Request("sts:AssumeRoleWithWebIdentity", ONBOARDING, account=""), True),
                "another account's role by web identity": (
                    Request("sts:AssumeRoleWithWebIdentity", ONBOARDING.replace("1111", "9999"), account=""),
                    False,
                ),
                "another account's credentials": (Request("sts:AssumeRole", ONBOARDING, account="999922223333"), False),
            },
        ),
    ],
    ids=["runtime", "S3", "DynamoDB", "logs", "execute-api", "STS"],
)
def test_an_endpoint_policy_admits_the_platform_only(platform, values, endpoint, requests):
    policy = _policy(platform, values, "AWS::EC2::VPCEndpoint", endpoint)
    decided = decide(policy, [request for request, _ in requests.values()])
    assert dict(zip(requests, decided, strict=True)) == {name: expected for name, (_, expected) in requests.items()}
