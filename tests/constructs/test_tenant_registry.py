from __future__ import annotations

import aws_cdk as cdk
import pytest
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms

from mme_constructs import TenantRegistry


def _table(synthesized):
    return synthesized.only("AWS::DynamoDB::Table")


def test_the_table_is_on_demand_recoverable_and_expires_items(synthesize_stack):
    properties = _table(synthesize_stack(lambda stack: TenantRegistry(stack, "Registry")))["Properties"]
    assert properties["KeySchema"] == [{"AttributeName": "PK", "KeyType": "HASH"}, {"AttributeName": "SK", "KeyType": "RANGE"}]
    assert properties["BillingMode"] == "PAY_PER_REQUEST"
    assert properties["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
    assert properties["TimeToLiveSpecification"] == {"AttributeName": "expires_at", "Enabled": True}


def test_two_sparse_indexes_replace_scans(synthesize_stack):
    indexes = _table(synthesize_stack(lambda stack: TenantRegistry(stack, "Registry")))["Properties"]["GlobalSecondaryIndexes"]
    keys = {index["IndexName"]: [key["AttributeName"] for key in index["KeySchema"]] for index in indexes}
    assert keys == {"moving": ["moving", "updated_at"], "dedicated": ["dedicated", "PK"]}
    assert {index["Projection"]["ProjectionType"] for index in indexes} == {"KEYS_ONLY"}


def test_by_default_the_table_cannot_be_deleted(synthesize_stack):
    table = _table(synthesize_stack(lambda stack: TenantRegistry(stack, "Registry")))
    assert table["Properties"]["DeletionProtectionEnabled"] is True
    assert (table["DeletionPolicy"], table["UpdateReplacePolicy"]) == ("Retain", "Retain")


def test_told_so_it_goes_with_the_stack(synthesize_stack):
    table = _table(
        synthesize_stack(
            lambda stack: TenantRegistry(stack, "Registry", deletion_protection=False, removal_policy=cdk.RemovalPolicy.DESTROY)
        )
    )
    assert table["Properties"]["DeletionProtectionEnabled"] is False
    assert table["DeletionPolicy"] == "Delete"


@pytest.mark.parametrize(
    ("grant", "actions"),
    [
        ("grant_admit", {"GetItem", "BatchGetItem", "PutItem", "UpdateItem", "Query"}),
        ("grant_onboard", {"GetItem", "BatchGetItem", "PutItem", "UpdateItem", "DeleteItem", "Query", "ConditionCheckItem"}),
    ],
)
def test_a_grant_names_its_actions_and_the_table_alone(synthesize_stack, grant, actions):
    def build(stack):
        role = iam.Role(stack, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        getattr(TenantRegistry(stack, "Registry"), grant)(role)

    synthesized = synthesize_stack(build)
    (statement,) = synthesized.only("AWS::IAM::Policy")["Properties"]["PolicyDocument"]["Statement"]
    actual = [statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"]
    assert {action.removeprefix("dynamodb:") for action in actual} == actions
    (table,) = synthesized.resources("AWS::DynamoDB::Table")
    assert statement["Resource"] == {"Fn::GetAtt": [table, "Arn"]}


def test_who_reads_routes_lists_the_counters_of_changes_and_no_tenants_records(synthesize_stack):
    def build(stack):
        TenantRegistry(stack, "Registry").grant_read_routes(
            iam.Role(stack, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        )

    statements = synthesize_stack(build).only("AWS::IAM::Policy")["Properties"]["PolicyDocument"]["Statement"]
    (query,) = [statement for statement in statements if statement["Action"] == "dynamodb:Query"]
    assert query["Condition"] == {"ForAllValues:StringEquals": {"dynamodb:LeadingKeys": ["CHANGES"]}}
    assert [sorted(s["Action"]) for s in statements if s is not query] == [["dynamodb:BatchGetItem", "dynamodb:GetItem"]]


def test_with_a_key_the_table_is_encrypted_and_a_grant_reaches_the_key(synthesize_stack):
    def build(stack):
        registry = TenantRegistry(stack, "Registry", encryption_key=kms.Key(stack, "Key"))
        registry.grant_read_routes(iam.Role(stack, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com")))

    synthesized = synthesize_stack(build)
    assert _table(synthesized)["Properties"]["SSESpecification"]["SSEType"] == "KMS"
    statements = synthesized.only("AWS::IAM::Policy")["Properties"]["PolicyDocument"]["Statement"]
    assert any("kms:Decrypt" in statement["Action"] for statement in statements)
