"""A server of the MME container contract that computes nothing: loads, answers and failures go by a script.

It serves large fleets and tests: thousands of models in one small process. Started as a script of its own, with the standard library
alone: ``python simulated_server.py PORT SCRIPT``, where ``SCRIPT`` is a JSON file (`Script`). A file ``simulated.json`` in a model's
folder overrides the script's behaviour for that model.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, fields, replace
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

__all__ = ["Answer", "Behaviour", "Connection", "Container", "Model", "Request", "Script", "main", "serve"]

MODEL_SCRIPT = "simulated.json"
_HEAD_BYTES = 64 * 1024
_PAGE = 100
_JSON = "application/json"
_CUSTOM_ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"

Seconds = float | tuple[float, float]


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What a model does.

    Attributes:
        bytes: memory that it takes; on a fleet's instance also the size of its artifact unpacked. 0: on an instance, the real size.
        load_seconds: a number, or the least and the most, between which it is drawn evenly.
        unload_seconds: in the same way.
        invoke_seconds: in the same way; until the first byte of the answer.
        load_status: what a load is answered; above 299 it fails.
        load_failures: how many loads of the model end so before they succeed; ``None``: all.
        invoke_status: what an invocation is answered.
        invoke_failures: how many invocations end so before they succeed; ``None``: all.
        answer: body of an answer; ``None``: the request's own.
        content_type: of the answer; ``None``: what the request accepts, or its own.
        custom_attributes: of the answer; ``None``: it has none.
        chunks: parts of an answer; more than one are sent one by one.
        chunk_seconds: between two parts.
        workers: invocations at once; the others wait. 0: any number.
        queue: how many may wait; one more gets 503.
        dies: an invocation ends the process.
    """

    bytes: int = 0
    load_seconds: Seconds = 0.0
    unload_seconds: Seconds = 0.0
    invoke_seconds: Seconds = 0.0
    load_status: int = 200
    load_failures: int | None = None
    invoke_status: int = 200
    invoke_failures: int | None = None
    answer: str | None = None
    content_type: str | None = None
    custom_attributes: str | None = None
    chunks: int = 1
    chunk_seconds: float = 0.0
    workers: int = 0
    queue: int = 100
    dies: bool = False

    def __post_init__(self) -> None:
        for name in ("load_seconds", "unload_seconds", "invoke_seconds"):
            least, most = _range(name, getattr(self, name))
            if not 0 <= least <= most:
                raise ValueError(f"{name} is {getattr(self, name)}: use seconds from 0, or two numbers, the least and the most")
        for name in ("load_status", "invoke_status"):
            if not 200 <= getattr(self, name) <= 599:
                raise ValueError(f"{name} is {getattr(self, name)}: use a status from 200 to 599")
        for name, least in (("bytes", 0), ("chunks", 1), ("chunk_seconds", 0), ("workers", 0), ("queue", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}: use {least} or more")

    def overridden(self, document: Any) -> Behaviour:
        """This behaviour with the fields of a JSON object; raises `ValueError` if there is something else in it."""
        if not isinstance(document, dict):
            raise ValueError(f"{document!r} is no JSON object")  # noqa: TRY004 - a wrong document, not a wrong call
        known = {item.name for item in fields(self)}
        if unknown := sorted(set(document) - known):
            raise ValueError(f"unknown fields {', '.join(unknown)}: use {', '.join(sorted(known))}")
        values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in document.items()}
        try:
            return replace(self, **values)
        except TypeError as error:
            raise ValueError(f"a value has a wrong type: {error}") from None


@dataclass(frozen=True, slots=True)
class Script:
    """What the server does.

    Attributes:
        memory_bytes: a load that does not fit gets 507; ``None``: everything fits.
        seed: of the drawn times.
        behaviour: of every model, before its own overrides.
    """

    memory_bytes: int | None = None
    seed: int = 0
    behaviour: Behaviour = field(default_factory=Behaviour)

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Script:
        """Read a JSON object: ``memory_bytes``, ``seed`` and the fields of `Behaviour`; raises `ValueError` if it is not one."""
        rest = dict(document)
        memory_bytes, seed = rest.pop("memory_bytes", None), rest.pop("seed", 0)
        if memory_bytes is not None and not (isinstance(memory_bytes, int) and memory_bytes > 0):
            raise ValueError(f"memory_bytes is {memory_bytes!r}: use a positive number, or null")
        return cls(memory_bytes, seed, Behaviour().overridden(rest))


@dataclass(slots=True)
class Model:
    """A loaded model, or one that is being loaded."""

    name: str
    url: str
    behaviour: Behaviour
    ready: bool = False
    running: int = 0
    waiting: int = 0
    free: asyncio.Condition = field(default_factory=asyncio.Condition)

    def document(self) -> dict[str, str]:
        """As it is listed and described."""
        return {"modelName": self.name, "modelUrl": self.url}


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it came; names of headers are in lower case."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """What is sent back; ``parts`` instead of ``body`` are sent one by one."""

    status: int
    body: bytes = b""
    content_type: str = _JSON
    parts: AsyncIterator[bytes] | None = None
    custom_attributes: str | None = None


def _document(status: int, document: object) -> Answer:
    return Answer(status, json.dumps(document).encode())


def _refusal(status: int, message: str) -> Answer:
    return _document(status, {"code": status, "message": message})


class Container:
    """The container contract over scripted models.

    Args:
        script: what happens.
    """

    def __init__(self, script: Script) -> None:
        self.script = script
        self.models: dict[str, Model] = {}
        self._random = random.Random(script.seed)  # noqa: S311 - simulation
        self._failed_loads: dict[str, int] = {}
        self._failed_invocations: dict[str, int] = {}

    async def handle(self, request: Request) -> Answer:
        """Answer any request."""
        parts = request.path.strip("/").split("/")
        match request.method, *parts:
            case "GET", "ping":
                return await self.ping()
            case "POST", "models":
                return await self.load(request)
            case "GET", "models":
                return await self.list_models(request)
            case "GET", "models", name:
                return await self.describe(unquote(name))
            case "DELETE", "models", name:
                return await self.unload(unquote(name))
            case "POST", "models", name, "invoke":
                return await self.invoke(unquote(name), request)
            case "POST", "invocations" if len(self.models) == 1:
                return await self.invoke(next(iter(self.models)), request)
        return _refusal(HTTPStatus.NOT_FOUND, f"there is no {request.method} {request.path}")

    async def ping(self) -> Answer:
        """``GET /ping``."""
        return _document(HTTPStatus.OK, {"status": "Healthy"})

    async def load(self, request: Request) -> Answer:
        """``POST /models``."""
        try:
            document = json.loads(request.body)
            name, url = document["model_name"], document["url"]
        except (ValueError, KeyError, TypeError):
            return _refusal(HTTPStatus.BAD_REQUEST, 'the body is not JSON with "model_name" and "url"')
        if not (isinstance(name, str) and name and isinstance(url, str) and url):
            return _refusal(HTTPStatus.BAD_REQUEST, '"model_name" and "url" must be text')
        if name in self.models:
            return _refusal(HTTPStatus.CONFLICT, f"model {name} is loaded already")
        if not Path(url).is_dir():
            return _refusal(HTTPStatus.NOT_FOUND, f"there is no folder {url}")
        try:
            behaviour = self.behaviour(Path(url))
        except (OSError, ValueError) as error:
            return _refusal(HTTPStatus.INTERNAL_SERVER_ERROR, f"{MODEL_SCRIPT} cannot be used: {error}")
        used = sum(model.behaviour.bytes for model in self.models.values())
        if self.script.memory_bytes is not None and used + behaviour.bytes > self.script.memory_bytes:
            return _refusal(HTTPStatus.INSUFFICIENT_STORAGE, f"{behaviour.bytes} bytes do not fit beside {used}")
        model = self.models[name] = Model(name, url, behaviour)
        try:
            await self.pause(behaviour.load_seconds)
            if behaviour.load_status >= HTTPStatus.MULTIPLE_CHOICES and _another(self._failed_loads, name, behaviour.load_failures):
                return _refusal(behaviour.load_status, "the script says so")
            model.ready = True
        finally:
            if not model.ready:
                del self.models[name]
        return _document(HTTPStatus.OK, {"status": "loaded"})

    def behaviour(self, folder: Path) -> Behaviour:
        """The behaviour of the model in a folder."""
        path = folder / MODEL_SCRIPT
        return self.script.behaviour.overridden(json.loads(path.read_bytes())) if path.exists() else self.script.behaviour

    async def list_models(self, request: Request) -> Answer:
        """``GET /models``, in pages of at most ``limit``."""
        ready = [model.document() for model in self.models.values() if model.ready]
        try:
            start, limit = int(request.query.get("next_page_token", 0)), int(request.query.get("limit", _PAGE))
        except ValueError:
            return _refusal(HTTPStatus.BAD_REQUEST, "next_page_token and limit are numbers")
        page: dict[str, object] = {"models": ready[start : start + limit]}
        if start + limit < len(ready):
            page["nextPageToken"] = str(start + limit)
        return _document(HTTPStatus.OK, page)

    async def describe(self, name: str) -> Answer:
        """``GET /models/NAME``."""
        model = self.find(name)
        return _unknown(name) if model is None else _document(HTTPStatus.OK, model.document())

    async def unload(self, name: str) -> Answer:
        """``DELETE /models/NAME``; its memory is free when this is answered."""
        model = self.find(name)
        if model is None:
            return _unknown(name)
        model.ready = False
        await self.pause(model.behaviour.unload_seconds)
        del self.models[name]
        return _document(HTTPStatus.OK, {"status": "unloaded"})

    async def invoke(self, name: str, request: Request) -> Answer:
        """``POST /models/NAME/invoke``."""
        model = self.find(name)
        if model is None:
            return _unknown(name)
        if model.behaviour.dies:
            os._exit(1)
        if not await self._worker(model):
            return _refusal(HTTPStatus.SERVICE_UNAVAILABLE, f"the queue of {name} is full")
        try:
            await self.pause(model.behaviour.invoke_seconds)
        finally:
            async with model.free:
                model.running -= 1
                model.free.notify()
        return self.prediction(model, request)

    def prediction(self, model: Model, request: Request) -> Answer:
        """What a model answers."""
        behaviour = model.behaviour
        if behaviour.invoke_status != HTTPStatus.OK and _another(self._failed_invocations, model.name, behaviour.invoke_failures):
            return _refusal(behaviour.invoke_status, "the script says so")
        body = request.body if behaviour.answer is None else behaviour.answer.encode()
        accept = request.headers.get("accept", "*/*")
        content_type = behaviour.content_type or (request.headers.get("content-type", "text/plain") if "*" in accept else accept)
        told = behaviour.custom_attributes
        if behaviour.chunks == 1:
            return Answer(HTTPStatus.OK, body, content_type, custom_attributes=told)
        return Answer(HTTPStatus.OK, b"", content_type, _parts(body, behaviour), told)

    async def pause(self, seconds: Seconds) -> None:
        """Let a scripted time pass."""
        least, most = _range("seconds", seconds)
        if most > 0:
            await asyncio.sleep(self._random.uniform(least, most))

    def find(self, name: str) -> Model | None:
        """A loaded model."""
        model = self.models.get(name)
        return model if model is not None and model.ready else None

    async def _worker(self, model: Model) -> bool:
        """Take a worker, perhaps after a wait; ``False`` if too many wait already."""
        workers = model.behaviour.workers
        if workers and model.running >= workers:
            if model.waiting >= model.behaviour.queue:
                return False
            model.waiting += 1
            try:
                async with model.free:
                    await model.free.wait_for(lambda: model.running < workers)
                    model.running += 1
            finally:
                model.waiting -= 1
            return True
        model.running += 1
        return True


def _range(name: str, value: Seconds) -> tuple[float, float]:
    if isinstance(value, tuple):
        if len(value) != 2:
            raise ValueError(f"{name} is {value}: use seconds, or two numbers, the least and the most")
        return value
    return value, value


def _another(counts: dict[str, int], name: str, limit: int | None) -> bool:
    """Whether one more failure is due."""
    counts[name] = counts.get(name, 0) + 1
    return limit is None or counts[name] <= limit


def _unknown(name: str) -> Answer:
    return _refusal(HTTPStatus.NOT_FOUND, f"model {name} is not loaded")


async def _parts(body: bytes, behaviour: Behaviour) -> AsyncIterator[bytes]:
    size = -(-len(body) // behaviour.chunks) or 1
    for start in range(0, len(body), size):
        if start:
            await asyncio.sleep(behaviour.chunk_seconds)
        yield body[start : start + size]


class Connection:
    """HTTP/1.1 on one connection: requests one after the other.

    Args:
        container: answers.
    """

    def __init__(self, container: Container) -> None:
        self._container = container

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer until the caller goes away."""
        try:
            while (request := await _read(reader, writer)) is not None:
                await _write(writer, await self._container.handle(request))
                if request.headers.get("connection", "").lower() == "close":
                    break
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            pass  # what came is no request, or the caller is gone
        finally:
            writer.close()


async def _read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Request | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").split("\r\n")[:-2]
    method, target, _version = first.split(" ")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    if "chunked" in headers.get("transfer-encoding", "").lower():
        body = await _read_chunked(reader)
    else:
        body = await reader.readexactly(int(headers.get("content-length", 0)))
    address = urlsplit(target)
    query = {name: values[-1] for name, values in parse_qs(address.query).items()}
    return Request(method, address.path, query, headers, body)


async def _read_chunked(reader: asyncio.StreamReader) -> bytes:
    parts = []
    while size := int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16):
        parts.append(await reader.readexactly(size))
        await reader.readexactly(2)
    while await reader.readuntil(b"\r\n") != b"\r\n":
        pass  # trailers
    return b"".join(parts)


async def _write(writer: asyncio.StreamWriter, answer: Answer) -> None:
    status = HTTPStatus(answer.status)
    head = f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {answer.content_type}\r\n"
    if answer.custom_attributes is not None:
        head += f"{_CUSTOM_ATTRIBUTES}: {answer.custom_attributes}\r\n"
    if answer.parts is None:
        writer.write(f"{head}Content-Length: {len(answer.body)}\r\n\r\n".encode() + answer.body)
    else:
        writer.write(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        async for part in answer.parts:
            writer.write(b"%x\r\n%s\r\n" % (len(part), part))
            await writer.drain()
        writer.write(b"0\r\n\r\n")
    await writer.drain()


async def serve(container: Container, port: int) -> asyncio.Server:
    """Listen on a loopback port (0: any that is free)."""
    return await asyncio.start_server(Connection(container).serve, "127.0.0.1", port, limit=_HEAD_BYTES)


async def _run(port: int, script: Script) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    server = await serve(Container(script), port)
    await ended.wait()
    server.close()


def main(port: int, script: Path) -> None:
    """Serve on a loopback port until SIGTERM."""
    asyncio.run(_run(port, Script.read(json.loads(script.read_bytes()))))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
