"""What a construct asks of its stack again and again, without a call to CDK's process for each question."""

from __future__ import annotations

from functools import cache

import aws_cdk as cdk
from constructs import IConstruct

__all__ = ["is_token", "minutes", "share_stack", "stack_of"]

_KEPT_AS = "_mme_stack"
_TOKEN_MARKER = "${Token["  # noqa: S105 - how CDK marks a token inside a text (aws-cdk-lib, Tokens)


def stack_of(construct: IConstruct, *, within: IConstruct | None = None) -> cdk.Stack:
    """The stack of a construct; asked once, then remembered with the construct's object.

    Args:
        construct: whose stack.
        within: a construct of the same stack, such as its parent, that may know already.
    """
    if isinstance(construct, cdk.Stack):
        return construct
    known = vars(construct).get(_KEPT_AS)
    if not isinstance(known, cdk.Stack):
        known = cdk.Stack.of(construct) if within is None else stack_of(within)
        vars(construct)[_KEPT_AS] = known
    return known


def share_stack(stack: cdk.Stack, *constructs: IConstruct) -> None:
    """Remember that the constructs are in ``stack``."""
    for construct in constructs:
        vars(construct)[_KEPT_AS] = stack


def is_token(value: str) -> bool:
    """Whether a text holds a value that only the deployment knows; as ``cdk.Token.is_unresolved``, which asks CDK's process."""
    return _TOKEN_MARKER in value


@cache
def minutes(count: int) -> cdk.Duration:
    """One object for each length."""
    return cdk.Duration.minutes(count)
