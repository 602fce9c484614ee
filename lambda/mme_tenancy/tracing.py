"""Trace ids of a request: read from what came with it, logged, and passed on.

Sources: AWS X-Ray, Concepts (tracing header); W3C Trace Context, traceparent header. What is not in the form is as if it were not there, as
the W3C demands. The X-Ray header goes on to SageMaker by itself: botocore copies Lambda's own onto every call.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Trace"]

_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-([0-9a-f]{2})(?:-[!-~]*)?")
_XRAY_ROOT = re.compile(r"1-[0-9a-f]{8}-[0-9a-f]{24}")
_MOST_CHARACTERS = 1000
_SAMPLED = 1


@dataclass(frozen=True, slots=True)
class Trace:
    """Which traces a request belongs to.

    Attributes:
        traceparent: the W3C header as it came, if it is valid.
        id: its trace id, 32 hexadecimal digits.
        xray_id: X-Ray's trace id.
        sampled: whether one of them says that the request is recorded.
    """

    traceparent: str | None = None
    id: str | None = None
    xray_id: str | None = None
    sampled: bool = False

    @classmethod
    def read(cls, traceparent: str | None, xray: str | None) -> Trace:
        """Read the two headers.

        Args:
            traceparent: the W3C header, if there is one.
            xray: ``X-Amzn-Trace-Id``, or Lambda's variable ``_X_AMZN_TRACE_ID`` of the same form, if there is one.
        """
        match = _TRACEPARENT.fullmatch(traceparent) if traceparent and len(traceparent) <= _MOST_CHARACTERS else None
        # Version 00 has exactly these four fields; a later one may have more.
        if match is not None and match[0].startswith("00-") and len(match[0]) != 55:
            match = None
        parts = dict(part.strip().partition("=")[::2] for part in (xray or "").split(";"))
        root = parts.get("Root", "")
        xray_id = root if _XRAY_ROOT.fullmatch(root) else None
        sampled = (match is not None and bool(int(match[2], 16) & _SAMPLED)) or (xray_id is not None and parts.get("Sampled") == "1")
        return cls(match and match[0], match and match[1], xray_id, sampled)
