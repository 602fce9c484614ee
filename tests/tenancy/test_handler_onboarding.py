from __future__ import annotations

import hashlib
import json

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError, ReadTimeoutError

from mme_tenancy.activation import Activator
from mme_tenancy.handlers.onboarding import Onboarding
from mme_tenancy.registration import Registrar
from mme_tenancy.registry import Change
from mme_tenancy.retirement import Retirer
from mme_tenancy.testing import MemoryIdempotencyStore, MemoryRegistry, MemorySigner
from mme_tenancy.versions import Reason, State

NOW = "2026-11-29T12:00:00.000Z"
SHA256 = "0123456789abcdef" * 4
VERSION = f"v1-{SHA256[:12]}"


@pytest.fixture
def registry():
    return MemoryRegistry()


@pytest.fixture
def store():
    return MemoryIdempotencyStore()


@pytest.fixture
def signer(clock):
    return MemorySigner(clock)


@pytest.fixture
def api(registry, store, clock, pool, signer):
    registrar = Registrar(registry, signer, [pool], clock, lambda: 0.5)
    activator = Activator(registry, [pool], clock, lambda: 0.5)
    retirer = Retirer(registry, clock, lambda: 0.5, grace_seconds=86_400)
    return Onboarding(registry, registrar, activator, retirer, store, 10_000_000, clock)


@pytest.fixture
def call(api, load_event, context):
    """Sends an event file with changes; returns status, document and headers."""

    def call(name, **changes):
        answer = api(load_event(name, **changes), context)
        headers = {key: values[0] for key, values in answer["multiValueHeaders"].items()}
        assert not answer["isBase64Encoded"]
        assert headers["Content-Type"] == ("application/json" if answer["statusCode"] < 400 else "application/problem+json")
        document = json.loads(answer["body"])
        assert answer["statusCode"] < 400 or document["status"] == answer["statusCode"]
        return answer["statusCode"], document, headers

    return call


@pytest.fixture
def tenant(call):
    call("put_tenant")


def registration(**changes):
    sample = {"content_type": "text/csv", "body": "1,2"}
    return json.dumps({"sha256": SHA256, "size_bytes": 1234, "framework": "xgboost", "sample": sample, **changes}).encode()


def slug(document):
    return document["type"].removeprefix("urn:mme:problem:")


def test_a_tenant_is_created_once_and_shown(call, clock):
    status, created, _ = call("put_tenant")
    assert (status, created["tenant"], created["usage"]) == (201, "acme", {"models": 0, "stored_bytes": 0})
    clock.sleep(10)
    assert call("put_tenant")[:2] == (200, created)
    assert call("get_tenant")[:2] == (200, created)


def settings(**members):
    return json.dumps(members).encode()


def test_a_tenants_settings_are_changed_one_by_one(call):
    call("put_tenant", body=settings(quotas={"models": 1}, formats=["xgboost"]))
    status, document, _ = call("put_tenant", body=settings(tier="trusted", quotas={"requests_per_second": 5, "cold_loads": 2}))
    assert (status, document["tier"], document["formats"]) == (200, "trusted", ["xgboost"])
    assert document["quotas"] == {
        "models": 1,
        "stored_bytes": 107_374_182_400,
        "requests_per_second": 5,
        "in_flight": 64,
        "cold_loads": 2,
    }
    assert call("put_tenant", body=settings(formats=None))[1]["formats"] is None


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b'{"quota": 1}', "quota"),
        (b"[]", "body"),
        (b"{", "body"),
        (settings(tier="gold"), "tier"),
        (settings(tier=None), "tier"),
        (settings(quotas=None), "quotas"),
        (settings(quotas={"bytes": 1}), "quotas.bytes"),
        (settings(quotas={"models": -1}), "quotas.models"),
        (settings(quotas={"models": 1_000_001}), "quotas.models"),
        (settings(quotas={"stored_bytes": 1.5}), "quotas.stored_bytes"),
        (settings(quotas={"stored_bytes": 2**50 + 1}), "quotas.stored_bytes"),
        (settings(quotas={"requests_per_second": 0}), "quotas.requests_per_second"),
        (settings(quotas={"requests_per_second": True}), "quotas.requests_per_second"),
        (settings(quotas={"in_flight": 0}), "quotas.in_flight"),
        (settings(quotas={"cold_loads": 1_001}), "quotas.cold_loads"),
        (settings(formats=[]), "formats"),
        (settings(formats="xgboost"), "formats"),
        (settings(formats=["xgboost", "xgboost"]), "formats"),
        (settings(formats=["caffe"]), "formats[0]"),
    ],
)
def test_a_wrong_setting_is_named_with_what_is_allowed(call, body, field):
    status, document, _ = call("put_tenant", body=body)
    assert (status, document["field"]) == (400, field)
    assert document["allowed"]
    assert call("get_tenant")[0] == 404


def test_the_same_key_creates_a_tenant_once_and_refuses_other_settings(call):
    first = call("put_tenant", headers={"Idempotency-Key": "k-1"})
    again = call("put_tenant", headers={"Idempotency-Key": "k-1"}, body=b"{}")
    assert (first[0], again[0], again[2]["Idempotency-Replayed"]) == (201, 201, "true")
    status, document, _ = call("put_tenant", headers={"Idempotency-Key": "k-1"}, body=settings(tier="trusted"))
    assert (status, slug(document)) == (409, "idempotency-conflict")


def test_a_full_quota_and_a_format_that_is_not_allowed_are_told_apart(call):
    call("put_tenant", body=settings(quotas={"stored_bytes": 2000}))
    assert call("register")[0] == 201
    status, document, _ = call("register", body=registration(sha256="a" * 64))
    assert (status, slug(document), document["field"]) == (409, "quota-exceeded", "quotas.stored_bytes")
    assert (document["value"], document["allowed"]) == (2468, "at most 2000")
    assert call("get_tenant")[1]["usage"] == {"models": 1, "stored_bytes": 1234}


@pytest.mark.parametrize("tenant", ["ACME", "-acme", "a" * 64, "acme.corp", "acme%2Fevil", "acme/evil", "a\nb", "a?b", "a#b", "\x80"])
def test_a_tenant_id_outside_the_grammar_is_refused(call, tenant):
    for name in ("put_tenant", "get_tenant", "list_models", "get_model", "list_versions"):
        status, document, _ = call(name, names={"tenant": tenant})
        assert (status, slug(document), document["field"]) == (400, "invalid-request", "tenant")
        assert "lower-case" in document["allowed"]


@pytest.mark.parametrize("name", ["get_tenant", "list_models", "get_model", "list_versions", "get_version", "register", "complete"])
def test_an_unknown_tenant_is_not_found(call, name):
    status, document, _ = call(name)
    assert (status, slug(document)) == (404, "tenant-not-found")


@pytest.mark.parametrize("name", ["get_model", "list_versions", "get_version", "complete"])
def test_an_unknown_model_is_not_found(call, tenant, name):
    status, document, _ = call(name)
    assert (status, slug(document)) == (404, "model-not-found")


@pytest.mark.parametrize(("version", "status"), [("v2-0123456789ab", 404), ("v1-000000000000", 404), ("v1", 400), ("1", 400)])
def test_an_unknown_version_is_not_found_and_a_malformed_one_refused(call, tenant, version, status):
    call("register")
    assert call("get_version", names={"version": version})[0] == status


def test_a_registration_answers_with_the_version_and_its_upload(call, tenant):
    status, document, headers = call("register")
    assert status == 201
    assert {key: document[key] for key in ("tenant", "model", "version", "state")} == {
        "tenant": "acme",
        "model": "iris",
        "version": VERSION,
        "state": "awaiting_upload",
    }
    assert set(document["upload"]) == {"method", "url", "headers", "parts", "expires_at"}
    assert "Idempotency-Replayed" not in headers


def test_a_registration_of_an_awaited_artifact_is_no_new_version(call, tenant):
    call("register")
    status, document, _ = call("register")
    assert (status, document["version"]) == (200, VERSION)


def test_a_registration_of_a_stored_artifact_is_a_conflict(call, tenant, registry):
    call("register")
    for state in (State.INSPECTING, State.STORED):
        version = registry.version("acme", "iris", 1)
        registry.write(Change(version, version.move(state, NOW)))
    status, document, _ = call("register")
    assert (status, slug(document)) == (409, "version-exists")
    assert VERSION in document["detail"]


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        (b"", 400, "body"),
        (b"not json", 400, "body"),
        (registration(sha256="x"), 400, "sha256"),
        (registration(size_bytes=10_000_001), 413, "size_bytes"),
        (registration(framework="pytorch"), 400, "framework"),
        (registration(sample={}), 400, "sample.content_type"),
    ],
)
def test_a_wrong_registration_names_the_field(call, tenant, body, status, field):
    got, document, _ = call("register", body=body)
    assert (got, document["field"]) == (status, field)
    assert document["allowed"]


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded", "application/jsonx", ""])
def test_a_body_that_is_said_to_be_no_json_is_refused(call, tenant, media_type):
    status, document, _ = call("register", headers={"content-type": media_type})
    assert (status, slug(document), document["field"]) == (415, "unsupported-media-type", "Content-Type")
    assert document["allowed"] == ["application/json"]


@pytest.mark.parametrize("media_type", ["application/json", "Application/JSON; charset=utf-8"])
def test_json_may_be_said_in_any_case_with_parameters(call, tenant, media_type):
    assert call("register", headers={"content-type": media_type})[0] == 201


def test_a_call_without_a_body_may_say_what_it_likes_about_it(call):
    assert call("put_tenant", headers={"Content-Type": "text/plain"})[0] == 201


def test_a_body_that_is_no_base64_is_refused(api, load_event, context):
    event = load_event("register") | {"body": "&&&"}
    assert api(event, context)["statusCode"] == 400


def test_a_large_artifact_gets_an_upload_in_parts(call, tenant):
    upload = call("register", body=registration(size_bytes=9_000_000))[1]["upload"]
    assert (upload["url"], [(part["number"], part["offset"], part["uploaded"]) for part in upload["parts"]]) == (
        None,
        [(1, 0, False), (2, 8_388_608, False)],
    )
    status, document, _ = call("complete")
    assert (status, slug(document), document["field"], document["value"]) == (409, "upload-incomplete", "parts", "1, 2")


def test_a_completed_upload_shows_its_version_and_again_after_it_went_on(call, tenant, registry, signer):
    call("register")
    status, document, _ = call("complete")
    assert (status, slug(document)) == (409, "upload-incomplete")
    version = registry.version("acme", "iris", 1)
    signer.artifacts.put(version.name, b"x" * 1234)
    status, document, _ = call("complete", body=b"{}", headers={"Idempotency-Key": "k-1"})
    assert (status, document["version"], document["state"]) == (200, VERSION, "awaiting_upload")
    registry.write(Change(version, version.move(State.INSPECTING, NOW)))
    assert call("complete")[1]["state"] == "inspecting"
    again = call("complete", headers={"Idempotency-Key": "k-1"})
    assert (again[1], again[2]["Idempotency-Replayed"]) == (document, "true")
    other = call("complete", names={"version": "v2-0123456789ab"}, headers={"Idempotency-Key": "k-1"})
    assert (other[0], slug(other[1])) == (409, "idempotency-conflict")


@pytest.mark.parametrize(
    ("changes", "status", "field"),
    [({"body": b'{"parts": []}'}, 400, "parts"), ({"names": {"version": "1"}}, 400, "version"), ({"names": {"model": "-"}}, 400, "model")],
)
def test_a_wrong_completion_names_the_field(call, tenant, changes, status, field):
    call("register")
    got, document, _ = call("complete", **changes)
    assert (got, document["field"]) == (status, field)


def test_the_same_key_and_body_replay_the_first_answer(call, tenant, registry):
    first = call("register", headers={"Idempotency-Key": "k-1"})
    again = call("register", headers={"idempotency-key": "k-1"})
    assert again[:2] == first[:2]
    assert first[0] == 201
    assert again[2]["Idempotency-Replayed"] == "true"
    assert registry.model("acme", "iris").last_version == 1


def test_the_same_key_with_another_body_or_model_is_a_conflict(call, tenant):
    call("register", headers={"Idempotency-Key": "k-1"})
    for changes in ({"body": registration(notes="other")}, {"names": {"model": "wine"}}):
        status, document, _ = call("register", headers={"Idempotency-Key": "k-1"}, **changes)
        assert (status, slug(document)) == (409, "idempotency-conflict")


def test_the_same_key_of_another_tenant_is_another_key(call, tenant):
    call("put_tenant", names={"tenant": "other"})
    first = call("register", headers={"Idempotency-Key": "k-1"})
    other = call("register", headers={"Idempotency-Key": "k-1"}, names={"tenant": "other"})
    assert (other[0], other[1]["tenant"]) == (201, "other")
    assert first[1]["tenant"] == "acme"


def test_a_refused_request_leaves_its_key_free(call):
    assert call("register", headers={"Idempotency-Key": "k-1"})[0] == 404
    call("put_tenant")
    assert call("register", headers={"Idempotency-Key": "k-1"})[0] == 201


def test_a_key_outside_ascii_is_refused(call, tenant):
    status, document, _ = call("register", headers={"Idempotency-Key": "a b"})
    assert (status, document["field"]) == (400, "Idempotency-Key")


def test_a_version_shows_why_it_was_rejected(call, tenant, registry):
    call("register")
    for state, reasons in ((State.INSPECTING, ()), (State.REJECTED, (Reason("parent-path", "the path has '..'", "pack again", "../x"),))):
        version = registry.version("acme", "iris", 1)
        registry.write(Change(version, version.move(state, NOW, reasons=reasons)))
    status, document, _ = call("get_version", names={"version": VERSION})
    assert (status, document["state"], document["active"]) == (200, "rejected", False)
    assert document["reasons"] == [{"rule": "parent-path", "member": "../x", "detail": "the path has '..'", "fix": "pack again"}]


def test_a_model_shows_its_active_version(call, tenant):
    call("register")
    status, document, _ = call("get_model")
    assert (status, document["active_version"], document["last_version"]) == (200, None, 1)


def pages(call, name, member, limit):
    found, query = [], {"limit": limit}
    while True:
        status, document, _ = call(name, query=query)
        assert status == 200
        found.append(document[member])
        if "next" not in document:
            return found
        query = {"limit": limit, "cursor": document["next"]}


def test_models_are_listed_page_by_page(call, tenant):
    for model in ("c", "a", "b"):
        call("register", names={"model": model})
    assert [[model["model"] for model in page] for page in pages(call, "list_models", "models", "2")] == [["a", "b"], ["c"]]


def test_versions_are_listed_page_by_page_newest_first(call, tenant):
    for number in range(5):
        call("register", body=registration(sha256=hashlib.sha256(bytes([number])).hexdigest()))
    listed = [[version["version"].split("-")[0] for version in page] for page in pages(call, "list_versions", "versions", "2")]
    assert listed == [["v5", "v4"], ["v3", "v2"], ["v1"]]


def test_an_empty_list_has_no_next(call, tenant):
    assert call("list_models")[1] == {"models": []}


@pytest.mark.parametrize("limit", ["0", "201", "-1", "x", "", "1e2", "²"])
@pytest.mark.parametrize("name", ["list_models", "list_versions"])
def test_a_wrong_limit_names_what_is_allowed(call, tenant, name, limit):
    call("register")
    status, document, _ = call(name, query={"limit": limit})
    assert (status, document["field"], document["allowed"]) == (400, "limit", "a whole number from 1 to 200")


@pytest.mark.parametrize(
    "cursor", ["", "x", "!!!", "models.", "models.A", "models.iris\n", "versions.0", "versions.1000000", "other.a", "é"]
)
@pytest.mark.parametrize("name", ["list_models", "list_versions"])
def test_a_cursor_that_is_not_of_the_list_is_refused(call, tenant, name, cursor):
    call("register")
    status, document, _ = call(name, query={"cursor": cursor})
    assert (status, document["field"]) == (400, "cursor")


@pytest.mark.parametrize("path", ["/", "/tenants", "/tenants/acme/x", "/tenants/a/b/c/d/e/f", "/v1/tenants/acme"])
def test_an_unknown_path_is_not_found(api, load_event, context, path):
    answer = api(load_event("get_tenant") | {"path": path}, context)
    assert answer["statusCode"] == 404
    assert slug(json.loads(answer["body"])) == "not-found"


@pytest.mark.parametrize(
    ("name", "method", "allowed"),
    [
        ("get_tenant", "POST", "DELETE, GET, PUT"),
        ("list_models", "POST", "GET"),
        ("register", "PATCH", "GET, POST"),
        ("get_version", "PUT", "DELETE, GET"),
    ],
)
def test_an_unknown_method_is_refused_with_those_allowed(call, name, method, allowed):
    status, document, headers = call(name, method=method)
    assert (status, slug(document), headers["Allow"]) == (405, "method-not-allowed", allowed)


def test_an_unexpected_error_shows_no_details_and_is_logged(call, tenant, registry, log_lines):
    def broken(*names):
        raise RuntimeError("arn:aws:s3:::secret-bucket")

    registry.tenant = broken
    status, document, _ = call("get_tenant")
    assert (status, slug(document)) == (500, "internal-error")
    assert "secret" not in json.dumps(document)
    assert "secret-bucket" in log_lines("onboarding")[-2]["exception"]


def failing(code, status=400, reasons=()):
    metadata = {"HTTPStatusCode": status}
    return ClientError(
        {"Error": {"Code": code, "Message": "table registry"}, "ResponseMetadata": metadata, "CancellationReasons": reasons}, "Op"
    )


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (failing("ProvisionedThroughputExceededException"), (503, "unavailable", "2")),
        (failing("TransactionCanceledException", reasons=[{"Code": "None"}, {"Code": "ThrottlingError"}]), (503, "unavailable", "2")),
        (failing("InternalServerError", 500), (503, "unavailable", "2")),
        (failing("SlowDown", 503), (503, "unavailable", "2")),
        (ReadTimeoutError(endpoint_url="https://table.invalid"), (503, "unavailable", "2")),
        (EndpointConnectionError(endpoint_url="https://table.invalid"), (503, "unavailable", "2")),
        (failing("AccessDeniedException"), (500, "internal-error", None)),
        (failing("ResourceNotFoundException"), (500, "internal-error", None)),
        (NoCredentialsError(), (500, "internal-error", None)),
    ],
)
def test_a_service_that_is_busy_or_out_of_reach_is_worth_another_try_and_a_mistake_of_ours_is_not(call, tenant, registry, error, expected):
    def broken(*names):
        raise error

    registry.tenant = broken
    status, document, headers = call("get_tenant")
    assert (status, slug(document), headers.get("Retry-After")) == expected
    assert "registry" not in json.dumps(document)


def test_every_call_writes_one_line_with_who_called(call, log_lines):
    call("get_tenant")
    (entry,) = log_lines("onboarding")
    assert (entry["status"], entry["method"], entry["names"]) == (404, "GET", {"tenant": "acme"})
    assert entry["caller"] == "assumed-role/TenantAccess/ci-session"
