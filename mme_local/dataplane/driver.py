"""Drives one `mme_fleet.Fleet` on the event loop: executes its actions with server instances and tells it what comes of them."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import Any

from mme_facts import runtime_errors
from mme_fleet import (
    Action,
    Discard,
    Download,
    Event,
    Fleet,
    Forward,
    InstanceDraining,
    InstanceLost,
    Load,
    Recorder,
    Release,
    Replied,
    Reply,
    ReplyError,
    Request,
    Step,
    Tick,
    Unload,
)
from mme_local.dataplane.instance import Answer, ServerInstance
from mme_local.dataplane.interface import (
    ArtifactSource,
    DataPlaneSettings,
    FleetSpec,
    InvokeReply,
    InvokeRequest,
    InvokeStream,
    StartFailed,
    StepObserver,
)
from mme_local.dataplane.servers import server_for
from mme_local.dataplane.streaming import AnswerStream, Chunks, no_chunks
from mme_local.faults import Faults

__all__ = ["FleetDriver"]

_log = logging.getLogger(__name__)


class _Ticket:
    """What the fleet decided about a request so far."""

    __slots__ = ("decided", "forward", "reply")

    def __init__(self) -> None:
        self.forward: Forward | None = None
        self.reply: Reply | None = None
        self.decided: asyncio.Future[None] | None = None

    def wake(self) -> None:
        if self.decided is not None and not self.decided.done():
            self.decided.set_result(None)


class FleetDriver:
    """The fleet of one endpoint.

    Args:
        spec: what to run.
        artifacts: where models come from.
        settings: of the data plane.
        threads: runs downloads and the work on files.
        folder: gives the folder of the next instance.
        observers: are told every step.
        faults: what shall go wrong.
    """

    def __init__(
        self,
        spec: FleetSpec,
        artifacts: ArtifactSource,
        settings: DataPlaneSettings,
        threads: Executor,
        folder: Callable[[], Path],
        observers: Sequence[StepObserver] = (),
        faults: Faults | None = None,
    ) -> None:
        self._observers, self._faults = observers, faults or Faults()
        self._spec, self._artifacts, self._settings, self._threads, self._folder = spec, artifacts, settings, threads, folder
        self._kind = server_for(spec, settings)
        self._fleet = Fleet(settings.fleet_settings(cache_enabled=spec.cache_enabled), settings.make_router())
        self._recorder = Recorder(self._fleet) if settings.record_events else None
        self._on = self._recorder.on if self._recorder else self._fleet.on
        self._instances: dict[str, ServerInstance] = {}
        self._releases: dict[str, asyncio.Future[None]] = {}
        self._draining: dict[str, asyncio.Task[None]] = {}
        self._stopping = False
        self._tickets: dict[int, _Ticket] = {}
        self._request_ids = itertools.count(1)
        self._instance_numbers = itertools.count(1)
        self._timer: asyncio.TimerHandle | None = None
        self._deadline: float | None = None
        self._resizing = asyncio.Lock()

    async def resize(self, instance_count: int) -> None:
        """Have so many instances; returns when new ones answer and surplus ones, after their last request, are gone.

        A cancelled growth leaves the fleet as before; what a cancelled shrinkage has begun to drain goes all the same.

        Raises:
            StartFailed: a new instance does not come up, or the fleet is being stopped; the fleet is then as before.
        """
        async with self._resizing:
            if self._stopping:
                raise StartFailed(f"the fleet of endpoint {self._spec.endpoint_name!r} is being stopped: it takes no new size")
            missing = instance_count - (len(self._instances) - len(self._draining))
            if missing > 0:
                await self._add(missing)
            else:
                for instance_id in self._surplus(-missing):
                    task = asyncio.create_task(self._drain(instance_id), name=f"drain {instance_id}")
                    self._draining[instance_id] = task
                await asyncio.gather(*(asyncio.shield(task) for task in self._draining.values()))

    @property
    def stopping(self) -> bool:
        """Whether `stop` was called, which may still be at work, or may have failed."""
        return self._stopping

    async def stop(self) -> None:
        """End all instances at once; requests under way get ServiceUnavailable, a resize under way fails.

        Every instance is ended, whatever the others do; the first failure is raised, and the call may be repeated.
        """
        self._stopping = True
        try:
            await self._end(self._instances.values())
        finally:
            async with self._resizing:
                await self._end(self._instances.values())
                await asyncio.gather(*self._draining.values(), return_exceptions=True)
                self._draining.clear()
                self._instances.clear()
            if self._timer is not None:
                self._timer.cancel()

    async def invoke(self, request: InvokeRequest) -> InvokeReply:
        """Answer one invocation; failures are answers too."""
        model = self._model(request)
        if model is None:
            return self._refusal(request)
        request_id = next(self._request_ids)
        ticket = self._tickets[request_id] = _Ticket()
        answer: Answer | None = None
        try:
            await self._decide(request_id, model, ticket)
            if ticket.forward is not None and ticket.reply is None:
                instance = self._instances.get(ticket.forward.instance)
                answer = await instance.forward(request) if instance else Answer(None)
                self._tell(Replied(request_id, answer.status))
        finally:
            self._leave(request_id, ticket)
        assert ticket.reply is not None
        return _invoke_reply(ticket.reply.error, ticket.forward, answer)

    async def stream(self, request: InvokeRequest) -> InvokeStream:
        """As `invoke`, but a successful answer is read as it comes; for the fleet the request lasts until it ends."""
        model = self._model(request)
        if model is None:
            return _refused_stream(self._refusal(request))
        request_id = next(self._request_ids)
        ticket = self._tickets[request_id] = _Ticket()
        answer: Answer | None = None
        streaming = False
        try:
            await self._decide(request_id, model, ticket)
            if ticket.forward is not None and ticket.reply is None:
                instance = self._instances.get(ticket.forward.instance)
                opened = await instance.stream(request) if instance else Answer(None)
                if isinstance(opened, AnswerStream):
                    streaming = True  # its end is the request's end
                    chunks = Chunks(opened, partial(self._streamed, request_id, ticket, opened.status))
                    forward, told = ticket.forward, opened.custom_attributes
                    return InvokeStream(opened.status, opened.content_type, chunks, forward.instance, forward.cold, custom_attributes=told)
                answer = opened
                self._tell(Replied(request_id, answer.status))
        finally:
            if not streaming:
                self._leave(request_id, ticket)
        assert ticket.reply is not None
        return _refused_stream(_invoke_reply(ticket.reply.error, ticket.forward, answer))

    def _model(self, request: InvokeRequest) -> str | None:
        """What the fleet knows the wanted model by; ``None`` if the request is refused."""
        if self._spec.model_key is None:
            return request.target_model or None
        return self._spec.model_key if request.target_model is None else None

    def _refusal(self, request: InvokeRequest) -> InvokeReply:
        if self._spec.model_key is None:
            return _refusal(runtime_errors.VALIDATION_ERROR, "TargetModel is required: this is a multi-model endpoint.")
        message = f"TargetModel {request.target_model} is not allowed: the container serves a single model."
        return _refusal(runtime_errors.VALIDATION_ERROR, message)

    async def _decide(self, request_id: int, model: str, ticket: _Ticket) -> None:
        """Return when the fleet has forwarded the request or answered it."""
        self._tell(Request(request_id, model))
        if ticket.forward is None and ticket.reply is None:
            ticket.decided = asyncio.get_running_loop().create_future()
            await ticket.decided

    def _leave(self, request_id: int, ticket: _Ticket) -> None:
        del self._tickets[request_id]
        if ticket.forward is not None and ticket.reply is None:  # the caller went away while the server worked
            self._tell(Replied(request_id, None))

    def _streamed(self, request_id: int, ticket: _Ticket, status: int, complete: bool) -> None:
        if complete:
            self._tell(Replied(request_id, status))
        self._leave(request_id, ticket)

    def status(self) -> dict[str, Any]:
        """See `mme_local.dataplane.DataPlane.status`."""
        snapshot = self._fleet.snapshot()
        known = {instance.instance: instance for instance in snapshot.instances}
        started = time.time() - asyncio.get_running_loop().time()
        instances = []
        for instance in self._instances.values():
            state = known.get(instance.id)
            instances.append(
                {
                    "id": instance.id,
                    "zone": instance.zone,
                    "pid": instance.pid,
                    "state": state.state if state else self._state_unknown_to_the_fleet(instance.id),
                    "memory_bytes": state.memory_bytes if state else 0,
                    "memory_budget_bytes": instance.memory_bytes,
                    "models": [
                        {
                            "target_model": model.model,
                            "bytes": model.accounted_bytes,
                            "last_used": None if model.last_used is None else started + model.last_used,
                            "in_flight": model.in_flight,
                        }
                        for model in (state.models if state else ())
                        if model.state == "loaded"
                    ],
                    "moving": [
                        {"target_model": model.model, "bytes": model.accounted_bytes, "state": model.state, "waiting": model.waiting}
                        for model in (state.models if state else ())
                        if model.state != "loaded"
                    ],
                    "disk_bytes": state.disk_bytes if state else 0,
                    "disk_budget_bytes": self._settings.instance_disk_bytes,
                    "models_on_disk": len(state.on_disk) if state else 0,
                    "requests": state.requests if state else 0,
                    "loads": state.loads if state else 0,
                    "evictions": state.evictions if state else 0,
                    "restarts": instance.restarts,
                }
            )
        return {
            "name": self._spec.endpoint_name,
            "instances": instances,
            "requests": snapshot.requests,
            "hits": snapshot.hits,
            "cold_loads": snapshot.cold_loads,
            "evictions": snapshot.evictions,
            "loads_by_model": dict(snapshot.loads_by_model),
        }

    def _state_unknown_to_the_fleet(self, instance_id: str) -> str:
        return "draining" if self._stopping or instance_id in self._draining else "starting"

    def use(self) -> dict[str, Any]:
        """See `mme_local.dataplane.DataPlane.use`."""
        used = self._fleet.used_bytes()
        instances = [
            {
                "id": instance.id,
                "pid": instance.pid,
                "memory_bytes": used.get(instance.id, 0),
                "memory_budget_bytes": instance.memory_bytes,
            }
            for instance in self._instances.values()
        ]
        return {"name": self._spec.endpoint_name, "instances": instances}

    @property
    def caches(self) -> bool:
        """Whether models stay in memory when their requests are answered: the `ModelCacheSetting`."""
        return self._spec.cache_enabled

    def instances(self) -> list[ServerInstance]:
        """The instances, starting and draining ones included."""
        return list(self._instances.values())

    def recording(self) -> tuple[Step, ...]:
        """What happened, if the settings say to record it."""
        return self._recorder.steps if self._recorder else ()

    async def _add(self, count: int) -> None:
        self._faults.capacity(self._spec.endpoint_name.partition(".")[0])
        new = [
            ServerInstance(
                f"{self._spec.variant_name}-{next(self._instance_numbers)}",
                zone,
                self._folder(),
                spec=self._spec,
                kind=self._kind,
                artifacts=self._artifacts,
                settings=self._settings,
                threads=self._threads,
                report=self._tell,
                faults=self._faults,
            )
            for zone in self._zones(count)
        ]
        self._instances.update((instance.id, instance) for instance in new)
        try:
            results = await asyncio.gather(*(instance.start() for instance in new), return_exceptions=True)
            failure = next((result for result in results if isinstance(result, BaseException)), None)
            if failure is not None:
                raise failure
        except BaseException:  # a cancelled growth too
            await self._end(new)
            for instance in new:
                del self._instances[instance.id]
            raise

    def _zones(self, count: int) -> list[str]:
        """The zones of new instances: those with fewest, one by one, in the order of the settings."""
        number = Counter(instance.zone for instance in self._instances.values() if instance.id not in self._draining)
        chosen: list[str] = []
        for _ in range(count):
            chosen.append(min(self._settings.zones, key=number.__getitem__))
            number[chosen[-1]] += 1
        return chosen

    async def _end(self, instances: Iterable[ServerInstance]) -> None:
        """End instances, all of them whatever happens; raises the first failure."""
        ending = list(instances)
        failures: list[BaseException] = []
        for instance in ending:
            try:
                self._tell(InstanceDraining(instance.id))  # first, so that it is no loss to whoever observes
                self._tell(InstanceLost(instance.id))
            except Exception as error:
                _log.exception("the end of instance %s of %s could not be told", instance.id, self._spec.endpoint_name)
                failures.append(error)
            self._free(instance.id)
        results = await asyncio.gather(*(instance.stop() for instance in ending), return_exceptions=True)
        failures += [result for result in results if isinstance(result, BaseException)]
        if failures:
            raise failures[0]

    def _surplus(self, count: int) -> list[str]:
        """The instances to go: those without a server first, then the newest."""
        by_age = [instance for instance in reversed(self._instances.values()) if instance.id not in self._draining]
        return [instance.id for instance in sorted(by_age, key=lambda instance: instance.pid is not None)][:count]

    async def _drain(self, instance_id: str) -> None:
        """See an instance go; if that fails it stays among those that drain, for `stop` to end it."""
        released = self._releases[instance_id] = asyncio.get_running_loop().create_future()
        try:
            self._tell(InstanceDraining(instance_id))
            await released
        finally:
            self._releases.pop(instance_id, None)
        await self._instances[instance_id].stop()
        self._instances.pop(instance_id, None)
        self._draining.pop(instance_id, None)

    def _free(self, instance_id: str) -> None:
        """Let `_drain` go on."""
        released = self._releases.get(instance_id)
        if released is not None and not released.done():
            released.set_result(None)

    # The fleet's actions.

    def _tell(self, event: Event, now: float | None = None) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time() if now is None else now
        actions = self._on(event, now)
        if self._observers:
            step = Step(now, event, actions)
            for observe in self._observers:
                observe(self._spec.endpoint_name, step)
        for action in actions:
            self._execute(action)
        deadline = self._fleet.next_deadline()
        if self._timer is not None and self._deadline != deadline:
            self._timer.cancel()
            self._timer = None
        if deadline is not None and self._timer is None:
            self._timer, self._deadline = loop.call_at(deadline, self._tick, deadline), deadline

    def _tick(self, deadline: float) -> None:
        self._timer = None
        self._tell(Tick(), max(deadline, asyncio.get_running_loop().time()))

    def _execute(self, action: Action) -> None:
        if isinstance(action, Forward):
            ticket = self._tickets.get(action.request)
            if ticket is None:  # the caller went away while it waited
                asyncio.get_running_loop().call_soon(self._tell, Replied(action.request, None))
            else:
                ticket.forward = action
                ticket.wake()
        elif isinstance(action, Reply):
            ticket = self._tickets.get(action.request)
            if ticket is not None:
                ticket.reply = action
                ticket.wake()
        elif isinstance(action, Release):
            self._instances[action.instance].retire()
            self._free(action.instance)
        else:
            instance = self._instances[action.instance]
            if isinstance(action, Download):
                instance.download(action.model)
            elif isinstance(action, Load):
                instance.load(action.model)
            elif isinstance(action, Unload):
                instance.unload(action.model)
            else:
                assert isinstance(action, Discard)
                instance.discard(action.model)


def _refusal(code: str, message: str) -> InvokeReply:
    return InvokeReply(runtime_errors.STATUS[code], b"", None, None, cold=False, error=code, message=message)


def _refused_stream(reply: InvokeReply) -> InvokeStream:
    return InvokeStream(
        reply.status,
        reply.content_type,
        no_chunks(),
        reply.instance,
        reply.cold,
        reply.error,
        reply.original_status,
        reply.message,
        reply.body,
    )


def _invoke_reply(error: ReplyError | None, forward: Forward | None, answer: Answer | None) -> InvokeReply:
    instance, cold = (forward.instance, forward.cold) if forward else (None, True)
    if error is None:
        assert answer is not None
        assert answer.status is not None
        told = answer.custom_attributes
        return InvokeReply(answer.status, answer.body, answer.content_type, instance, cold, custom_attributes=told)
    body, content_type = b"", None
    if answer is not None and error.code == runtime_errors.MODEL_ERROR:
        body, content_type = answer.body, answer.content_type
    return InvokeReply(error.status, body, content_type, instance, cold, error.code, error.original_status, error.message)
