"""The client of the model servers, against a server that says exactly what a test scripts, on both event loops."""

import asyncio

import pytest
import uvloop

from mme_local.dataplane.http_client import ConnectFailed, ConnectionBroken, HttpClient

OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/csv\r\nContent-Length: 2\r\n\r\nok"
PART = b"x" * 65536


class Scripted:
    """A server of one script: for each request of a connection what to write; ``None`` closes the connection."""

    def __init__(self, *script):
        self.script, self.requests, self.connections, self.lost = script, [], 0, 0
        self.writer = None
        self.step = asyncio.Event()

    async def serve(self, reader, writer):
        self.connections += 1
        self.writer = writer
        try:
            for answer in self.script:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
                self.requests.append(head + await reader.readexactly(length))
                if answer is None:
                    break
                if callable(answer):
                    await answer(writer)
                else:
                    writer.write(answer)
                    await writer.drain()
            else:
                await reader.read()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.lost += 1
            self.step.set()
            writer.close()

    async def until_lost(self, count):
        async with asyncio.timeout(30):
            while self.lost < count:
                self.step.clear()
                await self.step.wait()


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def talk(request):
    """Runs a conversation with a server of a script: ``talk(conversation, *script)``."""

    def run(conversation, *script):
        async def both():
            scripted = Scripted(*script)
            server = await asyncio.start_server(scripted.serve, "127.0.0.1", 0)
            client = HttpClient(server.sockets[0].getsockname()[1])
            try:
                async with asyncio.timeout(30):
                    return await conversation(client, scripted)
            finally:
                client.close()
                server.close()

        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(both())

    return run


async def get(client):
    return await client.request("GET", "/")


def test_a_request_is_sent_with_nothing_but_what_was_given(talk):
    async def conversation(client, scripted):
        response = await client.request(
            "POST", "/models/a/invoke", headers=[(b"Content-Type", b"text/csv"), (b"Accept", b"*/*")], body=b"1,2"
        )
        return response, scripted.requests

    response, (sent,) = talk(conversation, OK)
    head, _, body = sent.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert (lines[0], lines[2:], body) == (
        b"POST /models/a/invoke HTTP/1.1",
        [b"Content-Type: text/csv", b"Accept: */*", b"Content-Length: 3"],
        b"1,2",
    )
    assert lines[1].startswith(b"Host: 127.0.0.1:")
    assert (response.status, response.content_type, response.body, response.text) == (200, "text/csv", b"ok", "ok")


def test_an_empty_post_says_that_it_is_empty_and_a_delete_says_nothing(talk):
    async def conversation(client, scripted):
        await client.request("POST", "/models")
        await client.request("DELETE", "/models/a")
        return scripted.requests

    posted, deleted = talk(conversation, OK, OK)
    assert b"Content-Length: 0\r\n" in posted
    assert b"Content-Length" not in deleted


def test_headers_and_body_go_out_as_given(talk):
    async def conversation(client, scripted):
        headers = ((b"Content-Type", b"application/json"),)
        await client.request("POST", "/models", headers=headers, body=b'{"model_name": "a"}')
        return scripted.requests

    (sent,) = talk(conversation, OK)
    assert sent.endswith(b'Content-Type: application/json\r\nContent-Length: 19\r\n\r\n{"model_name": "a"}')


def test_a_large_body_arrives_whole(talk):
    async def conversation(client, scripted):
        await client.request("POST", "/", body=PART * 96)
        return scripted.requests

    (sent,) = talk(conversation, OK)
    assert sent.partition(b"\r\n\r\n")[2] == PART * 96


def test_one_connection_serves_many_requests_and_concurrent_ones_get_their_own(talk):
    async def conversation(client, scripted):
        for _ in range(3):
            await get(client)
        one = scripted.connections
        await asyncio.gather(get(client), get(client), get(client))
        await get(client)
        return one, scripted.connections

    assert talk(conversation, *[OK] * 10) == (1, 3)


async def until(condition):
    while not condition():
        await asyncio.sleep(0)


def test_a_connection_that_the_server_closed_is_not_used_again(talk):
    async def conversation(client, scripted):
        await get(client)
        assert client.idle == 1
        scripted.writer.close()
        await until(lambda: client.idle == 0)
        await get(client)
        return scripted.connections

    assert talk(conversation, OK) == 2


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        OK + b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 6\r\n\r\nunasked"[:-1],
    ],
    ids=["it is to be closed", "HTTP 1.0", "a second answer came unasked"],
)
def test_a_connection_is_not_used_again_when(talk, answer):
    async def conversation(client, scripted):
        first, second = await get(client), await get(client)
        return first.body, second.body, scripted.connections

    assert talk(conversation, answer) == (b"ok", b"ok", 2)


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", b"abcde"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, b"ok"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b""),
    ],
    ids=["chunks", "an interim answer before it", "no content", "an empty body"],
)
def test_an_answer_is_read_to_its_end_and_its_connection_kept(talk, answer, body):
    async def conversation(client, scripted):
        bodies = [(await get(client)).body, (await get(client)).body]
        return bodies, scripted.connections

    assert talk(conversation, answer, answer) == ([body, body], 1)


def test_a_body_without_a_length_ends_with_its_connection(talk):
    async def to_the_end(writer):
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nuntil ")
        await writer.drain()
        writer.write(b"the end")
        writer.close()

    async def conversation(client, scripted):
        return (await get(client)).body, (await get(client)).body, scripted.connections

    assert talk(conversation, to_the_end) == (b"until the end", b"until the end", 2)


def test_a_server_that_takes_no_connections_is_told_from_one_that_breaks_them(talk):
    async def conversation(client, scripted):
        with pytest.raises(ConnectionBroken):
            await get(client)
        refusing = await asyncio.start_server(scripted.serve, "127.0.0.1", 0)
        port = refusing.sockets[0].getsockname()[1]
        refusing.close()
        with pytest.raises(ConnectFailed):
            await get(HttpClient(port))

    talk(conversation, None)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok",
    ],
    ids=["a body", "headers", "chunks"],
)
def test_what_breaks_off_is_no_answer(talk, answer):
    async def broken(writer):
        writer.write(answer)
        await writer.drain()
        writer.close()

    async def conversation(client, scripted):
        with pytest.raises(ConnectionBroken):
            await get(client)
        return client.idle, len(scripted.requests)

    assert talk(conversation, broken) == (0, 1)  # and nothing is sent a second time


@pytest.mark.parametrize("answer", [b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"])
def test_what_is_no_http_is_no_answer(talk, answer):
    async def conversation(client, scripted):
        with pytest.raises(ConnectionBroken, match="no HTTP"):
            await get(client)
        await scripted.until_lost(1)
        return client.idle

    assert talk(conversation, answer) == 0


@pytest.mark.parametrize("value", [b"a\r\nX-Injected: 1", b"a\nX", b"a\0"])
def test_a_header_that_would_end_its_line_is_refused_and_nothing_is_sent(talk, value):
    async def conversation(client, scripted):
        with pytest.raises(ValueError, match="line break"):
            await client.request("GET", "/", headers=[(b"Accept", value)])
        return scripted.connections

    assert talk(conversation, OK) == 0


async def forever(writer):
    writer.write(b"")


def test_a_cancelled_request_closes_its_connection(talk):
    async def conversation(client, scripted):
        task = asyncio.create_task(get(client))
        await until(lambda: scripted.requests)
        task.cancel()
        await scripted.until_lost(1)
        with pytest.raises(asyncio.CancelledError):
            await task
        return client.idle

    assert talk(conversation, forever) == 0


def test_closing_the_client_ends_what_is_under_way_and_what_comes_later(talk):
    async def conversation(client, scripted):
        task = asyncio.create_task(get(client))
        await until(lambda: scripted.requests)
        client.close()
        with pytest.raises(ConnectionBroken):
            await task
        await scripted.until_lost(1)
        with pytest.raises(ConnectFailed):
            await get(client)

    talk(conversation, forever)


def test_a_stream_gives_its_parts_as_they_come(talk):
    go = asyncio.Event()

    async def slowly(writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
        await go.wait()
        writer.write(b"3\r\ntwo\r\n0\r\n\r\n")

    async def conversation(client, scripted):
        async with client.stream("POST", "/invocations", body=b"x") as stream:
            parts = stream.chunks()
            first = await anext(parts)
            assert client.idle == 0
            go.set()
            rest = [part async for part in parts]
        await get(client)
        return (stream.status, stream.content_type, first, rest), scripted.connections, scripted.requests[0][-1:]

    assert talk(conversation, slowly, OK) == ((200, "text/plain", b"one", [b"two"]), 1, b"x")


def test_a_stream_that_breaks_off_gives_what_came_and_then_fails(talk):
    async def broken(writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok")
        await writer.drain()
        writer.close()

    async def conversation(client, scripted):
        async with client.stream("GET", "/") as stream:
            parts = stream.chunks()
            came = await anext(parts)
            with pytest.raises(ConnectionBroken):
                await anext(parts)
        return came, client.idle

    assert talk(conversation, broken) == (b"ok", 0)


def test_a_stream_whose_headers_never_come_fails(talk):
    async def conversation(client, scripted):
        with pytest.raises(ConnectionBroken):
            async with client.stream("GET", "/"):
                pytest.fail("there is no answer")

    talk(conversation, None)


def test_leaving_a_stream_early_closes_its_connection(talk):
    async def endless(writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\nok")

    async def conversation(client, scripted):
        async with client.stream("GET", "/") as stream:
            assert await anext(stream.chunks()) == b"ok"
        await scripted.until_lost(1)
        return client.idle

    assert talk(conversation, endless) == 0


def test_a_stream_that_nobody_reads_holds_the_server_back(talk):
    count = 800
    written = []

    async def much(writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (count * len(PART)))
        for _ in range(count):
            writer.write(PART)
            await writer.drain()
            written.append(1)

    async def conversation(client, scripted):
        async with client.stream("GET", "/") as stream:
            parts = stream.chunks()
            size = len(await anext(parts))
            before = -1
            while before != len(written):  # until the server gets no further
                before = len(written)
                for _ in range(100):
                    await asyncio.sleep(0)
            assert before < count
            async for part in parts:
                size += len(part)
            return size, len(written)

    assert talk(conversation, much) == (count * len(PART), count)


def test_a_connection_that_ends_before_the_request_is_sent_breaks_it(talk, monkeypatch):
    """Nobody tells who writes to it: the loop has told already."""
    connect = HttpClient._connect

    async def connect_and_lose(client):
        connection = await connect(client)
        await until(lambda: not connection.reusable)
        for _ in range(10):  # the loop has told everybody
            await asyncio.sleep(0)
        return connection

    async def hang_up(_reader, writer):
        writer.close()

    async def conversation(_client, _scripted):
        server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
        client = HttpClient(server.sockets[0].getsockname()[1])
        with pytest.raises(ConnectionBroken):
            await get(client)
        with pytest.raises(ConnectionBroken):
            async with client.stream("GET", "/"):
                pytest.fail("there is no answer")
        server.close()

    monkeypatch.setattr(HttpClient, "_connect", connect_and_lose)
    talk(conversation)
