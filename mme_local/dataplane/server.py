"""One server process: start, death, end.

Every server has its own process group, because workers may outlive it, and its own temporary, log and working folders.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from mme_local.dataplane.http_client import HttpClient, HttpError
from mme_local.dataplane.interface import DataPlaneSettings, StartFailed
from mme_local.dataplane.kinds import ServerKind

__all__ = ["SOCKET_PATH_BYTES", "ModelServer", "server_environment"]

SOCKET_PATH_BYTES = 100
"""Greatest length of the workers' sockets' paths: Linux allows 107 and the server hangs beyond."""

_OK = 200
_PING_INTERVAL_SECONDS = 0.02
_PING_TIMEOUT_SECONDS = 2.0
_GROUP_END_INTERVAL_SECONDS = 0.005
_GROUP_END_SECONDS = 30.0
_LOG_TAIL_CHARACTERS = 2000
_FIRST_PORT, _PORTS = 20000, 12000

_port_counter = itertools.count()

# What a server may see of our own environment. Credentials are not among it, and HOME is the instance's folder.
_INHERITED = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH")


def server_environment(folder: Path, container: Mapping[str, str], *, multi_model: bool) -> dict[str, str]:
    """The environment of a server.

    Args:
        folder: the instance's folder; everything that the server writes goes below it.
        container: the container's variables, from CreateModel. ``AWS_*`` among them are left out.
        multi_model: whether the container is told to serve many models.
    """
    temporary, logs = str(folder / "t"), str(folder / "logs")
    return {
        **{name: os.environ[name] for name in _INHERITED if name in os.environ},
        "OMP_NUM_THREADS": "1",
        **{name: value for name, value in container.items() if not name.upper().startswith("AWS_")},
        **({"SAGEMAKER_MULTI_MODEL": "true"} if multi_model else {}),
        "HOME": str(folder),
        "TMPDIR": temporary,
        "TEMP": temporary,
        "LOG_LOCATION": logs,
        "METRICS_LOCATION": logs,
        "PYTHONDONTWRITEBYTECODE": "1",
    }


class ModelServer:
    """A running server.

    Args:
        folder: the instance's folder, which exists. It must be short, see `SOCKET_PATH_BYTES`.
        kind: which server.
        settings: of the data plane.
        container: the container's environment variables.
        multi_model: whether it serves many models.
    """

    def __init__(
        self, folder: Path, kind: ServerKind, settings: DataPlaneSettings, container: Mapping[str, str], *, multi_model: bool = True
    ) -> None:
        self._folder, self._kind, self._settings, self._container, self._multi_model = folder, kind, settings, container, multi_model
        self._process: asyncio.subprocess.Process | None = None
        self._address = ""

    @property
    def address(self) -> str:
        """``http://127.0.0.1:port``."""
        return self._address

    @property
    def pid(self) -> int | None:
        """The server's process id, which is its process group as well; ``None`` before the start."""
        return self._process.pid if self._process else None

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Start the process and wait until it answers a ping.

        Raises:
            StartFailed: it ended or did not answer in time; nothing is left running.
        """
        for name in ("t", "logs"):
            (self._folder / name).mkdir(exist_ok=True)
        port = _free_port()
        self._address = f"http://127.0.0.1:{port}"
        command = self._kind.command(self._folder, port, self._settings)
        with (self._folder / "logs" / "console.log").open("wb") as console:
            self._process = await asyncio.create_subprocess_exec(
                *command.arguments,
                cwd=self._folder,
                env={**server_environment(self._folder, self._container, multi_model=self._multi_model), **command.environment},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                start_new_session=True,
            )
        try:
            async with asyncio.timeout(self._settings.start_timeout_seconds):
                await self._answer_ping()
        except TimeoutError:
            await self.kill()
            raise StartFailed(
                f"the model server did not answer within {self._settings.start_timeout_seconds:g} s: {self._log_tail()}"
            ) from None
        except BaseException:
            await self.kill()
            raise

    async def wait(self) -> None:
        """Return when the process has ended."""
        assert self._process is not None
        await self._process.wait()

    def signal(self, number: signal.Signals) -> bool:
        """Send a signal to the whole process group; ``False`` if the server does not run."""
        if self._process is None or self._process.returncode is not None:
            return False
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)
            return True
        return False

    async def kill(self) -> None:
        """End the whole process group at once, the workers included."""
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        async with asyncio.timeout(_GROUP_END_SECONDS):
            while _runs(self._process.pid):  # the workers are not our children: look until the last one is gone
                await asyncio.sleep(_GROUP_END_INTERVAL_SECONDS)

    async def _answer_ping(self) -> None:
        assert self._process is not None
        client = HttpClient(int(self._address.rpartition(":")[2]))
        try:
            while True:
                if self._process.returncode is not None:
                    raise StartFailed(f"the model server ended with status {self._process.returncode}: {self._log_tail()}")
                with suppress(HttpError, TimeoutError):
                    if (await client.request("GET", "/ping", timeout_seconds=_PING_TIMEOUT_SECONDS)).status == _OK:
                        return
                await asyncio.sleep(_PING_INTERVAL_SECONDS)
        finally:
            client.close()

    def _log_tail(self) -> str:
        text = ""
        for name in ("console.log", "server.log"):
            with suppress(FileNotFoundError):
                text += (self._folder / "logs" / name).read_text("utf-8", "replace")
        return text.strip()[-_LOG_TAIL_CHARACTERS:] or "it wrote nothing"


def _runs(group: int) -> bool:
    """Whether a process of the group runs; one that only waits to be reaped does not."""
    for pid in psutil.pids():
        with suppress(ProcessLookupError, psutil.NoSuchProcess):
            if os.getpgid(pid) == group and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                return True
    return False


def _free_port() -> int:
    """A port that is free now. Another process may take it before the server does: then the start fails and is repeated.

    multi-model-server refuses ports from 32,767 on, so the system cannot choose one.
    """
    for offset in range(_PORTS):
        port = _FIRST_PORT + (os.getpid() * 61 + next(_port_counter) + offset) % _PORTS
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise StartFailed(f"no port between {_FIRST_PORT} and {_FIRST_PORT + _PORTS - 1} is free on 127.0.0.1")
