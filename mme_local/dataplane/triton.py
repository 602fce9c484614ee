"""Triton Inference Server on the CPU, with the Python backend: the binary of ``nvidia-pytriton`` in an environment of its own.

It stands in for ``sagemaker-tritonserver``. The package needs numpy below 2, so it cannot be installed beside ours:
``uv venv --python 3.11 triton && uv pip install --python triton/bin/python "nvidia-pytriton==0.7.0" "numpy<2"``;
`DataPlaneSettings.triton_python` then names ``triton/bin/python`` by its absolute path. The server listens on every address and has no
option for that, so it runs in a network namespace of its own (`mme_local.dataplane.network_of_its_own`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from mme_local.dataplane import network_of_its_own
from mme_local.dataplane.interface import DataPlaneSettings, StartFailed
from mme_local.dataplane.kinds import SINGLE_MODEL, Command

__all__ = ["TritonServer", "why_not"]

_PORT = 8080
_QUESTION = (
    "import importlib.util, json, sys; found = importlib.util.find_spec('pytriton'); "
    "print(json.dumps([found and found.submodule_search_locations[0], sys.base_prefix, '%d.%d' % sys.version_info[:2]]))"
)
_ANSWER_SECONDS = 60


@dataclass(frozen=True, slots=True)
class _Installation:
    package: Path
    prefix: str
    version: str

    @property
    def server(self) -> Path:
        return self.package / "tritonserver"

    @property
    def stub(self) -> Path:
        return self.server / "python_backend_stubs" / self.version / "triton_python_backend_stub"


@dataclass(frozen=True, slots=True)
class TritonServer:
    """A `ServerKind`.

    Attributes:
        python: interpreter of the environment that has ``nvidia-pytriton``.
        refuses_code: see `ServerKind`. Models of the Python backend are code.
    """

    python: str
    refuses_code: bool = False

    @property
    def invocations(self) -> str:
        """See `ServerKind`. In multi-model mode the server has no default model for ``/invocations``."""
        return f"/models/{SINGLE_MODEL}/invoke"

    def unpacked_bytes(self, folder: Path, real_bytes: int) -> int:  # noqa: ARG002 - of the protocol
        """See `ServerKind`."""
        return real_bytes

    def command(self, folder: Path, port: int, settings: DataPlaneSettings) -> Command:  # noqa: ARG002 - of the protocol
        """See `ServerKind`."""
        found = _find(self.python)
        if isinstance(found, str):
            raise StartFailed(found)
        repository, backend = folder / "repository", folder / "backends" / "python"
        repository.mkdir(exist_ok=True)
        backend.mkdir(parents=True, exist_ok=True)
        for source in (*(found.server / "backends" / "python").iterdir(), found.stub):
            link = backend / source.name
            if not link.exists():
                link.symlink_to(source)
        options = {
            "allow-sagemaker": "true",
            "sagemaker-port": _PORT,
            "allow-grpc": "false",
            "allow-http": "false",
            "allow-metrics": "false",
            "model-control-mode": "explicit",
            "model-repository": repository,
            "model-namespacing": "true",
            "strict-readiness": "false",  # a ping is about the server, not about a model that is being loaded
            "backend-directory": backend.parent,
            "backend-config": "python,shm-default-byte-size=1048576",
        }
        arguments = (
            *(sys.executable, "-I", "-S", str(Path(network_of_its_own.__file__)), str(port), str(_PORT)),
            str(found.server / "bin" / "tritonserver"),
            *(f"--{name}={value}" for name, value in options.items()),
        )
        # The backend's Python is the one that its PATH leads to, whatever else says so.
        environment = {
            "LD_LIBRARY_PATH": f"{found.package.parent / 'nvidia_pytriton.libs'}:{found.prefix}/lib",
            "PATH": f"{Path(self.python).parent}:{os.environ.get('PATH', os.defpath)}",
        }
        return Command(arguments, environment)


def why_not(python: str | None) -> str | None:
    """Why Triton cannot run with this interpreter; ``None`` if it can, as far as files tell."""
    if python is None:
        return "Triton needs nvidia-pytriton in an environment of its own: name its Python in DataPlaneSettings.triton_python"
    found = _find(python)
    return found if isinstance(found, str) else None


@cache
def _find(python: str) -> _Installation | str:
    """Where the server is, or why there is none."""
    try:
        answer = subprocess.run([python, "-I", "-c", _QUESTION], capture_output=True, text=True, timeout=_ANSWER_SECONDS, check=True).stdout
        package, prefix, version = json.loads(answer)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return f"triton_python is {python!r}, which cannot be run: {error}"
    if package is None:
        return f"triton_python is {python!r}, whose environment has no nvidia-pytriton: install it there"
    installation = _Installation(Path(package), prefix, version)
    for needed in (installation.server / "bin" / "tritonserver", installation.stub):
        if not needed.exists():
            return f"nvidia-pytriton of {python!r} has no {needed.name} for Python {version}: use Python 3.11 or 3.12"
    return installation
