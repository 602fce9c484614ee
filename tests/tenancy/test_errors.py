from __future__ import annotations

import inspect
import json

import pytest

from mme_facts.problems import PROBLEMS
from mme_tenancy import errors
from mme_tenancy.errors import InvalidRequestError, PayloadTooLargeError, TenancyError, WriteConflictError

CLASSES = [
    value for _, value in inspect.getmembers(errors, inspect.isclass) if issubclass(value, TenancyError) and value is not TenancyError
]


def test_every_class_is_a_row_of_the_table_of_its_own():
    rows = [error.problem for error in CLASSES]
    assert all(PROBLEMS[row.slug] is row for row in rows)
    assert len({row.slug for row in rows}) == len(CLASSES) > 15


def test_every_class_is_exported():
    assert {error.__name__ for error in CLASSES} | {"TenancyError"} == set(errors.__all__)


def test_a_document_names_field_value_and_what_is_allowed():
    document = InvalidRequestError.of_field("framework", "tf", ["xgboost"]).document()
    assert document == {
        "type": "urn:mme:problem:invalid-request",
        "title": "The request is not valid",
        "status": 400,
        "detail": "framework 'tf' is not allowed: use xgboost",
        "field": "framework",
        "value": "tf",
        "allowed": ["xgboost"],
    }


@pytest.mark.parametrize("value", ["x" * 5000, ["x" * 5000], {"a": "x" * 5000}, 10**4000])
def test_a_long_value_is_cut_where_it_is_shown(value):
    document = InvalidRequestError.of_field("f", value, "less").document()
    assert len(json.dumps(document)) < 600


def test_a_document_without_a_field_has_no_value():
    assert set(WriteConflictError("detail").document()) == {"type", "title", "status", "detail"}


def test_too_large_names_the_limit():
    document = PayloadTooLargeError.of_limit("body", 11, 10).document()
    assert (document["status"], document["allowed"]) == (413, "at most 10 bytes")
