"""How an onboarding ended, for one model: what the version became, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["DECIDED", "Outcome", "finding_lines", "finding_text", "outcome_of"]

DECIDED = frozenset({"active", "rejected", "expired", "retired", "purged"})
"""States in which the admission of a version has ended. So it has in ``ready`` where the route stays with another version."""
_ADMITTED = frozenset({"active", "ready"})


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of one onboarding.

    Attributes:
        version: the version's id; ``None``: there is none.
        state: the version's state; ``failed`` if it never got so far.
        reasons: why it was rejected: rule, member, detail, fix.
        warnings: what its owner should know although it was admitted, in the same form.
        timings: seconds each step took, by name.
        error: what went wrong on the way, in one sentence.
    """

    version: str | None
    state: str
    reasons: Sequence[Mapping[str, Any]] = ()
    warnings: Sequence[Mapping[str, Any]] = ()
    timings: Mapping[str, float] | None = None
    error: str | None = None

    @property
    def admitted(self) -> bool:
        """Whether the version can serve."""
        return self.error is None and self.state in _ADMITTED

    @property
    def text(self) -> str:
        """Why it is not admitted, in one line."""
        if self.error is not None:
            return self.error
        return "; ".join(finding_text(reason) for reason in self.reasons) or f"the version is {self.state}"

    def document(self) -> dict[str, Any]:
        """As JSON shows it."""
        return {
            "version": self.version,
            "state": self.state,
            "admitted": self.admitted,
            "reasons": list(self.reasons),
            "warnings": list(self.warnings),
            **({} if self.timings is None else {"timings": dict(self.timings)}),
            "error": self.error,
        }


def outcome_of(version: Mapping[str, Any]) -> Outcome:
    """The outcome that a version's document tells."""
    return Outcome(
        version["version"], version["state"], version.get("reasons") or (), version.get("warnings") or (), version.get("timings") or {}
    )


def finding_lines(version: Mapping[str, Any]) -> list[str]:
    """A version's findings, warnings and timings for people, line by line: each finding with member, rule and fix."""
    lines: list[str] = []
    for kind, member in (("rejected", "reasons"), ("warning", "warnings")):
        for finding in version.get(member) or ():
            lines.append(f"{kind}: {finding['rule']}")
            if finding.get("member"):
                lines.append(f"  member: {finding['member']}")
            lines += [f"  found: {finding['detail']}", f"  fix: {finding['fix']}"]
    if timings := version.get("timings"):
        steps = [f"{step.removesuffix('_seconds').replace('_', ' ')} {seconds:.2f} s" for step, seconds in timings.items()]
        lines.append(", ".join(steps))
    return lines


def finding_text(finding: Mapping[str, Any]) -> str:
    """A finding in one line: member, rule, what is wrong, how to mend it."""
    where = f"{finding['member']}: " if finding.get("member") else ""
    return f"{where}{finding['detail']} ({finding['rule']}); {finding['fix']}"
