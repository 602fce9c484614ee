"""``/_console``: the console's page and its files, from this package."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from mme_local.wire import Reply

__all__ = ["console_page"]

_TYPES = {"css": "text/css", "html": "text/html", "js": "text/javascript", "svg": "image/svg+xml"}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def console_page(path: str) -> Reply | None:
    """The answer to a path of the console; ``None`` if it is none of them."""
    name = "index.html" if path in ("/_console", "/_console/") else path.removeprefix("/_console/")
    content = _contents().get(name)
    if content is None or not path.startswith("/_console"):
        return None
    headers = {
        "Content-Type": f"{_TYPES[name.rpartition('.')[2]]}; charset=utf-8",
        "Cache-Control": "no-cache",
        "Content-Security-Policy": _POLICY,
        "Cross-Origin-Resource-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }
    return 200, headers, content


@cache
def _contents() -> dict[str, bytes]:
    folder = files("mme_local.console") / "static"
    return {entry.name: entry.read_bytes() for entry in folder.iterdir() if entry.is_file()}
