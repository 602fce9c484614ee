"""M of N and missing data: AWS's own tables (user guide: Configuring how CloudWatch alarms treat missing data)."""

import pytest

from mme_local.cloudwatch.judgement import judge

KEEPS = None
TREATMENTS = ("missing", "ignore", "breaching", "notBreaching")
_MEANING = {"0": False, "X": True, "-": None}


def judged(points: str, treatment: str, *, needed: int) -> str | None:
    newest_first = [_MEANING[point] for point in reversed(points.split())]
    return judge(newest_first, evaluated=3, needed=needed, treatment=treatment).state


@pytest.mark.parametrize(
    ("points", "states"),
    [
        ("0 - X - X", ("OK", "OK", "OK", "OK")),
        ("0 - - - -", ("OK", "OK", "OK", "OK")),
        ("- - - - -", ("INSUFFICIENT_DATA", KEEPS, "ALARM", "OK")),
        ("0 X X - X", ("ALARM", "ALARM", "ALARM", "ALARM")),
        ("- - X - -", ("ALARM", KEEPS, "ALARM", "OK")),
    ],
)
def test_three_of_three(points, states):
    assert tuple(judged(points, treatment, needed=3) for treatment in TREATMENTS) == states


@pytest.mark.parametrize(
    ("points", "states"),
    [
        ("0 - X - X", ("ALARM", "ALARM", "ALARM", "ALARM")),
        ("0 0 X 0 X", ("ALARM", "ALARM", "ALARM", "ALARM")),
        ("0 - X - -", ("OK", "OK", "ALARM", "OK")),
        ("- - - - 0", ("OK", "OK", "ALARM", "OK")),
        ("- - - X -", ("ALARM", KEEPS, "ALARM", "OK")),
    ],
)
def test_two_of_three(points, states):
    assert tuple(judged(points, treatment, needed=2) for treatment in TREATMENTS) == states


@pytest.mark.parametrize("points", ["- - - - X", "- - - X -"])
def test_an_alarm_waits_for_the_next_point_before_it_goes_off_too_early(points):
    assert judged(points, "missing", needed=3) is KEEPS
    assert judged(points, "missing", needed=2) in (KEEPS, "ALARM")


def test_points_older_than_needed_do_not_count_when_newer_ones_are_there():
    assert judged("X X 0 0 0", "breaching", needed=1) == "OK"
