"""Fault control for tests: `mme_local.LocalCloud.faults`."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from mme_local.fault_documents import Fault, FaultError, fault_from_document

__all__ = ["FaultState", "FaultsClient"]

_TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class FaultState:
    """A fault that was put.

    Attributes:
        id: its id.
        fault: the fault.
        struck: how often it struck so far.
        active: whether it may strike again.
    """

    id: str
    fault: Fault
    struck: int
    active: bool


class FaultsClient:
    """Puts, lists and removes faults of a running local cloud over HTTP.

    Args:
        endpoint_url: gives the gateway's address.
    """

    def __init__(self, endpoint_url: Callable[[], str]) -> None:
        self._endpoint_url = endpoint_url

    def put(self, fault: Fault) -> FaultState:
        """Put a fault.

        Raises:
            FaultError: it can strike nothing, or fault control is off.
        """
        return _state(self._ask("POST", "", fault.document()))

    def list(self) -> list[FaultState]:
        """The active faults and the last ones that ended, oldest first. Raises `FaultError`."""
        return [_state(document) for document in self._ask("GET", "")["faults"]]

    def get(self, fault_id: str) -> FaultState:
        """One fault as it is now. Raises `FaultError`."""
        for state in self.list():
            if state.id == fault_id:
                return state
        raise FaultError(f"There is no fault {fault_id}.")

    def remove(self, fault_id: str) -> FaultState:
        """End a fault; what it froze goes on. Raises `FaultError`."""
        return _state(self._ask("DELETE", f"/{fault_id}"))

    def clear(self) -> None:
        """End all faults and forget them. Raises `FaultError`."""
        self._ask("DELETE", "")

    @contextmanager
    def during(self, fault: Fault) -> Iterator[FaultState]:
        """A fault for the length of the block. Raises `FaultError`."""
        state = self.put(fault)
        try:
            yield state
        finally:
            self.remove(state.id)

    def _ask(self, method: str, path: str, document: dict[str, Any] | None = None) -> dict[str, Any]:
        body = None if document is None else json.dumps(document).encode()
        request = urllib.request.Request(f"{self._endpoint_url()}/_mme/faults{path}", data=body, method=method)  # noqa: S310 - our own http URL
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310 - our own http URL
                read: dict[str, Any] = json.load(answer)
                return read
        except urllib.error.HTTPError as error:
            with error:
                raise FaultError(json.load(error)["message"]) from None


def _state(document: dict[str, Any]) -> FaultState:
    own = {name: document.pop(name) for name in ("id", "struck", "active")}
    return FaultState(fault=fault_from_document(document), **own)
