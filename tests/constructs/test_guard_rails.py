"""Every guard rail: the wrong configuration gets its error, the fixed one synthesizes, and the documentation says the same."""

from __future__ import annotations

import re

import aws_cdk as cdk
import pytest

from tests.constructs.guard_rails import table


@pytest.mark.parametrize("rail", table.RAILS, ids=lambda rail: rail.name)
def test_the_wrong_configuration_gets_an_error_that_says_what_value_allowed_and_fix(rail):
    error = table.error_of(rail)
    assert type(error) is rail.error, repr(error)
    assert re.fullmatch(r".+: got .+; allowed: .+\. .+\.", str(error), re.DOTALL), str(error)


@pytest.mark.parametrize("rail", table.RAILS, ids=lambda rail: rail.name)
def test_the_fixed_configuration_synthesizes(rail, flags):
    app = cdk.App(context=flags)
    rail.fixed(cdk.Stack(app, "Stack", env=cdk.Environment(account="123456789012", region="eu-central-1")))
    assert app.synth().stacks


def test_names_are_unique_and_the_page_is_up_to_date():
    names = [rail.name for rail in table.RAILS]
    assert len(names) == len(set(names))
    assert table.PAGE.read_text("utf-8") == table.render(), "run `make docs`"
