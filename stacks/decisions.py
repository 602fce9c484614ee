"""Acknowledgements that several stacks share."""

from __future__ import annotations

__all__ = ["INLINE_POLICIES"]

INLINE_POLICIES = {
    "NIST.800.53.R5-IAMNoInlinePolicy": "Each policy belongs to one role and shares its life; a managed policy could be attached elsewhere."
}
