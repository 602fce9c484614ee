"""What the invocation function itself may invoke (nothing), and what its session for a tenant may (that tenant's models)."""

from __future__ import annotations

import json

import aws_cdk as cdk
import pytest

from mme_constructs import ModelArtifactStore, ModelPool, MultiModelEndpoint, TenantApi, TenantRegistry
from mme_facts import environment as variables
from tests.constructs.iam_evaluation import Request, decide, resolved

ACCOUNT = "arn:aws:sagemaker:eu-central-1:111122223333"
SHARED, DEDICATED, OTHER = f"{ACCOUNT}:endpoint/shared", f"{ACCOUNT}:endpoint/dedicated", f"{ACCOUNT}:endpoint/other"
COMPONENT = f"{ACCOUNT}:inference-component/c-3f2a"
ROLE = "arn:aws:iam::111122223333:role/Isolation"
OWN = "acme/x/v1-0123456789ab.tar.gz"


def _synthesize(synthesize, **options):
    def build(app):
        stack = cdk.Stack(app, "Test", env=cdk.Environment(account="111122223333", region="eu-central-1"))
        shared = MultiModelEndpoint.from_endpoint_attributes(stack, "Shared", endpoint_name="shared")
        TenantApi(
            stack,
            "Api",
            store=ModelArtifactStore(stack, "Store"),
            registry=TenantRegistry(stack, "Registry"),
            pools=[ModelPool(framework="xgboost", endpoint=shared)],
            dedicated_endpoints=[MultiModelEndpoint.from_endpoint_attributes(stack, "Dedicated", endpoint_name="dedicated")],
            **options,
        )

    return synthesize(build)


@pytest.fixture(scope="module")
def platform(synthesize):
    return _synthesize(synthesize)


def _policies(platform, prefix):
    given = {"AWS::Partition": "aws", "AWS::Region": "eu-central-1", "AWS::AccountId": "111122223333"}
    roles = {name: f"arn:aws:iam::111122223333:role/{name}" for name in platform.resources("AWS::IAM::Role")}
    roles |= {name: ROLE for name in roles if name.startswith("ApiIsolation")}
    tables = dict.fromkeys(platform.resources("AWS::DynamoDB::Table"), "arn:aws:dynamodb:eu-central-1:111122223333:table/registry")
    buckets = dict.fromkeys(platform.resources("AWS::S3::Bucket"), "arn:aws:s3:::store")
    logs = dict.fromkeys(platform.resources("AWS::Logs::LogGroup"), "arn:aws:logs:eu-central-1:111122223333:log-group:x")
    found = [item["Properties"] for name, item in platform.resources("AWS::IAM::Policy").items() if name.startswith(prefix)]
    return [resolved(item["PolicyDocument"], given | roles | tables | buckets | logs) for item in found]


def _invoke(target_model=None, endpoint=SHARED, tenant="acme", **keys):
    session = {} if tenant is None else {"aws:PrincipalTag/tenant": tenant}
    target = {} if target_model is None else {"sagemaker:TargetModel": target_model}
    return Request("sagemaker:InvokeEndpoint", endpoint, session | target | {key.replace("__", ":"): value for key, value in keys.items()})


def _component(owner, tenant="acme"):
    return Request("sagemaker:InvokeEndpoint", COMPONENT, {"aws:PrincipalTag/tenant": tenant, "aws:ResourceTag/tenant": owner})


def test_a_session_reaches_its_tenants_models_and_components(platform):
    (policy,) = _policies(platform, "ApiIsolation")
    assert decide(policy, [_invoke(OWN), _component("acme"), _invoke(endpoint=DEDICATED)]) == [True] * 3


def test_a_session_reaches_nothing_else(platform):
    (policy,) = _policies(platform, "ApiIsolation")
    denied = [
        _invoke("acme-evil/x/v1-0123456789ab.tar.gz"),
        _invoke("globex/x/v1-0123456789ab.tar.gz"),
        _invoke(OWN, tenant="acme-evil"),
        _invoke(OWN, tenant=None),
        _invoke(),
        _invoke(OWN, endpoint=OTHER),
        _invoke(OWN, endpoint=DEDICATED),
        _component("globex"),
        _component("acme", tenant="acme-evil"),
        Request("dynamodb:GetItem", "arn:aws:dynamodb:eu-central-1:111122223333:table/registry", {"aws:PrincipalTag/tenant": "acme"}),
    ]
    assert decide(policy, denied) == [False] * len(denied)


def test_a_session_streams_from_its_tenants_components_and_from_nothing_else(platform):
    (policy,) = _policies(platform, "ApiIsolation")

    def streaming(request):
        return Request("sagemaker:InvokeEndpointWithResponseStream", request.resource, request.keys)

    assert decide(policy, [streaming(_component("acme")), streaming(_invoke(endpoint=DEDICATED))]) == [True] * 2
    denied = [_component("globex"), _component("acme", tenant="acme-evil"), _invoke(OWN), _invoke(), _invoke(OWN, endpoint=DEDICATED)]
    assert decide(policy, [streaming(request) for request in denied]) == [False] * len(denied)


def test_the_function_itself_may_not_invoke_and_opens_tagged_sessions_only(platform):
    (policy,) = _policies(platform, "ApiInvocation")
    requests = [_invoke(OWN, tenant=None), _invoke(OWN), Request("sts:AssumeRole", ROLE, {})]
    assert decide(policy, requests) == [False] * 3
    tagged = {"aws:RequestTag/tenant": "acme"}
    assert decide(policy, [Request("sts:AssumeRole", ROLE, tagged), Request("sts:AssumeRole", f"{ROLE}-other", tagged)]) == [True, False]


def test_only_the_function_is_trusted_and_it_must_tag_with_the_tenant_alone(platform):
    (role,) = [item for name, item in platform.resources("AWS::IAM::Role").items() if name.startswith("ApiIsolation")]
    (statement,) = role["Properties"]["AssumeRolePolicyDocument"]["Statement"]
    ((name, attribute),) = (statement["Principal"]["AWS"]["Fn::GetAtt"],)
    assert (name.startswith("ApiInvocationRole"), attribute) == (True, "Arn")
    assert set(statement["Action"]) == {"sts:AssumeRole", "sts:TagSession"}
    assert statement["Condition"] == {
        "StringLike": {"aws:RequestTag/tenant": "?*"},
        "ForAllValues:StringEquals": {"aws:TagKeys": ["tenant"]},
    }


def test_without_isolation_the_function_invokes_with_its_own_rights(synthesize):
    platform = _synthesize(synthesize, isolation=False)
    (policy,) = _policies(platform, "ApiInvocation")
    assert decide(policy, [_invoke("globex/x/v1-0123456789ab.tar.gz", tenant=None)]) == [True]
    assert not [name for name in platform.resources("AWS::IAM::Role") if name.startswith("ApiIsolation")]
    for function in platform.resources("AWS::Lambda::Function").values():
        assert variables.TENANT_ROLE_ARN not in function["Properties"]["Environment"]["Variables"]


def _objects(platform, prefix):
    (policy,) = _policies(platform, prefix)
    return [statement for statement in policy["Statement"] if "s3:PutObject" in statement["Action"]]


def test_a_session_keeps_answers_below_its_tenants_part_only_and_the_function_keeps_none(platform):
    (statement,) = _objects(platform, "ApiIsolation")
    assert set(statement["Action"]) == {"s3:GetObject", "s3:PutObject"}
    assert json.dumps(statement["Resource"]).count("/results/${aws:PrincipalTag/tenant}/*") == 1
    assert _objects(platform, "ApiInvocation") == []


@pytest.mark.parametrize(
    ("action", "key", "allowed"),
    [
        ("s3:PutObject", "results/acme/0123.request", True),
        ("s3:GetObject", "results/acme/0123", True),
        ("s3:GetObject", "results/globex/0123", False),
        ("s3:PutObject", "results/globex/0123", False),
        ("s3:GetObject", "results/acme-evil/0123", False),
        ("s3:DeleteObject", "results/acme/0123", False),
        ("s3:GetObject", f"models/{OWN}", False),
    ],
)
def test_a_session_reaches_its_own_tenants_later_answers_and_no_others(platform, action, key, allowed):
    (policy,) = _policies(platform, "ApiIsolation")
    assert decide(policy, [Request(action, f"arn:aws:s3:::store/{key}", {"aws:PrincipalTag/tenant": "acme"})]) == [allowed]


def test_the_function_may_send_events_to_itself_and_to_no_other_function(platform):
    ((_, policy),) = [item for item in platform.resources("AWS::IAM::Policy").items() if item[0].startswith("ApiInvokeItself")]
    (statement,) = policy["Properties"]["PolicyDocument"]["Statement"]
    (name,) = [name for name in platform.resources("AWS::Lambda::Function") if name.startswith("ApiInvocation")]
    assert (statement["Action"], statement["Resource"]) == ("lambda:InvokeFunction", {"Fn::GetAtt": [name, "Arn"]})
    (events,) = platform.resources("AWS::Lambda::EventInvokeConfig").values()
    assert (events["Properties"]["MaximumRetryAttempts"], events["Properties"]["MaximumEventAgeInSeconds"]) == (1, 300)


def test_without_isolation_the_function_keeps_the_answers_itself(synthesize):
    (statement,) = _objects(_synthesize(synthesize, isolation=False), "ApiInvocation")
    assert json.dumps(statement["Resource"]).count("/results/*") == 1
