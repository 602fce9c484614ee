"""The table of tenants, models, versions and routes."""

from __future__ import annotations

from collections.abc import Sequence

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from mme_facts import table as names

__all__ = ["TenantRegistry"]

_READ_ITEMS = ["dynamodb:GetItem", "dynamodb:BatchGetItem"]


class TenantRegistry(Construct):
    """One DynamoDB table: tenants, models with their routes, versions, idempotency items.

    On demand, point-in-time recovery on, items expire by ``expires_at``. Two sparse indexes replace scans: ``moving`` lists what is under
    way, ``dedicated`` the models of the dedicated endpoint. Names come from `mme_facts.table`.

    Args:
        scope: the parent.
        id: the id below the parent.
        encryption_key: KMS key of the table. Default: a key that DynamoDB owns.
        deletion_protection: whether DynamoDB refuses to delete the table. Default: it does.
        removal_policy: what happens to the table with the stack. Default: it stays.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002 - CDK's name for it
        *,
        encryption_key: kms.IKey | None = None,
        deletion_protection: bool = True,
        removal_policy: cdk.RemovalPolicy = cdk.RemovalPolicy.RETAIN,
    ) -> None:
        super().__init__(scope, id)
        table = dynamodb.Table(
            self,
            "Table",
            partition_key=_text(names.PARTITION_KEY),
            sort_key=_text(names.SORT_KEY),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(point_in_time_recovery_enabled=True),
            time_to_live_attribute=names.EXPIRES_AT,
            encryption=None if encryption_key is None else dynamodb.TableEncryption.CUSTOMER_MANAGED,
            encryption_key=encryption_key,
            deletion_protection=deletion_protection,
            removal_policy=removal_policy,
        )
        for index, key, sort in (
            (names.MOVING_INDEX, names.MOVING_KEY, names.UPDATED_AT),
            (names.DEDICATED_INDEX, names.DEDICATED_KEY, names.PARTITION_KEY),
        ):
            table.add_global_secondary_index(
                index_name=index, partition_key=_text(key), sort_key=_text(sort), projection_type=dynamodb.ProjectionType.KEYS_ONLY
            )
        self._key = encryption_key
        self.table: dynamodb.ITable = table
        """The table."""

    def grant_read_routes(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let ``grantee`` read single items, and list the counters of changes: what the invocation path needs."""
        counters = {"ForAllValues:StringEquals": {"dynamodb:LeadingKeys": [names.CHANGES_PARTITION]}}
        iam.Grant.add_to_principal(grantee=grantee, actions=["dynamodb:Query"], resource_arns=[self.table.table_arn], conditions=counters)
        return self._grant(grantee, _READ_ITEMS)

    def grant_read_own_routes(self, grantee: iam.IGrantable, tenant: str) -> iam.Grant:
        """Let ``grantee`` read single items of one tenant's partition, and nothing else of the table.

        Only reads of named items are allowed, and those only if they name a partition: a scan names none.

        Args:
            grantee: who may read.
            tenant: the tenant's id, or IAM's name for it.

        Source: Amazon DynamoDB Developer Guide, Using IAM policy conditions for fine-grained access control.
        """
        if self._key is not None:
            service = {"StringEquals": {"kms:ViaService": f"dynamodb.{cdk.Stack.of(self).region}.amazonaws.com"}}
            decrypt = iam.PolicyStatement(actions=["kms:Decrypt"], resources=[self._key.key_arn], conditions=service)
            grantee.grant_principal.add_to_principal_policy(decrypt)
        # A request without any value of the key would meet the first alone.
        own: dict[str, dict[str, str | list[str]]] = {
            "ForAllValues:StringEquals": {"dynamodb:LeadingKeys": [names.tenant_partition(tenant)]},
            "Null": {"dynamodb:LeadingKeys": "false"},
        }
        return iam.Grant.add_to_principal(grantee=grantee, actions=_READ_ITEMS, resource_arns=[self.table.table_arn], conditions=own)

    def grant_admit(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let ``grantee`` read, write and list items, but delete none: what admission needs."""
        return self._grant(
            grantee, ["dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:Query"]
        )

    def grant_onboard(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let ``grantee`` read, write, list and delete items and check conditions in transactions: what onboarding needs."""
        return self._grant(
            grantee,
            [
                "dynamodb:GetItem",
                "dynamodb:BatchGetItem",
                "dynamodb:PutItem",
                "dynamodb:UpdateItem",
                "dynamodb:DeleteItem",
                "dynamodb:Query",
                "dynamodb:ConditionCheckItem",
            ],
        )

    def grant_sweep(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let ``grantee`` read, write and list items, also by the index of what is under way: what the sweep needs."""
        self._grant(grantee, ["dynamodb:BatchGetItem", "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:Query", "dynamodb:UpdateItem"])
        return iam.Grant.add_to_principal(
            grantee=grantee, actions=["dynamodb:Query"], resource_arns=[f"{self.table.table_arn}/index/{names.MOVING_INDEX}"]
        )

    def grant_warm_up(self, grantee: iam.IGrantable, endpoints: Sequence[str]) -> iam.Grant:
        """Let ``grantee`` read single items of everybody, and write what is remembered of these endpoints: what warm-up needs.

        Args:
            grantee: who.
            endpoints: names of SageMaker endpoints.

        Source: Amazon DynamoDB Developer Guide, Using IAM policy conditions for fine-grained access control.
        """
        # A request without any value of the key would meet the first alone.
        own: dict[str, dict[str, str | list[str]]] = {
            "ForAllValues:StringEquals": {"dynamodb:LeadingKeys": [names.endpoint_partition(endpoint) for endpoint in endpoints]},
            "Null": {"dynamodb:LeadingKeys": "false"},
        }
        writes = ["dynamodb:PutItem", "dynamodb:UpdateItem"]
        iam.Grant.add_to_principal(grantee=grantee, actions=writes, resource_arns=[self.table.table_arn], conditions=own)
        return self._grant(grantee, _READ_ITEMS)

    def _grant(self, grantee: iam.IGrantable, actions: Sequence[str]) -> iam.Grant:
        if self._key is not None:
            self._key.grant_encrypt_decrypt(grantee)
        return iam.Grant.add_to_principal(grantee=grantee, actions=actions, resource_arns=[self.table.table_arn])


def _text(name: str) -> dynamodb.Attribute:
    return dynamodb.Attribute(name=name, type=dynamodb.AttributeType.STRING)
