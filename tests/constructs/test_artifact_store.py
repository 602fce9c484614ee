from __future__ import annotations

import json

import aws_cdk as cdk
import pytest
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3

from mme_constructs import ConfigurationError, ModelArtifactStore
from mme_constructs.errors import PrefixError


def _bucket(synthesized):
    return synthesized.only("AWS::S3::Bucket")


def _statements(synthesized):
    return synthesized.only("AWS::IAM::Policy")["Properties"]["PolicyDocument"]["Statement"]


def _with_grant(grant, **props):
    def build(stack):
        store = ModelArtifactStore(stack, "Store", **props)
        role = iam.Role(stack, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        getattr(store, grant)(role)

    return build


def test_the_bucket_is_private_encrypted_unversioned_and_tells_eventbridge(synthesize_stack):
    properties = _bucket(synthesize_stack(lambda stack: ModelArtifactStore(stack, "Store")))["Properties"]
    assert properties["PublicAccessBlockConfiguration"] == dict.fromkeys(
        ("BlockPublicAcls", "BlockPublicPolicy", "IgnorePublicAcls", "RestrictPublicBuckets"), True
    )
    assert properties["BucketEncryption"]["ServerSideEncryptionConfiguration"] == [
        {"ServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}
    ]
    assert properties["OwnershipControls"] == {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]}
    assert properties["NotificationConfiguration"] == {"EventBridgeConfiguration": {"EventBridgeEnabled": True}}
    assert "VersioningConfiguration" not in properties
    assert "BucketName" not in properties


def test_uploads_answers_and_incomplete_uploads_go_after_a_day_and_models_stay(synthesize_stack):
    rules = _bucket(synthesize_stack(lambda stack: ModelArtifactStore(stack, "Store")))["Properties"]["LifecycleConfiguration"]["Rules"]
    assert {rule.get("Prefix"): rule.get("ExpirationInDays") for rule in rules} == {None: None, "incoming/": 1, "results/": 1}
    assert [rule["AbortIncompleteMultipartUpload"] for rule in rules if "Prefix" not in rule] == [{"DaysAfterInitiation": 1}]
    assert all(rule["Status"] == "Enabled" for rule in rules)


def test_plain_http_is_denied(synthesize_stack):
    policy = synthesize_stack(lambda stack: ModelArtifactStore(stack, "Store")).only("AWS::S3::BucketPolicy")
    (statement,) = policy["Properties"]["PolicyDocument"]["Statement"]
    assert (statement["Effect"], statement["Action"], statement["Condition"]) == (
        "Deny",
        "s3:*",
        {"Bool": {"aws:SecureTransport": "false"}},
    )


@pytest.mark.parametrize(
    ("policy", "expected"), [(None, "Retain"), (cdk.RemovalPolicy.DESTROY, "Delete")], ids=["by default it stays", "destroyed when told so"]
)
def test_the_removal_policy_decides_what_happens_to_the_bucket(synthesize_stack, policy, expected):
    props = {} if policy is None else {"removal_policy": policy}
    assert _bucket(synthesize_stack(lambda stack: ModelArtifactStore(stack, "Store", **props)))["DeletionPolicy"] == expected


def test_no_custom_resource_and_no_function_come_with_it(synthesize_stack):
    synthesized = synthesize_stack(lambda stack: ModelArtifactStore(stack, "Store"))
    types = {resource["Type"] for resource in synthesized.templates["Test"]["Resources"].values()}
    assert types == {"AWS::S3::Bucket", "AWS::S3::BucketPolicy"}


def test_access_logs_go_where_they_are_told(synthesize_stack):
    def build(stack):
        ModelArtifactStore(stack, "Store", access_logs_bucket=s3.Bucket.from_bucket_name(stack, "Logs", "logs-bucket"))

    logging = _bucket(synthesize_stack(build))["Properties"]["LoggingConfiguration"]
    assert logging == {"DestinationBucketName": "logs-bucket", "LogFilePrefix": "artifacts/"}


@pytest.mark.parametrize(
    ("grant", "actions", "prefix"),
    [
        ("grant_put_models", ["s3:AbortMultipartUpload", "s3:GetObject", "s3:PutObject"], "models/"),
        ("grant_put_incoming", "s3:PutObject", "incoming/"),
        ("grant_read_incoming", "s3:GetObject", "incoming/"),
    ],
)
def test_a_grant_reaches_one_prefix_with_the_actions_it_names(synthesize_stack, grant, actions, prefix):
    (statement,) = _statements(synthesize_stack(_with_grant(grant)))
    assert statement["Action"] == actions
    assert json.dumps(statement["Resource"]).endswith(f'"/{prefix}*"]]}}')


def test_reading_models_lists_only_below_the_prefix(synthesize_stack):
    read, listing = _statements(synthesize_stack(_with_grant("grant_read_models", models_prefix="shared/models/")))
    assert read["Action"] == "s3:GetObject"
    assert json.dumps(read["Resource"]).endswith('"/shared/models/*"]]}')
    assert listing["Action"] == "s3:ListBucket"
    assert listing["Condition"] == {"StringLike": {"s3:prefix": ["shared/models/*"]}}
    assert "Fn::GetAtt" in listing["Resource"]


@pytest.mark.parametrize(
    ("grant", "allowed"),
    [
        ("grant_read_models", {"kms:Decrypt"}),
        ("grant_put_incoming", {"kms:Decrypt", "kms:GenerateDataKey"}),
    ],
)
def test_with_a_key_a_grant_reaches_the_key_too(synthesize_stack, grant, allowed):
    def build(stack):
        store = ModelArtifactStore(stack, "Store", encryption_key=kms.Key(stack, "Key"))
        getattr(store, grant)(iam.Role(stack, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com")))

    synthesized = synthesize_stack(build)
    encryption = _bucket(synthesized)["Properties"]["BucketEncryption"]["ServerSideEncryptionConfiguration"][0]
    assert encryption["ServerSideEncryptionByDefault"]["SSEAlgorithm"] == "aws:kms"
    assert encryption["BucketKeyEnabled"] is True
    actions = [statement["Action"] for statement in _statements(synthesized)]
    flat = {action for item in actions for action in (item if isinstance(item, list) else [item])}
    assert {action for action in flat if action.startswith("kms:")} == allowed


def test_the_model_data_url_is_the_prefix_with_its_slash(synthesize_stack):
    def build(stack):
        cdk.CfnOutput(stack, "Url", value=ModelArtifactStore(stack, "Store").model_data_url)

    parts = synthesize_stack(build).templates["Test"]["Outputs"]["Url"]["Value"]["Fn::Join"][1]
    assert (parts[0], parts[-1]) == ("s3://", "/models/")


@pytest.mark.parametrize("prefix", ["models", "/models/", "", "models/a.tar.gz", "models/a.tar.gz/", "mo dels/"])
def test_rejects_a_prefix_that_sagemaker_cannot_join(stack, prefix):
    with pytest.raises(PrefixError) as caught:
        ModelArtifactStore(stack, "Store", models_prefix=prefix)
    assert repr(prefix) in str(caught.value)
    assert "each end in '/'" in str(caught.value)
    assert "Use a folder such as 'models/'." in str(caught.value)


@pytest.mark.parametrize("prefix", ["incoming/", "incoming/models/", "results/x/", "heat/"])
def test_rejects_a_prefix_with_another_use(stack, prefix):
    with pytest.raises(PrefixError, match="has another use"):
        ModelArtifactStore(stack, "Store", models_prefix=prefix)


def test_rejects_a_prefix_that_is_a_token(stack):
    with pytest.raises(PrefixError, match="not known at synthesis"):
        ModelArtifactStore(stack, "Store", models_prefix=cdk.CfnParameter(stack, "Prefix").value_as_string)


def test_our_errors_are_value_errors_of_one_tree():
    assert issubclass(PrefixError, ConfigurationError)
    assert issubclass(ConfigurationError, ValueError)
    assert PrefixError.code == "prefix"
