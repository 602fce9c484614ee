"""Sessions that are tagged with a tenant: who opens them and what they may invoke, as tenants' roles share it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from aws_cdk import aws_iam as iam

from mme_constructs.acknowledge import acknowledge_wildcards
from mme_constructs.stack_of import stack_of
from mme_facts.grammar import TENANT_TAG

if TYPE_CHECKING:
    from mme_constructs.endpoint_interface import IMultiModelEndpoint

__all__ = ["TENANT", "DedicatedEndpoint", "allow_components", "allow_models", "opener"]

TENANT = f"${{aws:PrincipalTag/{TENANT_TAG}}}"
"""IAM's name for the tenant in the session's tag."""
_INVOKE = ["sagemaker:InvokeEndpoint", "sagemaker:InvokeEndpointWithResponseStream"]
"""Streaming has an action of its own in the Service Authorization Reference; its API reference names InvokeEndpoint: both are given."""


class DedicatedEndpoint(Protocol):
    """An endpoint of inference components."""

    @property
    def endpoint_arn(self) -> str:
        """Its ARN."""


def opener(principal: iam.IPrincipal) -> iam.PrincipalBase:
    """Who opens a tenant's session: ``principal``, which must set the tag ``tenant`` on it, and no other."""
    conditions = {
        "StringLike": {f"aws:RequestTag/{TENANT_TAG}": "?*"},
        "ForAllValues:StringEquals": {"aws:TagKeys": [TENANT_TAG]},
    }
    return iam.SessionTagsPrincipal(principal).with_conditions(conditions)


def allow_models(role: iam.Role, endpoints: Sequence[IMultiModelEndpoint]) -> None:
    """Let sessions of ``role`` invoke models below ``<tenant>/`` on these shared endpoints; a call without TargetModel is denied."""
    for endpoint in endpoints:
        endpoint.grant_invoke_tenant(role, TENANT)


def allow_components(role: iam.Role, endpoints: Sequence[DedicatedEndpoint]) -> None:
    """Let sessions of ``role`` invoke components whose resource tag is their tenant, on these endpoints; others are denied in words.

    Names decide nothing: a pattern for the components of ``acme`` would match those of ``acme-evil``. It rests on SageMaker authorizing
    such a call for the endpoint and for the component, as the Service Authorization Reference lists them.
    """
    if not endpoints:
        return
    components = stack_of(role).format_arn(service="sagemaker", resource="inference-component", resource_name="*")
    owner = {f"aws:ResourceTag/{TENANT_TAG}": TENANT}
    arns = [endpoint.endpoint_arn for endpoint in endpoints]
    role.add_to_policy(iam.PolicyStatement(actions=_INVOKE, resources=arns, conditions={"Null": {"sagemaker:TargetModel": "true"}}))
    # It names the endpoints too, the required resource of the action (Service Authorization Reference).
    role.add_to_policy(iam.PolicyStatement(actions=_INVOKE, resources=[*arns, components], conditions={"StringEquals": owner}))
    role.add_to_policy(
        iam.PolicyStatement(effect=iam.Effect.DENY, actions=_INVOKE, resources=[components], conditions={"StringNotEquals": owner})
    )
    acknowledge_wildcards(
        role, {":inference-component/*": "The component's resource tag decides whose it is; a condition compares it with the session's."}
    )
