"""Metric math, with answers known beforehand."""

import pytest

from mme_local.cloudwatch.queries import MATH_FUNCTIONS, parse_queries
from mme_local.cloudwatch.store import MetricStore
from mme_local.wire import ValidationError

MINUTES = 5
A = {0: 1.0, 1: 2.0, 2: 4.0, 4: -8.0}  # minute 3 is missing
B = {0: 10.0, 2: 0.0, 3: 5.0, 4: 2.0}


def metric(name, *, period=60, returned=False, statistic="Sum"):
    stat = {"Metric": {"Namespace": "N", "MetricName": name}, "Period": period, "Stat": statistic}
    return {"Id": name, "MetricStat": stat, "ReturnData": returned}


@pytest.fixture
def store():
    made = MetricStore(lambda: 0.0)
    for name, points in (("a", A), ("b", B)):
        for minute, value in points.items():
            made.put("N", name, {}, [value], timestamp=60.0 * minute)
    return made


def results(store, expression, *more, period=60):
    queries = parse_queries([metric("a", period=period), metric("b", period=period), *more, {"Id": "e", "Expression": expression}])
    return [{moment / 60: value for moment, value in series.ordered()} for series in queries.evaluate(store, 0.0, 60.0 * MINUTES)["e"]]


@pytest.mark.parametrize(
    ("expression", "points"),
    [
        ("a", A),
        ("a + b", {0: 11, 2: 4, 4: -6}),
        ("a / b", {0: 0.1, 4: -4}),
        ("2 * a - 1", {0: 1, 1: 3, 2: 7, 4: -17}),
        ("-a ^ 2", {0: -1, 1: -4, 2: -16, 4: -64}),
        ("(-a) ^ 2", {0: 1, 1: 4, 2: 16, 4: 64}),
        ("2 ^ 3 ^ 2 + 0 * a", dict.fromkeys(A, 512)),
        ("1e3 * a", {0: 1e3, 1: 2e3, 2: 4e3, 4: -8e3}),
        ("(-8 + 0 * a) ^ 0.5", {}),
        ("a > 1 && b < 5", {0: 0, 2: 1, 4: 0}),
        ("a > 1 AND b < 5 OR a == 1", {0: 1, 2: 1, 4: 0}),
        ("a != 2", {0: 1, 1: 0, 2: 1, 4: 1}),
        ("a >= 2", {0: 0, 1: 1, 2: 1, 4: 0}),
        ("a <= 2 || b == 0", {0: 1, 2: 1, 4: 1}),
        ("ABS(a)", {0: 1, 1: 2, 2: 4, 4: 8}),
        ("CEIL(a / 3)", {0: 1, 1: 1, 2: 2, 4: -2}),
        ("FLOOR(a / 3)", {0: 0, 1: 0, 2: 1, 4: -3}),
        ("LOG10(b)", {0: 1, 3: 0.6989700043, 4: 0.3010299957}),
        ("LOG(a * 0 + 1)", dict.fromkeys(A, 0)),
        ("DIFF(a)", {1: 1, 2: 2, 4: -12}),
        ("DIFF_TIME(a)", {1: 60, 2: 60, 4: 120}),
        ("RATE(a)", {1: 1 / 60, 2: 2 / 60, 4: -12 / 120}),
        ("RUNNING_SUM(a)", {0: 1, 1: 3, 2: 7, 4: -1}),
        ("FILL(a, 0)", {**A, 3: 0}),
        ("FILL(a, REPEAT)", {**A, 3: 4}),
        ("FILL(a, LINEAR)", {**A, 3: -2}),
        ("FILL(a, b)", {**A, 3: 5}),
        ("FILL(b * 0 / 0, 7)", dict.fromkeys(range(MINUTES), 7)),
        ("SUM([a, b])", {0: 11, 1: 2, 2: 4, 3: 5, 4: -6}),
        ("SUM(METRICS())", {0: 11, 1: 2, 2: 4, 3: 5, 4: -6}),
        ("AVG(METRICS())", {0: 5.5, 1: 2, 2: 2, 3: 5, 4: -3}),
        ('MAX(METRICS("a"))', A),
        ("MIN([a, b])", {0: 1, 1: 2, 2: 0, 3: 5, 4: -8}),
        ("STDDEV([a, b])", {0: 4.5, 1: 0, 2: 2, 3: 0, 4: 5}),
        ("a - AVG(a)", {0: 1.25, 1: 2.25, 2: 4.25, 4: -7.75}),
        ("a * 0 + SUM(a)", dict.fromkeys(A, -1)),
        ("a * 0 + MAX(b) - MIN(b)", dict.fromkeys(A, 10)),
        ("a * 0 + PERIOD(a)", dict.fromkeys(A, 60)),
        ("a / PERIOD(b)", {minute: value / 60 for minute, value in A.items()}),
        ("a * 0 + DATAPOINT_COUNT(a)", dict.fromkeys(A, 4)),
        ("a * 0 + METRIC_COUNT(METRICS())", dict.fromkeys(A, 2)),
        ("FIRST([b, a])", B),
        ("LAST([b, a])", A),
        ("TIME_SERIES(3)", dict.fromkeys(range(MINUTES), 3)),
        ("IF(a > 1, a, 0)", {0: 0, 1: 2, 2: 4, 4: 0}),
        ("IF(a > 1, b, 1)", {0: 1, 2: 0, 4: 1}),
        ("IF(a > 1, a)", {1: 2, 2: 4}),
        ("IF(b >= 5, 100 * a / b, 0)", {0: 10, 2: 0, 4: 0}),
        ("IF(SUM(a) < 0, a, b)", A),
        ("IF(SUM(a) > 0, a, b)", B),
        ("IF(SUM(a) > 0, a)", {}),
        ("if(a > 1, a)", {1: 2, 2: 4}),
        ("IF(SUM(a) > 0, a, 5)", dict.fromkeys(range(MINUTES), 5)),
        ("SUM(REMOVE_EMPTY([a, IF(a > 100, a)]))", A),
        ("SUM(REMOVE_EMPTY([IF(a > 100, a)])) + b", {}),
        ("FIRST(REMOVE_EMPTY([IF(a > 100, a)]))", {}),
    ],
)
def test_an_expression_has_the_known_answer(store, expression, points):
    (answer,) = results(store, expression)
    assert answer == pytest.approx(points)


def test_arrays_stay_arrays(store):
    assert results(store, "METRICS() * 2") == [{minute: 2 * value for minute, value in points.items()} for points in (A, B)]
    assert results(store, "REMOVE_EMPTY([a, IF(a > 100, a)])") == [A]
    assert results(store, "10 - [a]") == [{minute: 10 - value for minute, value in A.items()}]


def test_expressions_use_expressions(store):
    (answer,) = results(store, "half * 2", {"Id": "half", "Expression": "a / 2", "ReturnData": False})
    assert answer == A


def test_longer_periods_aggregate_before_the_math(store):
    (answer,) = results(store, "a", period=120)
    assert answer == {0: 3.0, 2: 4.0, 4: -8.0}


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("c + 1", "c is neither the id of a query"),
        ("a +", "it ends too early"),
        ("a b", "'b' is not expected there"),
        ("(a", "closing bracket"),
        ("[a", "missing"),
        ("a $ b", "nothing that metric math knows"),
        ("e + 1", "needs its own result"),
        ("SUM(a, b)", "SUM takes 1 arguments, not 2"),
        ("IF(a)", "IF takes 2 or 3 arguments"),
        ("IF(METRICS(), 1, 2)", "no arrays"),
        ("METRICS() + METRICS()", "one array, not two"),
        ("[1, 2]", "no numbers"),
        ("SUM(a)", "its result is a number"),
        ("5", "its result is a number"),
        ("RATE(SUM(a))", "RATE takes a time series, not a number"),
        ("FILL(a)", "FILL takes 2 arguments"),
        ("FILL(a, METRICS())", "as its second argument"),
        ("PERIOD(half)", "PERIOD takes a metric"),
        ('SUM(METRICS("zzz"))', "no metric whose id contains 'zzz'"),
        ("METRICS(a)", "METRICS takes nothing or one text"),
        ("METRIC_COUNT(a)", "takes an array"),
        ("SEARCH(' {N} ', 'Sum', 60)", "SEARCH is not a function"),
        ("ANOMALY_DETECTION_BAND(a)", "ANOMALY_DETECTION_BAND is not a function that the local cloud has"),
        ("SERVICE_QUOTA(a)", "is not a function"),
        ("SELECT AVG(x) FROM N", "Metrics Insights"),
        ("'text'", "is not expected there"),
        ("(" * 200 + "a" + ")" * 200, "nests deeper"),
        ("-" * 200 + "a", "nests deeper"),
    ],
)
def test_what_cannot_be_evaluated_is_refused(store, expression, message):
    with pytest.raises(ValidationError, match=message):
        results(store, expression, {"Id": "half", "Expression": "a / 2", "ReturnData": False})


def test_metrics_of_different_periods_are_refused_in_one_expression():
    with pytest.raises(ValidationError, match="must have one period"):
        parse_queries([metric("a"), metric("b", period=300), {"Id": "e", "Expression": "a + b"}])


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"Id": "Upper", "Expression": "1"}, "lower-case letter"),
        ({"Id": "x"}, "exactly one of MetricStat and Expression"),
        ({**metric("x"), "Expression": "1"}, "exactly one of MetricStat and Expression"),
        ({**metric("x"), "AccountId": "1"}, "one account only"),
        ({**metric("x"), "Period": 60}, "its Period belongs there"),
        (metric("x", period=45), "Period 45"),
        (metric("x", statistic="Mean"), "Stat of query x is not supported"),
        ({"Id": "x", "MetricStat": {"Metric": {"Namespace": "N"}, "Period": 60, "Stat": "Sum"}}, "needs Namespace and MetricName"),
    ],
)
def test_a_query_is_checked(query, message):
    with pytest.raises(ValidationError, match=message):
        parse_queries([query])


def test_an_id_is_used_once():
    with pytest.raises(ValidationError, match="used by two queries"):
        parse_queries([metric("a"), metric("a")])


def test_the_functions_are_told():
    assert {"IF", "FILL", "METRICS", "RATE", "PERIOD"} <= set(MATH_FUNCTIONS)
