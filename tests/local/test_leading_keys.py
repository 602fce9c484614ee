"""Which partitions a request names, as ``dynamodb:LeadingKeys`` has it."""

from __future__ import annotations

import json

import pytest

from mme_local.emulator_leading_keys import leading_keys

KEYS = {("t", None): "PK", ("t", "moving"): "moving"}
UNKNOWN = "\0"


def key(value, kind="S"):
    return {"PK": {kind: value}, "SK": {"S": "x"}}


@pytest.mark.parametrize(
    ("request_", "named"),
    [
        ({"TableName": "t", "Key": key("a")}, ["a"]),
        ({"TableName": "t", "Item": key("7", "N")}, ["7"]),
        ({"RequestItems": {"t": {"Keys": [key("a"), key("b"), key("a")]}}}, ["a", "b"]),
        ({"RequestItems": {"t": [{"PutRequest": {"Item": key("a")}}, {"DeleteRequest": {"Key": key("b")}}]}}, ["a", "b"]),
        ({"TransactItems": [{"Put": {"TableName": "t", "Item": key("a")}}, {"Update": {"TableName": "t", "Key": key("b")}}]}, ["a", "b"]),
        ({"TransactItems": [{"ConditionCheck": {"TableName": "t", "Key": key("a")}}]}, ["a"]),
        (
            {
                "TableName": "t",
                "KeyConditionExpression": "#p=:p AND begins_with(SK, :s)",
                "ExpressionAttributeNames": {"#p": "PK"},
                "ExpressionAttributeValues": {":p": {"S": "a"}, ":s": {"S": "b"}},
            },
            ["a"],
        ),
        (
            {
                "TableName": "t",
                "IndexName": "moving",
                "KeyConditionExpression": "(PK = :b) AND (moving = :a)",
                "ExpressionAttributeValues": {":a": {"S": "a"}, ":b": {"S": "b"}},
            },
            ["a"],
        ),
        ({"TableName": "t", "KeyConditions": {"PK": {"ComparisonOperator": "EQ", "AttributeValueList": [{"S": "a"}]}}}, ["a"]),
        ({"TableName": "t"}, []),
        ({}, []),
    ],
)
def test_a_request_names_its_partitions(request_, named):
    assert leading_keys(json.dumps(request_).encode(), lambda table, index: KEYS.get((table, index))) == named


@pytest.mark.parametrize(
    "request_",
    [
        {"TableName": "other", "Key": key("a")},
        {"TableName": "t", "Key": {"SK": {"S": "a"}}},
        {"TableName": "t", "Key": "a"},
        {"TableName": "t", "Key": {"PK": {"S": "a", "N": "1"}}},
        {"TableName": "t", "IndexName": "other", "KeyConditionExpression": "PK = :a", "ExpressionAttributeValues": {":a": {"S": "a"}}},
        {"TableName": "t", "KeyConditionExpression": "SK = :a", "ExpressionAttributeValues": {":a": {"S": "a"}}},
        {"TableName": "t", "KeyConditions": {"PK": {"ComparisonOperator": "GT", "AttributeValueList": [{"S": "a"}]}}},
    ],
)
def test_a_partition_that_cannot_be_told_is_nobodys(request_):
    """A request without any value would meet a condition on all of them."""
    assert leading_keys(json.dumps(request_).encode(), lambda table, index: KEYS.get((table, index))) == [UNKNOWN]


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b"null"])
def test_what_is_no_request_names_nothing(body):
    assert leading_keys(body, lambda *_: "PK") == []
