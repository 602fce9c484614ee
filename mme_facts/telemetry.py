"""The log line that every invocation writes: namespace, metrics and fields. Functions write it, dashboards and queries read it.

Metrics have bounded dimensions only; tenant, model and version are fields, so there is no metric per tenant.
Format: Amazon CloudWatch, embedded metric format specification. Names and units are the catalogue's (`mme_facts.metrics_own`).
"""

from __future__ import annotations

from mme_facts.metrics_own import INVOCATION_LINE_METRICS, INVOCATION_LINE_NAMESPACE

__all__ = ["DIMENSIONS", "METRICS", "NAMESPACE"]

NAMESPACE = INVOCATION_LINE_NAMESPACE
DIMENSIONS = ("endpoint",)
METRICS = {row.name: row.unit for row in INVOCATION_LINE_METRICS}
"""Name -> unit. ``cold``, ``failed`` and ``throttled`` are 0 or 1: their average is a ratio."""
