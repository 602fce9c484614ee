"""SageMaker's control plane: the state of endpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from mme_tenancy.fleet_watch import EndpointState

if TYPE_CHECKING:
    from mypy_boto3_sagemaker import SageMakerClient

__all__ = ["SageMakerFleets"]


class SageMakerFleets:
    """`mme_tenancy.fleet_watch.Fleets` by DescribeEndpoint.

    Args:
        client: SageMaker's client.
    """

    def __init__(self, client: SageMakerClient) -> None:
        self._client = client

    def state(self, endpoint: str) -> EndpointState | None:
        """The endpoint's state; ``None`` if there is no such endpoint."""
        try:
            described = self._client.describe_endpoint(EndpointName=endpoint)
        except ClientError as error:
            # The API reference of DescribeEndpoint lists no error for it: only the text of a ValidationException tells a missing one.
            if "could not find" in str(error.response["Error"].get("Message", "")).lower():
                return None
            raise
        instances = sum(variant.get("CurrentInstanceCount", 0) for variant in described.get("ProductionVariants", ()))
        return EndpointState(described["EndpointStatus"], described["LastModifiedTime"].timestamp(), instances)
