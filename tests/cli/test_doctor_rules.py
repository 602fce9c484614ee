"""What readings mean: every finding appears when it should, and does not when it should not."""

from __future__ import annotations

import pytest

from mme_cli.doctor_math import evaluate
from mme_cli.doctor_rules import JUDGED, Query, Readings, diagnose, needed_queries
from mme_facts.instances import instance
from mme_facts.metrics import CATALOGUE, metric
from mme_facts.thresholds import RULES

HOUR = 3600
START = 1_700_002_800
SAGEMAKER, INSTANCES, OURS = "AWS/SageMaker", "/aws/sagemaker/Endpoints", "MME/Invocations"

HEALTHY = {
    (SAGEMAKER, "Invocations", "Sum"): 1000,
    (SAGEMAKER, "Invocation5XXErrors", "Sum"): 0,
    (SAGEMAKER, "Invocation4XXErrors", "Sum"): 3,
    (SAGEMAKER, "InvocationModelErrors", "Sum"): 1,
    (SAGEMAKER, "ModelCacheHit", "Average"): 0.97,
    (SAGEMAKER, "ModelCacheHit", "SampleCount"): 1000,
    (SAGEMAKER, "ModelLoadingWaitTime", "Maximum"): 1_500_000,
    (SAGEMAKER, "ModelUnloadingTime", "SampleCount"): 4,
    (SAGEMAKER, "ModelDownloadingTime", "Average"): 700_000,
    (SAGEMAKER, "ModelLoadingTime", "Average"): 300_000,
    (INSTANCES, "LoadedModelCount", "Sum"): 2000,
    (INSTANCES, "CPUUtilization", "Average"): 260,
    (INSTANCES, "MemoryUtilization", "Average"): 70,
    (INSTANCES, "MemoryUtilization", "Maximum"): 75,
    (INSTANCES, "DiskUtilization", "Maximum"): 40,
    (INSTANCES, "GPUMemoryUtilization", "Maximum"): 60,
    (OURS, "throttled", "Sum"): 0,
    (OURS, "throttled", "SampleCount"): 1000,
}
"""A right-sized endpoint on four vCPUs: value of every period."""


def readings(
    changed=None, *, hours=25, instance_type="ml.g5.xlarge", cached=True, status="InService", seconds=60.0, lengths=None, until=None
):
    """A healthy endpoint's readings with some series changed: (namespace, name, statistic) -> value, or function of the period's number."""
    end = START + hours * HOUR
    series = {}
    for query in needed_queries():
        key = (query.metric.namespace, query.metric.name, query.statistic)
        value = (changed or {}).get(key, HEALTHY[key])
        step = query.period_minutes * 60
        times = range(START, (until or end) - step + 1, step)
        if value is not None:
            values = {time: float(value(index) if callable(value) else value) for index, time in enumerate(times)}
            series[query] = {time: number for time, number in values.items() if number == number}
    return Readings(
        endpoint="mme-a",
        variant="AllTraffic",
        status=status,
        seconds_in_status=seconds,
        instance=None if instance_type is None else instance(instance_type),
        cache_enabled=cached,
        start=START,
        end=end,
        series=series,
    )


def found(changed=None, **options):
    return {finding.rule.id: finding for finding in diagnose(readings(changed, **options)).findings}


# rule -> (series that trip it, series just short of it)
CASES = {
    "server-errors": ({(SAGEMAKER, "Invocation5XXErrors", "Sum"): 11}, {(SAGEMAKER, "Invocation5XXErrors", "Sum"): 10}),
    "model-errors": ({(SAGEMAKER, "InvocationModelErrors", "Sum"): 51}, {(SAGEMAKER, "InvocationModelErrors", "Sum"): 50}),
    "client-errors": ({(SAGEMAKER, "Invocation4XXErrors", "Sum"): 101}, {(SAGEMAKER, "Invocation4XXErrors", "Sum"): 100}),
    "throttles": ({(OURS, "throttled", "Sum"): 11}, {(OURS, "throttled", "Sum"): 10}),
    "long-load-wait": (
        {(SAGEMAKER, "ModelLoadingWaitTime", "Maximum"): 20_000_001},
        {(SAGEMAKER, "ModelLoadingWaitTime", "Maximum"): 20_000_000},
    ),
    "low-cache-hit": ({(SAGEMAKER, "ModelCacheHit", "Average"): 0.89}, {(SAGEMAKER, "ModelCacheHit", "Average"): 0.9}),
    "thrashing": (
        {(SAGEMAKER, "ModelUnloadingTime", "SampleCount"): 101},
        {(SAGEMAKER, "ModelUnloadingTime", "SampleCount"): 100},
    ),
    "loaded-model-collapse": (
        {(INSTANCES, "LoadedModelCount", "Sum"): lambda index: 2000 if index < 200 else 990},
        {(INSTANCES, "LoadedModelCount", "Sum"): lambda index: 2000 if index < 200 else 1010},
    ),
    "cpu-high": ({(INSTANCES, "CPUUtilization", "Average"): 321}, {(INSTANCES, "CPUUtilization", "Average"): 320}),
    "cpu-low": ({(INSTANCES, "CPUUtilization", "Average"): 199}, {(INSTANCES, "CPUUtilization", "Average"): 200}),
    "over-provisioned": (
        {(INSTANCES, "CPUUtilization", "Average"): 100, (INSTANCES, "MemoryUtilization", "Average"): 85},
        {(INSTANCES, "CPUUtilization", "Average"): 100, (INSTANCES, "MemoryUtilization", "Average"): 79},
    ),
    "memory-high": ({(INSTANCES, "MemoryUtilization", "Maximum"): 91}, {(INSTANCES, "MemoryUtilization", "Maximum"): 90}),
    "disk-high": ({(INSTANCES, "DiskUtilization", "Maximum"): 81}, {(INSTANCES, "DiskUtilization", "Maximum"): 80}),
    "gpu-memory-high": ({(INSTANCES, "GPUMemoryUtilization", "Maximum"): 91}, {(INSTANCES, "GPUMemoryUtilization", "Maximum"): 90}),
}


def test_every_rule_of_an_endpoint_has_a_case():
    assert set(CASES) == {rule.id for rule in JUDGED}


def test_a_right_sized_endpoint_has_no_finding_and_everything_was_judged():
    diagnosis = diagnose(readings())
    assert diagnosis.findings == ()
    assert diagnosis.not_judged == ()
    assert diagnosis.healthy is True


@pytest.mark.parametrize("rule_id", CASES)
def test_a_finding_appears_beyond_its_limit(rule_id):
    assert rule_id in found(CASES[rule_id][0])


@pytest.mark.parametrize("rule_id", CASES)
def test_a_finding_does_not_appear_at_its_limit(rule_id):
    assert rule_id not in found(CASES[rule_id][1])


@pytest.mark.parametrize("rule_id", [rule.id for rule in JUDGED if rule.breaching_periods > 1])
def test_one_bad_period_is_not_enough(rule_id):
    def briefly(key, value):
        return lambda index: value if index == 7 else HEALTHY[key]

    assert rule_id not in found({key: briefly(key, value) for key, value in CASES[rule_id][0].items()})


def test_a_ratio_of_few_requests_says_nothing():
    few = {
        (SAGEMAKER, "Invocations", "Sum"): 19,
        (SAGEMAKER, "Invocation5XXErrors", "Sum"): 19,
        (SAGEMAKER, "ModelCacheHit", "SampleCount"): 19,
        (SAGEMAKER, "ModelCacheHit", "Average"): 0.1,
        (SAGEMAKER, "ModelUnloadingTime", "SampleCount"): 9,
    }
    assert found(few) == {}


def test_cpu_is_judged_by_the_vcpus_of_the_instance_type():
    busy = {(INSTANCES, "CPUUtilization", "Average"): 330}
    assert "cpu-high" in found(busy, instance_type="ml.m5.xlarge")
    assert "cpu-high" not in found(busy, instance_type="ml.m5.2xlarge")
    assert found(busy, instance_type="ml.m5.xlarge")["cpu-high"].worst == "82.5 %"
    assert found(busy, instance_type="ml.m5.xlarge")["cpu-high"].limit == "80 %"


def test_without_an_instance_type_cpu_is_not_judged_and_it_is_said():
    diagnosis = diagnose(readings({(INSTANCES, "CPUUtilization", "Average"): 400}, instance_type=None))
    assert diagnosis.findings == ()
    assert {item.rule.id: item.why for item in diagnosis.not_judged}["cpu-high"] == "the instance type is not known: pass --instance-type"


def test_an_instance_without_a_gpu_has_no_gpu_finding():
    diagnosis = diagnose(readings(CASES["gpu-memory-high"][0], instance_type="ml.m5.xlarge"))
    assert "gpu-memory-high" not in {finding.rule.id for finding in diagnosis.findings}
    assert "gpu-memory-high" not in {item.rule.id for item in diagnosis.not_judged}


def test_with_the_cache_disabled_unloads_and_misses_are_right():
    assert found({**CASES["low-cache-hit"][0], **CASES["thrashing"][0]}, cached=False) == {}


def test_a_rule_that_looks_at_a_day_says_how_many_hours_it_needs():
    diagnosis = diagnose(readings(CASES["cpu-low"][0], hours=3))
    reasons = {item.rule.id: item.why for item in diagnosis.not_judged}
    assert reasons["cpu-low"] == "it looks at 24 h: pass --hours 25"
    assert reasons["over-provisioned"] == "it looks at 6 h: pass --hours 7"


def test_a_rule_without_data_is_named_with_the_reason():
    diagnosis = diagnose(readings({(OURS, "throttled", "Sum"): None, (OURS, "throttled", "SampleCount"): None}))
    assert [item.rule.id for item in diagnosis.not_judged] == ["throttles"]
    assert diagnosis.not_judged[0].why.startswith("no data. ")


def test_without_any_data_nothing_is_judged_and_nothing_is_called_healthy():
    diagnosis = diagnose(readings(dict.fromkeys(HEALTHY)))
    assert diagnosis.blind
    assert diagnosis.healthy is None
    assert diagnosis.findings == ()


def test_what_ended_is_told_apart_from_what_is_on():
    early = {(INSTANCES, "MemoryUtilization", "Maximum"): lambda index: 95 if 10 <= index < 20 else 70}
    finding = found(early)["memory-high"]
    assert not finding.now
    assert finding.last_seen == START + 20 * 300
    assert found({(INSTANCES, "MemoryUtilization", "Maximum"): 95})["memory-high"].now


def test_metrics_that_come_late_do_not_end_a_finding():
    end = START + 25 * HOUR
    assert found(CASES["server-errors"][0], until=end - 60)["server-errors"].now


def test_three_of_five_minutes_of_errors_are_enough_and_two_are_not():
    def errors(bad):
        return {(SAGEMAKER, "Invocation5XXErrors", "Sum"): lambda index: 100 if index in bad else 0}

    assert "server-errors" in found(errors({100, 102, 104}))
    assert "server-errors" not in found(errors({100, 102, 105}))


def test_what_users_feel_now_comes_first():
    changed = {
        **CASES["disk-high"][0],
        (SAGEMAKER, "Invocation4XXErrors", "Sum"): lambda index: 500 if index < 50 else 0,
        **CASES["model-errors"][0],
    }
    assert list(found(changed)) == ["model-errors", "disk-high", "client-errors"]


@pytest.mark.parametrize(("download", "load", "verdict"), [(9_000_000, 1_000_000, "long downloads"), (1_000_000, 9_000_000, "long loads")])
def test_a_long_wait_is_told_apart_by_its_longer_part(download, load, verdict):
    changed = {
        **CASES["long-load-wait"][0],
        (SAGEMAKER, "ModelDownloadingTime", "Average"): download,
        (SAGEMAKER, "ModelLoadingTime", "Average"): load,
    }
    (evidence,) = found(changed)["long-load-wait"].evidence
    assert evidence.endswith(verdict)
    assert "mean download" in evidence
    assert found(changed)["long-load-wait"].worst == "20 s"


@pytest.mark.parametrize(
    ("status", "seconds", "stuck"),
    [
        ("Updating", 2701, True),
        ("Updating", 2700, False),
        ("InService", 10**6, False),
        ("Failed", 1, True),
        ("UpdateRollbackFailed", 1, True),
    ],
)
def test_an_endpoint_that_does_not_come_back_is_found_by_its_status(status, seconds, stuck):
    assert ("stuck-updating" in found(status=status, seconds=seconds)) is stuck
    blind = diagnose(readings(dict.fromkeys(HEALTHY), status=status, seconds=seconds))
    assert [finding.rule.id for finding in blind.findings] == (["stuck-updating"] if stuck else [])


def test_every_query_is_in_the_catalogue_with_its_statistic():
    queries = needed_queries()
    assert len(set(queries)) == len(queries) <= 500
    for query in queries:
        assert CATALOGUE[query.metric.namespace, query.metric.name] is query.metric
        query.metric.check_statistic(query.statistic)


def test_metric_math_follows_cloudwatch_on_missing_data_and_zero():
    series = {"a": {0: 4.0, 60: 6.0, 120: 0.0}, "b": {0: 2.0, 120: 0.0}}
    assert evaluate("a / b", series) == {0: 2.0}
    assert evaluate("IF(a >= 5, 100 * a, -1)", series) == {0: -1.0, 60: 600.0, 120: -1.0}
    assert evaluate("DIFF(a)", series) == {60: 2.0, 120: -6.0}
    assert evaluate("DIFF(b) + 1", series) == {120: -1.0}


@pytest.mark.parametrize("expression", ["SUM(a)", "a ** 2", "unknown + 1", "'text'", "IF(a, 1)", "a < 1 < 2"])
def test_metric_math_refuses_what_it_does_not_know(expression):
    with pytest.raises(ValueError, match="is not supported"):
        evaluate(expression, {"a": {0: 1.0}})


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.id)
def test_every_shared_expression_can_be_evaluated(rule):
    evaluate(rule.math(vcpus=4), {name: {0: 1.0, 300: 2.0} for name in rule.signals})


def test_a_query_is_a_value():
    row = metric(SAGEMAKER, "Invocations")
    assert Query(row, "Sum", 5) == Query(row, "Sum", 5)
    assert len({Query(row, "Sum", 5), Query(row, "Sum", 5), Query(row, "Sum", 1)}) == 2
