"""What the gateway serves to local programs about itself: status, stream, counts of calls, console, reset, faults.

Only to callers on loopback, under a loopback name (a foreign name that resolves to 127.0.0.1 is how a web page reaches a local
server: DNS rebinding), and to no web page of another origin.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qs

from mme_local.call_counts import CallCounts
from mme_local.console.pages import console_page
from mme_local.console.status import Status
from mme_local.console.stream import Stream
from mme_local.fault_documents import FaultError, fault_from_document
from mme_local.faults import Faults, UnknownFaultError
from mme_local.wire import Reply, json_reply, send_reply

__all__ = ["Administration", "is_loopback", "serves"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

_BODY_BYTES = 1 << 16
_NUMBER_CHARACTERS = 16
_FAULTS = "/_mme/faults"
_LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")
_OWN_SITES = ("same-origin", "none")


def serves(path: str) -> bool:
    """Whether a path is the administration's."""
    return path.startswith(("/_mme/", "/_console/")) or path in ("/_console", "/_ministack/reset")


def is_loopback(scope: Scope) -> bool:
    """Whether the caller is on this machine."""
    client = scope.get("client")
    return client is not None and _is_loopback_address(client[0])


@lru_cache(maxsize=256)
def _is_loopback_address(address: str) -> bool:
    return ipaddress.ip_address(address.removeprefix("::ffff:")).is_loopback


class Administration:
    """Serves the paths of `serves`.

    Args:
        status: makes the document of ``GET /_mme/status``.
        stream: serves ``GET /_mme/stream``.
        calls: is the document of ``GET /_mme/calls``.
        reset: forgets everything, for ``POST /_mme/reset``.
        faults: fault control; ``None`` where it is off, and its paths do not exist.
    """

    def __init__(
        self, status: Status, stream: Stream, calls: CallCounts, reset: Callable[[], Awaitable[None]], faults: Faults | None
    ) -> None:
        self._status, self._stream, self._calls, self._reset, self._faults = status, stream, calls, reset, faults

    async def __call__(self, scope: Scope, headers: Mapping[str, str], receive: Receive, send: Send) -> None:
        """Serve one request; ``headers`` are those of the scope, by lower-case name."""
        refusal = _refusal(scope, headers)
        if refusal is None and (scope["method"], scope["path"]) == ("GET", "/_mme/stream") and not self._stream.full:
            await self._stream.serve(_after(scope, headers), receive, send)
            return
        reply = json_reply({"message": refusal}, 403) if refusal is not None else await self._reply(scope, receive)
        await send_reply(send, reply)

    async def _reply(self, scope: Scope, receive: Receive) -> Reply:
        method, path = scope["method"], scope["path"]
        if self._faults is not None and (path == _FAULTS or path.startswith(f"{_FAULTS}/")):
            return await self._serve_faults(self._faults, method, path.removeprefix(_FAULTS).removeprefix("/"), receive)
        match method, path:
            case "GET", "/_mme/status":
                return json_reply(self._status.document(models=_query(scope).get("models") != ["0"]))
            case "GET", "/_mme/calls":
                return json_reply(self._calls.document())
            case "GET", "/_mme/stream":
                return json_reply({"message": "Too many readers follow the stream: close some."}, 503)
            case "GET" | "HEAD", _ if (page := console_page(path)) is not None:
                return page
            case "POST", "/_mme/reset" | "/_ministack/reset":
                await self._reset()
                return json_reply({"reset": "ok"})
            case _, "/_mme/faults":
                return json_reply({"message": "Fault control is off: start with `mme up --faults` or LocalSettings(faults=True)."}, 404)
        return json_reply({"message": f"There is no {method} {path}."}, 404)

    async def _serve_faults(self, faults: Faults, method: str, fault_id: str, receive: Receive) -> Reply:
        try:
            match method, fault_id:
                case "GET", "":
                    return json_reply({"faults": [entry.document() for entry in faults.list()]})
                case "POST", "":
                    return json_reply(faults.put(fault_from_document(await _read_json(receive))).document(), 201)
                case "DELETE", "":
                    faults.clear()
                    return json_reply({"faults": []})
                case "DELETE", _:
                    return json_reply(faults.remove(fault_id).document())
        except FaultError as error:
            return json_reply({"message": str(error)}, 400)
        except UnknownFaultError as error:
            return json_reply({"message": str(error)}, 404)
        return json_reply({"message": f"There is no {method} of {_FAULTS}/{fault_id}: use GET, POST or DELETE."}, 405)


def _query(scope: Scope) -> dict[str, list[str]]:
    return parse_qs(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)


def _after(scope: Scope, headers: Mapping[str, str]) -> int | None:
    """The number of the last item that a reader has: of a reconnecting browser, else of the query."""
    given = headers.get("last-event-id") or _query(scope).get("after", [""])[0]
    return int(given) if given.isdecimal() and len(given) < _NUMBER_CHARACTERS else None


def _refusal(scope: Scope, headers: Mapping[str, str]) -> str | None:
    """Why a request is refused, if it is."""
    host = headers.get("host", "")
    # The console's own scripts name their origin, as browsers do for modules. They only read.
    from_page = "origin" in headers and not (scope["method"] in ("GET", "HEAD") and headers["origin"] == f"http://{host}")
    if not is_loopback(scope) or from_page or headers.get("sec-fetch-site", "none") not in _OWN_SITES:
        return "Only local programs may ask this, no web pages."
    if (host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host) not in _LOCAL_NAMES:
        return f"The host name {host!r} is not this machine's: use 127.0.0.1 or localhost."
    return None


async def _read_json(receive: Receive) -> object:
    body = bytearray()
    more = True
    while more:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > _BODY_BYTES:
            raise FaultError(f"the body is longer than {_BODY_BYTES} bytes")
        more = message["type"] == "http.request" and message.get("more_body", False)
    try:
        return json.loads(bytes(body))
    except ValueError as error:
        raise FaultError(f"the body is not JSON: {error}") from None
