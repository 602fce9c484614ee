"""What a model server is to an instance: a strategy that says how to start it and how it is spoken to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from mme_local.dataplane.interface import DataPlaneSettings

__all__ = ["SINGLE_MODEL", "Command", "ServerKind"]

SINGLE_MODEL = "model"
"""Name of the only model of a single-model container towards its server."""


@dataclass(frozen=True, slots=True)
class Command:
    """How a server is started.

    Attributes:
        arguments: its command line.
        environment: variables beyond those of every server (`mme_local.dataplane.server.server_environment`).
    """

    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


class ServerKind(Protocol):
    """What runs in an instance: it speaks the MME container contract on one loopback port."""

    @property
    def refuses_code(self) -> bool:
        """Whether artifacts with code or a manifest (`mme_facts.artifacts.carries_code`) are refused."""

    @property
    def invocations(self) -> str:
        """Path, with its query, of an invocation of `SINGLE_MODEL`, the only model that is loaded."""

    def unpacked_bytes(self, folder: Path, real_bytes: int) -> int:
        """What the unpacked artifact in a folder counts as, on disk and in memory."""

    def command(self, folder: Path, port: int, settings: DataPlaneSettings) -> Command:
        """Write what the server needs below the instance's folder, and say how it is started.

        Raises:
            StartFailed: it cannot be started here; the text says why.
        """
