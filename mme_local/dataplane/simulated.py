"""The simulated server: scripted sizes and latencies instead of models."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mme_local.dataplane import simulated_server
from mme_local.dataplane.interface import DataPlaneSettings
from mme_local.dataplane.kinds import Command
from mme_local.dataplane.simulated_server import Container, Script

__all__ = ["SimulatedServer"]


@dataclass(frozen=True, slots=True)
class SimulatedServer:
    """A `ServerKind`.

    Attributes:
        script: a document of `mme_local.dataplane.simulated_server.Script`.
        refuses_code: see `ServerKind`.
    """

    script: Mapping[str, Any] = field(default_factory=dict)
    refuses_code: bool = False

    @property
    def invocations(self) -> str:
        """See `ServerKind`."""
        return "/invocations"

    def unpacked_bytes(self, folder: Path, real_bytes: int) -> int:
        """See `ServerKind`: what the model's script says."""
        try:
            return Container(Script.read(self.script)).behaviour(folder).bytes or real_bytes
        except (OSError, ValueError):
            return real_bytes  # the load will say what is wrong

    def command(self, folder: Path, port: int, settings: DataPlaneSettings) -> Command:
        """See `ServerKind`."""
        script = folder / "simulation.json"
        workers = {} if settings.workers_per_model is None else {"workers": settings.workers_per_model}
        script.write_text(json.dumps({**workers, **self.script}), "utf-8")
        return Command((sys.executable, "-I", "-S", str(Path(simulated_server.__file__)), str(port), str(script)))
