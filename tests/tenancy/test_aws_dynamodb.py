"""One contract for the registry and for the idempotency keys: the fake and the table in the local cloud both keep it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mme_facts.table import DEDICATED_INDEX, MOVING_INDEX
from mme_tenancy.activation import activate
from mme_tenancy.aws.attributes import from_item, to_item
from mme_tenancy.aws.clients import dynamodb_client
from mme_tenancy.aws.dynamodb import DynamoRegistry
from mme_tenancy.aws.idempotency import DynamoIdempotencyStore
from mme_tenancy.aws.items import item_of, version_of
from mme_tenancy.clock import SystemClock
from mme_tenancy.errors import WriteConflictError
from mme_tenancy.idempotency import IdempotencyKey, IdempotencyRecord, StoredAnswer, idempotent
from mme_tenancy.registration import Registrar, Registration
from mme_tenancy.registry import Change
from mme_tenancy.route_changes import part_of
from mme_tenancy.routes import Model, Route
from mme_tenancy.tenants import Tenant
from mme_tenancy.testing import MemoryIdempotencyStore, MemoryRegistry, MemorySigner
from mme_tenancy.versions import DigestClaim, Reason, Sample, State

NOW, LATER = "2026-11-29T12:00:00.000Z", "2026-11-29T12:00:01.000Z"
TENANT = Tenant("acme", NOW, NOW)
MODEL = Model("acme", "iris", 1, NOW, NOW)


@pytest.fixture(params=["memory", "dynamodb"])
def registry(request):
    if request.param == "memory":
        return MemoryRegistry()
    return DynamoRegistry(dynamodb_client(request.getfixturevalue("cloud_session")), request.getfixturevalue("table_name"))


@pytest.fixture(params=["memory", "dynamodb"])
def store(request):
    if request.param == "memory":
        return MemoryIdempotencyStore()
    return DynamoIdempotencyStore(dynamodb_client(request.getfixturevalue("cloud_session")), request.getfixturevalue("table_name"))


def test_what_was_written_is_read_back(registry, make_version):
    version = make_version(
        State.REJECTED,
        notes="größe",
        reasons=(Reason("r", "d", "f", "m"), Reason("r2", "d2", "f2")),
        timings={"inspect_seconds": 0.25, "copy_seconds": 3},
        sample=Sample("application/x-npy", bytes(range(256))),
        moving=False,
    )
    model = MODEL.reroute(Route("endpoint-a", "AllTraffic", str(version.id), version.name.target_model), NOW)
    claim = DigestClaim("acme", "iris", version.sha256, 1)
    registry.write(Change(None, TENANT), Change(None, model), Change(None, version), Change(None, claim))
    assert registry.tenant("acme") == TENANT
    assert registry.model("acme", "iris") == model
    assert registry.version("acme", "iris", 1) == version
    assert registry.claim("acme", "iris", version.sha256) == claim


def test_what_is_not_there_is_none(registry):
    assert registry.tenant("acme") is registry.model("acme", "iris") is registry.version("acme", "iris", 1) is None
    assert registry.claim("acme", "iris", "0" * 64) is None


def test_deletions_under_way_are_listed_by_the_sparse_index_until_they_are_done(cloud_session, table_name):
    client = dynamodb_client(cloud_session)
    registry = DynamoRegistry(client, table_name)

    def listed(queue):
        query = {"KeyConditionExpression": "moving = :queue", "ExpressionAttributeValues": {":queue": {"S": queue}}}
        return [item["SK"]["S"] for item in client.query(TableName=table_name, IndexName=MOVING_INDEX, **query)["Items"]]

    registry.write(Change(None, TENANT), Change(None, MODEL))
    assert (listed("tenant"), listed("model")) == ([], [])
    tenant, model = TENANT.delete(LATER), MODEL.delete(LATER, retiring_below=1)
    registry.write(Change(TENANT, tenant), Change(MODEL, model))
    assert (listed("tenant"), listed("model")) == (["TENANT"], ["MODEL#iris"])
    registry.write(Change(tenant, tenant.retired(None, LATER)), Change(model, model.retired(None, LATER)))
    assert (listed("tenant"), listed("model")) == ([], [])


def test_changes_that_invocations_follow_are_counted_with_them_and_only_once_when_one_is_sent_again(cloud_session, table_name):
    client = dynamodb_client(cloud_session)
    registry = DynamoRegistry(client, table_name)
    part, other = part_of("acme"), part_of("globex")
    registry.write(Change(None, TENANT), Change(None, MODEL))
    served = MODEL.reroute(Route("endpoint-a", "AllTraffic", "v1-0123456789ab", "acme/iris/v1-0123456789ab.tar.gz"), LATER)
    registry.write(Change(MODEL, served))
    assert sum(registry.changes()) == 0
    registry.write(Change(served, served.reroute(None, LATER)))
    with pytest.raises(WriteConflictError):
        registry.write(Change(served, served.reroute(None, LATER)))
    assert (registry.changes()[part], registry.changes()[other], sum(registry.changes())) == (1, 0, 1)
    registry.write(Change(TENANT, TENANT.delete(LATER)))
    assert registry.changes()[part] == 2


def test_a_record_can_be_made_only_once(registry):
    registry.write(Change(None, TENANT))
    with pytest.raises(WriteConflictError):
        registry.write(Change(None, replace(TENANT, updated_at=LATER)))
    assert registry.tenant("acme") == TENANT


def test_a_change_of_an_older_revision_is_refused(registry):
    registry.write(Change(None, MODEL))
    newer = MODEL.count_up(LATER)
    registry.write(Change(MODEL, newer))
    with pytest.raises(WriteConflictError):
        registry.write(Change(MODEL, MODEL.count_up(LATER)))
    assert registry.model("acme", "iris") == newer


def test_a_change_of_what_is_not_there_is_refused(registry):
    with pytest.raises(WriteConflictError):
        registry.write(Change(MODEL, MODEL.count_up(LATER)))
    assert registry.model("acme", "iris") is None


def test_several_changes_are_written_all_or_none(registry, make_version):
    version = make_version()
    registry.write(Change(None, version))
    with pytest.raises(WriteConflictError):
        registry.write(Change(None, MODEL), Change(None, version))
    assert registry.model("acme", "iris") is None


def test_a_route_flips_together_with_its_versions(registry, make_version, pool):
    first, second = make_version(State.ACTIVE, number=1, moving=False), make_version(State.READY, number=2, artifact=b"two")
    model = replace(MODEL, route=Route(pool.endpoint_name, pool.variant_name, str(first.id), first.name.target_model))
    registry.write(Change(None, model), Change(None, first), Change(None, second))
    registry.write(*activate(model, second, {str(first.id): first}, pool, LATER))
    assert registry.model("acme", "iris").route.number == 2
    assert [registry.version("acme", "iris", number).state for number in (1, 2)] == [State.READY, State.ACTIVE]


def test_models_are_listed_by_id_page_by_page_and_only_those_of_the_tenant(registry):
    names = [f"model-{number}" for number in range(5)]
    registry.write(*[Change(None, replace(MODEL, model=name)) for name in reversed(names)], Change(None, TENANT))
    registry.write(Change(None, replace(MODEL, tenant="acme-evil")))
    seen, after = [], None
    while True:
        page = registry.models("acme", limit=2, after=after)
        assert len(page.items) <= 2
        seen += [model.model for model in page.items]
        if not page.more:
            break
        after = seen[-1]
    assert seen == names


def test_versions_are_listed_newest_first_and_only_those_of_the_model(registry, make_version):
    for number in (1, 2, 10):
        registry.write(Change(None, make_version(number=number)))
    registry.write(Change(None, make_version(number=3, model="iris-2")), Change(None, make_version(number=4, tenant="other")))
    page = registry.versions("acme", "iris", limit=2)
    assert [version.number for version in page.items] == [10, 2]
    assert page.more
    assert [version.number for version in registry.versions("acme", "iris", limit=2, before=2).items] == [1]


def test_numbers_are_unique_when_many_register_at_once(registry, pool):
    registry.write(Change(None, TENANT))
    clock = SystemClock()
    registrar = Registrar(registry, MemorySigner(clock), [pool], clock, lambda: 0.5)

    def register(number):
        registration = Registration(f"{number:064x}", 10, "xgboost", Sample("text/csv", b"1"))
        try:
            return registrar.register("acme", "iris", registration).version.number
        except WriteConflictError:
            return None

    with ThreadPoolExecutor(4) as threads:
        numbers = [number for number in threads.map(register, range(12)) if number]
    assert sorted(numbers) == list(range(1, registry.model("acme", "iris").last_version + 1))
    assert len(numbers) >= 4


def test_attributes_of_a_later_schema_survive_a_change(cloud_session, table_name):
    client = dynamodb_client(cloud_session)
    registry = DynamoRegistry(client, table_name)
    registry.write(Change(None, MODEL))
    key = {"PK": {"S": "TENANT#acme"}, "SK": {"S": "MODEL#iris"}}
    client.update_item(
        TableName=table_name,
        Key=key,
        UpdateExpression="SET placement = :p, #s = :s",
        ExpressionAttributeNames={"#s": "schema"},
        ExpressionAttributeValues={":p": {"S": "dedicated"}, ":s": {"N": "3"}},
    )
    registry.write(Change(MODEL, MODEL.count_up(LATER)))
    item = from_item(client.get_item(TableName=table_name, Key=key, ConsistentRead=True)["Item"])
    assert (item["placement"], item["last_version"], item["schema"], item["rev"]) == ("dedicated", 2, 3, 2)


def test_the_index_of_moving_versions_is_sparse(cloud_session, table_name, make_version):
    client = dynamodb_client(cloud_session)
    registry = DynamoRegistry(client, table_name)
    moving, ending = make_version(State.WARMING, number=1), make_version(State.WARMING, number=2)
    registry.write(Change(None, moving), Change(None, ending), Change(None, MODEL))
    registry.write(Change(ending, ending.move(State.REJECTED, LATER)))
    found = client.query(
        TableName=table_name,
        IndexName=MOVING_INDEX,
        KeyConditionExpression="moving = :moving",
        ExpressionAttributeValues={":moving": {"S": "version"}},
    )["Items"]
    assert [item["SK"]["S"] for item in found] == ["VERSION#iris#000001"]


def test_keys_follow_the_schema(make_version):
    items = [item_of(record) for record in (TENANT, MODEL, make_version(number=42), DigestClaim("acme", "iris", "0" * 64, 42))]
    assert [(item["PK"], item["SK"]) for item in items] == [
        ("TENANT#acme", "TENANT"),
        ("TENANT#acme", "MODEL#iris"),
        ("TENANT#acme", "VERSION#iris#000042"),
        ("TENANT#acme", f"DIGEST#iris#{'0' * 64}"),
    ]
    assert all(item["schema"] == 2 and item["rev"] == 1 for item in items)
    assert "route" not in items[1]


VALUES = st.recursive(
    st.text() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=False, allow_infinity=False) | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(values=st.dictionaries(st.text(), VALUES, max_size=4))
def test_plain_values_survive_the_attribute_form(values):
    assert from_item(to_item(values)) == values


def test_what_cannot_be_stored_is_refused():
    with pytest.raises(TypeError, match="object cannot be stored"):
        to_item({"a": object()})


@given(body=st.binary(max_size=50), notes=st.none() | st.text(max_size=20), moving=st.booleans(), seconds=st.floats(0, 1e6))
def test_a_version_survives_the_item_form(make_version, body, notes, moving, seconds):
    version = make_version(sample=Sample("text/csv", body), notes=notes, moving=moving, timings={"copy_seconds": seconds})
    assert version_of(from_item(to_item(item_of(version)))) == version


KEY = IdempotencyKey("acme", "POST /tenants/{tenant}/models/{model}/versions", "key-1")


def test_a_key_is_taken_once(store):
    first, second = IdempotencyRecord("a", 100.5, 4000), IdempotencyRecord("b", 200.25, 5000)
    assert store.put(KEY, None, first) is None
    assert store.put(KEY, None, second) == first
    answered = replace(first, answer=StoredAnswer(201, '{"a": 1}'), rev=2)
    assert store.put(KEY, first, answered) is None
    assert store.put(KEY, first, second) == answered
    assert store.put(KEY, None, second) == answered


def test_only_the_holder_frees_a_key(store):
    first = IdempotencyRecord("a", 100.5, 4000)
    store.put(KEY, None, first)
    store.remove(KEY, replace(first, rev=7))
    assert store.put(KEY, None, IdempotencyRecord("b", 1.5, 1)) == first
    store.remove(KEY, first)
    assert store.put(KEY, first, replace(first, rev=2)) == first
    assert store.put(KEY, None, first) is None


def test_an_answer_is_replayed_from_the_store(store):
    def never():
        raise AssertionError

    answer = StoredAnswer(201, "{}")
    assert idempotent(store, KEY, "request", lambda: answer, clock=SystemClock(), keep_seconds=60) == (answer, False)
    assert idempotent(store, KEY, "request", never, clock=SystemClock(), keep_seconds=60) == (answer, True)


def test_a_write_whose_answer_was_lost_counts_as_ours(cloud_session, table_name):
    store = DynamoIdempotencyStore(dynamodb_client(cloud_session), table_name)
    record = IdempotencyRecord("a", 100.5, 4000)
    assert store.put(KEY, None, record) is None
    assert store.put(KEY, None, record) is None


def test_the_index_of_dedicated_models_is_sparse(cloud_session, table_name):
    client = dynamodb_client(cloud_session)
    registry = DynamoRegistry(client, table_name)
    route = Route("dedicated", "AllTraffic", "v1-0123456789ab", "acme/iris/v1-0123456789ab.tar.gz", component="acme-iris-1")

    def listed():
        query = {
            "IndexName": DEDICATED_INDEX,
            "KeyConditionExpression": "dedicated = :model",
            "ExpressionAttributeValues": {":model": {"S": "model"}},
        }
        return [(item["PK"]["S"], item["SK"]["S"]) for item in client.query(TableName=table_name, **query)["Items"]]

    registry.write(Change(None, MODEL))
    dedicated = MODEL.reroute(route, LATER)
    registry.write(Change(MODEL, dedicated))
    assert registry.model("acme", "iris") == dedicated
    assert listed() == [("TENANT#acme", "MODEL#iris")]
    shared = dedicated.reroute(replace(route, component=None), LATER)
    registry.write(Change(dedicated, shared))
    assert registry.model("acme", "iris") == shared
    assert listed() == []
