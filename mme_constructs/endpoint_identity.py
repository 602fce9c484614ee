"""Name and ARN of an endpoint, in the form in which CDK's own constructs ask for them."""

from __future__ import annotations

from aws_cdk.interfaces.aws_sagemaker import EndpointReference
from constructs import IConstruct

from mme_constructs.stack_of import stack_of

__all__ = ["EndpointIdentity"]


class EndpointIdentity:
    """The members of ``aws_sagemaker.IEndpoint`` but ``grant_invoke``.

    Classes name it before ``cdk.Resource``: jsii passes on to CDK only what stands before its own classes in the order of resolution, and
    only properties and methods of the class, no attributes of the object.
    """

    _endpoint_name: str
    _endpoint_arn: str

    def identify(self, scope: IConstruct, endpoint_name: str) -> None:
        """Set name and ARN.

        Args:
            scope: whose stack's account and region the endpoint is in.
            endpoint_name: its name.
        """
        self._endpoint_name = endpoint_name
        self._endpoint_arn = stack_of(scope).format_arn(service="sagemaker", resource="endpoint", resource_name=endpoint_name)

    @property
    def endpoint_name(self) -> str:
        """Its name."""
        return self._endpoint_name

    @property
    def endpoint_arn(self) -> str:
        """Its ARN."""
        return self._endpoint_arn

    @property
    def endpoint_ref(self) -> EndpointReference:
        """The endpoint as CDK's generated interfaces refer to it."""
        return EndpointReference(endpoint_arn=self._endpoint_arn)
