"""Warm-up: one function that hears of these endpoints only, may call their artifacts, and writes no record but theirs."""

from __future__ import annotations

import json
from dataclasses import fields

import aws_cdk as cdk
import pytest
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_ec2 as ec2
from cdk_nag import AwsSolutionsChecks, NIST80053R5Checks

from mme_constructs import (
    FunctionSettings,
    HeatSettings,
    MmeMonitoring,
    ModelArtifactStore,
    ModelPool,
    MultiModelContainer,
    MultiModelEndpoint,
    MultiTenantInference,
    PoolSettings,
    TenantRegistry,
    WarmUp,
    WarmUpSettings,
)
from mme_constructs.acknowledge import acknowledge
from mme_constructs.errors import CacheError, WarmUpError
from mme_facts.metrics_own import PREFETCH_METRICS
from mme_facts.warm_up import WarmUpEndpoint, WarmUpRules
from mme_facts.warm_up import WarmUpSettings as WarmUpBounds

ENV = cdk.Environment(account="123456789012", region="eu-central-1")
BY_THE_MINUTE = HeatSettings(window_minutes=1)
ARN = "arn:aws:sagemaker:eu-central-1:123456789012:endpoint/"


def pool(stack, name, framework="xgboost", instance_type="ml.m5.xlarge", **options):
    endpoint = MultiModelEndpoint.from_endpoint_attributes(
        stack, name, endpoint_name=f"{name}-endpoint", instance_type=instance_type, **options
    )
    return ModelPool(framework=framework, name=name, endpoint=endpoint)


def build_warm_up(stack, *, pools=None, **options):
    return WarmUp(
        stack,
        "WarmUp",
        store=ModelArtifactStore(stack, "Store"),
        registry=TenantRegistry(stack, "Registry"),
        pools=[pool(stack, "trees"), pool(stack, "others", "sklearn", "ml.c5.large")] if pools is None else pools,
        **options,
    )


@pytest.fixture(scope="module")
def warm_up(synthesize):
    return synthesize(lambda app: build_warm_up(cdk.Stack(app, "Test", env=ENV)))


def told(synthesized):
    """The variables of each function that warms."""
    functions = synthesized.resources("AWS::Lambda::Function").values()
    found = [function["Properties"].get("Environment", {}).get("Variables", {}) for function in functions]
    return [variables for variables in found if "MME_WARM_UP" in variables]


def allowed(synthesized):
    """Action -> the statements that allow it."""
    found = {}
    for policy in synthesized.resources("AWS::IAM::Policy").values():
        for statement in policy["Properties"]["PolicyDocument"]["Statement"]:
            actions = statement["Action"]
            for action in actions if isinstance(actions, list) else [actions]:
                found.setdefault(action, []).append(statement)
    return found


def rules(synthesized):
    """Scheduled rule, and rule on events."""
    found = [rule["Properties"] for rule in synthesized.resources("AWS::Events::Rule").values()]
    (scheduled,) = [rule for rule in found if "ScheduleExpression" in rule]
    (changed,) = [rule for rule in found if "EventPattern" in rule]
    return scheduled, changed


def test_sagemakers_events_of_these_endpoints_reach_the_function(warm_up):
    _, changed = rules(warm_up)
    assert changed["EventPattern"] == {
        "source": ["aws.sagemaker"],
        "detail-type": ["SageMaker Endpoint State Change", "SageMaker Endpoint Deployment State Change"],
        "detail": {"EndpointName": ["trees-endpoint", "others-endpoint"]},
    }
    (target,) = changed["Targets"]
    assert "Input" not in target, "the event itself is sent"


def test_events_that_are_lost_are_made_up_for_within_a_minute(warm_up):
    scheduled, _ = rules(warm_up)
    assert scheduled["ScheduleExpression"] == "rate(1 minute)"
    assert json.loads(scheduled["Targets"][0]["Input"]) == {}


def test_what_cannot_be_delivered_waits_in_a_queue_and_is_not_sent_late(warm_up):
    (function,) = warm_up.resources("AWS::Lambda::Function")
    (queue,) = warm_up.resources("AWS::SQS::Queue")
    for rule in rules(warm_up):
        (target,) = rule["Targets"]
        assert target["Arn"] == {"Fn::GetAtt": [function, "Arn"]}
        assert target["DeadLetterConfig"] == {"Arn": {"Fn::GetAtt": [queue, "Arn"]}}
        assert target["RetryPolicy"] == {"MaximumEventAgeInSeconds": 60, "MaximumRetryAttempts": 0}
    assert warm_up.only("AWS::Lambda::Function")["Properties"]["DeadLetterConfig"] == {"TargetArn": {"Fn::GetAtt": [queue, "Arn"]}}


def test_the_function_is_told_endpoints_their_size_bucket_and_table(warm_up):
    properties = warm_up.only("AWS::Lambda::Function")["Properties"]
    assert properties["Handler"] == "mme_tenancy.handlers.warm_up.handler"
    assert (properties["MemorySize"], properties["Timeout"]) == (1769, 300)
    assert properties["Timeout"] > WarmUpBounds().seconds, "a warm-up fits into one run"
    variables = properties["Environment"]["Variables"]
    assert WarmUpRules.load(variables["MME_WARM_UP"]) == WarmUpRules(
        (
            WarmUpEndpoint("trees", "trees-endpoint", "AllTraffic", 13_107 << 20, 4),
            WarmUpEndpoint("others", "others-endpoint", "AllTraffic", 3_276 << 20, 2),
        )
    )
    (store,) = warm_up.resources("AWS::S3::Bucket")
    (table,) = warm_up.resources("AWS::DynamoDB::Table")
    assert (variables["MME_BUCKET_NAME"], variables["MME_TABLE_NAME"]) == ({"Ref": store}, {"Ref": table})


def test_what_is_set_reaches_the_function(synthesize_stack):
    settings = WarmUpSettings(
        keep_warm=["acme/churn"],
        prefetch=True,
        reserve_share=0.2,
        traffic_share=0.1,
        least_calls_per_second=5,
        in_flight_share=0.5,
        seconds=600,
        memory_bytes=1_000_000,
        load_slots=7,
    )
    (variables,) = told(synthesize_stack(lambda stack: build_warm_up(stack, settings=settings, heat=BY_THE_MINUTE), env=ENV))
    found = WarmUpRules.load(variables["MME_WARM_UP"])
    assert found.settings == settings.bounds() != WarmUpBounds()
    assert (found.keep_warm, found.prefetch) == (("acme/churn",), True)
    assert {(each.memory_bytes, each.load_slots) for each in found.endpoints} == {(1_000_000, 7)}


def test_what_can_be_set_has_the_functions_own_defaults():
    assert WarmUpSettings().bounds() == WarmUpBounds()
    own = {field.name for field in fields(WarmUpSettings)} - {"enabled", "keep_warm", "prefetch", "memory_bytes", "load_slots"}
    assert own <= {field.name for field in fields(WarmUpBounds)}


def test_its_role_describes_these_endpoints_and_calls_their_artifacts_only(warm_up):
    found = allowed(warm_up)
    (describing,), (calling,) = found["sagemaker:DescribeEndpoint"], found["sagemaker:InvokeEndpoint"]
    assert sorted(describing["Resource"]) == sorted(calling["Resource"]) == [f"{ARN}others-endpoint", f"{ARN}trees-endpoint"]
    assert calling["Condition"] == {"StringLike": {"sagemaker:TargetModel": "*/*/v*-*.tar.gz"}}


def test_it_writes_the_records_of_these_endpoints_only(warm_up):
    found = allowed(warm_up)
    (table,) = warm_up.resources("AWS::DynamoDB::Table")
    for action in ("dynamodb:PutItem", "dynamodb:UpdateItem"):
        (writing,) = found[action]
        assert writing["Resource"] == {"Fn::GetAtt": [table, "Arn"]}
        assert writing["Condition"] == {
            "ForAllValues:StringEquals": {"dynamodb:LeadingKeys": ["ENDPOINT#trees-endpoint", "ENDPOINT#others-endpoint"]},
            "Null": {"dynamodb:LeadingKeys": "false"},
        }


def test_it_reads_heat_and_changes_none(warm_up):
    found = allowed(warm_up)
    (getting,), (listing,) = found["s3:GetObject"], found["s3:ListBucket"]
    assert getting["Resource"]["Fn::Join"][1][-1] == "/heat/*"
    assert listing["Condition"] == {"StringLike": {"s3:prefix": ["heat/*"]}}


def test_with_prefetch_it_writes_what_it_remembers_of_the_use_of_models_and_nothing_else_in_the_bucket(synthesize_stack):
    settings = WarmUpSettings(prefetch=True)
    found = allowed(synthesize_stack(lambda stack: build_warm_up(stack, settings=settings, heat=BY_THE_MINUTE), env=ENV))
    (writing,) = found["s3:PutObject"]
    assert sorted(reach["Resource"]["Fn::Join"][1][-1] for reach in found["s3:GetObject"]) == ["/heat/*", "/prefetch/*"]
    assert writing["Resource"]["Fn::Join"][1][-1] == "/prefetch/*"
    prefixes = [listing["Condition"]["StringLike"]["s3:prefix"] for listing in found["s3:ListBucket"]]
    assert sorted(prefix for each in prefixes for prefix in ([each] if isinstance(each, str) else each)) == ["heat/*", "prefetch/*"]


def test_it_continues_itself_and_starts_no_other_function(warm_up):
    (function,) = warm_up.resources("AWS::Lambda::Function")
    (invoking,) = allowed(warm_up)["lambda:InvokeFunction"]
    assert invoking["Resource"] == {"Fn::GetAtt": [function, "Arn"]}


def test_it_may_do_nothing_else(warm_up):
    assert set(allowed(warm_up)) == {
        "cloudwatch:GetMetricData",
        "dynamodb:BatchGetItem",
        "dynamodb:GetItem",
        "dynamodb:PutItem",
        "dynamodb:UpdateItem",
        "lambda:InvokeFunction",
        "logs:CreateLogStream",
        "logs:PutLogEvents",
        "s3:GetObject",
        "s3:ListBucket",
        "sagemaker:DescribeEndpoint",
        "sagemaker:InvokeEndpoint",
        "sqs:SendMessage",
    }


def test_in_a_vpc_it_is_not_allowed_to_invoke_itself_for_it_could_not(synthesize_stack):
    def build(stack):
        vpc = ec2.Vpc(stack, "Vpc", nat_gateways=1, max_azs=2)
        build_warm_up(stack, function_settings=FunctionSettings(memory_mb=1769, timeout_seconds=300, vpc=vpc))

    assert "lambda:InvokeFunction" not in allowed(synthesize_stack(build, env=ENV))


def test_an_endpoint_that_keeps_no_model_loaded_is_refused(stack):
    with pytest.raises(CacheError, match="warm-up needs an endpoint that keeps models loaded"):
        build_warm_up(stack, pools=[pool(stack, "trees"), pool(stack, "rare", cache_enabled=False)])


@pytest.mark.parametrize(("heat", "got"), [(HeatSettings(), "got 'window_minutes=5'"), (None, "got 'not said how heat is collected'")])
def test_prefetch_is_refused_unless_heat_comes_by_the_minute(stack, heat, got):
    with pytest.raises(WarmUpError, match=got):
        build_warm_up(stack, heat=heat, settings=WarmUpSettings(prefetch=True))
    build_warm_up(cdk.Stack(stack, "Rest"), heat=heat, settings=WarmUpSettings(prefetch=False))


@pytest.mark.parametrize("instance_type", [None, "ml.m99.xlarge", "large"])
def test_an_endpoint_of_unknown_size_is_refused_unless_it_is_told(stack, instance_type):
    unknown = pool(stack, "trees", instance_type=instance_type)
    with pytest.raises(WarmUpError, match="how much a fleet holds"):
        build_warm_up(stack, pools=[unknown])
    for name in ("memory_bytes", "load_slots"):
        half = WarmUpSettings(**{name: 1})
        with pytest.raises(WarmUpError, match="how much a fleet holds"):
            build_warm_up(cdk.Stack(stack, name.replace("_", "-")), pools=[unknown], settings=half)
    build_warm_up(cdk.Stack(stack, "both"), pools=[unknown], settings=WarmUpSettings(memory_bytes=1 << 30, load_slots=4))


def test_an_instance_type_that_only_deployment_names_is_unknown(stack):
    parameter = cdk.CfnParameter(stack, "Type")
    with pytest.raises(WarmUpError, match="how much a fleet holds"):
        build_warm_up(stack, pools=[pool(stack, "trees", instance_type=parameter.value_as_string)])


def test_no_pool_and_a_pool_twice_are_refused(stack):
    one = pool(stack, "trees")
    for pools, text in (([], "endpoints is empty"), ([one, one], "named twice")):
        with pytest.raises(WarmUpError, match=text):
            build_warm_up(cdk.Stack(stack, f"Of{len(pools)}"), pools=pools)


@pytest.mark.parametrize(
    "settings",
    [
        {"reserve_share": 1},
        {"traffic_share": 0},
        {"least_calls_per_second": 0},
        {"in_flight_share": 1.5},
        {"seconds": 0},
        {"keep_warm": ["churn"]},
        {"keep_warm": ["acme/churn", "acme/churn"]},
        {"memory_bytes": 0},
        {"load_slots": 0},
    ],
)
def test_what_cannot_be_warmed_so_is_refused(settings):
    with pytest.raises(WarmUpError):
        WarmUpSettings(**settings)


def test_each_endpoint_has_its_alarm_and_its_row_and_the_function_has_its_own(synthesize_stack):
    def build(stack):
        warm_up = build_warm_up(stack)
        for number, each in enumerate(warm_up.pools):
            monitoring = MmeMonitoring(stack, f"Monitoring{number}", endpoint=each.endpoint)
            monitoring.add_warm_up()
            if not number:
                monitoring.add_warm_up_function(warm_up)

    synthesized = synthesize_stack(build, env=ENV)
    alarms = [alarm["Properties"] for alarm in synthesized.resources("AWS::CloudWatch::Alarm").values()]
    failed = [
        alarm["Metrics"] for alarm in alarms if any(each.get("Expression") == "failed + overrun" for each in alarm.get("Metrics", ()))
    ]
    looked_at = [{each["MetricStat"]["Metric"]["Namespace"] for each in metrics if "MetricStat" in each} for metrics in failed]
    assert looked_at == [{"MME/WarmUp"}] * 2
    (function,) = synthesized.resources("AWS::Lambda::Function")
    (errors,) = [alarm for alarm in alarms if alarm.get("MetricName") == "Errors"]
    assert errors["Dimensions"] == [{"Name": "FunctionName", "Value": {"Ref": function}}]
    assert sum(alarm.get("MetricName") == "ApproximateNumberOfMessagesVisible" for alarm in alarms) == 1
    for name, board in zip(("trees", "others"), synthesized.resources("AWS::CloudWatch::Dashboard").values(), strict=True):
        body = json.dumps(board["Properties"]["DashboardBody"])
        assert body.count("## Warm-up") == 1
        for metric in ("models_warmed", "calls", "seconds", "bytes_warmed", "cold_requests_avoided", "failed", "overrun"):
            assert rf"\"MME/WarmUp\", \"{metric}\", \"endpoint\", \"{name}-endpoint\"".replace(", ", ",") in body, metric


def test_the_platform_warms_its_pools_unless_it_is_told_not_to(stack):
    platform = MultiTenantInference(stack, "Platform")
    assert platform.warm_up is not None
    assert platform.warm_up.pools == platform.pools
    assert "warm-up-failed" in platform.monitoring[0].alarms
    without = MultiTenantInference(stack, "Without", warm_up=WarmUpSettings(enabled=False))
    assert without.warm_up is None
    assert "warm-up-failed" not in without.monitoring[0].alarms


@pytest.mark.parametrize("prefetch", [True, False])
def test_the_dashboard_shows_what_prefetch_is_good_for_where_it_is_on(stack, prefetch):
    platform = MultiTenantInference(stack, "Platform", heat=BY_THE_MINUTE, warm_up=WarmUpSettings(prefetch=prefetch))
    (board,) = [each for each in platform.node.find_all() if isinstance(each, cloudwatch.CfnDashboard)]
    body = json.dumps(stack.resolve(board.dashboard_body))
    assert {row.name for row in PREFETCH_METRICS if row.name in body} == ({row.name for row in PREFETCH_METRICS} if prefetch else set())
    assert ("in vain, percent" in body) is prefetch


def test_the_platform_leaves_out_pools_that_cannot_be_warmed_and_says_so(synthesize):
    def build(app):
        stack = cdk.Stack(app, "Test", env=ENV)
        built = PoolSettings(container=MultiModelContainer.from_framework("xgboost", version="1.7-1"))
        pools = [built, pool(stack, "rare", "sklearn", cache_enabled=False), pool(stack, "unknown", "pytorch", None)]
        platform = MultiTenantInference(stack, "Platform", pools=pools)
        assert [each.name for each in platform.warm_up.pools] == ["xgboost"]
        assert ["warm-up-failed" in each.alarms for each in platform.monitoring] == [True, False, False]

    said = "".join(path.read_text("utf-8") for path in synthesize(build).folder.glob("*.json"))
    assert "The pool 'rare' is not warmed after its fleet changes: warm-up needs an endpoint" in said
    assert "The pool 'unknown' is not warmed after its fleet changes: It is not known" in said


def test_what_is_asked_for_and_cannot_be_is_refused_by_the_platform(stack):
    pools = [pool(stack, "rare", "sklearn", cache_enabled=False)]
    with pytest.raises(CacheError):
        MultiTenantInference(stack, "NoCache", pools=pools, warm_up=WarmUpSettings())
    with pytest.raises(WarmUpError, match="which models are used"):
        MultiTenantInference(stack, "NoHeat", heat=HeatSettings(enabled=False), warm_up=WarmUpSettings())
    with pytest.raises(WarmUpError, match="Prefetch predicts by the minute"):
        MultiTenantInference(stack, "FiveMinutes", warm_up=WarmUpSettings(prefetch=True))
    assert MultiTenantInference(stack, "Neither", heat=HeatSettings(enabled=False)).warm_up is None


def test_the_rule_packs_find_only_what_a_stack_decides(synthesize):
    def build(app):
        stack = cdk.Stack(app, "Test", env=ENV)
        build_warm_up(stack, function_settings=FunctionSettings(memory_mb=1769, timeout_seconds=300, reserved_concurrency=3))
        decided = "A stack's decision: as in the reference app."
        rules = ("IAMNoInlinePolicy", "CloudWatchLogGroupEncrypted", "LambdaInsideVPC", "S3BucketLoggingEnabled")
        rules += ("S3BucketReplicationEnabled", "S3DefaultEncryptionKMS", "DynamoDBInBackupPlan")
        acknowledge(stack, {**{f"NIST.800.53.R5-{rule}": decided for rule in rules}, "AwsSolutions-S1": decided})
        cdk.Validations.of(app).add_plugins(AwsSolutionsChecks(app, verbose=True), NIST80053R5Checks(app, verbose=True))

    report = json.loads((synthesize(build).folder / "validation-report.json").read_text("utf-8"))
    assert [finding for plugin in report["pluginReports"] for finding in plugin["violations"]] == []


def test_rejects_a_time_limit_in_which_nothing_could_be_warmed(stack):
    with pytest.raises(WarmUpError, match=r"time limit is too short to warm anything.*59.*60 seconds or more"):
        build_warm_up(stack, function_settings=FunctionSettings(memory_mb=1769, timeout_seconds=59))
    build_warm_up(cdk.Stack(stack, "enough"), function_settings=FunctionSettings(memory_mb=1769, timeout_seconds=60))
