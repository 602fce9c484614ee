"""The bucket of the models' artifacts."""

from __future__ import annotations

from collections.abc import Sequence

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

from mme_constructs.acknowledge import acknowledge, acknowledge_grant
from mme_constructs.errors import PrefixError
from mme_facts import grammar

__all__ = ["ModelArtifactStore"]

_EXPIRING = (grammar.INCOMING_PREFIX, grammar.RESULTS_PREFIX)
_RESERVED = (*_EXPIRING, grammar.HEAT_PREFIX)


class ModelArtifactStore(Construct):
    """The bucket that multi-model endpoints load from and tenants upload to.

    Public access is blocked, only TLS is answered, ACLs are off, objects are encrypted. Uploads (``incoming/``) and asynchronous answers
    (``results/``) expire after a day, and so do the parts of uploads that were never completed. The bucket tells EventBridge about its
    objects, set on the bucket itself: CDK's own switch would deploy a custom resource.

    Versioning is off by design. An artifact's key holds its digest and is written once, so there is never an older version to go back to;
    instances keep serving the copy they have whatever the bucket's history says, and old versions of uploads would be kept and billed.

    Args:
        scope: the parent.
        id: the id below the parent.
        models_prefix: the prefix of the artifacts, folders that each end in ``/``. Default ``models/``.
        encryption_key: KMS key of the objects. Default: S3-managed encryption; a request to KMS for every cold load is saved.
        access_logs_bucket: where S3 writes its server access logs, below ``artifacts/``. Default: none are written.
        removal_policy: what happens to the bucket with the stack. Default: it stays.

    Raises:
        PrefixError: the prefix does not end in ``/``, looks like an artifact, or lies where objects expire.

    Source of the prefix rule: Amazon SageMaker AI, Create a Multi-Model Endpoint; S3DataSource requires the slash in words.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002 - CDK's name for it
        *,
        models_prefix: str = grammar.MODELS_PREFIX,
        encryption_key: kms.IKey | None = None,
        access_logs_bucket: s3.IBucket | None = None,
        removal_policy: cdk.RemovalPolicy = cdk.RemovalPolicy.RETAIN,
    ) -> None:
        super().__init__(scope, id)
        self.models_prefix = _check_models_prefix(models_prefix)
        """The prefix of the artifacts, ending in ``/``."""
        self._key = encryption_key
        bucket = s3.Bucket(
            self,
            "Bucket",
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            encryption=s3.BucketEncryption.S3_MANAGED if encryption_key is None else s3.BucketEncryption.KMS,
            encryption_key=encryption_key,
            bucket_key_enabled=None if encryption_key is None else True,
            enforce_ssl=True,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            versioned=False,
            removal_policy=removal_policy,
            server_access_logs_bucket=access_logs_bucket,
            server_access_logs_prefix=None if access_logs_bucket is None else "artifacts/",
            lifecycle_rules=[
                s3.LifecycleRule(id="AbortIncompleteUploads", abort_incomplete_multipart_upload_after=cdk.Duration.days(1)),
                *(
                    s3.LifecycleRule(id=f"Expire-{prefix.removesuffix('/')}", prefix=prefix, expiration=cdk.Duration.days(1))
                    for prefix in _EXPIRING
                ),
            ],
        )
        cfn_bucket = bucket.node.default_child
        assert isinstance(cfn_bucket, s3.CfnBucket)
        cfn_bucket.notification_configuration = s3.CfnBucket.NotificationConfigurationProperty(
            event_bridge_configuration=s3.CfnBucket.EventBridgeConfigurationProperty(event_bridge_enabled=True)
        )
        acknowledge(
            bucket,
            {"NIST.800.53.R5-S3BucketVersioningEnabled": "Artifacts are immutable: the key holds the digest and is written once."},
        )
        self.bucket: s3.IBucket = bucket
        """The bucket."""

    @property
    def model_data_url(self) -> str:
        """The ``ModelDataUrl`` of a multi-model endpoint over all artifacts; ends in ``/``."""
        return f"s3://{self.bucket.bucket_name}/{self.models_prefix}"

    def grant_read_models(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let ``grantee`` get every tenant's artifact and list the keys below the prefix, nothing else of the bucket."""
        self._grant(grantee, ["s3:GetObject"], self.models_prefix, "reads artifacts of every tenant and version below the prefix")
        if self._key is not None:
            self._key.grant_decrypt(grantee)
        return iam.Grant.add_to_principal(
            grantee=grantee,
            actions=["s3:ListBucket"],
            resource_arns=[self.bucket.bucket_arn],
            conditions={"StringLike": {"s3:prefix": [f"{self.models_prefix}*"]}},
        )

    def grant_put_models(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let ``grantee`` write artifacts of every tenant, by multipart upload too, and read back what a conditional write met."""
        return self._grant_put(
            grantee,
            ["s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload"],
            self.models_prefix,
            "stores artifacts of every tenant and version below the prefix",
        )

    def grant_put_incoming(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let ``grantee`` upload below ``incoming/``, or sign such uploads."""
        return self._grant_put(
            grantee, ["s3:PutObject"], grammar.INCOMING_PREFIX, "signs uploads of every tenant and version below the prefix"
        )

    def grant_read_incoming(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let ``grantee`` get uploads."""
        if self._key is not None:
            self._key.grant_decrypt(grantee)
        return self._grant(
            grantee, ["s3:GetObject"], grammar.INCOMING_PREFIX, "inspects uploads of every tenant and version below the prefix"
        )

    def _grant_put(self, grantee: iam.IGrantable, actions: Sequence[str], prefix: str, why: str) -> iam.Grant:
        if self._key is not None:
            self._key.grant(grantee, "kms:Decrypt", "kms:GenerateDataKey")
        return self._grant(grantee, actions, prefix, why)

    def _grant(self, grantee: iam.IGrantable, actions: Sequence[str], prefix: str, why: str) -> iam.Grant:
        acknowledge_grant(grantee, {f"/{prefix}*": f"The grantee {why}; keys are not known when the stack is deployed."})
        return iam.Grant.add_to_principal(grantee=grantee, actions=actions, resource_arns=[self.bucket.arn_for_objects(f"{prefix}*")])


def _check_models_prefix(prefix: str) -> str:
    if cdk.Token.is_unresolved(prefix):
        raise PrefixError(
            "The models prefix is not known at synthesis",
            value="a token",
            allowed="literal text",
            fix="Pass the prefix itself, such as 'models/'",
        )
    try:
        grammar.check_prefix(prefix)
    except grammar.GrammarError as error:
        raise PrefixError(
            "The models prefix is not one that SageMaker can join with TargetModel",
            value=prefix,
            allowed=error.allowed,
            fix="Use a folder such as 'models/'",
        ) from error
    for reserved in _RESERVED:
        if prefix.startswith(reserved):
            raise PrefixError(
                f"The models prefix lies in {reserved!r}, which has another use",
                value=prefix,
                allowed=f"any folder outside {', '.join(_RESERVED)}",
                fix="Use a folder of its own, such as 'models/'",
            )
    return prefix
