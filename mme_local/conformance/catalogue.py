"""All rules, in the order in which they are checked."""

from __future__ import annotations

from mme_local.conformance import invocations, loads, memory, models, server
from mme_local.conformance.rules import Rule

__all__ = ["RULES"]

RULES: tuple[Rule, ...] = tuple(
    value for module in (server, loads, models, invocations, memory) for value in vars(module).values() if isinstance(value, Rule)
)
