"""A multi-model endpoint that another app owns."""

from __future__ import annotations

import aws_cdk as cdk
import jsii
from aws_cdk import aws_sagemaker as sagemaker
from constructs import Construct

from mme_constructs.endpoint_interface import EndpointOperations

__all__ = ["ImportedEndpoint"]


@jsii.implements(sagemaker.IEndpoint)
class ImportedEndpoint(EndpointOperations, cdk.Resource):
    """An endpoint of the stack's account and region; `MultiModelEndpoint.from_endpoint_attributes` makes one and tells the arguments."""

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002 - CDK's name for it
        *,
        endpoint_name: str,
        variant_name: str,
        variants: tuple[str, ...],
        instance_type: str | None,
        min_instances: int | None,
        max_instances: int | None,
        cache_enabled: bool,
    ) -> None:
        super().__init__(scope, id)
        self.identify(self, endpoint_name)
        self.metric_endpoint_name = endpoint_name
        self.variant_name, self.variants = variant_name, variants
        self.instance_type, self.min_instances, self.max_instances = instance_type, min_instances, max_instances
        self.cache_enabled = cache_enabled
