"""What the invocation path tells of each request, as an operator sets it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mme_constructs.errors import TelemetryError, TenantError
from mme_facts.grammar import GrammarError, check_tenant_id
from mme_facts.telemetry import MOST_TENANTS, LineSettings

__all__ = ["TelemetrySettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetrySettings:
    """Of the one log line that every invocation writes. Metrics and heat are made of all lines, whatever is set here.

    Attributes:
        tenants: ids of tenants that have metrics of their own, under the dimensions endpoint and tenant; at most 50, each with about ten
            metrics for each endpoint that it calls, billed as custom metrics. Default: none.
        access_share: the share of requests, 0 to 1, whose line tells caller, request id and trace ids. Errors, cold requests, slow ones
            and those of a trace that is sampled always do. Default: all.
        slow_ms: from how many milliseconds on a request is slow. Default 1,000.

    Raises:
        TenantError: a tenant is outside the grammar.
        TelemetryError: there are too many tenants, one twice, or a number is out of range.
    """

    tenants: Sequence[str] = ()
    access_share: float = 1.0
    slow_ms: float = 1000.0

    def __post_init__(self) -> None:
        for tenant in self.tenants:
            try:
                check_tenant_id(tenant)
            except GrammarError as error:
                raise TenantError(
                    "There can be no metrics of this tenant", value=tenant, allowed=error.allowed, fix="Pass the tenant's id"
                ) from error
        try:
            self.of_line()
        except ValueError as error:
            raise TelemetryError(
                "The log line of invocations cannot be written so",
                value=str(error),
                allowed=f"up to {MOST_TENANTS} different tenants, a share from 0 to 1, milliseconds above 0",
                fix="Correct the setting",
            ) from error

    def of_line(self) -> LineSettings:
        """The same as the function reads it."""
        return LineSettings(tuple(self.tenants), self.access_share, self.slow_ms)
