"""The contract of multi-model containers as a test suite that runs against any container (`check_container`, ``mme conformance``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mme_facts.lazy import attach

if TYPE_CHECKING:
    from mme_local.conformance.catalogue import RULES
    from mme_local.conformance.differences import DIFFERENCES, Difference
    from mme_local.conformance.rules import Outcome, Rule
    from mme_local.conformance.subject import Subject
    from mme_local.conformance.suite import Report, Result, UnreachableError, check_container, check_container_async

__all__ = [
    "DIFFERENCES",
    "RULES",
    "Difference",
    "Outcome",
    "Report",
    "Result",
    "Rule",
    "Subject",
    "UnreachableError",
    "check_container",
    "check_container_async",
]

_MODULES = {
    "catalogue": ("RULES",),
    "differences": ("DIFFERENCES", "Difference"),
    "rules": ("Outcome", "Rule"),
    "subject": ("Subject",),
    "suite": ("Report", "Result", "UnreachableError", "check_container", "check_container_async"),
}

__getattr__, __dir__ = attach(__name__, {name: module for module, names in _MODULES.items() for name in names})
