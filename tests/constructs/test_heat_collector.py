"""The heat collector: one function a window that may query one log group and write below heat/, nothing else."""

from __future__ import annotations

import json

import aws_cdk as cdk
import pytest
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from cdk_nag import AwsSolutionsChecks, NIST80053R5Checks

from mme_constructs import (
    FunctionSettings,
    HeatCollector,
    HeatSettings,
    InferenceComponentEndpoint,
    MmeMonitoring,
    ModelArtifactStore,
    ModelPool,
    MultiModelEndpoint,
    MultiTenantInference,
)
from mme_constructs.acknowledge import acknowledge
from mme_constructs.errors import PoolError, TelemetryError
from mme_facts.heat import HeatRules

ENV = cdk.Environment(account="123456789012", region="eu-central-1")


def pool(stack, name, framework="xgboost"):
    return ModelPool(
        framework=framework, name=name, endpoint=MultiModelEndpoint.from_endpoint_attributes(stack, name, endpoint_name=f"{name}-endpoint")
    )


def build_collector(stack, *, store=None, **options):
    group = logs.LogGroup(stack, "Lines", retention=logs.RetentionDays.ONE_MONTH)
    return HeatCollector(
        stack,
        "Heat",
        log_group=group,
        store=store or ModelArtifactStore(stack, "Store"),
        **{"pools": [pool(stack, "trees"), pool(stack, "others", "sklearn")], **options},
    )


@pytest.fixture(scope="module")
def collector(synthesize):
    return synthesize(lambda app: build_collector(cdk.Stack(app, "Test", env=ENV), settings=HeatSettings(window_minutes=10)))


def statements(synthesized):
    for policy in synthesized.resources("AWS::IAM::Policy").values():
        for statement in policy["Properties"]["PolicyDocument"]["Statement"]:
            actions = statement["Action"]
            yield set(actions if isinstance(actions, list) else [actions]), statement


def test_it_runs_once_a_window_and_a_lost_run_is_not_repeated(collector):
    rule = collector.only("AWS::Events::Rule")["Properties"]
    assert rule["ScheduleExpression"] == "rate(10 minutes)"
    (target,) = rule["Targets"]
    assert target["RetryPolicy"] == {"MaximumEventAgeInSeconds": 600, "MaximumRetryAttempts": 0}


def test_the_function_is_told_log_group_bucket_and_pools(collector):
    properties = collector.only("AWS::Lambda::Function")["Properties"]
    told = properties["Environment"]["Variables"]
    assert properties["Handler"] == "mme_tenancy.handlers.heat.handler"
    assert HeatRules.load(told["MME_HEAT"]) == HeatRules({"trees": ("trees-endpoint",), "others": ("others-endpoint",)}, window_seconds=600)
    (store,) = collector.resources("AWS::S3::Bucket")
    assert told["MME_BUCKET_NAME"] == {"Ref": store}
    assert told["MME_LOG_GROUPS"]["Ref"].startswith("Lines")


def test_its_role_queries_that_log_group_and_reaches_heat_only(collector):
    allowed = {}
    for actions, statement in statements(collector):
        for action in actions:
            allowed.setdefault(action, []).append(statement)
    (querying,) = allowed["logs:StartQuery"]
    assert querying["Resource"]["Fn::GetAtt"][0].startswith("Lines")
    (listing,) = allowed["s3:ListBucket"]
    assert listing["Condition"] == {"StringLike": {"s3:prefix": ["heat/*"]}}
    for action in ("s3:GetObject", "s3:PutObject"):
        (statement,) = allowed[action]
        assert statement["Resource"]["Fn::Join"][1][-1] == "/heat/*"
    (dead_letters,) = collector.resources("AWS::SQS::Queue")
    assert allowed["sqs:SendMessage"][0]["Resource"] == {"Fn::GetAtt": [dead_letters, "Arn"]}
    own_log = {"logs:CreateLogStream", "logs:PutLogEvents"}
    queries = {"logs:StartQuery", "logs:GetQueryResults", "logs:StopQuery"}
    assert set(allowed) == own_log | queries | {"s3:GetObject", "s3:PutObject", "s3:ListBucket", "sqs:SendMessage"}


def imported(stack, name):
    return logs.LogGroup.from_log_group_name(stack, name.strip("/").replace("/", "-"), name)


def test_log_groups_of_applications_are_queried_too_and_no_others(synthesize_stack):
    def build(stack):
        build_collector(stack, application_log_groups=[imported(stack, "/ecs/shop"), imported(stack, "/aws/lambda/batch")])

    synthesized = synthesize_stack(build, env=ENV)
    told = synthesized.only("AWS::Lambda::Function")["Properties"]["Environment"]["Variables"]["MME_LOG_GROUPS"]
    assert told["Fn::Join"][1][1] == ",/ecs/shop,/aws/lambda/batch"
    (querying,) = [statement for actions, statement in statements(synthesized) if "logs:StartQuery" in actions]
    (own,) = [arn for arn in querying["Resource"] if isinstance(arn, dict)]
    assert own["Fn::GetAtt"][0].startswith("Lines")
    assert {arn for arn in querying["Resource"] if isinstance(arn, str)} == {
        "arn:aws:logs:eu-central-1:123456789012:log-group:/ecs/shop:*",
        "arn:aws:logs:eu-central-1:123456789012:log-group:/aws/lambda/batch:*",
    }


def test_log_groups_that_no_query_takes_together_are_refused(stack):
    with pytest.raises(TelemetryError, match="no more log groups"):
        build_collector(stack, application_log_groups=[imported(stack, f"/ecs/{number}") for number in range(50)])


def test_a_log_group_is_named_once(stack):
    group = imported(stack, "/ecs/shop")
    with pytest.raises(TelemetryError, match="named twice"):
        build_collector(stack, application_log_groups=[group, group])


def test_the_platform_hands_applications_log_groups_on(synthesize_stack):
    def build(stack):
        MultiTenantInference(stack, "Platform", application_log_groups=[imported(stack, "/ecs/shop")])

    synthesized = synthesize_stack(build, env=ENV)
    told = [
        row["Properties"].get("Environment", {}).get("Variables", {}) for row in synthesized.resources("AWS::Lambda::Function").values()
    ]
    (groups,) = [variables["MME_LOG_GROUPS"] for variables in told if "MME_LOG_GROUPS" in variables]
    assert groups["Fn::Join"][1][-1] == ",/ecs/shop"
    boards = json.dumps(list(synthesized.resources("AWS::CloudWatch::Dashboard").values()))
    assert "SOURCE '/ecs/shop'" in boards


def test_with_a_key_of_its_own_the_stores_objects_can_be_written_and_read(synthesize_stack):
    def build(stack):
        store = ModelArtifactStore(stack, "Store", encryption_key=kms.Key(stack, "Key", enable_key_rotation=True))
        build_collector(stack, store=store)
        reader = cdk.aws_iam.Role(stack, "Reader", assumed_by=cdk.aws_iam.AccountRootPrincipal())
        store.grant_read_heat(reader)

    synthesized = synthesize_stack(build, env=ENV)
    actions = [actions for actions, _ in statements(synthesized)]
    assert {"kms:Decrypt", "kms:GenerateDataKey"} in actions
    assert {"kms:Decrypt"} in actions


def test_models_with_components_of_their_own_are_a_pool_of_theirs(synthesize_stack):
    def build(stack):
        store = ModelArtifactStore(stack, "Store")
        dedicated = InferenceComponentEndpoint(stack, "Dedicated", store=store, endpoint_name="alone")
        build_collector(stack, store=store, dedicated=dedicated)

    told = synthesize_stack(build, env=ENV).only("AWS::Lambda::Function")["Properties"]["Environment"]["Variables"]["MME_HEAT"]
    text = "".join(part if isinstance(part, str) else "alone" for part in told["Fn::Join"][1])
    assert HeatRules.load(text).pools["dedicated"] == ("alone",)


def test_an_endpoint_belongs_to_one_pool(stack):
    one = pool(stack, "one")
    with pytest.raises(PoolError):
        build_collector(stack, pools=[one, ModelPool(framework="sklearn", name="other", endpoint=one.endpoint)])


@pytest.mark.parametrize("names", [[], ["a/b"], ["dedicated"], ["same", "same"]])
def test_pools_whose_heat_has_no_name_of_its_own_are_refused(stack, names):
    pools = [pool(cdk.Stack(stack, f"Nested{number}"), name) for number, name in enumerate(names)]
    with pytest.raises(PoolError):
        build_collector(stack, pools=pools)


@pytest.mark.parametrize(
    "settings",
    [
        {"window_minutes": 7},
        {"window_minutes": 0},
        {"delay_seconds": -1},
        {"recount_minutes": 1},
        {"catch_up_hours": 0},
        {"windows_a_pass": 0},
        {"queries_at_once": 0},
    ],
)
def test_what_cannot_be_collected_is_refused(settings):
    with pytest.raises(TelemetryError):
        HeatSettings(**settings)


def test_the_alarm_looks_at_what_the_function_publishes(synthesize_stack):
    def build(stack):
        heat = build_collector(stack, function_settings=FunctionSettings(memory_mb=512, timeout_seconds=300, reserved_concurrency=1))
        endpoint = MultiModelEndpoint.from_endpoint_attributes(stack, "There", endpoint_name="shared")
        MmeMonitoring(stack, "Monitoring", endpoint=endpoint).add_heat(heat)

    alarms = [alarm["Properties"] for alarm in synthesize_stack(build, env=ENV).resources("AWS::CloudWatch::Alarm").values()]
    (late,) = [alarm for alarm in alarms if alarm.get("Namespace") == "MME/Heat"]
    assert (late["MetricName"], late["Statistic"], late["Threshold"]) == ("lag_seconds", "Maximum", 1800)
    assert late["Dimensions"][0]["Name"] == "function"
    assert any(alarm.get("MetricName") == "Errors" for alarm in alarms)


def test_the_platform_has_one_unless_it_is_told_not_to(stack):
    assert MultiTenantInference(stack, "Platform").heat is not None
    assert MultiTenantInference(stack, "Without", heat=HeatSettings(enabled=False)).heat is None


def test_the_rule_packs_find_only_what_a_stack_decides(synthesize):
    def build(app):
        stack = cdk.Stack(app, "Test", env=ENV)
        build_collector(stack, function_settings=FunctionSettings(memory_mb=512, timeout_seconds=300, reserved_concurrency=1))
        decided = "A stack's decision: as in the reference app."
        rules = ("IAMNoInlinePolicy", "CloudWatchLogGroupEncrypted", "LambdaInsideVPC", "S3BucketLoggingEnabled")
        rules += ("S3BucketReplicationEnabled", "S3DefaultEncryptionKMS")
        acknowledge(stack, {**{f"NIST.800.53.R5-{rule}": decided for rule in rules}, "AwsSolutions-S1": decided})
        cdk.Validations.of(app).add_plugins(AwsSolutionsChecks(app, verbose=True), NIST80053R5Checks(app, verbose=True))

    report = json.loads((synthesize(build).folder / "validation-report.json").read_text("utf-8"))
    assert [finding for plugin in report["pluginReports"] for finding in plugin["violations"]] == []
