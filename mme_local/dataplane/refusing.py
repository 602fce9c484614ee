"""The server that refuses every load and says why: for images that nothing here can serve."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from mme_local.dataplane import refusing_server
from mme_local.dataplane.interface import DataPlaneSettings
from mme_local.dataplane.kinds import Command

__all__ = ["RefusingServer"]


@dataclass(frozen=True, slots=True)
class RefusingServer:
    """A `ServerKind`.

    Attributes:
        refusal: why every load is refused.
        refuses_code: see `ServerKind`.
    """

    refusal: str
    refuses_code: bool = False

    @property
    def invocations(self) -> str:
        """See `ServerKind`."""
        return "/invocations"

    def unpacked_bytes(self, folder: Path, real_bytes: int) -> int:  # noqa: ARG002 - of the protocol
        """See `ServerKind`."""
        return real_bytes

    def command(self, folder: Path, port: int, settings: DataPlaneSettings) -> Command:  # noqa: ARG002 - of the protocol
        """See `ServerKind`."""
        return Command((sys.executable, "-I", "-S", str(Path(refusing_server.__file__)), str(port), self.refusal))
