"""Splits what a fleet costs among those who used it, exactly: the shares add up to the cost, to the last unit.

Method: half of an endpoint's cost is for the memory that models take, by byte-seconds resident; half for the time that its instances serve,
by milliseconds of answered attempts. A half that nobody used goes with the other; what nobody used at all stays nobody's. Idle capacity is
split with the rest: it is there for those who use the endpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

__all__ = ["MEMORY_SHARE", "Share", "Split", "Use", "divide", "split"]

MEMORY_SHARE = Fraction(1, 2)
"""Of an endpoint's cost, what goes by memory: that is scarce in a multi-model endpoint that idles, and time is in one that does not."""


@dataclass(frozen=True, slots=True)
class Use:
    """One endpoint's cost, and who used it.

    Attributes:
        cost: in the smallest units of whatever is split.
        byte_seconds: who -> bytes resident times seconds, none below 0.
        served_ms: who -> milliseconds served, none below 0.
    """

    cost: int
    byte_seconds: Mapping[str, float]
    served_ms: Mapping[str, float]

    def __post_init__(self) -> None:
        if self.cost < 0:
            raise ValueError(f"cost is {self.cost}: it must not be below 0")
        for name in ("byte_seconds", "served_ms"):
            for who, weight in getattr(self, name).items():
                if not 0 <= weight < float("inf"):
                    raise ValueError(f"{name} of {who!r} is {weight}: it must be 0 or more")


@dataclass(frozen=True, slots=True)
class Share:
    """One user's part, in the units of the cost.

    Attributes:
        memory: for byte-seconds resident.
        time: for milliseconds served.
    """

    memory: int = 0
    time: int = 0

    @property
    def cost(self) -> int:
        """Both."""
        return self.memory + self.time


@dataclass(frozen=True, slots=True)
class Split:
    """Who bears what.

    Attributes:
        shares: who -> part.
        unused: the cost of endpoints that nobody used.
    """

    shares: Mapping[str, Share]
    unused: int

    @property
    def cost(self) -> int:
        """The whole cost, as it was given."""
        return sum(share.cost for share in self.shares.values()) + self.unused


def divide(cost: int, weights: Mapping[str, float]) -> dict[str, int]:
    """Divide a cost in proportion to weights, in whole units that add up to it: the greatest remainders get what rounding leaves.

    Args:
        cost: to divide, 0 or more.
        weights: who -> weight, 0 or more; one must be above 0.
    """
    exact = {who: Fraction(weight) for who, weight in weights.items()}
    total = sum(exact.values())
    parts = {who: cost * weight / total for who, weight in exact.items()}
    whole = {who: int(part) for who, part in parts.items()}
    left = cost - sum(whole.values())
    for who in sorted(parts, key=lambda who: (whole[who] - parts[who], who))[:left]:
        whole[who] += 1
    return whole


def split(uses: Iterable[Use], *, memory_share: Fraction = MEMORY_SHARE) -> Split:
    """Split the cost of endpoints.

    Args:
        uses: the endpoints.
        memory_share: what goes by memory, 0 to 1; the rest goes by time.
    """
    memory: dict[str, int] = {}
    time: dict[str, int] = {}
    unused = 0
    for use in uses:
        for_memory = int(use.cost * memory_share)
        halves = [(for_memory, use.byte_seconds, memory), (use.cost - for_memory, use.served_ms, time)]
        used = [(weights, parts) for _cost, weights, parts in halves if any(weights.values())]
        if not used:
            unused += use.cost
            continue
        costs = [cost for cost, *_ in halves] if len(used) == 2 else [use.cost]
        for cost, (weights, parts) in zip(costs, used, strict=True):
            for who, part in divide(cost, weights).items():
                parts[who] = parts.get(who, 0) + part
    shares = {who: Share(memory.get(who, 0), time.get(who, 0)) for who in dict.fromkeys((*memory, *time))}
    return Split(shares, unused)
