"""The bucket of the models' artifacts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

from mme_constructs.acknowledge import acknowledge, acknowledge_grant
from mme_constructs.errors import BucketError, PrefixError, TenantError
from mme_constructs.stack_of import is_token
from mme_facts import grammar

if TYPE_CHECKING:
    from aws_cdk import aws_ec2 as ec2

__all__ = ["ModelArtifactStore"]

_EXPIRING = (grammar.INCOMING_PREFIX, grammar.RESULTS_PREFIX)
_RESERVED = (*_EXPIRING, grammar.HEAT_PREFIX, grammar.PREFETCH_PREFIX)
_OBJECT_ACTIONS = (
    "s3:AbortMultipartUpload",
    "s3:DeleteObject",
    "s3:DeleteObjectVersion",
    "s3:GetObject",
    "s3:GetObjectVersion",
    "s3:ListBucket",
    "s3:ListBucketVersions",
    "s3:ListMultipartUploadParts",
    "s3:PutObject",
)
"""What reads, writes or lists objects. The bucket's administration is left alone: a mistake must stay correctable."""


class ModelArtifactStore(Construct):
    """The bucket that multi-model endpoints load from and tenants upload to.

    Public access is blocked, only TLS is answered, ACLs are off, objects are encrypted. Uploads (``incoming/``) and asynchronous answers
    (``results/``) expire after a day, and so do the parts of uploads that were never completed. The bucket tells EventBridge about its
    objects, set on the bucket itself: CDK's own switch would deploy a custom resource.

    Versioning is off by design. An artifact's key holds its digest and is written once, so there is never an older version to go back to;
    instances keep serving the copy they have whatever the bucket's history says, and old versions of uploads would be kept and billed.

    A bucket that is given is used as it is; nothing of it is changed silently. Its owner must have switched on: notifications to
    EventBridge (without them no upload is ever admitted), expiry of ``incoming/`` and ``results/`` after a day, abortion of incomplete
    multipart uploads, refusal of plain HTTP, and blocked public access. Versioning should be off. It must be in the endpoints' region.

    Args:
        scope: the parent.
        id: the id below the parent.
        bucket: a bucket that exists or that this app defines elsewhere. Default: one of its own.
        models_prefix: the prefix of the artifacts, folders that each end in ``/``. Default ``models/``.
        encryption_key: KMS key of the objects. Default: the key that the given bucket names; for a bucket of its own, S3-managed
            encryption: a request to KMS for every cold load is saved.
        access_logs_bucket: where S3 writes its server access logs, below ``artifacts/``. Default: none are written. Not for a given bucket.
        removal_policy: what happens to the bucket with the stack. Default: it stays. Not for a given bucket.

    Raises:
        PrefixError: the prefix does not end in ``/``, looks like an artifact, or lies where objects expire.
        BucketError: a setting of the bucket is given together with ``bucket``.

    Source of the prefix rule: Amazon SageMaker AI, Create a Multi-Model Endpoint; S3DataSource requires the slash in words.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002 - CDK's name for it
        *,
        bucket: s3.IBucket | None = None,
        models_prefix: str = grammar.MODELS_PREFIX,
        encryption_key: kms.IKey | None = None,
        access_logs_bucket: s3.IBucket | None = None,
        removal_policy: cdk.RemovalPolicy | None = None,
    ) -> None:
        prefix = _check_models_prefix(models_prefix)
        if bucket is not None:
            _check_given({"access_logs_bucket": access_logs_bucket, "removal_policy": removal_policy})
        super().__init__(scope, id)
        self.models_prefix = prefix
        """The prefix of the artifacts, ending in ``/``."""
        self._owned = bucket is None
        self.bucket: s3.IBucket = (
            self._build_bucket(encryption_key, access_logs_bucket, cdk.RemovalPolicy.RETAIN if removal_policy is None else removal_policy)
            if bucket is None
            else bucket
        )
        """The bucket."""
        self._key = self.bucket.encryption_key if encryption_key is None else encryption_key

    def _build_bucket(
        self, encryption_key: kms.IKey | None, access_logs_bucket: s3.IBucket | None, removal_policy: cdk.RemovalPolicy
    ) -> s3.Bucket:
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
        return bucket

    @property
    def model_data_url(self) -> str:
        """The ``ModelDataUrl`` of a multi-model endpoint over all artifacts; ends in ``/``."""
        return f"s3://{self.bucket.bucket_name}/{self.models_prefix}"

    def grant_read_models(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let ``grantee`` get every tenant's artifact and list the keys below the prefix, nothing else of the bucket."""
        self._grant(grantee, ["s3:GetObject"], self.models_prefix, "reads artifacts of every tenant and version below the prefix")
        if self._key is not None:
            self._key.grant_decrypt(grantee)
        return self._grant_list(grantee, self.models_prefix)

    def grant_put_models(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let ``grantee`` write artifacts of every tenant, by multipart upload too, and read back what a conditional write met."""
        return self._grant_put(
            grantee,
            ["s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload"],
            self.models_prefix,
            "stores artifacts of every tenant and version below the prefix",
        )

    def grant_put_incoming(self, grantee: iam.IGrantable, *, tenant: str | None = None) -> iam.Grant:
        """Let ``grantee`` upload below ``incoming/``, or sign such uploads.

        Args:
            grantee: who.
            tenant: a tenant id, or an IAM policy variable such as ``${aws:PrincipalTag/tenant}``. Default: every tenant's uploads.

        Raises:
            TenantError: ``tenant`` is outside the grammar; a looser pattern would reach other tenants.
        """
        if tenant is None:
            why = "signs uploads of every tenant and version below the prefix"
            return self._grant_put(grantee, ["s3:PutObject"], grammar.INCOMING_PREFIX, why)
        try:
            folder = grammar.tenant_pattern(tenant).removesuffix("*")
        except grammar.GrammarError as error:
            raise TenantError("The tenant cannot be granted", value=tenant, allowed=error.allowed, fix="Pass the tenant's id") from error
        return self._grant_put(grantee, ["s3:PutObject"], f"{grammar.INCOMING_PREFIX}{folder}", "uploads versions of its own tenant only")

    def grant_discard_models(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let ``grantee`` delete single artifacts, by keys that a version's artifact can have, and nothing else below the prefix."""
        pattern = f"{self.models_prefix}{grammar.artifact_pattern()}"
        why = "removes the artifact of a version that cannot answer its sample; versions are not known when the stack is deployed"
        acknowledge_grant(grantee, {f"/{pattern}": f"The grantee {why}."})
        return iam.Grant.add_to_principal(
            grantee=grantee, actions=["s3:DeleteObject"], resource_arns=[self.bucket.arn_for_objects(pattern)]
        )

    def grant_uploads(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let ``grantee`` sign uploads of every tenant, and begin, look at, complete and give up those in parts; not read their content."""
        actions = ["s3:PutObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"]
        self._grant_put(grantee, actions, grammar.INCOMING_PREFIX, "signs and completes uploads of every tenant and version")
        return self._grant_list(grantee, grammar.INCOMING_PREFIX)

    def grant_read_incoming(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let ``grantee`` get uploads, and see whether one is gone: without the right to list, S3 answers 403 for what is not there."""
        if self._key is not None:
            self._key.grant_decrypt(grantee)
        self._grant(grantee, ["s3:GetObject"], grammar.INCOMING_PREFIX, "inspects uploads of every tenant and version below the prefix")
        return self._grant_list(grantee, grammar.INCOMING_PREFIX)

    def grant_sweep(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let ``grantee`` list, look at and delete uploads and artifacts, and end multipart uploads; not read or write them elsewhere."""
        if self._key is not None:
            self._key.grant_decrypt(grantee)
        sweeps = "deletes uploads and artifacts of every tenant that no record points to"
        self._grant(grantee, ["s3:GetObject", "s3:DeleteObject"], self.models_prefix, sweeps)
        self._grant(grantee, ["s3:GetObject", "s3:DeleteObject", "s3:AbortMultipartUpload"], grammar.INCOMING_PREFIX, sweeps)
        return self._grant_list(grantee, grammar.INCOMING_PREFIX, self.models_prefix)

    def grant_results(self, grantee: iam.IGrantable, *, tenant: str | None = None) -> iam.Grant:
        """Let ``grantee`` write and read answers that come later; not list them.

        Args:
            grantee: who.
            tenant: a tenant id, or an IAM policy variable such as ``${aws:PrincipalTag/tenant}``. Default: every tenant's answers.

        Raises:
            TenantError: ``tenant`` is outside the grammar; a looser pattern would reach other tenants.
        """
        actions = ["s3:GetObject", "s3:PutObject"]
        if tenant is None:
            return self._grant_put(grantee, actions, grammar.RESULTS_PREFIX, "keeps answers of every tenant that come later")
        try:
            folder = grammar.tenant_pattern(tenant).removesuffix("*")
        except grammar.GrammarError as error:
            raise TenantError("The tenant cannot be granted", value=tenant, allowed=error.allowed, fix="Pass the tenant's id") from error
        return self._grant_put(grantee, actions, f"{grammar.RESULTS_PREFIX}{folder}", "keeps its own tenant's answers that come later only")

    def grant_read_heat(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let ``grantee`` list and get heat of every pool."""
        if self._key is not None:
            self._key.grant_decrypt(grantee)
        self._grant(grantee, ["s3:GetObject"], grammar.HEAT_PREFIX, "reads heat of every pool and window below the prefix")
        return self._grant_list(grantee, grammar.HEAT_PREFIX)

    def grant_write_heat(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let ``grantee`` list, get and write heat of every pool."""
        why = "writes heat of every pool and window below the prefix"
        self._grant_put(grantee, ["s3:GetObject", "s3:PutObject"], grammar.HEAT_PREFIX, why)
        return self._grant_list(grantee, grammar.HEAT_PREFIX)

    def grant_prefetch(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let ``grantee`` find, get and write what is remembered of the use of each pool's models."""
        why = "remembers how the models of every pool are used"
        self._grant_put(grantee, ["s3:GetObject", "s3:PutObject"], grammar.PREFETCH_PREFIX, why)
        return self._grant_list(grantee, grammar.PREFETCH_PREFIX)

    def _grant_list(self, grantee: iam.IGrantable, *prefixes: str) -> iam.Grant:
        return iam.Grant.add_to_principal(
            grantee=grantee,
            actions=["s3:ListBucket"],
            resource_arns=[self.bucket.bucket_arn],
            conditions={"StringLike": {"s3:prefix": [f"{prefix}*" for prefix in prefixes]}},
        )

    def restrict_to_vpc_endpoint(self, endpoint: ec2.IVpcEndpoint | str, *, allowed: Sequence[iam.IRole | str] = ()) -> None:
        """Refuse to read, write or list objects unless the request comes through a VPC endpoint or from an allowed role.

        Everyone else is refused, administrators too; the bucket's own settings stay reachable, so that the rule can be taken back. A
        request with a presigned URL counts as made by the role that signed it: as long as the onboarding function's role is allowed,
        tenants upload from anywhere. Endpoints outside the VPC load artifacts with their execution role, which then must be allowed too.

        Args:
            endpoint: S3's gateway endpoint, such as `PrivateAccess.s3`, or its id.
            allowed: roles, or ARNs of roles with IAM wildcards, that reach the bucket from outside the endpoint: the onboarding, the
                admission, the sweep and the heat function unless they are placed in the VPC, execution roles of endpoints outside it.

        Raises:
            BucketError: the bucket is not the store's own, so that its policy is not ours to write; or ``allowed`` holds everybody.

        Source: Amazon S3, Controlling access from VPC endpoints with bucket policies; IAM, aws:PrincipalArn.
        """
        if not self._owned:
            raise BucketError(
                "The policy of a given bucket is not changed",
                value=self.bucket.node.path,
                allowed="the store's own bucket",
                fix="Let the store build the bucket, or add the statement where the bucket is defined",
            )
        roles = [role if isinstance(role, str) else role.role_arn for role in allowed]
        for role in roles:
            if not is_token(role) and not role.startswith("arn:"):
                raise BucketError(
                    "The restriction cannot except this role", value=role, allowed="ARNs of roles, or roles", fix="Name the roles"
                )
        conditions: dict[str, dict[str, object]] = {
            "StringNotEquals": {"aws:SourceVpce": endpoint if isinstance(endpoint, str) else endpoint.vpc_endpoint_id}
        }
        if roles:
            conditions["ArnNotLike"] = {"aws:PrincipalArn": roles}
        self.bucket.add_to_resource_policy(
            iam.PolicyStatement(
                sid="ObjectsOnlyThroughTheVpcEndpoint",
                effect=iam.Effect.DENY,
                principals=[iam.AnyPrincipal()],
                actions=list(_OBJECT_ACTIONS),
                resources=[self.bucket.bucket_arn, self.bucket.arn_for_objects("*")],
                conditions=conditions,
            )
        )

    def _grant_put(self, grantee: iam.IGrantable, actions: Sequence[str], prefix: str, why: str) -> iam.Grant:
        if self._key is not None:
            self._key.grant(grantee, "kms:Decrypt", "kms:GenerateDataKey")
        return self._grant(grantee, actions, prefix, why)

    def _grant(self, grantee: iam.IGrantable, actions: Sequence[str], prefix: str, why: str) -> iam.Grant:
        tail = f"/{prefix}*".replace("${", "<").replace("}", ">")
        acknowledge_grant(grantee, {tail: f"The grantee {why}; keys are not known when the stack is deployed."})
        return iam.Grant.add_to_principal(grantee=grantee, actions=actions, resource_arns=[self.bucket.arn_for_objects(f"{prefix}*")])


def _check_given(settings: dict[str, object]) -> None:
    given = [name for name, value in settings.items() if value is not None]
    if given:
        raise BucketError(
            "A bucket that is given keeps its settings",
            value=", ".join(given),
            allowed="bucket without settings of the bucket, or settings without bucket",
            fix="Leave them out and make the settings where the bucket is defined",
        )


def _check_models_prefix(prefix: str) -> str:
    if is_token(prefix):
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
