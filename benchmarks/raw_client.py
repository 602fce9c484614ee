"""A raw keep-alive HTTP client in a process of its own: it sends the same bytes again and again, to targets that take turns.

``python raw_client.py`` reads an order as JSON from standard input and prints what it measured as JSON. It parses no more of an answer than
its status and length, so that little of what it measures is itself.
"""

from __future__ import annotations

import base64
import json
import re
import selectors
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["latencies", "throughputs"]

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Target:
    """Where to send what."""

    port: int
    request: bytes

    def connect(self) -> Connection:
        """A new connection."""
        return Connection(self)


class Connection:
    """One keep-alive connection with one request at a time."""

    def __init__(self, target: Target) -> None:
        self._request = target.request
        self.socket = socket.create_connection(("127.0.0.1", target.port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""

    def send(self) -> None:
        """Send the request."""
        self.socket.sendall(self._request)

    def receive(self) -> bool:
        """Take what has come; whether the answer is complete. Raises `RuntimeError` for any answer but 200."""
        came = self.socket.recv(65536)
        self._received += came
        head, end, body = self._received.partition(b"\r\n\r\n")
        length = _LENGTH.search(head + b"\r\n")
        if not came or (end and (head.split(b" ", 2)[1] != b"200" or length is None)):
            raise RuntimeError(f"the answer is no 200 of a known length: {self._received[:500]!r}")
        if not end or length is None or len(body) < int(length[1]):
            return False
        self._received = b""
        return True


def latencies(targets: Sequence[Target], requests: int) -> list[list[float]]:
    """Milliseconds of ``requests`` calls to each target, by one caller; the targets take turns after every call."""
    connections = [target.connect() for target in targets]
    milliseconds: list[list[float]] = [[] for _ in targets]
    for _ in range(requests):
        for connection, found in zip(connections, milliseconds, strict=True):
            started = time.perf_counter()
            connection.send()
            while not connection.receive():
                pass
            found.append((time.perf_counter() - started) * 1000)
    return milliseconds


def throughputs(targets: Sequence[Target], callers: int, requests: int, rounds: int) -> list[list[float]]:
    """Requests a second of each target: in every round ``callers`` callers send ``requests``, and the targets take turns."""
    found: list[list[float]] = [[] for _ in targets]
    groups = [[target.connect() for _ in range(callers)] for target in targets]
    for _ in range(rounds):
        for connections, rates in zip(groups, found, strict=True):
            rates.append(requests / _round(connections, requests))
    return found


def _round(connections: Sequence[Connection], requests: int) -> float:
    """Seconds until ``requests`` answers have come."""
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection.socket, selectors.EVENT_READ, connection)
        started = time.perf_counter()
        for connection in connections:
            connection.send()
        sent, answered = len(connections), 0
        while answered < requests:
            for key, _events in selector.select():
                if key.data.receive():
                    answered += 1
                    if sent < requests:
                        key.data.send()
                        sent += 1
        return time.perf_counter() - started


def main() -> None:
    """Do what the order says: warm up, then latencies, then throughputs."""
    order = json.load(sys.stdin)
    targets = [Target(entry["port"], base64.b64decode(entry["request"])) for entry in order["targets"]]
    throughputs(targets, order["callers"], order["warm_up"], 1)
    document = {
        "latencies": latencies(targets, order["latency_requests"]),
        "throughputs": throughputs(targets, order["callers"], order["round_requests"], order["rounds"]),
    }
    json.dump(document, sys.stdout)


if __name__ == "__main__":
    main()
