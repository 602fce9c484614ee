"""Tenants' keys at the gateway: made once, in the plan of the tier, gone with the tenant, whatever is cut or done by two at once."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import pytest

from mme_tenancy.activation import Activator
from mme_tenancy.api_keys import ApiKey, KeyGoneError, TenantKeys
from mme_tenancy.errors import TenantDeletedError, TenantNotFoundError, UnavailableError
from mme_tenancy.handlers.onboarding import Onboarding
from mme_tenancy.registration import Registrar
from mme_tenancy.registry import Change
from mme_tenancy.retirement import Retirer
from mme_tenancy.tenants import Tenant, Tier
from mme_tenancy.testing import MemoryIdempotencyStore, MemoryRegistry, MemorySigner

NOW = "2026-11-29T12:00:00.000Z"


class MemoryKeys:
    """`mme_tenancy.api_keys.ApiKeys` in dictionaries; `before` runs ahead of each call and may raise."""

    def __init__(self):
        self.values, self.plans, self.numbers = {}, {}, itertools.count(1)
        self.before = lambda _call: None

    def create(self, tenant):
        self.before("create")
        number = next(self.numbers)
        key = ApiKey(f"key-{number}", f"secret {number} of {tenant}")
        self.values[key.id] = key.value
        return key

    def value(self, key):
        self.before("value")
        return self.values.get(key)

    def join(self, key, tier):
        self.before("join")
        if key not in self.values:
            raise KeyGoneError
        self.plans[key] = tier

    def delete(self, key):
        self.before("delete")
        self.values.pop(key, None)
        self.plans.pop(key, None)


def busy(*calls):
    """A gateway that takes none of these calls."""

    def refuse(call):
        if call in calls:
            raise UnavailableError("busy", retry_after_seconds=2)

    return refuse


@pytest.fixture
def registry():
    registry = MemoryRegistry()
    registry.write(Change(None, Tenant("acme", NOW, NOW)))
    return registry


@pytest.fixture
def gateway():
    return MemoryKeys()


@pytest.fixture
def keys(registry, gateway, clock):
    return TenantKeys(registry, gateway, clock, lambda: 0.5)


def change(registry, **values):
    before = registry.tenant("acme")
    registry.write(Change(before, replace(before, rev=before.rev + 1, **values)))


def test_a_key_is_made_once_and_shown_again(keys, gateway, registry):
    issued, made = keys.issue("acme")
    assert (made, issued.tier, registry.tenant("acme").api_key) == (True, Tier.STANDARD, issued.id)
    assert keys.issue("acme") == (issued, False)
    assert gateway.plans == {issued.id: Tier.STANDARD}


def test_no_text_of_a_key_shows_its_value(keys, gateway):
    issued, _ = keys.issue("acme")
    assert issued.value not in repr(issued)
    assert issued.value not in repr(gateway.create("globex"))


@pytest.mark.parametrize("cut", ["create", "join", "value"])
def test_a_call_that_the_gateway_cut_is_made_good_by_the_next(keys, gateway, registry, cut):
    gateway.before = busy(cut)
    if cut == "value":
        assert keys.issue("acme")[1]
    with pytest.raises(UnavailableError):
        keys.issue("acme")
    gateway.before = lambda _call: None
    issued, _ = keys.issue("acme")
    assert (gateway.plans, list(gateway.values)) == ({issued.id: Tier.STANDARD}, [registry.tenant("acme").api_key])


def test_a_process_that_is_killed_leaves_only_a_key_that_opens_nothing(keys, gateway, registry, monkeypatch):
    write = registry.write

    def killed(*_changes):
        gateway.before = busy("delete")
        raise KeyboardInterrupt

    monkeypatch.setattr(registry, "write", killed)
    with pytest.raises(UnavailableError):
        keys.issue("acme")
    monkeypatch.setattr(registry, "write", write)
    issued, made = keys.issue("acme")
    assert (made, gateway.plans) == (True, {issued.id: Tier.STANDARD})


def test_of_two_at_once_one_key_stays(keys, gateway, registry, clock):
    other = TenantKeys(registry, gateway, clock, lambda: 0.5)
    results = []

    def first_the_other(call):
        if call == "create":
            gateway.before = lambda _call: None
            results.append(other.issue("acme"))

    gateway.before = first_the_other
    results.append(keys.issue("acme"))
    assert results[0][0] == results[1][0]
    assert [made for _, made in results] == [True, False]
    assert gateway.plans == {registry.tenant("acme").api_key: Tier.STANDARD}
    assert len(gateway.values) == 1


def test_a_key_that_was_deleted_at_the_gateway_is_made_anew(keys, gateway):
    issued, _ = keys.issue("acme")
    gateway.delete(issued.id)
    again, made = keys.issue("acme")
    assert (made, again.value != issued.value, gateway.plans) == (True, True, {again.id: Tier.STANDARD})


def test_a_key_follows_its_tenants_tier_and_so_it_does_when_the_tier_changes_meanwhile(keys, gateway, registry):
    issued, _ = keys.issue("acme")
    change(registry, tier=Tier.TRUSTED)
    keys.move(registry.tenant("acme"))
    assert gateway.plans == {issued.id: Tier.TRUSTED}

    def meanwhile(call):
        if call == "join":
            gateway.before = lambda _call: None
            change(registry, tier=Tier.TRUSTED)

    change(registry, tier=Tier.STANDARD)
    gateway.before = meanwhile
    keys.move(registry.tenant("acme"))
    assert gateway.plans == {issued.id: Tier.TRUSTED}


def test_a_tenant_without_a_key_gets_none_by_a_change_of_tier(keys, gateway, registry):
    keys.move(registry.tenant("acme"))
    assert gateway.values == {}


def test_a_key_that_is_taken_back_is_gone_and_the_next_has_another_value(keys, gateway, registry):
    issued, _ = keys.issue("acme")
    assert keys.revoke("acme").api_key is None
    assert (gateway.values, registry.tenant("acme").api_key) == ({}, None)
    assert keys.revoke("acme").api_key is None
    assert keys.issue("acme")[0].id != issued.id


def test_a_key_that_cannot_be_taken_back_now_stays_on_the_record(keys, gateway, registry):
    issued, _ = keys.issue("acme")
    gateway.before = busy("delete")
    with pytest.raises(UnavailableError):
        keys.revoke("acme")
    assert registry.tenant("acme").api_key == issued.id
    gateway.before = lambda _call: None
    keys.revoke("acme")
    assert gateway.values == {}


def test_a_tenant_that_is_deleted_meanwhile_gets_no_key(keys, gateway, registry):
    def meanwhile(call):
        if call == "create":
            change(registry, deleted_at=NOW)

    gateway.before = meanwhile
    with pytest.raises(TenantDeletedError):
        keys.issue("acme")
    assert gateway.values == {}
    with pytest.raises(TenantNotFoundError):
        keys.issue("globex")


class TestTheApi:
    @pytest.fixture
    def call(self, gateway, registry, clock, pool, load_event, context):
        registrar = Registrar(registry, MemorySigner(clock), [pool], clock, lambda: 0.5)
        retirer = Retirer(registry, clock, lambda: 0.5, grace_seconds=86_400)
        activator = Activator(registry, [pool], clock, lambda: 0.5)
        seen, store = [], MemoryIdempotencyStore()

        def keys_of(api, stage):
            seen.append((api, stage))
            return gateway

        def make(keys_of=keys_of):
            api = Onboarding(registry, registrar, activator, retirer, store, 10_000_000, clock, None, keys_of)

            def call(name, method=None, path="", **changes):
                event = load_event(name, **changes)
                if method is not None:
                    event |= {"httpMethod": method, "path": f"{event['path']}{path}", "resource": f"{event['resource']}{path}"}
                answer = api(event, context)
                return answer["statusCode"], json.loads(answer["body"]), answer["multiValueHeaders"]

            return call

        make.seen, make.store = seen, store
        return make

    def test_the_key_is_shown_and_kept_nowhere(self, call, gateway, registry, capsys):
        api = call()
        status, document, headers = api("put_tenant", "PUT", "/api-key")
        assert (status, headers["Cache-Control"]) == (201, ["no-store"])
        assert document == {"tenant": "acme", "tier": "standard", "id": "key-1", "value": gateway.values["key-1"]}
        assert api("put_tenant", "PUT", "/api-key")[:2] == (200, document)
        written = f"{registry.records} {call.store.records} {capsys.readouterr()}"
        assert "key-1" in written
        assert document["value"] not in written
        assert call.seen[0][1] == "v1"

    def test_the_key_follows_the_tier_and_goes_with_the_tenant(self, call, gateway, registry):
        api = call()
        api("put_tenant", "PUT", "/api-key")
        assert api("put_tenant", body=b'{"tier": "trusted"}')[0] == 200
        assert gateway.plans == {"key-1": Tier.TRUSTED}
        gateway.before = busy("delete")
        status, _, headers = api("put_tenant", "DELETE")
        assert (status, headers["Retry-After"]) == (503, ["2"])
        gateway.before = lambda _call: None
        assert api("put_tenant", "DELETE")[0] == 200
        assert (gateway.values, registry.tenant("acme").api_key) == ({}, None)
        assert api("put_tenant", "PUT", "/api-key")[0] == 410

    def test_a_change_of_tier_that_the_gateway_cut_is_made_good_by_the_same_call(self, call, gateway):
        api = call()
        api("put_tenant", "PUT", "/api-key")
        gateway.before = busy("join")
        assert api("put_tenant", body=b'{"tier": "trusted"}')[0] == 503
        assert gateway.plans == {"key-1": Tier.STANDARD}
        gateway.before = lambda _call: None
        assert api("put_tenant", body=b'{"tier": "trusted"}')[0] == 200
        assert gateway.plans == {"key-1": Tier.TRUSTED}

    def test_the_key_is_taken_back(self, call, gateway):
        api = call()
        api("put_tenant", "PUT", "/api-key")
        assert api("put_tenant", "DELETE", "/api-key")[0] == 200
        assert gateway.values == {}

    def test_a_platform_without_usage_plans_has_no_keys(self, call):
        status, document, _ = call(None)("put_tenant", "PUT", "/api-key")
        assert (status, document["type"]) == (404, "urn:mme:problem:not-found")

    def test_the_document_asks_for_the_key_only_where_it_is_needed(self, call):
        path = "/tenants/{tenant}/models/{model}/invocations"
        with_plans, without = (call(*arguments)("get_openapi")[1] for arguments in ((), (None,)))
        assert with_plans["components"]["securitySchemes"]["key"]["name"] == "X-Api-Key"
        assert with_plans["paths"][path]["post"]["security"] == [{"sigv4": [], "key": []}]
        assert "/tenants/{tenant}/api-key" in with_plans["paths"]
        assert "/tenants/{tenant}/api-key" not in without["paths"]
        assert "security" not in without["paths"][path]["post"]
