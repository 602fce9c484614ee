"""All guard rails, and the documentation's page of them: ``python -m tests.constructs.guard_rails.table`` writes it."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
import textwrap
from pathlib import Path

import aws_cdk as cdk

from tests.constructs import guard_rails
from tests.constructs.guard_rails.rail import GuardRail

__all__ = ["PAGE", "RAILS", "error_of", "render"]

PAGE = Path(__file__).parents[3] / "docs" / "guard-rails.md"
_TOOLS = ("rail", "table")


def _collect() -> tuple[GuardRail, ...]:
    areas = sorted(module.name for module in pkgutil.iter_modules(guard_rails.__path__) if module.name not in _TOOLS)
    return tuple(rail for area in areas for rail in importlib.import_module(f"{guard_rails.__name__}.{area}").RAILS)


RAILS = _collect()


def error_of(rail: GuardRail) -> Exception | None:
    """The error that the wrong configuration gets."""
    app = cdk.App()
    stack = cdk.Stack(app, "Stack", env=cdk.Environment(account="123456789012", region="eu-central-1"))
    try:
        rail.wrong(stack)
        app.synth()
    except Exception as error:
        return error
    return None


def render() -> str:
    """The page."""
    lines = [
        "# Guard rails",
        "",
        "Configurations that are known to fail, refused while the app is synthesized instead of minutes later. Each error says what is",
        "wrong, the value, what is allowed and what to do. A test builds every row, wrong and right.",
        "",
    ]
    for rail in RAILS:
        error = error_of(rail)
        lines += [f"## {rail.name}", "", rail.why, "", "```text", f"{type(error).__name__}: {error}", "```", ""]
        lines += ["```python", *_source(rail.wrong), "```", "", "Instead:", "", "```python", *_source(rail.fixed), "```", ""]
    return "\n".join(lines)


def _source(build: object) -> list[str]:
    """The statements of a builder function, without its head."""
    source = textwrap.dedent(inspect.getsource(build))  # type: ignore[arg-type]
    return textwrap.dedent(source.partition(":\n")[2]).rstrip().splitlines()


if __name__ == "__main__":
    PAGE.write_text(render(), "utf-8")
    sys.stderr.write(f"wrote {PAGE.name}: {len(RAILS)} guard rails\n")
