"""When scheduled actions run: tables of cases with known answers."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from mme_local.autoscaling.schedules import ScheduleError, parse_schedule


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def runs(expression: str, after: str, timezone: str | None = None, *, count: int = 1, since: str = "2026-01-01T00:00:00"):
    schedule, moment, found = parse_schedule(expression, timezone), at(after), []
    for _ in range(count):
        following = schedule.next_after(moment, since=at(since))
        if following is None:
            break
        found.append(datetime.fromtimestamp(following, UTC).strftime("%Y-%m-%dT%H:%M:%S"))
        moment = following
    return found


@pytest.mark.parametrize(
    ("expression", "timezone", "after", "wanted"),
    [
        ("cron(0 7 * * ? *)", None, "2026-11-29T08:00:00", ["2026-11-30T07:00:00", "2026-12-01T07:00:00"]),
        ("cron(0/15 8 ? * MON-FRI *)", None, "2026-11-27T08:40:00", ["2026-11-27T08:45:00", "2026-11-30T08:00:00"]),
        ("cron(30 10,14 1 JAN,jul ? *)", None, "2026-03-01T00:00:00", ["2026-07-01T10:30:00", "2026-07-01T14:30:00"]),
        ("cron(0 0 L * ? *)", None, "2026-02-01T00:00:00", ["2026-02-28T00:00:00", "2026-03-31T00:00:00"]),
        ("cron(0 0 LW * ? *)", None, "2026-05-01T00:00:00", ["2026-05-29T00:00:00", "2026-06-30T00:00:00"]),
        ("cron(0 0 15W * ? *)", None, "2026-08-01T00:00:00", ["2026-08-14T00:00:00", "2026-09-15T00:00:00"]),
        ("cron(0 0 1W * ? *)", None, "2026-08-01T00:00:00", ["2026-08-03T00:00:00", "2026-09-01T00:00:00"]),
        ("cron(0 12 ? * 3#2 *)", None, "2026-11-01T00:00:00", ["2026-11-10T12:00:00", "2026-12-08T12:00:00"]),
        ("cron(0 12 ? * 6L *)", None, "2026-11-01T00:00:00", ["2026-11-27T12:00:00", "2026-12-25T12:00:00"]),
        ("cron(0 12 ? * L *)", None, "2026-11-29T00:00:00", ["2026-12-05T12:00:00", "2026-12-12T12:00:00"]),
        ("cron(0 0 29 2 ? *)", None, "2026-01-01T00:00:00", ["2028-02-29T00:00:00", "2032-02-29T00:00:00"]),
        ("cron(0 0 1 1 ? 2027)", None, "2026-11-29T00:00:00", ["2027-01-01T00:00:00"]),
        ("cron(0 9 * * ? *)", "Europe/Berlin", "2026-10-24T00:00:00", ["2026-10-24T07:00:00", "2026-10-25T08:00:00"]),
        ("cron(30 2 29 3 ? *)", "Europe/Berlin", "2026-03-01T00:00:00", ["2027-03-29T00:30:00", "2028-03-29T00:30:00"]),
        ("at(2026-12-01T17:00:00)", None, "2026-11-29T00:00:00", ["2026-12-01T17:00:00"]),
        ("at(2026-12-01T17:00:00)", "America/New_York", "2026-11-29T00:00:00", ["2026-12-01T22:00:00"]),
        ("at(2026-12-01T17:00:00)", None, "2026-12-01T17:00:00", []),
        ("rate(5 minutes)", None, "2026-01-01T00:07:00", ["2026-01-01T00:10:00", "2026-01-01T00:15:00"]),
        ("rate(1 hour)", None, "2026-01-01T00:00:00", ["2026-01-01T01:00:00", "2026-01-01T02:00:00"]),
        ("rate(2 days)", None, "2025-12-01T00:00:00", ["2026-01-03T00:00:00", "2026-01-05T00:00:00"]),
    ],
)
def test_the_next_runs(expression, timezone, after, wanted):
    assert runs(expression, after, timezone, count=2) == wanted


@pytest.mark.parametrize(
    ("expression", "timezone", "text"),
    [
        ("every morning", None, "not an at, rate or cron"),
        ("at(2026-12-01 17:00)", None, "yyyy-mm-ddThh:mm:ss"),
        ("rate(1 minutes)", None, "rate\\(value unit\\)"),
        ("rate(5 minute)", None, "rate\\(value unit\\)"),
        ("rate(0 hours)", None, "rate\\(value unit\\)"),
        ("cron(0 7 * * *)", None, "six fields"),
        ("cron(0 7 * * * *)", None, "question mark"),
        ("cron(0 7 ? * ? *)", None, "question mark"),
        ("cron(60 7 * * ? *)", None, "60 is not allowed"),
        ("cron(0 7 * FOO ? *)", None, "cannot be read"),
        ("cron(0 7 ? * 2#6 *)", None, "cannot be read"),
        ("cron(0/0 7 * * ? *)", None, "cannot be read"),
        ("cron(0 17-9 * * ? *)", None, "cannot be read"),
        ("cron(0 7 * * ? *)", "Mars/Olympus", "not a known time zone"),
        ("cron(0 7 * * ? *)", "../etc/passwd", "not a known time zone"),
    ],
)
def test_what_is_no_schedule_is_refused(expression, timezone, text):
    with pytest.raises(ScheduleError, match=text):
        parse_schedule(expression, timezone)
