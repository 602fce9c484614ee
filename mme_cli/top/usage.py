"""Each tenant's requests in a time range, counted by Logs Insights over the invocation path's log lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mme_cli.errors import CommandError
from mme_tenancy.clock import Clock
from mme_tenancy.heat_collection import Window
from mme_tenancy.log_queries import MOST_ROWS, LogQueries, Query, QueryAnswer, QueryFailedError, run_queries

__all__ = ["Requests", "TenantRequests", "merged", "requests_of"]

_QUERY_SECONDS = 300.0
_AT_ONCE = 3
_COUNTS = (
    "count(*) as requests, sum(failed) as failed, sum(cold) as cold, sum(bytes_in) as bytes_in, sum(bytes_out) as bytes_out, "
    "sum(model_latency_ms) as served_ms, pct(latency_ms, 50) as p50_ms, pct(latency_ms, 99) as p99_ms"
)
_OF_TENANTS = f"stats {_COUNTS} by tenant | sort requests desc | limit {MOST_ROWS}"
_OF_ENDPOINTS = (
    f"filter ispresent(endpoint) | stats sum(model_latency_ms) as served_ms by endpoint, tenant | sort served_ms desc | limit {MOST_ROWS}"
)
_OF_ALL = f"stats {_COUNTS}"
_REQUESTS = "ispresent(tenant) and ispresent(status) and ispresent(latency_ms) and ispresent(failed)"
"""What the line of every request that names a tenant has, whatever its end (`mme_tenancy.request_line`)."""


@dataclass(frozen=True, slots=True)
class TenantRequests:
    """One tenant's requests.

    Attributes:
        tenant: its id.
        requests: those that named it, whatever their answer.
        failed: answered with status 500 or more.
        cold: told that the model was not ready.
        bytes_in: of their bodies.
        bytes_out: of the answers' bodies.
        served_ms: of the attempts that a container answered.
        p50_ms: half took at most so long.
        p99_ms: 99 percent did.
    """

    tenant: str
    requests: int
    failed: int
    cold: int
    bytes_in: int
    bytes_out: int
    served_ms: float
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True)
class Requests:
    """All tenants' requests.

    Attributes:
        tenants: those with most requests, the busiest first, at most 10,000.
        total: of all tenants.
        served_ms: endpoint -> tenant -> milliseconds served.
        scanned_bytes: what Logs Insights bills.
    """

    tenants: tuple[TenantRequests, ...]
    total: TenantRequests
    served_ms: Mapping[str, Mapping[str, float]]
    scanned_bytes: float

    @property
    def truncated(self) -> int:
        """Requests of tenants beyond the first 10,000."""
        return self.total.requests - sum(row.requests for row in self.tenants)


def requests_of(queries: LogQueries, start: int, end: int, clock: Clock) -> Requests:
    """Count.

    Args:
        queries: asks the log groups with the lines of requests.
        start: epoch seconds, inclusive.
        end: epoch seconds, exclusive.
        clock: time.

    Raises:
        CommandError: a query fails, takes too long, or the account runs as many as it may.
    """
    window = Window(start, end)
    asked = [_in(window, text) for text in (_OF_TENANTS, _OF_ENDPOINTS, _OF_ALL)]
    answers = run_queries(queries, asked, clock=clock, deadline=clock.monotonic() + _QUERY_SECONDS, at_once=_AT_ONCE)
    of_tenants, of_endpoints, of_all = (_answered(answer) for answer in answers)
    served: dict[str, dict[str, float]] = {}
    for row in of_endpoints.rows:
        served.setdefault(row["endpoint"], {})[row.get("tenant", "")] = _number(row.get("served_ms"))
    total = [_row(row) for row in of_all.rows] or [_row({})]
    return Requests(
        tuple(_row(row) for row in of_tenants.rows),
        total[0],
        served,
        sum(answer.scanned_bytes for answer in (of_tenants, of_endpoints, of_all)),
    )


def _in(window: Window, counted: str) -> Query:
    """Lines of requests that name a tenant, in the range to the millisecond; in applications' log groups there are others."""
    span = f"toMillis(@timestamp) >= {window.start * 1000} and toMillis(@timestamp) < {window.end * 1000}"
    return Query(f"filter {_REQUESTS} and {span} | {counted}", window.start, window.end)


def _answered(answer: QueryAnswer | Exception) -> QueryAnswer:
    if isinstance(answer, QueryAnswer):
        return answer
    if isinstance(answer, QueryFailedError):
        raise CommandError(f"Logs Insights gave no answer: {answer}")
    raise CommandError(f"Logs Insights takes no more queries at the moment: {answer}; try again in a minute")


def _row(row: Mapping[str, str]) -> TenantRequests:
    counts = [round(_number(row.get(name))) for name in ("requests", "failed", "cold", "bytes_in", "bytes_out")]
    requests, failed, cold, bytes_in, bytes_out = counts
    served_ms, p50_ms, p99_ms = (_number(row.get(name)) for name in ("served_ms", "p50_ms", "p99_ms"))
    return TenantRequests(row.get("tenant", ""), requests, failed, cold, bytes_in, bytes_out, served_ms, p50_ms, p99_ms)


def _number(value: str | None) -> float:
    return float(value) if value else 0.0


def merged(served: Mapping[str, Mapping[str, float]], endpoints: Sequence[str]) -> dict[str, float]:
    """Tenant -> milliseconds served by these endpoints together."""
    sums: dict[str, float] = {}
    for endpoint in endpoints:
        for tenant, milliseconds in served.get(endpoint, {}).items():
            sums[tenant] = sums.get(tenant, 0.0) + milliseconds
    return sums
