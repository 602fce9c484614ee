"""Alarms, notifications and dashboard: every metric is in the catalogue, every alarm has its page, every decision a reason."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace

import aws_cdk as cdk
import pytest
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from cdk_nag import AwsSolutionsChecks, NIST80053R5Checks

from mme_constructs import AlarmSettings, MmeMonitoring, MultiModelEndpoint
from mme_constructs.errors import AlarmError, MetricError
from mme_constructs.monitoring_metrics import check_metric
from mme_facts.metrics import CATALOGUE, check_use
from mme_facts.thresholds import RULES, USERS_HURT, pages

ENV = cdk.Environment(account="123456789012", region="eu-central-1")
RUNBOOK = Path(__file__).parents[2] / "docs" / "runbook"


def endpoint_of(stack):
    return MultiModelEndpoint.from_endpoint_attributes(stack, "There", endpoint_name="elsewhere")


def build_everything(stack):
    """Every alarm that there is, on a GPU type."""
    monitoring = MmeMonitoring(stack, "Monitoring", endpoint=endpoint_of(stack), instance_type="ml.g5.2xlarge", invocation_path=True)
    function = lambda_.Function.from_function_name(stack, "Function", "admission-a")
    queue = sqs.Queue.from_queue_arn(stack, "Queue", "arn:aws:sqs:eu-central-1:123456789012:dead-letters")
    monitoring.add_stuck_updating()
    monitoring.add_warm_up(prefetch=True)
    monitoring.add_placement()
    monitoring.add_rejected_artifacts(function)
    monitoring.add_admission_dead_letters(queue)
    monitoring.add_function_throttles(function)
    monitoring.add_sweep(function)
    monitoring.add_heat(SimpleNamespace(function=function, dead_letters=queue))
    monitoring.add_tenants(logs.LogGroup.from_log_group_name(stack, "Log", "/invocation"))
    return monitoring


@pytest.fixture(scope="module")
def everything(synthesize):
    monitorings = []
    synthesized = synthesize(lambda app: monitorings.append(build_everything(cdk.Stack(app, "Test", env=ENV))))
    return synthesized, monitorings[0]


def alarms_of(synthesized):
    """Rule id -> properties, by the page that the description names."""
    found = {}
    for resource_type in ("AWS::CloudWatch::Alarm", "AWS::CloudWatch::CompositeAlarm"):
        for resource in synthesized.resources(resource_type).values():
            properties = resource["Properties"]
            (page,) = re.findall(r"Runbook: docs/runbook/([a-z0-9-]+)\.md$", properties["AlarmDescription"])
            if properties["AlarmDescription"].startswith("The heat function ends with errors"):
                continue  # it has no rule of its own, and borrows a page
            assert page not in found
            found[page] = properties
    return found


def made(synthesize_stack, **options):
    """The alarms of a monitoring with these options."""
    return alarms_of(synthesize_stack(lambda stack: MmeMonitoring(stack, "Monitoring", endpoint=endpoint_of(stack), **options), env=ENV))


def metric_stats(alarm):
    """(namespace, name, dimensions, statistic, period) of what an alarm looks at."""
    if "MetricName" in alarm:
        statistic = alarm.get("Statistic") or alarm["ExtendedStatistic"]
        yield alarm["Namespace"], alarm["MetricName"], alarm["Dimensions"], statistic, alarm["Period"], alarm.get("Unit")
    for item in alarm.get("Metrics", ()):
        if "MetricStat" in item:
            stat = item["MetricStat"]
            metric = stat["Metric"]
            yield metric["Namespace"], metric["MetricName"], metric["Dimensions"], stat["Stat"], stat["Period"], stat.get("Unit")


def dashboard_body(synthesized):
    body = synthesized.only("AWS::CloudWatch::Dashboard")["Properties"]["DashboardBody"]
    parts = body["Fn::Join"][1] if isinstance(body, dict) else [body]
    return json.loads("".join(part if isinstance(part, str) else next(iter(part)) for part in parts))


def dashboard_metrics(body):
    """(namespace, name, dimension names, statistic, period) of every metric of every graph."""
    for widget in body["widgets"]:
        for row in widget["properties"].get("metrics", ()):
            *names, options = row
            if names:
                yield names[0], names[1], names[2::2], options.get("stat", "Average"), options.get("period", 300)


def test_every_rule_has_its_alarm_and_every_alarm_its_runbook_page(everything):
    synthesized, monitoring = everything
    assert set(alarms_of(synthesized)) == {page.id for page in pages()}
    assert set(monitoring.alarms) == {*RULES, "function-errors-heat"}


def test_every_alarm_has_a_page_and_every_page_an_alarm(everything):
    assert {path.stem for path in RUNBOOK.glob("*.md")} - {"index"} == set(alarms_of(everything[0]))


def test_every_alarms_metric_dimensions_unit_statistic_and_period_are_in_the_catalogue(everything):
    looked_at = 0
    for name, alarm in alarms_of(everything[0]).items():
        for namespace, metric, dimensions, statistic, period, unit in metric_stats(alarm):
            names = [dimension["Name"] for dimension in dimensions]
            check_use(namespace, metric, dimensions=names, statistic=statistic, period_seconds=period, unit=unit)
            looked_at += 1
        assert "Metrics" not in alarm or name != USERS_HURT.id
    assert looked_at > len(RULES)


def test_every_metric_of_the_dashboard_is_in_the_catalogue(everything):
    used = list(dashboard_metrics(dashboard_body(everything[0])))
    assert len(used) > 15
    for namespace, name, dimensions, statistic, period in used:
        check_use(namespace, name, dimensions=dimensions, statistic=statistic, period_seconds=period)


def test_a_description_says_what_when_what_to_do_and_where_to_read_within_cloudwatchs_limit(everything):
    for name, alarm in alarms_of(everything[0]).items():
        text = alarm["AlarmDescription"]
        page = {page.id: page for page in pages()}[name]
        assert text.startswith(f"{page.title}. Fires when: ")
        assert page.action in text
        assert len(text) <= 1024


def test_missing_data_counts_as_the_rule_says(everything):
    for name, rule in RULES.items():
        assert alarms_of(everything[0])[name]["TreatMissingData"] == rule.missing


def test_utilizations_are_scaled_to_the_instance_type(everything, synthesize_stack):
    alarms = alarms_of(everything[0])
    assert alarms["cpu-high"]["Threshold"] == 80 * 8
    assert alarms["cpu-low"]["Threshold"] == 50 * 8
    assert alarms["gpu-memory-high"]["Threshold"] == 90
    expressions = [item.get("Expression") for item in alarms["over-provisioned"]["Metrics"]]
    assert "IF(cpu < 50 * 8, IF(memory > 80, 1, 0), 0)" in expressions
    assert made(synthesize_stack, instance_type="ml.m5.xlarge")["cpu-high"]["Threshold"] == 80 * 4


def test_the_unload_rate_is_the_sample_count_of_model_unloading_time(everything):
    stats = {(metric, statistic) for _, metric, _, statistic, _, _ in metric_stats(alarms_of(everything[0])["thrashing"])}
    assert stats == {("ModelUnloadingTime", "SampleCount"), ("Invocations", "Sum")}


def test_without_a_gpu_there_is_no_gpu_alarm(synthesize_stack):
    assert "gpu-memory-high" not in made(synthesize_stack, instance_type="ml.m5.xlarge")


def test_without_an_instance_type_the_alarms_that_need_it_are_left_out_and_named(flags):
    app = cdk.App(context=flags)
    stack = cdk.Stack(app, "Test", env=ENV)
    monitoring = MmeMonitoring(stack, "Monitoring", endpoint=endpoint_of(stack))
    assert not {"cpu-high", "cpu-low", "over-provisioned", "gpu-memory-high"} & set(monitoring.alarms)
    assert "memory-high" in monitoring.alarms
    notes = [entry.data for entry in monitoring.node.metadata if entry.type == "aws:cdk:info"]
    assert any("'cpu-high' is left out" in str(note) for note in notes)


def test_with_the_cache_disabled_there_are_no_cache_alarms(synthesize_stack):
    class Uncached:
        endpoint_name, endpoint_arn, variant_name, instance_type, cache_enabled = "there", "arn", "AllTraffic", "ml.m5.xlarge", False

    alarms = alarms_of(synthesize_stack(lambda stack: MmeMonitoring(stack, "Monitoring", endpoint=Uncached()), env=ENV))
    assert not {"low-cache-hit", "thrashing", "loaded-model-collapse"} & set(alarms)
    assert {"server-errors", "cpu-high"} <= set(alarms)


def test_the_composite_alarm_looks_at_what_users_feel_and_at_nothing_else(everything):
    synthesized, _ = everything
    rule = json.dumps(alarms_of(synthesized)[USERS_HURT.id]["AlarmRule"])
    logical = synthesized.resources("AWS::CloudWatch::Alarm")
    inside = {name for name in logical if f'"{name}"' in rule}
    hurting = {re.search(r"runbook/([a-z0-9-]+)\.md", logical[name]["Properties"]["AlarmDescription"])[1] for name in inside}
    assert hurting == {rule.id for rule in RULES.values() if rule.hurts_users}


def test_pages_wake_one_topic_and_tickets_go_to_another(synthesize_stack):
    def build(stack):
        on_call = sns.Topic.from_topic_arn(stack, "OnCall", "arn:aws:sns:eu-central-1:123456789012:on-call")
        tickets = sns.Topic.from_topic_arn(stack, "Tickets", "arn:aws:sns:eu-central-1:123456789012:tickets")
        MmeMonitoring(stack, "Monitoring", endpoint=endpoint_of(stack), topic=on_call, ticket_topic=tickets)

    synthesized = synthesize_stack(build, env=ENV)
    for name, alarm in alarms_of(synthesized).items():
        expected = "on-call" if name == USERS_HURT.id else "tickets"
        assert alarm["AlarmActions"] == alarm["OKActions"] == [f"arn:aws:sns:eu-central-1:123456789012:{expected}"]
    assert not synthesized.resources("AWS::SNS::Topic")
    assert not synthesized.resources("AWS::KMS::Key")


def test_the_topic_it_makes_is_encrypted_takes_tls_only_and_hears_cloudwatch_of_this_account(everything):
    synthesized, _ = everything
    assert "KmsMasterKeyId" in synthesized.only("AWS::SNS::Topic")["Properties"]
    statements = synthesized.only("AWS::SNS::TopicPolicy")["Properties"]["PolicyDocument"]["Statement"]
    by_effect = {statement["Effect"]: statement for statement in statements}
    assert by_effect["Deny"]["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    assert by_effect["Allow"]["Principal"] == {"Service": "cloudwatch.amazonaws.com"}
    assert by_effect["Allow"]["Condition"] == {"StringEquals": {"aws:SourceAccount": "123456789012"}}
    key = synthesized.only("AWS::KMS::Key")["Properties"]
    (ours,) = [item for item in key["KeyPolicy"]["Statement"] if "Service" in item["Principal"]]
    assert ours["Action"] == ["kms:Decrypt", "kms:GenerateDataKey"]
    assert ours["Condition"] == {"StringEquals": {"aws:SourceAccount": "123456789012"}}
    assert key["EnableKeyRotation"] is True


def test_several_endpoints_share_a_topic_and_its_policy_names_alarms_once(synthesize_stack):
    def build(stack):
        first = MmeMonitoring(stack, "First", endpoint=endpoint_of(stack))
        other = MultiModelEndpoint.from_endpoint_attributes(stack, "Other", endpoint_name="other")
        MmeMonitoring(stack, "Second", endpoint=other, topic=first.topic, ticket_topic=first.ticket_topic)

    synthesized = synthesize_stack(build, env=ENV)
    statements = synthesized.only("AWS::SNS::TopicPolicy")["Properties"]["PolicyDocument"]["Statement"]
    assert sorted(statement["Sid"] for statement in statements) == ["Alarms", "AllowPublishThroughSSLOnly"]
    assert len(synthesized.resources("AWS::CloudWatch::CompositeAlarm")) == 2


def test_a_key_that_is_given_encrypts_the_topic_and_lets_cloudwatch_in(synthesize_stack):
    def build(stack):
        MmeMonitoring(stack, "Monitoring", endpoint=endpoint_of(stack), encryption_key=kms.Key(stack, "Mine"))

    key = synthesize_stack(build, env=ENV).only("AWS::KMS::Key")
    assert "cloudwatch.amazonaws.com" in json.dumps(key["Properties"]["KeyPolicy"])


def test_an_override_changes_what_it_names_and_none_leaves_the_alarm_out(synthesize_stack):
    overrides = {
        "long-load-wait": AlarmSettings(threshold=5, period_minutes=1, periods=10, breaching_periods=2, missing="missing"),
        "cpu-high": AlarmSettings(threshold=70),
        "memory-high": AlarmSettings(periods=6),
        "disk-high": None,
    }
    alarms = made(synthesize_stack, instance_type="ml.m5.xlarge", overrides=overrides)
    wait = alarms["long-load-wait"]
    assert (wait["Threshold"], wait["Period"], wait["EvaluationPeriods"], wait["DatapointsToAlarm"]) == (5_000_000, 60, 10, 2)
    assert wait["TreatMissingData"] == "missing"
    assert "above 5 s, in 2 of 10 periods of 1 min" in wait["AlarmDescription"]
    assert alarms["cpu-high"]["Threshold"] == 280
    assert (alarms["memory-high"]["EvaluationPeriods"], alarms["memory-high"]["DatapointsToAlarm"]) == (6, 6)
    assert "disk-high" not in alarms


def test_the_runbook_may_stand_elsewhere(synthesize_stack):
    synthesized = synthesize_stack(
        lambda stack: MmeMonitoring(
            stack, "Monitoring", endpoint=endpoint_of(stack), runbook="https://wiki.example.com/mme/{alarm}", dashboard=False
        ),
        env=ENV,
    )
    texts = [alarm["Properties"]["AlarmDescription"] for alarm in synthesized.resources("AWS::CloudWatch::Alarm").values()]
    assert all("Runbook: https://wiki.example.com/mme/" in text for text in texts)
    assert not synthesized.resources("AWS::CloudWatch::Dashboard")


def test_the_dashboard_starts_with_users_then_cache_then_fleet_then_warm_up_then_tenants(everything):
    widgets = dashboard_body(everything[0])["widgets"]
    headings = [widget["properties"]["markdown"] for widget in widgets if widget["type"] == "text"]
    assert [heading.split(":")[0].split("?")[0] for heading in headings] == [
        "## Are users hurt",
        "## Cache",
        "## Fleet",
        "## Warm-up",
        "## Tenants",
    ]
    assert widgets[1]["type"] == "alarm"
    assert widgets[1]["y"] == 1
    assert all(widget["y"] <= 7 for widget in widgets[:4])


def test_several_functions_each_get_their_throttle_alarm(stack):
    monitoring = MmeMonitoring(stack, "Monitoring", endpoint=endpoint_of(stack))
    for name in ("a", "b"):
        monitoring.add_function_throttles(lambda_.Function.from_function_name(stack, name, name))
    assert {name for name in monitoring.alarms if name.startswith("function-throttles")} == {
        "function-throttles",
        "function-throttles Test/b",
    }


def test_the_same_alarm_twice_is_refused(stack):
    monitoring = MmeMonitoring(stack, "Monitoring", endpoint=endpoint_of(stack))
    monitoring.add_warm_up()
    with pytest.raises(AlarmError, match="got 'warm-up-failed'"):
        monitoring.add_warm_up()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"overrides": {"low-cache": None}}, "no such alarm: got 'low-cache'; allowed: server-errors, "),
        ({"runbook": "https://wiki.example.com"}, "allowed: a text with {alarm}"),
        ({"instance_type": "ml.huge.xlarge"}, "got 'ml.huge.xlarge'"),
        ({"instance_type": "ml.m5.xlarge", "overrides": {"over-provisioned": AlarmSettings(threshold=3)}}, "no threshold of its own"),
        ({"overrides": {"low-cache-hit": AlarmSettings(threshold=80)}}, "got 80; allowed: 0 to 1. Use the unit"),
        ({"overrides": {"memory-high": AlarmSettings(threshold=320)}}, "got 320; allowed: 0 to 100 %."),
        ({"overrides": {"long-load-wait": AlarmSettings(threshold=-1)}}, "got -1; allowed: 0 or more"),
        ({"overrides": {"memory-high": AlarmSettings(periods=2, breaching_periods=3)}}, "got 3; allowed: 1 to 2"),
        ({"overrides": {rule.id: None for rule in RULES.values() if rule.hurts_users}}, "nothing to look at"),
    ],
)
def test_rejects_settings_that_cannot_work(stack, options, text):
    with pytest.raises(AlarmError) as caught:
        MmeMonitoring(stack, "Monitoring", endpoint=endpoint_of(stack), **options)
    assert text in str(caught.value)


@pytest.mark.parametrize("name", ["period_minutes", "periods", "breaching_periods"])
@pytest.mark.parametrize("value", [0, -1, 1.5])
def test_settings_take_whole_numbers_from_one(name, value):
    with pytest.raises(AlarmError, match=f"{name} is no whole number"):
        AlarmSettings(**{name: value})


def own_metric(**changed):
    dimensions = {"EndpointName": "elsewhere", "VariantName": "AllTraffic"}
    right = {"namespace": "AWS/SageMaker", "metric_name": "ModelCacheHit", "dimensions_map": dimensions, "statistic": "Average"}
    return cloudwatch.Metric(**right | changed)


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"statistic": "p90"}, "ModelCacheHit has no such statistic: got 'p90'"),
        ({"dimensions_map": {"EndpointName": "elsewhere"}}, "not published with these dimensions"),
        ({"unit": cloudwatch.Unit.COUNT}, "ModelCacheHit has another unit: got 'Count'; allowed: None"),
        ({"period": cdk.Duration.seconds(10)}, "multiples of 60 seconds"),
        ({"metric_name": "CacheHits"}, "no such metric"),
    ],
)
def test_an_alarm_of_ones_own_takes_only_what_is_published(stack, changed, text):
    monitoring = MmeMonitoring(stack, "Monitoring", endpoint=endpoint_of(stack))
    texts = {"title": "Mine", "action": "Look.", "runbook": "mine.md"}
    with pytest.raises(MetricError) as caught:
        monitoring.add_alarm("Mine", metric=own_metric(**changed), threshold=1, **texts)
    assert text in str(caught.value)
    expression = cloudwatch.MathExpression(expression="1 - m", using_metrics={"m": own_metric(**changed)})
    if "period" not in changed:  # an expression's period replaces its metrics'
        with pytest.raises(MetricError):
            monitoring.add_alarm("Mine", metric=expression, threshold=1, **texts)


def test_an_alarm_of_ones_own_is_made_like_the_others(synthesize_stack):
    def build(stack):
        monitoring = MmeMonitoring(stack, "Monitoring", endpoint=endpoint_of(stack))
        alarm = monitoring.add_alarm(
            "Mine",
            metric=own_metric(),
            title="Mine",
            action="Look.",
            runbook="docs/runbook/mine.md",
            threshold=0.5,
            breach="below",
            period_minutes=10,
            periods=2,
        )
        assert monitoring.alarms["Mine"] is alarm
        with pytest.raises(AlarmError, match="such an alarm already"):
            monitoring.add_alarm("Mine", metric=own_metric(), title="Mine", action="Look.", runbook="mine.md", threshold=1)

    alarm = alarms_of(synthesize_stack(build, env=ENV))["mine"]
    assert (alarm["Period"], alarm["EvaluationPeriods"], alarm["ComparisonOperator"]) == (600, 2, "LessThanThreshold")
    assert alarm["AlarmActions"]


def test_metrics_of_foreign_namespaces_pass():
    check_metric(cloudwatch.Metric(namespace="Mine/Own", metric_name="anything", statistic="p77"))


def test_the_rule_packs_find_nothing_and_would_find_a_plain_topic(synthesize):
    def build(app, *, plain=False):
        stack = cdk.Stack(app, "Test", env=ENV)
        build_everything(stack)
        if plain:
            sns.Topic(stack, "Plain")
        cdk.Validations.of(app).add_plugins(AwsSolutionsChecks(app, verbose=True), NIST80053R5Checks(app, verbose=True))

    report = json.loads((synthesize(build).folder / "validation-report.json").read_text("utf-8"))
    assert [finding for plugin in report["pluginReports"] for finding in plugin["violations"] + plugin["suppressedViolations"]] == []
    with pytest.raises(RuntimeError, match="SNS"):
        synthesize(lambda app: build(app, plain=True))


def test_cfn_lint_finds_neither_error_nor_warning(everything):
    from cfnlint.api import ManualArgs, lint_file

    for path in everything[0].folder.glob("*.template.json"):
        assert [str(match) for match in lint_file(path, ManualArgs(regions=["eu-central-1"]))] == []


def test_the_catalogue_knows_more_than_the_alarms_use():
    assert {(signal.metric.namespace, signal.metric.name) for rule in RULES.values() for signal in rule.signals.values()} < set(CATALOGUE)


def test_an_alarm_of_a_rule_can_be_used_like_any_alarm(synthesize_stack):
    def build(stack):
        alarms = MmeMonitoring(stack, "Monitoring", endpoint=endpoint_of(stack)).alarms
        assert alarms["server-errors"] is alarms["server-errors"]
        assert len(alarms) == len(list(alarms)) > 5
        rule = cloudwatch.AlarmRule.from_alarm(alarms["server-errors"], cloudwatch.AlarmState.ALARM)
        cloudwatch.CompositeAlarm(stack, "Mine", composite_alarm_name="mine", alarm_rule=rule)

    synthesized = synthesize_stack(build, env=ENV)
    (mine,) = [
        alarm["Properties"]
        for alarm in synthesized.resources("AWS::CloudWatch::CompositeAlarm").values()
        if alarm["Properties"].get("AlarmName") == "mine"
    ]
    (wanted,) = [
        name
        for name, alarm in synthesized.resources("AWS::CloudWatch::Alarm").items()
        if "runbook/server-errors" in alarm["Properties"]["AlarmDescription"]
    ]
    assert mine["AlarmRule"] == {"Fn::Join": ["", ['ALARM("', {"Fn::GetAtt": [wanted, "Arn"]}, '")']]}


def test_widgets_of_ones_own_stand_below_the_others(synthesize_stack):
    def build(stack):
        board = MmeMonitoring(stack, "Monitoring", endpoint=endpoint_of(stack)).dashboard
        board.add_widgets(
            cloudwatch.TextWidget(markdown="mine", width=6, height=3),
            cloudwatch.GraphWidget(title="Mine", left=[own_metric()], width=6, height=5),
        )
        board.add_widgets(cloudwatch.TextWidget(markdown="last"))

    widgets = dashboard_body(synthesize_stack(build, env=ENV))["widgets"]
    *others, text, graph, last = widgets
    bottom = max(widget["y"] + widget["height"] for widget in others)
    assert [(widget["x"], widget["y"]) for widget in (text, graph, last)] == [(0, bottom), (6, bottom), (0, bottom + 5)]
