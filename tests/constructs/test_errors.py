from __future__ import annotations

import pytest

from mme_constructs import errors
from mme_constructs.errors import ConfigurationError

CLASSES = [getattr(errors, name) for name in errors.__all__]


@pytest.mark.parametrize("error", CLASSES)
def test_every_error_is_a_configuration_error_that_says_what_is_wrong_allowed_and_to_do(error):
    raised = error("The thing is wrong", value="x", allowed="y or z", fix="Use y")
    assert isinstance(raised, ConfigurationError)
    assert isinstance(raised, ValueError)
    assert str(raised) == "The thing is wrong: got 'x'; allowed: y or z. Use y."
    assert raised.value == "x"


def test_every_error_has_a_code_of_its_own():
    assert len({error.code for error in CLASSES}) == len(CLASSES)
