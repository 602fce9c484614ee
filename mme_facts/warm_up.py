"""How fleets are warmed after they change, as constructs set it and the function reads it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from mme_facts.grammar import check_model_id, check_pool_name, check_tenant_id

__all__ = ["PREFETCH_WINDOW_SECONDS", "WarmUpEndpoint", "WarmUpRules", "WarmUpSettings", "check_keep_warm"]

PREFETCH_WINDOW_SECONDS = 60
"""Length of heat's windows with which prefetch is worth its calls: it predicts uses to the minute (``benchmarks/prefetch.py``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUpSettings:
    """How much a warm-up may do.

    Attributes:
        reserve_share: of the fleet's memory for models, what a warm-up leaves free, so that it evicts nothing that is in use; 0 to 0.9.
        traffic_share: calls of a warm-up as a share of users' requests, above 0 to 1.
        least_calls_per_second: calls that a warm-up may make however little traffic there is, above 0.
        in_flight_share: of the load slots of the new instances, what a warm-up uses at once; above 0 to 1. The rest is users'.
        seconds: after so long a warm-up ends, whatever is left; 10 to 3,600.

    Raises:
        ValueError: a number is out of its range.
    """

    reserve_share: float = 0.125
    traffic_share: float = 0.25
    least_calls_per_second: float = 20.0
    in_flight_share: float = 0.75
    seconds: float = 180.0

    def __post_init__(self) -> None:
        ranges = {"reserve_share": (0.0, 0.9), "seconds": (10.0, 3600.0)}
        for name, (least, most) in ranges.items():
            if not least <= getattr(self, name) <= most:
                raise ValueError(f"{name} is {getattr(self, name)}: use {least:g} to {most:g}")
        for name in ("traffic_share", "in_flight_share"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}: use a share above 0, at most 1")
        if not 0 < self.least_calls_per_second < float("inf"):
            raise ValueError(f"least_calls_per_second is {self.least_calls_per_second}: use a number above 0")


@dataclass(frozen=True, slots=True)
class WarmUpEndpoint:
    """One shared endpoint that is warmed.

    Attributes:
        pool: whose heat tells what is used.
        endpoint: the endpoint's name.
        variant: the production variant.
        memory_bytes: of one instance, for models.
        load_slots: loads that one instance does at once, as far as is known.

    Raises:
        ValueError: a number is below 1, a name is missing.
    """

    pool: str
    endpoint: str
    variant: str
    memory_bytes: int
    load_slots: int

    def __post_init__(self) -> None:
        check_pool_name(self.pool)
        for name in ("endpoint", "variant"):
            if not getattr(self, name):
                raise ValueError(f"{name} is empty: name it")
        for name in ("memory_bytes", "load_slots"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: use 1 or more")


@dataclass(frozen=True, slots=True)
class WarmUpRules:
    """What is warmed and how.

    Attributes:
        endpoints: the endpoints.
        settings: how much a warm-up may do.
        keep_warm: models, each ``<tenant>/<model>``, that are called now and then so that they stay loaded.
        prefetch: whether models with periodic use are warmed shortly before it.

    Raises:
        ValueError: there is no endpoint, one is named twice, or a model to keep warm is none.
    """

    endpoints: tuple[WarmUpEndpoint, ...]
    settings: WarmUpSettings = field(default_factory=WarmUpSettings)
    keep_warm: tuple[str, ...] = ()
    prefetch: bool = False

    def __post_init__(self) -> None:
        names = [each.endpoint for each in self.endpoints]
        if not names:
            raise ValueError("endpoints is empty: name at least one")
        if len(set(names)) < len(names):
            raise ValueError(f"an endpoint is named twice in {', '.join(names)}: name each once")
        check_keep_warm(self.keep_warm)

    def dump(self) -> str:
        """Render it as the value of an environment variable."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def load(cls, value: str) -> WarmUpRules:
        """Read what `dump` wrote; raises `ValueError`, `TypeError` or `KeyError` for anything else."""
        document: dict[str, Any] = json.loads(value)
        return cls(
            tuple(WarmUpEndpoint(**item) for item in document["endpoints"]),
            WarmUpSettings(**document["settings"]),
            tuple(document["keep_warm"]),
            bool(document["prefetch"]),
        )


def check_keep_warm(models: Sequence[str]) -> None:
    """Raise `ValueError` unless each is a ``<tenant>/<model>`` and named once."""
    for name in models:
        tenant, separator, model = name.partition("/")
        if not separator:
            raise ValueError(f"keep_warm has {name!r}: name each model <tenant>/<model>")
        check_tenant_id(tenant)
        check_model_id(model)
    if len(set(models)) < len(models):
        raise ValueError(f"keep_warm names a model twice: {', '.join(models)}")
