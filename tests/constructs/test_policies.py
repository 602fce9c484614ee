"""Every IAM statement of the reference app, of the examples and of an app with every option: linted, and no wildcard without a reason."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import aws_cdk as cdk
import pytest
from aws_cdk import aws_iam as iam

from mme_constructs import (
    InferenceComponentEndpoint,
    ModelAdmission,
    ModelArtifactStore,
    ModelPool,
    MultiModelContainer,
    MultiModelEndpoint,
    PlatformAdmin,
    PrivateAccess,
    TenantAccess,
    TenantApi,
    TenantRegistry,
)
from mme_local.toolchain import node
from tests.constructs.policy_documents import PolicyDocument, documents, lint

pytestmark = pytest.mark.xdist_group("policies")  # the apps are synthesized once

EXAMPLES = sorted(path.parent for path in (Path(__file__).parents[2] / "examples").glob("*/app.py"))

WILDCARD_ACTIONS = {
    "cloudwatch:*": "a VPC endpoint's policy, which grants nothing: this account's principals only, within their own policies",
    "kms:*": "a key's own policy: administrators of the account, as CDK writes it for every key",
    "logs:*": "a VPC endpoint's policy, which grants nothing: this account's principals only, within their own policies",
    "sagemaker:*": "a VPC endpoint's policy, which grants nothing: this account's principals only, within their own policies",
}
"""Actions with a wildcard that may be allowed -> why."""

_PULLED = "a VPC endpoint's policy, which grants nothing: SageMaker's images lie in accounts of AWS that differ by region"
_ATTACHED = "Lambda checks it on every resource before it attaches a function; its interfaces have no name before"
_THE_KEY = "in a key's own policy the star is the key itself"
_DESCRIBED = "describing has no resource (Service Authorization Reference: Amazon EC2)"
WILDCARD_RESOURCES = {
    "cloudwatch:*": WILDCARD_ACTIONS["cloudwatch:*"],
    "cloudwatch:GetMetricData": "has no resource (Service Authorization Reference: Amazon CloudWatch)",
    "cloudwatch:PutMetricData": "has no resource; limited to SageMaker's namespaces by a condition",
    "ec2:AssignPrivateIpAddresses": _ATTACHED,
    "ec2:CreateNetworkInterface": _ATTACHED,
    "ec2:DeleteNetworkInterface": _ATTACHED,
    "ec2:DescribeDhcpOptions": _DESCRIBED,
    "ec2:DescribeNetworkInterfaces": _DESCRIBED,
    "ec2:DescribeSecurityGroups": _DESCRIBED,
    "ec2:DescribeSubnets": _DESCRIBED,
    "ec2:DescribeVpcs": _DESCRIBED,
    "ec2:UnassignPrivateIpAddresses": _ATTACHED,
    "ecr:BatchCheckLayerAvailability": _PULLED,
    "ecr:BatchGetImage": _PULLED,
    "ecr:GetAuthorizationToken": "has no resource (Service Authorization Reference: Amazon ECR)",
    "ecr:GetDownloadUrlForLayer": _PULLED,
    "kms:*": _THE_KEY,
    "kms:Decrypt": _THE_KEY,
    "kms:GenerateDataKey": _THE_KEY,
    "logs:*": WILDCARD_ACTIONS["logs:*"],
    "logs:GetQueryResults": "has no resource; the query was started on one log group (Service Authorization Reference: CloudWatch Logs)",
    "logs:StopQuery": "has no resource; the query was started on one log group (Service Authorization Reference: CloudWatch Logs)",
    "sagemaker:*": WILDCARD_ACTIONS["sagemaker:*"],
    "sts:GetCallerIdentity": "has no resource (Service Authorization Reference: AWS STS)",
}
"""Actions that may be allowed on the resource ``*`` -> why."""

WILDCARD_PATTERNS = {
    r"arn:aws:s3:::[^/*]+/([a-z]+/)?models/\*": "artifacts of every tenant and version",
    r"arn:aws:s3:::[^/*]+/([a-z]+/)?models/\*/\*/v\*-\*\.tar\.gz": "the artifact of a version that was rejected, to be deleted",
    r"arn:aws:s3:::[^/*]+/incoming/\*": "uploads of every tenant and version",
    r"arn:aws:s3:::[^/*]+/incoming/\$\{aws:PrincipalTag/tenant\}/\*": "one tenant's uploads; the literal part ends in a slash",
    r"arn:aws:s3:::[^/*]+/results/\$\{aws:PrincipalTag/tenant\}/\*": "one tenant's later answers; the literal part ends in a slash",
    r"arn:aws:s3:::[^/*]+/heat/\*": "windows of heat, named by pool and time",
    r"arn:aws:s3:::accesslogs[^/*]+/artifacts/\*": "S3 names the access logs that it writes",
    r"arn:aws:s3:::prod-eu-central-1-starport-layer-bucket/\*": "image layers, which ECR names and serves from this bucket",
    r"arn:aws:s3:::[^/*]+/\*": "a VPC endpoint's policy, which grants nothing: every object of the one bucket",
    r"arn:aws:dynamodb:[^*]+:table/[^/*]+/index/\*": "every index of the one table",
    r"arn:aws:logs:[^*]+:log-group:[^:*]+(:log-stream)?:\*": "streams of one log group",
    r"arn:aws:logs:[^*]+:log-group:/aws/sagemaker/InferenceComponents/[a-z0-9]+-\*(:log-stream:\*)?": (
        "log groups of one endpoint's components, whose names begin with the endpoint's digest"
    ),
    r"arn:aws:ec2:[^*]+:network-interface/\*": "interfaces have no name before; subnets, groups and a condition on the VPC bind them",
    r"arn:aws:execute-api:[^*]+/v1/\*/\*": "the platform administrator, every method and path of the one API",
    r"arn:aws:execute-api:[^*]+/v1/(GET|POST)/tenants/\$\{aws:PrincipalTag/tenant\}/\*": (
        "one tenant's paths; the literal part ends in a slash"
    ),
    r"arn:aws:execute-api:[^*]+/v1/DELETE/tenants/\$\{aws:PrincipalTag/tenant\}/models/\*": "one tenant's models, not the tenant",
    r"arn:aws:execute-api:eu-central-1:111122223333:\*": (
        "a VPC endpoint's policy, which grants nothing: naming the private API would be a circle, as it names the endpoint"
    ),
    r"arn:aws:sagemaker:[^*]+:inference-component/\*": "the component's resource tag decides, by a condition",
    r"arn:aws:iam::111122223333:role/\*": "a VPC endpoint's policy, which grants nothing: roles of this account",
    r"arn:aws:events:[^*]+:event-bus/\*": "a VPC endpoint's policy, which grants nothing: buses of this account",
}
"""Whole resources that may hold a wildcard -> why; the first that matches counts."""


def _flat(value):
    return value if isinstance(value, list) else [value]


def _everything(app):
    """Whatever the constructs can be asked to allow."""
    stack = cdk.Stack(app, "Everything", env=cdk.Environment(account="111122223333", region="eu-central-1"))
    store, registry = ModelArtifactStore(stack, "Store"), TenantRegistry(stack, "Registry")
    private = PrivateAccess(stack, "Private", store=store, registry=registry)
    shared = MultiModelEndpoint(stack, "Shared", store=store, container=MultiModelContainer.from_framework("xgboost", version="1.7-1"))
    dedicated = InferenceComponentEndpoint(stack, "Dedicated", store=store)
    private.allow_invoke(shared)
    private.allow_invoke(dedicated, components=True)
    pools = [ModelPool(framework="xgboost", endpoint=shared)]
    placed = private.function_settings()
    api = TenantApi(
        stack, "Api", store=store, registry=registry, pools=pools, private_endpoint=private.execute_api, invocation_settings=placed
    )
    ModelAdmission(stack, "Admission", store=store, registry=registry, pools=pools, settings=placed)
    store.restrict_to_vpc_endpoint(private.s3, allowed=[api.onboarding.role, shared.execution_role])
    admin = PlatformAdmin(stack, "Admin", api=api)
    access = TenantAccess(stack, "Access", api=api, trusted=[admin.role], store=store, endpoints=[shared], dedicated_endpoints=[dedicated])
    admin.allow_tenant_sessions(access)
    shared.grant_invoke_tenant(iam.Role(stack, "OneTenant", assumed_by=iam.ServicePrincipal("ecs-tasks.amazonaws.com")), "acme")


def _example(folder, outdir):
    """The templates of an example, synthesized as a program of its own."""
    context = json.loads((folder / "cdk.json").read_text("utf-8")).get("context", {})
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CDK_")}
    environment |= {"CDK_OUTDIR": str(outdir), "CDK_CONTEXT_JSON": json.dumps(context), "JSII_NODE": str(node())}
    environment["CDK_VALIDATION"] = "false"  # test_reference_app.py runs it
    environment |= {"CDK_DEFAULT_ACCOUNT": "111122223333", "CDK_DEFAULT_REGION": "eu-central-1"}
    done = subprocess.run([sys.executable, "app.py"], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {path.name.partition(".")[0]: json.loads(path.read_text("utf-8")) for path in outdir.glob("*.template.json")}


@pytest.fixture(scope="module")
def policies(reference, synthesize, tmp_path_factory):
    """The policies of all apps."""
    apps = [reference.templates, synthesize(_everything).templates]
    apps += [_example(folder, tmp_path_factory.mktemp(folder.name)) for folder in EXAMPLES]
    found = [policy for templates in apps for policy in documents(templates)]
    assert len(found) > 50
    assert len(EXAMPLES) == 5
    return found


@pytest.fixture(scope="module")
def allowing(policies):
    """Name of the policy, whether it is one of identities, statement; those that allow, without trust policies."""
    return [
        (policy.name, statement)
        for policy in policies
        if not policy.is_trust
        for statement in policy.statements
        if statement["Effect"] == "Allow"
    ]


def test_the_linter_finds_nothing_but_resources_that_have_a_reason_to_be_a_star(policies):
    """The agreed level: no finding at all, but ``RESOURCE_STAR`` (the lowest severity), whose reasons stand above."""
    assert [finding for finding in lint(policies) if finding[1:3] != ("LOW", "RESOURCE_STAR")] == []


@pytest.mark.parametrize(
    ("statement", "issue"),
    [
        ({"Action": "sagemaker:InvokeEndpiont", "Resource": "*"}, "UNKNOWN_ACTION"),
        ({"Action": "s3:GetObject", "Resource": "arn:aws:s3:::bucket"}, "RESOURCE_MISMATCH"),
        (
            {"Action": "s3:GetObject", "Resource": "arn:aws:s3:::b/*", "Condition": {"StringLike": {"s3:prefix": ["x"]}}},
            "UNKNOWN_CONDITION_FOR_ACTION",
        ),
        (
            {"Action": "s3:GetObject", "Resource": "arn:aws:s3:::b/*", "Condition": {"StringAlike": {"aws:userid": ["x"]}}},
            "UNKNOWN_OPERATOR",
        ),
    ],
)
def test_the_linter_does_find_what_is_wrong(statement, issue):
    wrong = PolicyDocument("Wrong", "AWS::IAM::Policy", "PolicyDocument", ({"Effect": "Allow", **statement},))
    assert issue in {found for _, _, found, _ in lint([wrong])}


def test_only_actions_with_a_reason_hold_a_wildcard(allowing):
    used = {action for _, statement in allowing for action in _flat(statement["Action"]) if "*" in action}
    assert used == set(WILDCARD_ACTIONS)


def test_no_statement_says_what_it_does_not_allow(policies):
    assert not [policy.name for policy in policies for statement in policy.statements if {"NotAction", "NotResource"} & set(statement)]


def test_only_actions_with_a_reason_stand_on_every_resource(allowing):
    used = {action for _, statement in allowing if "*" in _flat(statement["Resource"]) for action in _flat(statement["Action"])}
    assert used == set(WILDCARD_RESOURCES)


def test_actions_that_have_resources_stand_on_every_resource_in_policies_of_endpoints_and_keys_only(policies):
    for policy in policies:
        if policy.of_identity:
            for statement in policy.statements:
                if "*" in _flat(statement["Resource"]):
                    bound_elsewhere = {
                        "ecr:BatchGetImage",
                        "cloudwatch:*",
                        "logs:*",
                        "sagemaker:*",
                        "kms:*",
                        "kms:Decrypt",
                        "kms:GenerateDataKey",
                    }
                    assert not bound_elsewhere & set(_flat(statement["Action"])), policy.name


def test_metrics_may_be_written_to_sagemakers_namespaces_only(allowing):
    writing = [statement for _, statement in allowing if "cloudwatch:PutMetricData" in _flat(statement["Action"])]
    assert writing
    for statement in writing:
        namespaces = set(_flat(statement["Condition"]["StringEquals"]["cloudwatch:namespace"]))
        assert namespaces <= {"/aws/sagemaker/Endpoints", "/aws/sagemaker/InferenceComponents", "AWS/SageMaker"}


def test_every_other_wildcard_ends_a_resource_with_a_reason(allowing):
    used = set()
    for name, statement in allowing:
        for resource in _flat(statement["Resource"]):
            if resource != "*" and "*" in resource:
                matching = [pattern for pattern in WILDCARD_PATTERNS if re.fullmatch(pattern, resource)]
                assert matching, f"{name}: no reason for {resource}"
                used.add(matching[0])
    assert used == set(WILDCARD_PATTERNS)


def test_what_holds_every_object_of_a_bucket_is_an_endpoints_policy(policies):
    """The loosest of the patterns above is for VPC endpoints: no identity gets a whole bucket."""
    for policy in policies:
        for statement in policy.statements:
            if policy.of_identity and statement["Effect"] == "Allow":
                for resource in _flat(statement["Resource"]):
                    assert not re.fullmatch(r"arn:aws:s3:::[^/]+/\*", resource), policy.name


def test_no_role_is_assumable_by_everybody(policies):
    trusts = [policy for policy in policies if policy.is_trust]
    assert trusts
    for policy in trusts:
        for statement in policy.statements:
            assert statement["Principal"] not in ("*", {"AWS": "*"}), policy.name


def test_everybody_is_named_only_to_refuse_or_to_bound(policies):
    for policy in policies:
        for statement in policy.statements:
            if statement.get("Principal") in ("*", {"AWS": "*"}) and policy.resource_type != "AWS::EC2::VPCEndpoint":
                assert statement["Effect"] == "Deny", policy.name


def test_functions_write_no_log_group_but_their_own(reference):
    groups = set(reference.resources("AWS::Logs::LogGroup"))
    for name, policy in reference.resources("AWS::IAM::Policy").items():
        logs = [
            statement
            for statement in policy["Properties"]["PolicyDocument"]["Statement"]
            if "logs:PutLogEvents" in _flat(statement["Action"])
        ]
        if "ExecutionRole" not in name:
            for statement in logs:
                assert statement["Action"] == ["logs:CreateLogStream", "logs:PutLogEvents"]
                assert statement["Resource"]["Fn::GetAtt"][0] in groups


def test_only_one_managed_policy_is_used(reference):
    managed = [json.dumps(role["Properties"].get("ManagedPolicyArns", [])) for role in reference.resources("AWS::IAM::Role").values()]
    assert [text for text in managed if text != "[]"] == [
        text for text in managed if "service-role/AmazonAPIGatewayPushToCloudWatchLogs" in text
    ]
    assert sum(text != "[]" for text in managed) == 1
