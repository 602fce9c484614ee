"""The rules and the differences as tables of the documentation."""

from __future__ import annotations

from mme_local.conformance.catalogue import RULES
from mme_local.conformance.differences import DIFFERENCES

__all__ = ["differences_table", "rules_table"]


def rules_table() -> str:
    """All rules, in Markdown."""
    lines = ["| rule | what a container does | relied on | needs | source |", "|---|---|---|---|---|"]
    for rule in RULES:
        needs = ", ".join(f"`--{name.removesuffix('s').replace('_', '-')}`" for name in rule.needs) or "-"
        lines.append(f"| `{rule.id}` | {rule.text} | {'yes' if rule.required else '-'} | {needs} | {rule.source} |")
    return "\n".join(lines)


def differences_table() -> str:
    """All differences, in Markdown."""
    lines = ["| server | rule | what it does instead | consequence |", "|---|---|---|---|"]
    lines += [
        f"| {item.server} | `{item.rule}` | {item.seen}{' (so the rule is not checked)' if item.harmful else ''} | {item.consequence} |"
        for item in DIFFERENCES
    ]
    return "\n".join(lines)
