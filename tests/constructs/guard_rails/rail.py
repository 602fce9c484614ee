"""What a guard rail is: a configuration that is known to fail, the error it gets, and the configuration that works."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import aws_cdk as cdk

from mme_constructs.errors import ConfigurationError

__all__ = ["GuardRail"]


@dataclass(frozen=True, slots=True)
class GuardRail:
    """One row of the table in the documentation.

    Attributes:
        name: the configuration that fails, such as ``GPU without Triton``.
        why: one sentence: what would happen without the rail, with the source of the rule.
        wrong: builds it into an empty stack; it raises, at once or when the app is synthesized.
        fixed: builds the same with the fix; it synthesizes.
        error: the error's class.
    """

    name: str
    why: str
    wrong: Callable[[cdk.Stack], object]
    fixed: Callable[[cdk.Stack], object]
    error: type[ConfigurationError]
