"""Whether an alarm is in ALARM: M of N and missing data (user guide: Configuring how CloudWatch alarms treat missing data).

An alarm looks at more periods than it evaluates: with missing points among them, older real points are used first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["EXTRA_PERIODS", "Judgement", "State", "Treatment", "judge"]

State = Literal["OK", "ALARM", "INSUFFICIENT_DATA"]
Treatment = Literal["missing", "ignore", "breaching", "notBreaching"]

EXTRA_PERIODS = 2
"""How many more periods than it evaluates an alarm looks at. AWS gives no number but for its examples, where it is 2."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the points of an evaluation range mean.

    Attributes:
        state: the alarm's new state; None keeps the current one.
        used: ages of the points that decided, newest first; 0 is the newest period.
        filled: how many missing points were filled in as the alarm says.
    """

    state: State | None
    used: tuple[int, ...] = ()
    filled: int = 0


def judge(breaching: Sequence[bool | None], *, evaluated: int, needed: int, treatment: Treatment) -> Judgement:
    """Judge an evaluation range.

    Args:
        breaching: for each period, newest first, whether its datapoint breaches the threshold; None where there is none.
        evaluated: N, how many points are evaluated.
        needed: M, how many of them must breach.
        treatment: what missing points count as.
    """
    real = [age for age, breach in enumerate(breaching) if breach is not None]
    if not real:
        return Judgement(_without_data(treatment), filled=evaluated)
    used = tuple(real[:evaluated])
    bad = sum(breaching[age] is True for age in used)
    missing = evaluated - len(used)
    if bad >= needed:
        return Judgement("ALARM", used, 0 if treatment in ("missing", "ignore") else missing)
    if not missing or treatment == "notBreaching":
        return Judgement("OK", used, missing)
    if treatment == "breaching":
        return Judgement("ALARM" if bad + missing >= needed else "OK", used, missing)
    if bad < len(used):
        return Judgement("OK", used)
    # Only breaching points, but fewer than needed: the oldest of them must be old enough, else the next point may still be good.
    if treatment == "missing" and used[-1] + 1 >= needed:
        return Judgement("ALARM", used)
    return Judgement(None, used)


def _without_data(treatment: Treatment) -> State | None:
    match treatment:
        case "missing":
            return "INSUFFICIENT_DATA"
        case "ignore":
            return None
        case "breaching":
            return "ALARM"
        case "notBreaching":
            return "OK"
