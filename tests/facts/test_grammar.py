"""The key grammar, by property tests: what it accepts round-trips, what it rejects names the rule."""

import re
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mme_facts.grammar import (
    ArtifactName,
    GrammarError,
    VersionId,
    check_model_id,
    check_prefix,
    check_sha256,
    check_tenant_id,
    component_name,
    component_name_prefix,
    tenant_pattern,
    tenant_tag_value,
)

ids = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", fullmatch=True)
digests = st.text("0123456789abcdef", min_size=64, max_size=64)
numbers = st.integers(1, 999_999)


@given(ids, ids, numbers, digests)
def test_every_artifact_name_round_trips_through_its_keys(tenant, model, number, sha256):
    name = ArtifactName(tenant, model, VersionId.of(number, sha256))
    assert ArtifactName.parse(name.target_model) == name
    assert ArtifactName.parse_incoming(name.incoming_key) == name
    assert name.artifact_key() == "models/" + name.target_model
    assert name.artifact_key("elsewhere/models/") == "elsewhere/models/" + name.target_model


@given(st.text(max_size=80))
def test_no_text_outside_the_rule_passes_as_an_id(text):
    allowed = set("abcdefghijklmnopqrstuvwxyz0123456789-")
    right = 1 <= len(text) <= 63 and set(text) <= allowed and not text.startswith("-") and not text.endswith("-")
    for check in (check_tenant_id, check_model_id):
        if right:
            assert check(text) == text
        else:
            with pytest.raises(GrammarError, match="lower-case letters"):
                check(text)


@pytest.mark.parametrize("value", ["", "Acme", "acme_1", "-acme", "acme-", "acme/evil", "..", "a" * 64, "acme\n", "ä", None, 7])
def test_rejects_an_id_and_names_the_field_and_the_value(value):
    with pytest.raises(GrammarError) as caught:
        check_tenant_id(value)
    assert caught.value.field == "tenant"
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize(
    "value", ["v0-0123456789ab", "v01-0123456789ab", "v1-0123456789AB", "v1-0123", "1-0123456789ab", "v1000000-0123456789ab", None]
)
def test_rejects_a_version_id(value):
    with pytest.raises(GrammarError, match="version"):
        VersionId.parse(value)


@pytest.mark.parametrize("value", ["A" * 64, "a" * 63, "g" * 64, "", None])
def test_rejects_a_digest(value):
    with pytest.raises(GrammarError, match="sha256"):
        check_sha256(value)


@pytest.mark.parametrize(
    "key",
    [
        "models/acme/iris/v1-0123456789ab.tar.gz",
        "incoming/acme/v1-0123456789ab.tar.gz",
        "incoming/acme/iris/more/v1-0123456789ab.tar.gz",
        "incoming/acme/iris/v1-0123456789ab.zip",
        "incoming/Acme/iris/v1-0123456789ab.tar.gz",
        "incoming/../iris/v1-0123456789ab.tar.gz",
    ],
)
def test_rejects_a_key_that_is_no_upload(key):
    with pytest.raises(GrammarError):
        ArtifactName.parse_incoming(key)


@pytest.mark.parametrize("value", ["models", "/models/", "models//", "models/a.tar.gz", "models/a.tar.gz/", "", "mod els/"])
def test_rejects_a_prefix_that_is_not_whole_folders(value):
    with pytest.raises(GrammarError, match="prefix"):
        check_prefix(value)


@given(ids, ids)
def test_the_pattern_of_a_tenant_matches_no_other_tenants_keys(tenant, other):
    target = ArtifactName(other, "iris", VersionId(1, "0123456789ab")).target_model
    assert fnmatchcase(target, tenant_pattern(tenant)) == (tenant == other)


def test_the_pattern_takes_a_policy_variable_but_no_wildcard():
    assert tenant_pattern("${aws:PrincipalTag/tenant}") == "${aws:PrincipalTag/tenant}/*"
    with pytest.raises(GrammarError):
        tenant_pattern("*")


@given(ids, ids, ids)
def test_a_components_name_holds_digests_only(endpoint, tenant, model):
    name = component_name(endpoint, tenant, model)
    assert re.fullmatch(r"c[0-9a-f]{10}-[0-9a-f]{32}", name)
    assert name.startswith(component_name_prefix(endpoint))


@given(ids.filter(lambda tenant: len(tenant) < 60), ids)
def test_components_of_tenants_with_the_same_beginning_share_their_endpoints_prefix_alone(tenant, model):
    prefix = component_name_prefix("dedicated")
    one, other = (component_name("dedicated", whose, model).removeprefix(prefix) for whose in (tenant, f"{tenant}-x"))
    assert one[:16] != other[:16]


@pytest.mark.parametrize(("tenant", "model"), [("Acme", "x"), ("acme", "../x"), ("", "x")])
def test_components_outside_the_grammar_have_no_name(tenant, model):
    with pytest.raises(GrammarError):
        component_name("dedicated", tenant, model)


def test_a_tag_equals_a_tenant_or_a_policy_variable_and_no_pattern():
    assert tenant_tag_value("acme") == "acme"
    assert tenant_tag_value("${aws:PrincipalTag/tenant}") == "${aws:PrincipalTag/tenant}"
    with pytest.raises(GrammarError):
        tenant_tag_value("acme*")
