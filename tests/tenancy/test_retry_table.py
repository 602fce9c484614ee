"""The retry table of the docs is the one of the code."""

from __future__ import annotations

from pathlib import Path

from mme_facts.problems import PROBLEMS
from mme_tenancy.retries import RULES, Failure

PAGE = Path(__file__).parents[2] / "docs" / "tasks" / "invoke.md"
MEANING = {
    Failure.NOT_READY: "429 `ModelNotReadyException`: the model is being loaded",
    Failure.THROTTLED: "400 or 429 throttling, also without a code or message",
    Failure.UNAVAILABLE: "500, 503, 504, 530, or no connection",
    Failure.CONNECTION_LOST: "the connection broke after the request was sent",
    Failure.WORKER_DIED: "424 `ModelError`: the container answered 500, 503 or 507",
    Failure.MODEL_FAILED: "424 `ModelError`: another 5xx of the container",
    Failure.INPUT_REJECTED: "424 `ModelError`: a 4xx of the container",
    Failure.TIMED_OUT: "no answer before the client's time limit",
    Failure.CONTAINER_SILENT: "424 `ModelError`: the container did not answer within 60 s",
    Failure.TARGET_GONE: "400 `ValidationError`: endpoint, variant, component or artifact is not there",
    Failure.REFUSED: "any other 4xx: validation, access denied",
}


MARKS = {"may have run": "may_have_run", "from the budget": "budgeted", "as long again": "as_long_again"}


def _row(failure):
    rule = RULES[failure]
    patient = rule.retries >= 1000
    attempts = "until the deadline" if patient else str(1 + rule.retries)
    waits = f"{rule.base_seconds:g} s to {rule.cap_seconds:g} s" if rule.retries else "-"
    whole = sum(rule.wait_seconds(retry, 0.5) for retry in range(0 if patient else rule.retries))
    marks = [mark for mark, field in MARKS.items() if getattr(rule, field)]
    problem = rule.failed().problem
    total = "until the deadline" if patient else f"{whole:.3g} s" if rule.retries else "-"
    return f"| {MEANING[failure]} | {attempts} | {waits} | {total} | {', '.join(marks) or '-'} | {problem.status} `{problem.slug}` |"


def table():
    head = ["| what happened | requests | each wait | in all | | the caller gets in the end |", "|---|---|---|---|---|---|"]
    return "\n".join([*head, *map(_row, Failure)])


def test_the_page_shows_the_table_of_the_code():
    assert table() in PAGE.read_text()


def test_the_page_names_every_error_that_the_document_has():
    reference = (PAGE.parents[1] / "reference" / "api.md").read_text()
    documented = reference.partition("{ #invoke_model }")[2].partition("\n## ")[0]
    told = PAGE.read_text().partition("\n## Errors\n")[2].partition("\n## ")[0]
    slugs = {slug for slug in PROBLEMS if f"`{slug}`" in documented}
    assert len(slugs) > 10
    for row in (line.split("|") for line in told.splitlines() if line.startswith("| ") and line[2].isdigit()):
        of_row = {slug for slug in slugs if f"`{slug}`" in row[2]}
        assert {str(PROBLEMS[slug].status) for slug in of_row} == set(row[1].strip().split(", "))
        slugs -= of_row
    assert slugs == set()
