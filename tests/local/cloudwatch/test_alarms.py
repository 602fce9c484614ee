"""Alarms by a clock that the test moves."""

import asyncio

import pytest

from mme_local.clock import CloudClock
from mme_local.cloudwatch import alarms
from mme_local.cloudwatch.alarms import Alarms
from mme_local.cloudwatch.store import MetricStore
from mme_local.wire import AwsError
from tests.local.cloudwatch.conftest import Watch


def test_a_new_alarm_has_insufficient_data_until_there_is_some(watch):
    watch.alarms.put(watch.alarm())
    assert watch.state() == "INSUFFICIENT_DATA"
    watch.minute(5.0)
    assert watch.state() == "OK"
    watch.minute(11.0)
    assert watch.state() == "ALARM"
    watch.minute(10.0)
    assert watch.state() == "OK"
    assert [(arn.rpartition(":")[2], change.old, change.new) for arn, _, change in watch.done] == [
        ("ok", "INSUFFICIENT_DATA", "OK"),
        ("alarm", "OK", "ALARM"),
        ("ok", "ALARM", "OK"),
    ]


def test_an_alarm_that_is_put_on_breaching_data_goes_off_at_once(watch):
    watch.minute(11.0)
    assert watch.alarms.put(watch.alarm()).state == "ALARM"
    assert [arn.rpartition(":")[2] for arn, _, _ in watch.done] == ["alarm"]


def test_another_endpoints_data_changes_nothing(watch):
    watch.alarms.put(watch.alarm())
    watch.minute(99.0, endpoint="another")
    assert watch.state() == "INSUFFICIENT_DATA"
    assert watch.done == []


def test_another_unit_changes_nothing(watch):
    watch.alarms.put(watch.alarm(Unit="Percent"))
    watch.minute(99.0, unit="Count")
    assert watch.state() == "INSUFFICIENT_DATA"
    watch.minute(99.0, unit="Percent")
    assert watch.state() == "ALARM"


def test_the_minute_that_is_passing_does_not_count_yet(watch):
    watch.alarms.put(watch.alarm())
    watch.minute(1.0)
    watch.store.put("Platform", "Errors", {"EndpointName": "ours"}, [99.0], unit="Count", timestamp=watch.clock.moment)
    watch.alarms.evaluate()
    assert watch.state() == "OK"


def test_too_few_of_m_leave_the_alarm_ok(watch):
    watch.alarms.put(watch.alarm(EvaluationPeriods=5, DatapointsToAlarm=3))
    watch.minutes([11, 0, 11, 0, 0, 11])
    assert watch.state() == "OK"
    watch.minutes([11, 11])
    assert watch.state() == "ALARM"


@pytest.mark.parametrize(
    ("treatment", "state"), [("missing", "INSUFFICIENT_DATA"), ("ignore", "ALARM"), ("breaching", "ALARM"), ("notBreaching", "OK")]
)
def test_missing_data_is_treated_as_the_alarm_says(watch, treatment, state):
    watch.alarms.put(watch.alarm(TreatMissingData=treatment))
    watch.minute(11.0)
    watch.minutes([None] * 3)
    assert watch.state() == state


def test_longer_periods_are_looked_at_every_minute(watch):
    watch.alarms.put(watch.alarm(Period=300, Threshold=10.0))
    watch.minutes([3, 3, 3, 0, 0])
    assert watch.state() == "OK"
    watch.minute(3.0)
    assert watch.state() == "OK"  # 3 + 3 + 0 + 0 + 3
    watch.minutes([3, 3])
    assert watch.state() == "OK"
    watch.minute(3.0)
    assert watch.state() == "ALARM"  # 0 + 3 + 3 + 3 + 3


def test_an_alarm_of_ten_seconds_sees_points_of_seconds(watch):
    watch.alarms.put(watch.alarm(Period=10))
    watch.store.put("Platform", "Errors", {"EndpointName": "ours"}, [11.0], unit="Count", timestamp=watch.clock.moment, resolution=1)
    watch.clock.moment += 10
    watch.alarms.evaluate()
    assert watch.state() == "ALARM"


def test_a_percentile_needs_enough_samples_when_the_alarm_says_so(watch):
    percentile = {"Statistic": None, "ExtendedStatistic": "p99", "EvaluateLowSampleCountPercentile": "ignore"}
    watch.alarms.put(watch.alarm(**percentile))
    watch.minute(*[99.0] * 999)
    assert watch.state() == "INSUFFICIENT_DATA"
    watch.minute(*[99.0] * 1000)
    assert watch.state() == "ALARM"


def test_reasons_are_in_cloudwatchs_words(watch):
    alarm = watch.alarms.put(watch.alarm(EvaluationPeriods=3, DatapointsToAlarm=2))
    watch.minutes([11, 1, 12])
    assert alarm.reason == (
        "Threshold Crossed: 2 out of the last 3 datapoints [12.0 (15/01/27 08:02:00), 11.0 (15/01/27 08:00:00)] were greater than the "
        "threshold (10.0) (minimum 2 datapoints for OK -> ALARM transition)."
    )
    assert alarm.data["recentDatapoints"] == [11.0, 1.0, 12.0]
    watch.minute(1.0)
    assert alarm.reason.endswith("were not greater than the threshold (10.0) (minimum 2 datapoints for ALARM -> OK transition).")
    watch.minutes([None] * 5)
    assert alarm.reason == "Insufficient Data: 3 datapoints were unknown."


def test_a_state_that_was_set_lasts_until_the_next_look(watch):
    alarm = watch.alarms.put(watch.alarm())
    watch.minute(1.0)
    watch.alarms.set_state("errors", "ALARM", "a drill")
    assert (alarm.state, alarm.reason) == ("ALARM", "a drill")
    assert watch.done[-1][0].endswith(":alarm")
    watch.minute(1.0)
    assert alarm.state == "OK"
    with pytest.raises(AwsError, match="Alarm nobody does not exist") as refused:
        watch.alarms.set_state("nobody", "OK", "a drill")
    assert refused.value.code == "ResourceNotFound"


def test_an_alarm_without_actions_changes_silently(watch):
    watch.alarms.put(watch.alarm(ActionsEnabled=False))
    watch.minute(11.0)
    assert watch.state() == "ALARM"
    assert watch.done == []
    watch.alarms.enable_actions(["errors", "nobody"], enabled=True)
    watch.minute(1.0)
    assert [arn.rpartition(":")[2] for arn, _, _ in watch.done] == ["ok"]


def test_scaling_actions_are_repeated_every_minute_with_what_is_seen_then(watch):
    taken = []
    policy = "arn:aws:autoscaling:us-east-1:000000000000:scalingPolicy:1:resource/sagemaker/endpoint/ours/variant/AllTraffic:policyName/p"
    watch.alarms.on_action("arn:aws:autoscaling:", lambda *call: taken.append(call[2]), repeated=True)
    watch.alarms.put(watch.alarm(AlarmActions=[policy, "arn:aws:sns:us-east-1:000000000000:alarm"]))
    watch.minutes([11, 12, 13])
    assert [(change.old, change.new, change.data["recentDatapoints"]) for change in taken] == [
        ("INSUFFICIENT_DATA", "ALARM", [11.0]),
        ("ALARM", "ALARM", [12.0]),
        ("ALARM", "ALARM", [13.0]),
    ]
    assert len(watch.done) == 1


def test_an_action_that_fails_stops_nothing(watch):
    def fail(*_: object) -> None:
        raise RuntimeError("no such topic")

    watch.alarms.on_action("arn:aws:sns:", fail)
    watch.alarms.put(watch.alarm())
    watch.minute(11.0)
    assert watch.state() == "ALARM"
    assert [item.summary.split()[0] for item in watch.alarms.history if item.kind == "Action"] == ["Successfully", "Failed"]


def test_putting_an_alarm_again_keeps_its_state(watch):
    watch.alarms.put(watch.alarm())
    watch.minute(11.0)
    watch.alarms.put(watch.alarm(Threshold=10.5, AlarmDescription="new"))
    assert watch.state() == "ALARM"
    assert [item.summary for item in watch.alarms.history if item.kind == "ConfigurationUpdate"] == [
        'Alarm "errors" created',
        'Alarm "errors" updated',
    ]


def test_alarms_are_described_as_cloudwatch_does(watch):
    watch.alarms.put(watch.alarm(Unit="Count"))
    watch.alarms.put(watch.alarm(AlarmName="other", AlarmActions=[], OKActions=[]))
    (ours,) = watch.alarms.describe(prefix="err")
    assert ours["AlarmArn"] == "arn:aws:cloudwatch:us-east-1:000000000000:alarm:errors"
    assert (ours["StateValue"], ours["Unit"], ours["InsufficientDataActions"]) == ("INSUFFICIENT_DATA", "Count", [])
    assert [alarm["AlarmName"] for alarm in watch.alarms.describe()] == ["errors", "other"]
    assert [alarm["AlarmName"] for alarm in watch.alarms.describe(action_prefix="arn:aws:sns")] == ["errors"]
    assert (
        watch.alarms.describe(state="ALARM") == watch.alarms.describe(["nobody"]) == watch.alarms.describe(kinds=["CompositeAlarm"]) == []
    )


def test_deleted_alarms_are_gone(watch):
    watch.alarms.put(watch.alarm())
    watch.alarms.delete(["errors", "nobody"])
    watch.minute(99.0)
    assert watch.alarms.describe() == watch.done == []


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"Statistic": None, "ExtendedStatistic": "Mean"}, "ExtendedStatistic is not supported"),
        ({"Statistic": "Mean"}, "enum value set"),
        ({"ExtendedStatistic": "p99"}, "Exactly one of Statistic and ExtendedStatistic"),
        ({"Statistic": None}, "Exactly one of Statistic and ExtendedStatistic"),
        ({"Period": 45}, "Period 45 must be"),
        ({"Period": 0}, "greater than or equal to 1"),
        ({"Period": 300, "EvaluationPeriods": 289}, "more than 1 day"),
        ({"Period": 3600, "EvaluationPeriods": 169}, "more than 7 day"),
        ({"DatapointsToAlarm": 2}, "DatapointsToAlarm 2"),
        ({"TreatMissingData": "bad"}, "TreatMissingData bad"),
        ({"Unit": "Minutes"}, "enum value set"),
        ({"ComparisonOperator": "LessThanLowerThreshold"}, "anomaly detection"),
        ({"ThresholdMetricId": "band"}, "does not evaluate ThresholdMetricId"),
        ({"EvaluateLowSampleCountPercentile": "ignore"}, "only for alarms on a percentile"),
        ({"MetricName": None}, "MetricName must be given"),
        ({"Threshold": None}, "Threshold must be given"),
        ({"Dimensions": [{"Name": "a", "Value": "1"}, {"Name": "a", "Value": "2"}]}, "more than once"),
        ({"AlarmActions": ["arn:aws:ssm:us-east-1:0:opsitem:1"]}, "is not an action"),
        ({"OKActions": ["topic"]}, "is not an action"),
        ({"AlarmName": "a\nb"}, "control characters"),
    ],
)
def test_what_cannot_be_evaluated_is_refused(watch, members, message):
    with pytest.raises(AwsError, match=message):
        watch.alarms.put(watch.alarm(**members))
    assert watch.alarms.by_name == {}


def test_an_alarm_that_cannot_be_evaluated_stops_no_other(watch, monkeypatch, caplog):
    for name in ("broken", "errors", "later"):
        watch.alarms.put(watch.alarm(AlarmName=name))

    whole = alarms.evaluate

    def evaluate(definition, store, now):
        if definition.name == "broken":
            raise ZeroDivisionError
        return whole(definition, store, now)

    monkeypatch.setattr(alarms, "evaluate", evaluate)
    watch.minute(11.0)
    assert [watch.state(name) for name in ("broken", "errors", "later")] == ["INSUFFICIENT_DATA", "ALARM", "ALARM"]
    assert "alarm broken could not be evaluated" in caplog.text


@pytest.mark.parametrize(("scale", "late"), [(1.0, 0.0), (50.0, 0.0), (600.0, 55.0), (6000.0, 595.0)])
def test_a_fast_clock_leaves_publishers_a_tenth_of_a_second(watch, monkeypatch, scale, late):
    monkeypatch.setattr(type(watch.clock), "scale", scale)
    watch.alarms.put(watch.alarm(TreatMissingData="notBreaching"))
    watch.store.put("Platform", "Errors", {"EndpointName": "ours"}, [99.0], unit="Count", timestamp=watch.clock.moment)
    watch.clock.moment += 59.0 + late
    watch.alarms.evaluate()
    assert watch.state() == "OK", "its last data points may not have come yet"
    watch.clock.moment += 1.0
    watch.alarms.evaluate()
    assert watch.state() == "ALARM"


def test_the_clock_evaluates_and_a_jump_is_an_occasion():
    async def story():
        clock = CloudClock(6000.0)
        store = MetricStore(clock.time)
        watching = Alarms(store, clock, region="us-east-1", account="000000000000")
        changed = asyncio.Event()
        watching.on_change(lambda _alarm, change: change.new == "ALARM" and changed.set())
        watching.put(Watch().alarm(TreatMissingData="ignore", AlarmActions=[], OKActions=[]))
        running = asyncio.create_task(watching.run())
        store.put("Platform", "Errors", {"EndpointName": "ours"}, [99.0], timestamp=clock.time())
        await asyncio.wait_for(changed.wait(), 20)
        # Back by a day: the alarms go on looking by the clock as it is now.
        changed.clear()
        clock.jump(-86400.0)
        store.put("Platform", "Errors", {"EndpointName": "ours"}, [1.0], timestamp=clock.time())
        watching.set_state("errors", "OK", "to begin with")
        store.put("Platform", "Errors", {"EndpointName": "ours"}, [99.0], timestamp=clock.time() + 60)
        await asyncio.wait_for(changed.wait(), 20)
        running.cancel()

    asyncio.run(story())
