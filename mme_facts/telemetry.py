"""The log line that every invocation writes: namespace, metrics, fields, and what can be set of it.

Functions write the line, dashboards and queries read it. Every request has exactly one, so counts made of the lines are exact. Metrics have
bounded dimensions only; tenant, model and version are fields, so there is no metric per tenant but for a short list that an operator names.
Format: Amazon CloudWatch, embedded metric format specification. Names and units are the catalogue's (`mme_facts.metrics_own`).
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass

from mme_facts.grammar import check_tenant_id
from mme_facts.metrics_own import INVOCATION_LINE_METRICS, INVOCATION_LINE_NAMESPACE, INVOCATION_PATH_METRICS

__all__ = ["ACCESS_FIELDS", "DIMENSIONS", "METRICS", "MOST_TENANTS", "NAMESPACE", "TENANT_DIMENSIONS", "LineSettings"]

NAMESPACE = INVOCATION_LINE_NAMESPACE
DIMENSIONS = ("endpoint",)
TENANT_DIMENSIONS = ("endpoint", "tenant")
"""Of the metrics that a tenant of `LineSettings.tenants` has beside the endpoint's."""
METRICS = {row.name: row.unit for row in (*INVOCATION_LINE_METRICS, *INVOCATION_PATH_METRICS)}
"""Name -> unit. ``cold``, ``failed`` and ``throttled`` are 0 or 1: their average is a ratio. A line has metrics of those that it holds."""
ACCESS_FIELDS = frozenset({"caller", "request_id", "trace_id", "xray_trace_id", "waited_ms"})
"""The payload-free access log within the line: who asked, and by which ids the request is found elsewhere. Only these are sampled."""
MOST_TENANTS = 50
"""Tenants with metrics of their own, at most: each has some ten metrics for each endpoint that it calls."""


@dataclass(frozen=True, slots=True)
class LineSettings:
    """What an operator sets of the line.

    Attributes:
        tenants: ids of the tenants that have metrics of their own; none unless given.
        access_share: the share of requests, 0 to 1, whose line carries `ACCESS_FIELDS`; errors, cold requests, slow ones and those of a
            trace that its caller samples carry them always. All unless given.
        slow_ms: from how many milliseconds on a request is slow.

    Raises:
        ValueError: there are more than `MOST_TENANTS`, one is no tenant id or named twice, or a number is out of range.
    """

    tenants: tuple[str, ...] = ()
    access_share: float = 1.0
    slow_ms: float = 1000.0

    def __post_init__(self) -> None:
        for tenant in self.tenants:
            check_tenant_id(tenant)
        if len(set(self.tenants)) < len(self.tenants):
            raise ValueError(f"tenants name one twice: {', '.join(self.tenants)}")
        if len(self.tenants) > MOST_TENANTS:
            raise ValueError(f"tenants are {len(self.tenants)}: at most {MOST_TENANTS} may have metrics of their own")
        if not 0 <= self.access_share <= 1:
            raise ValueError(f"access_share is {self.access_share}: use a share from 0 to 1")
        if not (math.isfinite(self.slow_ms) and self.slow_ms > 0):
            raise ValueError(f"slow_ms is {self.slow_ms}: use a number of milliseconds above 0")

    def dump(self) -> str:
        """Render it as the value of an environment variable."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def load(cls, value: str) -> LineSettings:
        """Read what `dump` wrote; raises `ValueError` or `TypeError`."""
        document = json.loads(value)
        return cls(**{**document, "tenants": tuple(document.get("tenants", ()))})
