from __future__ import annotations

import aws_cdk as cdk
import pytest

from mme_constructs import FunctionSettings, ModelAdmission, ModelArtifactStore, ModelPool, MultiModelEndpoint, TenantRegistry
from mme_constructs.errors import FunctionError
from mme_facts import environment as variables
from mme_facts.admission import ARTIFACT_BYTES, admissible_bytes


def _admission(stack, **props):
    endpoint = MultiModelEndpoint.from_endpoint_attributes(stack, "There", endpoint_name="shared")
    return ModelAdmission(
        stack,
        "Admission",
        store=ModelArtifactStore(stack, "Store"),
        registry=TenantRegistry(stack, "Registry"),
        pools=[ModelPool(framework="xgboost", endpoint=endpoint)],
        **props,
    )


@pytest.fixture(scope="module")
def admission(synthesize):
    return synthesize(lambda app: _admission(cdk.Stack(app, "Test", env=cdk.Environment(account="111122223333", region="eu-central-1"))))


def test_uploads_below_incoming_of_this_bucket_call_the_function(admission):
    rule = admission.only("AWS::Events::Rule")["Properties"]
    (bucket,) = admission.resources("AWS::S3::Bucket")
    assert rule["EventPattern"] == {
        "source": ["aws.s3", "mme.sweep"],
        "detail-type": ["Object Created", "Upload Resumed"],
        "detail": {"bucket": {"name": [{"Ref": bucket}]}, "object": {"key": [{"prefix": "incoming/"}]}},
    }
    (function,) = admission.resources("AWS::Lambda::Function")
    assert rule["Targets"][0]["Arn"] == {"Fn::GetAtt": [function, "Arn"]}


def test_events_that_fail_for_good_wait_in_an_encrypted_queue(admission):
    (queue,) = admission.resources("AWS::SQS::Queue")
    arn = {"Fn::GetAtt": [queue, "Arn"]}
    assert admission.only("AWS::Events::Rule")["Properties"]["Targets"][0]["DeadLetterConfig"] == {"Arn": arn}
    assert admission.only("AWS::Lambda::Function")["Properties"]["DeadLetterConfig"] == {"TargetArn": arn}
    properties = admission.only("AWS::SQS::Queue")["Properties"]
    assert (properties["SqsManagedSseEnabled"], properties["MessageRetentionPeriod"]) == (True, 14 * 24 * 3600)


def test_the_function_has_one_vcpu_and_lambdas_longest_time(admission):
    properties = admission.only("AWS::Lambda::Function")["Properties"]
    assert (properties["MemorySize"], properties["Timeout"]) == (1769, 900)
    assert properties["Handler"] == "mme_tenancy.handlers.admission.handler"
    assert properties["Environment"]["Variables"][variables.MAX_ARTIFACT_BYTES] == str(ARTIFACT_BYTES)


def test_its_role_reads_uploads_writes_models_and_invokes_the_pools(admission):
    statements = admission.only("AWS::IAM::Policy")["Properties"]["PolicyDocument"]["Statement"]
    allowed = {
        action: statement["Resource"]
        for statement in statements
        for action in ([statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"])
    }
    assert {action.partition(":")[0] for action in allowed} == {"dynamodb", "logs", "s3", "sagemaker", "sqs"}
    assert {action for action in allowed if action.startswith("s3:")} == {
        "s3:GetObject",
        "s3:PutObject",
        "s3:AbortMultipartUpload",
        "s3:DeleteObject",
        "s3:ListBucket",
    }
    (deletes,) = (statement for statement in statements if statement["Action"] == "s3:DeleteObject")
    assert str(deletes["Resource"]).endswith("/models/*/*/v*-*.tar.gz']]}")
    (lists,) = (statement for statement in statements if statement["Action"] == "s3:ListBucket")
    assert lists["Condition"] == {"StringLike": {"s3:prefix": ["incoming/*"]}}
    assert allowed["sagemaker:InvokeEndpoint"] == "arn:aws:sagemaker:eu-central-1:111122223333:endpoint/shared"
    assert "dynamodb:DeleteItem" not in allowed


def test_size_and_settings_can_be_changed(synthesize_stack):
    synthesized = synthesize_stack(lambda stack: _admission(stack, max_artifact_bytes=5, settings=FunctionSettings(reserved_concurrency=3)))
    properties = synthesized.only("AWS::Lambda::Function")["Properties"]
    assert properties["ReservedConcurrentExecutions"] == 3
    assert properties["Environment"]["Variables"][variables.MAX_ARTIFACT_BYTES] == "5"


def test_the_greatest_artifact_follows_from_the_functions_size_and_time(synthesize_stack):
    synthesized = synthesize_stack(lambda stack: _admission(stack, settings=FunctionSettings(memory_mb=885, timeout_seconds=600)))
    properties = synthesized.only("AWS::Lambda::Function")["Properties"]
    derived = admissible_bytes(memory_mb=885, timeout_seconds=600)
    assert properties["Environment"]["Variables"][variables.MAX_ARTIFACT_BYTES] == str(derived)
    assert derived < ARTIFACT_BYTES


@pytest.mark.parametrize("wanted", [0, ARTIFACT_BYTES + 1])
def test_an_artifact_that_the_function_could_not_inspect_in_its_time_cannot_be_allowed(synthesize_stack, wanted):
    with pytest.raises(FunctionError, match="max_artifact_bytes"):
        synthesize_stack(lambda stack: _admission(stack, max_artifact_bytes=wanted))
