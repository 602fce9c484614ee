"""Questions about stacks and tokens that are answered without CDK's process."""

from __future__ import annotations

import aws_cdk as cdk
import pytest
from aws_cdk import aws_s3 as s3
from constructs import Construct

from mme_constructs.stack_of import is_token, minutes, share_stack, stack_of


def test_a_construct_is_in_the_stack_that_cdk_says(stack):
    inner = Construct(Construct(stack, "Outer"), "Inner")
    assert stack_of(inner) is cdk.Stack.of(inner)
    assert stack_of(inner) is stack_of(inner)
    assert stack_of(stack) is stack


def test_a_nested_stack_is_its_own(stack):
    nested = cdk.NestedStack(stack, "Nested")
    assert stack_of(Construct(nested, "Inner"), within=nested) is nested


def test_what_is_shared_is_not_asked_again(stack, monkeypatch):
    bucket = s3.Bucket(stack, "Bucket")
    share_stack(stack, bucket)
    monkeypatch.setattr(cdk.Stack, "of", lambda _construct: pytest.fail("asked"))
    assert stack_of(bucket) is stack


@pytest.mark.parametrize("text", ["", "models/", "${aws:PrincipalTag/tenant}", "Token[TOKEN.1]", "arn:aws:s3:::bucket"])
def test_literals_are_no_tokens(text):
    assert not is_token(text)
    assert not cdk.Token.is_unresolved(text)


def test_tokens_are_found_as_cdk_finds_them(stack):
    for text in (stack.region, s3.Bucket(stack, "Bucket").bucket_name, f"arn:aws:s3:::{stack.account}/x", cdk.Fn.ref("Elsewhere")):
        assert is_token(text) == cdk.Token.is_unresolved(text) is True


def test_equal_lengths_are_one_object():
    assert minutes(7) is minutes(7)
    assert minutes(7).to_minutes() == 7
