"""The policies that `TenantAccess` generates, attached to a real role of the local cloud and tried with signed requests."""

from __future__ import annotations

import aws_cdk as cdk
import pytest
from aws_cdk import aws_iam as iam
from botocore.exceptions import ClientError

from mme_constructs import ModelArtifactStore, ModelPool, MultiModelEndpoint, TenantAccess, TenantApi, TenantRegistry
from tests.constructs.iam_evaluation import resolved

OWN = "acme/x/v1-0123456789ab.tar.gz"


@pytest.fixture(scope="module")
def synthesized(tmp_path_factory):
    """The template of a tenants' role with every way opened."""
    app = cdk.App(outdir=str(tmp_path_factory.mktemp("cdk.out")), analytics_reporting=False)
    stack = cdk.Stack(app, "Test", env=cdk.Environment(account="000000000000", region="us-east-1"))
    shared = MultiModelEndpoint.from_endpoint_attributes(stack, "Shared", endpoint_name="shared")
    store = ModelArtifactStore(stack, "Store")
    registry = TenantRegistry(stack, "Registry")
    api = TenantApi(stack, "Api", store=store, registry=registry, pools=[ModelPool(framework="xgboost", endpoint=shared)])
    broker = iam.ArnPrincipal("arn:aws:iam::000000000000:user/replaced-by-the-test")
    TenantAccess(stack, "Access", api=api, trusted=[broker], store=store, endpoints=[shared], dedicated_endpoints=[shared])
    return app.synth().stacks[0].template["Resources"]


@pytest.fixture
def bucket(bench):
    return bench.bucket()


@pytest.fixture
def session(bench, synthesized, bucket):
    """Opens a tenant's session with the generated trust and permissions."""
    values = {"AWS::Partition": "aws", "AWS::Region": "us-east-1", "AWS::AccountId": "000000000000"}
    values |= {name: f"arn:aws:s3:::{bucket}" for name in synthesized if name.startswith("StoreBucket")}
    values |= {name: "abcde12345" for name, item in synthesized.items() if item["Type"] == "AWS::ApiGateway::RestApi"}
    broker = bench.user({"Effect": "Allow", "Action": ["sts:AssumeRole", "sts:TagSession"], "Resource": "*"})
    broker_arn = bench.cloud.client("sts", broker).get_caller_identity()["Arn"]
    (role,) = [item for name, item in synthesized.items() if item["Type"] == "AWS::IAM::Role" and name.startswith("Access")]
    (policy,) = [item for name, item in synthesized.items() if item["Type"] == "AWS::IAM::Policy" and name.startswith("Access")]
    trust = role["Properties"]["AssumeRolePolicyDocument"]
    trust = {"Statement": [statement | {"Principal": {"AWS": broker_arn}} for statement in trust["Statement"]]}
    arn = bench.role(trust, *resolved(policy["Properties"]["PolicyDocument"]["Statement"], values))
    return lambda tags: bench.cloud.assume_role(arn, "tenant", tags=tags, source=broker)


def _code(call):
    with pytest.raises(ClientError) as caught:
        call()
    return caught.value.response["Error"]["Code"]


def test_a_session_uploads_below_its_own_folder_only(bench, session, bucket):
    s3 = bench.client("s3", session({"tenant": "acme"}))
    s3.put_object(Bucket=bucket, Key=f"incoming/{OWN}", Body=b"archive")
    for key in (
        "incoming/globex/x/v1.tar.gz",
        "incoming/acme-evil/x/v1.tar.gz",
        "incoming/Acme/x/v1.tar.gz",
        f"models/{OWN}",
        "incoming/acme",
    ):
        assert _code(lambda key=key: s3.put_object(Bucket=bucket, Key=key, Body=b"archive")) == "AccessDenied"
    assert _code(lambda: s3.get_object(Bucket=bucket, Key=f"incoming/{OWN}")) == "AccessDenied"


def test_a_session_invokes_its_own_models_only(bench, session):
    runtime = bench.client("sagemaker-runtime", session({"tenant": "acme"}))

    def invoke(endpoint="shared", **target):
        return _code(lambda: runtime.invoke_endpoint(EndpointName=endpoint, Body=b"1", **target))

    assert invoke(TargetModel=OWN) == "ValidationError", "let through to an endpoint that is not there"
    for foreign in ("acme-evil/x/v1.tar.gz", "Acme/x/v1.tar.gz", "acme", "../acme/x/v1.tar.gz", "globex/x/v1.tar.gz"):
        assert invoke(TargetModel=foreign) == "AccessDeniedException", foreign
    assert invoke(endpoint="other", TargetModel=OWN) == "AccessDeniedException"
    assert invoke(InferenceComponentName="c-without-an-owner") == "AccessDeniedException"


@pytest.mark.parametrize("tags", [{}, {"team": "acme"}, {"tenant": "acme", "team": "x"}], ids=str)
def test_a_session_opens_with_the_tenants_tag_and_no_other(session, tags):
    assert _code(lambda: session(tags)) == "AccessDenied"
