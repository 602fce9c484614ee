"""Acknowledging cdk-nag findings with a reason, also where a finding's id is known only at synthesis.

cdk-nag names a wildcard finding by the policy's resolved resource (``AwsSolutions-IAM5[Resource::<Bucket.Arn>/models/*]``). A reference
to another stack gets its final form when the app synthesizes, so acknowledgements are kept until then and told to CDK by one validation a
stack: after references are resolved and before the plugins of the app run. Only cdk-nag's plugins ask for them, so an app that does not
import it does not pay for them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import aws_cdk as cdk
import jsii
from aws_cdk import aws_iam as iam
from constructs import IConstruct, IValidation

from mme_constructs.stack_of import stack_of

__all__ = ["acknowledge", "acknowledge_grant", "acknowledge_wildcards"]

_PACKS = ("AwsSolutions", "NIST.800.53.R5")
_KEPT_AS = "_mme_decisions"


def acknowledge(scope: IConstruct, reasons: Mapping[str, str]) -> None:
    """Acknowledge findings on ``scope`` and everything below it.

    Args:
        scope: where the acknowledgement holds.
        reasons: rule id as the pack writes it (``AwsSolutions-S1``, ``NIST.800.53.R5-LambdaInsideVPC``) -> why the finding is right.
    """
    _decisions(scope).rules.append((scope, reasons))


def acknowledge_wildcards(scope: IConstruct, reasons: Mapping[str, str]) -> None:
    """Acknowledge wildcard resources of the IAM policies at or below ``scope``.

    Args:
        scope: a role or policy.
        reasons: literal tail of the resource (``/models/*``; ``*`` alone stands for the resource ``*`` only) -> why it ends in a wildcard.
            A wildcard that no tail matches stays a finding.
    """
    _decisions(scope).wildcards.append((scope, reasons))


def acknowledge_grant(grantee: iam.IGrantable, reasons: Mapping[str, str]) -> None:
    """`acknowledge_wildcards` on whoever got a grant, if it is a construct whose policy is ours to render."""
    principal = grantee if isinstance(grantee, iam.Role) else grantee.grant_principal
    if isinstance(principal, iam.Role):
        acknowledge_wildcards(principal, reasons)


@jsii.implements(IValidation)
class _Decisions:
    """What one stack decided, until it is validated."""

    def __init__(self) -> None:
        self.rules: list[tuple[IConstruct, Mapping[str, str]]] = []
        self.wildcards: list[tuple[IConstruct, Mapping[str, str]]] = []

    def validate(self) -> list[str]:
        """Tell CDK; there is never anything to complain about."""
        if "cdk_nag" in sys.modules:
            for scope, reasons in self.rules:
                _tell(scope, reasons)
            for scope, reasons in self.wildcards:
                _tell_wildcards(scope, reasons)
        return []


def _decisions(scope: IConstruct) -> _Decisions:
    """Those of the scope's stack, kept with the stack's own object."""
    stack = stack_of(scope)
    known = vars(stack).get(_KEPT_AS)
    if isinstance(known, _Decisions):
        return known
    decisions = vars(stack)[_KEPT_AS] = _Decisions()
    stack.node.add_validation(decisions)
    return decisions


def _tell(scope: IConstruct, reasons: Mapping[str, str]) -> None:
    found = []
    for rule, reason in reasons.items():
        pack = next(pack for pack in _PACKS if rule.startswith(f"{pack}-"))
        found.append(cdk.Acknowledgment(id=f"{pack}::{rule}", reason=reason))
    if found:
        cdk.Validations.of(scope).acknowledge(*found)


def _tell_wildcards(scope: IConstruct, tails: Mapping[str, str]) -> None:
    for construct in scope.node.find_all():
        if isinstance(construct, iam.CfnPolicy):
            document = stack_of(construct).resolve(construct.policy_document)
            reasons = {resource: _reason(resource, tails) for resource in _wildcard_resources(document)}
            rules = {f"AwsSolutions-IAM5[Resource::{resource}]": reason for resource, reason in reasons.items() if reason is not None}
            _tell(construct, rules)


def _reason(resource: str, tails: Mapping[str, str]) -> str | None:
    for tail, reason in tails.items():
        if resource == tail or (tail != "*" and resource.endswith(tail)):
            return reason
    return None


def _wildcard_resources(document: Mapping[str, Any]) -> Iterator[str]:
    for statement in document.get("Statement", ()):
        if statement["Effect"] == "Allow":
            resources = statement["Resource"]
            for resource in resources if isinstance(resources, list) else [resources]:
                text = _flatten(resource)
                if "*" in text:
                    yield text


def _flatten(node: Any) -> str:
    """Render an intrinsic as cdk-nag does in its finding ids."""
    if isinstance(node, str):
        return node.replace("${", "<").replace("}", ">")
    match node:
        case {"Fn::Join": [delimiter, items]}:
            return str(delimiter).join(_flatten(item) for item in items)
        case {"Fn::Sub": text}:
            return _flatten(text)
        case {"Fn::GetAtt": [resource, attribute]}:
            return f"<{_flatten(resource)}.{_flatten(attribute)}>"
        case {"Fn::ImportValue": value}:
            return _flatten(value)
        case {"Ref": name}:
            return f"<{_flatten(name)}>"
    return json.dumps(node, separators=(",", ":"), ensure_ascii=False)
