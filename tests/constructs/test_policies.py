"""Every IAM statement of the reference stacks: no wildcard without a reason."""

from __future__ import annotations

import json

import pytest

WILDCARD_RESOURCES = {
    "ecr:GetAuthorizationToken": "has no resource (Service Authorization Reference: Amazon ECR)",
    "cloudwatch:PutMetricData": "has no resource; limited to SageMaker's namespaces by a condition",
}
"""Actions that may stand on the resource ``*`` -> why."""

WILDCARD_TAILS = {
    "/models/*": "artifacts of every tenant and version",
    "/incoming/*": "uploads of every tenant and version",
    ":log-stream:*": "streams of one endpoint's log group",
    "/v1/*/*": "the platform administrator, every method and path of the one API",
    "/tenants/${aws:PrincipalTag/tenant}/*": "one tenant's paths; the literal part ends in a slash",
}
"""Literal ends of resources that may hold a wildcard -> why."""


def _flat(value):
    return value if isinstance(value, list) else [value]


def _end(resource):
    text = resource if isinstance(resource, str) else json.dumps(resource)
    if isinstance(resource, dict) and "Fn::Join" in resource:
        text = resource["Fn::Join"][1][-1]
    return text if isinstance(text, str) else json.dumps(text)


@pytest.fixture(scope="module")
def statements(reference):
    found = [
        (name, statement)
        for resource_type in ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy")
        for name, resource in reference.resources(resource_type).items()
        for statement in resource["Properties"]["PolicyDocument"]["Statement"]
    ]
    assert len(found) > 10
    return [(name, statement) for name, statement in found if statement["Effect"] == "Allow"]


def test_no_action_holds_a_wildcard(statements):
    assert [(name, action) for name, statement in statements for action in _flat(statement["Action"]) if "*" in action] == []


def test_no_statement_says_what_it_does_not_allow(statements):
    assert not [name for name, statement in statements if {"NotAction", "NotResource"} & set(statement)]


def test_only_actions_without_resources_stand_on_every_resource(statements):
    actions = {action for _, statement in statements if "*" in _flat(statement["Resource"]) for action in _flat(statement["Action"])}
    assert actions == set(WILDCARD_RESOURCES)


def test_metrics_may_be_written_to_sagemakers_namespaces_only(statements):
    (statement,) = [item for _, item in statements if "cloudwatch:PutMetricData" in _flat(item["Action"])]
    assert set(statement["Condition"]["StringEquals"]["cloudwatch:namespace"]) == {"/aws/sagemaker/Endpoints", "AWS/SageMaker"}


def test_every_other_wildcard_ends_a_known_prefix(statements):
    used = set()
    for name, statement in statements:
        for resource in _flat(statement["Resource"]):
            end = _end(resource)
            if resource == "*" or "*" not in json.dumps(resource):
                continue
            (tail,) = [tail for tail in WILDCARD_TAILS if end.endswith(tail)] or pytest.fail(f"{name}: no reason for {resource}")
            used.add(tail)
    assert used == set(WILDCARD_TAILS)


def test_no_role_is_assumable_by_everybody(reference):
    for name, role in reference.resources("AWS::IAM::Role").items():
        for statement in role["Properties"]["AssumeRolePolicyDocument"]["Statement"]:
            assert statement["Principal"] not in ("*", {"AWS": "*"}), name


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
