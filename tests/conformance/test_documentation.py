"""The documentation shows the rules and differences that the suite uses."""

from pathlib import Path

import pytest

from mme_local.conformance.tables import differences_table, rules_table

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(("name", "table"), [("rules", rules_table), ("differences", differences_table)])
def test_the_tables_are_those_of_the_suite(name, table):
    shown = (DOCS / f"conformance-{name}.md").read_text("utf-8").strip()
    assert shown == table(), f"write docs/conformance-{name}.md anew with mme_local.conformance.tables.{name}_table"
