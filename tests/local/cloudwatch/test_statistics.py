"""Statistics of samples, with answers known beforehand."""

import pytest

from mme_local.cloudwatch.statistics import Samples, parse_statistic


def samples(*values: float) -> Samples:
    made = Samples()
    for value in values:
        made.add(value)
    return made


ONE_TO_TEN = samples(*map(float, range(1, 11)))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SampleCount", 10.0),
        ("Sum", 55.0),
        ("Average", 5.5),
        ("Minimum", 1.0),
        ("Maximum", 10.0),
        ("p0", 1.0),
        ("p50", 5.5),
        ("p90", 9.1),
        ("p99.5", 9.955),
        ("p100", 10.0),
        ("tm90", 5.0),
        ("TM(10%:90%)", 5.5),
        ("TM(2:4)", 3.5),
        ("tc90", 9.0),
        ("TC(2:4)", 2.0),
        ("ts90", 45.0),
        ("TS(80%:100%)", 19.0),
        ("wm90", 5.4),
        ("WM(10%:90%)", 5.5),
        ("PR(:3)", 30.0),
        ("PR(8:)", 20.0),
        ("IQM", 5.5),
    ],
)
def test_a_statistic_of_one_to_ten(name, value):
    assert parse_statistic(name).of(ONE_TO_TEN) == pytest.approx(value)


@pytest.mark.parametrize(
    "name", ["average", "Mean", "p101", "p", "TM(90%:10%)", "TM(:)", "TM(1:10%)", "PR(1%:2%)", "tm", "TM(1.2.3:4)", ""]
)
def test_what_is_no_statistic_is_refused(name):
    with pytest.raises(ValueError, match="is no statistic"):
        parse_statistic(name)


def test_counts_weigh_values():
    made = Samples()
    made.add(1.0, 99.0)
    made.add(100.0, 1.0)
    assert parse_statistic("p50").of(made) == 1.0
    assert parse_statistic("Average").of(made) == pytest.approx(1.99)
    assert parse_statistic("p99.9").of(made) > 90


def test_negative_values_have_no_percentiles():
    made = samples(-1.0, 2.0)
    assert parse_statistic("p50").of(made) is None
    assert parse_statistic("tm90").of(made) is None
    assert parse_statistic("Sum").of(made) == 1.0


def test_a_statistic_set_hides_its_values_unless_they_are_all_the_same():
    hidden, same = samples(1.0), samples(1.0)
    hidden.add_set(count=2.0, total=6.0, low=2.0, high=4.0)
    same.add_set(count=3.0, total=6.0, low=2.0, high=2.0)
    assert parse_statistic("p50").of(hidden) is None
    assert [parse_statistic(name).of(hidden) for name in ("SampleCount", "Sum", "Minimum", "Maximum")] == [3.0, 7.0, 1.0, 4.0]
    assert parse_statistic("p50").of(same) == 2.0


def test_no_samples_have_no_statistics():
    assert parse_statistic("SampleCount").of(Samples()) is None


def test_merged_samples_are_those_of_both():
    merged = samples(1.0, 2.0)
    merged.merge(samples(2.0, 9.0))
    assert merged.weights == {1.0: 1.0, 2.0: 2.0, 9.0: 1.0}
    hidden = Samples()
    hidden.add_set(count=2.0, total=6.0, low=2.0, high=4.0)
    merged.merge(hidden)
    assert merged.weights is None
    assert (merged.count, merged.total, merged.low, merged.high) == (6.0, 20.0, 1.0, 9.0)
