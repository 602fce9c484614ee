"""Whole small implementations of what the trigger of warm-ups needs, beside those of `mme_tenancy.testing`."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any

from mme_tenancy.errors import WriteConflictError
from mme_tenancy.fleet_state import FleetState
from mme_tenancy.warm_up.ports import EndpointRecord

__all__ = ["MemoryContinuations", "MemoryFleets", "MemoryWarmUpStore"]


class MemoryWarmUpStore:
    """`mme_tenancy.warm_up.ports.WarmUpStore` in a dictionary; safe for threads.

    Attributes:
        records: what is remembered, by endpoint.
        documents: what was kept, by endpoint and name.
    """

    def __init__(self) -> None:
        self.records: dict[str, EndpointRecord] = {}
        self.documents: dict[tuple[str, str], str] = {}
        self._lock = threading.Lock()

    def read(self, endpoint: str) -> EndpointRecord | None:
        """The endpoint's record."""
        return self.records.get(endpoint)

    def write(self, before: EndpointRecord | None, after: EndpointRecord) -> None:
        """Write ``after`` over ``before``; raises `WriteConflictError` if something else is there."""
        with self._lock:
            stored = self.records.get(after.endpoint)
            if stored == after:
                return
            if (None if stored is None else stored.rev) != (None if before is None else before.rev):
                raise WriteConflictError("someone else changed it")
            self.records[after.endpoint] = after

    def keep(self, endpoint: str, document: Mapping[str, Any]) -> str:
        """Store a document; returns its name."""
        with self._lock:
            name = str(len(self.documents) + 1)
            self.documents[endpoint, name] = json.dumps(document)
        return name

    def kept(self, endpoint: str, name: str) -> Mapping[str, Any] | None:
        """What `keep` stored by that name."""
        text = self.documents.get((endpoint, name))
        return None if text is None else json.loads(text)


class MemoryFleets:
    """`mme_tenancy.warm_up.ports.Fleets` of states that a test sets.

    Args:
        *states: the endpoints that there are.

    Attributes:
        states: the endpoints by name.
        looks: how often one was described.
    """

    def __init__(self, *states: FleetState) -> None:
        self.states = {state.endpoint: state for state in states}
        self.looks = 0

    def state(self, endpoint: str) -> FleetState | None:
        """The endpoint's state; ``None`` if there is no such endpoint."""
        self.looks += 1
        return self.states.get(endpoint)


class MemoryContinuations:
    """`mme_tenancy.warm_up.ports.Continuations` that only remembers.

    Attributes:
        sent: endpoints that shall be looked after, oldest first.
    """

    def __init__(self) -> None:
        self.sent: list[str] = []

    def send(self, endpoint: str) -> None:
        """Remember it."""
        self.sent.append(endpoint)
