"""How long artifacts of retired versions are kept: what `TenantApi` promises and `Sweeper` keeps to."""

from __future__ import annotations

from mme_constructs.errors import RetentionError

__all__ = ["check_retired_days"]

_MAX_RETIRED_DAYS = 3650


def check_retired_days(days: int) -> int:
    """The days as they are; raises `RetentionError` unless they are 1 to 3,650."""
    if not 1 <= days <= _MAX_RETIRED_DAYS:
        raise RetentionError(
            "Artifacts of retired versions must be kept for a while, and not for ever",
            value=days,
            allowed=f"1 to {_MAX_RETIRED_DAYS} days",
            fix="Set retired_days, such as 7",
        )
    return days
