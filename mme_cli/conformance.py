"""``mme conformance``: what the suite is told, and how its report is shown."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from mme_cli.console import stderr
from mme_cli.errors import CommandError

if TYPE_CHECKING:
    from rich.console import Console

    from mme_local.conformance import Report, Subject

__all__ = ["broken_text", "examine_container", "print_report", "subject_of"]

_STYLES = {"kept": "green", "broken": "red", "allowed": "yellow", "not checked": "dim"}


def subject_of(
    url: str,
    *,
    models: Sequence[str],
    broken: str | None,
    too_large: str | None,
    fill: int,
    payload: Path | None,
    content_type: str,
    accept: str | None,
    timeout: float,
) -> Subject:
    """What the suite is told; raises `ValueError` for a value that makes no sense, `CommandError` for a payload that cannot be read."""
    from mme_local.conformance import Subject

    try:
        body = None if payload is None else payload.read_bytes()
    except OSError as error:
        raise CommandError(f"the payload {payload} cannot be read: {error.strerror}") from None
    return Subject(url, models, broken, too_large, fill, body, content_type, accept, timeout)


def examine_container(subject: Subject, server: str | None, only: Sequence[str]) -> Report:
    """Run the suite, with the rule that is being checked on a terminal.

    Raises:
        CommandError: nothing answers at the address.
        ValueError: there is no such rule.
    """
    from mme_local.conformance import UnreachableError, check_container

    with stderr.status("checking") if stderr.is_terminal else nullcontext() as status:
        try:
            return check_container(
                subject, server=server, only=only, progress=lambda rule: status.update(rule.id) if status is not None else None
            )
        except UnreachableError as error:
            raise CommandError(str(error)) from None


def print_report(report: Report, console: Console) -> None:
    """One line a rule, then the counts."""
    table = Table(box=None, padding=(0, 1, 0, 0))
    table.add_column("rule", no_wrap=True)
    table.add_column("outcome", no_wrap=True)
    table.add_column("seen")
    for result in report.results:
        outcome = result.outcome.value
        told = result.detail if outcome != "broken" else f"{result.detail}\n{result.rule.text} ({result.rule.source})"
        table.add_row(result.rule.id, f"[{_STYLES[outcome]}]{outcome}[/]", told.replace("[", r"\["))
    console.print(table)
    console.print(", ".join(f"{count} {outcome}" for outcome, count in report.counts().items()), highlight=False)


def broken_text(report: Report) -> str:
    """Which rules are broken that the platform relies on."""
    return f"the container at {report.url} breaks {', '.join(result.rule.id for result in report.broken if result.rule.required)}"
