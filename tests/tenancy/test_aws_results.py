"""Later answers in the bucket: what S3 says, and what it means."""

from __future__ import annotations

import boto3
import pytest
from botocore.stub import Stubber

from mme_tenancy.aws.results import S3Results
from mme_tenancy.errors import UnavailableError

RESULT = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def stubbed():
    client = boto3.client("s3", region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="y")
    with Stubber(client) as stub:
        yield S3Results(client, "store"), stub
        stub.assert_no_pending_responses()


def put(results):
    return results.put("acme", RESULT, "begun", b"{}")


def test_what_is_there_already_is_left_alone(stubbed):
    results, stub = stubbed
    stub.add_client_error("put_object", "PreconditionFailed", http_status_code=412)
    assert put(results) is False


def test_a_write_that_meets_another_is_sent_again(stubbed):
    results, stub = stubbed
    stub.add_client_error("put_object", "ConditionalRequestConflict", http_status_code=409)
    stub.add_response("put_object", {})
    assert put(results) is True


def test_a_write_that_keeps_meeting_others_is_no_write(stubbed):
    results, stub = stubbed
    for _ in range(3):
        stub.add_client_error("put_object", "ConditionalRequestConflict", http_status_code=409)
    with pytest.raises(UnavailableError):
        put(results)


@pytest.mark.parametrize("code", ["NoSuchKey", "AccessDenied"])
def test_what_is_not_there_is_nothing(stubbed, code):
    results, stub = stubbed
    stub.add_client_error("get_object", code)
    assert results.get("acme", RESULT, "") is None
