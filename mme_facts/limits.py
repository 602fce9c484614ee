"""Quotas and limits, each with its source. Bytes, seconds and counts as the names say."""

from __future__ import annotations

__all__ = [
    "API_GATEWAY_BODY_BYTES",
    "API_GATEWAY_TIMEOUT_SECONDS",
    "INVOKE_BODY_BYTES",
    "INVOKE_STREAM_SECONDS",
    "INVOKE_TIMEOUT_SECONDS",
    "LAMBDA_ASYNCHRONOUS_EVENT_BYTES",
    "LAMBDA_EVENT_BYTES",
    "MODEL_NAME_CHARACTERS",
    "MULTIPART_PARTS",
    "MULTIPART_PART_BYTES_GREATEST",
    "MULTIPART_PART_BYTES_LEAST",
    "RETIRED_DAYS",
    "SAMPLE_BODY_BYTES",
    "TARGET_MODEL_CHARACTERS",
    "api_binary_body_bytes",
]

LAMBDA_EVENT_BYTES = 6_291_456
"""Greatest synchronous invocation payload of Lambda, request or response (Lambda quotas)."""
LAMBDA_ASYNCHRONOUS_EVENT_BYTES = 1_048_576
"""Greatest asynchronous invocation payload of Lambda (Lambda quotas)."""
API_GATEWAY_BODY_BYTES = 10_485_760
"""Greatest payload of API Gateway (Amazon API Gateway quotas for REST APIs)."""
API_GATEWAY_TIMEOUT_SECONDS = 29
"""Default integration timeout of a REST API (Amazon API Gateway quotas for REST APIs)."""
RETIRED_DAYS = 7
"""Default time that the artifact of a retired version is kept: long enough to notice that it was wanted after all."""
LOG_GROUPS_OF_A_QUERY = 50
"""Log groups that one query of Logs Insights names (CloudWatch Logs API reference: StartQuery)."""
INVOKE_BODY_BYTES = 6_291_456
"""Greatest Body of InvokeEndpoint (API reference: InvokeEndpoint)."""
INVOKE_TIMEOUT_SECONDS = 60
"""A container must answer within this time (API reference: InvokeEndpoint)."""
INVOKE_STREAM_SECONDS = 480
"""A response stream must have ended within this time (API reference: InvokeEndpointWithResponseStream: 8 minutes)."""
TARGET_MODEL_CHARACTERS = 1024
"""Greatest length of TargetModel (API reference: InvokeEndpoint)."""
MODEL_NAME_CHARACTERS = 63
"""Greatest length of SageMaker model, config, endpoint and variant names (API reference)."""
MULTIPART_PARTS = 10_000
"""Most parts of a multipart upload (Amazon S3: multipart upload limits)."""
MULTIPART_PART_BYTES_LEAST = 5_242_880
"""Least size of a part but the last (Amazon S3: multipart upload limits)."""
MULTIPART_PART_BYTES_GREATEST = 5_368_709_120
"""Greatest size of a part (Amazon S3: multipart upload limits)."""
SAMPLE_BODY_BYTES = 262_144
"""Greatest sample payload of a version: it lives in the version's DynamoDB item, which holds at most 400 KB."""

_EVENT_ENVELOPE_BYTES = 65_536
"""Room for what API Gateway wraps around a body: at most 10,240 bytes of headers, kept twice, path and context."""


def api_binary_body_bytes() -> int:
    """Greatest request or response body through API Gateway and Lambda.

    The proxy integration carries binary bodies in base64 inside the Lambda event, so about 4.5 MB of the 6 MB remain.
    """
    return (LAMBDA_EVENT_BYTES - _EVENT_ENVELOPE_BYTES) * 3 // 4
