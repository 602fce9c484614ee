"""What alarms do, through the emulator's topics, functions and event bus; and the metrics that its services put."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from tests.local.cloudwatch.test_api import alarm
from tests.local.conftest import document

ACCOUNT = "000000000000"


@pytest.fixture
def post(bench):
    """A queue and how to read its next message."""
    sqs = bench.client("sqs")
    url = sqs.create_queue(QueueName=bench.name("queue"))["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    sqs.set_queue_attributes(
        QueueUrl=url,
        Attributes={"Policy": document({"Effect": "Allow", "Principal": "*", "Action": "sqs:SendMessage", "Resource": arn})},
    )

    def receive():
        messages = bench.wait_for(lambda: sqs.receive_message(QueueUrl=url, WaitTimeSeconds=1).get("Messages"))
        return json.loads(messages[0]["Body"])

    def empty():
        return "Messages" not in sqs.receive_message(QueueUrl=url, WaitTimeSeconds=1)

    receive.arn, receive.empty = arn, empty
    return receive


@pytest.fixture
def topic(bench, post):
    sns = bench.client("sns")
    arn = sns.create_topic(Name=bench.name("topic"))["TopicArn"]
    sns.subscribe(TopicArn=arn, Protocol="sqs", Endpoint=post.arn)
    return arn


def test_a_topic_gets_cloudwatchs_message(bench, post, topic):
    cloudwatch = bench.client("cloudwatch")
    cloudwatch.put_metric_alarm(**alarm(AlarmActions=[topic], AlarmDescription="too many"))
    cloudwatch.set_alarm_state(AlarmName="errors", StateValue="OK", StateReason="to begin with")
    cloudwatch.set_alarm_state(AlarmName="errors", StateValue="ALARM", StateReason="a drill")
    envelope = post()
    assert envelope["Subject"] == 'ALARM: "errors" in US East (N. Virginia)'
    message = json.loads(envelope["Message"])
    assert {
        name: message[name]
        for name in ("AlarmName", "AlarmDescription", "NewStateValue", "NewStateReason", "OldStateValue", "AWSAccountId")
    } == {
        "AlarmName": "errors",
        "AlarmDescription": "too many",
        "NewStateValue": "ALARM",
        "NewStateReason": "a drill",
        "OldStateValue": "OK",
        "AWSAccountId": ACCOUNT,
    }
    assert message["Trigger"] == {
        "MetricName": "Errors",
        "Namespace": "Platform",
        "StatisticType": "Statistic",
        "Statistic": "SUM",
        "Unit": None,
        "Dimensions": [{"value": "ours", "name": "EndpointName"}, {"value": "AllTraffic", "name": "VariantName"}],
        "Period": 60,
        "EvaluationPeriods": 1,
        "DatapointsToAlarm": 1,
        "ComparisonOperator": "GreaterThanThreshold",
        "Threshold": 10.5,
        "TreatMissingData": "ignore",
        "EvaluateLowSampleCountPercentile": "",
    }
    cloudwatch.set_alarm_state(AlarmName="errors", StateValue="OK", StateReason="over")
    assert post.empty()


def test_a_topic_whose_policy_does_not_let_cloudwatch_in_gets_nothing(bench, post, topic):
    cloudwatch, sns = bench.client("cloudwatch"), bench.client("sns")
    only_admin = {
        "Effect": "Allow",
        "Principal": {"AWS": f"arn:aws:iam::{ACCOUNT}:user/mme-admin"},
        "Action": "sns:Publish",
        "Resource": topic,
    }
    sns.set_topic_attributes(TopicArn=topic, AttributeName="Policy", AttributeValue=document(only_admin))
    cloudwatch.put_metric_alarm(**alarm(AlarmActions=[topic]))
    cloudwatch.set_alarm_state(AlarmName="errors", StateValue="ALARM", StateReason="a drill")
    assert post.empty()
    (action,) = cloudwatch.describe_alarm_history(HistoryItemType="Action")["AlarmHistoryItems"]
    assert action["HistorySummary"] == f"Failed to execute action {topic}"


def test_a_function_is_called_when_its_policy_says_so(bench, post):
    lambda_ = bench.client("lambda")
    url = bench.client("sqs").get_queue_url(QueueName=post.arn.rpartition(":")[2])["QueueUrl"]
    code = f"""
        import json, boto3
        def handler(event, context):
            boto3.client("sqs").send_message(QueueUrl={url!r}, MessageBody=json.dumps(event))
    """
    function = bench.function(code)
    cloudwatch = bench.client("cloudwatch")
    cloudwatch.put_metric_alarm(**alarm(AlarmActions=[function]))
    cloudwatch.set_alarm_state(AlarmName="errors", StateValue="ALARM", StateReason="a drill")
    (action,) = cloudwatch.describe_alarm_history(HistoryItemType="Action")["AlarmHistoryItems"]
    assert action["HistorySummary"].startswith("Failed to execute action")
    lambda_.add_permission(
        FunctionName=function,
        StatementId="alarm",
        Action="lambda:InvokeFunction",
        Principal="lambda.alarms.cloudwatch.amazonaws.com",
        SourceArn=f"arn:aws:cloudwatch:us-east-1:{ACCOUNT}:alarm:errors",
    )
    cloudwatch.set_alarm_state(AlarmName="errors", StateValue="OK", StateReason="over")
    cloudwatch.set_alarm_state(AlarmName="errors", StateValue="ALARM", StateReason="a drill")
    event = post()
    assert (event["source"], event["alarmData"]["state"]["value"]) == ("aws.cloudwatch", "ALARM")


def test_every_change_is_an_event(bench, post):
    events, cloudwatch = bench.client("events"), bench.client("cloudwatch")
    pattern = {"source": ["aws.cloudwatch"], "detail-type": ["CloudWatch Alarm State Change"], "detail": {"state": {"value": ["ALARM"]}}}
    events.put_rule(Name="alarms", EventPattern=json.dumps(pattern))
    events.put_targets(Rule="alarms", Targets=[{"Id": "queue", "Arn": post.arn}])
    cloudwatch.put_metric_alarm(**alarm())
    cloudwatch.set_alarm_state(AlarmName="errors", StateValue="OK", StateReason="x")
    cloudwatch.set_alarm_state(AlarmName="errors", StateValue="ALARM", StateReason="a drill")
    event = post()
    assert event["resources"] == [f"arn:aws:cloudwatch:us-east-1:{ACCOUNT}:alarm:errors"]
    detail = event["detail"]
    assert (detail["alarmName"], detail["state"]["value"], detail["previousState"]["value"]) == ("errors", "ALARM", "OK")
    (metric,) = detail["configuration"]["metrics"]
    assert metric["metricStat"] == {
        "metric": {"namespace": "Platform", "name": "Errors", "dimensions": {"EndpointName": "ours", "VariantName": "AllTraffic"}},
        "period": 60,
        "stat": "Sum",
    }


def test_the_composite_alarm_names_its_children(bench, post, topic):
    cloudwatch = bench.client("cloudwatch")
    cloudwatch.put_metric_alarm(**alarm())
    cloudwatch.put_composite_alarm(AlarmName="whole", AlarmRule="ALARM(errors)", AlarmActions=[topic])
    cloudwatch.set_alarm_state(AlarmName="errors", StateValue="ALARM", StateReason="a drill")
    message = json.loads(post()["Message"])
    assert (message["AlarmName"], message["AlarmRule"]) == ("whole", "ALARM(errors)")
    assert [child["Arn"].rpartition(":")[2] for child in message["TriggeringChildren"]] == ["errors"]


def test_the_emulators_own_metrics_are_in_our_store(bench):
    function = bench.function("def handler(event, context):\n    return 1")
    bench.invoke(function)
    name, now = function.rpartition(":")[2], datetime.now(UTC)
    points = bench.wait_for(
        lambda: bench.client("cloudwatch").get_metric_statistics(
            Namespace="AWS/Lambda",
            MetricName="Invocations",
            Dimensions=[{"Name": "FunctionName", "Value": name}],
            StartTime=now - timedelta(minutes=5),
            EndTime=now + timedelta(minutes=5),
            Period=60,
            Statistics=["Sum"],
        )["Datapoints"]
    )
    assert sum(point["Sum"] for point in points) == 1.0
