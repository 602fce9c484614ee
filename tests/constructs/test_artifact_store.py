from __future__ import annotations

import json

import aws_cdk as cdk
import pytest
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3

from mme_constructs import ConfigurationError, ModelArtifactStore
from mme_constructs.errors import BucketError, PrefixError, TenantError


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
    ("grant", "actions"),
    [
        ("grant_uploads", ["s3:AbortMultipartUpload", "s3:ListMultipartUploadParts", "s3:PutObject"]),
        ("grant_read_incoming", "s3:GetObject"),
    ],
)
def test_uploads_are_listed_below_incoming_only_and_read_by_who_inspects_them(synthesize_stack, grant, actions):
    reach, listing = _statements(synthesize_stack(_with_grant(grant)))
    assert reach["Action"] == actions
    assert json.dumps(reach["Resource"]).endswith('"/incoming/*"]]}')
    assert listing["Action"] == "s3:ListBucket"
    assert listing["Condition"] == {"StringLike": {"s3:prefix": ["incoming/*"]}}
    assert "Fn::GetAtt" in listing["Resource"]


@pytest.mark.parametrize(
    ("grant", "allowed"),
    [
        ("grant_read_models", {"kms:Decrypt"}),
        ("grant_put_incoming", {"kms:Decrypt", "kms:GenerateDataKey"}),
        ("grant_prefetch", {"kms:Decrypt", "kms:GenerateDataKey"}),
        ("grant_uploads", {"kms:Decrypt", "kms:GenerateDataKey"}),
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


@pytest.mark.parametrize("prefix", ["incoming/", "incoming/models/", "results/x/", "heat/", "prefetch/"])
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


class TestGivenBucket:
    def test_is_used_and_nothing_of_it_is_changed(self, synthesize_stack):
        def build(stack):
            bucket = s3.Bucket.from_bucket_name(stack, "Existing", "existing")
            store = ModelArtifactStore(stack, "Store", bucket=bucket, models_prefix="ml/models/")
            store.grant_put_models(iam.Role(stack, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com")))
            cdk.CfnOutput(stack, "Url", value=store.model_data_url)

        synthesized = synthesize_stack(build)
        assert not synthesized.resources("AWS::S3::Bucket")
        assert not synthesized.resources("AWS::S3::BucketPolicy")
        (statement,) = _statements(synthesized)
        assert json.dumps(statement["Resource"]).endswith('":s3:::existing/ml/models/*"]]}')
        assert synthesized.templates["Test"]["Outputs"]["Url"]["Value"] == "s3://existing/ml/models/"

    def test_one_of_this_app_keeps_its_own_definition(self, synthesize_stack):
        def build(stack, given):
            bucket = s3.Bucket(stack, "Existing", versioned=True)
            if given:
                ModelArtifactStore(stack, "Store", bucket=bucket)

        alone, given = (synthesize_stack(lambda stack, given=given: build(stack, given)) for given in (False, True))
        assert given.templates["Test"]["Resources"] == alone.templates["Test"]["Resources"]

    def test_brings_its_key(self, synthesize_stack):
        def build(stack):
            key = kms.Key(stack, "Key")
            bucket = s3.Bucket.from_bucket_attributes(stack, "Existing", bucket_name="existing", encryption_key=key)
            store = ModelArtifactStore(stack, "Store", bucket=bucket)
            store.grant_read_models(iam.Role(stack, "Role", assumed_by=iam.ServicePrincipal("sagemaker.amazonaws.com")))

        assert "kms:Decrypt" in [statement["Action"] for statement in _statements(synthesize_stack(build))]

    @pytest.mark.parametrize("setting", ["access_logs_bucket", "removal_policy"])
    def test_rejects_settings_that_it_keeps_for_itself(self, stack, setting):
        bucket = s3.Bucket.from_bucket_name(stack, "Existing", "existing")
        value = {"access_logs_bucket": bucket, "removal_policy": cdk.RemovalPolicy.RETAIN}[setting]
        with pytest.raises(BucketError, match=f"keeps its settings: got '{setting}'"):
            ModelArtifactStore(stack, "Store", bucket=bucket, **{setting: value})

    def test_rejects_a_restriction_that_would_not_reach_it(self, stack):
        bucket = s3.Bucket.from_bucket_name(stack, "Existing", "existing")
        with pytest.raises(BucketError, match="The policy of a given bucket is not changed"):
            ModelArtifactStore(stack, "Store", bucket=bucket).restrict_to_vpc_endpoint("vpce-1")


def test_a_restriction_leaves_the_administration_of_the_bucket_alone(synthesize_stack):
    def build(stack):
        ModelArtifactStore(stack, "Store").restrict_to_vpc_endpoint("vpce-1")

    statements = synthesize_stack(build).only("AWS::S3::BucketPolicy")["Properties"]["PolicyDocument"]["Statement"]
    (statement,) = [item for item in statements if item.get("Sid") == "ObjectsOnlyThroughTheVpcEndpoint"]
    assert statement["Effect"] == "Deny"
    assert statement["Condition"] == {"StringNotEquals": {"aws:SourceVpce": "vpce-1"}}
    assert not [action for action in statement["Action"] if "Policy" in action or "Configuration" in action or "*" in action]


def test_rejects_a_restriction_that_excepts_everybody(stack):
    with pytest.raises(BucketError, match=r"cannot except this role: got '\*'"):
        ModelArtifactStore(stack, "Store").restrict_to_vpc_endpoint("vpce-1", allowed=["*"])


@pytest.mark.parametrize(("tenant", "folder"), [("acme", "acme"), ("${aws:PrincipalTag/tenant}", "${aws:PrincipalTag/tenant}")])
def test_a_tenants_grant_reaches_its_own_uploads(synthesize_stack, tenant, folder):
    def build(stack):
        role = iam.Role(stack, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        ModelArtifactStore(stack, "Store").grant_put_incoming(role, tenant=tenant)

    (statement,) = _statements(synthesize_stack(build))
    assert statement["Action"] == "s3:PutObject"
    assert json.dumps(statement["Resource"]).endswith(f'"/incoming/{folder}/*"]]}}')


@pytest.mark.parametrize("tenant", ["", "*", "acme*", "Acme", "acme/", "acme/x", "../acme"])
def test_rejects_uploads_of_a_tenant_outside_the_grammar(stack, tenant):
    role = iam.Role(stack, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
    with pytest.raises(TenantError, match="The tenant cannot be granted"):
        ModelArtifactStore(stack, "Store").grant_put_incoming(role, tenant=tenant)
