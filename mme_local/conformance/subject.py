"""What the suite is told about the container that it checks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

__all__ = ["Subject"]

_PING_SECONDS, _UNLOAD_SECONDS = 2.0, 360.0


@dataclass(frozen=True, slots=True)
class Subject:
    """A running container, and what is needed to provoke its answers. Rules that need what is not given are not checked.

    Attributes:
        url: its address, such as ``http://127.0.0.1:8080``.
        models: folders of valid models, as the container sees them. The suite has up to four models loaded at once and uses the folders in
            turn: give four where a server cannot load one folder under several names.
        broken: folder of a model that cannot be loaded.
        too_large: folder of a model whose load ends out of memory.
        fill: at most so many models are loaded, under names of their own, to see the container out of memory; 0: never.
        payload: body of an invocation that every valid model answers with success.
        content_type: of the payload.
        accept: what the answer shall be; ``None``: the header is left out.
        timeout_seconds: how long an answer may take, other than those with a limit of their own.
        ping_seconds: that of a ping (Developer Guide: "How Containers Serve Requests").
        unload_seconds: that of an unload: the platform waits no longer.
    """

    url: str
    models: Sequence[str] = ()
    broken: str | None = None
    too_large: str | None = None
    fill: int = 0
    payload: bytes | None = None
    content_type: str = "application/octet-stream"
    accept: str | None = None
    timeout_seconds: float = 60.0
    ping_seconds: float = _PING_SECONDS
    unload_seconds: float = _UNLOAD_SECONDS

    def __post_init__(self) -> None:
        address = urlsplit(self.url)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise ValueError(f"the container's address is {self.url!r}: use one such as http://127.0.0.1:8080")
        for name in ("timeout_seconds", "ping_seconds", "unload_seconds"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}: use a positive number of seconds")
        if self.fill < 0:
            raise ValueError(f"fill is {self.fill}: use 0 or more")

    def missing(self, needs: Sequence[str]) -> list[str]:
        """Which of these attributes are not given."""
        return [name for name in needs if not getattr(self, name) and getattr(self, name) != b""]
