"""When scheduled actions run: ``at``, ``rate`` and ``cron`` expressions, in a time zone.

Sources: API reference of PutScheduledAction; Application Auto Scaling User Guide, "Schedule recurring scaling actions using cron
expressions": six fields, names of months and days, the wildcards ``, - * ? / L W #``.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

__all__ = ["Schedule", "ScheduleError", "parse_schedule"]

_EXPRESSION = re.compile(r"(at|rate|cron)\(([^()]+)\)")
_RATE = re.compile(r"([1-9][0-9]*) (minute|hour|day)(s?)")
_UNIT_SECONDS = {"minute": 60, "hour": 3600, "day": 86400}
_MONTHS = {name.upper(): number for number, name in enumerate(calendar.month_abbr) if name}
_DAYS = {name: number for number, name in enumerate(("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"), 1)}
_SATURDAY = 7
_HORIZON_DAYS = 366 * 9
"""How far ahead a cron expression is followed: the 29th of February may be eight years away."""

DayRule = Callable[[date], bool]


class ScheduleError(ValueError):
    """The text is no schedule; the message says why."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """When an action runs.

    Attributes:
        text: the expression.
        recurring: whether it may run more than once.
    """

    text: str
    recurring: bool
    _next: Callable[[float, float], float | None]

    def next_after(self, moment: float, *, since: float) -> float | None:
        """The first run after a moment, in epoch seconds; ``None`` when there is none.

        Args:
            moment: epoch seconds.
            since: when the action was made or starts, from which ``rate`` counts.
        """
        return self._next(moment, since)


def parse_schedule(text: str, timezone: str | None = None) -> Schedule:
    """Parse an expression.

    Args:
        text: ``at(yyyy-mm-ddThh:mm:ss)``, ``rate(5 minutes)`` or ``cron(fields)``.
        timezone: IANA name for ``at`` and ``cron``; UTC without one.

    Raises:
        ScheduleError: it is none, or the time zone is unknown.
    """
    match = _EXPRESSION.fullmatch(text)
    if match is None:
        raise ScheduleError(f"Schedule {text} is not an at, rate or cron expression.")
    try:
        zone = ZoneInfo(timezone or "UTC")
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ScheduleError(f"Timezone {timezone} is not a known time zone.") from None
    kind, inner = match.groups()
    if kind == "at":
        return _at(text, inner, zone)
    return _rate(text, inner) if kind == "rate" else _cron(text, inner, zone)


def _at(text: str, inner: str, zone: ZoneInfo) -> Schedule:
    try:
        moment = datetime.strptime(inner, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=zone).timestamp()
    except ValueError:
        raise ScheduleError(f"Schedule {text} must be at(yyyy-mm-ddThh:mm:ss).") from None
    return Schedule(text, recurring=False, _next=lambda after, _since: moment if moment > after else None)


def _rate(text: str, inner: str) -> Schedule:
    match = _RATE.fullmatch(inner)
    if match is None or (match[1] == "1") == bool(match[3]):
        raise ScheduleError(f"Schedule {text} must be rate(value unit), such as rate(1 hour) or rate(5 minutes).")
    seconds = int(match[1]) * _UNIT_SECONDS[match[2]]
    return Schedule(text, recurring=True, _next=lambda after, since: since + (max(0, (after - since) // seconds) + 1) * seconds)


def _cron(text: str, inner: str, zone: ZoneInfo) -> Schedule:
    fields = inner.upper().split()
    if len(fields) != 6:
        raise ScheduleError(f"Schedule {text} must have six fields: minutes, hours, day of month, month, day of week, year.")
    minutes_text, hours_text, days_text, months_text, weekdays_text, years_text = fields
    if (days_text == "?") == (weekdays_text == "?"):
        raise ScheduleError(f"Schedule {text} must have a question mark for either the day of month or the day of week.")
    try:
        minutes, hours = sorted(_numbers(minutes_text, 0, 59)), sorted(_numbers(hours_text, 0, 23))
        months, years = _numbers(months_text, 1, 12, _MONTHS), _numbers(years_text, 1970, 2199)
        on_day = _day_of_month(days_text) if weekdays_text == "?" else _day_of_week(weekdays_text)
    except (KeyError, ValueError) as error:
        raise ScheduleError(f"Schedule {text} cannot be read: {error} is not allowed.") from None
    times = [time(hour, minute) for hour in hours for minute in minutes]

    def following(after: float, _since: float) -> float | None:
        day = datetime.fromtimestamp(after, zone).date()
        for _ in range(_HORIZON_DAYS):
            if day.year in years and day.month in months and on_day(day):
                for moment in _moments(day, times, zone):
                    if moment > after:
                        return moment
            day += timedelta(days=1)
        return None

    return Schedule(text, recurring=True, _next=following)


def _moments(day: date, times: Iterable[time], zone: ZoneInfo) -> list[float]:
    """The moments of a day's local times; those that a change of the clocks leaves out are left out, doubled ones come once."""
    local = [datetime.combine(day, each, zone) for each in times]
    return sorted(
        each.timestamp() for each in local if each.astimezone(UTC).astimezone(zone).replace(tzinfo=None) == each.replace(tzinfo=None)
    )


def _numbers(field: str, low: int, high: int, names: Mapping[str, int] | None = None) -> frozenset[int]:
    """The numbers of a field without L, W and #."""

    def number(text: str) -> int:
        found = (names or {}).get(text)
        value = int(text) if found is None else found
        if not low <= value <= high:
            raise ValueError(text)
        return value

    found: set[int] = set()
    for part in field.split(","):
        span, slash, step_text = part.partition("/")
        step = int(step_text) if slash else 1
        if step < 1:
            raise ValueError(part)
        if span in ("*", "?"):
            begin, end = low, high
        elif "-" in span:
            begin, end = map(number, span.split("-"))
        else:
            begin = number(span)
            end = high if slash else begin
        if begin > end:
            raise ValueError(part)
        found.update(range(begin, end + 1, step))
    return frozenset(found)


def _day_of_month(field: str) -> DayRule:
    """``L`` is the last day, ``LW`` the last weekday, ``15W`` the weekday nearest to the 15th in the same month."""
    if field == "L":
        return lambda day: day.day == _last(day)
    if field == "LW":
        return lambda day: day.day == _nearest_weekday(day, _last(day))
    if field.endswith("W"):
        (wanted,) = _numbers(field[:-1], 1, 31)
        return lambda day: wanted <= _last(day) and day.day == _nearest_weekday(day, wanted)
    days = _numbers(field, 1, 31)
    return lambda day: day.day in days


def _day_of_week(field: str) -> DayRule:
    """``L`` is Saturday, ``6L`` the last Friday of the month, ``3#2`` its second Tuesday."""
    if field == "L":
        return lambda day: _weekday(day) == _SATURDAY
    if field.endswith("L"):
        (last,) = _numbers(field[:-1], 1, 7, _DAYS)
        return lambda day: _weekday(day) == last and day.day + 7 > _last(day)
    if "#" in field:
        weekday, _, count = field.partition("#")
        (wanted,), (nth,) = _numbers(weekday, 1, 7, _DAYS), _numbers(count, 1, 5)
        return lambda day: _weekday(day) == wanted and (day.day - 1) // 7 + 1 == nth
    weekdays = _numbers(field, 1, 7, _DAYS)
    return lambda day: _weekday(day) in weekdays


def _weekday(day: date) -> int:
    return day.isoweekday() % 7 + 1


def _last(day: date) -> int:
    return calendar.monthrange(day.year, day.month)[1]


def _nearest_weekday(day: date, wanted: int) -> int:
    weekday = date(day.year, day.month, wanted).isoweekday()
    if weekday == 6:
        return wanted - 1 if wanted > 1 else wanted + 2
    if weekday == 7:
        return wanted + 1 if wanted < _last(day) else wanted - 2
    return wanted
