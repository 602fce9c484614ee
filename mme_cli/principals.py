"""Credentials of the platform's roles: platform-admin, and a tenant's session that is tagged with the tenant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from mme_cli.errors import CommandError
from mme_facts.grammar import GrammarError, check_tenant_id
from mme_local import Credentials

if TYPE_CHECKING:
    from mypy_boto3_sts import STSClient

__all__ = ["platform_admin", "tenant_session"]

_SESSION_SECONDS = 3600
"""Role chaining limits a session to an hour (IAM User Guide: Roles terms and concepts)."""


def platform_admin(sts: STSClient, role_arn: str) -> Credentials:
    """A session of the platform-admin role; raises `CommandError`."""
    return _assume(sts, RoleArn=role_arn, RoleSessionName="platform-admin", DurationSeconds=_SESSION_SECONDS)


def tenant_session(sts: STSClient, role_arn: str, tenant: str) -> Credentials:
    """A session of the tenant access role, tagged with ``tenant``; ``sts`` must be the platform-admin's; raises `CommandError`."""
    try:
        check_tenant_id(tenant)
    except GrammarError as error:
        raise CommandError(str(error)) from None
    from mme_tenancy.aws.tenant_sessions import tenant_session_request

    return _assume(sts, **tenant_session_request(role_arn, tenant))


def _assume(sts: STSClient, **request: Any) -> Credentials:
    try:
        credentials = sts.assume_role(**request)["Credentials"]
    except (ClientError, BotoCoreError) as error:
        raise CommandError(f"role {request['RoleArn']} could not be assumed: {error}") from error
    return Credentials(credentials["AccessKeyId"], credentials["SecretAccessKey"], credentials["SessionToken"])
