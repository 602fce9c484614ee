"""The log line that every invocation writes: namespace, metrics and fields. Functions write it, dashboards and queries read it.

Metrics have bounded dimensions only; tenant, model and version are fields, so there is no metric per tenant.
Format: Amazon CloudWatch, embedded metric format specification.
"""

from __future__ import annotations

__all__ = ["DIMENSIONS", "METRICS", "NAMESPACE"]

NAMESPACE = "MME/Invocations"
DIMENSIONS = ("endpoint",)
METRICS = {
    "latency_ms": "Milliseconds",
    "attempts": "Count",
    "cold": "Count",
    "failed": "Count",
}
"""Name -> unit. ``cold`` and ``failed`` are 0 or 1: their average is a ratio."""
