"""Type-checked only: a user's test checks a container of theirs."""

from __future__ import annotations

import asyncio

from mme_local.conformance import (
    DIFFERENCES,
    RULES,
    Difference,
    Outcome,
    Report,
    Result,
    Rule,
    Subject,
    UnreachableError,
    check_container,
    check_container_async,
)

given: list[str] = ["/models/a", "/models/b"]
container: Subject = Subject("http://127.0.0.1:8080", models=given, broken="/models/broken", payload=b"1,2", content_type="text/csv")
known: tuple[Difference, ...] = DIFFERENCES
rules: tuple[Rule, ...] = RULES
try:
    report: Report = check_container(container, server="mms", only=[rules[0].id, known[0].rule])
    again: Report = asyncio.run(check_container_async(container))
except UnreachableError as error:
    raise SystemExit(str(error)) from error
broken: list[Result] = report.broken
assert all(result.outcome is Outcome.BROKEN for result in broken)
assert report.conforms == again.conforms
