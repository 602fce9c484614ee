"""The sweeper: one scheduled function with exactly the rights that its work needs."""

from __future__ import annotations

import json

import aws_cdk as cdk
import pytest

from mme_constructs import FunctionSettings, ModelArtifactStore, Sweeper, SweeperSettings, TenantRegistry
from mme_constructs.errors import FunctionError, RetentionError
from mme_facts import environment as variables
from mme_facts.environment import SweepTimes
from mme_facts.own_events import RESUME_DETAIL

ENV = cdk.Environment(account="123456789012", region="eu-central-1")


def build(stack, **props):
    return Sweeper(stack, "Sweeper", store=ModelArtifactStore(stack, "Store"), registry=TenantRegistry(stack, "Registry"), **props)


@pytest.fixture(scope="module")
def sweeper(synthesize):
    return synthesize(lambda app: build(cdk.Stack(app, "Test", env=ENV)))


@pytest.fixture(scope="module")
def statements(sweeper):
    return sweeper.only("AWS::IAM::Policy")["Properties"]["PolicyDocument"]["Statement"]


def actions_of(statement):
    actions = statement["Action"]
    return {actions} if isinstance(actions, str) else set(actions)


def test_it_runs_every_five_minutes_and_an_old_schedule_is_not_repeated(sweeper):
    rule = sweeper.only("AWS::Events::Rule")["Properties"]
    assert rule["ScheduleExpression"] == "rate(5 minutes)"
    (target,) = rule["Targets"]
    (function,) = sweeper.resources("AWS::Lambda::Function")
    assert target["Arn"] == {"Fn::GetAtt": [function, "Arn"]}
    assert target["RetryPolicy"] == {"MaximumEventAgeInSeconds": 300, "MaximumRetryAttempts": 1}
    properties = sweeper.only("AWS::Lambda::Function")["Properties"]
    assert properties["Handler"] == "mme_tenancy.handlers.sweep.handler"
    assert properties["Timeout"] < 300


def test_schedules_that_fail_for_good_wait_in_a_queue(sweeper):
    (queue,) = sweeper.resources("AWS::SQS::Queue")
    arn = {"Fn::GetAtt": [queue, "Arn"]}
    assert sweeper.only("AWS::Events::Rule")["Properties"]["Targets"][0]["DeadLetterConfig"] == {"Arn": arn}
    assert sweeper.only("AWS::Lambda::Function")["Properties"]["DeadLetterConfig"] == {"TargetArn": arn}


def test_its_role_may_do_what_the_sweep_does_and_nothing_else(sweeper, statements):
    allowed = set().union(*(actions_of(statement) for statement in statements))
    assert allowed == {
        "dynamodb:BatchGetItem",
        "dynamodb:GetItem",
        "dynamodb:PutItem",
        "dynamodb:Query",
        "dynamodb:UpdateItem",
        "events:PutEvents",
        "logs:CreateLogStream",
        "logs:PutLogEvents",
        "s3:AbortMultipartUpload",
        "s3:DeleteObject",
        "s3:GetObject",
        "s3:ListBucket",
        "sqs:SendMessage",
    }
    text = json.dumps(statements)
    assert '"*"' not in text
    (table,) = sweeper.resources("AWS::DynamoDB::Table")
    queried = [statement["Resource"] for statement in statements if "dynamodb:Query" in actions_of(statement)]
    arn = {"Fn::GetAtt": [table, "Arn"]}
    assert queried == [arn, {"Fn::Join": ["", [arn, "/index/moving"]]}]


def test_it_deletes_below_the_two_prefixes_only(statements):
    deleting = [statement for statement in statements if "s3:DeleteObject" in actions_of(statement)]
    assert sorted(statement["Resource"]["Fn::Join"][1][-1] for statement in deleting) == ["/incoming/*", "/models/*"]
    (listing,) = [statement for statement in statements if "s3:ListBucket" in actions_of(statement)]
    assert listing["Condition"] == {"StringLike": {"s3:prefix": ["incoming/*", "models/*"]}}


def test_it_sends_its_own_events_only(statements):
    (sending,) = [statement for statement in statements if "events:PutEvents" in actions_of(statement)]
    assert sending["Resource"] == "arn:aws:events:eu-central-1:123456789012:event-bus/default"
    assert sending["Condition"] == {"StringEqualsIfExists": {"events:source": "mme.sweep", "events:detail-type": RESUME_DETAIL}}


def test_the_function_is_told_when_to_act(synthesize_stack):
    times = SweeperSettings(every_minutes=10, stuck_minutes=30, expire_hours=48, orphan_hours=72, unrecorded_days=10)
    synthesized = synthesize_stack(lambda stack: build(stack, times=times, settings=FunctionSettings(timeout_seconds=60)), env=ENV)
    assert synthesized.only("AWS::Events::Rule")["Properties"]["ScheduleExpression"] == "rate(10 minutes)"
    told = synthesized.only("AWS::Lambda::Function")["Properties"]["Environment"]["Variables"]
    assert variables.load_sweep_times(told[variables.SWEEP_TIMES]) == SweepTimes(1800, 172_800, 259_200, unrecorded_seconds=864_000)
    assert {variables.TABLE_NAME, variables.BUCKET_NAME, variables.MODELS_PREFIX} <= set(told)


@pytest.mark.parametrize(
    "setting", [{"every_minutes": 0}, {"stuck_minutes": 15}, {"expire_hours": 1}, {"orphan_hours": 0}, {"unrecorded_days": 0}]
)
def test_times_in_which_somebody_may_still_be_at_work_are_refused(setting):
    (name,) = setting
    with pytest.raises(FunctionError, match=f"{name} of the sweep is too short"):
        SweeperSettings(**setting)


def test_more_time_between_two_runs_than_eventbridge_keeps_an_event_is_refused():
    assert SweeperSettings(every_minutes=1440)
    with pytest.raises(FunctionError, match="every_minutes of the sweep is too long: got 1441"):
        SweeperSettings(every_minutes=1441)


@pytest.mark.parametrize("days", [0, 3651])
def test_artifacts_are_kept_for_a_while_and_not_for_ever(stack, days):
    with pytest.raises(RetentionError, match=f"got {days}"):
        build(stack, retired_days=days)
