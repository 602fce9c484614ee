"""One instance of a fleet: its server process, kept alive, and the work that the fleet asks of it."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import logging
import shutil
import signal
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from mme_fleet import Downloaded, Event, InstanceLost, InstanceUp, Loaded, LoadFailed, LoadFailure, Unloaded
from mme_local.dataplane.http_client import ConnectFailed, HttpClient, HttpError
from mme_local.dataplane.interface import (
    ArtifactDenied,
    ArtifactMissing,
    ArtifactSource,
    DataPlaneSettings,
    FleetSpec,
    InvokeRequest,
    StartFailed,
)
from mme_local.dataplane.kinds import SINGLE_MODEL, ServerKind
from mme_local.dataplane.server import ModelServer
from mme_local.dataplane.streaming import AnswerStream, open_stream
from mme_local.dataplane.unpack import BrokenArtifactError, unpack
from mme_local.faults import BrokenDownloadError, Faults

__all__ = ["Answer", "ServerInstance", "remove_tree"]

_log = logging.getLogger(__name__)

_DEATH_NOTICE_SECONDS = 1.0
"""How long after a broken connection the end of the process may become known."""
_OK, _REDIRECTION, _NOT_FOUND, _CONFLICT, _INSUFFICIENT_STORAGE = 200, 300, 404, 409, 507
_FAILURE_FILE = "load-failure.txt"
"""Where a handler says why a load failed, beside the model's folder (`handlers.xgboost_handler.FAILURE_FILE`)."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the container answered to a forwarded request; ``status`` as in `mme_fleet.Replied`."""

    status: int | None
    body: bytes = b""
    content_type: str | None = None
    custom_attributes: str | None = None


class _UnobtainableError(Exception):
    """An artifact cannot be brought to the instance's disk."""

    def __init__(self, kind: LoadFailure, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class _UnfitError(StartFailed):
    """The model of a single-model container cannot be served: another attempt would end the same."""


class ServerInstance:
    """An instance: one server process at a time, started again when it dies.

    That of a single-model container fetches its artifact before its first server starts, and answers once the server has loaded it.

    Args:
        instance_id: its name in the fleet.
        zone: its availability zone.
        folder: its disk; made here, removed by `stop`. Short, see `mme_local.dataplane.server`.
        spec: of the fleet.
        kind: the server.
        artifacts: where models come from.
        settings: of the data plane.
        threads: runs downloads and the work on files.
        report: takes what happens, on the event loop.
        faults: what shall go wrong.
    """

    def __init__(
        self,
        instance_id: str,
        zone: str,
        folder: Path,
        *,
        spec: FleetSpec,
        kind: ServerKind,
        artifacts: ArtifactSource,
        settings: DataPlaneSettings,
        threads: Executor,
        report: Callable[[Event], None],
        faults: Faults,
    ) -> None:
        self.id, self.zone, self._faults = instance_id, zone, faults
        self.restarts = 0
        self._folder, self._spec, self._kind, self._artifacts, self._settings = folder, spec, kind, artifacts, settings
        self._threads, self._report = threads, report
        self._server: ModelServer | None = None
        self._client: HttpClient | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._scratch = itertools.count()
        self._supervisor: asyncio.Task[None] | None = None
        self._started: asyncio.Future[None] | None = None
        self._single_bytes = 0

    @property
    def memory_bytes(self) -> int:
        """Its budget for models."""
        return self._spec.memory_bytes or self._settings.instance_memory_bytes

    @property
    def pid(self) -> int | None:
        """The server's process id; ``None`` while there is none."""
        return self._server.pid if self._server and self._server.alive else None

    @property
    def endpoint(self) -> str:
        """Name of its endpoint, as fault control names it."""
        return self._spec.endpoint_name.partition(".")[0]

    @property
    def instance(self) -> str:
        """The same as ``id``, as fault control names it."""
        return self.id

    def kill(self) -> bool:
        """Kill the server's processes, as a fault does; ``False`` if there are none."""
        return self._server is not None and self._server.signal(signal.SIGKILL)

    def freeze(self) -> Callable[[], None] | None:
        """Stop the server's processes; what lets the same ones go on, or ``None`` if there are none."""
        server = self._server
        if server is None or not server.signal(signal.SIGSTOP):
            return None
        return lambda: _thaw(server)

    async def start(self) -> None:
        """Return when the server answers; raises `StartFailed` after the attempts of the settings."""
        for name in ("models", "scratch"):
            (self._folder / name).mkdir(parents=True)
        self._started = asyncio.get_running_loop().create_future()
        self._supervisor = asyncio.create_task(self._supervise(self._started), name=f"supervise {self.id}")
        await asyncio.shield(self._started)

    def retire(self) -> None:
        """Report nothing to the fleet any more: it has forgotten this instance."""
        self._report = _ignore

    async def stop(self) -> None:
        """End the server and everything under way, and remove the folder. It reports nothing any more; may be called again."""
        self.retire()
        if self._started is not None and not self._started.done():
            self._started.set_exception(StartFailed(f"instance {self.id} was stopped while it started"))
        if self._supervisor is not None:
            self._supervisor.cancel()
            await asyncio.wait([self._supervisor])
        await self._clear()
        await asyncio.get_running_loop().run_in_executor(None, remove_tree, self._folder)

    async def _supervise(self, started: asyncio.Future[None]) -> None:
        """Have a server until this is cancelled, whatever happens to it or here; ends by itself if the first does not come up."""
        settings = self._settings
        loop = asyncio.get_running_loop()
        failures = 0
        while True:
            began = loop.time()
            try:
                await self._live(started)
                failures = failures + 1 if loop.time() - began < settings.restart_backoff_max_seconds else 1
            except Exception as error:
                failures += 1
                expected = isinstance(error, StartFailed)
                _log.warning("instance %s of %s failed: %s", self.id, self._spec.endpoint_name, error, exc_info=not expected)
                if not started.done() and (not expected or failures >= settings.start_attempts or isinstance(error, _UnfitError)):
                    started.set_exception(error if expected else StartFailed(f"instance {self.id} cannot be run: {error}"))
                    return
            try:
                await self._clear()
            except Exception:
                _log.exception("what is left of the server of instance %s of %s cannot be removed", self.id, self._spec.endpoint_name)
            await asyncio.sleep(min(settings.restart_backoff_seconds * 2 ** (failures - 1), settings.restart_backoff_max_seconds))

    async def _live(self, started: asyncio.Future[None]) -> None:
        """The life of one server: returns when it has ended; raises `StartFailed` if it does not come up."""
        settings = self._settings
        self._server = server = ModelServer(
            self._folder, self._kind, settings, self._spec.environment, multi_model=self._spec.model_key is None
        )
        try:
            client = await self._come_up(server)
        except OSError as error:
            raise StartFailed(str(error)) from error
        resident = () if self._spec.model_key is None else ((self._spec.model_key, self._single_bytes),)
        try:
            disk_bytes = settings.instance_disk_bytes
            self._report(InstanceUp(self.id, self.memory_bytes, disk_bytes, disk_kept=True, zone=self.zone, resident=resident))
            if not started.done():
                started.set_result(None)
            await self._until_lost(server, client)
            _log.warning("the server of instance %s of %s ended", self.id, self._spec.endpoint_name)
        finally:
            self.restarts += 1
            self._report(InstanceLost(self.id))

    async def _come_up(self, server: ModelServer) -> HttpClient:
        """Start the server; a single-model one has loaded its model when this returns."""
        model = self._spec.model_key
        if model is not None and not self._place(model).exists():
            await self._obtain_single(model)
        await server.start()
        client = self._client = HttpClient(int(server.address.rpartition(":")[2]))
        if model is not None:
            try:
                failure = await self._register(client, model)
            except HttpError as error:
                raise StartFailed(f"the model server broke off while it loaded {model}: {error}") from None
            except TimeoutError:
                raise StartFailed(self._load_overdue(model)) from None
            if failure is not None:
                raise _UnfitError(failure.message or f"Model {model} does not fit: the container answered {failure.status}.")
        return client

    async def _obtain_single(self, model: str) -> None:
        if model:
            try:
                unpacked_bytes = await self._obtain(model)
            except _UnobtainableError as error:
                if error.kind is LoadFailure.UNAVAILABLE:
                    raise StartFailed(str(error)) from None
                raise _UnfitError(str(error)) from None
        else:
            (self._place(model) / "model").mkdir(parents=True)
            unpacked_bytes = 0
        self._single_bytes = self._settings.fleet_settings().memory_bytes(unpacked_bytes)
        if self._single_bytes > self.memory_bytes:
            raise _UnfitError(
                f"Model {model} takes {self._single_bytes} bytes of memory with its overhead, {self.memory_bytes} are reserved for it: "
                "reserve more, or lower DataPlaneSettings.model_overhead_bytes"
            )

    async def _until_lost(self, server: ModelServer, client: HttpClient) -> None:
        """Return when the server has ended: by itself, or killed here because it answers no ping."""
        settings = self._settings
        missed = 0
        ended = asyncio.create_task(server.wait())
        try:
            while missed < settings.ping_attempts:
                if (await asyncio.wait([ended], timeout=settings.ping_interval_seconds))[0]:
                    return
                try:
                    await client.request("GET", "/ping", timeout_seconds=settings.ping_timeout_seconds)
                    missed = 0
                except (HttpError, TimeoutError):
                    missed += 1
            _log.warning("instance %s of %s left %d pings unanswered", self.id, self._spec.endpoint_name, missed)
            await server.kill()
        finally:
            ended.cancel()

    async def _clear(self) -> None:
        """Forget the server that was: its process group, its connections, the work that it was asked for, its sockets."""
        client, self._client = self._client, None
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._server is not None:
            await self._server.kill()
        if client is not None:
            client.close()
        await asyncio.get_running_loop().run_in_executor(None, remove_tree, self._folder / "t")

    # What the fleet asks for.

    def download(self, model: str) -> None:
        """See `mme_fleet.Download`."""
        self._spawn(self._download(model))

    def load(self, model: str) -> None:
        """See `mme_fleet.Load`."""
        self._spawn(self._load(model))

    def unload(self, model: str) -> None:
        """See `mme_fleet.Unload`."""
        self._spawn(self._unload(model))

    def discard(self, model: str) -> None:
        """See `mme_fleet.Discard`."""
        self._remove(self._place(model))

    async def forward(self, request: InvokeRequest) -> Answer:
        """Send a request for a loaded model to the server; never raises for what the server does."""
        client, server = self._client, self._server
        if client is None or server is None:
            return Answer(None)
        try:
            limit, path = self._settings.invoke_timeout_seconds, self._invocations(request)
            response = await client.request("POST", path, headers=_headers(request), body=request.body, timeout_seconds=limit)
        except TimeoutError:
            return Answer(0)
        except HttpError as error:
            await self._look_after(server, error)
            return Answer(None)
        return Answer(response.status, response.body, response.content_type, response.custom_attributes)

    async def stream(self, request: InvokeRequest) -> Answer | AnswerStream:
        """As `forward`, but a successful answer is read as it comes."""
        client, server = self._client, self._server
        if client is None or server is None:
            return Answer(None)
        try:
            async with asyncio.timeout(self._settings.invoke_timeout_seconds):
                stream = await open_stream(
                    client, self._invocations(request), _headers(request), request.body, self._settings.stream_timeout_seconds
                )
                if _OK <= stream.status < _REDIRECTION:
                    return stream
                return Answer(stream.status, await stream.read(), stream.content_type)
        except TimeoutError:
            return Answer(0)
        except HttpError as error:
            await self._look_after(server, error)
            return Answer(None)

    def _invocations(self, request: InvokeRequest) -> str:
        return self._kind.invocations if request.target_model is None else f"/models/{_opaque(request.target_model)}/invoke"

    async def _look_after(self, server: ModelServer, error: HttpError) -> None:
        """After a broken connection: if the server does not take new ones, it is lost; if it is dying, see it die."""
        if isinstance(error, ConnectFailed):
            await server.kill()
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(_DEATH_NOTICE_SECONDS):
                await server.wait()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _download(self, model: str) -> None:
        try:
            size = await self._obtain(model)
        except _UnobtainableError as error:
            self._report(LoadFailed(self.id, model, error.kind, message=str(error)))
        else:
            self._report(Downloaded(self.id, model, size))

    async def _obtain(self, model: str) -> int:
        """Bring an artifact to its place on the disk; returns its unpacked bytes."""
        scratch = self._folder / "scratch" / str(next(self._scratch))
        abandoned = threading.Event()
        try:
            rate = await self._faults.download(self.endpoint, model)
            size = await asyncio.get_running_loop().run_in_executor(self._threads, self._fetch, model, scratch, abandoned)
            if rate is not None:
                await asyncio.sleep(size / rate)
        except asyncio.CancelledError:
            abandoned.set()
            self._threads.submit(remove_tree, scratch)  # the fetch may be done
            raise
        except (ArtifactMissing, ArtifactDenied) as error:
            kind = LoadFailure.MISSING if isinstance(error, ArtifactMissing) else LoadFailure.DENIED
            raise _UnobtainableError(kind, self._download_failure(model)) from None
        except (BrokenArtifactError, BrokenDownloadError) as error:
            raise _UnobtainableError(LoadFailure.BROKEN, str(error)) from None
        except Exception as error:
            _log.warning("download of %s failed", model, exc_info=True)
            raise _UnobtainableError(LoadFailure.UNAVAILABLE, f"the artifact store failed ({error})") from None
        place = self._place(model)
        self._remove(place)
        scratch.rename(place)
        return size

    def _fetch(self, model: str, scratch: Path, abandoned: threading.Event) -> int:
        """Fetch and unpack into ``scratch/model``; runs in a thread and leaves nothing behind when it fails."""
        try:
            scratch.mkdir()
            archive = scratch / "artifact"
            with archive.open("w+b") as file:
                self._artifacts.fetch(self._key(model), file)
                file.seek(0)
                size = unpack(file, scratch / "model", self._kind, self._settings.instance_disk_bytes, abandoned.is_set)
            size = self._kind.unpacked_bytes(scratch / "model", size)
            archive.unlink()
        except BaseException:
            remove_tree(scratch)
            raise
        if abandoned.is_set():
            remove_tree(scratch)
        return size

    async def _load(self, model: str) -> None:
        client, server = self._client, self._server
        assert client is not None
        assert server is not None
        try:
            failure = await self._register(client, model)
        except HttpError:
            await server.kill()  # the supervisor reports the loss
        except TimeoutError:
            self._report(LoadFailed(self.id, model, LoadFailure.BROKEN, message=self._load_overdue(model)))
            await server.kill()  # nothing else ends the load for certain
        else:
            self._report(Loaded(self.id, model) if failure is None else failure)

    async def _register(self, client: HttpClient, model: str) -> LoadFailed | None:
        """Load a model that lies on the disk into the server's memory; why it failed, if it did. Raises `TimeoutError`."""
        async with asyncio.timeout(self._settings.load_timeout_seconds):
            return await self._register_unlimited(client, model)

    async def _register_unlimited(self, client: HttpClient, model: str) -> LoadFailed | None:
        place = self._place(model)
        name = self._name(model)
        body = json.dumps({"model_name": name, "url": str(place / "model")}).encode()
        target = self._target(model)
        headers = [(b"Content-Type", b"application/json"), *target]
        path = f"/models/{name}"
        fault = await self._faults.load(self.endpoint, model)
        if fault is not None:
            return self._load_failed(model, fault.status, fault.message)
        response = await client.request("POST", "/models", headers=headers, body=body)
        if response.status == _CONFLICT:  # a leftover of the server's own making
            await client.request("DELETE", path, headers=target)
            response = await client.request("POST", "/models", headers=headers, body=body)
        if response.status == _OK:
            return None
        # After 507 the model stays registered without workers, and would answer the next load with 409.
        await client.request("DELETE", path, headers=target)
        reason = await asyncio.get_running_loop().run_in_executor(self._threads, _failure_reason, place, response.text)
        return self._load_failed(model, response.status, reason)

    def _target(self, model: str) -> list[tuple[bytes, bytes]]:
        """The header with the TargetModel: Triton names a model by it, and wants it in every request."""
        return [] if self._spec.model_key is not None else [(b"X-Amzn-SageMaker-Target-Model", model.encode())]

    def _load_overdue(self, model: str) -> str:
        return f"Model {model} cannot be loaded, the container did not answer within {self._settings.load_timeout_seconds:g} s."

    def _load_failed(self, model: str, status: int, reason: str) -> LoadFailed:
        if status == _INSUFFICIENT_STORAGE:
            return LoadFailed(self.id, model, LoadFailure.OUT_OF_MEMORY, status)
        message = f"Model {model} cannot be loaded, the container answered {status}: {reason}"
        return LoadFailed(self.id, model, LoadFailure.BROKEN, status, message)

    async def _unload(self, model: str) -> None:
        client, server = self._client, self._server
        assert client is not None
        assert server is not None
        limit = self._settings.unload_timeout_seconds
        with suppress(HttpError, TimeoutError):
            response = await client.request("DELETE", f"/models/{_opaque(model)}", headers=self._target(model), timeout_seconds=limit)
            if response.status in (_OK, _NOT_FOUND):
                self._report(Unloaded(self.id, model))
                return
            _log.warning("unload of %s on %s: the container answered %s", model, self.id, response.status)
        await server.kill()  # nothing else frees the memory; the supervisor reports the loss

    def _name(self, model: str) -> str:
        return _opaque(model) if self._spec.model_key is None else SINGLE_MODEL

    def _key(self, model: str) -> str:
        """The artifact's key in the bucket."""
        return self._spec.models_prefix + model if self._spec.model_key is None else model

    def _place(self, model: str) -> Path:
        return self._folder / "models" / _opaque(model)

    def _remove(self, place: Path) -> None:
        """Out of sight at once, off the disk soon."""
        if place.exists():
            trash = self._folder / "scratch" / str(next(self._scratch))
            place.rename(trash)
            self._threads.submit(remove_tree, trash)

    def _download_failure(self, model: str) -> str:
        return (
            f"Failed to download model data(bucket: {self._spec.bucket}, key: {self._key(model)}). Please ensure that "
            "there is an object located at the URL and that the role passed to CreateModel has permissions to download the model."
        )


def _headers(request: InvokeRequest) -> list[tuple[bytes, bytes]]:
    return [
        (name, value.encode())
        for name, value in (
            (b"X-Amzn-SageMaker-Target-Model", request.target_model),
            (b"Content-Type", request.content_type),
            (b"Accept", request.accept),
            (b"X-Amzn-SageMaker-Custom-Attributes", request.custom_attributes),
        )
        if value is not None
    ]


def _thaw(server: ModelServer) -> None:
    server.signal(signal.SIGCONT)


def _ignore(_event: Event) -> None:
    """Takes the reports of a retired instance."""


@lru_cache(maxsize=16384)
def _opaque(model: str) -> str:
    """The model's name towards the server, which cannot stand slashes and dots."""
    return hashlib.sha256(model.encode()).hexdigest()[:32]


def _failure_reason(place: Path, answer: str) -> str:
    with suppress(OSError):
        return (place / _FAILURE_FILE).read_text("utf-8")
    return " ".join(answer.split())


def remove_tree(folder: Path) -> None:
    """Remove a folder while abandoned work may still write there; blocks."""
    for _ in range(10):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
    shutil.rmtree(folder)
