"""The emulator and the functions in it follow the local cloud's clock."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest

from mme_local import LocalCloud, LocalSettings
from mme_local.fault_documents import JumpClock
from tests.local.conftest import Workbench, allow

SCALE = 240.0
HANDLER = """
    import json, os, sys, time
    from mme_facts.scaled_time import CLOCK_VARIABLE
    from mme_tenancy.clock import SystemClock
    clock = SystemClock()
    def handler(event, context):
        print("fired")
        times = {"scaled": clock.time(), "wall": clock.wall(), "real": time.time()}
        return {**times, "setting": os.environ[CLOCK_VARIABLE], "pid": os.getpid()}
    """


@pytest.fixture(scope="module")
def fast() -> Iterator[Workbench]:
    with LocalCloud(settings=LocalSettings(clock_scale=SCALE, faults=True)) as cloud, closing(Workbench(cloud)) as workbench:
        yield workbench


def shown(cloud: LocalCloud) -> float:
    return float(cloud.status()["clock"]["now"])


def test_a_function_sees_the_scaled_clock(fast):
    arn = fast.function(HANDLER)
    before, answer, after = shown(fast.cloud), fast.invoke(arn), shown(fast.cloud)
    assert before <= answer["scaled"] <= after
    assert answer["scaled"] - answer["real"] > 10, "the scaled clock runs ahead of the machine's"
    assert answer["real"] - 1 < answer["wall"] <= answer["real"], "deadlines of requests are real"


def test_a_rule_fires_every_scaled_minute(fast):
    arn = fast.function(HANDLER)
    events, logs = fast.client("events"), fast.client("logs")
    began = shown(fast.cloud)
    rule = events.put_rule(Name="every-minute", ScheduleExpression="rate(1 minute)")["RuleArn"]
    fast.client("lambda").add_permission(
        FunctionName=arn, StatementId="rule", Action="lambda:InvokeFunction", Principal="events.amazonaws.com", SourceArn=rule
    )
    events.put_targets(Rule="every-minute", Targets=[{"Id": "function", "Arn": arn}])
    group = f"/aws/lambda/{arn.rsplit(':', 1)[-1]}"

    def fired() -> list[float]:
        if not logs.describe_log_groups(logGroupNamePrefix=group)["logGroups"]:
            return []
        events = logs.filter_log_events(logGroupName=group)["events"]
        return sorted(event["timestamp"] / 1000 for event in events if event["message"].strip() == "fired")

    times = fast.wait_for(lambda: (found := fired()) and len(found) >= 5 and found, seconds=60)
    events.remove_targets(Rule="every-minute", Ids=["function"])
    early = [(number, moment - began) for number, moment in enumerate(times, 1) if moment - began < 60 * number - 1]
    assert not early, "the first one comes a minute after the rule, the next ones never earlier than each a minute later"


def test_a_one_time_schedule_waits_for_its_scaled_moment(fast):
    role = fast.service_role("scheduler.amazonaws.com", allow("sqs:SendMessage", "*"))
    sqs = fast.client("sqs")
    queue = sqs.create_queue(QueueName=fast.name("queue"))["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    moment = datetime.fromtimestamp(shown(fast.cloud) + 240, UTC)
    fast.client("scheduler").create_schedule(
        Name="once",
        ScheduleExpression=f"at({moment:%Y-%m-%dT%H:%M:%S})",
        FlexibleTimeWindow={"Mode": "OFF"},
        Target={"Arn": arn, "RoleArn": role},
    )
    fast.wait_for(lambda: sqs.receive_message(QueueUrl=queue).get("Messages"), seconds=60)
    assert shown(fast.cloud) >= moment.timestamp() - 1


def test_items_expire_by_the_scaled_clock(fast):
    dynamodb, name = fast.client("dynamodb"), fast.name("table")
    dynamodb.create_table(
        TableName=name,
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    dynamodb.update_time_to_live(TableName=name, TimeToLiveSpecification={"Enabled": True, "AttributeName": "expires"})
    now = shown(fast.cloud)
    for key, expires in (("soon", now + 300), ("late", now + 10 * 86400)):
        dynamodb.put_item(TableName=name, Item={"id": {"S": key}, "expires": {"N": str(int(expires))}})
    fast.wait_for(lambda: len(dynamodb.scan(TableName=name)["Items"]) == 1, seconds=60)
    assert shown(fast.cloud) >= now + 299
    assert dynamodb.scan(TableName=name)["Items"][0]["id"] == {"S": "late"}


def test_a_state_machine_waits_scaled_seconds(fast):
    role = fast.service_role("states.amazonaws.com")
    definition = {"StartAt": "Wait", "States": {"Wait": {"Type": "Wait", "Seconds": 600, "End": True}}}
    client = fast.client("stepfunctions")
    machine = client.create_state_machine(name="waits", definition=json.dumps(definition), roleArn=role)["stateMachineArn"]
    began, scaled = time.monotonic(), shown(fast.cloud)
    execution = client.start_execution(stateMachineArn=machine)["executionArn"]
    fast.wait_for(lambda: client.describe_execution(executionArn=execution)["status"] == "SUCCEEDED", seconds=60)
    assert shown(fast.cloud) - scaled >= 599
    assert time.monotonic() - began < 300, "it did not wait 600 real seconds"


def test_sessions_last_a_real_hour(fast):
    role = fast.role({"Statement": [{"Effect": "Allow", "Principal": {"AWS": fast.cloud.account}, "Action": "sts:AssumeRole"}]})
    answer = fast.client("sts").assume_role(RoleArn=role, RoleSessionName="real")
    left = answer["Credentials"]["Expiration"] - datetime.now(UTC)
    assert timedelta(minutes=55) < left <= timedelta(minutes=61)


def test_functions_see_a_jump_of_the_clock(fast):
    arn = fast.function(HANDLER)
    before = fast.invoke(arn)
    fast.cloud.faults.put(JumpClock(seconds=86400.0))
    after = fast.invoke(arn)
    assert after["setting"] != before["setting"]
    assert after["pid"] != before["pid"], "the worker of the old clock is retired"
    assert after["scaled"] - before["scaled"] >= 86400
    assert shown(fast.cloud) >= after["scaled"]
