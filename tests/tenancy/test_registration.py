from __future__ import annotations

import base64
import contextlib
import hashlib
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mme_facts.grammar import VersionId
from mme_facts.limits import SAMPLE_BODY_BYTES
from mme_tenancy.errors import (
    InvalidRequestError,
    PayloadTooLargeError,
    TenancyError,
    TenantNotFoundError,
    VersionExistsError,
    WriteConflictError,
)
from mme_tenancy.registration import UPLOAD_SECONDS, Registrar, parse_registration
from mme_tenancy.registry import Change
from mme_tenancy.sweep import Step, SweepRules, next_step
from mme_tenancy.tenants import Tenant
from mme_tenancy.testing import MemoryRegistry, MemorySigner
from mme_tenancy.uploads import GREATEST_UPLOAD_BYTES
from mme_tenancy.versions import State

SHA256 = hashlib.sha256(b"artifact").hexdigest()
GOOD = {
    "sha256": SHA256,
    "size_bytes": 1000,
    "framework": "xgboost",
    "sample": {"content_type": "text/csv", "body": "1,2", "accept": "text/csv"},
    "notes": "first",
}
NOW = "2026-11-29T12:00:00.000Z"


def parse(document, max_artifact_bytes=10_000):
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return parse_registration(body, max_artifact_bytes=max_artifact_bytes, frameworks=("xgboost",))


def changed(path, value):
    document = json.loads(json.dumps(GOOD))
    *parents, last = path.split(".")
    place = document
    for parent in parents:
        place = place[parent]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return document


def test_a_right_body_is_read():
    registration = parse(GOOD)
    assert (registration.sha256, registration.size_bytes, registration.notes) == (SHA256, 1000, "first")
    assert (registration.sample.content_type, registration.sample.body, registration.sample.accept) == ("text/csv", b"1,2", "text/csv")


def test_a_sample_may_be_binary():
    sample = {"content_type": "application/x-npy", "body": base64.b64encode(b"\x00\xff").decode(), "encoding": "base64"}
    assert parse(changed("sample", sample)).sample.body == b"\x00\xff"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("sha256", ...),
        ("sha256", SHA256.upper()),
        ("sha256", SHA256[:-1]),
        ("sha256", 7),
        ("size_bytes", ...),
        ("size_bytes", 0),
        ("size_bytes", -1),
        ("size_bytes", "1000"),
        ("size_bytes", 1000.5),
        ("size_bytes", True),
        ("framework", ...),
        ("framework", "tensorflow"),
        ("framework", ["xgboost"]),
        ("framework", {}),
        ("sample", ...),
        ("sample", "1,2"),
        ("sample.content_type", ...),
        ("sample.content_type", "csv"),
        ("sample.content_type", "text/csv\n;a"),
        ("sample.content_type", "text/csv\u00a0;a"),
        ("sample.content_type", "text/csv" + " " * 2000 + ";a"),
        ("sample.content_type", "text/csv\r\nX-Evil: 1"),
        ("sample.content_type", "text/csv\n"),
        ("sample.accept", "*"),
        ("sample.body", ...),
        ("sample.body", ""),
        ("sample.body", 5),
        ("sample.encoding", "latin-1"),
        ("sample.encoding", None),
        ("sample.extra", 1),
        ("notes", 5),
        ("notes", "x" * 1001),
        ("owner", "me"),
    ],
)
def test_a_wrong_field_is_named_with_what_is_allowed(field, value):
    with pytest.raises(InvalidRequestError) as caught:
        parse(changed(field, value))
    assert caught.value.field == field
    assert caught.value.allowed


def test_an_unknown_members_name_is_not_echoed_in_full():
    with pytest.raises(InvalidRequestError) as caught:
        parse({**changed("notes", "n"), "é" * 100_000: 1})
    assert len(json.dumps(caught.value.document())) < 5000


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_a_number_that_json_does_not_know_leaves_the_problem_readable(number):
    with pytest.raises(InvalidRequestError) as caught:
        parse_registration(b'{"size_bytes": %s}' % number.encode(), max_artifact_bytes=10, frameworks=["xgboost"])
    json.dumps(caught.value.document(), allow_nan=False)


def test_base64_that_is_none_names_the_body():
    with pytest.raises(InvalidRequestError, match="base64") as caught:
        parse(changed("sample", {"content_type": "text/csv", "body": "é!", "encoding": "base64"}))
    assert caught.value.field == "sample.body"


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b'"x"', b"\xff", b"[" * 200_000, b'{"notes": "\\ud800"}', b'{"size_bytes": ' + b"9" * 9000 + b"}"]
)
def test_a_body_that_is_no_json_object_is_refused(body):
    with pytest.raises(InvalidRequestError) as caught:
        parse(body)
    assert caught.value.field == "body"


def test_an_artifact_above_the_limit_is_refused_with_the_limit():
    with pytest.raises(PayloadTooLargeError, match="at most 10000 bytes") as caught:
        parse(changed("size_bytes", 10_001))
    assert caught.value.field == "size_bytes"
    assert parse(changed("size_bytes", 10_000)).size_bytes == 10_000


def test_no_setting_allows_more_than_an_upload_can_carry():
    with pytest.raises(PayloadTooLargeError, match=str(GREATEST_UPLOAD_BYTES)):
        parse(changed("size_bytes", GREATEST_UPLOAD_BYTES + 1), max_artifact_bytes=GREATEST_UPLOAD_BYTES * 2)


def test_a_sample_above_the_limit_is_refused_with_the_limit():
    with pytest.raises(PayloadTooLargeError, match=f"at most {SAMPLE_BODY_BYTES} bytes"):
        parse(changed("sample.body", "x" * (SAMPLE_BODY_BYTES + 1)))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(
    field=st.sampled_from(
        ["sha256", "size_bytes", "framework", "sample", "sample.content_type", "sample.body", "sample.encoding", "notes"]
    ),
    value=JSON,
)
def test_any_value_in_any_field_is_taken_or_refused_by_an_error_of_the_tree(field, value):
    outcome = None
    with contextlib.suppress(InvalidRequestError, PayloadTooLargeError):
        outcome = parse(changed(field, value))
    assert outcome is None or VersionId.of(1, outcome.sha256).number == 1


@given(body=st.binary(max_size=200))
def test_any_bytes_are_taken_or_refused_by_an_error_of_the_tree(body):
    with pytest.raises(TenancyError):
        parse(body)


@pytest.fixture
def registry():
    registry = MemoryRegistry()
    registry.write(Change(None, Tenant("acme", NOW, NOW)))
    return registry


@pytest.fixture
def registrar(registry, clock, pool):
    return Registrar(registry, MemorySigner(clock), [pool], clock, lambda: 0.5)


def finish(registry, number, *states):
    for state in states:
        version = registry.version("acme", "iris", number)
        registry.write(Change(version, version.move(state, NOW)))


def test_the_first_version_makes_the_model(registry, registrar):
    registered = registrar.register("acme", "iris", parse(GOOD))
    assert registered.created
    assert str(registered.version.id) == f"v1-{SHA256[:12]}"
    assert registered.version.state is State.AWAITING_UPLOAD
    assert registry.model("acme", "iris").last_version == 1
    assert registered.document()["upload"]["url"].endswith(f"incoming/acme/iris/v1-{SHA256[:12]}.tar.gz")


def test_versions_are_counted_within_the_model(registry, registrar):
    numbers = []
    for artifact in (b"a", b"b", b"c"):
        body = changed("sha256", hashlib.sha256(artifact).hexdigest())
        numbers.append(registrar.register("acme", "iris", parse(body)).version.number)
    other = registrar.register("acme", "wine", parse(GOOD)).version.number
    assert (numbers, other) == ([1, 2, 3], 1)


def test_an_unknown_tenant_cannot_register(registrar):
    with pytest.raises(TenantNotFoundError):
        registrar.register("nobody", "iris", parse(GOOD))


def test_an_artifact_that_is_awaited_gets_the_same_version_and_a_fresh_upload(registrar, clock):
    first = registrar.register("acme", "iris", parse(GOOD))
    clock.sleep(100)
    again = registrar.register("acme", "iris", parse(GOOD))
    assert again.version == first.version
    assert not again.created
    assert again.upload.expires_at > first.upload.expires_at


def test_an_upload_that_is_signed_anew_is_awaited_anew(registry, registrar, clock):
    registrar.register("acme", "iris", parse(GOOD))
    clock.sleep(24 * 3600 - 1)
    again = registrar.register("acme", "iris", parse(GOOD)).version
    assert registry.version("acme", "iris", 1) == again
    awaited = next_step(again, None, stored=False, now=clock.time() + UPLOAD_SECONDS, rules=SweepRules())
    assert awaited is Step.NOTHING, "the sweep lets it be for as long as the signed upload is good for"


def test_what_is_said_about_an_awaited_artifact_can_be_put_right(registry, registrar):
    registrar.register("acme", "iris", parse(GOOD))
    again = registrar.register("acme", "iris", parse(changed("size_bytes", 2000)))
    assert again.version.number == 1
    assert registry.version("acme", "iris", 1) == again.version
    assert registry.version("acme", "iris", 1).size_bytes == 2000


@pytest.mark.parametrize(
    "states",
    [
        (State.INSPECTING,),
        (State.INSPECTING, State.STORED),
        (State.INSPECTING, State.STORED, State.WARMING),
        (State.INSPECTING, State.STORED, State.WARMING, State.READY),
        (State.INSPECTING, State.STORED, State.WARMING, State.READY, State.ACTIVE),
    ],
)
def test_an_artifact_that_is_there_is_refused_by_naming_its_version(registry, registrar, states):
    registrar.register("acme", "iris", parse(GOOD))
    finish(registry, 1, *states)
    with pytest.raises(VersionExistsError, match=f"version v1-{SHA256[:12]}.*{states[-1].value}"):
        registrar.register("acme", "iris", parse(GOOD))
    assert registry.model("acme", "iris").last_version == 1


@pytest.mark.parametrize("states", [(State.EXPIRED,), (State.INSPECTING, State.REJECTED)])
def test_an_artifact_whose_version_ended_gets_a_new_number(registry, registrar, states):
    registrar.register("acme", "iris", parse(GOOD))
    finish(registry, 1, *states)
    again = registrar.register("acme", "iris", parse(GOOD))
    assert (again.version.number, again.created) == (2, True)
    assert registry.claim("acme", "iris", SHA256).number == 2


class ContendedRegistry(MemoryRegistry):
    """Somebody else takes a number right before each of the first writes."""

    def __init__(self, contended_writes):
        super().__init__()
        self.contended_writes = contended_writes

    def write(self, *changes, quotas=None):
        if len(changes) == 3 and self.contended_writes:
            self.contended_writes -= 1
            model = self.model("acme", "iris")
            super().write(Change(model, model.count_up(NOW)))
        super().write(*changes, quotas=quotas)


def contended(writes, clock, pool):
    registry = ContendedRegistry(0)
    registry.write(Change(None, Tenant("acme", NOW, NOW)))
    registrar = Registrar(registry, MemorySigner(clock), [pool], clock, lambda: 0.5)
    registrar.register("acme", "iris", parse(GOOD))
    registry.contended_writes = writes
    return registrar


def test_a_lost_race_for_a_number_is_tried_again(clock, pool):
    registrar = contended(3, clock, pool)
    body = changed("sha256", "a" * 64)
    assert registrar.register("acme", "iris", parse(body)).version.number == 5
    assert clock.slept == [0.02, 0.04, 0.08]


def test_a_race_that_is_always_lost_ends_with_a_conflict(clock, pool):
    registrar = contended(1000, clock, pool)
    with pytest.raises(WriteConflictError, match="try again"):
        registrar.register("acme", "iris", parse(changed("sha256", "a" * 64)))
    assert len(clock.slept) == 8


def test_only_frameworks_with_a_pool_can_be_registered(registry, clock, pool):
    def frameworks(*pools):
        return Registrar(registry, MemorySigner(clock), pools, clock, lambda: 0.5).frameworks

    assert frameworks(pool) == ("xgboost",)
    assert frameworks(replace(pool, framework="mxnet")) == ()


@given(tenant=st.text(max_size=70), model=st.text(max_size=70))
def test_any_ids_are_taken_by_the_grammar_or_refused_as_a_field(tenant, model):
    from mme_facts.environment import Pool
    from mme_tenancy.testing import FakeClock

    clock = FakeClock()
    registrar = Registrar(MemoryRegistry(), MemorySigner(clock), [Pool("p", "xgboost", "e", "v")], clock, lambda: 0.5)
    with pytest.raises((InvalidRequestError, TenantNotFoundError)) as caught:
        registrar.register(tenant, model, parse(GOOD))
    assert caught.value.field in {"tenant", "model"}
