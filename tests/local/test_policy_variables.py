"""Policy variables, pure: substitution, escapes, defaults and matching."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mme_local.policy_variables import NOTHING, literal, pattern_matches, substitute, substitute_all

TEXT = st.text(st.sampled_from(string.ascii_letters + string.digits + "/-*?$ä"), max_size=20)


def resolver(**values):
    return lambda key: values.get(key.replace("aws:PrincipalTag/", ""))


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("models/${aws:PrincipalTag/tenant}/*", "acme", "models/acme/*"),
        ("${ aws:PrincipalTag/tenant }", "acme", "acme"),
        ("${aws:PrincipalTag/tenant, 'nobody'}", None, "nobody"),
        ("${aws:PrincipalTag/tenant,'nobody'}", "acme", "acme"),
        ("${aws:PrincipalTag/tenant}", ["acme"], "acme"),
        ("${aws:PrincipalTag/tenant}", ["acme", "globex"], None),
        ("${aws:PrincipalTag/tenant}", None, None),
        ("a/${aws:PrincipalTag/tenant}/${aws:PrincipalTag/missing}", "acme", None),
        ("no variable, {braces} and $", "acme", "no variable, {braces} and $"),
        ("${*}${?}${$}", None, "*?$"),
    ],
)
def test_variables_are_substituted_or_match_nothing(text, value, expected):
    result = substitute(text, resolver(tenant=value))
    assert (result if result is None else literal(result)) == expected


def test_wildcards_that_a_value_brings_are_characters():
    resource = substitute("arn:aws:s3:::b/${aws:PrincipalTag/tenant}/*", resolver(tenant="*"))
    assert pattern_matches("arn:aws:s3:::b/*/k", resource)
    assert not pattern_matches("arn:aws:s3:::b/acme/k", resource)


@given(tenant=TEXT, key=TEXT)
def test_a_substituted_value_matches_exactly_itself(tenant, key):
    resource = substitute("b/${aws:PrincipalTag/tenant}/*", resolver(tenant=tenant))
    assert pattern_matches(f"b/{tenant}/{key}", resource)
    if "/" not in tenant:
        assert pattern_matches(f"b/{key}/x", resource) == (key == tenant or key.startswith(f"{tenant}/"))


@given(value=TEXT, pattern=TEXT)
def test_matching_is_that_of_shells_without_classes(value, pattern):
    from fnmatch import fnmatchcase

    assert pattern_matches(value, pattern) == fnmatchcase(value, pattern)


def test_a_list_keeps_its_length_and_nothing_matches_no_arn():
    result = substitute_all(["a", "${missing}"], resolver())
    assert result == ["a", NOTHING]
    assert not pattern_matches("arn:aws:s3:::b/k", NOTHING)
    assert not pattern_matches("*", NOTHING)
