from __future__ import annotations

import asyncio
import gc
import io
import json
import threading
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing

import numpy as np
import pytest

from mme_tenancy import telemetry
from mme_tenancy.client import AsyncTenantClient
from mme_tenancy.errors import InvalidRequestError, ModelNotFoundError, TenantNotFoundError, ThrottledError
from mme_tenancy.serializers import AnswerUnreadableError, Csv, Json, Numpy
from mme_tenancy.testing_client import FakeTenantClient


@pytest.fixture
def client():
    client = FakeTenantClient()
    client.serve("acme", "echo", lambda body: body)
    client.serve("acme", "noise", lambda _body: b"\xff{")
    return client


def test_an_answer_says_what_answered(client):
    answer = client.invoke("acme", "echo", b"1,2", content_type="text/csv", accept="text/csv", sticky_key="u1")
    assert (answer.body, answer.content_type, answer.version, answer.attempts, answer.cold) == (
        b"1,2",
        "text/csv",
        "v1-000000000000",
        1,
        False,
    )
    (seen,) = client.seen
    assert (seen.tenant, seen.model, seen.sticky_key, seen.request.idempotent) == ("acme", "echo", "u1", True)


@pytest.mark.parametrize("value", [[[1.5, 2], ["a", None]], {"größe": True}])
def test_json_goes_there_and_back(client, value):
    assert client.predict("acme", "echo", value) == value
    assert client.seen[0].request.content_type == client.seen[0].request.accept == "application/json"


def test_csv_goes_there_and_comes_back_as_text(client):
    assert client.predict("acme", "echo", [[1, 2.5], ["a,b", 'say "x"']], serializer=Csv()) == [["1", "2.5"], ["a,b", 'say "x"']]


def test_arrays_go_there_and_back(client):
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    answered = client.predict("acme", "echo", array, serializer=Numpy())
    assert answered.dtype == np.float32
    assert np.array_equal(answered, array)


def test_what_json_and_arrays_cannot_hold_is_refused_before_anything_is_sent(client):
    with pytest.raises(ValueError, match="not JSON compliant"):
        client.predict("acme", "echo", [float("nan")])
    with pytest.raises(ValueError, match="pickle"):
        client.predict("acme", "echo", np.array([object()]), serializer=Numpy())
    assert client.seen == []


@pytest.mark.parametrize("serializer", [Json(), Csv(), Numpy()])
def test_an_answer_in_another_format_is_an_error_of_the_tree(client, serializer):
    with pytest.raises(AnswerUnreadableError, match="the model's answer"):
        client.predict("acme", "noise", [[1]], serializer=serializer)


@pytest.mark.parametrize(
    ("tenant", "model", "field"), [("Acme", "echo", "tenant"), ("acme", "../echo", "model"), ("acme/x", "echo", "tenant")]
)
def test_names_outside_the_grammar_are_refused(client, tenant, model, field):
    with pytest.raises(InvalidRequestError) as refused:
        client.invoke(tenant, model, b"")
    assert refused.value.field == field


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_a_time_limit_that_allows_nothing_is_refused(client, seconds):
    with pytest.raises(InvalidRequestError, match="timeout_seconds"):
        client.invoke("acme", "echo", b"", timeout_seconds=seconds)


def test_the_fake_knows_what_is_not_there_and_fails_when_told_to(client):
    with pytest.raises(TenantNotFoundError):
        client.invoke("nobody", "echo", b"")
    with pytest.raises(ModelNotFoundError):
        client.invoke("acme", "other", b"")
    client.fail_next(ThrottledError("slow down", retry_after_seconds=1))
    with pytest.raises(ThrottledError):
        client.invoke("acme", "echo", b"")
    assert client.invoke("acme", "echo", b"1").body == b"1"


def test_without_a_sticky_key_each_request_has_its_own(client):
    for _ in range(5):
        client.invoke("acme", "echo", b"")
    assert len({seen.sticky_key for seen in client.seen}) == 5


def test_the_asyncio_client_makes_the_same_calls_at_the_same_time(client):
    async def calls():
        async with AsyncTenantClient(client, threads=8) as several:
            first = await several.invoke("acme", "echo", b"1", accept="text/csv")
            return first, await asyncio.gather(*(several.predict("acme", "echo", [number]) for number in range(50)))

    first, rest = asyncio.run(calls())
    assert (first.body, rest) == (b"1", [[number] for number in range(50)])


def test_an_error_reaches_the_awaiting_caller(client):
    async def call():
        async with AsyncTenantClient(client) as one:
            await one.invoke("acme", "other", b"")

    with pytest.raises(ModelNotFoundError):
        asyncio.run(call())


def test_each_request_writes_one_line_when_a_log_is_given():
    lines = []
    client = FakeTenantClient(log=lines.append)
    client.serve("acme", "echo", lambda body: body)
    client.invoke("acme", "echo", b"123")
    client.fail_next(ThrottledError("slow down", retry_after_seconds=1))
    with pytest.raises(ThrottledError):
        client.invoke("acme", "echo", b"123")
    first, second = map(json.loads, lines)
    assert (first["tenant"], first["model"], first["status"], first["bytes_in"], first["bytes_out"]) == ("acme", "echo", 200, 3, 3)
    assert (first["version"], first["attempts"], first["failed"]) == ("v1-000000000000", 1, 0)
    assert (second["status"], second["problem"], second["attempts"]) == (429, "throttled", 0)
    assert first["_aws"]["CloudWatchMetrics"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("text of a payload")])
def test_a_request_that_ends_in_no_error_of_the_tree_has_its_line_too(error):
    def answer(_body):
        raise error

    lines = []
    client = FakeTenantClient(log=lines.append)
    client.serve("acme", "echo", answer)
    with pytest.raises(type(error)):
        client.invoke("acme", "echo", b"123")
    (line,) = map(json.loads, lines)
    assert (line["tenant"], line["status"], line["failed"], line["problem"]) == ("acme", 500, 1, "internal-error")
    assert line["exception"] == type(error).__name__
    assert "payload" not in lines[0]


def echo_many(client, calls):
    client.serve("acme", "echo", lambda body: body)
    with ThreadPoolExecutor(16) as threads:
        list(threads.map(lambda number: client.invoke("acme", "echo", b"%d" % number), range(calls)))


def test_a_log_is_given_one_line_at_a_time():
    under_way, met = [], []

    def log(line):
        under_way.append(line)
        time.sleep(0)  # lets the other threads run
        met.append(len(under_way))
        under_way.pop()

    echo_many(FakeTenantClient(log=log), 400)
    assert met == [1] * 400


class SlowBytes(io.BytesIO):
    def write(self, data):
        time.sleep(0)  # lets the other threads run, as a write to a file does
        return super().write(data)


def test_lines_of_many_threads_are_all_in_a_text_file_and_none_stays_in_memory():
    raw = SlowBytes()
    with io.TextIOWrapper(raw, encoding="utf-8") as file:
        client = FakeTenantClient(log=lambda line: file.write(f"{line}\n"))
        tracemalloc.start()
        try:
            echo_many(client, 2000)
            file.flush()
            client.seen.clear()
            gc.collect()
            of_lines = [tracemalloc.Filter(True, name) for name in (telemetry.__file__, __file__)]
            left = tracemalloc.take_snapshot().filter_traces(of_lines)
        finally:
            tracemalloc.stop()
        written = sorted(json.loads(line)["bytes_in"] for line in raw.getvalue().splitlines())
    assert written == sorted(len(str(number)) for number in range(2000))
    assert len(left.traces) < 20


def test_a_line_may_be_written_while_the_same_thread_writes_another(monkeypatch):
    # A lock of its own: were it held for good, only this test would fail.
    monkeypatch.setattr(telemetry, "_WRITING", type(telemetry._WRITING)())
    lines = []

    def log(line):
        lines.append(line)
        if len(lines) == 1:
            client.invoke("acme", "echo", b"")

    client = FakeTenantClient(log=log)
    client.serve("acme", "echo", lambda body: body)
    calling = threading.Thread(target=client.invoke, args=("acme", "echo", b"1"), daemon=True)
    calling.start()
    calling.join(30)
    assert [json.loads(line)["bytes_in"] for line in lines] == [1, 0]


def tokens(body):
    yield from (bytes([byte]) for byte in body)


@pytest.fixture
def lines():
    return []


@pytest.fixture
def streaming(lines):
    client = FakeTenantClient(log=lines.append)
    client.serve("acme", "echo", lambda body: body)
    client.serve_stream("acme", "tokens", tokens)
    return client


def test_an_answer_is_streamed_with_one_line_at_its_end(streaming, lines):
    with streaming.stream("acme", "tokens", b"abc", accept="text/plain") as answer:
        assert (answer.content_type, next(answer), lines) == ("text/plain", b"a", [])
        assert list(answer) == [b"b", b"c"]
    (line,) = map(json.loads, lines)
    assert (line["status"], line["bytes_in"], line["bytes_out"], line["placement"], line["attempts"]) == (200, 3, 3, "dedicated", 1)


def test_a_stream_that_is_left_has_its_line(streaming, lines):
    with streaming.stream("acme", "tokens", b"abc") as answer:
        next(answer)
    assert [json.loads(line)["bytes_out"] for line in lines] == [1]


def test_a_stream_that_is_refused_has_its_line(streaming, lines):
    for model, error in (("echo", InvalidRequestError), ("none", ModelNotFoundError)):
        with pytest.raises(error):
            streaming.stream("acme", model, b"1")
    streaming.fail_next(ThrottledError("slow down", retry_after_seconds=1))
    with pytest.raises(ThrottledError):
        streaming.stream("acme", "tokens", b"1")
    with pytest.raises(TenantNotFoundError):
        streaming.stream("globex", "tokens", b"1")
    assert [json.loads(line)["status"] for line in lines] == [400, 404, 429, 404]


@pytest.mark.parametrize("options", [{"timeout_seconds": 0}, {"first_part_seconds": -1}])
def test_a_stream_has_time_or_is_refused(streaming, options):
    with pytest.raises(InvalidRequestError, match=next(iter(options))):
        streaming.stream("acme", "tokens", b"1", **options)


def test_the_asynchronous_client_streams_and_a_stream_that_is_left_ends(streaming, lines):
    async def scenario():
        async with AsyncTenantClient(streaming) as several:
            parts = [part async for part in several.stream("acme", "tokens", b"abc")]
            async with aclosing(several.stream("acme", "tokens", b"abc")) as left:
                parts.append(await anext(left))
            with pytest.raises(InvalidRequestError):
                await anext(several.stream("acme", "echo", b"abc"))
        return parts

    assert asyncio.run(scenario()) == [b"a", b"b", b"c", b"a"]
    assert sorted(json.loads(line).get("bytes_out", 0) for line in lines) == [0, 1, 3]


def test_a_stream_whose_caller_is_cancelled_before_it_began_is_closed(streaming, lines):
    waiting, go_on = threading.Event(), threading.Event()

    def slow(body):
        waiting.set()
        go_on.wait(30)
        yield body

    streaming.serve_stream("acme", "slow", slow)

    async def scenario():
        several = AsyncTenantClient(streaming)
        first = asyncio.ensure_future(anext(several.stream("acme", "slow", b"abc")))
        await asyncio.to_thread(waiting.wait, 30)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        go_on.set()
        await asyncio.to_thread(several._threads.shutdown)

    asyncio.run(scenario())
    assert [json.loads(line)["bytes_out"] for line in lines] == [0]
