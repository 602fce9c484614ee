"""The isolation cases of `tests.constructs.test_isolation`, each as a real signed request of a real session against what really answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, suppress

import aws_cdk as cdk
import boto3
import httpx
import pytest
from aws_cdk import aws_iam as iam
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as SigningKeys
from botocore.exceptions import ClientError

from mme_constructs import ModelArtifactStore, ModelPool, MultiModelEndpoint, TenantAccess, TenantApi, TenantRegistry
from mme_local import LocalCloud, LocalSettings
from mme_local.dataplane import DataPlaneSettings
from mme_tenancy import TenantClient
from mme_tenancy.aws.attributes import to_item
from mme_tenancy.aws.items import item_of
from mme_tenancy.errors import UnavailableError
from mme_tenancy.routes import Model, Route
from mme_tenancy.tenants import Tenant
from tests.constructs.iam_evaluation import Request, resolved
from tests.constructs.test_isolation import ALLOWED, BUCKET, DENIED, OWN
from tests.local.conftest import Workbench, allow
from tests.local.scripted_endpoint import IMAGE, artifact

ECHO = "def handler(event, context):\n    return {'statusCode': 200, 'body': event['path']}\n"
WAITER = {"Delay": 1, "MaxAttempts": 120}
OWNERS = {"acme": "c-3f2a", "globex": "c-41b0", "acme-evil": "c-9e11", "ACME": "c-7d07", None: "c-none"}


@pytest.fixture(scope="module")
def bench() -> Iterator[Workbench]:
    """A cloud with simulated servers."""
    settings = LocalSettings(data_plane=DataPlaneSettings(servers={"*": "simulated"}))
    with LocalCloud(settings=settings) as cloud, closing(Workbench(cloud)) as workbench:
        yield workbench


@pytest.fixture(scope="module")
def bucket(bench):
    name, s3 = bench.bucket(), bench.client("s3")
    for key in (f"models/{OWN}", "models/acme/globex/v1-0123456789ab.tar.gz", "models/globex/x/v1-0123456789ab.tar.gz", "models/a.tar.gz"):
        s3.put_object(Bucket=name, Key=key, Body=artifact())
    return name


@pytest.fixture(scope="module")
def endpoints(bench, bucket):
    """An endpoint of models, one of components, and components of several owners."""
    sagemaker, role = (
        bench.client("sagemaker"),
        bench.service_role("sagemaker.amazonaws.com", allow(["s3:GetObject", "s3:ListBucket"], "*")),
    )
    containers = {
        "shared": {"Image": IMAGE, "Mode": "MultiModel", "ModelDataUrl": f"s3://{bucket}/models/"},
        "single": {"Image": IMAGE, "ModelDataUrl": f"s3://{bucket}/models/a.tar.gz"},
    }
    for name, container in containers.items():
        sagemaker.create_model(ModelName=name, ExecutionRoleArn=role, PrimaryContainer=container)
    variant = {"VariantName": "AllTraffic", "InstanceType": "ml.m5.xlarge", "InitialInstanceCount": 1}
    sagemaker.create_endpoint_config(EndpointConfigName="shared", ProductionVariants=[{**variant, "ModelName": "shared"}])
    sagemaker.create_endpoint_config(EndpointConfigName="dedicated", ExecutionRoleArn=role, ProductionVariants=[variant])
    for name, config in {"shared": "shared", "other": "shared", "dedicated": "dedicated"}.items():
        sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=config)
    for name in ("shared", "other", "dedicated"):
        sagemaker.get_waiter("endpoint_in_service").wait(EndpointName=name, WaiterConfig=WAITER)
    for owner, name in OWNERS.items():
        sagemaker.create_inference_component(
            InferenceComponentName=name,
            EndpointName="dedicated",
            VariantName="AllTraffic",
            Specification={"ModelName": "single", "ComputeResourceRequirements": {"MinMemoryRequiredInMb": 128}},
            RuntimeConfig={"CopyCount": 1},
            Tags=[{"Key": "tenant", "Value": owner}] if owner else [],
        )

    def serving():
        statuses = [
            sagemaker.describe_inference_component(InferenceComponentName=name)["InferenceComponentStatus"] for name in OWNERS.values()
        ]
        assert "Failed" not in statuses
        return set(statuses) == {"InService"}

    bench.wait_for(serving, seconds=120)


@pytest.fixture(scope="module")
def table(bench):
    """The registry's table with a record of each of three tenants."""
    name, dynamodb = bench.name("registry"), bench.client("dynamodb")
    keys = {"PK": "HASH", "SK": "RANGE"}
    dynamodb.create_table(
        TableName=name,
        KeySchema=[{"AttributeName": key, "KeyType": kind} for key, kind in keys.items()],
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in keys],
        BillingMode="PAY_PER_REQUEST",
    )
    for tenant in ("acme", "globex", "acme-evil"):
        dynamodb.put_item(TableName=name, Item={"PK": {"S": f"TENANT#{tenant}"}, "SK": {"S": "TENANT"}})
    return name


@pytest.fixture(scope="module")
def api(bench):
    return bench.rest_api(bench.function(ECHO))


@pytest.fixture(scope="module")
def session(bench, bucket, api, table, tmp_path_factory):
    """Opens sessions of the role that `TenantAccess` makes; `None` where none opens."""
    app = cdk.App(outdir=str(tmp_path_factory.mktemp("cdk.out")), analytics_reporting=False)
    stack = cdk.Stack(app, "Test", env=cdk.Environment(account=bench.cloud.account, region=bench.cloud.region))
    shared, dedicated = (
        MultiModelEndpoint.from_endpoint_attributes(stack, name.title(), endpoint_name=name) for name in ("shared", "dedicated")
    )
    store, registry = ModelArtifactStore(stack, "Store"), TenantRegistry(stack, "Registry")
    tenant_api = TenantApi(stack, "Api", store=store, registry=registry, pools=[ModelPool(framework="xgboost", endpoint=shared)])
    replaced = iam.ArnPrincipal(f"arn:aws:iam::{bench.cloud.account}:user/replaced")
    TenantAccess(
        stack,
        "Access",
        api=tenant_api,
        trusted=[replaced],
        registry=registry,
        store=store,
        endpoints=[shared],
        dedicated_endpoints=[dedicated],
    )
    resources = app.synth().stacks[0].template["Resources"]
    values = {"AWS::Partition": "aws", "AWS::Region": bench.cloud.region, "AWS::AccountId": bench.cloud.account}
    values |= {name: f"arn:aws:s3:::{bucket}" for name in resources if name.startswith("StoreBucket")}
    values |= {name: table_arn(bench, table) for name in resources if name.startswith("RegistryTable")}
    api_id = api.partition("://")[2].partition(".")[0]
    values |= {name: api_id for name, item in resources.items() if item["Type"] == "AWS::ApiGateway::RestApi"}
    (role,) = [item for name, item in resources.items() if item["Type"] == "AWS::IAM::Role" and name.startswith("Access")]
    (policy,) = [item for name, item in resources.items() if item["Type"] == "AWS::IAM::Policy" and name.startswith("Access")]
    broker = bench.user(allow(["sts:AssumeRole", "sts:TagSession"], "*"))
    broker_arn = bench.cloud.client("sts", broker).get_caller_identity()["Arn"]
    trust = role["Properties"]["AssumeRolePolicyDocument"]["Statement"]
    arn = bench.role(
        {"Statement": [statement | {"Principal": {"AWS": broker_arn}} for statement in trust]},
        *resolved(policy["Properties"]["PolicyDocument"]["Statement"], values),
    )
    opened = {}

    def open_for(tenant):
        if tenant not in opened:
            opened[tenant] = None
            with suppress(ClientError):
                opened[tenant] = bench.cloud.assume_role(arn, "tenant", tags={} if tenant is None else {"tenant": tenant}, source=broker)
        return opened[tenant]

    return open_for


def table_arn(bench, table):
    return f"arn:aws:dynamodb:{bench.cloud.region}:{bench.cloud.account}:table/{table}"


@pytest.fixture
def status(bench, bucket, api, endpoints, table, session):
    """HTTP status of a case, done for real; 403 as well when not even the session opens."""

    def perform(request: Request) -> int:
        keys = session(request.keys.get("aws:PrincipalTag/tenant"))
        if keys is None:
            return 403
        service, _, operation = request.action.partition(":")
        kind, _, name = request.resource.rpartition(":")[2].partition("/")
        if service == "sagemaker":
            return invoke(request, keys, operation, kind, name)
        if service == "dynamodb":
            return records(request, keys, operation)
        if service == "s3":
            key = request.resource.removeprefix(f"{BUCKET}/")
            method = {"PutObject": "PUT", "GetObject": "GET", "DeleteObject": "DELETE"}[operation]
            url = f"{bench.cloud.endpoint_url}/{bucket}/{key}"
            return bench.call(method, url, keys, body=b"archive" if method == "PUT" else b"", service="s3").status_code
        method, _, path = request.resource.partition("/v1/")[2].partition("/")
        return bench.call(method, f"{api}/{path}", keys).status_code

    def records(request, keys, operation):
        named = [{"PK": {"S": part}, "SK": {"S": "TENANT"}} for part in request.keys.get("dynamodb:LeadingKeys", ())]
        first = named[0] if named else {}
        sent = {
            "BatchGetItem": {"RequestItems": {table: {"Keys": named}}},
            "PutItem": {"TableName": table, "Item": first},
            "Query": {
                "TableName": table,
                "KeyConditionExpression": "PK = :pk",
                "ExpressionAttributeValues": {":pk": first.get("PK")},
            },
            "Scan": {"TableName": table},
        }.get(operation, {"TableName": table, "Key": first})
        headers = {"Content-Type": "application/x-amz-json-1.0", "X-Amz-Target": f"DynamoDB_20120810.{operation}"}
        answer = bench.call("POST", bench.cloud.endpoint_url, keys, body=json.dumps(sent).encode(), headers=headers, service="dynamodb")
        # DynamoDB refuses with 400.
        return 403 if "AccessDenied" in answer.text else answer.status_code

    def invoke(request, keys, operation, kind, name):
        target = request.keys.get("sagemaker:TargetModel")
        headers = {"Content-Type": "text/csv"} | ({} if target is None else {"X-Amzn-SageMaker-Target-Model": target})
        if kind == "inference-component":
            headers["X-Amzn-SageMaker-Inference-Component"] = OWNERS[request.keys.get("aws:ResourceTag/tenant")]
            name = "dedicated"
        path = "async-invocations" if operation == "InvokeEndpointAsync" else "invocations"
        url = f"{bench.cloud.endpoint_url}/endpoints/{name}/{path}"
        return bench.call("POST", url, keys, body=b"1,2", headers=headers, service="sagemaker").status_code

    return perform


NOT_SERVED = {"asynchronous invocation"}
"""Operations that the local cloud does not have: there is nobody to refuse them."""
WITHOUT_A_MODEL = {"the dedicated endpoint, for a component"}
"""Let through, and then refused as invalid: the case is a right on the endpoint, and a request to it has to name a component, too."""


@pytest.mark.parametrize("case", ALLOWED)
def test_a_tenants_session_gets_an_answer_from_what_is_its_own(status, case):
    assert status(ALLOWED[case]) == (400 if case in WITHOUT_A_MODEL else 200)


@pytest.mark.parametrize("case", sorted(set(DENIED) - NOT_SERVED))
def test_a_tenants_session_is_refused_everything_else(status, case):
    assert status(DENIED[case]) == 403


def test_sessions_open_for_tenants_and_for_nobody_else(session):
    assert all(session(tenant) for tenant in ("acme", "acme-evil", "versions"))
    assert session(None) is None


def test_what_is_refused_is_there(bench, endpoints):
    """Refusals mean something: to an administrator the same endpoints, models and components answer."""

    def answered(endpoint, **header):
        headers = {"Content-Type": "text/csv", **{f"X-Amzn-SageMaker-{name.replace('_', '-')}": value for name, value in header.items()}}
        url = f"{bench.cloud.endpoint_url}/endpoints/{endpoint}/invocations"
        return bench.call("POST", url, bench.cloud.admin, body=b"1,2", headers=headers, service="sagemaker").status_code

    assert answered("shared", Target_Model="globex/x/v1-0123456789ab.tar.gz") == 200
    assert answered("other", Target_Model=OWN) == 200
    assert answered("dedicated", Inference_Component=OWNERS["acme"]) == 200


def test_a_session_reaches_the_bytes_that_it_signed_and_no_others(bench, endpoints, session):
    """The target and the component are part of what is signed."""
    keys = session("acme")
    url = f"{bench.cloud.endpoint_url}/endpoints/shared/invocations"

    def send(change, **signed):
        request = AWSRequest("POST", url, data=b"1", headers={"X-Amzn-SageMaker-Target-Model": OWN, **signed})
        SigV4Auth(SigningKeys(keys.access_key_id, keys.secret_access_key, keys.session_token), "sagemaker", bench.cloud.region).add_auth(
            request
        )
        return httpx.post(url, headers=dict(request.headers) | change, content=b"1", timeout=60).status_code

    assert send({}) == 200
    assert send({"X-Amzn-SageMaker-Target-Model": "acme/globex/v1-0123456789ab.tar.gz"}) == 403
    assert send({"X-Amz-Security-Token": keys.session_token + "x"}) == 403


def test_a_client_reaches_the_component_that_its_route_names_and_no_other_tenants(bench, endpoints, table, session, monkeypatch):
    """A tenant's session over the library: its own component answers, and with a wrong route another tenant's is AccessDenied."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", bench.cloud.endpoint_url)
    now, version = "2026-11-30T06:00:00.000Z", "v1-0123456789ab"

    def put(record):
        bench.client("dynamodb").put_item(TableName=table, Item=to_item(item_of(record)))

    put(Tenant("acme", now, now))
    for model, component in (("own", OWNERS["acme"]), ("crossed", OWNERS["globex"]), ("gone", "c-gone")):
        route = Route("dedicated", "AllTraffic", version, f"acme/{model}/{version}.tar.gz", component=component)
        put(Model("acme", model, 1, now, now, route))
    keys, lines = session("acme"), []
    theirs = boto3.Session(keys.access_key_id, keys.secret_access_key, keys.session_token, region_name=bench.cloud.region)
    with TenantClient(table_name=table, session=theirs, log=lines.append) as client:
        whole = client.invoke("acme", "own", b"1,2", content_type="text/csv")
        assert whole.version == version
        for model in ("crossed", "gone"):
            with pytest.raises(UnavailableError):
                client.invoke("acme", model, b"1,2", content_type="text/csv")
        written = [json.loads(line) for line in lines]
        with client.stream("acme", "own", b"1,2", content_type="text/csv") as answer:
            assert b"".join(answer) == whole.body
        with pytest.raises(UnavailableError):
            client.stream("acme", "crossed", b"1,2", content_type="text/csv")
    assert [(line["placement"], line["component"]) for line in written] == [
        ("dedicated", component) for component in (OWNERS["acme"], OWNERS["globex"], "c-gone")
    ]
    assert ["AccessDenied" in line.get("fault", "") for line in written] == [False, True, True]
    admin = boto3.Session(bench.cloud.admin.access_key_id, bench.cloud.admin.secret_access_key, region_name=bench.cloud.region)
    with TenantClient(table_name=table, session=admin) as client:
        assert client.invoke("acme", "crossed", b"1,2", content_type="text/csv").version == version, "the refused component is there"
