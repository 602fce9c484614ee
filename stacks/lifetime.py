"""Whether an environment's data outlives its stacks: all that ``-c environment=local`` changes."""

from __future__ import annotations

from dataclasses import dataclass

import aws_cdk as cdk

__all__ = ["Lifetime"]

_ENVIRONMENTS = ("aws", "local")


@dataclass(frozen=True, slots=True)
class Lifetime:
    """What happens to data when a stack is deleted.

    Attributes:
        removal_policy: of bucket, table and logs.
        deletion_protection: of the table.
    """

    removal_policy: cdk.RemovalPolicy
    deletion_protection: bool

    @classmethod
    def of(cls, environment: str) -> Lifetime:
        """The lifetime in an environment, ``aws`` or ``local``; raises `ValueError` for another."""
        if environment not in _ENVIRONMENTS:
            raise ValueError(f"-c environment={environment} is not allowed: use one of {', '.join(_ENVIRONMENTS)}, or leave it out for aws")
        if environment == "local":
            return cls(cdk.RemovalPolicy.DESTROY, deletion_protection=False)
        return cls(cdk.RemovalPolicy.RETAIN, deletion_protection=True)
