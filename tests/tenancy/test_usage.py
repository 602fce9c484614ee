"""Quotas and usage: what follows from the records, in the fake and in the table of the local cloud alike."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError
from botocore.httpsession import URLLib3Session
from hypothesis import given
from hypothesis import strategies as st

from mme_tenancy.aws.clients import dynamodb_client
from mme_tenancy.aws.dynamodb import DynamoRegistry
from mme_tenancy.clock import SystemClock
from mme_tenancy.errors import (
    FormatNotAllowedError,
    QuotaExceededError,
    TenantDeletedError,
    TenantNotFoundError,
    UnavailableError,
    WriteConflictError,
)
from mme_tenancy.registration import Registrar, Registration
from mme_tenancy.registry import Change, claim_key, model_key, tenant_key, usage_key, version_key
from mme_tenancy.routes import Model
from mme_tenancy.tenants import Quotas, Tenant, Usage
from mme_tenancy.testing import MemoryRegistry, MemorySigner
from mme_tenancy.usage import usage_changes, usage_of
from mme_tenancy.versions import MOVES, Sample, State

NOW = "2026-11-29T12:00:00.000Z"
TENANT = Tenant("acme", NOW, NOW, quotas=Quotas(models=2, stored_bytes=100))
MODEL = Model("acme", "iris", 1, NOW, NOW)


@pytest.fixture(params=["memory", "dynamodb"])
def registry(request):
    if request.param == "memory":
        return MemoryRegistry()
    return DynamoRegistry(dynamodb_client(request.getfixturevalue("cloud_session")), request.getfixturevalue("table_name"))


@pytest.fixture
def register(registry, pool):
    """Registers an artifact of a model of acme, which it makes at the first call; the outcome's version."""
    registry.write(Change(None, TENANT))
    clock = SystemClock()
    registrar = Registrar(registry, MemorySigner(clock), [pool], clock, lambda: 0.5)

    def register(model="iris", size_bytes=10, artifact=b"artifact", framework="xgboost"):
        digest = hashlib.sha256(artifact).hexdigest()
        registration = Registration(digest, size_bytes, framework, Sample("text/csv", b"1"))
        return registrar.register("acme", model, registration).version

    return register


def used(registry):
    usage = registry.read(tenant_key("acme"), usage_key("acme"))[1]
    return (usage.models, usage.stored_bytes) if usage else (0, 0)


def move(registry, version, *states):
    for state in states:
        moved = version.move(state, NOW)
        registry.write(Change(version, moved))
        version = moved
    return version


def test_several_records_are_read_at_once_in_their_order(registry, register):
    version = register()
    keys = (usage_key("acme"), version_key("acme", "iris", 1), model_key("acme", "none"), version_key("acme", "iris", 1))
    assert registry.read(*keys) == (Usage("acme", 1, 10), version, None, version)
    claim = registry.read(claim_key("acme", "iris", version.sha256), tenant_key("acme"))
    assert (claim[0].number, claim[1]) == (1, TENANT)


def test_a_version_counts_from_its_registration_until_it_ends(registry, register):
    first, second = register(), register(artifact=b"other", size_bytes=20)
    other = register(model="wine", size_bytes=30)
    assert used(registry) == (2, 60)
    move(registry, first, State.INSPECTING, State.REJECTED)
    assert used(registry) == (2, 50)
    move(registry, other, State.EXPIRED)
    assert used(registry) == (2, 20)
    retired = move(registry, second, State.INSPECTING, State.STORED, State.WARMING, State.READY, State.RETIRED)
    assert used(registry) == (2, 20)
    move(registry, retired, State.PURGED)
    assert used(registry) == (2, 0)


def test_a_move_that_somebody_else_made_frees_nothing_twice(registry, register):
    version = register()
    move(registry, version, State.EXPIRED)
    with pytest.raises(WriteConflictError):
        move(registry, version, State.INSPECTING, State.REJECTED)
    assert used(registry) == (1, 0)


def test_a_retired_model_does_not_count_and_comes_back_with_its_next_version(registry, register):
    register()
    model = registry.model("acme", "iris")
    registry.write(Change(model, replace(model, retired_at=NOW, rev=model.rev + 1)))
    assert used(registry) == (0, 10)
    assert register(artifact=b"other").number == 2
    assert registry.model("acme", "iris").retired_at is None
    assert used(registry) == (1, 20)


def test_one_model_too_many_is_refused_with_what_is_in_use(registry, register):
    register("a"), register("b")
    with pytest.raises(QuotaExceededError) as caught:
        register("c")
    assert (caught.value.field, caught.value.value, caught.value.allowed) == ("quotas.models", 3, "at most 2")
    assert registry.model("acme", "c") is None
    assert register("a", artifact=b"other").number == 2
    assert used(registry) == (2, 30)


@pytest.mark.parametrize("size_bytes", [91, 101, 10_000])
def test_bytes_above_the_quota_are_refused_to_the_byte(registry, register, size_bytes):
    register()
    with pytest.raises(QuotaExceededError) as caught:
        register(artifact=b"other", size_bytes=size_bytes)
    assert (caught.value.field, caught.value.allowed) == ("quotas.stored_bytes", "at most 100")
    assert register(artifact=b"other", size_bytes=90).number == 2
    assert used(registry) == (1, 100)


def test_what_a_rejected_version_held_can_be_taken_again(registry, register):
    version = register(size_bytes=100)
    move(registry, version, State.INSPECTING, State.REJECTED)
    assert register(size_bytes=100).number == 2
    assert used(registry) == (1, 100)


def test_an_awaited_artifact_that_is_declared_larger_counts_by_its_new_size_and_within_the_quota(registry, register):
    register(size_bytes=60)
    assert register(size_bytes=100).number == 1
    assert used(registry) == (1, 100)
    with pytest.raises(QuotaExceededError):
        register(size_bytes=101)
    register(size_bytes=5)
    assert used(registry) == (1, 5)


def test_a_smaller_quota_frees_nothing_but_lets_nothing_more_in(registry, register):
    version = register(size_bytes=50)
    registry.write(Change(TENANT, replace(TENANT, quotas=Quotas(1, 20), rev=2)))
    with pytest.raises(QuotaExceededError):
        register(artifact=b"other", size_bytes=1)
    move(registry, version, State.INSPECTING, State.REJECTED)
    assert register(size_bytes=20).number == 2


def test_the_quota_holds_exactly_when_many_register_at_once(registry, register):
    def attempt(number):
        try:
            return register("iris" if number % 2 else f"model-{number % 4}", size_bytes=9, artifact=b"%d" % number).size_bytes
        except (QuotaExceededError, WriteConflictError) as error:
            return error

    with ThreadPoolExecutor(4) as threads:
        outcomes = list(threads.map(attempt, range(30)))
    taken = [outcome for outcome in outcomes if isinstance(outcome, int)]
    assert any(isinstance(outcome, QuotaExceededError) for outcome in outcomes)
    models, stored_bytes = used(registry)
    assert models == 2
    assert stored_bytes == sum(taken) <= 100


def test_a_format_that_the_tenant_may_not_bring_is_refused(registry, register):
    registry.write(Change(TENANT, replace(TENANT, formats=("onnx", "triton"), rev=2)))
    with pytest.raises(FormatNotAllowedError, match="onnx, triton") as caught:
        register()
    assert (caught.value.field, caught.value.allowed) == ("framework", ["onnx", "triton"])
    assert used(registry) == (0, 0)


def test_nothing_is_registered_for_a_deleted_tenant_also_if_it_is_deleted_meanwhile(registry, register, pool):
    register()
    deleted = replace(TENANT, deleted_at=NOW, rev=2)
    registry.write(Change(TENANT, deleted))
    with pytest.raises(TenantDeletedError):
        register(artifact=b"other")
    late = replace(MODEL, model="late")
    with pytest.raises(TenantDeletedError):  # by one who read the tenant before
        registry.write(Change(None, late), quotas=TENANT.quotas)
    with pytest.raises(TenantDeletedError):
        registry.write(Change(None, late))
    version = registry.version("acme", "iris", 1)
    move(registry, version, State.EXPIRED)
    assert used(registry) == (1, 0)
    registry.write(Change(deleted, replace(deleted, updated_at=NOW, rev=3)))
    with pytest.raises(TenantDeletedError):
        registry.write(Change(None, late))
    registry.write(Change(replace(deleted, rev=3), replace(TENANT, rev=4)))
    assert register(artifact=b"other").number == 2


def test_a_stale_record_is_told_before_a_full_quota(registry, register, make_version):
    register(size_bytes=100)
    with pytest.raises(WriteConflictError):
        registry.write(Change(None, make_version()), quotas=TENANT.quotas)


def test_an_unknown_tenant_is_told_before_anything_else(registry, pool):
    registrar = Registrar(registry, MemorySigner(SystemClock()), [pool], SystemClock(), lambda: 0.5)
    with pytest.raises(TenantNotFoundError):
        registrar.register("acme", "iris", Registration("0" * 64, 1, "xgboost", Sample("text/csv", b"1")))


@given(data=st.data())
def test_usage_is_what_the_records_add_up_to_after_any_story(make_version, data):
    registry = MemoryRegistry()
    registry.write(Change(None, TENANT))
    for number in range(1, data.draw(st.integers(1, 5)) + 1):
        version = make_version(number=number, size_bytes=data.draw(st.integers(1, 50)))
        model = registry.model("acme", "iris")
        registry.write(Change(model, model.count_up(NOW) if model else MODEL), Change(None, version))
        while MOVES[version.state] and data.draw(st.booleans()):
            version = move(registry, version, data.draw(st.sampled_from(sorted(MOVES[version.state]))))
    assert registry.usages["acme"] == usage_of("acme", registry.records.values())


def test_changes_that_free_and_take_the_same_need_no_write_of_the_usage(make_version):
    version = make_version()
    assert usage_changes([Change(version, version.move(State.INSPECTING, NOW))]) == ()


def test_a_transaction_whose_answer_was_lost_is_counted_once(cloud_session, table_name, make_version):
    client = dynamodb_client(cloud_session)
    registry = DynamoRegistry(client, table_name)
    lost = []

    def lose_the_answer(request, **_):
        if not lost:
            lost.append(URLLib3Session().send(request).status_code)
            raise ReadTimeoutError(endpoint_url=request.url)

    client.meta.events.register("before-send.dynamodb.TransactWriteItems", lose_the_answer)
    registry.write(Change(None, MODEL), Change(None, make_version()), quotas=TENANT.quotas)
    assert lost == [200]
    assert used(registry) == (1, len(b"artifact"))


def test_a_registration_takes_two_calls_and_one_more_for_an_artifact_that_is_known(cloud_session, table_name, pool):
    client, calls = dynamodb_client(cloud_session), []
    registry = DynamoRegistry(client, table_name)
    registry.write(Change(None, TENANT))
    client.meta.events.register("before-call.dynamodb", lambda model, **_: calls.append(model.name))
    registrar = Registrar(registry, MemorySigner(SystemClock()), [pool], SystemClock(), lambda: 0.5)
    registration = Registration("0" * 64, 1, "xgboost", Sample("text/csv", b"1"))
    registrar.register("acme", "iris", registration)
    assert calls == ["BatchGetItem", "TransactWriteItems"]
    calls.clear()
    registrar.register("acme", "iris", registration)
    assert calls == ["BatchGetItem", "GetItem"]


class ScriptedTable:
    """Answers by a script, an entry a call; exceptions are raised. What was asked is kept."""

    def __init__(self, *script):
        self.script, self.asked = list(script), []

    def _answer(self, **request):
        self.asked.append(request)
        answer = self.script.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    batch_get_item = transact_write_items = _answer


def cancelled(*codes):
    reasons = [{"Code": code} for code in codes]
    return ClientError({"Error": {"Code": "TransactionCanceledException"}, "CancellationReasons": reasons}, "TransactWriteItems")


def scripted(*script):
    table, slept = ScriptedTable(*script), []
    return DynamoRegistry(table, "registry", sleep=slept.append, random=lambda: 0.5), table, slept


def test_a_transaction_that_met_another_one_is_sent_again_as_it_is(make_version):
    registry, table, slept = scripted(cancelled("None", "TransactionConflict"), cancelled("None", "TransactionConflict"), {})
    registry.write(Change(None, make_version()))
    assert len(table.asked) == 3
    assert table.asked[0] == table.asked[2]
    assert slept == [0.02, 0.04]


def test_a_transaction_that_keeps_meeting_others_ends_as_a_conflict(make_version):
    registry, table, slept = scripted(*[cancelled("None", "TransactionConflict")] * 8)
    with pytest.raises(WriteConflictError):
        registry.write(Change(None, make_version()))
    assert (len(table.script), len(slept)) == (0, 7)


def test_a_transaction_that_failed_for_another_reason_is_not_sent_again(make_version):
    registry, _table, slept = scripted(cancelled("None", "ThrottlingError"))
    with pytest.raises(ClientError):
        registry.write(Change(None, make_version()))
    assert slept == []


def test_what_a_batch_left_out_is_read_again():
    from mme_tenancy.aws.attributes import to_item
    from mme_tenancy.aws.items import item_of

    left = {"registry": {"Keys": [{"PK": {"S": "TENANT#acme"}, "SK": {"S": "TENANT"}}], "ConsistentRead": True}}
    registry, table, slept = scripted(
        {"Responses": {"registry": [to_item(item_of(MODEL))]}, "UnprocessedKeys": left},
        {"Responses": {"registry": [to_item(item_of(TENANT))]}, "UnprocessedKeys": {}},
    )
    assert registry.read(tenant_key("acme"), model_key("acme", "iris")) == (TENANT, MODEL)
    assert table.asked[0]["RequestItems"]["registry"]["ConsistentRead"] is True
    assert table.asked[1]["RequestItems"] == left
    assert slept == [0.02]


def test_a_batch_that_is_never_whole_ends_as_unavailable():
    left = {"registry": {"Keys": [{"PK": {"S": "TENANT#acme"}, "SK": {"S": "TENANT"}}], "ConsistentRead": True}}
    registry, table, _slept = scripted(*[{"Responses": {}, "UnprocessedKeys": left}] * 8)
    with pytest.raises(UnavailableError):
        registry.read(tenant_key("acme"), usage_key("acme"))
    assert table.script == []
