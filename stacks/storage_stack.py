"""What must never be lost: artifacts and registry."""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_s3 as s3
from constructs import Construct

from mme_constructs import ModelArtifactStore, TenantRegistry
from mme_constructs.acknowledge import acknowledge
from stacks.lifetime import Lifetime

__all__ = ["StorageStack"]


class StorageStack(cdk.Stack):
    """The artifacts' bucket with its access logs, and the tenants' table."""

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002 - CDK's name for it
        *,
        lifetime: Lifetime,
        env: cdk.Environment | None = None,
    ) -> None:
        super().__init__(scope, id, env=env, description="mme-constructs: model artifacts and tenant registry")
        access_logs = s3.Bucket(
            self,
            "AccessLogs",
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            encryption=s3.BucketEncryption.S3_MANAGED,
            enforce_ssl=True,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            lifecycle_rules=[s3.LifecycleRule(id="Expire", expiration=cdk.Duration.days(90))],
            removal_policy=lifetime.removal_policy,
        )
        self.store = ModelArtifactStore(self, "Artifacts", access_logs_bucket=access_logs, removal_policy=lifetime.removal_policy)
        """The artifacts."""
        self.registry = TenantRegistry(
            self, "Registry", deletion_protection=lifetime.deletion_protection, removal_policy=lifetime.removal_policy
        )
        """Tenants, models, versions, routes."""
        cdk.CfnOutput(self, "BucketName", value=self.store.bucket.bucket_name, description="Bucket of the artifacts")
        cdk.CfnOutput(self, "TableName", value=self.registry.table.table_name, description="Table of the registry")
        acknowledge(
            self,
            {
                "NIST.800.53.R5-S3BucketReplicationEnabled": "One region by decision: tenants upload again if it is lost.",
                "NIST.800.53.R5-S3DefaultEncryptionKMS": "S3-managed keys by decision; pass encryption_key to use your own.",
                "NIST.800.53.R5-DynamoDBInBackupPlan": "Point-in-time recovery covers 35 days; a plan is the account's.",
            },
        )
        acknowledge(access_logs, {"NIST.800.53.R5-S3BucketVersioningEnabled": "Access logs are written once by S3 and expire."})
