"""Activation and deletion as the API answers them; what they do stands in ``test_activation`` and ``test_retirement``."""

from __future__ import annotations

import json

import pytest

from mme_tenancy.registry import Change
from mme_tenancy.retirement import CACHED_COPIES
from mme_tenancy.versions import State
from tests.tenancy.test_handler_onboarding import NOW, SHA256, VERSION, api, call, registry, signer, slug, store, tenant

__all__ = ["api", "call", "registry", "signer", "store", "tenant"]

PATH = (State.INSPECTING, State.STORED, State.WARMING, State.READY)


@pytest.fixture
def ready(call, tenant, registry):
    """Registers the n-th artifact of model iris and brings it to ``ready``; the version's id."""

    def ready(number):
        sha256 = f"{number:x}" * 64
        sample = {"content_type": "text/csv", "body": "1,2"}
        body = {"sha256": sha256, "size_bytes": 1234, "framework": "xgboost", "sample": sample}
        status, document, _ = call("register", body=json.dumps(body).encode())
        assert status == 201
        for state in PATH:
            version = registry.version("acme", "iris", number)
            registry.write(Change(version, version.move(state, NOW)))
        version = registry.version("acme", "iris", number)
        registry.write(Change(version, version.settle(NOW)))
        return document["version"]

    return ready


@pytest.fixture
def activate(call):
    def activate(version, canary=None, **changes):
        return call("activate", body=json.dumps({"version": version, **({"canary": canary} if canary else {})}).encode(), **changes)

    return activate


def test_a_model_is_rolled_forward_and_back_and_says_where_it_is(ready, activate, call):
    first, second = ready(1), ready(2)
    assert activate(first)[1]["active_version"] == first
    status, document, _ = activate(second)
    assert (status, document["active_version"], document["canary"]) == (200, second, None)
    assert call("get_model")[1] == document
    assert activate(second)[1] == document
    assert activate(first)[1]["active_version"] == first
    assert call("get_version", names={"version": second})[1]["state"] == "ready"


def test_a_canary_runs_beside_the_active_version_until_it_is_ended(ready, activate, call):
    first, second = ready(1), ready(2)
    activate(first)
    status, document, _ = activate(second, {"percent": 12.5})
    assert (status, document["active_version"], document["canary"]) == (200, first, {"version": second, "percent": 12.5})
    assert call("get_version", names={"version": second})[1]["active"] is True
    assert activate(second, {"percent": 0})[1]["canary"] is None


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"", "body"),
        (b"{}", "version"),
        (b'{"version": "1"}', "version"),
        (b'{"version": "v1-0123456789ab", "canary": 10}', "canary"),
        (b'{"version": "v1-0123456789ab", "canary": {}}', "canary.percent"),
        (b'{"version": "v1-0123456789ab", "canary": {"percent": 101}}', "canary.percent"),
        (b'{"version": "v1-0123456789ab", "canary": {"percent": -0.1}}', "canary.percent"),
        (b'{"version": "v1-0123456789ab", "canary": {"percent": 1e999}}', "canary.percent"),
        (b'{"version": "v1-0123456789ab", "canary": {"percent": true}}', "canary.percent"),
        (b'{"version": "v1-0123456789ab", "percent": 10}', "percent"),
    ],
)
def test_a_wrong_activation_names_the_field(call, tenant, body, field):
    status, document, _ = call("activate", body=body)
    assert (status, document["field"]) == (400, field)


def test_a_version_without_its_artifact_is_not_activated(call, tenant, activate):
    call("register")
    status, document, _ = activate(VERSION)
    assert (status, slug(document), document["allowed"]) == (409, "forbidden-move", ["ready", "active"])


def test_a_key_replays_an_activation_and_refuses_another(ready, activate):
    first, second = ready(1), ready(2)
    once = activate(first, headers={"Idempotency-Key": "k-1"})
    activate(second)
    again = activate(first, headers={"Idempotency-Key": "k-1"})
    assert (again[1], again[2]["Idempotency-Replayed"]) == (once[1], "true")
    assert slug(activate(second, headers={"Idempotency-Key": "k-1"})[1]) == "idempotency-conflict"


def test_a_retired_version_says_until_when_it_is_kept_and_what_becomes_of_copies(ready, call):
    version = ready(1)
    status, document, _ = call("delete_version", names={"version": version})
    assert (status, document["state"], document["cached_copies"]) == (200, "retired", CACHED_COPIES)
    assert document["purge_after"] > document["updated_at"]
    assert "only by eviction or when the fleet is replaced" in CACHED_COPIES
    assert call("delete_version", names={"version": version})[1] == document


def test_the_active_version_is_refused_unless_forced(ready, activate, call):
    version = ready(1)
    activate(version)
    status, document, _ = call("delete_version", names={"version": version})
    assert (status, slug(document)) == (409, "version-active")
    assert call("delete_version", names={"version": version}, query={"force": "yes"})[0] == 400
    assert call("delete_version", names={"version": version}, query={"force": "false"})[0] == 409
    assert call("delete_version", names={"version": version}, query={"force": "true"})[0] == 200
    assert call("get_model")[1]["active_version"] is None


def test_a_deleted_model_is_shown_but_not_listed_and_lives_again_with_a_new_version(ready, activate, call):
    activate(ready(1))
    status, document, _ = call("delete_model")
    assert (status, document["active_version"], document["retiring"]) == (200, None, False)
    assert document["retired_at"] is not None
    assert document["cached_copies"] == CACHED_COPIES
    assert call("delete_model")[1] == document
    assert call("list_models")[1]["models"] == []
    assert call("get_model")[1]["retired_at"] == document["retired_at"]
    version = ready(2)
    assert [model["model"] for model in call("list_models")[1]["models"]] == ["iris"]
    assert activate(version)[1]["active_version"] == version


def test_a_list_goes_on_behind_models_that_were_deleted(call, tenant):
    for model in ("a", "b", "c"):
        assert call("register", names={"model": model})[0] == 201
    for model in ("a", "b"):
        assert call("delete_model", names={"model": model})[0] == 200
    seen, query = [], {"limit": "1"}
    while query:
        page = call("list_models", query=query)[1]
        seen += [model["model"] for model in page["models"]]
        query = {"limit": "1", "cursor": page["next"]} if "next" in page else None
    assert seen == ["c"]


def test_a_deleted_tenant_is_shown_refused_and_begun_anew(ready, activate, call):
    activate(ready(1))
    status, document, _ = call("delete_tenant")
    assert (status, document["retiring"], document["cached_copies"]) == (200, False, CACHED_COPIES)
    assert document["deleted_at"] is not None
    assert call("delete_tenant")[1] == document
    assert call("get_tenant")[1]["deleted_at"] == document["deleted_at"]
    status, refused, _ = call("register", names={"model": "new"})
    assert (status, slug(refused)) == (410, "tenant-deleted")
    status, anew, _ = call("put_tenant")
    assert (status, anew["deleted_at"]) == (201, None)
    assert call("register")[0] == 201


def test_a_deletion_that_is_not_finished_says_so(ready, call, api, registry):
    ready(1)
    for number in range(2, 5):
        ready(number)
    retirer = api._resources[-1].retirer
    retirer._budget = 1
    assert call("register", names={"model": "other"})[0] == 201
    status, document, _ = call("delete_tenant")
    assert (status, document["retiring"]) == (202, True)
    status, refused, _ = call("put_tenant")
    assert (status, slug(refused)) == (410, "tenant-deleted")
    for _ in range(5):
        status, document, _ = call("delete_tenant")
    assert (status, document["retiring"]) == (200, False)


@pytest.mark.parametrize("name", ["activate", "delete_model", "delete_version", "delete_tenant"])
def test_unknown_names_are_not_found_and_malformed_ones_refused(call, name):
    status, document, _ = call(name)
    assert (status, slug(document)) == (404, "tenant-not-found")
    call("put_tenant", names={"tenant": "acme"})
    if name != "delete_tenant":
        assert slug(call(name)[1]) == "model-not-found"
        assert call(name, names={"model": "Iris"})[0] == 400
    assert call(name, names={"tenant": "ACME"})[0] == 400
    if name == "delete_version":
        assert call(name, names={"version": "1"})[0] == 400


def test_ids_of_another_artifact_do_not_retire_the_version(call, tenant):
    call("register")
    assert VERSION.endswith(SHA256[:12])
    assert slug(call("delete_version", names={"version": "v1-000000000000"})[1]) == "version-not-found"


def test_a_version_that_was_registered_to_wait_says_so(call, tenant):
    sample = {"content_type": "text/csv", "body": "1,2"}
    body = {"sha256": SHA256, "size_bytes": 1234, "framework": "xgboost", "sample": sample, "activate": False}
    assert call("register", body=json.dumps(body).encode())[0] == 201
    assert call("get_version", names={"version": VERSION})[1]["activate"] is False
    assert call("register", body=json.dumps(body | {"activate": True}).encode())[0] == 200
    assert call("get_version", names={"version": VERSION})[1]["activate"] is True
    assert call("register", body=json.dumps(body | {"activate": "no"}).encode())[1]["field"] == "activate"
