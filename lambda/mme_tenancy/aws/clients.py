"""The boto3 clients, configured in one place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sagemaker import SageMakerClient
    from mypy_boto3_sagemaker_runtime import SageMakerRuntimeClient
    from mypy_boto3_sts import STSClient

    from mme_tenancy.aws.sweeping import EventsClient

__all__ = [
    "apigateway_client",
    "cloudwatch_client",
    "dynamodb_client",
    "events_client",
    "lambda_client",
    "logs_client",
    "runtime_client",
    "s3_client",
    "sagemaker_client",
    "sts_client",
]

_CONNECT_SECONDS = 2
RUNTIME_CONNECTIONS = 512
"""Connections to the runtime that are kept: an application's requests at the same time, each of which may wait a minute for a load."""


def apigateway_client(session: boto3.Session) -> Any:
    """The client of API Gateway's control plane, which takes few calls a second; the stubs of it are no dependency of ours."""
    config = Config(retries={"mode": "standard", "total_max_attempts": 4}, connect_timeout=_CONNECT_SECONDS, read_timeout=5)
    client: Any = session.client
    return client("apigateway", config=config)


def cloudwatch_client(session: boto3.Session) -> Any:
    """CloudWatch's client, for metrics that are of use only now: one short try more; the stubs of it are no dependency of ours."""
    config = Config(retries={"mode": "standard", "total_max_attempts": 2}, connect_timeout=_CONNECT_SECONDS, read_timeout=5)
    client: Any = session.client
    return client("cloudwatch", config=config)


def dynamodb_client(session: boto3.Session) -> DynamoDBClient:
    """The table's client: short timeouts, because a caller waits."""
    config = Config(retries={"mode": "standard", "total_max_attempts": 4}, connect_timeout=_CONNECT_SECONDS, read_timeout=5)
    return session.client("dynamodb", config=config)


def events_client(session: boto3.Session) -> EventsClient:
    """The client that sends events."""
    config = Config(retries={"mode": "standard", "total_max_attempts": 3}, connect_timeout=_CONNECT_SECONDS, read_timeout=5)
    make: Any = session.client
    client: EventsClient = make("events", config=config)
    return client


def lambda_client(session: boto3.Session) -> Any:
    """Lambda's client, for events: short timeouts, because a caller waits; the stubs of it are no dependency of ours."""
    config = Config(retries={"mode": "standard", "total_max_attempts": 3}, connect_timeout=_CONNECT_SECONDS, read_timeout=5)
    client: Any = session.client
    return client("lambda", config=config)


def s3_client(session: boto3.Session, *, read_timeout_seconds: float = 60) -> S3Client:
    """The bucket's client.

    It signs with Signature Version 4 for the regional, virtual-hosted endpoint: a URL that is signed for the global
    endpoint stops working behind S3's redirect (Amazon S3: virtual hosting of buckets).
    """
    config = Config(
        signature_version="s3v4",
        s3={"addressing_style": "virtual", "us_east_1_regional_endpoint": "regional"},
        retries={"mode": "standard", "total_max_attempts": 4},
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=read_timeout_seconds,
        request_checksum_calculation="when_required",
    )
    return session.client("s3", config=config)


def runtime_client(session: boto3.Session, read_timeout_seconds: float) -> SageMakerRuntimeClient:
    """A client for InvokeEndpoint that sends once: the retry rules are ours, so the two layers never multiply."""
    config = Config(
        retries={"mode": "standard", "total_max_attempts": 1},
        connect_timeout=min(_CONNECT_SECONDS, read_timeout_seconds),
        read_timeout=read_timeout_seconds,
        max_pool_connections=RUNTIME_CONNECTIONS,
    )
    return session.client("sagemaker-runtime", config=config)


def sagemaker_client(session: boto3.Session) -> SageMakerClient:
    """The control plane's client: short timeouts, because the next minute asks again."""
    config = Config(retries={"mode": "standard", "total_max_attempts": 3}, connect_timeout=_CONNECT_SECONDS, read_timeout=5)
    return session.client("sagemaker", config=config)


def logs_client(session: boto3.Session) -> Any:
    """CloudWatch Logs' client, for queries; the stubs of it are no dependency of ours."""
    config = Config(retries={"mode": "standard", "total_max_attempts": 4}, connect_timeout=_CONNECT_SECONDS, read_timeout=30)
    client: Any = session.client
    return client("logs", config=config)


def sts_client(session: boto3.Session) -> STSClient:
    """The client that opens tenants' sessions: regional, short timeouts, because a caller waits."""
    config = Config(retries={"mode": "standard", "total_max_attempts": 3}, connect_timeout=_CONNECT_SECONDS, read_timeout=5)
    return session.client("sts", config=config)
