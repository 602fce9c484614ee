"""The metric store."""

import threading

import pytest

from mme_local.cloudwatch.store import Metric, MetricStore

OURS = {"EndpointName": "ours", "VariantName": "AllTraffic"}


@pytest.fixture
def store():
    return MetricStore(lambda: 1_800_000_000.0)


def read(store, dimensions=OURS, *, period=60, start=0, end=600, unit=None, statistics=("Sum",)):
    return store.statistics("N", "m", dimensions, start=start, end=end, period=period, statistics=statistics, unit=unit)


def test_points_of_a_period_become_one_datapoint(store):
    store.put("N", "m", OURS, [1.0, 2.0], unit="Count", timestamp=61.5)
    store.put("N", "m", dict(reversed(OURS.items())), [3.0], unit="Count", timestamp=119.0)
    store.put("N", "m", OURS, [5.0], unit="Count", timestamp=120.0)
    assert [(point.timestamp, point.unit, point.values) for point in read(store)] == [
        (60, "Count", {"Sum": 6.0}),
        (120, "Count", {"Sum": 5.0}),
    ]
    assert [point.values["Sum"] for point in read(store, period=300)] == [11.0]


@pytest.mark.parametrize("dimensions", [{}, {"EndpointName": "ours"}, {**OURS, "EndpointName": "another"}, {**OURS, "More": "1"}])
def test_a_metric_is_read_by_all_of_its_dimensions_only(store, dimensions):
    store.put("N", "m", OURS, [1.0], timestamp=60.0)
    assert read(store, dimensions) == []


def test_units_are_kept_apart(store):
    store.put("N", "m", OURS, [1.0], unit="Seconds", timestamp=60.0)
    store.put("N", "m", OURS, [1000.0], unit="Milliseconds", timestamp=60.0)
    assert {point.unit: point.values["Sum"] for point in read(store)} == {"Seconds": 1.0, "Milliseconds": 1000.0}
    assert [point.values["Sum"] for point in read(store, unit="Seconds")] == [1.0]
    assert read(store, unit="Bytes") == []


def test_periods_begin_at_the_start_and_its_end_is_exclusive(store):
    for minute in range(10):
        store.put("N", "m", OURS, [1.0], timestamp=60.0 * minute)
    assert [(point.timestamp, point.values["Sum"]) for point in read(store, start=60, end=360, period=120)] == [
        (60, 2.0),
        (180, 2.0),
        (300, 1.0),
    ]


def test_seconds_are_kept_with_resolution_one_only(store):
    store.put("N", "m", OURS, [1.0], timestamp=75.0, resolution=1)
    store.put("N", "m", OURS, [2.0], timestamp=75.0)
    assert [(point.timestamp, point.values["Sum"]) for point in read(store, period=10)] == [(60, 2.0), (70, 1.0)]


def test_counts_must_fit_and_numbers_must_be_finite(store):
    with pytest.raises(ValueError, match="2 values of m have 1 counts"):
        store.put("N", "m", OURS, [1.0, 2.0], timestamp=60.0, counts=[1.0])
    with pytest.raises(ValueError, match="not all finite"):
        store.put("N", "m", OURS, [float("nan")], timestamp=60.0)
    assert store.metrics() == []


def test_an_unknown_statistic_is_refused(store):
    with pytest.raises(ValueError, match="'Mean' is no statistic"):
        read(store, statistics=("Mean",))


def test_points_are_forgotten_after_fifteen_days():
    now = [0.0]
    store = MetricStore(lambda: now[0])
    store.put("N", "m", OURS, [1.0], timestamp=0.0)
    now[0] = 16 * 86400.0
    store.put("N", "another", OURS, [1.0], timestamp=now[0])
    assert read(store) == []
    assert [metric.name for metric in store.metrics()] == ["another"]


def test_metrics_are_listed_by_when_they_had_data(store):
    store.put("N", "old", {}, [1.0], timestamp=0.0)
    store.put("N", "new", {}, [1.0], timestamp=600.0)
    assert store.metrics() == [Metric("N", "new"), Metric("N", "old")]
    assert store.metrics(since=300.0) == [Metric("N", "new")]


def test_threads_may_put_at_once(store):
    def put() -> None:
        for _ in range(500):
            store.put("N", "m", OURS, [1.0], timestamp=60.0)

    threads = [threading.Thread(target=put) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [point.values["Sum"] for point in read(store)] == [2000.0]
