"""Guard rails of the artifacts' bucket and prefix."""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3

from mme_constructs import ModelArtifactStore
from mme_constructs.errors import BucketError, PrefixError
from tests.constructs.guard_rails.rail import GuardRail


def _prefix_without_slash(stack: cdk.Stack) -> None:
    ModelArtifactStore(stack, "Store", models_prefix="models")


def _prefix_with_slash(stack: cdk.Stack) -> None:
    ModelArtifactStore(stack, "Store", models_prefix="models/")


def _archive_as_prefix(stack: cdk.Stack) -> None:
    ModelArtifactStore(stack, "Store", models_prefix="models/churn.tar.gz")


def _folder_as_prefix(stack: cdk.Stack) -> None:
    ModelArtifactStore(stack, "Store", models_prefix="models/churn/")


def _prefix_where_objects_expire(stack: cdk.Stack) -> None:
    ModelArtifactStore(stack, "Store", models_prefix="incoming/models/")


def _prefix_of_its_own(stack: cdk.Stack) -> None:
    ModelArtifactStore(stack, "Store", models_prefix="shared/models/")


def _settings_of_a_given_bucket(stack: cdk.Stack) -> None:
    bucket = s3.Bucket.from_bucket_name(stack, "Existing", "existing-artifacts")
    ModelArtifactStore(stack, "Store", bucket=bucket, removal_policy=cdk.RemovalPolicy.DESTROY)


def _given_bucket_as_it_is(stack: cdk.Stack) -> None:
    bucket = s3.Bucket.from_bucket_name(stack, "Existing", "existing-artifacts")
    ModelArtifactStore(stack, "Store", bucket=bucket)


def _restricting_a_given_bucket(stack: cdk.Stack) -> None:
    bucket = s3.Bucket.from_bucket_name(stack, "Existing", "existing-artifacts")
    ModelArtifactStore(stack, "Store", bucket=bucket).restrict_to_vpc_endpoint("vpce-0123456789abcdef0")


def _restricting_its_own_bucket(stack: cdk.Stack) -> None:
    signer = iam.Role(stack, "Signer", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
    ModelArtifactStore(stack, "Store").restrict_to_vpc_endpoint("vpce-0123456789abcdef0", allowed=[signer])


def _restriction_that_excepts_everybody(stack: cdk.Stack) -> None:
    ModelArtifactStore(stack, "Store").restrict_to_vpc_endpoint("vpce-0123456789abcdef0", allowed=["*"])


def _restriction_that_excepts_one_role(stack: cdk.Stack) -> None:
    signer = "arn:aws:iam::123456789012:role/MmeTenancy-ApiOnboarding*"
    ModelArtifactStore(stack, "Store").restrict_to_vpc_endpoint("vpce-0123456789abcdef0", allowed=[signer])


RAILS = (
    GuardRail(
        "Models prefix without its slash",
        "SageMaker joins prefix and TargetModel as they stand, so `models` and `acme/...` would become `modelsacme/...` (Amazon SageMaker "
        "AI, Create a Multi-Model Endpoint).",
        _prefix_without_slash,
        _prefix_with_slash,
        PrefixError,
    ),
    GuardRail(
        "An archive as the models prefix",
        "A multi-model endpoint takes the prefix of many archives, not one archive (Amazon SageMaker AI, Create a Multi-Model Endpoint).",
        _archive_as_prefix,
        _folder_as_prefix,
        PrefixError,
    ),
    GuardRail(
        "Models where objects expire",
        "Uploads expire after a day, and models below `incoming/` would go with them.",
        _prefix_where_objects_expire,
        _prefix_of_its_own,
        PrefixError,
    ),
    GuardRail(
        "Settings for a bucket that is given",
        "CDK cannot change a bucket that it did not define: the setting would be dropped without a word.",
        _settings_of_a_given_bucket,
        _given_bucket_as_it_is,
        BucketError,
    ),
    GuardRail(
        "Restricting a bucket that is given to a VPC endpoint",
        "A policy for an imported bucket is dropped without a word, and the bucket would stay open (AWS CDK, IBucket.addToResourcePolicy).",
        _restricting_a_given_bucket,
        _restricting_its_own_bucket,
        BucketError,
    ),
    GuardRail(
        "A restriction to a VPC endpoint that excepts everybody",
        "With `*` among the excepted roles the statement would never refuse anybody.",
        _restriction_that_excepts_everybody,
        _restriction_that_excepts_one_role,
        BucketError,
    ),
)
