"""What the control plane and the data plane tell each other: values, settings, errors and the source of artifacts."""

from __future__ import annotations

import random
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Protocol

from mme_facts.limits import INVOKE_STREAM_SECONDS, INVOKE_TIMEOUT_SECONDS
from mme_fleet import FleetSettings, LeastOutstandingRouter, OneHomeRouter, RandomRouter, Router, StepObserver, StickyRouter
from mme_local.dataplane.simulated_server import Script

__all__ = [
    "ArtifactDenied",
    "ArtifactMissing",
    "ArtifactSource",
    "DataPlaneError",
    "DataPlaneSettings",
    "FleetSpec",
    "InvokeReply",
    "InvokeRequest",
    "InvokeStream",
    "StartFailed",
    "StepObserver",
    "StreamFailed",
    "UnknownFleet",
]

SERVER_NAMES = ("mms", "simulated", "triton")
"""The model servers that `DataPlaneSettings.servers` may name."""

ROUTERS: Mapping[str, Callable[[], Router]] = {
    "sticky": StickyRouter,
    "one-home": OneHomeRouter,
    "least-outstanding": LeastOutstandingRouter,
    "random": lambda: RandomRouter(random.Random(0)),  # noqa: S311 - no secret
}
"""The routers that `DataPlaneSettings.router` may name."""

_MIB = 1024 * 1024


class DataPlaneError(Exception):
    """Base of what the data plane raises."""


class StartFailed(DataPlaneError):  # noqa: N818 - the name says what happened
    """The servers of a fleet could not be started; the text says why and what to do."""


class UnknownFleet(DataPlaneError):  # noqa: N818 - the name says what happened
    """There is no fleet of that endpoint."""


class ArtifactMissing(DataPlaneError):  # noqa: N818 - the name says what happened
    """There is no object at the key."""


class ArtifactDenied(DataPlaneError):  # noqa: N818 - the name says what happened
    """The endpoint's execution role may not read the object."""


class ArtifactSource(Protocol):
    """Where artifacts come from: the emulator's S3, read with the endpoint's execution role."""

    def fetch(self, key: str, destination: BinaryIO) -> int:
        """Copy the object at ``key`` (with its prefix) into ``destination``; blocks, and runs in a thread.

        Returns:
            The number of bytes.

        Raises:
            ArtifactMissing: there is no such object.
            ArtifactDenied: the role may not read it.
            Exception: anything else counts as the store being unavailable for now.
        """


class StreamFailed(DataPlaneError):  # noqa: N818 - the name says what happened
    """A response stream broke off after its start.

    Args:
        code: ``ModelInvocationTimeExceeded`` or ``StreamBroken``, the error codes of ModelStreamError.
        message: what happened.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class FleetSpec:
    """The fleet behind one production variant, or behind one inference component.

    Attributes:
        endpoint_name: the fleet's name; fleets of the same endpoint differ in what follows the first dot.
        variant_name: the production variant.
        instance_count: at least 1; the copies of an inference component.
        image: image URI; its repository chooses the model server.
        bucket: where the artifacts are.
        models_prefix: the MME prefix in the bucket, with its slash; a key is this and TargetModel.
        model_key: for a single-model container: the key of its artifact in the bucket, which every instance fetches and loads before
            it answers; an empty key stands for a container without an artifact. ``None``: a multi-model container.
        memory_bytes: memory reserved for each instance; ``None``: `DataPlaneSettings.instance_memory_bytes`.
        cache_enabled: `ModelCacheSetting` of a multi-model container.
        environment: the container's environment variables.
        handler: absolute ``file.py:function`` of the handler that stands in for this image, whatever its repository.
        refusal: why the servers refuse every load, if they shall; the endpoint then deploys and serves nothing.
    """

    endpoint_name: str
    variant_name: str
    instance_count: int
    image: str
    bucket: str
    models_prefix: str = ""
    cache_enabled: bool = True
    environment: Mapping[str, str] = field(default_factory=dict)
    handler: str | None = None
    refusal: str | None = None
    model_key: str | None = None
    memory_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.memory_bytes is not None and self.memory_bytes < 1:
            raise ValueError(f"memory_bytes is {self.memory_bytes}: use 1 or more, or None for the settings' memory")


@dataclass(frozen=True, slots=True)
class InvokeRequest:
    """What of an InvokeEndpoint reaches the container; ``None`` where the caller sent nothing."""

    body: bytes
    target_model: str | None
    content_type: str | None = None
    accept: str | None = None
    custom_attributes: str | None = None


@dataclass(frozen=True, slots=True)
class InvokeReply:
    """The answer to an invocation.

    Attributes:
        status: HTTP status of InvokeEndpoint.
        body: the container's body; with ``ModelError`` its error body, the OriginalMessage.
        content_type: the container's Content-Type.
        instance: the instance that answered, ``None`` if none did.
        cold: whether the request waited for a load.
        error: name of the modelled error, ``None`` on success.
        original_status: OriginalStatusCode of a ``ModelError`` (0: the invocation timed out).
        message: what went wrong, in words; the runtime makes the text of a ``ModelError`` of it, or of ``body`` if there is one.
        custom_attributes: what the container tells the caller beside its answer.
    """

    status: int
    body: bytes
    content_type: str | None
    instance: str | None
    cold: bool
    error: str | None = None
    original_status: int | None = None
    message: str | None = None
    custom_attributes: str | None = None


@dataclass(frozen=True, slots=True)
class InvokeStream:
    """The answer to an invocation whose body is read as it comes.

    Attributes:
        status: HTTP status of InvokeEndpointWithResponseStream.
        content_type: the container's Content-Type.
        chunks: the parts of the body; none with ``error``. Iterating raises `StreamFailed` when the stream breaks off.
        instance: the instance that answers, ``None`` if none does.
        cold: whether the request waited for a load.
        error: name of the modelled error, ``None`` once the container has begun a successful answer.
        original_status: OriginalStatusCode of a ``ModelError`` (0: the invocation timed out).
        message: what went wrong, as with `InvokeReply`.
        body: with ``ModelError`` the container's error body, the OriginalMessage.
        custom_attributes: what the container tells the caller beside its answer.
    """

    status: int
    content_type: str | None
    chunks: AsyncIterator[bytes]
    instance: str | None
    cold: bool
    error: str | None = None
    original_status: int | None = None
    message: str | None = None
    body: bytes = b""
    custom_attributes: str | None = None

    async def aclose(self) -> None:
        """End the stream before its end, if it has not ended: whoever stops reading must call this."""
        close = getattr(self.chunks, "aclose", None)
        if close is not None:
            await close()


@dataclass(frozen=True, slots=True)
class DataPlaneSettings:
    """How the local fleets run. Every value is JSON, so settings cross process borders.

    Attributes:
        instance_memory_bytes: an instance's budget for loaded models.
        instance_disk_bytes: an instance's budget for unpacked artifacts, and the greatest unpacked artifact.
        model_overhead_bytes: accounted memory of a loaded model on top of its unpacked artifact. The default is what the
            two Python processes of a model take with all that xgboost imports; our handler's take about half.
        load_wait_seconds: how long a request waits for a load before it gets ModelNotReadyException.
        load_timeout_seconds: a container must have loaded a model within this time; then the load has failed and its server is
            killed and started again. AWS documents no such limit.
        unload_timeout_seconds: a container must have unloaded a model within this time; then its server is killed and started
            again. SageMaker waits 360 s (source of Triton's SageMaker server).
        load_attempts: how often a load that ends out of memory (507) is tried in all.
        load_concurrency: loads that an instance does at once (`mme_fleet.FleetSettings.load_concurrency`); ``None``: any number.
        uncached_load_factor: so many times as many with `ModelCacheSetting` off.
        workers_per_model: worker processes of a loaded model, each with a copy of the artifact and the overhead, and requests that it
            answers at once; ``None``: 1, but simulated servers take what their script says. Triton's models say it themselves.
        router: which instance gets a request, a key of `ROUTERS`: ``sticky`` as AWS documents it, ``one-home``,
            ``least-outstanding`` or ``random`` (seeded, so that a fleet's recording can be replayed).
        zones: availability zones of the instances: a new one comes up where there are fewest.
        invoke_timeout_seconds: a container must answer within this time (API reference: InvokeEndpoint).
        stream_timeout_seconds: a response stream must end within this time after its request (API reference:
            InvokeEndpointWithResponseStream, 8 minutes); its first byte has ``invoke_timeout_seconds``.
        start_timeout_seconds: a server must answer its first ping within this time.
        start_attempts: how often a server that does not come up is started before `StartFailed`.
        restart_backoff_seconds: wait before a lost server is started again; doubles with every failed start.
        restart_backoff_max_seconds: greatest such wait.
        ping_interval_seconds: wait between two pings of a running server.
        ping_timeout_seconds: a ping must be answered within this time, with whatever status.
        ping_attempts: a server that leaves so many pings in a row unanswered is killed and started again.
        job_queue_size: requests that a model's queue holds before the server answers 503 (100 in SageMaker's images).
        jvm_options: options of the model server's JVM: a small heap and a fast start.
        handlers: further model servers: image repository -> absolute ``file.py:function`` of a function-style handler.
            Images of other repositories get servers that refuse every load.
        servers: which server runs in an instance, where it shall not be chosen by the image: image repository -> ``mms``,
            ``simulated`` or ``triton``; the repository ``*`` stands for all that are not named.
        simulation: the script of simulated servers (`mme_local.dataplane.simulated_server.Script`): sizes, latencies, failures.
        triton_python: absolute path of the Python of an environment with ``nvidia-pytriton`` (`mme_local.dataplane.triton`); with it,
            images of the repository ``sagemaker-tritonserver`` get Triton.
        record_events: keep every event and action for `DataPlane.recording`; memory grows without bound.
    """

    instance_memory_bytes: int = 1024 * _MIB
    instance_disk_bytes: int = 4096 * _MIB
    model_overhead_bytes: int = 100 * _MIB
    load_wait_seconds: float = 30.0
    load_timeout_seconds: float = 600.0
    unload_timeout_seconds: float = 360.0
    load_attempts: int = 3
    load_concurrency: int | None = None
    uncached_load_factor: int = 1
    workers_per_model: int | None = None
    router: str = "sticky"
    zones: Sequence[str] = ("us-east-1a", "us-east-1b", "us-east-1c")
    invoke_timeout_seconds: float = INVOKE_TIMEOUT_SECONDS
    stream_timeout_seconds: float = INVOKE_STREAM_SECONDS
    start_timeout_seconds: float = 30.0
    start_attempts: int = 3
    restart_backoff_seconds: float = 0.1
    restart_backoff_max_seconds: float = 10.0
    ping_interval_seconds: float = 5.0
    ping_timeout_seconds: float = 5.0
    ping_attempts: int = 3
    job_queue_size: int = 100
    jvm_options: str = "-Xmx128m -Xms32m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 --enable-native-access=ALL-UNNAMED"
    handlers: Mapping[str, str] = field(default_factory=dict)
    servers: Mapping[str, str] = field(default_factory=dict)
    simulation: Mapping[str, Any] = field(default_factory=dict)
    triton_python: str | None = None
    record_events: bool = False

    def __post_init__(self) -> None:
        for name in (
            "instance_memory_bytes",
            "instance_disk_bytes",
            "job_queue_size",
            "load_attempts",
            "load_concurrency",
            "uncached_load_factor",
            "workers_per_model",
            "start_attempts",
            "ping_attempts",
        ):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}: use 1 or more")
        if self.router not in ROUTERS:
            raise ValueError(f"router is {self.router!r}: use one of {', '.join(ROUTERS)}")
        if isinstance(self.zones, str) or not self.zones or not all(self.zones) or len(set(self.zones)) < len(self.zones):
            raise ValueError(f"zones is {self.zones!r}: use one or more different names, such as us-east-1a")
        object.__setattr__(self, "zones", tuple(self.zones))  # the same after a way through JSON
        for name in (
            "load_timeout_seconds",
            "unload_timeout_seconds",
            "invoke_timeout_seconds",
            "stream_timeout_seconds",
            "start_timeout_seconds",
            "ping_interval_seconds",
            "ping_timeout_seconds",
        ):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}: use a positive number of seconds")
        for name in ("model_overhead_bytes", "load_wait_seconds", "restart_backoff_seconds", "restart_backoff_max_seconds"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}: use 0 or more")
        for repository, handler in self.handlers.items():
            if not re.fullmatch(r"/.+\.py:\w+", handler):
                raise ValueError(f"the handler of {repository!r} is {handler!r}: use an absolute path and a function, /path/file.py:handle")

        for repository, server in self.servers.items():
            if server not in SERVER_NAMES:
                raise ValueError(f"the server of {repository!r} is {server!r}: use one of {', '.join(SERVER_NAMES)}")
        try:
            Script.read(self.simulation)
        except ValueError as error:
            raise ValueError(f"simulation cannot be used: {error}") from None

    def fleet_settings(self, *, cache_enabled: bool = True) -> FleetSettings:
        """What the residency engine needs of these and of a fleet's `ModelCacheSetting`."""
        return FleetSettings(
            self.model_overhead_bytes,
            self.load_wait_seconds,
            self.load_attempts,
            load_concurrency=self.load_concurrency,
            cache_enabled=cache_enabled,
            uncached_load_factor=self.uncached_load_factor,
            workers_per_model=self.workers_per_model or 1,
            workers_share_artifact=False,
        )

    def make_router(self) -> Router:
        """A new router of the fleet; those of two fleets, and of a replay, choose alike."""
        return ROUTERS[self.router]()
