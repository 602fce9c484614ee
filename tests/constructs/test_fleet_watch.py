"""The fleet watch: one function a minute that may describe its endpoints and nothing else."""

from __future__ import annotations

import json

import aws_cdk as cdk
import pytest
from cdk_nag import AwsSolutionsChecks, NIST80053R5Checks

from mme_constructs import FleetWatch, FunctionSettings, MmeMonitoring, MultiModelEndpoint
from mme_constructs.acknowledge import acknowledge
from mme_constructs.errors import AlarmError

ENV = cdk.Environment(account="123456789012", region="eu-central-1")


def build_watch(stack):
    endpoints = [MultiModelEndpoint.from_endpoint_attributes(stack, name, endpoint_name=name.lower()) for name in ("One", "Two")]
    FleetWatch(stack, "Watch", endpoints=endpoints, settings=FunctionSettings(memory_mb=256, timeout_seconds=30, reserved_concurrency=1))
    return endpoints


@pytest.fixture(scope="module")
def watch(synthesize):
    return synthesize(lambda app: build_watch(cdk.Stack(app, "Test", env=ENV)))


def test_every_minute_the_function_is_told_its_endpoints_and_a_lost_event_is_not_repeated(watch):
    rule = watch.only("AWS::Events::Rule")["Properties"]
    assert rule["ScheduleExpression"] == "rate(1 minute)"
    (target,) = rule["Targets"]
    assert json.loads(target["Input"]) == {"endpoints": ["one", "two"]}
    assert target["RetryPolicy"] == {"MaximumEventAgeInSeconds": 60, "MaximumRetryAttempts": 0}
    (function,) = watch.resources("AWS::Lambda::Function")
    assert target["Arn"] == {"Fn::GetAtt": [function, "Arn"]}
    (queue,) = watch.resources("AWS::SQS::Queue")
    assert target["DeadLetterConfig"] == {"Arn": {"Fn::GetAtt": [queue, "Arn"]}}
    assert watch.only("AWS::Lambda::Function")["Properties"]["DeadLetterConfig"] == {"TargetArn": {"Fn::GetAtt": [queue, "Arn"]}}
    assert watch.only("AWS::Lambda::Function")["Properties"]["Handler"] == "mme_tenancy.handlers.fleet_watch.handler"


def test_its_role_describes_these_endpoints_only(watch):
    statements = watch.only("AWS::IAM::Policy")["Properties"]["PolicyDocument"]["Statement"]
    (describing,) = [statement for statement in statements if "sagemaker:DescribeEndpoint" in statement["Action"]]
    assert describing["Action"] == "sagemaker:DescribeEndpoint"
    arn = "arn:aws:sagemaker:eu-central-1:123456789012:endpoint/"
    assert describing["Resource"] == [f"{arn}one", f"{arn}two"]


def test_the_alarm_looks_at_what_the_function_publishes(synthesize_stack):
    def build(stack):
        endpoint, _ = build_watch(stack)
        MmeMonitoring(stack, "Monitoring", endpoint=endpoint).add_stuck_updating()

    alarms = synthesize_stack(build, env=ENV).resources("AWS::CloudWatch::Alarm").values()
    (alarm,) = [alarm["Properties"] for alarm in alarms if alarm["Properties"].get("Namespace") == "MME/Fleet"]
    assert (alarm["MetricName"], alarm["Dimensions"]) == ("updating_seconds", [{"Name": "endpoint", "Value": "one"}])
    assert alarm["Threshold"] == 2700


def test_watching_nothing_is_refused(stack):
    with pytest.raises(AlarmError, match="nothing to watch"):
        FleetWatch(stack, "Watch", endpoints=[])


def test_the_rule_packs_find_only_what_a_stack_decides(synthesize):
    def build(app):
        stack = cdk.Stack(app, "Test", env=ENV)
        build_watch(stack)
        decided = "A stack's decision: as in the reference app."
        rules = ("IAMNoInlinePolicy", "CloudWatchLogGroupEncrypted", "LambdaInsideVPC")
        acknowledge(stack, {f"NIST.800.53.R5-{rule}": decided for rule in rules})
        cdk.Validations.of(app).add_plugins(AwsSolutionsChecks(app, verbose=True), NIST80053R5Checks(app, verbose=True))

    report = json.loads((synthesize(build).folder / "validation-report.json").read_text("utf-8"))
    assert [finding for plugin in report["pluginReports"] for finding in plugin["violations"]] == []
