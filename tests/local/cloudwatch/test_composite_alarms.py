"""Composite alarms and alarms on metric math."""

import pytest

from mme_local.cloudwatch.rules import RuleError, parse_rule
from mme_local.wire import AwsError

SUPPRESSOR = {"ActionsSuppressor": "maintenance", "ActionsSuppressorWaitPeriod": 60, "ActionsSuppressorExtensionPeriod": 120}


def composite(rule, **members):
    return {"AlarmName": "all", "AlarmRule": rule, "AlarmActions": ["arn:aws:sns:us-east-1:000000000000:all"], **members}


@pytest.fixture
def pair(watch):
    """Two metric alarms, ``errors`` and ``latency``, that are OK."""
    watch.alarms.put(watch.alarm())
    watch.alarms.put(watch.alarm(AlarmName="latency", MetricName="Latency"))
    for name in ("errors", "latency"):
        watch.alarms.set_state(name, "OK", "to begin with")
    watch.done.clear()
    return watch


@pytest.mark.parametrize(
    ("rule", "holds"),
    [
        ("ALARM(a)", True),
        ('ALARM("a")', True),
        ("ALARM(arn:aws:cloudwatch:us-east-1:000000000000:alarm:a)", True),
        ("OK(a)", False),
        ("INSUFFICIENT_DATA(nobody)", True),
        ("NOT ALARM(a) OR OK(b)", True),
        ("NOT (ALARM(a) OR OK(b))", False),
        ("TRUE OR FALSE AND FALSE", True),
        ("NOT TRUE OR TRUE", True),
        ("NOT NOT TRUE", True),
        ("(ALARM(a)AND OK(b))AND(NOT FALSE)", True),
        (' ALARM ( "a" ) ', True),
        ('ALARM("with (brackets) and \\"quotes\\"")', True),
    ],
)
def test_a_rule_has_the_known_answer(rule, holds):
    states = {"a": "ALARM", "b": "OK", 'with (brackets) and "quotes"': "ALARM"}
    assert parse_rule(rule).holds(lambda name: states.get(name, "INSUFFICIENT_DATA")) is holds


@pytest.mark.parametrize(
    "rule",
    [
        "",
        "ALARM",
        "ALARM()",
        "ALARM(a",
        "ALARM(a) OK(b)",
        "AND TRUE",
        "TRUE AND",
        "(TRUE",
        "TRUE)",
        "true",
        "a",
        "AT_LEAST(1, ALARM, (a, b))",
        "ALARM(a) XOR TRUE",
        "(" * 200 + "TRUE" + ")" * 200,
        "NOT " * 200 + "TRUE",
        "ALARM(arn:aws:cloudwatch:us-east-1:0:alarm:)",
    ],
)
def test_what_is_no_rule_is_refused(rule):
    with pytest.raises(RuleError):
        parse_rule(rule)


def test_a_composite_alarm_follows_its_children_at_once(pair):
    alarm = pair.alarms.put_composite(composite("ALARM(errors) AND NOT ALARM(latency)"))
    assert alarm.state == "OK"
    pair.alarms.set_state("errors", "ALARM", "x")
    assert alarm.state == "ALARM"
    assert alarm.reason.startswith("arn:aws:cloudwatch:us-east-1:000000000000:alarm:errors transitioned to ALARM at ")
    assert [child["arn"].rpartition(":")[2] for child in alarm.data["triggeringAlarms"]] == ["errors", "latency"]
    pair.alarms.set_state("latency", "ALARM", "x")
    assert alarm.state == "OK"
    assert [name for _, name, _ in pair.done] == ["errors", "all", "latency"]


def test_composite_alarms_follow_composite_alarms(pair):
    pair.alarms.put_composite(composite("ALARM(errors)", AlarmName="inner"))
    outer = pair.alarms.put_composite(composite("NOT OK(inner)", AlarmName="outer"))
    pair.alarms.set_state("errors", "ALARM", "x")
    assert outer.state == "ALARM"


def test_a_circle_of_composite_alarms_ends(pair):
    first = pair.alarms.put_composite(composite("ALARM(errors)", AlarmName="first"))
    second = pair.alarms.put_composite(composite("ALARM(first)", AlarmName="second"))
    pair.alarms.put_composite(composite("ALARM(errors) OR ALARM(second)", AlarmName="first"))
    pair.alarms.set_state("errors", "ALARM", "x")
    assert (first.state, second.state) == ("ALARM", "ALARM")
    pair.alarms.set_state("errors", "OK", "x")
    assert (first.state, second.state) == ("ALARM", "ALARM")  # each holds the other: as on AWS


def test_an_alarm_that_a_composite_alarm_needs_is_not_deleted(pair):
    pair.alarms.put_composite(composite("ALARM(errors)"))
    with pytest.raises(AwsError, match="Cannot delete errors as there are composite alarm"):
        pair.alarms.delete(["latency", "errors"])
    assert "latency" in pair.alarms.by_name
    pair.alarms.delete(["all"])
    pair.alarms.delete(["errors"])


def test_only_one_composite_alarm_is_deleted_at_a_time(pair):
    for name in ("one", "two"):
        pair.alarms.put_composite(composite("ALARM(errors)", AlarmName=name))
    with pytest.raises(AwsError, match=r"Cannot delete \[2\] Composite Alarms"):
        pair.alarms.delete(["one", "two"])


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"AlarmRule": "ALARM(nobody)"}, r"alarms \['nobody'\] in the alarm rule do not exist"),
        ({"AlarmRule": "ALARM(errors) XOR TRUE"}, "AlarmRule must be a valid expression"),
        ({"ActionsSuppressor": "latency"}, "must be given together"),
        ({"ActionsSuppressorWaitPeriod": 10}, "must be given together"),
        ({**SUPPRESSOR, "ActionsSuppressor": "nobody"}, "do not exist"),
        ({**SUPPRESSOR, "ActionsSuppressor": "latency", "ActionsSuppressorWaitPeriod": -1}, "must not be negative"),
        ({"AlarmActions": ["arn:aws:autoscaling:us-east-1:0:scalingPolicy:1"]}, "is not an action"),
        ({"AlarmName": "latency"}, "another type"),
    ],
)
def test_what_cannot_be_followed_is_refused(pair, members, message):
    with pytest.raises(AwsError, match=message):
        pair.alarms.put_composite(composite("ALARM(errors)") | members)
    assert set(pair.alarms.by_name) == {"errors", "latency"}


@pytest.fixture
def suppressed(pair):
    pair.alarms.put(pair.alarm(AlarmName="maintenance", MetricName="Maintenance", TreatMissingData="ignore", AlarmActions=[], OKActions=[]))
    pair.alarms.put(pair.alarm(TreatMissingData="ignore", AlarmActions=[], OKActions=[]))
    pair.alarms.set_state("maintenance", "OK", "x")
    pair.alarms.put_composite(composite("ALARM(errors)", **SUPPRESSOR))
    pair.done.clear()
    return pair


def test_actions_wait_for_the_suppressor_and_are_taken_then(suppressed):
    suppressed.alarms.set_state("errors", "ALARM", "x")
    assert (suppressed.state("all"), suppressed.done) == ("ALARM", [])
    (document,) = suppressed.alarms.describe(kinds=["CompositeAlarm"])
    assert document["ActionsSuppressedBy"] == "WaitPeriod"
    suppressed.minute()
    assert [name for _, name, _ in suppressed.done] == ["all"]
    assert "ActionsSuppressedBy" not in suppressed.alarms.describe(kinds=["CompositeAlarm"])[0]


def test_a_suppressor_in_alarm_holds_actions_back_until_the_extension_is_over(suppressed):
    suppressed.alarms.set_state("maintenance", "ALARM", "x")
    suppressed.alarms.set_state("errors", "ALARM", "x")
    suppressed.minute()
    suppressed.minute()
    assert suppressed.done == []
    suppressed.alarms.set_state("maintenance", "OK", "x")
    suppressed.minute()
    assert (suppressed.alarms.by_name["all"].suppressed, suppressed.done) == ("ExtensionPeriod", [])
    suppressed.minute()
    assert [name for _, name, _ in suppressed.done] == ["all"]


def test_a_suppressor_that_comes_in_time_holds_actions_back(suppressed):
    suppressed.alarms.set_state("errors", "ALARM", "x")
    suppressed.alarms.set_state("maintenance", "ALARM", "x")
    suppressed.minute()
    assert (suppressed.alarms.by_name["all"].suppressed, suppressed.done) == ("Alarm", [])


def ratio(**members):
    def query(name, metric):
        stat = {"Metric": {"Namespace": "Platform", "MetricName": metric, "Dimensions": [{"Name": "EndpointName", "Value": "ours"}]}}
        return {"Id": name, "ReturnData": False, "MetricStat": {**stat, "Period": 60, "Stat": "Sum"}}

    return {
        "AlarmName": "ratio",
        "ComparisonOperator": "GreaterThanThreshold",
        "Threshold": 5.0,
        "EvaluationPeriods": 2,
        "DatapointsToAlarm": 2,
        "TreatMissingData": "notBreaching",
        "Metrics": [
            query("errors", "Errors"),
            query("requests", "Requests"),
            {"Id": "share", "Expression": "IF(requests >= 10, 100 * errors / requests, 0)"},
        ],
        **members,
    }


def test_an_alarm_on_a_share_looks_at_both_metrics_of_its_endpoint_only(watch):
    watch.alarms.put(ratio())
    for _ in range(2):
        watch.minute(9.0, endpoint="another")
        watch.minute(9.0)  # no request is known
    assert watch.state("ratio") == "OK"
    for requests in (9.0, 100.0, 100.0):
        watch.store.put("Platform", "Requests", {"EndpointName": "ours"}, [requests], timestamp=watch.clock.moment)
        watch.minute(6.0)
    assert watch.state("ratio") == "ALARM"
    assert watch.alarms.by_name["ratio"].data["recentDatapoints"] == [6.0, 6.0]
    assert "statistic" not in watch.alarms.by_name["ratio"].data


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"MetricName": "Errors", "Namespace": "Platform"}, "cannot be specified together"),
        ({"Period": 60}, "cannot be specified together"),
        ({"Metrics": ratio()["Metrics"][:2]}, "Exactly one element"),
        ({"Metrics": [*ratio()["Metrics"], {"Id": "again", "Expression": "share"}]}, "Exactly one element"),
        ({"Metrics": [*ratio()["Metrics"][:2], {"Id": "all", "Expression": "METRICS()"}]}, "must be one time series"),
        ({"Metrics": [*ratio()["Metrics"][:2], {"Id": "all", "Expression": "SEARCH('{N}', 'Sum', 60)"}]}, "SEARCH is not a function"),
        ({"Metrics": [{"Id": "s", "Expression": "TIME_SERIES(1)"}]}, "must have one period"),
    ],
)
def test_metric_math_that_cannot_be_watched_is_refused(watch, members, message):
    with pytest.raises(AwsError, match=message):
        watch.alarms.put(ratio(**members))
    assert watch.alarms.by_name == {}
