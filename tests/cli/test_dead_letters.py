"""`mme dead-letters` on the local cloud: a function fails for good, its event waits, and once the cause is gone it is sent again."""

from __future__ import annotations

import io
import json
import time
import zipfile

import boto3
import pytest
from typer.testing import CliRunner

from mme_cli import sessions
from mme_cli.dead_letters import event_of, letters, redrive, waiting
from mme_cli.errors import CommandError
from mme_cli.main import app
from mme_cli.sessions import Asked

TRUST = {"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"}
CODE = """
import os
import boto3

def handler(event, context):
    if os.environ["BROKEN"] == "yes":
        raise RuntimeError("the table is not there")
    boto3.client("sqs").send_message(QueueUrl=os.environ["DONE"], MessageBody=event["key"])
"""
EVENTS = [{"key": "incoming/a"}, {"key": "incoming/b"}, {"key": "incoming/c"}]


def policy(*statements):
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})


def until(condition, seconds=30):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.1)
    return found


class Platform:
    """An admission function that fails, with its dead-letter queue."""

    def __init__(self, cloud):
        keys = cloud.admin
        session = boto3.Session(keys.access_key_id, keys.secret_access_key, region_name=cloud.region)
        self.asked = Asked("the local cloud", True, None, session, cloud.endpoint_url)
        self.sqs, self.functions, iam = self.asked.client("sqs"), self.asked.client("lambda"), self.asked.client("iam")
        self.dead, self.done = (self.sqs.create_queue(QueueName=name)["QueueUrl"] for name in ("dead-letters", "done"))
        arn = self.sqs.get_queue_attributes(QueueUrl=self.dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        role = iam.create_role(RoleName="admission", AssumeRolePolicyDocument=policy(TRUST))["Role"]["Arn"]
        allowed = {"Effect": "Allow", "Action": ["sqs:SendMessage", "logs:*"], "Resource": "*"}
        iam.put_role_policy(RoleName="admission", PolicyName="send", PolicyDocument=policy(allowed))
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            for name in ("mme_tenancy/__init__.py", "mme_tenancy/handlers/__init__.py"):
                archive.writestr(name, "")
            archive.writestr("mme_tenancy/handlers/admission.py", CODE)
        self.functions.create_function(
            FunctionName="admission-1",
            Runtime="python3.13",
            Role=role,
            Handler="mme_tenancy.handlers.admission.handler",
            Code={"ZipFile": packed.getvalue()},
            Timeout=30,
            Environment={"Variables": {"BROKEN": "yes", "DONE": self.done}},
            DeadLetterConfig={"TargetArn": arn},
        )
        self.functions.get_waiter("function_active_v2").wait(FunctionName="admission-1", WaiterConfig={"Delay": 0.1, "MaxAttempts": 100})

    def call(self, event):
        self.functions.invoke(FunctionName="admission-1", InvocationType="Event", Payload=json.dumps(event).encode())

    def count(self, url):
        counted = self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages"])
        return int(counted["Attributes"]["ApproximateNumberOfMessages"])

    def received(self):
        messages = self.sqs.receive_message(QueueUrl=self.done, MaxNumberOfMessages=10, WaitTimeSeconds=1).get("Messages", [])
        return [message["Body"] for message in messages]


@pytest.fixture
def platform(local_cloud):
    return Platform(local_cloud)


def test_events_that_failed_for_good_are_seen_sent_again_and_gone(platform):
    for event in EVENTS:
        platform.call(event)
    until(lambda: platform.count(platform.dead) == len(EVENTS))
    (queue,) = waiting(platform.asked)
    assert (queue.function, queue.handler, queue.queue, queue.messages) == ("admission-1", "admission.handler", "dead-letters", 3)
    seen = letters(platform.asked, "admission")
    assert sorted(letter.event["key"] for letter in seen) == [event["key"] for event in EVENTS]
    assert all("the table is not there" in letter.error for letter in seen)
    assert platform.count(platform.dead) == 3, "looking takes nothing away"
    platform.functions.update_function_configuration(
        FunctionName="admission-1", Environment={"Variables": {"BROKEN": "no", "DONE": platform.done}}
    )
    done = redrive(platform.asked, "dead-letters", apply=True)
    assert (len(done.letters), done.sent, done.kept) == (3, 3, ())
    keys: list[str] = []
    until(lambda: keys.extend(platform.received()) or len(keys) >= 3)
    assert sorted(keys) == [event["key"] for event in EVENTS]
    assert platform.count(platform.dead) == 0
    assert redrive(platform.asked, "admission-1", apply=True).letters == ()


def test_a_message_without_an_event_stays_and_the_status_tells_that_something_is_left(platform, monkeypatch):
    monkeypatch.setattr(sessions, "open_session", lambda **_given: platform.asked)
    platform.sqs.send_message(QueueUrl=platform.dead, MessageBody="not an event")
    done = CliRunner().invoke(app, ["dead-letters", "redrive", "admission", "--apply", "--json"])
    document = json.loads(done.stdout)
    assert (done.exit_code, document["sent"], len(document["kept"])) == (1, 0, 1)
    assert platform.count(platform.dead) == 1
    listed = json.loads(CliRunner().invoke(app, ["dead-letters", "list", "--json"]).stdout)
    assert listed == [{"function": "admission-1", "handler": "admission.handler", "queue": "dead-letters", "messages": 1}]
    assert "not an event" not in CliRunner().invoke(app, ["dead-letters", "list", "admission"]).stdout


def test_a_queue_that_is_not_there_is_named_with_those_that_are(platform):
    with pytest.raises(CommandError, match="no function with a dead-letter queue named 'sweep'; there are: admission"):
        redrive(platform.asked, "sweep", apply=True)


@pytest.mark.parametrize(
    ("body", "event"),
    [
        ('{"detail": {"a": 1}}', {"detail": {"a": 1}}),
        ('{"version": "1.0", "requestContext": {}, "requestPayload": {"a": 1}, "responsePayload": {}}', {"a": 1}),
        ('{"requestContext": {}, "requestPayload": 5}', None),
        ("[1]", None),
        ("{", None),
    ],
)
def test_the_event_is_found_in_each_form_of_a_message(body, event):
    assert event_of(body) == event
