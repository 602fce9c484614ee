"""The collector's adapters on the local cloud: conditional writes of S3, queries of CloudWatch Logs."""

from __future__ import annotations

import json
import time

import pytest
from botocore.exceptions import ClientError

from mme_cli.top.usage import requests_of
from mme_facts.grammar import HEAT_NOTE_KEY, HeatKey
from mme_facts.heat import HeatRules
from mme_tenancy.aws.clients import logs_client, s3_client
from mme_tenancy.aws.heat import S3Heat
from mme_tenancy.aws.logs import LogsInsights
from mme_tenancy.clock import SystemClock
from mme_tenancy.errors import UnavailableError
from mme_tenancy.heat import Counts, HeatError, ModelHeat, PoolHeat
from mme_tenancy.heat_collection import HeatCollection
from mme_tenancy.log_queries import QueriesBusyError, Query, QueryAnswer, QueryFailedError, run_queries
from mme_tenancy.telemetry import invocation_line
from mme_tenancy.testing_client import FakeTenantClient

START = 1_795_953_600


def heat(at, requests=1, pool="xgboost"):
    row = ModelHeat("acme", "iris", "v1-0123456789ab", Counts(requests))
    return PoolHeat(HeatKey(pool, START + at, 300), ("one",), (row,), collected_at="2026-11-29T12:07:00.000Z")


@pytest.fixture
def client(cloud_session):
    return s3_client(cloud_session)


@pytest.fixture
def store(client, bucket_name):
    return S3Heat(client, bucket_name)


def test_a_window_is_written_once_and_read_back(store):
    assert store.create(heat(0, 1))
    assert not store.create(heat(0, 2))
    found, revision = store.get(heat(0).key)
    assert found == heat(0, 1)
    assert revision


def test_a_window_is_replaced_only_in_the_revision_that_was_read(store):
    store.create(heat(0, 1))
    _found, revision = store.get(heat(0).key)
    assert store.replace(heat(0, 2), revision)
    assert not store.replace(heat(0, 3), revision)
    assert store.get(heat(0).key)[0] == heat(0, 2)
    assert not store.replace(heat(300), revision), "nothing is there to be replaced"


def test_windows_of_a_pool_are_listed_from_a_moment_on(store, client, bucket_name):
    for at in (600, 0, 300):
        store.create(heat(at))
    store.create(heat(300, pool="xgboost-gpu"))
    client.put_object(Bucket=bucket_name, Key="heat/xgboost/notes.txt", Body=b"")
    assert [key.start - START for key in store.windows("xgboost", since=START + 300)] == [300, 600]
    assert store.windows("xgboost", since=START + 301) == [heat(600).key]
    assert store.windows("sklearn", since=0) == []
    assert store.pools() == ["xgboost", "xgboost-gpu"]


def test_what_is_not_there_or_not_heat_is_told_apart(store, client, bucket_name):
    assert store.get(heat(0).key) is None
    client.put_object(Bucket=bucket_name, Key=heat(0).key.key, Body=b"junk")
    with pytest.raises(HeatError):
        store.get(heat(0).key)


def test_the_note_is_changed_only_in_the_revision_that_was_read(store, client, bucket_name):
    assert store.recounted_until() is None
    assert store.note_recounted(START, None)
    assert not store.note_recounted(START + 1, None)
    until, revision = store.recounted_until()
    assert until == START
    assert store.note_recounted(START + 300, revision)
    assert not store.note_recounted(START + 600, revision)
    assert store.recounted_until()[0] == START + 300
    assert client.head_object(Bucket=bucket_name, Key=HEAT_NOTE_KEY)["ContentType"] == "application/json"


def test_a_bucket_that_is_gone_is_an_error_and_no_empty_list(client):
    with pytest.raises(ClientError, match="NoSuchBucket"):
        S3Heat(client, "gone").windows("xgboost", since=0)


GROUP = "/ours/heat"


@pytest.fixture
def logs(cloud_session):
    """The client, with a group whose lines tests write."""
    client = logs_client(cloud_session)
    client.create_log_group(logGroupName=GROUP)
    client.create_log_stream(logGroupName=GROUP, logStreamName="s")
    yield client
    client.delete_log_group(logGroupName=GROUP)


def write(logs, *lines):
    put(logs, GROUP, *((at, invocation_line(fields, epoch_seconds=at)) for at, fields in lines))


def put(logs, group, *messages):
    events = [{"timestamp": int(at * 1000), "message": text} for at, text in messages]
    logs.put_log_events(logGroupName=group, logStreamName="s", logEvents=sorted(events, key=lambda event: event["timestamp"]))


@pytest.fixture
def application(logs):
    """The log group of an application."""
    name = "/ecs/shop"
    logs.create_log_group(logGroupName=name)
    logs.create_log_stream(logGroupName=name, logStreamName="s")
    yield name
    logs.delete_log_group(logGroupName=name)


def ask(logs, text, groups=(GROUP,)):
    now = int(time.time())
    query = Query(text, now - 3600, now + 60)
    clock = SystemClock()
    (answer,) = run_queries(LogsInsights(logs, groups), [query], clock=clock, deadline=clock.monotonic() + 30, at_once=1)
    return answer


def test_a_query_is_answered_with_all_its_rows(logs):
    write(logs, *((time.time() - 10, {"tenant": f"t{number}", "status": 200}) for number in range(1200)))
    answer = ask(logs, "stats count(*) as n by tenant")
    assert isinstance(answer, QueryAnswer)
    assert len(answer.rows) == 1200
    assert answer.scanned_bytes > 0


def test_pages_of_an_answer_are_followed():
    pages = {None: ("1", "next"), "next": ("2", None)}

    class Client:
        def get_query_results(self, *, queryId, nextToken=None):  # noqa: N803 - boto3's names
            value, token = pages[nextToken]
            return {"status": "Complete", "results": [[{"field": "n", "value": value}]], **({"nextToken": token} if token else {})}

    assert LogsInsights(Client(), [GROUP]).poll("query").rows == ({"n": "1"}, {"n": "2"})


@pytest.mark.parametrize(("text", "groups"), [("stats what(*)", [GROUP]), ("fields @message", ["/gone"])])
def test_a_query_that_is_refused_has_failed(logs, text, groups):
    assert isinstance(ask(logs, text, groups), QueryFailedError)


def test_a_query_that_is_not_known_any_more_has_failed(logs):
    with pytest.raises(QueryFailedError):
        LogsInsights(logs, [GROUP]).poll("0f0f0f0f-0000-0000-0000-000000000000")


@pytest.mark.parametrize("code", ["LimitExceededException", "ThrottlingException"])
def test_a_service_that_takes_no_more_is_busy_and_a_denial_stays_one(code):
    class Client:
        def start_query(self, **_given):
            raise ClientError({"Error": {"Code": code, "Message": "m"}}, "StartQuery")

    queries = LogsInsights(Client(), [GROUP])
    with pytest.raises(QueriesBusyError):
        queries.start(Query("fields n", 0, 1))
    code = "AccessDeniedException"
    with pytest.raises(ClientError):
        queries.start(Query("fields n", 0, 1))


def test_stopping_what_has_ended_is_no_error(logs):
    queries = LogsInsights(logs, [GROUP])
    started = queries.start(Query("fields n", 0, 1))
    clock = SystemClock()
    while queries.poll(started) is None:
        clock.sleep(0.02)
    queries.stop(started)


def test_a_pass_on_real_services_writes_what_the_lines_say(logs, store):
    clock = SystemClock()
    rules = HeatRules({"xgboost": ("one",)}, window_seconds=60, delay_seconds=0)
    end = int(clock.time()) // 60 * 60
    line = {"tenant": "acme", "model": "iris", "version": "v1-0123456789ab", "endpoint": "one", "bytes_in": 10, "bytes_out": 2}
    inside = [(end - 60 + number / 2, line | {"cold": int(number == 0), "failed": 0, "model_latency_ms": 1.5}) for number in range(119)]
    write(logs, *inside, (end - 60.5, line), (end - 1, {"tenant": "acme", "status": 404}))
    done = HeatCollection(LogsInsights(logs, [GROUP]), store, clock, rules).collect(clock.monotonic() + 30)
    assert done.failed == 0
    found, _revision = store.get(HeatKey("xgboost", end - 60, 60))
    assert [row.counts for row in found.rows] == [Counts(119, 1190, 238, 1, 0, 178.5)]


class Earlier(SystemClock):
    """The machine's clock, so many seconds ago."""

    def __init__(self, seconds):
        super().__init__()
        self.seconds = seconds

    def time(self):
        return super().time() - self.seconds


def test_lines_that_come_late_are_counted_on_real_services_too(logs, store):
    rules, clock = HeatRules({"xgboost": ("one",)}, window_seconds=60, delay_seconds=0, recount_seconds=1800), Earlier(7200)
    end = int(clock.time()) // 60 * 60
    line = {"tenant": "acme", "model": "iris", "version": "v1-0123456789ab", "endpoint": "one", "bytes_in": 10, "bytes_out": 2}

    def run(seconds_ago):
        later = Earlier(seconds_ago)
        return HeatCollection(LogsInsights(logs, [GROUP]), store, later, rules).collect(later.monotonic() + 30)

    write(logs, *((end - 60 + number, line) for number in range(50)))
    assert (run(7200).windows, run(7200).failed) == (1, 0)
    write(logs, (end - 30, line), (end - 29, line))
    done = run(5000)
    assert (done.late_lines, done.failed) == (2, 0)
    found, _revision = store.get(HeatKey("xgboost", end - 60, 60))
    assert (found.total.requests, found.late_lines) == (52, 2)
    assert store.recounted_until()[0] == end
    assert run(4900).late_lines == 0


def test_requests_of_applications_count_beside_those_of_the_api_and_their_other_lines_do_not(logs, store, application):
    clock, own = SystemClock(), []
    end = int(clock.time()) // 60 * 60
    client = FakeTenantClient(log=own.append)
    client.serve("globex", "prices", lambda _body: b"12")
    for _ in range(20):
        client.invoke("globex", "prices", b"1234")
    client.fail_next(UnavailableError("down"))
    with pytest.raises(UnavailableError):
        client.invoke("globex", "prices", b"1234")
    line = {"tenant": "acme", "model": "iris", "version": "v1-0123456789ab", "endpoint": "one", "bytes_in": 10, "bytes_out": 2}
    line |= {"status": 200, "failed": 0, "cold": 0, "latency_ms": 3.0, "model_latency_ms": 1.0}
    write(logs, *((end - 60 + number, line) for number in range(30)))
    others = [
        "started",
        json.dumps({"endpoint": "one", "status": 200, "latency_ms": 5}),
        json.dumps({"tenant": "acme", "status": 200, "latency_ms": 5}),
        json.dumps({"tenant": "acme", "endpoint": "fake", "failed": 0}),
    ]
    put(logs, application, *((end - 50 + number / 1000, text) for number, text in enumerate(own + others)))
    queries = LogsInsights(logs, [GROUP, application])
    rules = HeatRules({"xgboost": ("one", "fake")}, window_seconds=60, delay_seconds=0)

    done = HeatCollection(queries, store, clock, rules).collect(clock.monotonic() + 30)
    assert (done.failed, done.unassigned) == (0, 0)
    found, _revision = store.get(HeatKey("xgboost", end - 60, 60))
    assert {row.tenant: (row.counts.requests, row.counts.bytes_in, row.counts.bytes_out, row.counts.failed) for row in found.rows} == {
        "acme": (30, 300, 60, 0),
        "globex": (21, 84, 40, 1),
    }

    top = requests_of(queries, end - 60, end, clock)
    assert {row.tenant: (row.requests, row.bytes_in, row.bytes_out, row.failed) for row in top.tenants} == {
        "acme": (30, 300, 60, 0),
        "globex": (21, 84, 40, 1),
    }
    assert top.total.requests == 51


def test_a_log_group_that_is_gone_fails_the_pass_and_says_so(logs, store):
    clock = SystemClock()
    rules = HeatRules({"xgboost": ("one",)}, window_seconds=60, delay_seconds=0)
    done = HeatCollection(LogsInsights(logs, [GROUP, "/ecs/gone"]), store, clock, rules).collect(clock.monotonic() + 30)
    assert (done.windows, done.failed, done.missing) == (0, 1, 1)
    assert "gone" in done.why[0]
