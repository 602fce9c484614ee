"""The data plane: the fleets of all endpoints of a local cloud."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from mme_fleet import Step
from mme_local.dataplane.driver import FleetDriver
from mme_local.dataplane.instance import ServerInstance, remove_tree
from mme_local.dataplane.interface import (
    ArtifactSource,
    DataPlaneError,
    DataPlaneSettings,
    FleetSpec,
    InvokeReply,
    InvokeRequest,
    InvokeStream,
    StartFailed,
    StepObserver,
    UnknownFleet,
)
from mme_local.dataplane.server import SOCKET_PATH_BYTES
from mme_local.faults import Faults

__all__ = ["DataPlane"]

_BELOW = "/9999/t/.mms.sock.99999"
"""The longest path of a worker's socket below the data plane's folder."""
_THREADS = 8


class DataPlane:
    """Runs fleets of model servers. It lives on one event loop; all methods are called there.

    Args:
        directory: where instances keep their files. If its path is too long for the servers' sockets, a short private
            folder below the system's temporary folder is used instead.
        settings: how the fleets run.
        observers: are told every step of every fleet.
        faults: what shall go wrong; nothing by default.
    """

    def __init__(
        self,
        directory: Path,
        settings: DataPlaneSettings | None = None,
        observers: Sequence[StepObserver] = (),
        faults: Faults | None = None,
    ) -> None:
        self._observers, self._faults = tuple(observers), faults or Faults()
        self._settings = settings or DataPlaneSettings()
        self._directory = directory.absolute()
        self._folder: Path | None = None
        self._numbers = itertools.count(1)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="dataplane")
        self._fleets: dict[str, FleetDriver] = {}

    async def start_fleet(self, spec: FleetSpec, artifacts: ArtifactSource) -> None:
        """Start an endpoint's instances; returns when they answer ``GET /ping``.

        Raises:
            StartFailed: a server does not come up; nothing is left running.
            DataPlaneError: the endpoint has a fleet already.
            ValueError: ``instance_count`` is below 1.
        """
        if spec.endpoint_name in self._fleets:
            raise DataPlaneError(f"endpoint {spec.endpoint_name!r} has a fleet already: stop it first")
        _check_count(spec.instance_count)
        driver = FleetDriver(spec, artifacts, self._settings, self._threads, self._next_folder, self._observers, self._faults)
        self._fleets[spec.endpoint_name] = driver
        try:
            await driver.resize(spec.instance_count)
        except BaseException:
            await driver.stop()
            self._forget(driver, spec.endpoint_name)
            raise

    async def resize_fleet(self, endpoint_name: str, instance_count: int) -> None:
        """Change the number of instances; returns when new ones answer and surplus ones are drained and gone.

        Raises:
            UnknownFleet: the endpoint has no fleet.
            StartFailed: a new instance does not come up; the fleet is then as before.
            ValueError: ``instance_count`` is below 1.
        """
        _check_count(instance_count)
        await self._fleet(endpoint_name).resize(instance_count)

    async def stop_fleet(self, endpoint_name: str) -> None:
        """End an endpoint's instances; requests under way get ServiceUnavailable. Raises `UnknownFleet`.

        The fleet takes no requests from the call on; it is forgotten once all its instances are gone, so that a call that
        failed or was cancelled can be repeated.
        """
        if endpoint_name not in self._fleets:
            raise _unknown(endpoint_name)
        driver = self._fleets[endpoint_name]
        await driver.stop()
        self._forget(driver, endpoint_name)

    async def invoke(self, endpoint_name: str, request: InvokeRequest) -> InvokeReply:
        """Answer one InvokeEndpoint; what fails is an answer with a modelled error. Raises `UnknownFleet`."""
        return await self._fleet(endpoint_name).invoke(request)

    async def stream(self, endpoint_name: str, request: InvokeRequest) -> InvokeStream:
        """Answer one InvokeEndpointWithResponseStream: as `invoke`, with the body as it comes. Raises `UnknownFleet`.

        Read the answer's chunks to their end, or call its `InvokeStream.aclose`.
        """
        return await self._fleet(endpoint_name).stream(request)

    def status(self) -> list[dict[str, Any]]:
        """What runs, as JSON: the ``endpoints`` of the gateway's status, without the control plane's part.

        ``last_used`` is in epoch seconds, or null; an instance's ``state`` is ``starting``, ``up``, ``draining`` or ``down``.
        """
        return [driver.status() for driver in self._fleets.values()]

    def use(self) -> list[dict[str, Any]]:
        """Of `status` what each instance takes, and its process: as cheap with ten thousand models as with none."""
        return [driver.use() for driver in self._fleets.values()]

    def names(self) -> list[str]:
        """The names of the fleets."""
        return list(self._fleets)

    def caches(self, endpoint_name: str) -> bool:
        """Whether a fleet keeps models in memory when their requests are answered; so does one that is not there."""
        driver = self._fleets.get(endpoint_name)
        return driver is None or driver.caches

    def instances(self) -> list[ServerInstance]:
        """All instances of all fleets: what fault control may strike."""
        return [instance for driver in self._fleets.values() for instance in driver.instances()]

    def recording(self, endpoint_name: str) -> tuple[Step, ...]:
        """The events and actions of a fleet so far, if the settings say to record them. Raises `UnknownFleet`."""
        return self._fleet(endpoint_name).recording()

    async def close(self) -> None:
        """End everything: no process and no folder of the data plane is left."""
        results = await asyncio.gather(*(driver.stop() for driver in self._fleets.values()), return_exceptions=True)
        for failure in results:
            if isinstance(failure, BaseException):
                raise failure
        self._fleets.clear()
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._folder is not None:
            await asyncio.get_running_loop().run_in_executor(None, remove_tree, self._folder)
            self._folder = None

    def _fleet(self, endpoint_name: str) -> FleetDriver:
        driver = self._fleets.get(endpoint_name)
        if driver is None or driver.stopping:
            raise _unknown(endpoint_name)
        return driver

    def _forget(self, driver: FleetDriver, endpoint_name: str) -> None:
        if self._fleets.get(endpoint_name) is driver:
            del self._fleets[endpoint_name]

    def _next_folder(self) -> Path:
        if self._folder is None:
            folder = self._directory / "dataplane"
            if len(f"{folder}{_BELOW}".encode()) <= SOCKET_PATH_BYTES:
                folder.mkdir(parents=True)
            else:
                folder = Path(tempfile.mkdtemp(prefix="mme-"))
                if len(f"{folder}{_BELOW}".encode()) > SOCKET_PATH_BYTES:
                    folder.rmdir()
                    raise StartFailed(
                        f"paths below {folder.parent} are too long for the model servers' sockets: set TMPDIR to a short path"
                    )
            self._folder = folder
        return self._folder / str(next(self._numbers))


def _unknown(endpoint_name: str) -> UnknownFleet:
    return UnknownFleet(f"endpoint {endpoint_name!r} has no fleet: start one first")


def _check_count(instance_count: int) -> None:
    if instance_count < 1:
        raise ValueError(f"instance_count is {instance_count}: use 1 or more")
