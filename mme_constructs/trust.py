"""Who may assume a role: named principals, never anybody."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import aws_iam as iam

from mme_constructs.errors import TrustError

__all__ = ["check_trusted"]


def check_trusted(trusted: Sequence[iam.IPrincipal], *, doing: str) -> None:
    """Refuse a role that nobody or anybody could assume, conditions or not.

    Args:
        trusted: who may assume it.
        doing: what whoever assumes it does, for the error's text, such as ``open a tenant's session``.

    Raises:
        TrustError: ``trusted`` is empty, or one of them is everybody.
    """
    allowed = "named principals, such as a role or iam.ArnPrincipal"
    if not trusted:
        raise TrustError(f"Nobody could {doing}", value=[], allowed=allowed, fix="Pass the role that signs people in")
    for principal in trusted:
        named = [name for names in principal.policy_fragment.principal_json.values() for name in names]
        if isinstance(principal, iam.StarPrincipal | iam.AnyPrincipal) or "*" in named or not named:
            raise TrustError(f"Anybody could {doing}", value=type(principal).__name__, allowed=allowed, fix="Name the principals")
