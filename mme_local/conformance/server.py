"""Rules of the server itself: ping, connections, requests that make no sense."""

from __future__ import annotations

import asyncio
from contextlib import closing
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import SplitResult, urlsplit

import httpx

from mme_local.conformance.probe import BrokenRuleError, Probe, seen
from mme_local.conformance.rules import rule
from mme_local.conformance.sources import CONTAINER_APIS, GOOD_SERVER, HOW_CONTAINERS_SERVE

__all__ = ["keeps_connection", "ping", "survives_malformed", "unknown_path"]


@rule("ping.ok", "GET /ping answers 200 within 2 seconds.", HOW_CONTAINERS_SERVE)
async def ping(probe: Probe) -> None:
    """Once."""
    await probe.ping()


@rule(
    "server.keeps-connection", "Several requests may follow each other on one connection.", GOOD_SERVER, required=False, after=("ping.ok",)
)
async def keeps_connection(probe: Probe) -> None:
    """Two pings, by hand: the suite's own client would open another connection."""
    await asyncio.to_thread(_two_pings, urlsplit(probe.subject.url), probe.subject.ping_seconds)


def _two_pings(address: SplitResult, seconds: float) -> None:
    kind = HTTPSConnection if address.scheme == "https" else HTTPConnection
    connection = kind(address.hostname or "", address.port, timeout=seconds)
    with closing(connection):
        answered = 0
        try:
            connection.connect()
            connection.auto_open = 0
            while answered < 2:
                connection.request("GET", "/ping")
                connection.getresponse().read()
                answered += 1
        except (HTTPException, OSError) as error:
            reason = str(error) or type(error).__name__
            raise BrokenRuleError(f"of two GET /ping on one connection {answered} were answered: {reason}") from None


@rule(
    "server.unknown-path", "A path that the contract does not have is refused with an error from 400 to 499.", GOOD_SERVER, required=False
)
async def unknown_path(probe: Probe) -> None:
    """A GET of something else."""
    response = await probe.request("GET", "/no-such-path")
    if not response.is_client_error:
        raise BrokenRuleError(f"{seen(response)}: a status from 400 to 499 is expected")


@rule(
    "server.survives-malformed",
    "After a POST /models whose body is not JSON the container is still healthy.",
    GOOD_SERVER,
    required=False,
    after=("ping.ok",),
)
async def survives_malformed(probe: Probe) -> None:
    """Whatever the answer is, a ping follows."""
    try:
        await probe.request("POST", "/models", body=b"{no JSON", headers={"Content-Type": "application/json"})
    finally:
        await probe.ping()


async def _refuses(probe: Probe, body: bytes) -> None:
    response = await probe.request("POST", "/models", body=body, headers={"Content-Type": "application/json"})
    if not response.is_client_error or response.status_code == httpx.codes.CONFLICT:
        raise BrokenRuleError(f"{seen(response)}: a status from 400 to 499, and not 409, is expected")


@rule(
    "load.malformed",
    "A load whose body is not JSON is refused as the caller's error.",
    CONTAINER_APIS,
    required=False,
    after=("server.survives-malformed",),
)
async def load_malformed(probe: Probe) -> None:
    """Not JSON."""
    await _refuses(probe, b"{no JSON")


@rule(
    "load.incomplete",
    'A load without "model_name" or "url" is refused as the caller\'s error.',
    CONTAINER_APIS,
    required=False,
    after=("server.survives-malformed",),
)
async def load_incomplete(probe: Probe) -> None:
    """One is missing, then the other."""
    await _refuses(probe, b'{"url": "/opt/ml/models/m/model"}')
    await _refuses(probe, b'{"model_name": "%s"}' % probe.name().encode())
