"""How heat is collected, as constructs set it and the collector reads it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from mme_facts.grammar import check_pool_name

__all__ = ["DEDICATED_POOL", "HeatRules"]

DEDICATED_POOL = "dedicated"
"""The name under which the heat of models with inference components of their own lies."""
_DAY_SECONDS = 86_400


@dataclass(frozen=True, slots=True)
class HeatRules:
    """What is counted where and when.

    Attributes:
        pools: pool -> its endpoints.
        window_seconds: length of a window: whole minutes that divide a day.
        delay_seconds: a window is counted so long after its end: log events take a while until queries find them.
        recount_seconds: and counted again so long after its end, for the lines that came late.
        catch_up_seconds: windows that end longer ago are not collected any more.
        windows_a_pass: windows that one pass of the collector counts, and counts again, at most.
        queries_at_once: queries that a pass runs at the same time, at most; the account shares its limit with all its users.

    Raises:
        ValueError: a number does not fit, a pool has no name or endpoint, or two pools share an endpoint.
    """

    pools: Mapping[str, tuple[str, ...]]
    window_seconds: int = 300
    delay_seconds: int = 120
    recount_seconds: int = 3600
    catch_up_seconds: int = _DAY_SECONDS
    windows_a_pass: int = 12
    queries_at_once: int = 3

    def __post_init__(self) -> None:
        if not self.pools:
            raise ValueError("pools is empty: name at least one pool and its endpoints")
        for pool, endpoints in self.pools.items():
            check_pool_name(pool)
            if not endpoints:
                raise ValueError(f"pool {pool!r} has no endpoint: name at least one")
        everyone = [endpoint for endpoints in self.pools.values() for endpoint in endpoints]
        if len(set(everyone)) < len(everyone):
            raise ValueError(f"two pools share an endpoint of {', '.join(everyone)}: an endpoint's requests belong to one pool")
        if self.window_seconds < 60 or self.window_seconds % 60 or _DAY_SECONDS % self.window_seconds:
            raise ValueError(f"window_seconds is {self.window_seconds}: use whole minutes that divide a day, such as 300")
        for name, least in (("delay_seconds", 0), ("recount_seconds", self.delay_seconds), ("catch_up_seconds", self.window_seconds)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}: use {least} or more")
        for name in ("windows_a_pass", "queries_at_once"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: use 1 or more")

    def pool_of(self, endpoint: str) -> str | None:
        """The pool that an endpoint belongs to."""
        return next((pool for pool, endpoints in self.pools.items() if endpoint in endpoints), None)

    def dump(self) -> str:
        """Render it as the value of an environment variable."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def load(cls, value: str) -> HeatRules:
        """Read what `dump` wrote; raises `ValueError` or `TypeError`."""
        document = json.loads(value)
        return cls(**{**document, "pools": {pool: tuple(endpoints) for pool, endpoints in document["pools"].items()}})
