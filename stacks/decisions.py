"""Acknowledgements that several stacks share."""

from __future__ import annotations

__all__ = ["INLINE_POLICIES", "NO_FIREWALL"]

INLINE_POLICIES = {
    "NIST.800.53.R5-IAMNoInlinePolicy": "Each policy belongs to one role and shares its life; a managed policy could be attached elsewhere."
}
NO_FIREWALL = "No anonymous caller reaches a function: every method demands a signature, and the stage throttles."
