"""Quick verification of AWS signatures (version 4, in the Authorization header).

Pure. It says yes only to what it understands wholly: whoever gets a no asks the emulator, which knows every other form, and why a
signature is wrong. Source of the rules: IAM user guide, "Signing AWS API requests".
"""

from __future__ import annotations

import calendar
import hashlib
import hmac
import re
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote

__all__ = ["Signature", "parse_signature", "signature_holds"]

_WINDOW_SECONDS = 300
_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([^/,\s]+)/(\d{8})/([^/,\s]+)/([^/,\s]+)/aws4_request, ?SignedHeaders=([a-z0-9;._-]+), ?"
    r"Signature=([0-9a-f]{64})",
    re.ASCII,
)
_AMZ_DATE = re.compile(r"(\d{8})T\d{6}Z", re.ASCII)


class Signature(NamedTuple):
    """What an Authorization header says.

    Attributes:
        access_key_id: the claimed key.
        date: ``YYYYMMDD`` of the scope.
        region: of the scope.
        service: of the scope.
        signed_headers: their names, joined by semicolons.
        value: the signature.
    """

    access_key_id: str
    date: str
    region: str
    service: str
    signed_headers: str
    value: str


@lru_cache(maxsize=64)
def parse_signature(authorization: str) -> Signature | None:
    """The parts of an Authorization header; ``None`` for any but the plain form of version 4."""
    match = _AUTHORIZATION.fullmatch(authorization)
    return Signature(*match.groups()) if match else None


def signature_holds(
    signature: Signature, secret: str, method: str, raw_path: str, headers: Mapping[str, str], body: bytes, now: float
) -> bool:
    """Whether a request without a query was signed with ``secret``, body and all, not more than five minutes from ``now``.

    Args:
        signature: of its Authorization header.
        secret: the secret access key.
        method: HTTP method.
        raw_path: the path as it came.
        headers: by lower-case name, none of which came twice.
        body: as it came.
        now: epoch seconds.
    """
    amz_date = headers.get("x-amz-date", "")
    signed_at = _epoch(amz_date)
    if signed_at is None or abs(now - signed_at) > _WINDOW_SECONDS or amz_date[:8] != signature.date:
        return False
    digest = hashlib.sha256(body).hexdigest()
    if headers.get("x-amz-content-sha256", digest) != digest:
        return False
    lines = [method, _canonical_path(raw_path), ""]
    lines += [f"{name}:{' '.join(headers.get(name, '').split())}" for name in _names(signature.signed_headers)]
    lines += ("", signature.signed_headers, digest)
    canonical = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{amz_date}\n{signature.date}/{signature.region}/{signature.service}/aws4_request\n{canonical}"
    key = _signing_key(secret, signature.date, signature.region, signature.service)
    return hmac.compare_digest(hmac.digest(key, text.encode(), "sha256").hex(), signature.value)


@lru_cache(maxsize=256)
def _epoch(amz_date: str) -> float | None:
    if not _AMZ_DATE.fullmatch(amz_date):
        return None
    try:
        return calendar.timegm(time.strptime(amz_date, "%Y%m%dT%H%M%SZ"))
    except ValueError:
        return None


@lru_cache(maxsize=256)
def _names(signed_headers: str) -> tuple[str, ...]:
    return tuple(name for name in signed_headers.split(";") if name)


@lru_cache(maxsize=1024)
def _canonical_path(raw_path: str) -> str:
    """The path without dot segments and empty ones, encoded once more."""
    segments: list[str] = []
    for segment in raw_path.split("/"):
        if segment == "..":
            del segments[-1:]
        elif segment not in ("", "."):
            segments.append(segment)
    path = "/" + "/".join(segments) + ("/" if raw_path.endswith("/") and segments else "")
    return quote(path, safe="/-_.~")


# As many as tenants whose sessions call in turn: each has keys of its own.
@lru_cache(maxsize=4096)
def _signing_key(secret: str, date: str, region: str, service: str) -> bytes:
    key = f"AWS4{secret}".encode()
    for part in (date, region, service, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key
