"""One contract for what warm-ups remember: the fake keeps it, and so does the table in the local cloud."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from botocore.exceptions import ClientError
from botocore.stub import Stubber

from mme_facts.table import EXPIRES_AT, PARTITION_KEY, SORT_KEY, endpoint_partition
from mme_tenancy.aws import warm_up_store
from mme_tenancy.aws.attributes import from_item, to_item
from mme_tenancy.aws.clients import dynamodb_client
from mme_tenancy.aws.maintenance import DynamoMaintenance, is_kept
from mme_tenancy.aws.warm_up_store import DynamoWarmUpStore
from mme_tenancy.errors import WriteConflictError
from mme_tenancy.testing_warm_up import MemoryWarmUpStore
from mme_tenancy.warm_up.change import ChangeKind, FleetChange, FleetSeen
from mme_tenancy.warm_up.ports import EndpointRecord, Lease, LeaseLostError, WarmUp, WarmUpState, changed

NOW = 1_800_000_000.25
SEEN = FleetSeen("InService", "config-1", NOW - 5, NOW, {"main": 4}, {"main": 4}, {"main": 1.5}, number=3, shifted_at=NOW, lost=True)
CHANGE = FleetChange(ChangeKind.SCALE_OUT, "shared", 3, NOW, 4, 6, 2, "config-1", "config-1")
RECORD = EndpointRecord("shared", SEEN)
DUE = replace(RECORD, warm_up=WarmUp(CHANGE, NOW))
LEASE = Lease("me", NOW + 30)


@pytest.fixture(params=["memory", "aws"])
def store(request, clock):
    if request.param == "memory":
        return MemoryWarmUpStore()
    client = dynamodb_client(request.getfixturevalue("cloud_session"))
    return DynamoWarmUpStore(client, request.getfixturevalue("table_name"), clock)


RECORDS = {
    "seen": RECORD,
    "due": DUE,
    "taken": DUE.taken(LEASE, NOW),
    "under way": DUE.taken(LEASE, NOW).planned(LEASE, "a plan").progressed(LEASE, "a plan", "so far"),
    "let go": DUE.taken(LEASE, NOW).let_go("me"),
    "done": DUE.taken(LEASE, NOW).ended(WarmUpState.DONE, NOW + 9, "done", {"calls": 3, "failed": [{"error": None}], "seconds": 0.5}),
}


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
def test_a_record_is_read_as_it_was_written(store, record):
    assert store.read("shared") is None
    store.write(None, record)
    assert store.read("shared") == record
    assert store.read("other") is None


def test_a_later_write_leaves_nothing_of_the_earlier_one(store):
    before, after = RECORDS["under way"], replace(RECORD, rev=9)
    store.write(None, before)
    store.write(before, after)
    assert store.read("shared") == after


def test_a_write_over_something_else_is_refused(store):
    store.write(None, RECORD)
    with pytest.raises(WriteConflictError):
        store.write(None, DUE)
    newer = replace(RECORD, rev=2)
    store.write(RECORD, newer)
    with pytest.raises(WriteConflictError):
        store.write(RECORD, replace(DUE, rev=2))
    with pytest.raises(WriteConflictError):
        store.write(replace(RECORD, endpoint="new"), replace(DUE, endpoint="new"))
    assert store.read("shared") == newer


def test_a_write_that_is_sent_twice_counts_once(store):
    store.write(None, RECORD)
    store.write(None, RECORD)
    after = replace(DUE, rev=2)
    store.write(RECORD, after)
    store.write(RECORD, after)
    assert store.read("shared") == after


def test_a_change_is_made_again_where_another_one_came_between(store):
    store.write(None, DUE)
    others = iter(range(3))

    def take(record):
        for _ in others:
            store.write(record, replace(record, seen=replace(record.seen, status="Updating"), rev=record.rev + 1))
            break
        return record.taken(LEASE, NOW)

    after = changed(store, "shared", take)
    assert (after.rev, after.seen.status, after.lease) == (5, "Updating", LEASE)
    assert store.read("shared") == after


def test_a_change_gives_up_where_others_come_between_again_and_again(store):
    store.write(None, DUE)

    def take(record):
        store.write(record, replace(record, rev=record.rev + 1))
        return record.taken(LEASE, NOW)

    with pytest.raises(WriteConflictError):
        changed(store, "shared", take)


def test_a_change_of_nothing_writes_nothing(store):
    store.write(None, DUE)
    assert changed(store, "shared", lambda record: record) == DUE
    with pytest.raises(LeaseLostError):
        changed(store, "other", lambda record: record)


def test_of_many_that_want_the_lease_at_the_same_moment_one_gets_it(store):
    store.write(None, DUE)
    ready, got = threading.Barrier(8), []

    def take(holder):
        ready.wait()
        lease = Lease(holder, NOW + 30)
        after = changed(store, "shared", lambda record: record.taken(lease, NOW) if record.is_free(NOW) else record)
        if after.lease == lease:
            got.append(holder)

    threads = [threading.Thread(target=take, args=(f"holder-{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 1
    assert store.read("shared").lease.holder == got[0]
    assert store.read("shared").warm_up.takes == 1


def test_a_document_is_read_as_it_was_kept(store, monkeypatch):
    monkeypatch.setattr(warm_up_store, "_PART_BYTES", 100)
    documents = [{"steps": [["acme/iris", number, number / 7] for number in range(100)], "none": None}, {}]
    names = [store.keep("shared", document) for document in documents]
    assert [store.kept("shared", name) for name in names] == documents
    assert store.kept("other", names[0]) is None


LOST = {
    "another holder": DUE.taken(Lease("you", NOW), NOW),
    "let go": DUE.taken(LEASE, NOW).let_go("me"),
    "ended": DUE.taken(LEASE, NOW).ended(WarmUpState.DONE, NOW, "done"),
    "overwritten": replace(DUE.taken(LEASE, NOW), warm_up=None),
}


@pytest.mark.parametrize("record", LOST.values(), ids=LOST)
def test_who_does_not_hold_the_lease_any_more_writes_nothing(record):
    for change in (lambda: record.planned(LEASE, "x"), lambda: record.progressed(LEASE, "", "x"), lambda: record.let_go("me")):
        with pytest.raises(LeaseLostError, match="me does not hold the warm-up of shared"):
            change()


def test_how_far_an_earlier_plan_had_come_is_not_written_to_another_one():
    with pytest.raises(LeaseLostError, match="has another plan than an earlier one"):
        DUE.taken(LEASE, NOW).planned(LEASE, "a plan").progressed(LEASE, "an earlier one", "so far")


def test_a_lease_that_has_run_out_is_anybodys_and_a_warm_up_that_ended_is_nobodys():
    taken = DUE.taken(LEASE, NOW)
    assert (DUE.is_free(NOW), taken.is_free(NOW + 29), taken.is_free(NOW + 30), RECORD.is_free(NOW)) == (True, False, True, False)
    assert not taken.ended(WarmUpState.ABANDONED, NOW, "gone").is_free(NOW + 99)
    again = taken.taken(Lease("you", NOW + 90), NOW + 30)
    assert (again.warm_up.begun_at, again.warm_up.takes) == (NOW, 2)


def test_documents_expire_and_the_record_does_not(cloud_session, table_name, clock):
    client = dynamodb_client(cloud_session)
    store = DynamoWarmUpStore(client, table_name, clock)
    store.write(None, RECORD)
    store.keep("shared", {"steps": []})
    items = [from_item(item) for item in client.scan(TableName=table_name)["Items"]]
    assert {item[PARTITION_KEY] for item in items} == {endpoint_partition("shared")}
    assert {item[SORT_KEY].partition("#")[0]: item.get(EXPIRES_AT) for item in items} == {
        "ENDPOINT": None,
        "DOCUMENT": int(clock.time()) + 86_400,
    }


def test_what_is_remembered_of_an_endpoint_is_restored_from_no_backup(cloud_session, table_name, clock):
    client = dynamodb_client(cloud_session)
    store = DynamoWarmUpStore(client, table_name, clock)
    store.write(None, DUE)
    store.keep("shared", {"steps": []})
    items = list(DynamoMaintenance(client, table_name).items())
    assert (len(items), [item for item in items if is_kept(item)]) == (2, [])


def test_a_document_of_which_a_part_has_expired_is_not_there(cloud_session, table_name, clock, monkeypatch):
    monkeypatch.setattr(warm_up_store, "_PART_BYTES", 10)
    client = dynamodb_client(cloud_session)
    store = DynamoWarmUpStore(client, table_name, clock)
    name = store.keep("shared", {"steps": "much more than ten bytes"})
    client.delete_item(TableName=table_name, Key=to_item({PARTITION_KEY: endpoint_partition("shared"), SORT_KEY: f"DOCUMENT#{name}#001"}))
    assert store.kept("shared", name) is None


def test_what_a_later_release_added_stays(cloud_session, table_name, clock):
    client = dynamodb_client(cloud_session)
    store = DynamoWarmUpStore(client, table_name, clock)
    store.write(None, DUE)
    client.update_item(
        TableName=table_name,
        Key=to_item({PARTITION_KEY: endpoint_partition("shared"), SORT_KEY: "ENDPOINT"}),
        UpdateExpression="SET later = :later, warm_up.later = :later",
        ExpressionAttributeValues=to_item({":later": "yes"}),
    )
    assert store.read("shared") == DUE
    store.write(DUE, DUE.taken(LEASE, NOW))
    (item,) = client.scan(TableName=table_name)["Items"]
    assert from_item(item)["later"] == "yes"


def test_what_dynamodb_refuses_for_another_reason_is_raised(cloud_session, clock):
    client = dynamodb_client(cloud_session)
    with Stubber(client) as stubber:
        stubber.add_client_error("update_item", "AccessDeniedException")
        with pytest.raises(ClientError, match="AccessDenied"):
            DynamoWarmUpStore(client, "registry", clock).write(None, RECORD)
