"""Where ``mme tenants top`` reads: the local cloud of this folder, or stacks on AWS."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mme_cli.errors import CommandError
from mme_cli.local_state import LocalState
from mme_facts.limits import LOG_GROUPS_OF_A_QUERY
from mme_tenancy.aws.clients import dynamodb_client, logs_client, s3_client
from mme_tenancy.aws.dynamodb import DynamoRegistry
from mme_tenancy.aws.heat import S3Heat
from mme_tenancy.aws.logs import LogsInsights
from mme_tenancy.log_queries import LogQueries

if TYPE_CHECKING:
    import boto3

    from mme_tenancy.registry import Key
    from mme_tenancy.versions import Version

__all__ = ["Sources", "local_sources", "stack_sources"]

_OUTPUTS = ("InvocationLogGroup", "BucketName", "TableName")


@dataclass(frozen=True, slots=True)
class Sources:
    """What is read.

    Attributes:
        queries: the invocation path's log lines.
        heat: the heat.
        versions: several versions' records, in the order of their keys.
        sagemaker: boto3's client.
        cloudwatch: boto3's client.
    """

    queries: LogQueries
    heat: S3Heat
    versions: Callable[[Sequence[Key[Version]]], Sequence[Version | None]]
    sagemaker: Any
    cloudwatch: Any


def local_sources(state: LocalState, *, log_groups: Sequence[str] = ()) -> Sources:
    """Those of the platform that is deployed into the running local cloud; raises `CommandError` if none is, or as `stack_sources`."""
    import boto3

    outputs = {name: state.output(name) for name in _OUTPUTS}
    session = boto3.Session(state.admin.access_key_id, state.admin.secret_access_key, state.admin.session_token, region_name=state.region)
    return _sources(_At(session, state.endpoint_url), outputs, log_groups)


def stack_sources(
    stacks: Sequence[str], *, region: str | None = None, profile: str | None = None, log_groups: Sequence[str] = ()
) -> Sources:
    """Those of a platform on AWS, found by the outputs of its stacks.

    Args:
        stacks: their names, such as ``MmePlatform`` and ``MmeStorage``.
        region: AWS region. Default: the environment's.
        profile: AWS profile. Default: the environment's.
        log_groups: applications' log groups, beside the invocation function's.

    Raises:
        CommandError: a stack cannot be described, no stack has an output, or there are more log groups than a query takes.
    """
    import os

    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    outputs: dict[str, str] = {}
    try:
        session = boto3.Session(profile_name=profile, region_name=region or os.environ.get("AWS_REGION"))
        client = session.client("cloudformation")
        for stack in stacks:
            for described in client.describe_stacks(StackName=stack)["Stacks"]:
                outputs |= {output["OutputKey"]: output["OutputValue"] for output in described.get("Outputs", ())}
    except (BotoCoreError, ClientError) as error:
        raise CommandError(f"the stacks {', '.join(stacks)} cannot be read: {error}") from None
    if missing := [name for name in _OUTPUTS if name not in outputs]:
        raise CommandError(
            f"the stacks {', '.join(stacks)} have no output {missing[0]}: name every stack that holds one of {', '.join(_OUTPUTS)}"
        )
    return _sources(session, outputs, log_groups)


def _sources(session: Any, outputs: Mapping[str, str], log_groups: Sequence[str]) -> Sources:
    # Named twice, a group's lines are counted once.
    groups = list(dict.fromkeys([outputs["InvocationLogGroup"], *log_groups]))
    if len(groups) > LOG_GROUPS_OF_A_QUERY:
        raise CommandError(f"{len(groups)} log groups are to be asked at once: Logs Insights takes {LOG_GROUPS_OF_A_QUERY}")
    registry = DynamoRegistry(dynamodb_client(session), outputs["TableName"])
    return Sources(
        LogsInsights(logs_client(session), groups),
        S3Heat(s3_client(session), outputs["BucketName"]),
        lambda keys: registry.read(*keys),
        session.client("sagemaker"),
        session.client("cloudwatch"),
    )


class _At:
    """A session whose clients all ask one address."""

    def __init__(self, session: boto3.Session, endpoint_url: str) -> None:
        self._session, self._endpoint_url = session, endpoint_url

    def client(self, service: str, **options: Any) -> Any:
        """A client of a service."""
        client: Any = self._session.client
        return client(service, endpoint_url=self._endpoint_url, **options)
