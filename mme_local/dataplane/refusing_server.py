"""A server of the MME container contract that refuses every load: it stands in for images that nothing here can serve.

Started as a script of its own, with the standard library alone: ``python refusing_server.py PORT REASON``. The environment and the
lifecycle are those of a model server.
"""

from __future__ import annotations

import json
import signal
import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import FrameType

__all__ = ["main"]


class _Handler(BaseHTTPRequestHandler):
    """Answers ``/ping``, ``/models`` and what lies below."""

    protocol_version = "HTTP/1.1"
    reason = ""

    def do_GET(self) -> None:
        if self.path == "/ping":
            self._answer(HTTPStatus.OK, {"status": "Healthy"})
        elif self.path.partition("?")[0] == "/models":
            self._answer(HTTPStatus.OK, {"models": []})
        else:
            self._answer(HTTPStatus.NOT_FOUND, {"message": "no model is loaded"})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path == "/models":
            self._answer(HTTPStatus.NOT_IMPLEMENTED, self.reason)
        else:
            self._answer(HTTPStatus.NOT_FOUND, {"message": "no model is loaded"})

    def do_DELETE(self) -> None:
        self._answer(HTTPStatus.NOT_FOUND, {"message": "no model is loaded"})

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Write no access log."""

    def _answer(self, status: HTTPStatus, content: str | dict[str, object]) -> None:
        body = (content if isinstance(content, str) else json.dumps(content)).encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain" if isinstance(content, str) else "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class _Server(ThreadingHTTPServer):
    daemon_threads = True


def main(port: int, reason: str) -> None:
    """Serve on a loopback port until SIGTERM."""
    _Handler.reason = reason

    def end(_number: int, _frame: FrameType | None) -> None:
        sys.exit(0)

    signal.signal(signal.SIGTERM, end)
    with _Server(("127.0.0.1", port), _Handler) as server:
        server.serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
